"""Times as other times and as text: UTC where there is no zone, too far away is null."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.readers.times import durations as read_durations

Array: TypeAlias = Any  # pyarrow has no types
PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
DAY: Final = 86_400
_FIRST, _LAST = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, as days


def ticks(array: Array) -> npt.NDArray[np.int64]:
    """Return what is stored, 0 where nothing is."""
    stored = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return np.asarray(pc.fill_null(stored, 0), np.int64)


def made(values: npt.NDArray[np.int64], gone: npt.NDArray[np.bool_], kind: pa.DataType) -> Array:
    """Return stored numbers as times of a type; null where `gone`."""
    stored = values.astype(np.int32) if kind.bit_width == 32 else values
    return pa.array(stored, mask=gone).view(kind)


def missing(array: Array) -> npt.NDArray[np.bool_]:
    """Say where nothing is."""
    return np.asarray(pc.is_null(array))


def scaled(
    values: npt.NDArray[np.int64], have: int, want: int, *, down: bool = True
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return ticks of one unit in another, cut off downwards or towards zero, and which are too far."""
    if want <= have:
        step = have // want
        found = values // step if down else (values // step) + ((values < 0) & (values % step != 0))
        return found, np.zeros(len(values), np.bool_)
    step = want // have
    limit = ((1 << 63) - 1) // step
    far = (values > limit) | (values < -limit)
    return np.where(far, 0, values) * step, far


def timestamps(array: Array, target: t.Type) -> Array:
    """Moments in another unit or zone."""
    found, far = scaled(ticks(array), PER_SECOND[array.type.unit], PER_SECOND[target.arrow.unit])
    return made(found, far | missing(array), target.arrow)


def timestamps_of_dates(array: Array, target: t.Type) -> Array:
    """Days as their first moments."""
    found, far = scaled(ticks(array) * DAY, 1, PER_SECOND[target.arrow.unit])
    return made(found, far | missing(array), target.arrow)


def dates_of_timestamps(array: Array, target: t.Type) -> Array:
    """Moments as their days; only seconds reach further than days do."""
    found = ticks(array) // (DAY * PER_SECOND[array.type.unit])
    far = (found > (1 << 31) - 1) | (found < -(1 << 31))
    return made(np.where(far, 0, found), far | missing(array), target.arrow)


def times_of_timestamps(array: Array, target: t.Type) -> Array:
    """Moments as their times of day."""
    per_second = PER_SECOND[array.type.unit]
    found, _ = scaled(ticks(array) % (DAY * per_second), per_second, PER_SECOND[target.arrow.unit])
    return made(found, missing(array), target.arrow)


def times(array: Array, target: t.Type) -> Array:
    """Times of day in another unit."""
    found, _ = scaled(ticks(array), PER_SECOND[array.type.unit], PER_SECOND[target.arrow.unit])
    return made(found, missing(array), target.arrow)


def durations(array: Array, target: t.Type) -> Array:
    """Spans in another unit."""
    found, far = scaled(ticks(array), PER_SECOND[array.type.unit], PER_SECOND[target.arrow.unit], down=False)
    return made(found, far | missing(array), target.arrow)


# --- text -------------------------------------------------------------------------------------


def are_writable(array: Array) -> npt.NDArray[np.bool_]:
    """Say which days and moments lie in a year that is written with four digits."""
    days = ticks(array) // (DAY * PER_SECOND[array.type.unit] if pa.types.is_timestamp(array.type) else 1)
    return np.asarray((days >= _FIRST) & (days <= _LAST))


def _known(array: Array) -> Array:
    known = are_writable(array)
    return array if known.all() else pc.if_else(pa.array(known), array, pa.scalar(None, array.type))


def text_of_dates(array: Array) -> Array:
    """Write days."""
    return _known(array).cast(pa.string())


def text_of_timestamps(array: Array) -> Array:
    """Write moments, those with a zone in UTC."""
    zone = "UTC" if array.type.tz else None
    kept = _known(array)
    return kept.view(pa.timestamp(array.type.unit, zone)).cast(pa.string())


def text_of_durations(array: Array) -> Array:
    """Write spans as seconds, as many digits after the point as they need."""
    per_second = PER_SECOND[array.type.unit]
    values = ticks(array)
    # The smallest number has no positive counterpart; as an unsigned one it has.
    size = np.where(values < 0, np.uint64(0) - values.astype(np.uint64), values.astype(np.uint64))
    seconds = pa.array(size // np.uint64(per_second)).cast(pa.string())
    digits = len(str(per_second)) - 1
    fraction = pc.utf8_lpad(pa.array(size % np.uint64(per_second)).cast(pa.string()), digits, "0")
    fraction = pc.utf8_rtrim(fraction, "0")
    point = pc.if_else(pc.equal(fraction, ""), "", ".")
    sign = pc.if_else(pa.array(values < 0), "-", "")
    found = pc.binary_join_element_wise(sign, "PT", seconds, point, fraction, "S", "")
    return pc.if_else(pc.is_valid(array), found, None)


def durations_of_text(array: Array, target: t.Type) -> Array:
    """Read spans as files of text have them."""
    return read_durations(pc.utf8_trim(array, " \t"), target.arrow).array
