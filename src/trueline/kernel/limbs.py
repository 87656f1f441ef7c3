"""Numbers as limbs of 32 bits on the grid 2^(32k): how all exact sums cut, carry, add and round.

A limb is a whole number of 64 bits, so that many are added before any overflows; a number means the same
limbs whatever the other numbers are. A total is rounded once, to the nearest double (ties to even).
`LIMB` and `TYPE` are how partial sums of groups are written: their limbs that are not zero.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Whole: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

BITS: Final = 32
MASK: Final = np.int64(0xFFFF_FFFF)
_32: Final = np.int64(BITS)
# Numbers above 2^960 are cut bit by bit: what they are rounded with would overflow.
_HIGHEST: Final = 29
_MOST_PLACES: Final = 12
# The smallest subnormal is 2^-1074, the largest double below 2^1024; 2^62 of them need two more limbs.
LOWEST: Final = -34
HIGHEST: Final = 33

LIMB: Final = pa.struct(
    [pa.field("place", pa.int16(), nullable=False), pa.field("limb", pa.int64(), nullable=False)]
)
COUNTS: Final = ("count", "nan", "up", "down")
TYPE: Final = pa.struct(
    [
        *(pa.field(name, pa.int64(), nullable=False) for name in COUNTS),
        pa.field("limbs", pa.list_(pa.field("item", LIMB, nullable=False)), nullable=False),
    ]
)


# --- cutting --------------------------------------------------------------------------------


def as_floats(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Return numbers as doubles; 0.0 where a value is null."""
    filled = pc.fill_null(values, 0.0) if values.null_count else values
    return np.asarray(filled).astype(np.float64, copy=False)


def cut_floats(values: Numbers) -> tuple[Whole, tuple[Whole, Whole, Whole]]:
    """Return the place of each number's lowest limb, and its three limbs from there on, each below 2^33.

    The numbers are finite; of a zero the place says nothing.

    >>> place, limbs = cut_floats(np.array([-1.5]))
    >>> float(sum(limb[0] * 2.0 ** (32 * (place[0] + up)) for up, limb in enumerate(limbs)))
    -1.5
    """
    mantissa, exponent = np.frexp(values)
    # A value is `whole` times 2 to the power of `power`.
    whole = (mantissa * 2.0**53).astype(np.int64)
    power = exponent.astype(np.int64) - 53
    shift = power & 31
    sign, size = np.sign(whole), np.abs(whole)
    lower, upper = (size & MASK) << shift, (size >> _32) << shift
    limbs = (lower & MASK) * sign, ((lower >> _32) + (upper & MASK)) * sign, (upper >> _32) * sign
    return power >> 5, limbs


def cut_integers(values: npt.NDArray[np.integer]) -> tuple[Whole, Whole]:
    """Return the limbs of whole numbers of 64 bits at the places 0 and 1; the upper one has the sign."""
    lower = (values & values.dtype.type(0xFFFF_FFFF)).astype(np.int64)
    return lower, (values >> values.dtype.type(BITS)).astype(np.int64)


# --- side by side ---------------------------------------------------------------------------


def limbs_side_by_side(values: Numbers) -> tuple[Whole, int] | None:
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


def exponent_of_all(values: Numbers) -> int | None:
    """Return the least power of two that all finite numbers are below; None if all are zero."""
    top = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    return math.frexp(top)[1] if top else None


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


# --- carrying -------------------------------------------------------------------------------


def carried_once(limbs: Whole) -> Whole:
    """Return the same numbers with limbs from 0 to 2^32 - 1 but for the last, which keeps the sign."""
    found = limbs.copy()
    for place in range(len(found) - 1):
        found[place + 1] += found[place] >> _32
        found[place] &= MASK
    return found


def carried(limbs: Whole) -> Whole:
    """Return the same numbers with limbs from 0 to 2^32 - 1, lowest first; the last keeps the sign."""
    found = np.zeros((len(limbs) + 1, limbs.shape[1]), np.int64)
    carry = np.zeros(limbs.shape[1], np.int64)
    for number, limb in enumerate(limbs):
        total = limb + carry
        found[number] = total & MASK
        carry = total >> _32
    found[-1] = carry
    return found


# --- rounding -------------------------------------------------------------------------------


def rounded(limbs: Whole, unit: int) -> Numbers:
    """Return numbers of 32-bit limbs, lowest first, times 2 to the power of `unit`, as nearest doubles."""
    negative = carried(limbs)[-1] < 0
    # Two more limbs, so that three can be looked at wherever the highest one is.
    size = carried(np.where(negative, -limbs, limbs)).astype(np.uint64)
    size = np.concatenate([np.zeros((2, size.shape[1]), np.uint64), size])
    used = size != 0
    top = np.where(used.any(axis=0), len(size) - 1 - np.argmax(used[::-1], axis=0), 2)
    columns = np.arange(size.shape[1])
    a, b, c = (size[top - down, columns] for down in (0, 1, 2))
    bits = np.frexp(a.astype(np.float64))[1].astype(np.uint64)
    word = (a << (np.uint64(64) - bits) % np.uint64(64)) | (b << (np.uint64(32) - bits)) | (c >> bits)
    # What is below the word only matters as being there or not: one bit stands for it.
    below = np.cumsum(used, axis=0)
    rest = (c & ((np.uint64(1) << bits) - np.uint64(1))) != 0
    rest |= np.where(top >= 3, below[np.maximum(top - 3, 0), columns] > 0, False)
    word |= rest.astype(np.uint64)
    power = 32 * (top - 2) + unit - (64 - bits.astype(np.int64))
    with np.errstate(over="ignore"):
        found: Numbers = np.ldexp(word.astype(np.float64), power)
    found[a == 0] = 0.0
    signed: Numbers = np.where(negative, -found, found)
    return signed


def with_infinities(found: Numbers, nan: Flags, up: Flags, down: Flags) -> Numbers:
    """Return sums where some values were not finite: both infinities together are NaN."""
    found[up] = np.inf
    found[down] = -np.inf
    found[nan | (up & down)] = np.nan
    return found + 0.0  # no -0.0
