"""What depends on the order of values in a stretch of rows: medians, quantiles, ranks.

The order is that of `sort`: NaN after all numbers, null last; 0.0 and -0.0 are equal.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trueline import types as t
from trueline.kernel.aggregates import Spans, from_words, there
from trueline.kernel.comparison import has_words, like_the_one_before, order_words, places_in_order
from trueline.kernel.exact_sums import prefix
from trueline.kernel.limbs import Flags, Whole
from trueline.kernel.word_order import Places, order_of_words

# A quantile is named in parts of this.
WHOLE: Final = 1_000_000_000
# Groups of so many rows are each divided about the one that is looked for; more, smaller ones are sorted
# together: of 5 M rows in 1,000 groups 0.2 s instead of 1.
_MANY_ROWS: Final = 256
# Whole numbers up to this are doubles.
_EXACT: Final = 2.0**53


def median(values: pa.Array, spans: Spans, kind: t.Type, _k: int) -> pa.Array:
    """The middle value, or what lies between the two middle ones; null where no value is there."""
    return quantile(values, spans, kind, WHOLE // 2)


def quantile(values: pa.Array, spans: Spans, _kind: t.Type, k: int) -> pa.Array:
    """The value that `k` billionths of the others are below: between two values it lies on their line.

    It is computed exactly and rounded once.
    """
    valid = there(values)
    counted = prefix(valid)
    low, high = counted[spans.low], counted[spans.high]
    number = high - low
    none = number == 0
    some = values.filter(pa.array(valid))
    place, rest = _line(np.maximum(number - 1, 0), k)
    between = (rest > 0) & ~none
    are_groups = spans.at is None
    is_divided = are_groups and has_words(some.type) and len(some) >= _MANY_ROWS * len(low)
    nth = _Divided(some, low, high) if is_divided else _Ordered(some, low, high, are_groups=are_groups)
    lower = nth(~none, place)
    found = np.zeros(len(number))
    found[~none] = _doubles(lower)
    if between.any():
        ends = lower.filter(pa.array(between[~none])), nth(between, place + 1)
        found[between] = _between(*ends, rest[between])
    return pa.array(found + 0.0, mask=none)  # no -0.0


class _Divided:
    """Finds the k-th smallest value of large groups, from 0 on: each is divided by it, and not sorted."""

    def __init__(self, values: pa.Array, low: Whole, high: Whole) -> None:
        self.kind = t.of(values.type)
        self.low, self.high = low, high
        self.words = order_words(values)

    def __call__(self, some: Flags, k: Whole) -> pa.Array:
        """Return the k-th value of some of the groups."""
        found = np.empty(int(some.sum()), np.uint64)
        wanted = zip(self.low[some].tolist(), self.high[some].tolist(), k[some].tolist(), strict=True)
        for at, (low, high, place) in enumerate(wanted):
            part = self.words[low:high]
            part.partition(place)
            found[at] = part[place]
        return from_words(found, np.zeros(len(found), bool), self.kind)


class _Ordered:
    """Finds the k-th smallest value of stretches, from 0 on."""

    def __init__(self, values: pa.Array, low: Whole, high: Whole, *, are_groups: bool) -> None:
        self.values, self.low, self.high = values, low, high
        self.order = places_in_order([values], (False,))
        self.rank = None
        if are_groups:
            # Groups lie one after another: each is put in order where it is.
            group = np.repeat(np.arange(len(low), dtype=np.uint64), high - low)
            self.order = self.order[order_of_words(group[self.order])]
        else:
            self.rank = np.empty(len(self.order), np.int64)
            self.rank[self.order] = np.arange(len(self.order))

    def __call__(self, some: Flags, k: Whole) -> pa.Array:
        """Return the k-th value of some of the stretches."""
        low, high, k = self.low[some], self.high[some], k[some]
        places = self.order[low + k if self.rank is None else _smallest(self.rank, low, high, k)]
        return self.values.take(pa.array(places))


def _line(steps: Whole, k: int) -> tuple[Whole, Whole]:
    """Return `k` billionths of whole numbers: what is whole of it, and the billionths that are left."""
    # Both halves stay below 2^62.
    upper, lower = steps // WHOLE, steps % WHOLE
    return upper * k + lower * k // WHOLE, lower * k % WHOLE


def _smallest(rank: Whole, low: Whole, high: Whole, k: Whole) -> Places:
    """Return for each stretch the k-th smallest of its ranks, from 0 on; stretches may overlap.

    Bit by bit from the highest: ranks are divided into those with a 0 and those with a 1 there, both in the
    order they had, and every stretch goes on with the half its answer is in (a wavelet matrix).
    """
    low, high, k = low.copy(), high.copy(), k.copy()
    found = np.zeros(len(low), np.int64)
    for bit in reversed(range(max(1, len(rank) - 1).bit_length())):
        is_set = (rank >> bit) & 1 == 1
        zeros = prefix(~is_set)
        before, until = zeros[low], zeros[high]
        above = k >= until - before
        k -= np.where(above, until - before, 0)
        found |= above.astype(np.int64) << bit
        low = np.where(above, zeros[-1] + low - before, before)
        high = np.where(above, zeros[-1] + high - until, until)
        rank = np.concatenate([rank[~is_set], rank[is_set]])
    return found


def _doubles(values: pa.Array) -> npt.NDArray[np.float64]:
    if pa.types.is_decimal(values.type):
        return np.array([float(each) for each in values.to_pylist()], np.float64)
    return np.asarray(values).astype(np.float64)


def _between(one: pa.Array, other: pa.Array, parts: Whole) -> npt.NDArray[np.float64]:
    """Return what lies between values, so many billionths of the way; it is rounded once."""
    if not pa.types.is_decimal(one.type) and (parts == WHOLE // 2).all():
        low, high = _doubles(one), _doubles(other)
        if pa.types.is_floating(one.type) or max(np.abs(low).max(), np.abs(high).max()) <= _EXACT:
            return _halfway(low, high)
    ends = zip(one.to_pylist(), other.to_pylist(), parts.tolist(), strict=True)
    return np.array([_on_line(*each) for each in ends])


def _halfway(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the middle of doubles: what is rounded when they are added is halved exactly."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = one + other
        too_large = np.isinf(total) & np.isfinite(one) & np.isfinite(other)
        return np.where(too_large, one / 2 + other / 2, total / 2)


def _on_line(one: Any, other: Any, part: int) -> float:
    if isinstance(one, float) and not (math.isfinite(one) and math.isfinite(other)):
        return one if one == other else one + other  # infinite, or NaN where it is both ways or not a number
    return float((Fraction(one) * (WHOLE - part) + Fraction(other) * part) / WHOLE)


# --- ranks ----------------------------------------------------------------------------------


def rank(values: pa.Array, spans: Spans, _kind: t.Type, k: int) -> pa.Array:
    """One more than the rows with an equal key whose value comes before; from the largest down if `k`.

    Windows only: the rows are all rows of each key, one key after another.
    """
    assert spans.start is not None
    if not len(values):
        return pa.array([], pa.int64())
    # Keys lie one after another: numbered so, they are small numbers, by which is sorted by counting.
    key = np.cumsum(np.diff(spans.start, prepend=spans.start[:1]) != 0)
    by_value = places_in_order([values], (bool(k),))
    order = by_value[order_of_words(key[by_value].astype(np.uint64))]
    start = spans.start[order]
    new = ~like_the_one_before(values, order)
    new[1:] |= start[1:] != start[:-1]
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    found = np.empty(len(order), np.int64)
    found[order] = first - start + 1
    return pa.array(found)


class RanksInOrder:
    """Ranks of values that come in their order, some at a time: no more than one is remembered.

    >>> ranks = RanksInOrder(10)
    >>> ranks(pa.array([2, 3, 3])).tolist(), ranks(pa.array([3, None])).tolist()
    ([11, 12, 12], [12, 15])
    """

    def __init__(self, before: int = 0) -> None:
        self._first = self._seen = before
        self._last: pa.Array | None = None

    def __call__(self, values: pa.Array) -> Whole:
        """Return one more than the rows before the first equal value; there is one value at least."""
        known = values if self._last is None else pa.concat_arrays([self._last, values])
        same = like_the_one_before(known, np.arange(len(known)))[-len(values) :]
        at = np.arange(self._seen, self._seen + len(values))
        first = np.maximum.accumulate(np.where(same, self._first, at))
        self._first, self._seen = int(first[-1]), self._seen + len(values)
        self._last = values.slice(len(values) - 1)
        return first + 1
