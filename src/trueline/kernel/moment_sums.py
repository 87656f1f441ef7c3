"""Variances of groups part by part: exact sums of values and of their squares, which parts add up.

The square of a double is two doubles, the nearest one and what that leaves (Dekker, Veltkamp). Numbers whose
squares would overflow or underflow are scaled by a power of two before, and summed by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa

from trueline.kernel.limbs import (
    BITS,
    Flags,
    GroupSums,
    Numbers,
    PartialSums,
    Whole,
    as_floats,
    exponent_of_all,
)
from trueline.kernel.power_sums import exact_product, exact_square

# Of sizes from 2^-470 up to 2^510 both parts of the square are exact.
_LEAST, _MOST = 2.0**-470, 2.0**510
# What numbers are multiplied with by their size, as powers of two: those between, the small, the large.
_SCALES: Final = (0, 600, -540)
# So many rows at a time stay near the processor.
_BLOCK: Final = 1 << 14
# Doubles have all whole numbers up to here; larger ones are two doubles.
_WHOLE: Final = 1 << 53
WIDTH: Final = 1 + len(_SCALES)


@dataclass(frozen=True, eq=False)
class MomentSums:
    """The sums of the values of groups, and of their squares by the scale that their values had.

    `finish` makes the result of a fraction: the variance itself, or its root.
    """

    total: PartialSums
    squares: tuple[PartialSums, ...]
    finish: Callable[[int, int], float]

    @classmethod
    def of(cls, values: pa.Array, found: Whole, groups: int, finish: Callable[[int, int], float]) -> Self:
        """Add values, none of them null, each to its group."""
        if pa.types.is_floating(values.type):
            numbers = as_floats(values)
            total = PartialSums.of_floats(numbers, found, groups)
            finite = np.isfinite(numbers)
            if not finite.all():
                numbers, found = numbers[finite], found[finite]
            return cls(total, _squares_of_floats(numbers, found, groups), finish)
        whole = np.asarray(values)
        total = PartialSums.of_integers(whole, found, groups)
        return cls(total, _squares_of_integers(whole, found, groups), finish)

    @classmethod
    def merge(
        cls, parts: Sequence[pa.Array], found: Whole, groups: int, finish: Callable[[int, int], float]
    ) -> Self:
        """Add the sums of parts."""
        total, *squares = (
            PartialSums.combined([(PartialSums.from_arrow(part), found, 1)], groups) for part in parts
        )
        return cls(total, tuple(squares), finish)

    def __add__(self, other: MomentSums) -> MomentSums:
        """Add the sums of the same groups."""
        squares = tuple(one + two for one, two in zip(self.squares, other.squares, strict=True))
        return MomentSums(self.total + other.total, squares, self.finish)

    def to_arrow(self) -> list[pa.Array]:
        return [each.to_arrow() for each in (self.total, *self.squares)]

    def result(self, kind: object) -> pa.Array:
        del kind
        number, total = self.total.count, self.total
        found = np.zeros(len(number))
        # Each scaled sum of squares counts in its own power of two.
        parts = [total, *self.squares]
        wholes, units = zip(*(each.in_units() for each in parts), strict=True)
        unit = min(2 * units[0], *(each - 2 * scale for each, scale in zip(units[1:], _SCALES, strict=True)))
        shifts = [each - 2 * scale - unit for each, scale in zip(units[1:], _SCALES, strict=True)]
        for at, many in enumerate(number.tolist()):
            if many > 1:
                square = sum(whole[at] << shift for whole, shift in zip(wholes[1:], shifts, strict=True))
                above = many * square - (wholes[0][at] ** 2 << (2 * units[0] - unit))
                below = many * (many - 1)
                found[at] = self.finish(*((above << unit, below) if unit >= 0 else (above, below << -unit)))
        found[(total.nan > 0) | (total.up > 0) | (total.down > 0)] = np.nan
        return pa.array(found, mask=number < 2)


def _squares_of_floats(values: Numbers, found: Whole, groups: int) -> tuple[PartialSums, ...]:
    kinds = _kinds(values)
    if kinds is None:
        between = _products(values, values, found, groups)
        return between, *(PartialSums.nothing(groups) for _ in _SCALES[1:])
    return tuple(
        _products(scaled, scaled, found[some], groups)
        for some, scale in zip(kinds, _SCALES, strict=True)
        for scaled in (np.ldexp(values[some], scale),)
    )


def _kinds(values: Numbers) -> tuple[Flags, Flags, Flags] | None:
    """Say which numbers are between, small and large; None if none is small or large."""
    for start in range(0, len(values), _BLOCK):
        size = np.abs(values[start : start + _BLOCK])
        if float(size.max()) >= _MOST or (float(size.min()) < _LEAST and (size[size > 0.0] < _LEAST).any()):
            break
    else:
        return None
    size = np.abs(values)
    small, large = (size < _LEAST) & (size > 0.0), size >= _MOST
    return ~(small | large), small, large


def _squares_of_integers(values: Whole, found: Whole, groups: int) -> tuple[PartialSums, ...]:
    is_wide = (values >= _WHOLE) | (values <= -_WHOLE) if values.itemsize > 4 else np.zeros(len(values), bool)
    numbers = values[~is_wide].astype(np.float64)
    squares = _products(numbers, numbers, found[~is_wide], groups)
    if is_wide.any():
        wide, at = values[is_wide], found[is_wide]
        lower = (wide & wide.dtype.type((1 << BITS) - 1)).astype(np.float64)
        upper = (wide >> wide.dtype.type(BITS)).astype(np.float64) * 2.0**BITS
        for one, other in ((upper, upper), (2.0 * upper, lower), (lower, lower)):
            squares += _products(one, other, at, groups)
    return squares, *(PartialSums.nothing(groups) for _ in _SCALES[1:])


def _products(one: Numbers, other: Numbers, found: Whole, groups: int) -> PartialSums:
    top = sum(exponent_of_all(each) or 0 for each in (one, other))
    count = np.bincount(found, minlength=groups).astype(np.int64, copy=False)
    if GroupSums.suit(top, len(one), groups):
        sums = GroupSums(top, groups, 2 * int(count.max(initial=0)))
        if _add_products(sums, one, other, found, top):
            none = np.zeros(groups, np.int64)
            counts = {"count": count, "nan": none, "up": none, "down": none}
            return PartialSums.from_limbs(*sums.limbs(), counts, 2 * len(one))
    nearest, rest = exact_product(one, other)
    return PartialSums.of_floats(nearest, found, groups) + PartialSums.of_floats(rest, found, groups)


def _add_products(sums: GroupSums, one: Numbers, other: Numbers, found: Whole, top: int) -> bool:
    """Add products below 2^`top`, some rows at a time; False if they lie too far apart."""
    for start in range(0, len(one), _BLOCK):
        rows = slice(start, start + _BLOCK)
        at, x = found[rows], one[rows]
        nearest, rest = exact_square(x) if one is other else exact_product(x, other[rows])
        # Half a unit in the last place at most is left of a product.
        if not (sums.add(nearest, at) and sums.add(rest, at, top - 53)):
            return False
    return True
