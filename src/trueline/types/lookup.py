"""Finding the logical type of what others have: Arrow types and fields, Python classes, names."""

from __future__ import annotations

import datetime as dt
import decimal as decimals
import json
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from trueline.errors import InputError, SchemaError
from trueline.types.kinds import (
    ARROW,
    LOGICAL,
    Decimal,
    Duration,
    Nested,
    Primitive,
    Time,
    Timestamp,
    Type,
    Vector,
    binary,
    boolean,
    date,
    float64,
    int64,
    rowid,
    text,
)
from trueline.types.type_text import parse

_NAMES: Final = {kind: name for name, kind in ARROW.items()}
# Types that are read as another one, without loss.
_READ_AS: Final = {
    pa.large_string(): "text",
    pa.string_view(): "text",
    pa.large_binary(): "bytes",
    pa.binary_view(): "bytes",
    pa.float16(): "float32",
    pa.date64(): "date",
}
_CLASSES: Final[dict[type, Type]] = {
    bool: boolean,
    int: int64,
    float: float64,
    str: text,
    bytes: binary,
    dt.date: date,
    dt.datetime: Timestamp(),
    dt.time: Time(),
    dt.timedelta: Duration(),
    decimals.Decimal: Decimal(38, 9),
}


def of(given: pa.DataType | pa.Field | Type | type | str) -> Type:
    """Return the logical type of an Arrow type or field, of a Python class, or of a name.

    >>> of("float32"), of(float), of(str), of(pa.dictionary(pa.int8(), pa.string()))
    (float32, float64, text, text)
    """
    if isinstance(given, Type):
        return given
    if isinstance(given, pa.Field):
        return _declared(given)
    if isinstance(given, pa.DataType):
        return _plain(given)
    if isinstance(given, str):
        return parse(given)
    if isinstance(given, type) and given in _CLASSES:
        return _CLASSES[given]
    # By name: this package imports nothing above it, where the class is defined.
    if isinstance(given, type) and (given.__module__, given.__name__) == ("trueline.identity.rowid", "RowId"):
        return rowid
    raise InputError(
        f"{given!r} is not a type",
        remedy="give one of trueline.types, an Arrow type, or a name such as 'float64'",
    )


def field(
    name: str, kind: Type, *, nullable: bool = True, metadata: Mapping[bytes, bytes] | None = None
) -> pa.Field:
    """Return the Arrow field of a column, from which `of` finds the type again."""
    told = {**(metadata or {}), **kind.metadata}
    return pa.field(name, kind.arrow, nullable, told or None)


def same(asked: Type | pa.DataType | type | str, found: Type, column: str) -> None:
    """Raise unless a type that was asked for is exactly the one there is; nothing is widened (view:C47)."""
    wanted = of(asked)
    if wanted != found:
        raise SchemaError(
            f"column {column!r} has type {found}, and {wanted} was asked for",
            remedy=f"ask for {found}, or convert it: with_columns(… = 'cast({column} as {wanted})')",
            code="TypeMismatch",
            column=column,
            found=str(found),
            asked=str(wanted),
        )


def _declared(given: pa.Field) -> Type:
    """The type a field says it has, if that fits how it is stored; else what it is stored as (view:C20)."""
    plain = _plain(given.type)
    said = (given.metadata or {}).get(LOGICAL)
    if said is None:
        return plain
    try:
        found = parse(json.loads(said))
    except (ValueError, TypeError, RecursionError):  # ours are ValueErrors too
        return plain
    if found.arrow.equals(plain.arrow):
        return found
    # A vector may be stored in the sparse encoding; nothing else may look like another type.
    sparse = isinstance(found, Vector) and found.sparse.equals(given.type)
    return found if sparse else plain


def _plain(kind: pa.DataType) -> Type:
    if kind in _NAMES:
        return Primitive(_NAMES[kind])
    if kind in _READ_AS:
        return Primitive(_READ_AS[kind])
    if pa.types.is_timestamp(kind):
        return Timestamp(kind.unit, kind.tz)
    if pa.types.is_time(kind):
        return Time(kind.unit)
    if pa.types.is_duration(kind):
        return Duration(kind.unit)
    if pa.types.is_decimal(kind):
        return Decimal(kind.precision, kind.scale) if 0 <= kind.scale <= kind.precision else Nested(kind)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _plain(kind.value_type)
    if _is_list(kind):
        item = _declared(kind.value_field)
        if item.is_primitive:
            return Vector(item, (kind.list_size if pa.types.is_fixed_size_list(kind) else 0,))
    return Nested(kind)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
