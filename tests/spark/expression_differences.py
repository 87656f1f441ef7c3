"""Every difference between expressions and Spark SQL: the page "Expressions and Spark" is written from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

LEAST, MOST = -(1 << 63), (1 << 63) - 1
Row = dict[str, Any]


class Raises(str):
    """The condition of an error of Spark's."""

    __slots__ = ()


def _always(here: Any, there: Any, row: Row) -> bool:
    del here, there, row
    return True


def _null(here: Any, there: Any, row: Row) -> bool:
    del row
    return here is None and there is not None


@dataclass(frozen=True)
class Difference:
    """What differs, an example with all three answers, and for which functions and values it holds.

    `functions` are those whose answers differ so (`when` says for which); `raises` those that are an error
    there under ANSI where they are null here. `spark` is the answer without ANSI, `ansi` with it.
    """

    what: str
    example: str
    here: Any
    spark: Any
    ansi: Any
    functions: tuple[str, ...] = ()
    when: Callable[[Any, Any, Row], bool] = _null
    raises: tuple[str, ...] = ()


def _of_decimals(here: Any, there: Any, row: Row) -> bool:
    del row
    return isinstance(here, float) and isinstance(there, Decimal)


def _nan(here: Any, there: Any, row: Row) -> bool:
    del here, there
    return any(isinstance(each, float) and math.isnan(each) for each in row.values())


def _is_nan_there(here: Any, there: Any, row: Row) -> bool:
    del row
    return here is None and isinstance(there, float) and math.isnan(there)


def _whole_there(here: Any, there: Any, row: Row) -> bool:
    del row
    return here is None and isinstance(there, int)


COMPARED = ("a = b", "a <> b", "a < b", "a <= b", "a > b", "a >= b", "a <=> b", "nullif")
DIFFERENCES = [
    # --- numbers
    Difference(
        "whole numbers beyond 64 bits are null",
        "9223372036854775807 + 1",
        None,
        LEAST,
        Raises("ARITHMETIC_OVERFLOW"),
        ("a + b", "a - b", "a * b", "-a", "abs", "div", "round"),
        _whole_there,
        ("a + b", "a - b", "a * b", "-a", "abs", "round"),
    ),
    Difference(
        "`abs` of a whole number is a bigint",
        "abs(cast(-2147483648 as int))",
        1 << 31,
        -(1 << 31),
        Raises("ARITHMETIC_OVERFLOW"),
        ("abs",),
        lambda here, there, row: here == 1 << 31,
    ),
    Difference("division by zero", "1 / 0", None, None, Raises("DIVIDE_BY_ZERO"), raises=("a / b", "div")),
    Difference(
        "the remainder by zero", "5 % 0", None, None, Raises("REMAINDER_BY_ZERO"), raises=("a % b", "mod")
    ),
    Difference(
        "a constant with a point is a double, there a decimal",
        "0.1 + 0.2",
        0.30000000000000004,
        Decimal("0.3"),
        Decimal("0.3"),
        ("literal",),
        _of_decimals,
    ),
    Difference(
        "decimals divided are a double, and so is their remainder",
        "cast(1 as decimal(3, 2)) / cast(3 as decimal(3, 2))",
        1 / 3,
        Decimal("0.333333"),
        Decimal("0.333333"),
        ("a / b", "a % b", "mod"),
        _of_decimals,
    ),
    Difference(
        "float32 is computed as a double",
        "cast(0.1D as float) + cast(0.2D as float)",
        0.30000000447034836,
        0.30000001192092896,
        0.30000001192092896,
        ("mod",),
        lambda here, there, row: "g" in row,
    ),
    Difference(
        "NaN is equal to nothing, and neither smaller nor larger; there equal to itself and the largest",
        "cast('NaN' as double) >= cast('NaN' as double)",
        False,
        True,
        True,
        COMPARED,
        _nan,
    ),
    Difference(
        "`floor` and `ceil` of NaN and beyond 64 bits are null",
        "floor(cast('NaN' as double))",
        None,
        0,
        0,
        ("floor", "ceil"),
        _whole_there,
    ),
    Difference(
        "`floor` and `ceil` beyond 64 bits, under ANSI",
        "ceil(1e300D)",
        None,
        MOST,
        Raises("ARITHMETIC_OVERFLOW"),
        raises=("floor", "ceil"),
    ),
    Difference(
        "a root below zero is null", "sqrt(-1.0D)", None, math.nan, math.nan, ("sqrt",), _is_nan_there
    ),
    Difference(
        "a power without an answer is null",
        "power(-8.0D, 0.5D)",
        None,
        math.nan,
        math.nan,
        ("power",),
        _is_nan_there,
    ),
    Difference(
        "one to any power is one",
        "power(1.0D, cast('NaN' as double))",
        1.0,
        math.nan,
        math.nan,
        ("power",),
        lambda here, there, row: here == 1.0,
    ),
    # --- casts
    Difference(
        "casts of whole numbers beyond the range are null",
        "cast(300 as tinyint)",
        None,
        44,
        Raises("CAST_OVERFLOW"),
        ("cast",),
        _whole_there,
        ("cast",),
    ),
    Difference(
        "casts of NaN to whole numbers are null",
        "cast(cast('NaN' as double) as int)",
        None,
        0,
        Raises("CAST_OVERFLOW"),
        ("cast",),
        _whole_there,
    ),
    Difference(
        "casts to decimals that are too small",
        "cast(12345 as decimal(3, 0))",
        None,
        None,
        Raises("NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION"),
        raises=("cast",),
    ),
    Difference(
        "a double beyond float32 is null",
        "cast(1e300D as float)",
        None,
        math.inf,
        math.inf,
        ("cast",),
        lambda here, there, row: here is None and there == math.inf,
    ),
    Difference(
        "NaN is neither true nor false",
        "cast(cast('NaN' as double) as boolean)",
        None,
        True,
        True,
        ("cast",),
        lambda here, there, row: here is None and there is True,
    ),
    Difference(
        "text that is not a value of the type",
        "cast('x' as int)",
        None,
        None,
        Raises("CAST_INVALID_INPUT"),
        raises=("cast", "to_date", "to_timestamp"),
    ),
    Difference(
        "text with a fraction is not a whole number",
        "cast('1.5' as int)",
        None,
        1,
        Raises("CAST_INVALID_INPUT"),
        ("cast",),
        lambda here, there, row: here is None and "." in str(row.get("u")),
    ),
    Difference(
        "text beyond the range of doubles is null",
        "cast('1e400' as double)",
        None,
        math.inf,
        math.inf,
        ("cast",),
        lambda here, there, row: row.get("u") == "1e400",
    ),
    Difference(
        "decimals are read from ASCII digits, and none is rounded to zero by its exponent",
        "cast('1e-400' as decimal(9, 2))",
        None,
        Decimal("0.00"),
        Decimal("0.00"),
        ("cast",),
        lambda here, there, row: row.get("u") in ("1e-400", "٣"),
    ),
    Difference(
        "days and moments are read as ISO 8601 has them, in full",
        "cast('2026-1-3' as date) is null",
        True,
        False,
        False,
        ("cast", "to_date", "to_timestamp"),
        _whole_there,
    ),
    Difference(
        "large and small doubles as text",
        "cast(1e20D as string)",
        "1e+20",
        "1.0E20",
        "1.0E20",
        ("cast",),
        lambda here, there, row: isinstance(here, str) and "e" in here,
    ),
    Difference(
        "moments as text have six digits and their zone",
        "cast(timestamp'2026-11-13 12:00:00' as string)",
        "2026-11-13 12:00:00.000000Z",
        "2026-11-13 12:00:00",
        "2026-11-13 12:00:00",
        ("cast",),
        lambda here, there, row: isinstance(here, str) and here.endswith("Z"),
    ),
    # --- text
    Difference(
        "lower case letter by letter",
        "length(lower('İ'))",
        1,
        2,
        2,
        ("lower",),
        lambda here, there, row: len(here) < len(there),
    ),
    Difference(
        "upper case letter by letter",
        "upper('ß')",
        "ẞ",
        "SS",
        "SS",
        ("upper",),
        lambda here, there, row: len(here) < len(there),
    ),
    Difference(
        "`split` cuts at a text, there at a regular expression",
        "split('a.b', '.')",
        ["a", "b"],
        ["", "", "", ""],
        ["", "", "", ""],
        ("split",),
        lambda here, there, row: set(there) == {""},
    ),
    Difference(
        "an empty match right behind another match is not replaced",
        "regexp_replace('aXb', 'X*', '-')",
        "-a-b-",
        "-a--b-",
        "-a--b-",
        ("regexp_replace",),
        _always,
    ),
    Difference(
        "in a pattern `.` fits every character but a new line, there neither a carriage return",
        "'a\\rb' rlike 'a.b'",
        True,
        False,
        False,
        ("rlike", "regexp_extract"),
        lambda here, there, row: "\r" in row.get("u", "") or "\u2028" in row.get("u", ""),
    ),
    Difference(
        "in a pattern `$` is the end, there also the place before a last new line",
        "'ab\\n' rlike 'b$'",
        False,
        True,
        True,
        ("rlike", "regexp_extract"),
        lambda here, there, row: row.get("u", "").endswith("\n"),
    ),
    Difference(
        "text from before its beginning is all of it",
        "substring('abc', -2147483648)",
        "abc",
        "ab",
        "ab",
        ("substring",),
        lambda here, there, row: row.get("j") == -(1 << 31),
    ),
    # --- days and moments
    Difference(
        "days beyond all days are null",
        "date_add(date'2026-11-13', 2147483647) is null",
        True,
        False,
        False,
        ("date_add", "date_sub"),
        _whole_there,
    ),
    Difference(
        "moments beyond all moments are null",
        "timestamp_seconds(9223372036854775807)",
        None,
        Raises("DATETIME_OVERFLOW"),
        Raises("DATETIME_OVERFLOW"),
        ("timestamp_seconds", "timestamp_millis"),
        _always,
        ("timestamp_seconds", "timestamp_millis"),
    ),
    Difference(
        "`unix_seconds`, `unix_millis` and `unix_micros` take dates too",
        "unix_seconds(date'1970-01-02')",
        86_400,
        Raises("DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE"),
        Raises("DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE"),
        ("unix_seconds", "unix_millis", "unix_micros"),
        _always,
        ("unix_seconds", "unix_millis", "unix_micros"),
    ),
    Difference(
        "text that does not have the form",
        "to_date('x', 'yyyy-MM-dd')",
        "refused: write '%Y-%m-%d'",
        None,
        Raises("CANNOT_PARSE_TIMESTAMP"),
        raises=("to_date", "to_timestamp"),
    ),
    # --- vectors
    Difference(
        "no value at a place is null",
        "array(1, 2)[5]",
        None,
        None,
        Raises("INVALID_ARRAY_INDEX"),
        raises=("item",),
    ),
    Difference(
        "no value at a place, counted from 1",
        "element_at(array(1, 2), 5)",
        None,
        None,
        Raises("INVALID_ARRAY_INDEX_IN_ELEMENT_AT"),
        raises=("element_at",),
    ),
    Difference(
        "the value at place 0, counted from 1, is null",
        "element_at(array(1, 2), 0)",
        None,
        Raises("INVALID_INDEX_OF_ZERO"),
        Raises("INVALID_INDEX_OF_ZERO"),
        ("element_at",),
        _always,
        ("element_at",),
    ),
]
# The last bit may differ: C and Java compute them by their own libraries.
LAST_BIT = ("exp", "ln", "log10", "log2", "power", "sqrt")


def shown(value: Any) -> str:
    """An answer as the page has it."""
    if isinstance(value, Raises):
        return f"error `{value}`"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value if value.startswith("refused") else f"`'{value}'`"
    if isinstance(value, list):
        return f"`[{', '.join(repr(each) for each in value)}]`"
    if isinstance(value, Decimal):
        return f"{value} (decimal)"
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return repr(value).replace("inf", "Infinity")


def table() -> str:
    """Return the table of the page."""
    lines = ["| what | example | here | in Spark | in Spark with ANSI |", "|---|---|---|---|---|"]
    for each in DIFFERENCES:
        example = each.example.replace("|", "\\|").replace("\r", "\\r").replace("\n", "\\n")
        same = not isinstance(each.ansi, Raises) or each.spark == each.ansi
        ansi = "the same" if same else shown(each.ansi)
        lines.append(f"| {each.what} | `{example}` | {shown(each.here)} | {shown(each.spark)} | {ansi} |")
    return "\n".join(lines)
