"""Which rows of two views belong together, and the rows that makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trueline.identity import RowId, RowIds
from trueline.kernel.chunk import ROWS_OF_A_CHUNK, Chunk, bytes_of
from trueline.kernel.comparison import Codes, KeyIndex, Places, order_of_words, order_words

How: TypeAlias = Literal["inner", "left", "full", "semi", "anti"]
# Bytes of rows that are made at a time.
_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class Side:
    """Where the key and the as-of column stand in the chunks of one side."""

    key: tuple[int, ...]
    as_of: int | None


@dataclass(frozen=True)
class Matching:
    """What belongs together, and which columns come of it: of the left, of the right, or of either.

    `columns` has a place on each side, None where the column is not of that side; a key of a full join is
    of both, and the left's where there is a left row.
    """

    how: How
    left: Side
    right: Side
    columns: tuple[tuple[int | None, int | None], ...]
    left_kinds: tuple[pa.DataType, ...]
    right_kinds: tuple[pa.DataType, ...]
    ids: bool

    @property
    def right_ids(self) -> bool:
        """Whether ids of the right are needed."""
        return self.ids and self.how not in ("semi", "anti")

    def none(self) -> Chunk:
        """Return no rows of the right."""
        ids = RowIds.range(0, 0) if self.right_ids else None
        return Chunk(0, tuple(pa.array([], kind) for kind in self.right_kinds), ids)


class Partners:
    """The rows of the right side, by key, and within a key by the as-of column."""

    def __init__(self, right: Chunk, matching: Matching) -> None:
        self.right, self.matching = right, matching
        self.index = KeyIndex([right.arrays[place] for place in matching.right.key], right.rows)
        found = self.index.codes
        if matching.right.as_of is None:
            self.order, self.words = order_of_words(found.astype(np.uint64)), None
            self.order = self.order[: int(np.count_nonzero(found >= 0))]  # -1 is the largest word
        else:
            moments = right.arrays[matching.right.as_of]
            there = np.flatnonzero((found >= 0) & np.asarray(moments.is_valid()))
            words = order_words(moments)[there]
            by_both = np.lexsort((words, found[there]))
            self.order, self.words = there[by_both], words[by_both]
        counts = np.bincount(found[self.order], minlength=self.index.count)
        self.starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def find(self, left: Chunk) -> tuple[Places, Places]:
        """Return, for each row of the left, where its partners begin in `order` and how many there are."""
        side = self.matching.left
        code = self.index.find([left.arrays[place] for place in side.key], left.rows)
        start, stop = self.starts[code], self.starts[code + 1]
        stop = np.where(code < 0, start, stop)
        if side.as_of is None:
            return start, stop - start
        return self._last(left.arrays[side.as_of], start, stop)

    def _last(self, moments: pa.Array, start: Codes, stop: Codes) -> tuple[Places, Places]:
        """Return the last partner whose moment is not after ours: all rows look for it by halves at once."""
        assert self.words is not None
        words = order_words(moments)
        low, high = start.copy(), np.where(np.asarray(moments.is_valid()), stop, start)
        active = np.flatnonzero(low < high)
        while len(active):
            middle = (low[active] + high[active]) // 2
            before = self.words[middle] <= words[active]
            low[active[before]] = middle[before] + 1
            high[active[~before]] = middle[~before]
            active = active[low[active] < high[active]]
        count = (low > start).astype(np.int64)
        return np.maximum(low - 1, 0), count


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
        if how == "full":
            self.mark(start, count)
        times = count if how == "inner" else np.maximum(count, 1)
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
        mine = pa.array(at) if left is not None else None
        theirs = None if partner is None else pa.array(partner, mask=partner < 0)
        arrays = []
        for of_left, of_right in self.matching.columns:
            found = None
            if of_left is not None and left is not None:
                found = left.arrays[of_left].take(mine)
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
