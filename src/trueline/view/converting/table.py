"""Carrying out conversions: arrays of one type as arrays of another, by the table of `trueline.types`.

A value that cannot become one of the other type is null; nothing raises for a row.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.view.converting import numbers, times

Array: TypeAlias = Any  # pyarrow has no types
_Way: TypeAlias = Callable[[Array, t.Type], Array]


def convert(array: Array, source: t.Type, target: t.Type) -> Array:
    """Return the values as another type, null where there is no such value; refuse where there is no way.

    >>> convert(pa.array([1.5, float("nan"), 300.0]), t.float64, t.int8).to_pylist()
    [1, None, None]
    >>> convert(pa.array(["2026-11-13", "soon"]), t.text, t.date).to_pylist()
    [datetime.date(2026, 11, 13), None]
    """
    t.conversion(source, target)
    if source == target:
        return array
    if isinstance(source, t.Vector):
        assert isinstance(target, t.Vector)
        return _vectors(array, source, target)
    way = (t.family(source), t.family(target))
    if way[0] == "null":
        return pa.nulls(len(array), target.arrow)
    found = _WAYS[way](array, target)
    return found if found.type == target.arrow else found.cast(target.arrow)


def _vectors(array: Array, source: t.Vector, target: t.Vector) -> Array:
    """Item by item; vectors of another length than the type has are null (view:C108)."""
    from trueline.kernel import vectors

    if source.item != target.item:
        array = vectors.with_items(
            array, source, target.item, lambda items: convert(items, source.item, target.item)
        )
    return vectors.sized(array, t.Vector(target.item, source.dims), target)


# --- text and bytes ---------------------------------------------------------------------------


def _read(array: Array, target: t.Type) -> Array:
    """Text as the readers of files read it, blank text included."""
    from trueline.readers.cells import convert as read
    from trueline.readers.rules import CellRules

    return read(array, target.arrow, CellRules(nulls=())).array


def _decoded(array: Array) -> Array:
    from trueline.readers.cells import decode

    return decode(array)[0]


def _coded(array: Array, target: t.Type) -> Array:
    return numbers.codes(_read(array, t.int64), target)


def _hex(array: Array) -> Array:
    """32 hexadecimal digits as 16 bytes."""
    good = pc.fill_null(pc.match_substring_regex(array, "^[0-9a-fA-F]{32}$"), False)
    digits = "".join(array.filter(good).to_pylist())
    found = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(digits) // 32, [None, pa.py_buffer(bytes.fromhex(digits))]
    )
    at = pc.if_else(good, pc.subtract(pc.cumulative_sum(good.cast(pa.int64())), 1), None)
    return found.take(at)


def _sixteen(array: Array) -> Array:
    return pc.if_else(pc.equal(pc.binary_length(array), 16), array, None).cast(pa.binary(16))


def _digits(array: Array) -> Array:
    """16 bytes as 32 hexadecimal digits."""
    kept = array.drop_null()
    raw = kept.cast(pa.binary())
    joined = b"".join(raw.to_pylist()).hex()
    found = pa.array([joined[at : at + 32] for at in range(0, len(joined), 32)], pa.string())
    at = pc.subtract(pc.cumulative_sum(pc.is_valid(array).cast(pa.int64())), 1)
    return found.take(pc.if_else(pc.is_valid(array), at, None))


def _cast(array: Array, target: t.Type) -> Array:
    return array.cast(target.arrow)


def _bytes(array: Array) -> Array:
    return array.cast(pa.binary())


def _not_zero(array: Array) -> Array:
    return pc.not_equal(array, pa.scalar(0, pa.int8()).cast(array.type))


def _alone(way: Callable[[Array], Array]) -> _Way:
    """A way that needs to know no more than the family."""
    return lambda array, _: way(array)


_WAYS: Final[dict[tuple[str, str], _Way]] = {
    ("bool", "int"): _cast,
    ("bool", "float"): _cast,
    ("bool", "decimal"): lambda array, target: numbers.decimals(array.cast(pa.int8()), target),
    ("bool", "text"): _cast,
    ("int", "bool"): _alone(_not_zero),
    ("int", "int"): numbers.whole,
    ("int", "float"): numbers.nearest,
    ("int", "decimal"): numbers.decimals,
    ("int", "text"): _cast,
    ("int", "category"): numbers.codes,
    ("float", "bool"): _alone(numbers.is_not_zero),
    ("float", "int"): numbers.cut,
    ("float", "float"): numbers.floats,
    ("float", "decimal"): numbers.decimals_of_floats,
    ("float", "text"): _alone(numbers.text_of_floats),
    ("decimal", "bool"): lambda array, _: pc.not_equal(array, pa.scalar(Decimal(0))),
    ("decimal", "int"): numbers.whole_of_decimals,
    ("decimal", "float"): numbers.floats_of_decimals,
    ("decimal", "decimal"): numbers.rescaled,
    ("decimal", "text"): _alone(numbers.text_of_decimals),
    ("text", "bool"): _read,
    ("text", "int"): _read,
    ("text", "float"): _read,
    ("text", "decimal"): _read,
    ("text", "bytes"): _alone(_bytes),
    ("text", "date"): _read,
    ("text", "timestamp"): _read,
    ("text", "time"): _read,
    ("text", "duration"): times.durations_of_text,
    ("text", "category"): _coded,
    ("text", "rowid"): _alone(_hex),
    ("bytes", "text"): _alone(_decoded),
    ("bytes", "rowid"): _alone(_sixteen),
    ("date", "text"): _alone(times.text_of_dates),
    ("date", "timestamp"): times.timestamps_of_dates,
    ("timestamp", "text"): _alone(times.text_of_timestamps),
    ("timestamp", "date"): times.dates_of_timestamps,
    ("timestamp", "timestamp"): times.timestamps,
    ("timestamp", "time"): times.times_of_timestamps,
    ("time", "text"): _cast,
    ("time", "time"): times.times,
    ("duration", "text"): _alone(times.text_of_durations),
    ("duration", "duration"): times.durations,
    ("category", "int"): numbers.whole,
    ("category", "text"): _cast,
    ("category", "category"): numbers.codes,
    ("rowid", "text"): _alone(_digits),
    ("rowid", "bytes"): _alone(_bytes),
}
