"""Exact sums of stretches of rows: no order of adding, no cutting into pieces changes a bit.

Numbers are cut into `limbs`, which are added as whole numbers, which is exact, and the total is rounded
once. Sums of which only a part is known yet are `partial_sums`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from trueline.kernel.limbs import (
    BITS,
    MASK,
    Flags,
    Numbers,
    Whole,
    carried,
    cut_floats,
    cut_integers,
    exponent_of_all,
    rounded,
    with_infinities,
)

# Stretches of fewer values than this on average are summed by limbs.
_LONG: Final = 32
_BLOCK: Final = 65_536
# Numbers above 2^960 are cut bit by bit: what they are rounded with would overflow.
_HIGHEST: Final = 29
_MOST_PLACES: Final = 12


def prefix(values: npt.NDArray[np.generic]) -> Whole:
    """Return the sums of the first 0, 1, 2 … values."""
    found = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, dtype=np.int64, out=found[1:])
    return found


def spread(sums: Whole, low: Whole, high: Whole) -> Whole:
    """Return the sums of stretches from the sums of beginnings."""
    return sums.take(high) - sums.take(low)


def float_sums(values: Numbers, low: Whole, high: Whole) -> Numbers:
    """Return the sum of each stretch from `low` up to `high` (not included), correctly rounded.

    A sum of nothing is 0.0, of NaN or of both infinities NaN.

    >>> float_sums(np.array([1e16, 1.0, -1e16, np.inf]), np.array([0, 0, 2]), np.array([2, 3, 4])).tolist()
    [1e+16, 1.0, inf]
    """
    finite = np.isfinite(values)
    found = _finite_sums(values if finite.all() else np.where(finite, values, 0.0), low, high)
    if finite.all():
        return found
    nan, up, down = (
        spread(prefix(each), low, high) > 0
        for each in (np.isnan(values), values == np.inf, values == -np.inf)
    )
    return with_infinities(found, nan, up, down)


def _finite_sums(values: Numbers, low: Whole, high: Whole) -> Numbers:
    """Choose the faster of two ways; both round the exact sum, so they agree to the bit.

    On a shared machine `fsum` took 40 to 80 ns a value, and 0.4 to 1.3 µs for a stretch of three or ten;
    limbs took 40 to 280 ns a value, of however many stretches it was part.
    """
    lengths = high - low
    more = np.flatnonzero(lengths > 2)
    if int(lengths.sum()) > 2 * len(values) or len(more) * _LONG > len(values):
        return _limb_sums(values, low, high)
    found = np.zeros(len(low))
    with np.errstate(over="ignore"):
        one, two = lengths == 1, lengths == 2
        found[one] = values[low[one]]
        found[two] = values[low[two]] + values[low[two] + 1]  # rounded once by the machine
    for at, start, stop in zip(more.tolist(), low[more].tolist(), high[more].tolist(), strict=True):
        try:
            found[at] = math.fsum(values[start:stop].tolist())
        except OverflowError:  # on the way, though perhaps not in the end
            found[at] = _limb_sums(values[start:stop], np.array([0]), np.array([stop - start]))[0]
    return found + 0.0  # no -0.0


def _limb_sums(values: Numbers, low: Whole, high: Whole) -> Numbers:
    """Add limbs, some rows at a time, so that they stay near the processor."""
    if len(values) <= _BLOCK or (low[1:] < low[:-1]).any():
        return _limbs_at_once(values, low, high)
    found = np.empty(len(low))
    # Rows that belong to stretches of two blocks are looked at twice: no more than the others.
    step = max(_BLOCK, int((high - low).max(initial=0)))
    start = 0
    while start < len(low):
        base = int(low[start])
        stop = int(np.searchsorted(low, base + step, side="right"))
        top = int(high[start:stop].max())
        found[start:stop] = _limbs_at_once(values[base:top], low[start:stop] - base, high[start:stop] - base)
        start = stop
    return found


def _limbs_at_once(values: Numbers, low: Whole, high: Whole) -> Numbers:
    side_by_side = _side_by_side(values)
    if side_by_side is not None:
        parts, lowest = side_by_side
        limbs = np.array([spread(prefix(part), low, high) for part in parts])
    else:
        limbs, lowest = limb_sums(*cut_floats(values), values != 0.0, low, high)
    return rounded(limbs, BITS * lowest)


def _side_by_side(values: Numbers) -> tuple[Whole, int] | None:
    """Return the limbs of each finite number, lowest first, and the place of the first of them.

    A number is rounded to the grid 2^(32k), from its highest place down, and what that left out to the next
    lower one: all of it is exact. None where numbers are too large, or too far apart.
    """
    exponent = exponent_of_all(values)
    if exponent is None:
        return np.zeros((1, len(values)), np.int64), 0
    highest = (exponent - 1) >> 5
    if highest > _HIGHEST:
        return None
    found: list[Whole] = []
    left = values
    while left.any():
        if len(found) == _MOST_PLACES:
            return None
        power = BITS * (highest - len(found))
        part = _on_grid(left, power)
        left = left - part
        found.append(_in_units(part, power))
    return np.array(found[::-1]), highest - len(found) + 1


def _on_grid(values: Numbers, power: int) -> Numbers:
    """Round numbers below 2^51 units to the unit, which is 2 to the power of `power`."""
    # Near 1.5 * 2^52 units a double has no digits below the unit.
    grid = math.ldexp(1.5, power + 52)
    part: Numbers = values + grid
    part -= grid
    return part


def _in_units(values: Numbers, power: int) -> Whole:
    """Return multiples of 2 to the power of `power` as whole numbers."""
    if abs(power) > 1_000:  # what they would be multiplied with is not a double
        return np.ldexp(values, -power).astype(np.int64)
    return (values * math.ldexp(1.0, -power)).astype(np.int64)


def limb_sums(
    place: Whole, parts: Sequence[Whole], there: Flags, low: Whole, high: Whole
) -> tuple[Whole, int]:
    """Return the sums of numbers that are cut: limbs, lowest first, and the place of the first of them.

    A number is its `parts` from `place` on; where it is not `there` it is zero, and its place says nothing.
    """
    if not there.any():
        return np.zeros((1, len(low)), np.int64), 0
    lowest = int(place[there].min())
    first = np.where(there, place - lowest, 0)
    limbs = []
    for limb in range(int(first.max()) + len(parts)):
        column = sum(np.where(first == limb - above, part, 0) for above, part in enumerate(parts))
        limbs.append(spread(prefix(np.asarray(column)), low, high))
    return np.array(limbs), lowest


def small_sums(values: npt.NDArray[np.integer], low: Whole, high: Whole) -> Whole | None:
    """Return the sums of whole numbers as numbers of 64 bits; None where one might need more.

    >>> small_sums(np.array([1 << 62, -1, 1 << 62]), np.array([0]), np.array([2])) is None
    True
    """
    largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
    if largest * int((high - low).max(initial=0)) >= 1 << 63:
        return None
    # Sums of beginnings may overflow; what is left of them between two is right.
    return spread(prefix(values), low, high)


def whole_sums(values: npt.NDArray[np.integer], low: Whole, high: Whole) -> npt.NDArray[np.int64]:
    """Return the sums of whole numbers of 64 bits as limbs, lowest first, the last with the sign.

    >>> whole_sums(np.array([1 << 62, 1 << 62, -1]), np.array([0, 1]), np.array([2, 3])).tolist()
    [[0, 4294967295], [2147483648, 1073741823], [0, 0]]
    """
    sums = small_sums(values, low, high)
    if sums is None:
        return carried(np.array([spread(prefix(each), low, high) for each in cut_integers(values)]))
    limbs = np.empty((3, len(sums)), np.int64)
    np.bitwise_and(sums, MASK, out=limbs[0])
    np.right_shift(sums, BITS, out=limbs[1])
    limbs[1] &= MASK
    np.right_shift(sums, 63, out=limbs[2])
    return limbs


def as_words(
    limbs: npt.NDArray[np.int64], *, signed: bool
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Return sums as words of 64 bits, and where they do not fit."""
    low, high, over = limbs
    word = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
    if signed:
        # The bits above the word are all as its highest one.
        return word, over != -(high >> np.int64(31))
    return word, over != 0


def python_sums(words: npt.NDArray[np.uint64], low: Whole, high: Whole) -> list[int]:
    """Return the sums of wide whole numbers: rows of words, lowest first, in two's complement."""
    limbs = []
    for place in range(words.shape[1]):
        word = words[:, place]
        last = place == words.shape[1] - 1
        # The highest word has the sign.
        parts = cut_integers(word.view(np.int64) if last else word)
        limbs += [spread(prefix(each), low, high) for each in parts]
    totals = [0] * len(low)
    for number, limb in enumerate(limbs):
        totals = [total + (each << (32 * number)) for total, each in zip(totals, limb.tolist(), strict=True)]
    return totals
