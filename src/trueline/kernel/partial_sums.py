"""Sums of groups that are not finished: exact, mergeable, retractable, in one format for all uses.

A number is cut into limbs of 32 bits on the grid 2^(32k), so that a part means the same whatever data it was
made from. Limbs are added as whole numbers, which is exact; only those that are not zero are kept. What is
not finite is counted, so that it can be taken back too. The total is rounded once, to the nearest double.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trueline.errors import CorruptionError

Whole: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.float64]

# The smallest subnormal is 2^-1074, the largest double below 2^1024; 2^62 of them need two more limbs.
LOWEST: Final = -34
HIGHEST: Final = 33
# A limb of one value has less than 2^33: after this many values they are carried, or 64 bits could overflow.
ROWS_BEFORE_CARRY: Final = 1 << 30
_MASK: Final = np.int64(0xFFFF_FFFF)
_32: Final = np.int64(32)
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
        counts = {
            "count": _counted(group, groups),
            "nan": _counted(group[np.isnan(values)], groups),
            "up": _counted(group[values == np.inf], groups),
            "down": _counted(group[values == -np.inf], groups),
        }
        if not finite.all():
            values, group = values[finite], group[finite]
        mantissa, exponent = np.frexp(values)
        # A value is `whole` times 2 to the power of `exponent`.
        whole = (mantissa * 2.0**53).astype(np.int64)
        power = exponent.astype(np.int64) - 53
        return cls._of_wholes(whole, power, group, counts, len(values))

    @classmethod
    def of_integers(cls, values: npt.NDArray[np.integer], group: Whole, groups: int) -> Self:
        """Add whole numbers of at most 64 bits, none of them null, each to its group."""
        none = np.zeros(groups, np.int64)
        counts = {"count": _counted(group, groups), "nan": none, "up": none, "down": none}
        lower = (values & values.dtype.type(0xFFFF_FFFF)).astype(np.int64) if values.itemsize > 4 else None
        if lower is None:
            entries = [(np.zeros(len(values), np.int64), values.astype(np.int64))]
        else:
            upper = (values >> values.dtype.type(32)).astype(np.int64)
            entries = [(np.zeros(len(values), np.int64), lower), (np.ones(len(values), np.int64), upper)]
        return cls._added(
            np.concatenate([group] * len(entries)),
            np.concatenate([place for place, _ in entries]),
            np.concatenate([limb for _, limb in entries]),
            counts,
            len(values),
        )

    @classmethod
    def _of_wholes(
        cls, whole: Whole, power: Whole, group: Whole, counts: dict[str, Whole], rows: int
    ) -> Self:
        there = whole != 0
        if not there.all():
            whole, power, group = whole[there], power[there], group[there]
        first, shift = power >> 5, power & 31
        sign, size = np.sign(whole), np.abs(whole)
        lower, upper = (size & _MASK) << shift, (size >> _32) << shift
        limbs = [lower & _MASK, (lower >> _32) + (upper & _MASK), upper >> _32]
        return cls._added(
            np.concatenate([group] * 3),
            np.concatenate([first, first + 1, first + 2]),
            np.concatenate([limb * sign for limb in limbs]),
            counts,
            rows,
        )

    @classmethod
    def _added(cls, group: Whole, place: Whole, limb: Whole, counts: dict[str, Whole], pending: int) -> Self:
        """Add entries of the same group and place, in 64 bits: the caller bounds how many there are."""
        code = group * _PLACES + (place - LOWEST)
        if len(counts["count"]) * _PLACES <= max(4 * len(code), 1 << 16):
            total = np.zeros(len(counts["count"]) * _PLACES, np.int64)
            np.add.at(total, code, limb)
            codes = np.flatnonzero(total)
            sums = total[codes]
        else:
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
        dense, lowest, negative = self._dense(start)
        row, column = np.nonzero(dense)
        limb = np.where(negative[row], -dense[row, column], dense[row, column])
        return row + start, column + lowest, limb

    def _dense(self, start: int) -> tuple[Whole, int, npt.NDArray[np.bool_]]:
        """Return sizes of some groups as limbs from 0 to 2^32 - 1, the place of the first, and the signs."""
        stop = min(start + _GROUPS_AT_ONCE, self.groups)
        low, high = np.searchsorted(self.group, [start, stop])
        group, place, limb = self.group[low:high] - start, self.place[low:high], self.limb[low:high]
        if not len(group):
            return np.zeros((stop - start, 0), np.int64), 0, np.zeros(stop - start, np.bool_)
        lowest, highest = int(place.min()), int(place.max())
        dense = np.zeros((stop - start, highest - lowest + 4), np.int64)
        dense[group, place - lowest] = limb
        negative = _normal(dense.copy())[:, -1] < 0
        dense[negative] = -dense[negative]
        return _normal(dense), lowest, negative

    # --- finishing --------------------------------------------------------------------

    def as_floats(self) -> Numbers:
        """Return the totals as nearest doubles: 0.0 for nothing, NaN for NaN or both infinities."""
        from trueline.kernel.exact_sums import rounded

        parts = []
        for start in range(0, self.groups, _GROUPS_AT_ONCE):
            dense, lowest, negative = self._dense(start)
            if not dense.shape[1]:
                parts.append(np.zeros(len(dense)))
                continue
            sizes = rounded(np.ascontiguousarray(dense.T), 32 * lowest)
            parts.append(np.where(negative, -sizes, sizes))
        found = np.concatenate(parts) if parts else np.zeros(0)
        up, down = self.up > 0, self.down > 0
        found[up] = np.inf
        found[down] = -np.inf
        found[(self.nan > 0) | (up & down)] = np.nan
        return found + 0.0  # no -0.0

    def as_integers(self) -> list[int]:
        """Return the totals of whole numbers, however large."""
        totals = [0] * self.groups
        for group, place, limb in zip(
            self.group.tolist(), self.place.tolist(), self.limb.tolist(), strict=True
        ):
            totals[group] += limb << (32 * place)
        return totals

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
            and (np.abs(limb) <= _MASK).all()
            and (limb != 0).all()
            and (np.diff(code) > 0).all()
        ):
            raise _damaged("limbs are out of order or out of range")
        return cls(group, place, limb, **counts, pending=1)


def _counted(group: Whole, groups: int) -> Whole:
    return np.bincount(group, minlength=groups).astype(np.int64)


def _normal(limbs: Whole) -> Whole:
    """Carry from left to right, in place: from 0 to 2^32 - 1, the last keeps the sign."""
    for place in range(limbs.shape[1] - 1):
        carry = limbs[:, place] >> _32
        limbs[:, place] &= _MASK
        limbs[:, place + 1] += carry
    return limbs


def _damaged(how: str) -> CorruptionError:
    return CorruptionError(
        f"a partial sum cannot be read: {how}", remedy="remove the state: it is rebuilt from its inputs"
    )
