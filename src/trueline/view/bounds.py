"""What a filter rules out before anything is read: ranges of columns, as whole numbers.

Times count in nanoseconds since 1970, dates too, so that a range does not
depend on the unit a column is stored with. Bounds are hints: they may be
wider than the filter, never narrower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

_NANOSECONDS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
DAY: Final = 86_400 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Interval:
    """Values from `low` to `high`, both included; None means no bound.

    >>> Interval(1, 5) & Interval(3, None), Interval(1, 2).meets(3, 9), Interval().meets(3, 9)
    (Interval(low=3, high=5), False, True)
    """

    low: int | None = None
    high: int | None = None

    def __and__(self, other: Interval) -> Interval:
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        return Interval(max(lows, default=None), min(highs, default=None))

    def meets(self, low: int, high: int) -> bool:
        """Say whether a value from `low` to `high` can be in it."""
        return (self.low is None or self.low <= high) and (self.high is None or low <= self.high)


Bounds = Mapping[str, Interval]
# A plain dictionary: bounds travel to tasks in other processes.
NO_BOUNDS: Final[Bounds] = {}


def both(one: Bounds, other: Bounds) -> Bounds:
    """Return what both rule out together."""
    names = dict.fromkeys((*one, *other))
    return {name: one.get(name, Interval()) & other.get(name, Interval()) for name in names}


def step_of(kind: pa.DataType) -> int | None:
    """Return how much one unit of a stored value counts here, None for types without bounds.

    >>> step_of(pa.timestamp("ms", "UTC")), step_of(pa.int32()), step_of(pa.string())
    (1000000, 1, None)
    """
    if pa.types.is_timestamp(kind):
        return _NANOSECONDS[kind.unit]
    if pa.types.is_date32(kind):
        return DAY
    if pa.types.is_date64(kind):
        return _NANOSECONDS["ms"]
    return 1 if pa.types.is_integer(kind) else None
