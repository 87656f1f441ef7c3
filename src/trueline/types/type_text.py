"""Types as text: `str` writes it, `parse` reads it, in schemas, casts and annotations alike."""

from __future__ import annotations

import re
from typing import Final, cast

import pyarrow as pa

from trueline.errors import InputError
from trueline.types.kinds import (
    ARROW,
    Category,
    Decimal,
    Duration,
    Nested,
    Primitive,
    Time,
    Timestamp,
    Type,
    Unit,
    Vector,
    binary,
    boolean,
    date,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    rowid,
    text,
)

_CALL: Final = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9]*)\s*(?:\((.*)\))?\s*", re.DOTALL)
# What SQL calls them, as Spark does: `int` has 32 bits, `float` too.
_OTHER: Final[dict[str, Type]] = {
    "string": text,
    "str": text,
    "varchar": text,
    "binary": binary,
    "boolean": boolean,
    "tinyint": int8,
    "smallint": int16,
    "int": int32,
    "integer": int32,
    "bigint": int64,
    "long": int64,
    "float": float32,
    "real": float32,
    "double": float64,
    "rowid": rowid,
    "decimal": Decimal(10, 0),
    "timestamp": Timestamp(),
    "timestamp_ntz": Timestamp("us", None),
    "time": Time(),
    "duration": Duration(),
    "date32": date,
    "null": Nested(pa.null()),
}
_DEEPEST: Final = 8


def parse(spelt: object) -> Type:
    """Read a type as `str` writes it, or by its name in SQL.

    >>> parse("vector(category(5), *, 3)"), parse("timestamp(ms)"), parse("bigint")
    (vector(category(5), *, 3), timestamp(ms), int64)
    """
    found = _parse(spelt, 0) if isinstance(spelt, str) else None
    if found is None:
        raise InputError(
            f"{spelt!r:.200} is not a type",
            remedy="write it as in docs/types.md: float64, decimal(10, 2), timestamp(ms), vector(float32, 3)",
            code="BadType",
        )
    return found


def _parse(spelt: str, depth: int) -> Type | None:
    match = _CALL.fullmatch(spelt)
    if match is None or depth > _DEEPEST:
        return None
    name, inside = match[1].lower(), match[2]
    if inside is None:
        return Primitive(name) if name in ARROW else _OTHER.get(name)
    said = _split(inside)
    match name, said:
        case "vector", [item, *dims]:
            return _vector(item, dims, depth)
        case (("decimal" | "numeric"), [_] | [_, _]):
            numbers = [_whole(each) for each in said]
            return None if None in numbers else Decimal(*(n for n in numbers if n is not None))
        case "category", [count]:
            size = _whole(count)
            return None if size is None else Category(size)
        case "timestamp", [unit]:
            return Timestamp(_unit(unit), None)
        case "timestamp", [unit, zone]:
            return Timestamp(_unit(unit), zone)
        case "time", [unit]:
            return Time(_unit(unit))
        case "duration", [unit]:
            return Duration(_unit(unit))
    return None


def _vector(item: str, dims: list[str], depth: int) -> Type | None:
    of = _parse(item, depth + 1)
    sizes = [0 if each == "*" else _whole(each) for each in dims]
    if of is None or None in sizes:
        return None
    return Vector(of, tuple(size for size in sizes if size is not None) or (0,))


def _split(inside: str) -> list[str]:
    """Split at the commas that are outside brackets."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(inside):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(inside[start:at].strip())
            start = at + 1
    return [*parts, inside[start:].strip()]


def _whole(spelt: str) -> int | None:
    return int(spelt) if re.fullmatch(r"[0-9]{1,10}", spelt) else None


def _unit(spelt: str) -> Unit:
    # The types check it themselves, and say what is wrong.
    return cast("Unit", spelt.lower())
