"""Rows of two views with equal keys.

The right side is held in memory, and the left streams past it in its own pieces. Where the right does not
fit, both go through the exchange by a hash of the key, and the result once more to be in order again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trueline.identity import RowId, RowIds
from trueline.kernel.chunk import ROWS_OF_A_CHUNK, Chunk, Piece, bytes_of
from trueline.kernel.comparison import Codes, order_words
from trueline.kernel.exchange import ByKeyHash, Once, OrderedParts, gather, in_order_again
from trueline.kernel.external_sort import SortSpec
from trueline.kernel.key_index import KeyIndex
from trueline.kernel.word_order import Places, order_of_words, unlike_before
from trueline.view.execute.dispatch import pieces, portable
from trueline.view.plan.join import How, Join
from trueline.view.plan.node import Want, once_a_walk

# Bytes of rows that are made at a time.
_BYTES: Final = 64 << 20


@pieces.register(Join)
@once_a_walk
def _join(node: Join, want: Want) -> Sequence[Piece]:
    """Return the pieces of the left; a right or full join has one more."""
    left, right = node.wants(want)
    lefts = pieces(node.left, left)
    parts = len(lefts) + node.keeps_right
    matching = _matching(node, want, left, right)
    shared = Once(ToJoin(tuple(lefts), tuple(pieces(node.right, right)), matching, parts))
    found: list[Piece] = [JoinPiece(shared, piece, number) for number, piece in enumerate(lefts)]
    if node.keeps_right:
        found.append(RightOnlyPiece(shared, tuple(lefts), parts - 1))
    return found


@portable.register(Join)
def _portable(node: Join) -> bool:
    del node  # each process would read the right side again
    return False


def _matching(node: Join, want: Want, left: Want, right: Want) -> Matching:
    at_left = {column: place for place, column in enumerate(left.columns)}
    at_right = {column: place for place, column in enumerate(right.columns)}
    sides = (
        JoinSide(tuple(at_left[x] for x, _ in node.on), at_left[node.as_of[0]] if node.as_of else None),
        JoinSide(tuple(at_right[y] for _, y in node.on), at_right[node.as_of[1]] if node.as_of else None),
    )
    columns = tuple(
        (None if x is None else at_left[x], None if y is None else at_right[y])
        for x, y in (node.line[index] for index in want.columns)
    )
    kinds = (
        tuple(node.left.schema[column].type.arrow for column in left.columns),
        tuple(node.right.schema[column].type.arrow for column in right.columns),
    )
    return Matching(node.how, *sides, columns, *kinds, want.ids)


@dataclass(frozen=True)
class ToJoin:
    """What prepares a join, when it is asked to: the right side in memory, or all of it in order."""

    left: tuple[Piece, ...]
    right: tuple[Piece, ...]
    matching: Matching
    parts: int

    def __call__(self) -> HashJoin | OrderedParts:
        matching = self.matching
        right = gather(self.right, _spec(matching.right, matching.right_kinds, ids=matching.right_ids))
        if right.held is not None or not right.rows:
            return HashJoin(Joiner(right.held or matching.no_right(), matching), len(self.left))
        left = gather(self.left, _spec(matching.left, matching.left_kinds, ids=matching.ids))
        return in_order_again(
            [left.in_runs(), right], matching, len(matching.columns), matching.ids, self.parts
        )


def _spec(side: JoinSide, kinds: Sequence[pa.DataType], *, ids: bool) -> SortSpec:
    return SortSpec(ByKeyHash(side.key), len(kinds), ids, positions=True)


class HashJoin:
    """A right side in memory, and which pieces of the left are still to be read beside it."""

    def __init__(self, joiner: Joiner, pieces: int) -> None:
        self.joiner = joiner
        self.left = set(range(pieces))

    def past(self, number: int) -> None:
        """Remember that all rows of a piece of the left were looked at."""
        self.left.discard(number)


@dataclass(frozen=True, eq=False)
class JoinPiece:
    """The rows of one piece of the left with their partners."""

    shared: Once[HashJoin | OrderedParts]
    left: Piece
    number: int

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        run = self.shared()
        if isinstance(run, OrderedParts):
            yield from run.part(self.number)
            return
        for chunk in self.left.chunks():
            for found, _ in run.joiner.rows(chunk):
                yield found
        run.past(self.number)


@dataclass(frozen=True, eq=False)
class RightOnlyPiece:
    """The rows of the right without a partner; they are known when all of the left was looked at."""

    shared: Once[HashJoin | OrderedParts]
    left: tuple[Piece, ...]
    number: int

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows; what others have not looked at yet is looked at here, waiting for nobody."""
        run = self.shared()
        if isinstance(run, OrderedParts):
            yield from run.part(self.number)
            return
        for number in sorted(run.left):
            for chunk in self.left[number].chunks():
                run.joiner.mark(*run.joiner.partners.find(chunk))
        for found, _ in run.joiner.alone():
            yield found


# --- matching rows --------------------------------------------------------------------------


@dataclass(frozen=True)
class JoinSide:
    """Where the key and the as-of column are in the chunks of one side."""

    key: tuple[int, ...]
    as_of: int | None


@dataclass(frozen=True)
class Matching:
    """What belongs together, and which columns come of it: of the left, of the right, or of either.

    `columns` has a place on each side, None where the column is not of that side; a key of a right or full
    join is of both, and the left's where there is a left row.
    """

    how: How
    left: JoinSide
    right: JoinSide
    columns: tuple[tuple[int | None, int | None], ...]
    left_kinds: tuple[pa.DataType, ...]
    right_kinds: tuple[pa.DataType, ...]
    ids: bool

    def in_bucket(self, *sides: Chunk | None) -> Iterator[Chunk]:
        """Yield the rows of a bucket and their positions; rows of the right alone come last."""
        left, right = sides
        joiner = Joiner(right or self.no_right(), self)
        if left is not None:
            positions = left.arrays[-1]
            for found, at in joiner.rows(left):
                yield Chunk(found.rows, (*found.arrays, positions.take(pa.array(at))), found.ids)
        if self.how in ("right", "full") and right is not None:
            last = np.asarray(right.arrays[-1]) | np.uint64(1 << 63)
            for found, at in joiner.alone():
                yield Chunk(found.rows, (*found.arrays, pa.array(last[at])), found.ids)

    @property
    def right_ids(self) -> bool:
        """Whether ids of the right are needed."""
        return self.ids and self.how not in ("semi", "anti")

    def no_right(self) -> Chunk:
        """Return no rows of the right."""
        ids = RowIds.range(0, 0) if self.right_ids else None
        return Chunk(0, tuple(pa.array([], kind) for kind in self.right_kinds), ids)


class Partners:
    """The rows of the right side, by key, and within a key by the as-of column."""

    def __init__(self, right: Chunk, matching: Matching) -> None:
        self.right, self.matching = right, matching
        self.index = KeyIndex([right.arrays[place] for place in matching.right.key], right.rows)
        found = self.index.codes
        # Keys are numbered in the order of their first rows: where each row has its own, it has its number.
        self.single = matching.right.as_of is None and self.index.count == right.rows
        if self.single:
            self.order = np.arange(right.rows)
        elif matching.right.as_of is None:
            order = order_of_words(found.astype(np.uint64))
            self.order = order[: int(np.count_nonzero(found >= 0))]  # -1 is the largest word
        else:
            moments = right.arrays[matching.right.as_of]
            there = np.flatnonzero((found >= 0) & np.asarray(moments.is_valid()))
            words = order_words(moments)[there]
            by_moment = order_of_words(words)
            there, words = there[by_moment], words[by_moment]
            is_new = unlike_before(words)
            self.moments = words[is_new]
            by_key = order_of_words(found[there].astype(np.uint64))
            self.order = there[by_key]
            self.places = self._places(found[self.order], np.cumsum(is_new)[by_key] - 1)
        counts = np.bincount(found[self.order], minlength=self.index.count)
        self.starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def find(self, left: Chunk) -> tuple[Places, Places]:
        """Return, for each row of the left, where its partners begin in `order` and how many there are."""
        side = self.matching.left
        code = self.index.find([left.arrays[place] for place in side.key], left.rows)
        if self.single:
            return code, (code >= 0).astype(np.int64)
        start, stop = self.starts[code], self.starts[code + 1]
        stop = np.where(code < 0, start, stop)
        if side.as_of is None:
            return start, stop - start
        return self._last(left.arrays[side.as_of], code, start)

    def _last(self, moments: pa.Array, code: Codes, start: Places) -> tuple[Places, Places]:
        """Return the last partner whose moment is not after ours; it is found sooner if searched by key."""
        known = np.searchsorted(self.moments, order_words(moments), side="right")
        wanted = self._places(code, known)
        order = order_of_words(np.maximum(code, 0).astype(np.uint64))
        after = np.empty(len(code), np.int64)
        after[order] = np.searchsorted(self.places, wanted[order])
        count = (after > start) & (code >= 0) & np.asarray(moments.is_valid())
        return np.maximum(after - 1, 0), count.astype(np.int64)

    def _places(self, code: Codes, moment: Places) -> Places:
        """Put a key and how many moments come before another into one number: both are below the rows."""
        return code * (len(self.moments) + 1) + moment


class Joiner:
    """Makes the rows of a join from chunks of the left and all of the right that can belong to them."""

    def __init__(self, right: Chunk, matching: Matching) -> None:
        self.partners = Partners(right, matching)
        self.matching = matching
        self.right = right
        self.taken: npt.NDArray[np.bool_] = np.zeros(right.rows, bool)

    def rows(self, left: Chunk) -> Iterator[tuple[Chunk, Places]]:
        """Yield the rows of a chunk of the left with their partners, and which rows of the left they are."""
        start, count = self.partners.find(left)
        how = self.matching.how
        if how in ("semi", "anti"):
            chosen = np.flatnonzero((count > 0) == (how == "semi"))
            if len(chosen):
                yield self._made(left, chosen, None), chosen
            return
        if how in ("right", "full"):
            self.mark(start, count)
        if int(count.max(initial=0)) <= 1:
            yield from self._at_most_one(left, start, count)
            return
        times = np.maximum(count, 1) if how in ("left", "full") else count
        ends = np.cumsum(times)
        total = int(ends[-1]) if len(ends) else 0
        step = self._step(left)
        for first in range(0, total, step):
            number = np.arange(first, min(total, first + step))
            at = np.searchsorted(ends, number, side="right")
            nth = number - (ends[at] - times[at])
            there = count[at] > 0
            partner = np.full(len(number), -1, np.int64)
            partner[there] = self.partners.order[start[at][there] + nth[there]]
            yield from self._in_parts(left, at, partner)

    def _at_most_one(self, left: Chunk, start: Places, count: Places) -> Iterator[tuple[Chunk, Places]]:
        """Yield the rows of a chunk of the left of which none has more than one partner."""
        order = self.partners.order
        if self.matching.how in ("left", "full") or count.all():
            at, there = np.arange(left.rows), count > 0
            partner = np.full(left.rows, -1, np.int64)
            partner[there] = order[start[there]]
        else:
            at = np.flatnonzero(count)
            partner = order[start[at]]
        step = self._step(left)
        for first in range(0, len(at), step):
            yield from self._in_parts(left, at[first : first + step], partner[first : first + step])

    def mark(self, start: Places, count: Places) -> None:
        """Remember which rows of the right have a partner; threads may do so at once."""
        steps = np.zeros(len(self.partners.order) + 1, np.int64)
        np.add.at(steps, start[count > 0], 1)
        np.add.at(steps, (start + count)[count > 0], -1)
        self.taken[self.partners.order[np.cumsum(steps[:-1]) > 0]] = True

    def alone(self) -> Iterator[tuple[Chunk, Places]]:
        """Yield the rows of the right that no row of the left is a partner of, and which they are."""
        left_over = np.flatnonzero(~self.taken)
        step = self._step(None)
        for first in range(0, len(left_over), step):
            chosen = left_over[first : first + step]
            yield self._made(None, np.full(len(chosen), -1, np.int64), chosen), chosen

    def _step(self, left: Chunk | None) -> int:
        """Say how many rows to make at a time: fewer where they are large."""
        size = 1
        for chunk in (left, self.right):
            if chunk is not None and chunk.rows:
                size += bytes_of(chunk) // chunk.rows
        return max(1, min(ROWS_OF_A_CHUNK, _BYTES // size))

    def _in_parts(self, left: Chunk, at: Places, partner: Places) -> Iterator[tuple[Chunk, Places]]:
        try:
            found = self._made(left, at, partner)
        except pa.ArrowInvalid:
            # More than 2 GB of text, where many rows are one large one.
            if len(at) < 2:
                raise
            middle = len(at) // 2
            yield from self._in_parts(left, at[:middle], partner[:middle])
            yield from self._in_parts(left, at[middle:], partner[middle:])
            return
        yield found, at

    def _made(self, left: Chunk | None, at: Places, partner: Places | None) -> Chunk:
        """Put rows together; a place below zero is none."""
        # Rows that are all taken, one after another, need not be copied.
        whole = left is not None and len(at) == left.rows and bool((at[1:] > at[:-1]).all())
        mine = pa.array(at) if left is not None and not whole else None
        theirs = None
        if partner is not None:
            none = partner < 0
            theirs = pa.array(partner, mask=none) if none.any() else pa.array(partner)
        arrays = []
        for of_left, of_right in self.matching.columns:
            found = None
            if of_left is not None and left is not None:
                found = left.arrays[of_left] if mine is None else left.arrays[of_left].take(mine)
            if of_right is not None and found is None:
                found = self.right.arrays[of_right].take(theirs)
            elif found is None:
                assert of_left is not None
                found = pa.nulls(len(at), self.matching.left_kinds[of_left])
            arrays.append(found)
        return Chunk(len(at), tuple(arrays), self._ids(left, at, partner))

    def _ids(self, left: Chunk | None, at: Places, partner: Places | None) -> RowIds | None:
        if not self.matching.ids:
            return None
        if left is None:
            mine = RowIds.repeat(RowId.ONES, len(at))
        else:
            assert left.ids is not None
            mine = left.ids[at]
        if partner is None:
            return mine
        assert self.right.ids is not None
        none = partner < 0
        safe = np.where(none, 0, partner)
        if not self.right.rows:
            return mine.combine(RowId.ONES)
        ones = np.uint64(RowId.ONES.low)
        low, high = (np.where(none, ones, words[safe]) for words in (self.right.ids.low, self.right.ids.high))
        return mine.combine(RowIds(low, high))
