"""Values of a row as Python has them, by logical type; each is the reader's own (view:C49).

What Python's own classes cannot hold is numpy's: moments outside the years 1
to 9999, and nanoseconds that are not whole microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.identity import RowId

Array: TypeAlias = Any  # pyarrow has no types
At: TypeAlias = Callable[[int], Any]
_FIRST, _LAST = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, as days
_MOST_DAYS: Final = 999_999_999  # of a timedelta
_PER_DAY: Final = {"D": 1, "s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def reader(kind: t.Type) -> Callable[[Array], At]:
    """Return what turns an array into a function from row to value."""
    if isinstance(kind, t.Vector):
        from trueline.kernel.vectors import value_reader

        return value_reader(kind)
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
