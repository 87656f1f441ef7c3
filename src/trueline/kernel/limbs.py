"""Numbers as limbs of 32 bits on the grid 2^(32k): how all exact sums cut, carry and round.

A limb is a whole number of 64 bits, so that many are added before any overflows; a number means the same
limbs whatever the other numbers are. A total is rounded once, to the nearest double (ties to even).
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Whole: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

BITS: Final = 32
MASK: Final = np.int64(0xFFFF_FFFF)
_32: Final = np.int64(BITS)


# --- cutting --------------------------------------------------------------------------------


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


# --- carrying -------------------------------------------------------------------------------


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
