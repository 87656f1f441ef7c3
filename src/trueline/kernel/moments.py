"""Variance and standard deviation of stretches of rows, exact until they are rounded once.

For n values they rest on n times the sum of the squares, less the square of the sum. Both are kept as whole
numbers (limbs, then Python's own), so that nothing cancels and no cutting into pieces changes a bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.kernel.aggregates import Spans, there
from trueline.kernel.exact_sums import limb_sums, prefix, spread
from trueline.kernel.limbs import BITS, MASK, Flags, Numbers, Whole, cut_floats, cut_integers

# The numerator and the denominator of a variance.
_Ratio = tuple[int, int]


def variance(values: pa.Array, spans: Spans, _kind: t.Type, _k: int) -> pa.Array:
    """The variance of a sample; null where fewer than two values are there, NaN where one is not finite."""
    return _rounded(values, spans, quotient)


def deviation(values: pa.Array, spans: Spans, _kind: t.Type, _k: int) -> pa.Array:
    """The standard deviation of a sample; null and NaN where the variance is."""
    return _rounded(values, spans, root)


def _rounded(values: pa.Array, spans: Spans, result: Callable[[int, int], float]) -> pa.Array:
    valid = there(values)
    number = spread(prefix(valid), spans.low, spans.high)
    strange = np.zeros(len(number), bool)
    if pa.types.is_floating(values.type):
        finite = np.asarray(pc.fill_null(pc.is_finite(values), True))
        strange = spread(prefix(~finite), spans.low, spans.high) > 0
        values = pc.if_else(pa.array(finite), values, pa.scalar(0.0, values.type))
    found = np.zeros(len(number))
    for at, (above, below) in enumerate(_ratios(values, valid, spans, number)):
        if number[at] > 1:
            found[at] = result(above, below)
    found[strange] = np.nan
    return pa.array(found, mask=number < 2)


def _ratios(values: pa.Array, valid: Flags, spans: Spans, number: Whole) -> Iterator[_Ratio]:
    """Yield the variances as fractions; of fewer than two values, any."""
    totals, unit, squares, square_unit = (
        _decimal_sums(values, spans) if pa.types.is_decimal(values.type) else _limb_sums(values, valid, spans)
    )
    # All are counted in the smaller of the two units.
    least = min(2 * unit, square_unit)
    point = 100**values.type.scale if pa.types.is_decimal(values.type) else 1
    for many, total, square in zip(number.tolist(), totals, squares, strict=True):
        above = many * (square << (square_unit - least)) - ((total * total) << (2 * unit - least))
        below = max(1, many * (many - 1)) * point
        yield (above << least, below) if least >= 0 else (above, below << -least)


def _limb_sums(values: pa.Array, valid: Flags, spans: Spans) -> tuple[list[int], int, list[int], int]:
    """Return the sums and the sums of squares as whole numbers, each with the power of two they count."""
    place, parts = _cut(values)
    some = valid & np.logical_or.reduce([part != 0 for part in parts])
    totals, lowest = limb_sums(place, parts, some, spans.low, spans.high)
    squares, lowest_square = limb_sums(2 * place, _squared(parts), some, spans.low, spans.high)
    return _as_integers(totals), BITS * lowest, _as_integers(squares), BITS * lowest_square


def _cut(values: pa.Array) -> tuple[Whole, list[Whole]]:
    if pa.types.is_floating(values.type):
        numbers: Numbers = np.asarray(pc.fill_null(values, 0.0)).astype(np.float64)
        place, limbs = cut_floats(numbers)
        return place, list(limbs)
    plain = np.asarray(pc.fill_null(values, 0))
    wide = plain.astype(np.uint64 if pa.types.is_unsigned_integer(values.type) else np.int64)
    return np.zeros(len(wide), np.int64), list(cut_integers(wide))


def _squared(parts: list[Whole]) -> list[Whole]:
    """Return the limbs of the squares of numbers that are cut; a number has at most three limbs."""
    size = _sizes(parts)
    found = [np.zeros(len(parts[0]), np.int64) for _ in range(2 * len(size))]
    for one, first in enumerate(size):
        for other, second in enumerate(size):
            product = first * second
            found[one + other] += (product & np.uint64(MASK)).astype(np.int64)
            found[one + other + 1] += (product >> np.uint64(BITS)).astype(np.int64)
    return found


def _sizes(parts: list[Whole]) -> list[npt.NDArray[np.uint64]]:
    """Return the limbs of numbers without their signs, each below 2^32."""
    carry = np.zeros(len(parts[0]), np.int64)
    limbs = []
    for part in parts:
        total = part + carry
        limbs.append(total & MASK)
        carry = total >> np.int64(BITS)
    negative = carry < 0
    if negative.any():
        # What is below zero is turned round: all bits, and one more.
        more = np.ones(len(carry), np.int64)
        for at, limb in enumerate(limbs):
            turned = (MASK - limb) + more
            limbs[at] = np.where(negative, turned & MASK, limb)
            more = turned >> np.int64(BITS)
    return [limb.astype(np.uint64) for limb in limbs]


def _as_integers(limbs: Whole) -> list[int]:
    totals = [0] * limbs.shape[1]
    for number, limb in enumerate(limbs):
        totals = [
            total + (each << (BITS * number)) for total, each in zip(totals, limb.tolist(), strict=True)
        ]
    return totals


def _decimal_sums(values: pa.Array, spans: Spans) -> tuple[list[int], int, list[int], int]:
    """Return the sums and the sums of squares of the digits, the point left out."""
    width = values.type.byte_width // 8
    raw = np.frombuffer(values.buffers()[1], "<u8", len(values) * width, values.offset * 8 * width)
    words = np.where(there(values)[:, None], raw.reshape(len(values), width), np.uint64(0))
    whole = words[:, -1].view(np.int64).tolist()  # the highest word has the sign
    for lower in reversed(range(width - 1)):
        whole = [(high << 64) + low for high, low in zip(whole, words[:, lower].tolist(), strict=True)]
    sums = [0, *accumulate(whole)]
    squares = [0, *accumulate(each * each for each in whole)]
    pairs = list(zip(spans.low.tolist(), spans.high.tolist(), strict=True))
    return [sums[b] - sums[a] for a, b in pairs], 0, [squares[b] - squares[a] for a, b in pairs], 0


# --- rounding once --------------------------------------------------------------------------


def quotient(above: int, below: int) -> float:
    """Return a fraction as the nearest double."""
    try:
        return above / below  # Python rounds it correctly
    except OverflowError:
        return math.inf


def root(above: int, below: int) -> float:
    """Return the square root of a fraction, correctly rounded.

    >>> root(2, 1), root(0, 5), root(1 << 2200, 1)
    (1.4142135623730951, 0.0, inf)
    """
    if above == 0:
        return 0.0
    # 109 bits of the root's square decide 53 bits of the root; a last bit stands for all that is below.
    shift = (above.bit_length() - below.bit_length() - 109) // 2
    over, under = (above, below << 2 * shift) if shift >= 0 else (above << -2 * shift, below)
    found = math.isqrt(over // under)
    found |= found * found * under != over
    return quotient(found << shift, 1) if shift >= 0 else quotient(found, 1 << -shift)
