"""Views that are hard to get right: to be read, and to be given to one's own operators."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from trueline import types as t
from trueline.kernel.chunk import ROWS_OF_A_CHUNK
from trueline.testing.instruments import sparse_table
from trueline.view import Field, Schema, View
from trueline.view.annotations import CATEGORY_VALUES, Annotation, Annotations

HARD_TEXT: Final = (
    "",
    " ",
    '"',
    '""quoted"", again',
    "a,b;c\td|e",
    "line\nbreak\r\nand\rreturn",
    "😀 naïve e\u0301 \u202eright to left",
    "\x00nul",
    "NULL",
    "NaN",
    "-",
    "x" * 100_000,
    "trailing \\",
    "'; drop table x; --",
)


def mixed(rows: int = 41) -> View:
    """Some rows with a column of most types, some values null: the default sample."""
    numbers = range(rows)
    some = [n % 5 != 3 for n in numbers]
    day = dt.date(2026, 11, 13)
    fields = [
        Field("n", t.int64),
        Field("x", t.float64),
        Field("name", t.text),
        Field("kind", t.category(3), _values(["a", "b", "c"])),
        Field("flag", t.boolean),
        Field("day", t.date),
        Field("pair", t.vector(t.float32, 2)),
        Field("tags", t.vector(t.text)),
    ]
    values: list[list[object]] = [
        [n if ok else None for n, ok in zip(numbers, some, strict=True)],
        [float("nan") if n % 7 == 2 else n / 3 - 5 for n in numbers],
        [None if n % 11 == 5 else HARD_TEXT[n % 11] for n in numbers],
        [n % 3 if ok else None for n, ok in zip(numbers, some[::-1], strict=True)],
        [None if n % 6 == 1 else n % 2 == 0 for n in numbers],
        [None if n % 9 == 4 else day + dt.timedelta(days=n) for n in numbers],
        [None if n % 8 == 6 else [float(n), 0.0] for n in numbers],
        [None if n % 10 == 7 else [str(k) for k in range(n % 4)] for n in numbers],
    ]
    return made(fields, values)


def views(*, large: bool = False) -> dict[str, View]:
    """Return views that are hard to get right, by name; `large` adds some of a whole chunk's size.

    >>> sorted(views())[:3]
    ['NaN and infinities', 'all missing', 'categories at their count']
    """
    found = {
        "no rows": mixed(0),
        "one row": mixed(1),
        "mixed": mixed(),
        "no columns": View.from_arrow(pa.table({"x": [1] * 5})).select(),
        "no rows and no columns": View.from_arrow(pa.table({})),
        "duplicates": made([Field("x", t.int64), Field("y", t.text)], [[1] * 30, ["a"] * 30]),
        "all missing": _all_missing(),
        "hidden names": View.from_arrow(
            pa.table([[1, 2], ["x", None], [0.5, 1.5], [3, 4]], names=["a", "b", "a", "a"])
        ),
        "vectors of any length": _any_length(),
        "huge sparse vectors": _huge(),
        "categories at their count": _categories(),
        "hard text": made([Field("text", t.text), Field(HARD_TEXT[3], t.text)], [list(HARD_TEXT)] * 2),
        "dates at their ends": _dates(),
        "NaN and infinities": _floats(),
        "numbers at their ends": _numbers(),
        "many columns": View.from_arrow(pa.table({f"c{n}": [n, None] for n in range(300)})),
    }
    if large:
        for rows in (ROWS_OF_A_CHUNK - 1, ROWS_OF_A_CHUNK, ROWS_OF_A_CHUNK + 1):
            found[f"{rows:,} rows"] = View.from_arrow(
                pa.table({"n": np.arange(rows), "half": np.arange(rows) / 2})
            )
    return found


def made(fields: Sequence[Field], values: Sequence[Sequence[object]]) -> View:
    """Return a view of columns of plain values."""
    schema = Schema(fields).arrow_of(list(Schema(fields)))
    arrays = [pa.array(column, each.type) for column, each in zip(values, schema, strict=True)]
    return View.from_arrow(pa.table(arrays, schema=schema))


def _values(names: Sequence[str]) -> Annotations:
    return Annotations({CATEGORY_VALUES: Annotation(t.vector(t.text, len(names)), list(names))})


def _all_missing() -> View:
    kinds = (t.int8, t.float32, t.text, t.boolean, t.date, t.timestamp(), t.decimal(10, 2), t.category(4))
    kinds_too = (t.vector(t.float32, 3), t.vector(t.text), t.rowid, t.duration(), t.time(), t.binary)
    fields = [Field(f"c{place}", kind) for place, kind in enumerate((*kinds, *kinds_too))]
    return made(fields, [[None] * 25] * len(fields))


def _any_length() -> View:
    lengths = [0, 1, 0, 7, 300, 2]
    numbers = [None if n == 2 else [float(k) for k in range(n)] for n in lengths]
    texts: list[object] = [[], ["a", None], None, [""], ["x"] * 50, ["é", "\n"]]
    return made([Field("v", t.vector(t.float64)), Field("w", t.vector(t.text))], [numbers, texts])


def _huge() -> View:
    size = 100_000
    rows = [{}, {0: 1.0}, {size - 1: -2.0, 5: 3.0}, None, {n: float(n + 1) for n in range(0, size, 9_999)}]
    dense = [
        None if row is None else np.bincount([*row], [*row.values()], size) if row else np.zeros(size)
        for row in rows
    ]
    table = pa.table(
        [pa.array([1, 2, 3, 4, 5]), pa.array(dense, t.vector(t.float64, size).arrow)],
        schema=pa.schema([pa.field("n", pa.int64()), t.field("v", t.vector(t.float64, size))]),
    )
    return View.from_arrow(sparse_table(table) or table)


def _categories() -> View:
    fields = [
        Field("one", t.category(1), _values(["only"])),
        Field("few", t.category(3), _values(["a", "b", "c"])),
        Field("all", t.category(1 << 32)),
    ]
    return made(fields, [[0, None, 0, 0], [0, 1, 2, None], [0, (1 << 32) - 1, None, 7]])


def _dates() -> View:
    first, last = dt.datetime.min, dt.datetime.max  # noqa: DTZ901 (without a zone, as such)
    day = dt.timedelta(days=1)
    fields = [
        Field("day", t.date),
        Field("moment", t.timestamp("us", None)),
        Field("utc", t.timestamp("ms")),
        Field("clock", t.time()),
        Field("span", t.duration("s")),
    ]
    values: list[list[object]] = [
        [dt.date.min, dt.date.max, dt.date(1970, 1, 1), dt.date(1969, 12, 31), None],
        [first, last, None, last - day, first + day],
        [
            first.replace(tzinfo=dt.UTC),
            last.replace(microsecond=999_000, tzinfo=dt.UTC),
            None,
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC),
            dt.datetime(2000, 2, 29, tzinfo=dt.UTC),
        ],
        [dt.time.min, dt.time.max, None, dt.time(12), dt.time(23, 59, 59)],
        [-99_999 * day, dt.timedelta(0), None, 99_999 * day, dt.timedelta(seconds=1)],
    ]
    return made(fields, values)


def _floats() -> View:
    odd = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 5e-324, 1.7976931348623157e308, None]
    small = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e-45, 3.4028234663852886e38, None]
    vectors: list[object] = [[value, None] for value in odd]
    fields = [Field("x", t.float64), Field("y", t.float32), Field("v", t.vector(t.float64, 2))]
    return made(fields, [odd, small, vectors])


def _numbers() -> View:
    fields: list[Field] = []
    values: list[list[object]] = []
    for bits in (8, 16, 32, 64):
        fields += [Field(f"i{bits}", t.of(f"int{bits}")), Field(f"u{bits}", t.of(f"uint{bits}"))]
        values += [[-(1 << bits - 1), (1 << bits - 1) - 1, 0, None], [0, (1 << bits) - 1, 1, None]]
    fields.append(Field("d", t.decimal(38, 9)))
    values.append(
        [decimal.Decimal("-9" * 1 + "9" * 28), decimal.Decimal("0.000000001"), decimal.Decimal(0), None]
    )
    return made(fields, values)
