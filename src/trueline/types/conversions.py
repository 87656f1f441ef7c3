"""Which type becomes which, and how: the table that casts, readers of files and models share.

What a value cannot become is missing, never an error and never another value;
between which types there is no way at all is known before a row is read.
`docs/types.md` shows the table, `trueline.view.converting` carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from trueline.errors import SchemaError
from trueline.types.kinds import (
    FLOATS,
    NUMBERS,
    Category,
    Decimal,
    Duration,
    Nested,
    Primitive,
    RowIdentity,
    Time,
    Timestamp,
    Type,
    Vector,
)

FAMILIES: Final = (
    "bool",
    "int",
    "float",
    "decimal",
    "text",
    "bytes",
    "date",
    "timestamp",
    "time",
    "duration",
    "category",
    "rowid",
    "vector",
)


@dataclass(frozen=True, slots=True)
class Conversion:
    """How values of one family of types become values of another; `loses` says when one becomes null."""

    rule: str
    loses: str = ""


_ZERO: Final = Conversion("0 is false, everything else true")
_DIGITS: Final = "no room for the digits before the point"
_READ: Final = "it cannot be read"
_CODE: Final = Conversion("the code", "the code is not in the range")
_YEAR: Final = "its year is not 1 to 9999"
_FAR: Final = "it is too far away for the unit"

RULES: Final[dict[tuple[str, str], Conversion]] = {
    ("bool", "bool"): Conversion("the same"),
    ("bool", "int"): Conversion("true is 1, false is 0"),
    ("bool", "float"): Conversion("true is 1, false is 0"),
    ("bool", "decimal"): Conversion("true is 1, false is 0", _DIGITS),
    ("bool", "text"): Conversion("`true` or `false`"),
    ("int", "bool"): _ZERO,
    ("int", "int"): Conversion("the same number", "it is out of range"),
    ("int", "float"): Conversion("the nearest number"),
    ("int", "decimal"): Conversion("the same number", _DIGITS),
    ("int", "text"): Conversion("its digits"),
    ("int", "category"): _CODE,
    ("float", "bool"): Conversion("0 is false, everything else true", "it is NaN"),
    ("float", "int"): Conversion("the fraction is cut off", "it is out of range, infinite or NaN"),
    ("float", "float"): Conversion("the nearest number; NaN and infinities stay", "it is out of range"),
    ("float", "decimal"): Conversion(
        "the shortest decimal that reads back as the number, rounded half away from zero",
        "it is infinite or NaN, or there is no room for the digits before the point",
    ),
    ("float", "text"): Conversion("the shortest text that reads back as the number; `NaN`, `Infinity`"),
    ("decimal", "bool"): _ZERO,
    ("decimal", "int"): Conversion("the fraction is cut off", "it is out of range"),
    ("decimal", "float"): Conversion("the nearest number"),
    ("decimal", "decimal"): Conversion("rounded half away from zero", _DIGITS),
    ("decimal", "text"): Conversion("its digits, as many after the point as the type has"),
    ("text", "bool"): Conversion("`true 1 yes y t` and `false 0 no n f`, as readers of files do", _READ),
    ("text", "int"): Conversion("digits with a sign, as readers of files do", _READ + " or is out of range"),
    ("text", "float"): Conversion(
        "a number, as readers of files do; `nan`, `inf`", _READ + " or is out of range"
    ),
    ("text", "decimal"): Conversion(
        "a number, as readers of files do", _READ + " or has more digits than the type"
    ),
    ("text", "text"): Conversion("the same"),
    ("text", "bytes"): Conversion("its bytes in UTF-8"),
    ("text", "date"): Conversion("`2026-11-13`, as readers of files do", _READ),
    ("text", "timestamp"): Conversion(
        "ISO 8601, as readers of files do: UTC where no zone is named, digits too fine are cut off",
        _READ + ", or names a zone and the type has none",
    ),
    ("text", "time"): Conversion("`12:30:00.5`, as readers of files do", _READ),
    ("text", "duration"): Conversion("`PT1H30M0.5S`, as ISO 8601 has it", _READ),
    ("text", "category"): Conversion("the digits of a code", _READ + " or the code is not in the range"),
    ("text", "rowid"): Conversion("32 hexadecimal digits", _READ),
    ("bytes", "text"): Conversion("UTF-8", "it is not UTF-8"),
    ("bytes", "bytes"): Conversion("the same"),
    ("bytes", "rowid"): Conversion("16 bytes, high word first", "there are not 16"),
    ("date", "text"): Conversion("`2026-11-13`", _YEAR),
    ("date", "date"): Conversion("the same"),
    ("date", "timestamp"): Conversion("its first moment, UTC", _FAR),
    ("timestamp", "text"): Conversion(
        "`2026-11-13 12:30:00.500`, with a zone in UTC and a `Z` at the end", _YEAR
    ),
    ("timestamp", "date"): Conversion("its day, UTC", "it is too far away"),
    ("timestamp", "timestamp"): Conversion(
        "the same moment, where there is no zone UTC; digits too fine are cut off", _FAR
    ),
    ("timestamp", "time"): Conversion("its time of day, UTC; digits too fine are cut off"),
    ("time", "text"): Conversion("`12:30:00.500`"),
    ("time", "time"): Conversion("the same; digits too fine are cut off"),
    ("duration", "text"): Conversion("`PT5400.5S`"),
    ("duration", "duration"): Conversion("the same; digits too fine are cut off", _FAR),
    ("category", "int"): Conversion("the code", "it is out of range"),
    ("category", "text"): Conversion("the digits of the code"),
    ("category", "category"): _CODE,
    ("rowid", "text"): Conversion("32 hexadecimal digits"),
    ("rowid", "bytes"): Conversion("16 bytes, high word first"),
    ("rowid", "rowid"): Conversion("the same"),
    ("vector", "vector"): Conversion("item by item", "its length is not the one the type has"),
}
_REMEDIES: Final[dict[tuple[str, str], str]] = {
    ("int", "timestamp"): "say in which unit: timestamp_seconds(x), timestamp_millis(x), timestamp_micros(x)",
    ("timestamp", "int"): "say in which unit: unix_seconds(x), unix_millis(x), unix_micros(x)",
    ("int", "date"): "count from a day: date_add(date'1970-01-01', x)",
    ("date", "int"): "count from a day: datediff(x, date'1970-01-01')",
    ("category", "float"): "a category is no number: take its code, cast(x as int64), or one-hot it",
    ("category", "decimal"): "a category is no number: take its code, cast(x as int64)",
    ("category", "bool"): "a category is no number: compare its code, cast(x as int64) = 1",
    ("float", "category"): "codes are whole numbers: cast(x as int64) first",
    ("text", "vector"): "split(x, ',') makes a vector of text",
}


def family(kind: Type) -> str:
    """Return the family of a type, by which the table goes."""
    if isinstance(kind, Primitive):
        if kind in FLOATS:
            return "float"
        return "int" if kind in NUMBERS else kind.name
    if isinstance(kind, Nested):
        return "null" if pa.types.is_null(kind.kind) else "nested"
    names: dict[type[Type], str] = {
        Decimal: "decimal",
        Timestamp: "timestamp",
        Time: "time",
        Duration: "duration",
        Category: "category",
        RowIdentity: "rowid",
        Vector: "vector",
    }
    return names[type(kind)]


def can_convert(source: Type, target: Type) -> bool:
    """Say whether there is a way from one type to another; single values may still become null."""
    return _found(source, target) is not None


def conversion(source: Type, target: Type) -> Conversion:
    """Return how one type becomes another, or raise with what to do instead.

    >>> conversion(Primitive("float64"), Primitive("int8")).loses
    'it is out of range, infinite or NaN'
    """
    found = _found(source, target)
    if found is None:
        raise SchemaError(
            f"{source} cannot become {target}",
            remedy=_REMEDIES.get((family(source), family(target)), _detour(source, target)),
            code="NoConversion",
            source=str(source),
            target=str(target),
        )
    return found


def _found(source: Type, target: Type) -> Conversion | None:
    if source == target:
        return Conversion("the same")
    if (
        isinstance(source, Vector)
        and isinstance(target, Vector)
        and not can_convert(source.item, target.item)
    ):
        return None
    if family(source) == "null":
        return Conversion("missing")
    return RULES.get((family(source), family(target)))


def _detour(source: Type, target: Type) -> str:
    """By way of text, where both ways are open."""
    both = (family(source), "text") in RULES and ("text", family(target)) in RULES
    if both and "vector" not in (family(source), family(target)):
        return f"if its text is meant: cast(cast(x as text) as {target})"
    return "compute the value you mean with an expression; docs/types.md has the table"
