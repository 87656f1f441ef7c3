"""The logical types of columns: what a value means, apart from how it is stored.

`float32` is not `float64`, and a category is not the number it is stored as
(view:C14). Every type can be missing: missing is null, whatever the type.

>>> vector(float32, 3), category(5), timestamp("ms")
(vector(float32, 3), category(5), timestamp(ms, UTC))
>>> of(pa.int64()) == int64, of(pa.list_(pa.float32(), 3)) == vector(float32, 3)
(True, True)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from trueline.errors import InputError, SchemaError

Unit: TypeAlias = Literal["s", "ms", "us", "ns"]
LOGICAL: Final = b"trueline/type"
_UNITS: Final = ("s", "ms", "us", "ns")
_LARGEST_VECTOR: Final = (1 << 31) - 1


class Type:
    """What the values of a column are; equal types are equal objects' values, and hash alike."""

    @property
    def arrow(self) -> pa.DataType:
        """How values lie in memory."""
        raise NotImplementedError

    @property
    def metadata(self) -> Mapping[bytes, bytes]:
        """What a stored field has to say beside its Arrow type for `of` to find this type again."""
        return {}

    @property
    def is_primitive(self) -> bool:
        """Whether values are single, so that vectors of them are possible (view:C110)."""
        return True

    @property
    def has_order(self) -> bool:
        """Whether values can be compared by size, and rows sorted by them."""
        return self.is_primitive

    def __str__(self) -> str:
        return repr(self)


@dataclass(frozen=True, repr=False)
class Primitive(Type):
    """A single value that Arrow knows under one name: numbers, text, bytes, dates."""

    name: str

    @property
    def arrow(self) -> pa.DataType:
        return _ARROW[self.name]

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, repr=False)
class Decimal(Type):
    """Decimal numbers with so many digits, `scale` of them after the point."""

    precision: int
    scale: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.precision <= 76 or not 0 <= self.scale <= self.precision:
            raise InputError(
                f"decimal({self.precision}, {self.scale})",
                remedy="give 1 to 76 digits, and no more than that after the point",
            )

    @property
    def arrow(self) -> pa.DataType:
        kind = pa.decimal128 if self.precision <= 38 else pa.decimal256
        return kind(self.precision, self.scale)

    def __repr__(self) -> str:
        return f"decimal({self.precision}, {self.scale})"


@dataclass(frozen=True, repr=False)
class Timestamp(Type):
    """A moment (with a zone, stored as UTC), or a date and time of day without a zone."""

    unit: Unit = "us"
    zone: str | None = "UTC"

    def __post_init__(self) -> None:
        _check_unit(self.unit)

    @property
    def arrow(self) -> pa.DataType:
        return pa.timestamp(self.unit, self.zone)

    def __repr__(self) -> str:
        return f"timestamp({self.unit}{f', {self.zone}' if self.zone else ''})"


@dataclass(frozen=True, repr=False)
class Time(Type):
    """A time of day."""

    unit: Unit = "us"

    def __post_init__(self) -> None:
        _check_unit(self.unit)

    @property
    def arrow(self) -> pa.DataType:
        return pa.time32(self.unit) if self.unit in ("s", "ms") else pa.time64(self.unit)

    def __repr__(self) -> str:
        return f"time({self.unit})"


@dataclass(frozen=True, repr=False)
class Duration(Type):
    """A span of time."""

    unit: Unit = "us"

    def __post_init__(self) -> None:
        _check_unit(self.unit)

    @property
    def arrow(self) -> pa.DataType:
        return pa.duration(self.unit)

    def __repr__(self) -> str:
        return f"duration({self.unit})"


@dataclass(frozen=True, repr=False)
class RowIdentity(Type):
    """A row id as a value: 16 bytes, high word first, so that byte order is id order (view:C80)."""

    @property
    def arrow(self) -> pa.DataType:
        return pa.binary(16)

    @property
    def metadata(self) -> Mapping[bytes, bytes]:
        return {LOGICAL: b'"rowid"'}

    def __repr__(self) -> str:
        return "rowid"


@dataclass(frozen=True, repr=False)
class Category(Type):
    """One of `count` things, as a code from 0 on; what they are is an annotation, missing is null.

    Codes have no order and no distance: a category is not a number (view:C14).
    """

    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not 1 <= self.count <= 1 << 32:
            raise InputError(f"category({self.count})", remedy="give a number of values from 1 to 2^32")

    @property
    def arrow(self) -> pa.DataType:
        return pa.uint32()

    @property
    def has_order(self) -> bool:
        return True

    @property
    def metadata(self) -> Mapping[bytes, bytes]:
        return {LOGICAL: json.dumps({"category": self.count}).encode()}

    def __repr__(self) -> str:
        return f"category({self.count})"


@dataclass(frozen=True, repr=False)
class Vector(Type):
    """Values of one primitive type: `size` of them in every row, or any number if the size is 0.

    Dimensions flatten row by row; one of 0 makes the size unknown (view:C112).
    Dense and sparse are two encodings of the same type, chosen by whoever makes
    the values, and equal for whoever reads them (view:C107).
    """

    item: Type
    dims: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if not self.item.is_primitive:
            raise InputError(
                f"a vector of {self.item}",
                remedy="vectors hold single values: flatten it, or give dimensions",
            )
        if not self.dims or any(isinstance(d, bool) or d < 0 for d in self.dims):
            raise InputError(f"vector dimensions {self.dims}", remedy="give whole numbers from 0 on")
        if math.prod(self.dims) > _LARGEST_VECTOR:
            raise InputError(
                f"a vector of {math.prod(self.dims):,} values", remedy="stay below 2^31 values in a row"
            )

    @property
    def size(self) -> int:
        """How many values each row has; 0 if that differs from row to row."""
        return math.prod(self.dims)

    @property
    def arrow(self) -> pa.DataType:
        field = pa.field("item", self.item.arrow, metadata=dict(self.item.metadata) or None)
        return pa.list_(field, self.size) if self.size else pa.list_(field)

    @property
    def is_primitive(self) -> bool:
        return False

    @property
    def metadata(self) -> Mapping[bytes, bytes]:
        told = {} if self.dims == (self.size,) else {"dims": list(self.dims)}
        inner = self.item.metadata.get(LOGICAL)
        if inner is not None:
            told["item"] = json.loads(inner)
        return {LOGICAL: json.dumps({"vector": told}).encode()} if told else {}

    def compatible(self, other: Type) -> bool:
        """Say whether two have the same items and size, whatever their dimensions (view:C111)."""
        return isinstance(other, Vector) and (self.item, self.size) == (other.item, other.size)

    def __repr__(self) -> str:
        shown = "" if self.dims == (0,) else "".join(f", {d or '*'}" for d in self.dims)
        return f"vector({self.item}{shown})"


@dataclass(frozen=True, repr=False)
class Nested(Type):
    """What Arrow can hold and kernels pass on unread: structs, maps, lists of lists."""

    kind: pa.DataType

    @property
    def arrow(self) -> pa.DataType:
        return self.kind

    @property
    def is_primitive(self) -> bool:
        return False

    def __repr__(self) -> str:
        return str(self.kind)


_ARROW: Final[dict[str, pa.DataType]] = {
    "bool": pa.bool_(),
    **{
        f"{sign}int{bits}": getattr(pa, f"{sign}int{bits}")()
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    "float32": pa.float32(),
    "float64": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
}
_NAMES: Final = {kind: name for name, kind in _ARROW.items()}
# Types that are read as another one, without loss.
_READ_AS: Final = {
    pa.large_string(): "text",
    pa.string_view(): "text",
    pa.large_binary(): "bytes",
    pa.binary_view(): "bytes",
    pa.float16(): "float32",
    pa.date64(): "date",
}

boolean: Final = Primitive("bool")
int8: Final = Primitive("int8")
int16: Final = Primitive("int16")
int32: Final = Primitive("int32")
int64: Final = Primitive("int64")
uint8: Final = Primitive("uint8")
uint16: Final = Primitive("uint16")
uint32: Final = Primitive("uint32")
uint64: Final = Primitive("uint64")
float32: Final = Primitive("float32")
float64: Final = Primitive("float64")
text: Final = Primitive("text")
binary: Final = Primitive("bytes")
date: Final = Primitive("date")
rowid: Final = RowIdentity()

NUMBERS: Final = frozenset(
    (int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64),
)
FLOATS: Final = frozenset((float32, float64))


def decimal(precision: int, scale: int = 0) -> Decimal:
    """Decimal numbers."""
    return Decimal(precision, scale)


def timestamp(unit: Unit = "us", zone: str | None = "UTC") -> Timestamp:
    """Moments; without a zone, dates with a time of day."""
    return Timestamp(unit, zone)


def time(unit: Unit = "us") -> Time:
    """Times of day."""
    return Time(unit)


def duration(unit: Unit = "us") -> Duration:
    """Spans of time."""
    return Duration(unit)


def category(count: int) -> Category:
    """One of `count` things."""
    return Category(count)


def vector(item: Type, *dims: int) -> Vector:
    """Vectors: `vector(float32, 3)` of three values, `vector(text)` of any number."""
    return Vector(item, dims or (0,))


# --- from Arrow -----------------------------------------------------------------------------


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
    if isinstance(given, type) and given in _CLASSES:
        return _CLASSES[given]
    if isinstance(given, str) and given in _ARROW:
        return Primitive(given)
    if isinstance(given, str) and given in _SPELLINGS:
        return _SPELLINGS[given]
    raise InputError(
        f"{given!r} is no type",
        remedy="give one of trueline.types, an Arrow type, or a name such as 'float64'",
    )


def field(
    name: str, kind: Type, *, nullable: bool = True, metadata: Mapping[bytes, bytes] | None = None
) -> pa.Field:
    """Return the Arrow field of a column, from which `of` finds the type again."""
    told = {**(metadata or {}), **kind.metadata}
    return pa.field(name, kind.arrow, nullable, told or None)


def _declared(given: pa.Field) -> Type:
    """The type a field says it has, if that fits how it is stored; else what it is stored as (view:C20)."""
    plain = _plain(given.type)
    said = (given.metadata or {}).get(LOGICAL)
    if said is None:
        return plain
    try:
        found = _read(json.loads(said), plain)
    except (ValueError, TypeError, AttributeError, InputError):
        return plain
    return found if found.arrow.equals(plain.arrow) else plain


def _read(said: Any, plain: Type) -> Type:
    if said == "rowid":
        return rowid
    if isinstance(said, dict) and set(said) == {"category"}:
        return Category(int(said["category"]))
    if isinstance(said, dict) and set(said) == {"vector"} and isinstance(plain, Vector):
        told = said["vector"]
        item = _read(told["item"], plain.item) if "item" in told else plain.item
        return Vector(item, tuple(told["dims"])) if "dims" in told else Vector(item, plain.dims)
    return plain


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
        return Decimal(kind.precision, kind.scale) if kind.scale >= 0 else Nested(kind)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _plain(kind.value_type)
    if _is_list(kind):
        item = _declared(kind.value_field)
        if item.is_primitive:
            return Vector(item, (kind.list_size if pa.types.is_fixed_size_list(kind) else 0,))
    return Nested(kind)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _check_unit(unit: str) -> None:
    if unit not in _UNITS:
        raise InputError(f"{unit!r} is no unit of time", remedy="give s, ms, us or ns")


def same(asked: Type | pa.DataType | type | str, found: Type, column: str) -> None:
    """Raise unless a type that was asked for is exactly the one there is; nothing is widened (view:C47)."""
    wanted = of(asked)
    if wanted != found:
        raise SchemaError(
            f"column {column!r} is of type {found}, asked for as {wanted}",
            remedy=f"ask for {found}, or convert it: with_columns(… = 'cast({column} as {wanted})')",
            code="TypeMismatch",
            column=column,
            found=str(found),
            asked=str(wanted),
        )


def _classes() -> dict[type, Type]:
    import datetime as dt
    import decimal as decimals

    from trueline.identity import RowId

    return {
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
        RowId: rowid,
    }


_CLASSES: Final[dict[type, Type]] = _classes()
_SPELLINGS: Final[dict[str, Type]] = {
    "string": text,
    "str": text,
    "binary": binary,
    "boolean": boolean,
    "int": int64,
    "float": float32,
    "double": float64,
    "rowid": rowid,
    "timestamp": Timestamp(),
    "date32": date,
}
