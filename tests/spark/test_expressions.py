"""The language of expressions against Spark's own: function by function, and at random."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from trueline.view.expressions import expression
from trueline.view.expressions.functions.registry import functions

UTC = dt.UTC
ROWS = pa.table(
    {
        "n": pa.array(range(6), pa.int64()),
        "i": pa.array([7, -7, None, 0, 1000, -1], pa.int64()),
        "k": pa.array([3, -2, None, 0, 5, 2], pa.int64()),
        "f": pa.array([2.5, -2.5, None, 0.0, 1e6, 2.675]),
        "g": pa.array([0.5, 4.0, None, 100.25, -3.75, 1e-3]),
        "m": pa.array(
            [Decimal("2.50"), Decimal("-9.99"), None, Decimal("0.00"), Decimal("0.05"), Decimal("1.25")]
        ),
        "s": pa.array(["Bern", " Zürich€𝄞 ", None, "", "a,b,,c", "b%_"]),
        "p": pa.array(["er", "Z", None, "", ",", "b"]),
        "b": pa.array([True, False, None, True, False, True]),
        "d": pa.array(
            [
                dt.date(2024, 2, 29),
                dt.date(1969, 12, 31),
                None,
                dt.date(2027, 1, 1),
                dt.date(1900, 3, 1),
                dt.date(2026, 11, 13),
            ]
        ),
        "t": pa.array(
            [
                dt.datetime(2026, 11, 13, 12, 34, 56, 789, UTC),
                dt.datetime(1969, 12, 31, 23, 59, 59, 1, UTC),
                None,
                dt.datetime(2000, 1, 1, tzinfo=UTC),
                dt.datetime(2024, 2, 29, 23, tzinfo=UTC),
                dt.datetime(1999, 12, 31, 23, 59, 59, 999999, UTC),
            ],
            pa.timestamp("us", "UTC"),
        ),
        "v": pa.array([[1.0, None, 3.0], [], None, [4.0], [5.0, 6.0], [0.0]], pa.list_(pa.float64())),
        "w": pa.array(["7", " -8 ", None, "x", "1e3", "99999999999999999999"]),
        "q": pa.array(["2026-11-13", "2024-02-29", None, "1969-12-31", "2023-02-29", "2026-11-13"]),
    }
)
# What every function that claims to be Spark's own is asked, and the rest of the language.
EXPRESSIONS = [
    "trim(s)",
    "ltrim(s)",
    "rtrim(s)",
    "length(s)",
    "reverse(s)",
    "substring(s, 2, 3)",
    "substring(s, -3, 2)",
    "substring(s, 0, 2)",
    "substring(s, 2)",
    "substring(s, -20, 18)",
    "substring(s, k, 2)",
    "substr(s, k)",
    "left(s, 2)",
    "right(s, 2)",
    "left(s, -1)",
    "replace(s, 'e', '')",
    "replace(s, '', 'x')",
    "replace(s, p, '-')",
    "startswith(s, 'B')",
    "endswith(s, 'n')",
    "contains(s, 'er')",
    "contains(s, p)",
    "startswith(s, p)",
    "endswith(s, p)",
    "instr(s, 'r')",
    "instr(s, '€')",
    "lpad(s, 6, '.')",
    "rpad(s, 6, 'xy')",
    "lpad(s, 2, 'x')",
    "rpad(s, 3)",
    "split_part(s, ',', 2)",
    "split_part(s, ',', -1)",
    "s || p",
    "concat(s, '-', p)",
    "concat_ws('-', s, p)",
    "s like 'B%'",
    "s like '%\\\\%%'",
    "s ilike 'b%'",
    "s rlike '^[A-Z]'",
    "s < 'b'",
    "s = p",
    "s in ('Bern', '')",
    "lower(p)",
    "upper(p)",
    "split(s, ',')",
    "size(split(s, ','))",
    "abs(f)",
    "abs(i)",
    "sign(f)",
    "sign(i)",
    "floor(f)",
    "ceil(f)",
    "floor(g)",
    "ceil(g)",
    "round(f)",
    "round(f, 2)",
    "round(g, 1)",
    "round(f, -2)",
    "round(i, -1)",
    "round(m, 1)",
    "sqrt(g * g)",
    "ln(g)",
    "log10(g)",
    "exp(k)",
    "power(f, 2)",
    "power(f * f, 0.5)",
    "mod(i, k)",
    "i % k",
    "i div k",
    "f % g",
    "i / k",
    "f / g",
    "i + k * 2 - 1",
    "-i",
    "m + 1 > 2",
    "m * 2 > m",
    "isnan(f)",
    "isnan(i)",
    "nanvl(f, g)",
    "i = 7",
    "i <> 7",
    "i <=> k",
    "i is distinct from k",
    "f > i",
    "m > 1",
    "m = 2.5",
    "i between -1 and 7",
    "i not in (7, 0)",
    "i in (7, null)",
    "b and i > 0",
    "b or i > 0",
    "not b",
    "b is true",
    "b is not false",
    "i is null",
    "isnull(i)",
    "isnotnull(i)",
    "coalesce(i, k, -1)",
    "coalesce(s, 'none')",
    "nullif(i, 7)",
    "least(i, k, 5)",
    "greatest(i, k)",
    "least(f, g)",
    "greatest(s, p)",
    "greatest(d, date'2000-01-01')",
    "if(i > 0, i, k)",
    "if(b, s, p)",
    "nvl(f, 0.5)",
    "case when i > 0 then 'up' when i < 0 then 'down' else 'none' end",
    "case k when 3 then 'x' when 5 then 'y' end",
    "year(d)",
    "quarter(d)",
    "month(d)",
    "weekofyear(t)",
    "day(d)",
    "dayofyear(d)",
    "dayofweek(d)",
    "weekday(d)",
    "year(t)",
    "month(t)",
    "hour(t)",
    "minute(t)",
    "second(t)",
    "hour(d)",
    "extract(month from t)",
    *(
        f"date_trunc('{unit}', t)"
        for unit in ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
    ),
    "date_trunc('month', d)",
    "datediff(d, date'2024-02-28')",
    "datediff(t, d)",
    "date_add(d, cast(k as int))",
    "date_sub(d, 31)",
    "add_months(d, 1)",
    "add_months(d, -12)",
    "unix_seconds(t)",
    "unix_millis(t)",
    "unix_micros(t)",
    "timestamp_seconds(i)",
    "timestamp_millis(i)",
    "timestamp_micros(i)",
    "to_date(t)",
    "to_timestamp(d)",
    "to_date(q)",
    "to_timestamp(q)",
    "d + interval 1 day",
    "d - interval 1 month",
    "d + interval 1 hour",
    "t + interval 1 month",
    "t - interval 90 minutes",
    "t + interval '1 day 2 hours'",
    "d >= '2024-01-01'",
    "t < timestamp'2000-01-01 00:00:00'",
    "d = date'2024-02-29'",
    "t - t = interval 0 seconds",
    "d < t",
    "size(v)",
    "v[0]",
    "v[k]",
    "element_at(v, 1)",
    "element_at(v, -1)",
    "array(i, k)",
    "cast(f as int)",
    "cast(f as bigint)",
    "cast(f as boolean)",
    "cast(i as boolean)",
    "cast(i as double)",
    "cast(i as string)",
    "cast(b as string)",
    "cast(b as int)",
    "cast(b as double)",
    "cast(m as double)",
    "cast(m as int)",
    "cast(m as decimal(3, 1))",
    "cast(f as decimal(9, 2))",
    "cast(g as decimal(5, 1))",
    "cast(i as decimal(3, 0))",
    "cast(m as string)",
    "cast(f as float)",
    "cast(w as double)",
    "cast(q as date)",
    "cast(q as timestamp)",
    "cast(d as timestamp)",
    "cast(t as date)",
    "cast(d as string)",
    "cast(s as binary)",
    "cast(array(i, k) as array<double>)",
    "cast(null as int)",
    "cast(p as boolean)",
    "try_cast(w as double)",
    "1 = 1",
    "null",
    "'it\\'s'",
    "1.5",
    "date'2026-11-13'",
]
# Libraries may round these differently in the last bit.
ABOUT = ("exp(", "ln(", "log10(", "power(", "sqrt(")
OURS = {"cast(array(i, k) as array<double>)": "cast(array(i, k) as vector(float64))"}


@pytest.fixture(scope="module")
def session(spark):
    own = spark.newSession()
    own.conf.set("spark.sql.ansi.enabled", "false")
    own.conf.set("spark.sql.legacy.sizeOfNull", "false")
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.createDataFrame(ROWS).createOrReplaceTempView("rows")
    return own


def answers(session, texts):
    """What Spark says, by expression, in the order of the rows."""
    columns = ", ".join(f"{text} as c{at}" for at, text in enumerate(texts))
    table = session.sql(f"select n, {columns} from rows").toArrow().sort_by("n")
    return [table[f"c{at}"].to_pylist() for at in range(len(texts))]


def ours(text):
    found = expression(OURS.get(text, text), ROWS.schema)
    batch = ROWS.select(list(found.columns)).combine_chunks().to_batches() if found.columns else []
    rows = ROWS.num_rows
    return found.values(batch[0] if batch else pa.record_batch({"": pa.nulls(rows)}), rows).to_pylist()


def differ(text, one, other):
    """Where two lists of answers differ."""
    near = any(each in text for each in ABOUT)
    return [(a, b) for a, b in zip(one, other, strict=True) if not alike(a, b, near)]


def alike(a, b, near):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(alike(x, y, near) for x, y in zip(a, b, strict=True))
    if a is None or b is None or isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, float) and isinstance(b, float):
        close = near and abs(a - b) <= math.ulp(max(abs(a), abs(b)))
        return a == b or close or (math.isnan(a) and math.isnan(b))
    return a == b


def test_what_claims_to_be_equal_is(session):
    found = answers(session, EXPRESSIONS)
    wrong = {text: differ(text, ours(text), them) for text, them in zip(EXPRESSIONS, found, strict=True)}
    assert {text: rows for text, rows in wrong.items() if rows} == {}


def test_every_function_that_claims_to_be_equal_is_asked():
    written = " ".join(EXPRESSIONS).replace("startswith", "starts_with").replace("endswith", "ends_with")
    claims = [name for name, each in functions().items() if not each.spark and name != "div"]
    assert [name for name in claims if f"{name}(" not in written] == []


class Maker:
    """Expressions at random, of a type, over the columns; sizes stay small, so that nothing overflows."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def one(self, kind, depth):
        leaves = {
            "int": ["i", "k", "3", "-2"],
            "float": ["f", "g", "0.5D", "2.0D"],
            "text": ["s", "p", "'a'", "''"],
            "bool": ["b", "true", "false"],
            "date": ["d", "date'2024-02-29'"],
            "time": ["t", "timestamp'2000-01-01 12:00:00'"],
        }
        forms = {
            "int": [
                "({int} + {int})",
                "({int} - {int})",
                "({int} * {int})",
                "({int} % {int})",
                "length({text})",
                "datediff({date}, {date})",
                "year({date})",
                "floor({float})",
                "instr({text}, 'e')",
                "month({time})",
                "cast({float} as bigint)",
                "unix_seconds({time})",
                "size(split({text}, ','))",
                "dayofweek({date})",
            ],
            "float": [
                "({float} + {float})",
                "({float} * {float})",
                "({float} / {float})",
                "({int} / {int})",
                "abs({float})",
                "round({float}, 1)",
                "cast({int} as double)",
                "sign({float})",
            ],
            "text": [
                "concat({text}, {text})",
                "trim({text})",
                "substring({text}, 2, 2)",
                "left({text}, 3)",
                "replace({text}, 'e', 'xy')",
                "lpad({text}, 5, '.')",
                "cast({int} as string)",
                "reverse({text})",
                "split_part({text}, ',', 1)",
            ],
            "bool": [
                "({int} > {int})",
                "({float} <= {float})",
                "({text} = {text})",
                "({bool} and {bool})",
                "({bool} or {bool})",
                "(not {bool})",
                "({int} is null)",
                "({date} < {date})",
                "({text} like '%e%')",
                "({int} in (1, 3, 7))",
                "({time} >= {time})",
                "contains({text}, {text})",
                "({int} <=> {int})",
            ],
            "date": [
                "date_add({date}, 30)",
                "add_months({date}, 1)",
                "cast({time} as date)",
                "({date} + interval 1 day)",
            ],
            "time": [
                "date_trunc('month', {time})",
                "({time} + interval 90 minutes)",
                "cast({date} as timestamp)",
                "({time} - interval 1 month)",
            ],
        }
        shared = [
            "coalesce({0}, {0})",
            "if({{bool}}, {0}, {0})",
            "case when {{bool}} then {0} when {{bool}} then {0} end",
            "nullif({0}, {0})",
            "greatest({0}, {0})",
        ]
        if depth == 0 or self.random.random() < 0.15:
            return self.random.choice(leaves[kind])
        choices = forms[kind] + [each.format(f"{{{kind}}}") for each in shared]
        text = self.random.choice(choices)
        while "{" in text:
            for name in leaves:
                if f"{{{name}}}" in text:
                    text = text.replace(f"{{{name}}}", self.one(name, depth - 1), 1)
                    break
        return text


def test_expressions_at_random_are_equal(session):
    maker = Maker(2026)
    kinds = ["int", "float", "text", "bool", "date", "time"]
    texts = [maker.one(kinds[at % 6], 2 + at % 2) for at in range(240)]
    for at in range(0, len(texts), 120):
        some = texts[at : at + 120]
        found = answers(session, some)
        wrong = {text: differ(text, ours(text), them) for text, them in zip(some, found, strict=True)}
        assert {text: rows for text, rows in wrong.items() if rows} == {}
