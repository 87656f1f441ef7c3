"""Numbers as limbs of 32 bits on the grid 2^(32k): how all exact sums cut, carry, add and round.

A limb is a whole number of 64 bits, so that many are added before any overflows; a number means the same
limbs whatever the other numbers are. A total is rounded once, to the nearest double (ties to even).
Partial sums of groups keep the limbs that are not zero, and count what is not finite, so that parts can be
merged and taken back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import CorruptionError

Whole: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

BITS: Final = 32
MASK: Final = np.int64(0xFFFF_FFFF)
_32: Final = np.int64(BITS)
# Parts of so many bits: 2^20 of them add up in 64 bits.
_PART: Final = 42
_ROWS: Final = 1 << 20
# So many rows at a time stay near the processor.
_BLOCK: Final = 1 << 15
# From 2^960 on, what numbers are rounded with would overflow.
_TOP: Final = 960
# Sums of this many groups and places are held side by side.
_SIDE_BY_SIDE: Final = 1 << 24
_FEW_GROUPS: Final = 1 << 16
# The smallest subnormal is 2^-1074, the largest double below 2^1024; 2^62 of them need two more limbs.
_UNIT: Final = -1074
LOWEST: Final = -34
HIGHEST: Final = 33
# A limb of one value has less than 2^33: after this many values they are carried, or 64 bits could overflow.
ROWS_BEFORE_CARRY: Final = 1 << 30
_PLACES: Final = HIGHEST - LOWEST + 1
_GROUPS_AT_ONCE: Final = 65_536

LIMB: Final = pa.struct(
    [pa.field("place", pa.int16(), nullable=False), pa.field("limb", pa.int64(), nullable=False)]
)
_COUNTS: Final = ("count", "nan", "up", "down")
TYPE: Final = pa.struct(
    [
        *(pa.field(name, pa.int64(), nullable=False) for name in _COUNTS),
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


# --- adding ---------------------------------------------------------------------------------


def exponent_of_all(values: Numbers) -> int | None:
    """Return the least power of two that all finite numbers are below; None if all are zero."""
    top = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    return math.frexp(top)[1] if top else None


class GroupSums:
    """Exact sums of finite doubles below 2^`top`, by group; of a group there are at most `most` at a time.

    A number is rounded to a grid of 2^(top - 42), what that leaves to one 2^42 times finer, and so on until
    nothing is left. Near 1.5 * 2^52 units a double has no digits below the unit: what is added to it is
    rounded to the grid, and the bits of the sum count the units.
    """

    def __init__(self, top: int, groups: int, most: int) -> None:
        self._top, self._groups, self._most = top, groups, most
        self._pending = 0
        self._parts: list[Whole] = []  # of each grid, the units of each group
        self._limbs: dict[int, Whole] = {}  # what was carried, by place
        self._left, self._rounded = np.empty(_BLOCK), np.empty(_BLOCK)
        self._units = np.empty(_BLOCK, np.int64)

    @staticmethod
    def suit(top: int, rows: int, groups: int) -> bool:
        """Say whether numbers are better added so than cut one by one: they are not large, and not few."""
        return top <= _TOP and groups <= max(4 * rows, _FEW_GROUPS)

    def add(self, values: Numbers, group: Whole, top: int | None = None) -> bool:
        """Add numbers, which may be known to be below a smaller 2^`top`; False if they lie too far apart."""
        first = 0 if top is None else (self._top - top) // _PART
        for start in range(0, len(values), _BLOCK):
            stop = min(start + _BLOCK, len(values))
            self._pending += stop - start
            if min(self._pending, self._most) > _ROWS:
                self._carry()
                self._pending = stop - start
            if not self._add_block(values[start:stop], group[start:stop], first):
                return False
        return True

    def _add_block(self, left: Numbers, at: Whole, first: int) -> bool:
        for depth in count(first):
            if 3 * (depth + 1) * self._groups > _SIDE_BY_SIDE:
                return False
            while depth >= len(self._parts):
                self._parts.append(np.zeros(self._groups, np.int64))
            rows = len(left)
            rounded, units = self._rounded[:rows], self._units[:rows]
            grid = np.float64(math.ldexp(1.5, self._unit(depth) + 52))
            np.add(left, grid, out=rounded)
            np.subtract(rounded.view(np.int64), grid.view(np.int64), out=units)
            np.add.at(self._parts[depth], at, units)
            np.subtract(rounded, grid, out=rounded)
            left = np.subtract(left, rounded, out=self._left[:rows])
            is_left = left != 0.0
            some = int(np.count_nonzero(is_left))
            if not some:
                break
            if 2 * some < rows:
                left, at = left[is_left], at[is_left]
        return True

    def _unit(self, depth: int) -> int:
        return max(_UNIT, self._top - _PART * (depth + 1))

    def _carry(self) -> None:
        """Cut what was added into limbs, and begin anew."""
        for depth, part in enumerate(self._parts):
            place, shift = divmod(self._unit(depth), BITS)
            lower, upper = (part & MASK) << np.int64(shift), (part >> _32) << np.int64(shift)
            limbs = lower & MASK, (lower >> _32) + (upper & MASK), upper >> _32
            for at, limb in enumerate(limbs, place):
                self._limbs[at] = self._limbs.get(at, 0) + limb
            part[:] = 0

    def limbs(self) -> tuple[Whole, int]:
        """Return the sums: limbs, lowest first, and the place of the first of them."""
        self._carry()
        if not self._limbs:
            return np.zeros((1, self._groups), np.int64), 0
        lowest, none = min(self._limbs), np.zeros(self._groups, np.int64)
        places = range(lowest, max(self._limbs) + 1)
        return carried_once(np.array([self._limbs.get(place, none) for place in places])), lowest


def floats_by_group(values: Numbers, group: Whole, groups: int, most: int) -> tuple[Whole, int] | None:
    """Return the sums of finite numbers by group: limbs, lowest first, and the place of the first of them.

    No group has more than `most` of them. None where numbers are few, lie far apart or are so large that
    they are better cut one by one.
    """
    top = exponent_of_all(values)
    if top is None:
        return np.zeros((1, groups), np.int64), 0
    if not GroupSums.suit(top, len(values), groups):
        return None
    sums = GroupSums(top, groups, most)
    return sums.limbs() if sums.add(values, group) else None


@dataclass(frozen=True, eq=False)
class PartialSums:
    """The sums of some groups, numbered from 0: `limb` times 2^(32 `place`) belongs to `group`.

    Entries are sorted by group and place, none is zero. `count` says how many values were added, `nan`, `up`
    and `down` how many of them were NaN and the two infinities.

    >>> first = PartialSums.of_floats(np.array([1e16, 1.0]), np.array([0, 0]), 1)
    >>> second = PartialSums.of_floats(np.array([-1e16]), np.array([0]), 1)
    >>> (first + second).as_floats().tolist(), (first + second - first).as_floats().tolist()
    ([1.0], [-1e+16])
    """

    group: Whole
    place: npt.NDArray[np.int16]
    limb: Whole
    count: Whole
    nan: Whole
    up: Whole
    down: Whole
    # How many values the largest limb may have summed since limbs were carried.
    pending: int = field(default=0)

    # --- making -----------------------------------------------------------------------

    @classmethod
    def nothing(cls, groups: int) -> Self:
        """Return the sums of no values."""
        none = np.zeros(groups, np.int64)
        return cls(
            np.zeros(0, np.int64), np.zeros(0, np.int16), np.zeros(0, np.int64), none, none, none, none
        )

    @classmethod
    def of_floats(cls, values: Numbers, group: Whole, groups: int) -> Self:
        """Add doubles, none of them null, each to its group."""
        finite = np.isfinite(values)
        none = np.zeros(groups, np.int64)
        counts = {"count": _counted(group, groups), "nan": none, "up": none, "down": none}
        if not finite.all():
            strange = {"nan": np.isnan(values), "up": values == np.inf, "down": values == -np.inf}
            counts |= {name: _counted(group[there], groups) for name, there in strange.items()}
            values, group = values[finite], group[finite]
        rows = len(values)
        by_group = floats_by_group(values, group, groups, int(counts["count"].max(initial=0)))
        if by_group is not None:
            return cls.from_limbs(*by_group, counts, rows)
        there = values != 0.0
        if not there.all():
            values, group = values[there], group[there]
        first, limbs = cut_floats(values)
        return cls._added(
            np.concatenate([group] * len(limbs)),
            np.concatenate([first + up for up in range(len(limbs))]),
            np.concatenate(limbs),
            counts,
            rows,
        )

    @classmethod
    def from_limbs(cls, limbs: Whole, lowest: int, counts: Mapping[str, Whole], pending: int) -> Self:
        """Take sums as limbs side by side: a row for each place from `lowest` on, a column for each group."""
        group, place, limb = [np.zeros(0, np.int64)], [np.zeros(0, np.int16)], [np.zeros(0, np.int64)]
        for start in range(0, limbs.shape[1], _GROUPS_AT_ONCE):
            by_group = np.ascontiguousarray(limbs[:, start : start + _GROUPS_AT_ONCE].T)
            rows, places = np.nonzero(by_group)
            group.append(rows + start)
            place.append((places + lowest).astype(np.int16))
            limb.append(by_group[rows, places])
        found = cls(
            np.concatenate(group), np.concatenate(place), np.concatenate(limb), **counts, pending=pending
        )
        return found.carried() if pending >= ROWS_BEFORE_CARRY else found

    @classmethod
    def of_integers(cls, values: npt.NDArray[np.integer], group: Whole, groups: int) -> Self:
        """Add whole numbers of at most 64 bits, none of them null, each to its group."""
        none = np.zeros(groups, np.int64)
        counts = {"count": _counted(group, groups), "nan": none, "up": none, "down": none}
        limbs = cut_integers(values) if values.itemsize > 4 else (values.astype(np.int64),)
        return cls._added(
            np.concatenate([group] * len(limbs)),
            np.repeat(np.arange(len(limbs)), len(values)),
            np.concatenate(limbs),
            counts,
            len(values),
        )

    @classmethod
    def _added(cls, group: Whole, place: Whole, limb: Whole, counts: dict[str, Whole], pending: int) -> Self:
        """Add entries of the same group and place, in 64 bits: the caller bounds how many there are."""
        lowest, highest = int(place.min(initial=HIGHEST)), int(place.max(initial=LOWEST))
        groups, places = len(counts["count"]), max(1, highest - lowest + 1)
        if groups * places <= max(4 * len(group), 1 << 16):
            total = np.zeros((places, groups), np.int64)
            np.add.at(total.reshape(-1), (place - lowest) * groups + group, limb)
            return cls.from_limbs(total, lowest, counts, pending)
        code = group * _PLACES + (place - LOWEST)
        order = np.argsort(code, kind="stable")
        sorted_codes = code[order]
        starts = np.flatnonzero(np.diff(sorted_codes, prepend=-1))
        codes = sorted_codes[starts]
        sums = np.add.reduceat(limb[order], starts) if len(starts) else np.zeros(0, np.int64)
        codes, sums = codes[sums != 0], sums[sums != 0]
        found = cls(
            codes // _PLACES, (codes % _PLACES + LOWEST).astype(np.int16), sums, **counts, pending=pending
        )
        return found.carried() if pending >= ROWS_BEFORE_CARRY else found

    # --- putting together -------------------------------------------------------------

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return len(self.count)

    def __add__(self, other: PartialSums) -> PartialSums:
        """Add the sums of the same groups."""
        return self.combined([(self, None, 1), (other, None, 1)], self.groups)

    def __sub__(self, other: PartialSums) -> PartialSums:
        """Take back values that were added before."""
        return self.combined([(self, None, 1), (other, None, -1)], self.groups)

    @classmethod
    def combined(cls, parts: Sequence[tuple[PartialSums, Whole | None, int]], groups: int) -> PartialSums:
        """Add parts (sign 1) and take parts back (sign -1), each with the numbers its groups have here."""
        total = cls.nothing(groups)
        for part, numbers, sign in parts:
            total = cls._joined(total, part, numbers, sign)
        return total

    @classmethod
    def _joined(cls, one: PartialSums, other: PartialSums, numbers: Whole | None, sign: int) -> PartialSums:
        if one.pending + other.pending >= ROWS_BEFORE_CARRY:
            one, other = one.carried(), other.carried()
        at = np.arange(other.groups) if numbers is None else numbers
        counts = {}
        for name in _COUNTS:
            counts[name] = getattr(one, name).copy()
            np.add.at(counts[name], at, sign * getattr(other, name))
        return cls._added(
            np.concatenate([one.group, at[other.group]]),
            np.concatenate([one.place, other.place]).astype(np.int64),
            np.concatenate([one.limb, sign * other.limb]),
            counts,
            # A carried limb has less than 2^32, as one value has.
            one.pending + other.pending + 2,
        )

    def carried(self) -> Self:
        """Return the one canonical form: limbs below 2^32, all with the sign of the total."""
        parts = [self._carried(start) for start in range(0, self.groups, _GROUPS_AT_ONCE)]
        if not parts:
            return self
        group, place, limb = (np.concatenate([part[each] for part in parts]) for each in range(3))
        return type(self)(
            group, place.astype(np.int16), limb, self.count, self.nan, self.up, self.down, pending=1
        )

    def _carried(self, start: int) -> tuple[Whole, Whole, Whole]:
        dense, lowest = self._dense(start)
        negative: Flags = carried(dense)[-1] < 0
        size = carried(np.where(negative, -dense, dense)).T
        group, place = np.nonzero(size)
        limb = np.where(negative[group], -size[group, place], size[group, place])
        return group + start, place + lowest, limb

    def _dense(self, start: int) -> tuple[Whole, int]:
        """Return some groups as limbs, a row for each place, and the place of the first."""
        stop = min(start + _GROUPS_AT_ONCE, self.groups)
        low, high = np.searchsorted(self.group, [start, stop])
        group, place, limb = self.group[low:high] - start, self.place[low:high], self.limb[low:high]
        if not len(group):
            return np.zeros((1, stop - start), np.int64), 0
        lowest, highest = int(place.min()), int(place.max())
        dense = np.zeros((highest - lowest + 3, stop - start), np.int64)
        dense[place - lowest, group] = limb
        return dense, lowest

    # --- finishing --------------------------------------------------------------------

    def as_floats(self) -> Numbers:
        """Return the totals as nearest doubles: 0.0 for nothing, NaN for NaN or both infinities."""
        parts = [np.zeros(0)]
        for start in range(0, self.groups, _GROUPS_AT_ONCE):
            dense, lowest = self._dense(start)
            parts.append(rounded(dense, BITS * lowest))
        return with_infinities(np.concatenate(parts), self.nan > 0, self.up > 0, self.down > 0)

    def in_units(self) -> tuple[list[int], int]:
        """Return the totals as whole numbers, and the power of two that they count."""
        lowest = int(self.place.min(initial=0))
        totals = [0] * self.groups
        entries = (self.group.tolist(), (self.place - lowest).tolist(), self.limb.tolist())
        for group, place, limb in zip(*entries, strict=True):
            totals[group] += limb << (BITS * place)
        return totals, BITS * lowest

    # --- as Arrow ---------------------------------------------------------------------

    def to_arrow(self) -> pa.StructArray:
        """Return a struct for each group, in the canonical form: equal sums have equal bytes."""
        found = self.carried()
        offsets = np.searchsorted(found.group, np.arange(found.groups + 1)).astype(np.int32)
        entries = pa.StructArray.from_arrays([pa.array(found.place), pa.array(found.limb)], fields=list(LIMB))
        limbs = pa.ListArray.from_arrays(pa.array(offsets), entries, type=TYPE.field("limbs").type)
        counts = [pa.array(getattr(self, name)) for name in _COUNTS]
        return pa.StructArray.from_arrays([*counts, limbs], fields=list(TYPE))

    @classmethod
    def from_arrow(cls, array: pa.StructArray) -> Self:
        """Read what `to_arrow` gave; anything else is refused."""
        if not array.type.equals(TYPE) or array.null_count:
            raise _damaged(f"it is {str(array.type)[:80]}")
        counts = {name: array.field(name).to_numpy() for name in _COUNTS}
        limbs = array.field("limbs")
        offsets = limbs.offsets.to_numpy()
        entries = limbs.flatten()
        group = np.repeat(np.arange(len(array), dtype=np.int64), np.diff(offsets))
        place, limb = entries.field("place").to_numpy(), entries.field("limb").to_numpy()
        code = group * _PLACES + (place.astype(np.int64) - LOWEST)
        if not (
            ((place >= LOWEST) & (place <= HIGHEST)).all()
            and (np.abs(limb) <= MASK).all()
            and (limb != 0).all()
            and (np.diff(code) > 0).all()
        ):
            raise _damaged("limbs are out of order or out of range")
        return cls(group, place, limb, **counts, pending=1)


def _counted(group: Whole, groups: int) -> Whole:
    return np.bincount(group, minlength=groups).astype(np.int64)


def _damaged(how: str) -> CorruptionError:
    return CorruptionError(
        f"a partial sum cannot be read: {how}", remedy="remove the state: it is rebuilt from its inputs"
    )
