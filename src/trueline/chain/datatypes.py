"""The logical types of a dataset's columns, and its schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, ClassVar

from trueline.chain.wire import I32, U32, U64, Flag, Plain, Record, ShortEnum, union
from trueline.errors import InputError

MAX_EXTRA_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Extra(Record):
    """Attributes outside the specification: `domain/name` → any JSON.

    Kept as compact, key-sorted JSON text, which is what is hashed.

    >>> Extra.of({"b/x": 1, "a/y": [True]}).entries
    '{"a/y":[true],"b/x":1}'
    """

    entries: str

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Extra:
        """Make the canonical text of a mapping."""
        if not all(isinstance(name, str) for name in value):
            raise InputError("the names of extra attributes are text", remedy="put them in quotes")
        try:
            text = json.dumps(
                value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
            )
            text.encode()
            _bounded(text, value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"extra attributes are not JSON: {error}",
                remedy="use strings, finite numbers, lists and mappings",
            ) from None
        return cls(text)

    @property
    def value(self) -> dict[str, Any]:
        """The attributes as a new dict."""
        try:
            value = json.loads(self.entries, parse_constant=_no_constant, parse_float=_finite)
            if "\\u" in self.entries:
                # An escape can name half of a surrogate pair, which no text can hold.
                json.dumps(value, ensure_ascii=False).encode()
            _bounded(self.entries, value)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"extra attributes are not JSON: {error}",
                remedy="restore the block from a copy of the dataset",
            ) from None
        if not isinstance(value, dict):
            raise InputError(
                "extra attributes are not a mapping", remedy="write them as {domain/name: value}"
            )
        return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is too large for a number")
    return number


def _bounded(text: str, value: Any) -> None:
    """Refuse deep nesting here, so that it does not depend on how deep the caller's stack is."""
    if text.count("[") + text.count("{") <= MAX_EXTRA_DEPTH:
        return
    level = [value]
    for _ in range(MAX_EXTRA_DEPTH):
        level = [child for item in level for child in _children(item)]
        if not level:
            return
    raise ValueError(f"nested deeper than {MAX_EXTRA_DEPTH} levels")


def _children(item: Any) -> Iterable[Any]:
    if isinstance(item, Mapping):
        return item.values()
    return item if isinstance(item, list | tuple) else ()


class TimeUnit(ShortEnum):
    """How finely a time is measured."""

    Second = 0
    Millisecond = 1
    Microsecond = 2
    Nanosecond = 3


@dataclass(frozen=True, slots=True)
class Binary(Record):
    """Bytes, of any length or a fixed one."""

    KIND: ClassVar[str] = "Binary"
    fixed_length: U64 | None = None


class Bool(Plain):
    """True or false."""

    __slots__ = ()
    KIND: ClassVar[str] = "Bool"


class Date(Plain):
    """A day."""

    __slots__ = ()
    KIND: ClassVar[str] = "Date"


@dataclass(frozen=True, slots=True)
class Decimal(Record):
    """A number of so many digits, so many of them after the point."""

    KIND: ClassVar[str] = "Decimal"
    precision: U32
    scale: I32


@dataclass(frozen=True, slots=True)
class Duration(Record):
    """A length of time."""

    KIND: ClassVar[str] = "Duration"
    unit: TimeUnit = TimeUnit.Millisecond


class Float16(Plain):
    """A floating-point number of 16 bits."""

    __slots__ = ()
    KIND: ClassVar[str] = "Float16"


class Float32(Plain):
    """A floating-point number of 32 bits."""

    __slots__ = ()
    KIND: ClassVar[str] = "Float32"


class Float64(Plain):
    """A floating-point number of 64 bits."""

    __slots__ = ()
    KIND: ClassVar[str] = "Float64"


class Int8(Plain):
    """An integer of 8 bits."""

    __slots__ = ()
    KIND: ClassVar[str] = "Int8"


class Int16(Plain):
    """An integer of 16 bits."""

    __slots__ = ()
    KIND: ClassVar[str] = "Int16"


class Int32(Plain):
    """An integer of 32 bits."""

    __slots__ = ()
    KIND: ClassVar[str] = "Int32"


class Int64(Plain):
    """An integer of 64 bits."""

    __slots__ = ()
    KIND: ClassVar[str] = "Int64"


class UInt8(Plain):
    """A natural number of 8 bits."""

    __slots__ = ()
    KIND: ClassVar[str] = "UInt8"


class UInt16(Plain):
    """A natural number of 16 bits."""

    __slots__ = ()
    KIND: ClassVar[str] = "UInt16"


class UInt32(Plain):
    """A natural number of 32 bits."""

    __slots__ = ()
    KIND: ClassVar[str] = "UInt32"


class UInt64(Plain):
    """A natural number of 64 bits."""

    __slots__ = ()
    KIND: ClassVar[str] = "UInt64"


@dataclass(frozen=True, slots=True)
class List(Record):
    """Values of one type, of any number or a fixed one."""

    KIND: ClassVar[str] = "List"
    item_type: DataType
    fixed_length: U64 | None = None


@dataclass(frozen=True, slots=True)
class Map(Record):
    """Keys and their values."""

    KIND: ClassVar[str] = "Map"
    key_type: DataType
    value_type: DataType
    keys_sorted: Flag | None = None


class Null(Plain):
    """A column of nulls only."""

    __slots__ = ()
    KIND: ClassVar[str] = "Null"


@dataclass(frozen=True, slots=True)
class Option(Record):
    """A value of a type, or null."""

    KIND: ClassVar[str] = "Option"
    inner: DataType


@dataclass(frozen=True, slots=True)
class Struct(Record):
    """Named fields."""

    KIND: ClassVar[str] = "Struct"
    fields: tuple[DataField, ...]


@dataclass(frozen=True, slots=True)
class Time(Record):
    """A time of day."""

    KIND: ClassVar[str] = "Time"
    unit: TimeUnit = TimeUnit.Millisecond


@dataclass(frozen=True, slots=True)
class Timestamp(Record):
    """A point in time, shown in a time zone."""

    KIND: ClassVar[str] = "Timestamp"
    unit: TimeUnit = TimeUnit.Millisecond
    timezone: str = "UTC"


class String(Plain):
    """Text."""

    __slots__ = ()
    KIND: ClassVar[str] = "String"


DataType = Annotated[
    Binary
    | Bool
    | Date
    | Decimal
    | Duration
    | Float16
    | Float32
    | Float64
    | Int8
    | Int16
    | Int32
    | Int64
    | UInt8
    | UInt16
    | UInt32
    | UInt64
    | List
    | Map
    | Null
    | Option
    | Struct
    | Time
    | Timestamp
    | String,
    union,
]


@dataclass(frozen=True, slots=True)
class DataField(Record):
    """A named column or member of a struct."""

    name: str
    type: DataType
    extra: Extra | None = None


@dataclass(frozen=True, slots=True)
class DataSchema(Record):
    """The columns of a dataset, system columns included, in order."""

    fields: tuple[DataField, ...]
    extra: Extra | None = None

    def __getitem__(self, name: str) -> DataField:
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The column names in order."""
        return tuple(field.name for field in self.fields)
