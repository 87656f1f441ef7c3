"""Sums, variances, covariances and correlations from power sums that are whole numbers, rounded once.

The power sums of a group come as limbs of 32 bits (signed, not carried) that any engine can add in any order,
or as the values themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from trueline.kernel.limbs import BITS, MASK, Flags, Numbers, Whole, rounded, with_infinities
from trueline.kernel.moments import quotient, root

# Of some numbers: that one is NaN or infinite.
NAN, INFINITE, NEGATIVE_INFINITE = 1, 2, 4
# That one is outside of what the limbs of a moment have room for.
ESCAPE: Final = 8
# What is raised then.
ESCAPED: Final = "trueline: a number needs the wide form of the exact sum"
_STRANGE: Final = NAN | INFINITE | NEGATIVE_INFINITE

# The power of 2^32 that the lowest limb counts, and how many limbs there are: of sums that have room for
# every double, of those that have for most, and of the sums and sums of products of moments.
WIDE: Final = (-34, 66)
FAST: Final = (-3, 5)
MOMENT: Final = (-4, 6)
PRODUCT: Final = (-8, 12)
# How many numbers of a row each takes, and which of their products it needs.
KINDS: Final[dict[str, tuple[int, tuple[tuple[int, int], ...]]]] = {
    "sum": (1, ()),
    "var_pop": (1, ((0, 0),)),
    "var_samp": (1, ((0, 0),)),
    "stddev_pop": (1, ((0, 0),)),
    "stddev_samp": (1, ((0, 0),)),
    "covar_pop": (2, ((0, 1),)),
    "covar_samp": (2, ((0, 1),)),
    "corr": (2, ((0, 0), (1, 1), (0, 1))),
}
# Every double is a whole number of this power of two.
_UNIT: Final = -1074
# The sizes that the limbs of moments have room for, products included.
_LEAST, _MOST = 2.0**-64, 2.0**63
_LIMB: Final = 2.0**BITS
# From here on a number has no bits in a limb.
_ABOVE: Final = 2.0 ** (53 + BITS)
# Cuts a double into halves of 26 bits (Dekker, Veltkamp).
_HALVES: Final = 2.0**27 + 1.0


@dataclass(frozen=True, slots=True)
class PowerSums:
    """Of some rows the sums of their numbers, counted in 2^unit, and of products, in 2^product_unit."""

    count: int
    flags: int
    totals: Sequence[int]
    unit: int
    products: Sequence[int] = ()
    product_unit: int = 0

    def finished(self, kind: str) -> float | None:
        """Return what a function of SQL gives for these rows; None for null."""
        if self.count == 0 or (self.count == 1 and kind in ("var_samp", "stddev_samp", "covar_samp", "corr")):
            return None
        if kind == "sum":
            return self._sum()
        if self.flags & _STRANGE:
            return math.nan
        if kind == "corr":
            return self._correlation()
        above = self._about_mean(len(self.totals) - 1, 0, 0)
        below = self.count * (self.count - 1 if kind.endswith("samp") else self.count)
        shift = self._shift
        above, below = (above << shift, below) if shift >= 0 else (above, below << -shift)
        return root(above, below) if kind.startswith("stddev") else _signed(above, below)

    @property
    def _shift(self) -> int:
        return min(2 * self.unit, self.product_unit)

    def _about_mean(self, one: int, other: int, product: int) -> int:
        """Return n times the sum of products, less the product of the sums, in the smaller of both units."""
        least = self._shift
        products = self.products[product] << (self.product_unit - least)
        return self.count * products - ((self.totals[one] * self.totals[other]) << (2 * self.unit - least))

    def _correlation(self) -> float | None:
        spread = self._about_mean(0, 0, 0) * self._about_mean(1, 1, 1)
        if spread == 0:
            return None
        together = self._about_mean(0, 1, 2)
        size = root(together * together, spread)
        return -size if together < 0 else size

    def _sum(self) -> float:
        if self.flags & NAN or self.flags & (INFINITE | NEGATIVE_INFINITE) == INFINITE | NEGATIVE_INFINITE:
            return math.nan
        if self.flags & _STRANGE:
            return math.inf if self.flags & INFINITE else -math.inf
        total = self.totals[0]
        return _signed(total << self.unit, 1) if self.unit >= 0 else _signed(total, 1 << -self.unit)


def _signed(above: int, below: int) -> float:
    """Return a fraction as the nearest double, without -0.0."""
    size = quotient(abs(above), below)
    return (-size if above < 0 else size) + 0.0


# --- cutting ------------------------------------------------------------------------------------


def limb_count(kind: str) -> int:
    """Return how many limbs a row has."""
    numbers, products = KINDS[kind]
    return numbers * MOMENT[1] + len(products) * PRODUCT[1] if products else WIDE[1]


def limbs_of(kind: str, x: Numbers, y: Numbers) -> Whole:
    """Return what is to be added for each row: two counts of what is strange, as SQL has them, and limbs."""
    numbers, products = KINDS[kind]
    given = [x, y][:numbers]
    flags: Whole = np.bitwise_or.reduce([_flags_of(each, bool(products)) for each in given])
    kept = [np.where(flags == 0, each, 0.0) for each in given]
    found = [limb for each in kept for limb in _cut(each, MOMENT if products else WIDE)]
    for one, other in products:
        nearest, rest = exact_product(kept[one], kept[other])
        found += [
            upper + lower for upper, lower in zip(_cut(nearest, PRODUCT), _cut(rest, PRODUCT), strict=True)
        ]
    counts = [
        np.where(flags & low != 0, 1, np.where(flags & high != 0, 1 << BITS, 0)).astype(np.int64)
        for low, high in ((NAN, INFINITE), (NEGATIVE_INFINITE, ESCAPE))
    ]
    return np.stack([*counts, *found], axis=1)


def _flags_of(numbers: Numbers, is_bounded: bool) -> Whole:
    found = np.where(np.isnan(numbers), NAN, 0).astype(np.int64)
    found[numbers == np.inf] = INFINITE
    found[numbers == -np.inf] = NEGATIVE_INFINITE
    if is_bounded:
        size = np.abs(numbers)
        found[(found == 0) & (numbers != 0.0) & ((size < _LEAST) | (size >= _MOST))] = ESCAPE
    return found


def _cut(numbers: Numbers, limbs: tuple[int, int]) -> list[Whole]:
    """Return the bits of numbers at each place, with their signs; every step is exact."""
    first, many = limbs
    found = []
    for place in range(first, first + many):
        half = 2.0 ** (-BITS // 2 * place)
        with np.errstate(over="ignore"):
            scaled = numbers * half * half
        inside: npt.NDArray[np.bool_] = np.abs(scaled) < _ABOVE
        found.append(np.fmod(np.where(inside, scaled, 0.0), _LIMB).astype(np.int64))
    return found


def exact_product(x: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
    """Return the nearest doubles of products, and what they leave: together they are exact."""
    nearest = x * y
    x_high = x * _HALVES - (x * _HALVES - x)
    y_high = y * _HALVES - (y * _HALVES - y)
    x_low, y_low = x - x_high, y - y_high
    rest = ((x_high * y_high - nearest) + x_high * y_low + x_low * y_high) + x_low * y_low
    return nearest, rest


def exact_square(x: Numbers) -> tuple[Numbers, Numbers]:
    """Return what `exact_product` gives of numbers and themselves, in fewer steps."""
    nearest = x * x
    high = x * _HALVES
    high -= high - x
    low = x - high
    rest = high * high
    rest -= nearest
    high *= low
    high += high
    rest += high
    low *= low
    rest += low
    return nearest, rest


# --- finishing ----------------------------------------------------------------------------------


def from_limbs(
    kind: str, count: int, one: int | None, two: int | None, limbs: Sequence[int | None]
) -> float | None:
    """Return what a function of SQL gives for rows whose counts of what is strange, and limbs, were added.

    >>> from_limbs("var_pop", 2, 0, 0, [0] * 4 + [3, 0] + [0] * 8 + [5, 0, 0, 0])
    0.25
    >>> from_limbs("sum", 2, 1, 0, [0] * 5)
    nan
    """
    if not count:
        return None
    flags = _counted_flags(one or 0, two or 0)
    if flags & ESCAPE and not flags & _STRANGE:
        raise OverflowError(ESCAPED)
    numbers, products = KINDS[kind]
    low, many = MOMENT if products else FAST if len(limbs) == FAST[1] else WIDE
    totals = [_whole(limbs[at * many : (at + 1) * many]) for at in range(numbers)]
    rest = limbs[numbers * many :]
    product_low, product_many = PRODUCT
    found = [_whole(rest[at * product_many : (at + 1) * product_many]) for at in range(len(products))]
    return PowerSums(count, flags, totals, BITS * low, found, BITS * product_low).finished(kind)


def sums_from_limbs(count: Whole, one: Whole, two: Whole, limbs: Whole) -> tuple[Numbers, Flags]:
    """Return many sums at once, and which of them are null; each row of `limbs` has those of one sum.

    >>> sums_from_limbs(*np.array([[2, 0], [0, 0], [0, 0]]), np.array([[0, 0, 0, 3, 0], [0, 0, 0, 0, 0]]))
    (array([3., 0.]), array([False,  True]))
    """
    none = count == 0
    nan, up = one & MASK != 0, one >> BITS != 0
    down, escaped = two & MASK != 0, two >> BITS != 0
    if (escaped & ~(nan | up | down | none)).any():
        raise OverflowError(ESCAPED)
    low, _ = FAST if limbs.shape[1] == FAST[1] else WIDE
    found = rounded(np.ascontiguousarray(limbs.T), BITS * low)
    return with_infinities(found, nan, up, down), none


def _counted_flags(one: int, two: int) -> int:
    """Return which of the four counts in two numbers are not zero."""
    counts = (one & MASK, one >> BITS, two & MASK, two >> BITS)
    bits = (NAN, INFINITE, NEGATIVE_INFINITE, ESCAPE)
    return sum(bit for bit, number in zip(bits, counts, strict=True) if number)


def from_values(kind: str, rows: Iterable[tuple[float, float]]) -> float | None:
    """Return what a function of SQL gives for rows of two numbers, of which it may use one.

    >>> from_values("sum", [(1e300, 0.0), (1.0, 0.0), (-1e300, 0.0)])
    1.0
    """
    numbers, wanted = KINDS[kind]
    totals, products = [0] * numbers, [0] * len(wanted)
    count = flags = 0
    for row in rows:
        count += 1
        flags |= _flags(row[:numbers])
        if flags & _STRANGE:
            continue
        whole = [_in_units(number) for number in row[:numbers]]
        totals = [total + each for total, each in zip(totals, whole, strict=True)]
        products = [total + whole[a] * whole[b] for total, (a, b) in zip(products, wanted, strict=True)]
    return PowerSums(count, flags, totals, _UNIT, products, 2 * _UNIT).finished(kind)


def _flags(numbers: Iterable[float]) -> int:
    flags = 0
    for number in numbers:
        if math.isnan(number):
            flags |= NAN
        elif math.isinf(number):
            flags |= INFINITE if number > 0 else NEGATIVE_INFINITE
    return flags


def _in_units(number: float) -> int:
    above, below = number.as_integer_ratio()
    return above * ((1 << -_UNIT) // below)


def _whole(limbs: Sequence[int | None]) -> int:
    return sum((limb or 0) << (BITS * at) for at, limb in enumerate(limbs))
