"""Aggregates of groups that are made part by part: of some rows first, of parts of the same groups then.

Rows need not be brought together, as `aggregates` over stretches of rows need them: each row has the number
of its group. Both ways give the same bits. A part can be written as Arrow arrays, so that a group with more
rows than fit in memory is never whole in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Final, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.kernel import aggregates as s
from trueline.kernel import moments
from trueline.kernel.chunk import on_threads
from trueline.kernel.comparison import (
    Codes,
    codes,
    first_rows,
    has_words,
    order_words,
    places_in_order,
)
from trueline.kernel.limbs import (
    PartialSums,
    Whole,
    as_floats,
    carried,
    carried_once,
    cut_integers,
)
from trueline.kernel.moment_sums import WIDTH, MomentSums
from trueline.kernel.read_ahead import THREADS
from trueline.kernel.value_hash import Words
from trueline.kernel.word_order import different_words

T = TypeVar("T")
# So many rows of few groups are worked on by several threads.
_MANY_ROWS: Final = 1 << 20
_FEW_GROUPS: Final = 1 << 14
# A group's distinct values are marked in a table of so many cells for each row at most.
_CELLS: Final = 4
# So many rows at a time stay near the processor.
_BLOCK: Final = 1 << 16


class AggregateState(Protocol):
    """What is known of some groups by some of their rows."""

    def to_arrow(self) -> list[pa.Array]:
        """Return it as columns, a row for each group."""

    def result(self, kind: t.Type | None) -> pa.Array:
        """Return the aggregate of this type, as if no other rows were there."""


Values: TypeAlias = pa.Array | None
Flags: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PartialAggregate:
    """How an aggregate is made of rows, or of parts; rows and parts come in the order of the rows.

    `of` takes the values of rows and the number of each row's group, `merge` the columns of parts, of which
    there are `width`. A `large` one takes many words for each group while it is made.
    """

    of: Callable[[Values, Codes, int], AggregateState]
    merge: Callable[[Sequence[pa.Array], Codes, int], AggregateState]
    width: int = 1
    large: bool = False


def _counted(found: Codes, groups: int) -> Whole:
    return np.bincount(found, minlength=groups).astype(np.int64, copy=False)


def _added(column: pa.Array, found: Codes, groups: int) -> Whole:
    total = np.zeros(groups, np.int64)
    np.add.at(total, found, np.asarray(column))
    return total


def _there(values: pa.Array, found: Codes) -> tuple[pa.Array, Codes]:
    """Return the values that are not null and their groups."""
    if not values.null_count:
        return values, found
    return values.drop_null(), found[s.there(values)]


def _by_threads(work: Callable[[pa.Array, Codes], T], values: pa.Array, found: Codes, groups: int) -> list[T]:
    """Do some work for the values that are not null: by several threads where many have few groups."""
    some, at = _there(values, found)
    parts = THREADS if len(at) >= _MANY_ROWS and groups <= _FEW_GROUPS else 1
    cuts = [len(at) * part // parts for part in range(parts + 1)]
    stretches = [(some.slice(start, stop - start), at[start:stop]) for start, stop in pairwise(cuts)]
    return on_threads(lambda each: work(*each), stretches, len(at))


# --- how many -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ValueCounts:
    """How many rows, or values that are not null."""

    number: Whole

    @classmethod
    def of(cls, values: Values, found: Codes, groups: int) -> ValueCounts:
        """Count rows."""
        return cls(_counted(found if values is None else _there(values, found)[1], groups))

    @classmethod
    def merge(cls, parts: Sequence[pa.Array], found: Codes, groups: int) -> ValueCounts:
        """Add counts."""
        return cls(_added(parts[0], found, groups))

    def to_arrow(self) -> list[pa.Array]:
        return [pa.array(self.number)]

    def result(self, kind: t.Type | None) -> pa.Array:
        del kind
        return pa.array(self.number)


@dataclass(frozen=True, eq=False)
class DistinctValues:
    """The different values of each group that are not null: places in `known`, group after group."""

    number: Whole
    known: pa.Array
    at: Codes

    @classmethod
    def of(cls, values: Values, found: Codes, groups: int) -> DistinctValues:
        """Find them."""
        assert values is not None
        code, different = codes([values], len(values), nulls=False)
        known = values.take(pa.array(first_rows(code)))
        if values.null_count:
            some = code >= 0
            code, found = code[some], found[some]
        pairs = found * max(1, different) + code
        if groups * different <= _CELLS * len(pairs):
            marked = np.zeros(groups * different, bool)
            marked[pairs] = True
            pairs = np.flatnonzero(marked)
        else:
            pairs = different_words(pairs.view(np.uint64)).view(np.int64)
        group, at = np.divmod(pairs, max(1, different))
        return cls(_counted(group, groups), known, at)

    @classmethod
    def merge(cls, parts: Sequence[pa.Array], found: Codes, groups: int) -> DistinctValues:
        """Leave out what is in two parts."""
        (lists,) = parts
        return cls.of(lists.flatten(), np.repeat(found, np.diff(np.asarray(lists.offsets))), groups)

    def to_arrow(self) -> list[pa.Array]:
        ends = np.concatenate([[0], np.cumsum(self.number)]).astype(np.int64)
        return [pa.LargeListArray.from_arrays(pa.array(ends), self.known.take(pa.array(self.at)))]

    def result(self, kind: t.Type | None) -> pa.Array:
        del kind
        return pa.array(self.number)


@dataclass(frozen=True, eq=False)
class Truths:
    """How many values are true, and how many are not null; `every` asks for all of them, else for one."""

    true: Whole
    number: Whole
    every: bool

    @classmethod
    def made(cls, every: bool) -> PartialAggregate:
        """Return how it is made."""

        def of(values: Values, found: Codes, groups: int) -> Truths:
            assert values is not None
            true = found[np.asarray(pc.fill_null(values, False))]
            return cls(_counted(true, groups), _counted(_there(values, found)[1], groups), every)

        def merge(parts: Sequence[pa.Array], found: Codes, groups: int) -> Truths:
            return cls(_added(parts[0], found, groups), _added(parts[1], found, groups), every)

        return PartialAggregate(of, merge, 2)

    def to_arrow(self) -> list[pa.Array]:
        return [pa.array(self.true), pa.array(self.number)]

    def result(self, kind: t.Type | None) -> pa.Array:
        del kind
        found = self.true == self.number if self.every else self.true > 0
        return pa.array(found, mask=self.number == 0)


# --- sums -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FloatTotals:
    """Exact sums of floats; `mean` divides them by the number of values."""

    sums: PartialSums
    mean: bool

    @classmethod
    def made(cls, mean: bool) -> PartialAggregate:
        """Return how it is made."""

        def of(values: Values, found: Codes, groups: int) -> FloatTotals:
            assert values is not None

            def some(part: pa.Array, at: Codes) -> PartialSums:
                return PartialSums.of_floats(as_floats(part), at, groups)

            return cls(reduce(add, _by_threads(some, values, found, groups)), mean)

        def merge(parts: Sequence[pa.Array], found: Codes, groups: int) -> FloatTotals:
            part = PartialSums.from_arrow(parts[0])
            return cls(PartialSums.combined([(part, found, 1)], groups), mean)

        return PartialAggregate(of, merge, large=True)

    def to_arrow(self) -> list[pa.Array]:
        return [self.sums.to_arrow()]

    def result(self, kind: t.Type | None) -> pa.Array:
        del kind
        number = self.sums.count
        found = self.sums.as_floats()
        return pa.array(found / np.maximum(number, 1) if self.mean else found, mask=number == 0)


@dataclass(frozen=True, eq=False)
class WholeTotals:
    """Exact sums of whole numbers, durations and decimals: limbs, lowest first, the last with the sign."""

    limbs: Whole
    number: Whole
    kind: pa.DataType
    mean: bool

    @classmethod
    def made(cls, kind: pa.DataType, mean: bool) -> PartialAggregate:
        """Return how it is made of values of a type."""

        def of(values: Values, found: Codes, groups: int) -> WholeTotals:
            assert values is not None
            number = _counted(_there(values, found)[1], groups)
            return cls(_limbs(values, found, groups), number, kind, mean)

        def merge(parts: Sequence[pa.Array], found: Codes, groups: int) -> WholeTotals:
            number, *limbs = (_added(part, found, groups) for part in parts)
            return cls(carried_once(np.array(limbs)), number, kind, mean)

        limbs = kind.byte_width // 4 if pa.types.is_decimal(kind) else 2
        return PartialAggregate(of, merge, 1 + limbs)

    def to_arrow(self) -> list[pa.Array]:
        return [pa.array(self.number), *map(pa.array, self.limbs)]

    def result(self, kind: t.Type | None) -> pa.Array:
        assert kind is not None
        none = self.number == 0
        if pa.types.is_decimal(self.kind):
            sums = [0] * len(self.number)
            for limb in self.limbs[::-1]:
                sums = [(high << 32) + low for high, low in zip(sums, limb.tolist(), strict=True)]
            if self.mean:
                return s.decimal_means(sums, self.number, self.kind.scale, kind)
            return s.decimals(sums, none, kind)
        three = carried(self.limbs)
        return s.whole_means(three, self.number, kind) if self.mean else s.whole_totals(three, none, kind)


def _limbs(values: pa.Array, found: Codes, groups: int) -> Whole:
    if not pa.types.is_decimal(values.type):
        return _integers_by_group(s.as_integers(values), found, groups)
    words = s.decimal_words(values)
    limbs = []
    for place in range(words.shape[1]):
        word = words[:, place]
        # The highest word has the sign.
        top = place == words.shape[1] - 1
        limbs += [*_integers_by_group(word.view(np.int64) if top else word, found, groups)]
    return carried_once(np.array(limbs))


def _integers_by_group(values: npt.NDArray[np.integer], group: Whole, groups: int) -> Whole:
    """Return the sums of whole numbers of 64 bits by group: two limbs, the upper one with the sign."""
    found = np.zeros((2, groups), np.int64)
    size = max(int(values.max()), -int(values.min())) if len(values) else 0
    fits = size * len(values) < 1 << 63
    for start in range(0, len(values), _BLOCK):
        part, at = values[start : start + _BLOCK], group[start : start + _BLOCK]
        limbs = (part.astype(np.int64, copy=False),) if fits else cut_integers(part)
        for place, limb in enumerate(limbs):
            np.add.at(found[place], at, limb)
    return carried_once(found)


def _moments(finish: Callable[[int, int], float]) -> PartialAggregate:
    """Return how variances are made, or their roots."""

    def of(values: Values, found: Codes, groups: int) -> MomentSums:
        assert values is not None

        def some(part: pa.Array, at: Codes) -> MomentSums:
            return MomentSums.of(part, at, groups, finish)

        return reduce(add, _by_threads(some, values, found, groups))

    def merge(parts: Sequence[pa.Array], found: Codes, groups: int) -> MomentSums:
        return MomentSums.merge(parts, found, groups, finish)

    return PartialAggregate(of, merge, WIDTH, large=True)


# --- extremes -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ExtremeWords:
    """The best of words that are ordered as values are; where there is none, any."""

    words: Words
    none: Flags

    @classmethod
    def made(cls, largest: bool) -> PartialAggregate:
        """Return how it is made: of the largest, or of the smallest."""
        better = np.maximum if largest else np.minimum
        worst = np.uint64(0) if largest else ~np.uint64(0)

        def best(words: Words, found: Codes, groups: int) -> ExtremeWords:
            total = np.full(groups, worst)
            better.at(total, found, words)
            # A word that is the worst may still be there.
            none = total == worst
            if none.any():
                none[found] = False
            return cls(total, none)

        def better_of(one: ExtremeWords, other: ExtremeWords) -> ExtremeWords:
            return cls(better(one.words, other.words), one.none & other.none)

        def of(values: Values, found: Codes, groups: int) -> ExtremeWords:
            assert values is not None

            def some(part: pa.Array, at: Codes) -> ExtremeWords:
                return best(order_words(part), at, groups)

            return reduce(better_of, _by_threads(some, values, found, groups))

        def merge(parts: Sequence[pa.Array], found: Codes, groups: int) -> ExtremeWords:
            some, at = _there(parts[0], found)
            return best(np.asarray(some), at, groups)

        return PartialAggregate(of, merge)

    def to_arrow(self) -> list[pa.Array]:
        return [pa.array(self.words, mask=self.none)]

    def result(self, kind: t.Type | None) -> pa.Array:
        assert kind is not None
        return s.from_words(self.words, self.none, kind)


@dataclass(frozen=True, eq=False)
class ChosenValues:
    """One value of each group: the first, the last, or the best where words cannot be compared instead."""

    values: pa.Array

    @classmethod
    def made(cls, choose: Callable[[pa.Array, Codes, int], pa.Array]) -> PartialAggregate:
        """Return how it is made: values of parts are chosen from as values of rows are."""

        def of(values: Values, found: Codes, groups: int) -> ChosenValues:
            return cls(choose(values, found, groups))

        def merge(parts: Sequence[pa.Array], found: Codes, groups: int) -> ChosenValues:
            return cls(choose(parts[0], found, groups))

        return PartialAggregate(of, merge)

    def to_arrow(self) -> list[pa.Array]:
        return [self.values]

    def result(self, kind: t.Type | None) -> pa.Array:
        del kind
        return self.values


def _first(values: pa.Array, found: Codes, groups: int) -> pa.Array:
    del groups
    return values.take(pa.array(first_rows(found)))


def _last(values: pa.Array, found: Codes, groups: int) -> pa.Array:
    rows = np.zeros(groups, np.int64)
    np.maximum.at(rows, found, np.arange(len(found)))
    return values.take(pa.array(rows))


def _best(largest: bool) -> Callable[[pa.Array, Codes, int], pa.Array]:
    """Compare ranks: different values are put in order once."""

    def choose(values: pa.Array, found: Codes, groups: int) -> pa.Array:
        code, different = codes([values], len(values), nulls=False)
        known = values.take(pa.array(first_rows(code)))
        order = places_in_order([known], (False,))
        rank = np.empty(different, np.int64)
        rank[order] = np.arange(different)
        if values.null_count:
            code, found = code[code >= 0], found[code >= 0]
        best = np.full(groups, -1 if largest else different)
        (np.maximum if largest else np.minimum).at(best, found, rank[code])
        none = (best < 0) | (best == different)
        return known.take(pa.array(order[np.where(none, 0, best)] if different else best * 0, mask=none))

    return choose


# --- which aggregates there are -------------------------------------------------------------

# The value of the first row of each group.
FIRST: Final = ChosenValues.made(_first)
_ALWAYS: Final[Mapping[s.AggregateKernel, PartialAggregate]] = {
    s.count: PartialAggregate(ValueCounts.of, ValueCounts.merge),
    s.count_distinct: PartialAggregate(DistinctValues.of, DistinctValues.merge),
    s.any_true: Truths.made(every=False),
    s.all_true: Truths.made(every=True),
    s.first: FIRST,
    s.last: ChosenValues.made(_last),
}
_MOMENTS: Final[Mapping[s.AggregateKernel, PartialAggregate]] = {
    moments.variance: _moments(moments.quotient),
    moments.deviation: _moments(moments.root),
}


def partial_aggregate(make: s.AggregateKernel, values: pa.DataType | None) -> PartialAggregate | None:
    """Return how an aggregate of values of a type is made in parts; None where it needs all rows at once."""
    if make in _ALWAYS or values is None:
        return _ALWAYS.get(make)
    if make in (s.total, s.average):
        mean = make is s.average
        return FloatTotals.made(mean) if pa.types.is_floating(values) else WholeTotals.made(values, mean)
    if make in (s.smallest, s.largest):
        largest = make is s.largest
        return ExtremeWords.made(largest) if has_words(values) else ChosenValues.made(_best(largest))
    if make in _MOMENTS and not pa.types.is_decimal(values):
        return _MOMENTS[make]
    return None
