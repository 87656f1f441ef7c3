"""Values of a row as Python has them, by logical type; each is the reader's own (view:C49).

What Python's own classes cannot hold is numpy's: moments outside the years 1
to 9999, and nanoseconds that are not whole microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.identity import RowId
from trueline.kernel.vectors import apart, default

Array: TypeAlias = Any  # pyarrow has no types
At: TypeAlias = Callable[[int], Any]
_FIRST, _LAST = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, as days
_MOST_DAYS: Final = 999_999_999  # of a timedelta
_PER_DAY: Final = {"D": 1, "s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def reader(kind: t.Type) -> Callable[[Array], At]:
    """Return what turns an array into a function from row to value."""
    if isinstance(kind, t.Vector):
        return _vector_reader(kind)
    if isinstance(kind, t.Nested):
        return lambda array: lambda at: array[at].as_py()
    listed = python(kind)
    return lambda array: listed(array).__getitem__


def python(kind: t.Type) -> Callable[[Array], list[Any]]:
    """Return what turns an array into a list of values."""
    if isinstance(kind, t.RowIdentity):
        return _ids
    if kind == t.date or isinstance(kind, t.Timestamp | t.Time | t.Duration):
        return _times
    return _plain


def _plain(array: Array) -> list[Any]:
    found: list[Any] = array.to_pylist()
    return found


def _ids(array: Array) -> list[Any]:
    return [None if raw is None else RowId.from_bytes(raw) for raw in array.to_pylist()]


def _times(array: Array) -> list[Any]:
    kind = array.type
    unit = "D" if pa.types.is_date(kind) else kind.unit
    stored = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    ticks = np.asarray(pc.fill_null(stored, 0), np.int64)
    strange = _strange(ticks, kind, unit)
    if unit == "ns":
        kind = _MICROSECONDS[kind.id](kind)
        array = pa.array(ticks // 1_000, mask=np.asarray(pc.is_null(array))).view(kind)
    if not strange.any():
        return _plain(array)
    found = _plain(pc.if_else(pa.array(strange), pa.scalar(None, kind), array))
    scalar: Any = np.datetime64 if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else np.timedelta64
    for at in np.flatnonzero(strange).tolist():
        found[at] = scalar(int(ticks[at]), unit)
    return found


_MICROSECONDS: Final[dict[int, Callable[[Any], pa.DataType]]] = {
    pa.timestamp("ns").id: lambda kind: pa.timestamp("us", kind.tz),
    pa.time64("ns").id: lambda _: pa.time64("us"),
    pa.duration("ns").id: lambda _: pa.duration("us"),
}


def _strange(ticks: npt.NDArray[np.int64], kind: Any, unit: str) -> npt.NDArray[np.bool_]:
    """Say which values Python's own classes cannot hold."""
    odd = ticks % 1_000 != 0 if unit == "ns" else np.zeros(len(ticks), np.bool_)
    if pa.types.is_time(kind):
        return odd
    days = ticks // _PER_DAY[unit]
    if pa.types.is_duration(kind):
        return odd | (days >= _MOST_DAYS) | (days <= -_MOST_DAYS)
    # In its zone, a moment may lie on the day before or after.
    spare = 0 if unit == "D" or kind.tz in (None, "UTC") else 1
    return odd | (days < _FIRST + spare) | (days > _LAST - spare)


# --- vectors --------------------------------------------------------------------------------


class VectorValue:
    """The values of one cell: they cannot be changed, and how they are encoded makes no difference.

    Two are equal if they have the same items; null
    equals null, NaN equals NaN, and a list is equal to one of the same items.

    >>> v = VectorValue.of(t.vector(t.float32, 4), size=4, indices=[1], values=[2.5])
    >>> len(v), v[1], v[0], list(v), v == [0, 2.5, 0, 0], v == v.dense()
    (4, 2.5, 0.0, [0.0, 2.5, 0.0, 0.0], True, True)
    """

    __slots__ = ("_indices", "_size", "_type", "_values")

    def __init__(
        self, kind: t.Vector, size: int, indices: npt.NDArray[np.int64] | None, values: Array
    ) -> None:
        self._type, self._size, self._indices, self._values = kind, size, indices, values

    @classmethod
    def of(cls, kind: t.Vector, values: Any, indices: Any = None, size: int | None = None) -> Self:
        """Make one of plain values; with indices they are the places of the values, in rising order."""
        array = pa.array(values, kind.item.arrow)
        if indices is None:
            return cls(kind, len(array), None, array)
        return cls(kind, kind.size if size is None else size, _frozen(np.asarray(indices, np.int64)), array)

    @property
    def type(self) -> t.Vector:
        """The type of the column."""
        return self._type

    @property
    def indices(self) -> npt.NDArray[np.int64] | None:
        """The places of the values that are listed; None if all are."""
        return self._indices

    @property
    def values(self) -> Array:
        """The values that are listed, as an Arrow array."""
        return self._values

    @property
    def is_dense(self) -> bool:
        """Whether every value is listed."""
        return self._indices is None

    def dense(self) -> VectorValue:
        """Return the same vector with every value listed."""
        if self._indices is None:
            return self
        return VectorValue(self._type, self._size, None, pa.array(self._stored(), self._type.item.arrow))

    def to_list(self) -> list[Any]:
        """Return all values as Python has them, None where one is null."""
        listed: list[Any] = python(self._type.item)(self._values)
        return listed if self._indices is None else self._filled(listed, python(self._type.item))

    def _stored(self) -> list[Any]:
        return self._filled(self._values.to_pylist(), lambda array: array.to_pylist())

    def _filled(self, listed: list[Any], shown: Callable[[Array], list[Any]]) -> list[Any]:
        assert self._indices is not None
        item = self._type.item
        found = shown(pa.array([default(item).as_py()], item.arrow)) * self._size
        for place, value in zip(self._indices.tolist(), listed, strict=True):
            found[place] = value
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """All values; a null one is NaN among floats, else None in an array of objects."""
        del copy  # it is one in any case
        floating = self._type.item in t.FLOATS
        if self._type.item in t.NUMBERS and (floating or not self._values.null_count):
            listed = self._values.to_numpy(zero_copy_only=False)
            found = np.zeros(self._size, self._type.item.arrow.to_pandas_dtype())
            found[slice(None) if self._indices is None else self._indices] = listed
            return found if dtype is None else found.astype(dtype)
        values = self.to_list()
        if dtype is None and (None in values or not isinstance(self._type.item, t.Primitive)):
            found = np.empty(self._size, object)
            found[:] = values
            return found
        return np.array(values, dtype)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return tuple(self.to_list()[index])
        place = index + self._size if index < 0 else index
        if not 0 <= place < self._size:
            raise IndexError(f"index {index} is out of range for a vector of size {self._size}")
        if self._indices is None:
            return python(self._type.item)(self._values.slice(place, 1))[0]
        at = int(np.searchsorted(self._indices, place))
        if at < len(self._indices) and self._indices[at] == place:
            return python(self._type.item)(self._values.slice(at, 1))[0]
        return python(self._type.item)(pa.array([default(self._type.item).as_py()], self._type.item.arrow))[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_list())

    def _bare(self) -> tuple[int, tuple[int, ...], tuple[Any, ...]]:
        """What makes it the vector it is: its length, and what is not the default, NaN under one name."""
        values = self._values.to_pylist()
        places = range(self._size) if self._indices is None else self._indices.tolist()
        usual = default(self._type.item).as_py()
        kept = [(place, value) for place, value in zip(places, values, strict=True) if value != usual]
        shown = tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for _, v in kept)
        return self._size, tuple(place for place, _ in kept), shown

    def __eq__(self, other: object) -> bool:
        if isinstance(other, VectorValue):
            return self._type.item == other._type.item and self._bare() == other._bare()
        if isinstance(other, list):
            return len(other) == self._size and all(
                a is b or a == b or (a != a and b != b)  # noqa: PLR0124 (NaN)
                for a, b in zip(self.to_list(), other, strict=True)
            )
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._bare())

    def __repr__(self) -> str:
        if self._indices is None:
            return f"vector({self.to_list()})"
        listed = zip(self._indices.tolist(), python(self._type.item)(self._values), strict=True)
        return f"vector({self._size}, {dict(listed)})"


def _frozen(places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    found = places.copy()
    found.flags.writeable = False
    return found


def _vector_reader(kind: t.Vector) -> Callable[[Array], Callable[[int], VectorValue | None]]:
    """Return what turns an array of vectors into a function from row to value."""

    def read(array: Array) -> Callable[[int], VectorValue | None]:
        found = apart(array)
        valid, sizes, listed, counts, starts = (
            each.tolist() for each in (found.valid, found.sizes, found.listed, found.counts, found.starts)
        )
        items, places = found.items, _frozen(found.indices)

        def at(row: int) -> VectorValue | None:
            if not valid[row]:
                return None
            start, count = starts[row], counts[row]
            indices = places[start : start + count] if listed[row] else None
            return VectorValue(kind, sizes[row], indices, items.slice(start, count))

        return at

    return read
