"""What types there are: each an immutable value with the Arrow type it is stored as."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from trueline.errors import InputError

Unit: TypeAlias = Literal["s", "ms", "us", "ns"]
LOGICAL: Final = b"trueline/type"
_UNITS: Final = ("s", "ms", "us", "ns")
_LARGEST_VECTOR: Final = (1 << 31) - 1


class Type:
    """What the values of a column are; equal types are equal objects' values, and hash alike."""

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the values in memory."""
        raise NotImplementedError

    @property
    def is_told(self) -> bool:
        """Whether the Arrow type alone does not say it, so that a stored field has to (view:C14)."""
        return False

    @property
    def metadata(self) -> Mapping[bytes, bytes]:
        """What a stored field says beside its Arrow type for `of` to find this type again: its spelling."""
        return {LOGICAL: json.dumps(str(self)).encode()} if self.is_told else {}

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

    def __post_init__(self) -> None:
        if self.name not in ARROW:
            raise InputError(f"{self.name!r} is not a type", remedy=f"give one of {', '.join(ARROW)}")

    @property
    def arrow(self) -> pa.DataType:
        return ARROW[self.name]

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, repr=False)
class Decimal(Type):
    """Decimal numbers with so many digits, `scale` of them after the point."""

    precision: int
    scale: int = 0

    def __post_init__(self) -> None:
        whole = type(self.precision) is int and type(self.scale) is int
        if not whole or not 1 <= self.precision <= 76 or not 0 <= self.scale <= self.precision:
            raise InputError(
                f"decimal({self.precision}, {self.scale}) is not a valid type",
                remedy="give a precision of 1 to 76 and a scale of at most the precision",
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
    def is_told(self) -> bool:
        return True

    def __repr__(self) -> str:
        return "rowid"


@dataclass(frozen=True, repr=False)
class Category(Type):
    """One of `count` things, as a code from 0 on; what they are is an annotation.

    Codes have no order and no distance: a category is not a number (view:C14).
    """

    count: int

    def __post_init__(self) -> None:
        if type(self.count) is not int or not 1 <= self.count <= 1 << 32:
            raise InputError(
                f"category({self.count}) is not a valid type", remedy="give a count from 1 to 2^32"
            )

    @property
    def arrow(self) -> pa.DataType:
        return pa.uint32()

    @property
    def has_order(self) -> bool:
        return True

    @property
    def is_told(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"category({self.count})"


@dataclass(frozen=True, repr=False)
class Vector(Type):
    """Values of one primitive type: `size` of them in every row, or any number if the size is 0.

    Dimensions flatten row by row; one of 0 makes the size unknown (view:C112).
    Dense and sparse are two encodings of the same type, chosen by the writer of
    the values, and equal to a reader (view:C107).
    """

    item: Type
    dims: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if not self.item.is_primitive:
            raise InputError(
                f"a vector of {self.item} is not supported",
                remedy="vectors hold single values: flatten it, or give dimensions",
            )
        if not self.dims or any(type(d) is not int or d < 0 for d in self.dims):
            raise InputError(
                f"the dimensions {self.dims} are not valid for a vector",
                remedy="give whole numbers of at least 0",
            )
        if math.prod(self.dims) > _LARGEST_VECTOR:
            raise InputError(
                f"a vector of {math.prod(self.dims):,} values is too large",
                remedy="stay below 2^31 values in a row",
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
    def is_told(self) -> bool:
        return self.item.is_told or len(self.dims) > 1

    @property
    def sparse(self) -> pa.DataType:
        """The Arrow type of vectors in the sparse encoding (view:C105)."""
        item = pa.field("item", self.item.arrow, metadata=dict(self.item.metadata) or None)
        return pa.struct(
            [
                pa.field("size", pa.int32(), nullable=False),
                pa.field("indices", pa.list_(pa.int32())),
                pa.field("values", pa.list_(item)),
            ]
        )

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


ARROW: Final[dict[str, pa.DataType]] = {
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


def _check_unit(unit: str) -> None:
    if unit not in _UNITS:
        raise InputError(f"{unit!r} is not a unit of time", remedy="give s, ms, us or ns")


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
