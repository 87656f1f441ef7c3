"""Every function and operator of the language over nasty values, as it is written here and in Spark."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from decimal import Decimal

import pyarrow as pa

from trueline.view.expressions import expression
from trueline.view.expressions.functions.registry import functions

INTS = [None, 0, 1, -1, 2, 7, -7, 100, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63)]
SMALL = [None, 0, 1, -1, 2, 3, -3, 12, 1000, -1000, (1 << 31) - 1, -(1 << 31)]
FLOATS = [None, 0.0, -0.0, 1.5, -2.5, 2.675, 0.1, 1e300, -1e19, 5e-324, math.nan, math.inf]
DECIMALS = [
    None,
    *map(Decimal, ["0.00", "1.00", "-1.00", "2.50", "-2.50", "0.05", "9999999.99", "-9999999.99"]),
]
DECIMALS += [Decimal("1.25"), Decimal("3.10"), Decimal("-0.01")]
TEXTS = [None, "", "a", "b", "Bern", " Zürich ", "a,b,,c", "e", "ß", "𝄞", "%_", "aXbXc"]
# One of them in each row, for functions of one text.
UNUSUAL = [
    *(
        "İ",
        "ı",
        "ǅ",
        "Σας",
        "ﬁ",
        "é",
        "𐐀",
        "\t",
        "\n",
        "a\nb",
        "a\r",
        "ab\n",
        "a\u2028b",
        "\x0b",
        "\u2028",
        "\u00a0x",
        "  ",
        "'",
    ),
    *("1", "-7", "+7", " 8 ", "1.5", "1e3", "NaN", "nan", "Infinity", "inf", "-inf", "0x10", "1_000", "٣"),
    *("true", "T", "yes", "1.0", "no", "2026-11-13", "2026-1-3", "2026", "2026-11-13 12:00:00", "24:00"),
    *("2026-11-13T12:00:00Z", "2026-02-30", "13.11.2026", "99999999999999999999", "9223372036854775808"),
    *("\\", "a.b", "$1", "(", "[a]", "AbC", "x" * 300, "1e400", "1e-400", ".5", "5.", "-0", "00012"),
]
DAYS = [
    None,
    *(dt.date(*each) for each in ((2024, 2, 29), (1969, 12, 31), (1970, 1, 1), (2026, 11, 13), (1, 1, 1))),
    *(
        dt.date(*each)
        for each in ((9999, 12, 31), (1582, 10, 4), (1900, 3, 1), (2027, 1, 1), (2000, 12, 31), (1600, 2, 29))
    ),
]
MOMENTS = [
    None,
    *(
        dt.datetime(*each, tzinfo=dt.UTC)
        for each in (
            (2026, 11, 13, 12, 34, 56, 789),
            (1969, 12, 31, 23, 59, 59, 999999),
            (1970, 1, 1),
            (2024, 2, 29, 23, 59, 59),
            (1, 1, 1, 0, 0, 0, 1),
            (9999, 12, 31, 23, 59, 59, 999999),
            (1582, 10, 15),
            (1900, 1, 1, 12),
            (2000, 1, 1),
            (2016, 12, 31, 23, 59, 59),
            (2038, 1, 19, 3, 14, 8),
        )
    ),
]
VECTORS = [
    None,
    [],
    [1.0],
    [None],
    [1.0, None, 3.0],
    [math.nan],
    [0.0, -0.0],
    [4.0] * 5,
    [math.inf],
    [2.0, 1.0],
    [7.0],
    [8.0],
]
TRUTHS = [None, True, False] * 4

PAIRS = list(itertools.product(range(12), range(12)))


def both(one, other, values, kind):
    """Two columns that hold every pair of some values."""
    return {
        one: pa.array([values[a] for a, _ in PAIRS], kind),
        other: pa.array([values[b] for _, b in PAIRS], kind),
    }


ROWS = pa.table(
    {
        "n": pa.array(range(len(PAIRS)), pa.int64()),
        **both("i", "k", INTS, pa.int64()),
        **both("j", "l", SMALL, pa.int32()),
        **both("f", "e", FLOATS, pa.float64()),
        "g": pa.array([FLOATS[b] for _, b in PAIRS], pa.float32()),
        **both("m", "o", DECIMALS, pa.decimal128(9, 2)),
        **both("s", "p", TEXTS, pa.string()),
        "u": pa.array([UNUSUAL[at % len(UNUSUAL)] for at in range(len(PAIRS))], pa.string()),
        **both("d", "c", DAYS, pa.date32()),
        **both("t", "r", MOMENTS, pa.timestamp("us", "UTC")),
        "v": pa.array([VECTORS[a] for a, _ in PAIRS], pa.list_(pa.float64())),
        **both("b", "h", TRUTHS, pa.bool_()),
    }
)
# What stands for an argument of a kind; two arguments of one kind take turns.
KINDS = {
    "text": [["s", "u"], ["p"], ["p"]],
    "pattern": [["'a'", "p"], ["'xy'", "p"], ["'xy'"]],
    "const text": [["','", "''", "'a'"], ["'b'"]],
    "number": [["i", "j", "f", "g", "m"], ["k", "e", "o"]],
    "float": [["f"], ["e"]],
    "whole": [["j"], ["l"], ["l"]],
    "const whole": [["0", "2", "-1", "100"]],
    "moment": [["d", "t"], ["c", "r"]],
    "clock": [["d", "t"]],
    "readable": [["u", "d", "t"]],
    "vector": [["v"]],
    "values": [
        ["i", "f", "s", "d", "t", "m", "b"],
        ["k", "e", "p", "c", "r", "o", "h"],
        ["k", "e", "p", "c", "r", "o", "h"],
    ],
}
# Constants that mean something to a function.
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
OWN = {
    "date_trunc": [f"date_trunc('{unit}', {of})" for unit in UNITS for of in ("d", "t")],
    "rlike": [
        f"rlike({of}, '{each}')"
        for of in "su"
        for each in ("^[A-Z]", "a.b", "a.", "b$", "e$", "[0-9]+", "(?i)BERN")
    ],
    "regexp_extract": [
        *(
            f"regexp_extract({of}, '{each}', 0)"
            for of in "su"
            for each in ("[A-Z]+", "a.b", "(a)|b", "x*", "b$")
        ),
        *(
            "regexp_extract(s, '(a),(b)?')",
            "regexp_extract(s, '(a)(b)?', 2)",
            "regexp_extract(u, '([0-9]+)-', 1)",
        ),
    ],
    "regexp_replace": [
        *(
            f"regexp_replace({of}, '{each}', '<$0>')"
            for of in "su"
            for each in ("[A-Z]", "X*", "^", "(a)|(b)", "e$")
        ),
        "regexp_replace(s, '(a),(b)', '$2$1')",
    ],
    "to_date": ["to_date(u)", "to_date(d)", "to_date(t)", "to_date(u, '%d.%m.%Y')"],
    "to_timestamp": ["to_timestamp(u)", "to_timestamp(d)", "to_timestamp(t)", "to_timestamp(u, '%d.%m.%Y')"],
    "date_format": [
        *(
            f"date_format({of}, '{form}')"
            for of in "dt"
            for form in ("%d.%m.%Y", "%A %B %j", "%H:%M:%S.%f", "%I %p")
        ),
    ],
    "round": [
        "round(i)",
        "round(i, -1)",
        "round(j, -2)",
        "round(f)",
        "round(f, 2)",
        "round(g, 1)",
        "round(m, 1)",
        "round(f, -1)",
    ],
    "array": ["array(i, k)", "array(f)", "array(s, p)", "array(d)"],
    "item": ["item(v, j)", "item(v, 0)", "array(i, k)[1]"],
    "element_at": ["element_at(v, 1)", "element_at(v, -1)", "element_at(v, j)"],
    "split_part": [f"split_part(s, ',', {each})" for each in (1, 2, -1, 100)]
    + ["split_part(s, 'X', 2)", "split_part(s, '', 1)"],
    "split": ["split(s, ',')", "split(s, '.')", "split(s, '')"],
    "concat": ["concat(s, p)", "concat(s, '-', u)"],
    "concat_ws": ["concat_ws('-', s, p)", "concat_ws('', s)"],
    "add_months": [f"add_months({of}, {each})" for of in "dt" for each in (1, -1, 12, 1200)],
    "date_add": ["date_add(d, j)", "date_add(t, 31)"],
    "date_sub": ["date_sub(d, j)", "date_sub(t, 31)"],
    "timestamp_seconds": ["timestamp_seconds(i)", "timestamp_seconds(j)"],
    "timestamp_millis": ["timestamp_millis(i)", "timestamp_millis(j)"],
    "timestamp_micros": ["timestamp_micros(i)", "timestamp_micros(j)"],
    "div": ["i div k", "j div l"],
    "isnan": ["isnan(i)", "isnan(f)", "isnan(g)", "isnan(m)"],
    "instr": ["instr(s, 'e')", "instr(s, '')", "instr(u, 'b')"],
    "lpad": [f"lpad(s, {n}, {with_})" for n in (0, 3, 12) for with_ in ("'.'", "'xy'", "''")]
    + ["lpad(s, -1)"],
    "rpad": [f"rpad(s, {n}, {with_})" for n in (0, 3, 12) for with_ in ("'.'", "'xy'", "''")]
    + ["rpad(s, -1)"],
    "substring": ["substring(s, j, l)", "substring(s, 2)", "substring(u, -2, 1)", "substring(s, j)"],
}
OPERATORS = {
    **{f"a {op} b": [f"{a} {op} {b}" for a, b in ("ik", "fe", "mo", "if", "im", "mf")] for op in "+-*/%"},
    "-a": ["-i", "-f", "-m"],
    **{
        f"a {op} b": [
            f"{a} {op} {b}" for a, b in ("ik", "fe", "mo", "sp", "dc", "tr", "bh", "if", "im", "dt")
        ]
        for op in ("=", "<>", "<", "<=", ">", ">=", "<=>")
    },
    "in": [
        "i in (1, 7, null)",
        "f in (0.0D, 1.5D)",
        "s in ('a', '')",
        "m in (1, 2.5)",
        "d in (date'2024-02-29')",
    ],
    "between": ["i between -1 and 7", "f between -1.0D and 2.0D", "s between 'a' and 'c'"],
    "like": ["s like 'a%'", "s like '_'", "s ilike 'A%'", "u like '%b'", "s like '%\\\\%%'"],
    "and": ["b and h", "b or h", "not b", "b is true", "b is not false", "b is null"],
    "case": ["case when b then i else k end", "case i when 7 then 'x' end", "if(b, f, e)", "if(b, s, p)"],
    "a || b": ["s || p", "u || s"],
    "extract": ["extract(year from t)", "extract(month from d)"],
    "interval": [
        *("d + interval 1 day", "d - interval 1 month", "t + interval 1 month", "t - interval 90 minutes"),
        *("d + interval 1 hour", "t + interval '1 day 2 hours'", "t - r > interval 1 day"),
    ],
    "literal": [
        "1.5",
        "0.1 + 0.2",
        "1e3",
        "1.10 * 2",
        "1",
        "2147483648",
        "'it\\'s'",
        "date'2026-11-13'",
        "0.1 = 0.1D",
        "1.5 > m",
    ],
    "cast": [
        f"cast({of} as {kind})"
        for of, kinds in {
            "i": "tinyint smallint int float double decimal(9,2) string boolean",
            "f": "tinyint int bigint float decimal(9,2) string boolean",
            "g": "double string",
            "m": "int bigint double decimal(5,1) string boolean",
            "u": "int bigint double decimal(9,2) boolean date timestamp binary",
            "s": "binary",
            "b": "int double string decimal(9,2)",
            "d": "timestamp string",
            "t": "date string",
        }.items()
        for kind in kinds.split()
    ],
}
SPARK_NAMES = {"starts_with": "startswith", "ends_with": "endswith"}
FORMS = {
    "'%d.%m.%Y'": "'dd.MM.yyyy'",
    "'%A %B %j'": "'EEEE MMMM DDD'",
    "'%H:%M:%S.%f'": "'HH:mm:ss.SSSSSS'",
    "'%I %p'": "'hh a'",
}


def calls() -> dict[str, list[str]]:
    """All expressions that are asked, by function or operator."""
    found = {}
    for name, each in functions().items():
        if name in OWN:
            found[name] = OWN[name]
            continue
        used: dict[str, int] = {}
        options = []
        for kind in each.takes:
            plain = kind.rstrip("?*")
            turns = KINDS[plain]
            options.append(turns[min(used.get(plain, 0), len(turns) - 1)])
            used[plain] = used.get(plain, 0) + 1
        if "values" in used and len(options) > 1:
            # Of one type all of them.
            found[name] = [f"{name}({', '.join(row)})" for row in zip(*options, strict=False)]
        else:
            found[name] = [f"{name}({', '.join(row)})" for row in itertools.product(*options)]
    return found | OPERATORS


def spark_text(text: str) -> str:
    """An expression as Spark writes it."""
    for ours, theirs in (SPARK_NAMES | FORMS).items():
        text = text.replace(ours, theirs)
    if text.startswith("item("):
        of, place = text[5:-1].split(", ")
        return f"{of}[{place}]"
    return text


def here(text: str) -> list[object]:
    """What it is here, row by row."""
    found = expression(text, ROWS.schema)
    rows = ROWS.num_rows
    batch = ROWS.select(list(found.columns)).combine_chunks().to_batches()[0] if found.columns else None
    return plain(found.values(batch or pa.record_batch({"": pa.nulls(rows)}), rows))


def plain(array: pa.Array | pa.ChunkedArray) -> list[object]:
    """Values that can be compared; times as whole numbers, since some are beyond what Python has."""
    if pa.types.is_date32(array.type):
        return array.cast(pa.int32()).to_pylist()
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64()).to_pylist()
    if pa.types.is_list(array.type) and pa.types.is_date32(array.type.value_type):
        return array.cast(pa.list_(pa.int32())).to_pylist()
    if pa.types.is_fixed_size_list(array.type) and pa.types.is_date32(array.type.value_type):
        return array.cast(pa.list_(pa.date32())).cast(pa.list_(pa.int32())).to_pylist()
    return array.to_pylist()


def answers(session, texts: list[str]) -> dict[str, list[object] | str]:
    """What Spark says, row by row, or the condition of its error; asked as few times as it takes."""
    from pyspark.errors import PySparkException

    columns = ", ".join(f"{spark_text(text)} as c{at}" for at, text in enumerate(texts))
    try:
        table = session.sql(f"select n, {columns} from rows").toArrow().sort_by("n")
    except PySparkException as error:
        if len(texts) == 1:
            return {texts[0]: str(error.getCondition())}
        middle = len(texts) // 2
        return answers(session, texts[:middle]) | answers(session, texts[middle:])
    return {text: plain(table[f"c{at}"]) for at, text in enumerate(texts)}
