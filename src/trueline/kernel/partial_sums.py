"""Sums of groups of which only a part is known yet: they are merged and taken back, and lose no bit.

They keep the limbs that are not zero, and count what is not finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trueline.errors import CorruptionError
from trueline.kernel.group_sums import floats_by_group
from trueline.kernel.limbs import (
    BITS,
    COUNTS,
    HIGHEST,
    LIMB,
    LOWEST,
    MASK,
    TYPE,
    Flags,
    Numbers,
    Whole,
    carried,
    cut_floats,
    cut_integers,
    rounded,
    with_infinities,
)

# A limb of one value has less than 2^33: after this many values they are carried, or 64 bits could overflow.
ROWS_BEFORE_CARRY: Final = 1 << 30
_PLACES: Final = HIGHEST - LOWEST + 1
_GROUPS_AT_ONCE: Final = 65_536


@dataclass(frozen=True, eq=False)
class PartialSums:
    """The sums of some groups, numbered from 0: `limb` times 2^(32 `place`) belongs to `group`.

    Entries are sorted by group and place, none is zero. `count` says how many
    values were added, `nan`, `up` and `down` how many of them were NaN and the
    two infinities.

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
            counts["nan"] = _counted(group[np.isnan(values)], groups)
            counts["up"] = _counted(group[values == np.inf], groups)
            counts["down"] = _counted(group[values == -np.inf], groups)
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
        for name in COUNTS:
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
        counts = [pa.array(getattr(self, name)) for name in COUNTS]
        return pa.StructArray.from_arrays([*counts, limbs], fields=list(TYPE))

    @classmethod
    def from_arrow(cls, array: pa.StructArray) -> Self:
        """Read what `to_arrow` gave; anything else is refused."""
        if not array.type.equals(TYPE) or array.null_count:
            raise _damaged(f"it is {str(array.type)[:80]}")
        counts = {name: array.field(name).to_numpy() for name in COUNTS}
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
