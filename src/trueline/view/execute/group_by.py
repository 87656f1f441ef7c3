"""A row for each group: keys are numbered, and aggregates are made of rows and the numbers of their groups.

Rows that do not fit in memory are combined to parts of groups first, and parts of equal keys are brought
together by a hash of the key. Where an aggregate needs all rows of a group at once, rows are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from trueline.kernel.aggregates import Spans
from trueline.kernel.chunk import Chunk, Piece, on_threads
from trueline.kernel.comparison import Codes, codes, first_rows
from trueline.kernel.exchange import (
    BucketWork,
    ByKeyHash,
    HeldParts,
    Once,
    RowParts,
    SharedPiece,
    gather,
    how_many,
    in_order_again,
)
from trueline.kernel.external_sort import SortSpec
from trueline.kernel.partial_aggregates import FIRST, PartialAggregate
from trueline.kernel.word_order import Places, order_of_words
from trueline.view.execute.dispatch import pieces, portable
from trueline.view.plan.aggregates import AggregateCall
from trueline.view.plan.group_by import GroupBy
from trueline.view.plan.node import Want

# Aggregates that take many words for each group are made of rows side by side where groups are so many.
_MANY_GROUPS: Final = 1 << 20


@pieces.register(GroupBy)
def _group_by(node: GroupBy, want: Want) -> Sequence[Piece]:
    (below,) = node.wants(want)
    at = {column: place for place, column in enumerate(below.columns)}
    parts = how_many(want.parts, None)
    key = tuple(at[place] for place in node.by)
    work = Grouping(key, made_columns(node, want, at), len(below.columns), want.ids)
    shared = Once(ToGroup(tuple(pieces(node.below, below)), work, parts))
    return [SharedPiece(shared, number) for number in range(parts)]


def made_columns(
    node: GroupBy, want: Want, at: Mapping[int, int]
) -> tuple[int | tuple[AggregateCall, int | None], ...]:
    """Return what the columns that are wanted are made of, of columns of the input that are `at` a place."""
    made: list[int | tuple[AggregateCall, int | None]] = []
    for index in want.columns:
        if index < len(node.by):
            made.append(at[node.by[index]])
        else:
            call = node.calls[index - len(node.by)]
            made.append((call, None if call.column is None else at[call.column]))
    return tuple(made)


@portable.register(GroupBy)
def _portable(node: GroupBy) -> bool:
    del node  # each process would group all rows again
    return False


@dataclass(frozen=True)
class Grouping:
    """How groups are made of rows: where the key is in a chunk, and which columns are made of which."""

    key: tuple[int, ...]
    made: tuple[int | tuple[AggregateCall, int | None], ...]
    width: int
    ids: bool

    @property
    def in_parts(self) -> bool:
        """Whether all aggregates can be made part by part."""
        return all(isinstance(each, int) or each[0].partial is not None for each in self.made)

    def groups(self, chunk: Chunk) -> tuple[Chunk, Places]:
        """Return the groups of some rows, which are all rows of their groups; and their first rows."""
        found, count = codes([chunk.arrays[place] for place in self.key], chunk.rows, nulls=True)
        firsts = first_rows(found)
        first = pa.array(firsts)
        together = _Together(chunk, found, count)

        def made(each: int | tuple[AggregateCall, int | None]) -> pa.Array:
            if isinstance(each, int):
                return chunk.arrays[each].take(first)
            call, place = each
            partial = call.partial
            if partial is None or (partial.large and count > _MANY_GROUPS):
                return call.of(together.column(place), together.spans)
            values = None if place is None else chunk.arrays[place]
            return partial.of(values, found, count).result(call.type)

        arrays = on_threads(made, self.made, chunk.rows)
        ids = chunk.ids[firsts] if self.ids and chunk.ids is not None else None
        return Chunk(count, tuple(arrays), ids), firsts

    def in_bucket(self, *sides: Chunk | None) -> Iterator[Chunk]:
        """Yield the groups of a bucket, and the positions of their first rows."""
        (chunk,) = sides
        if chunk is not None:
            found, firsts = self.groups(chunk)
            yield Chunk(found.rows, (*found.arrays, chunk.arrays[-1].take(pa.array(firsts))), found.ids)


class _Together:
    """The rows of each group one after another, for aggregates that need them so."""

    def __init__(self, chunk: Chunk, found: Codes, count: int) -> None:
        self._chunk, self._found, self._count = chunk, found, count

    @cached_property
    def spans(self) -> Spans:
        """Where the groups are."""
        ends = np.cumsum(np.bincount(self._found, minlength=self._count))
        starts = np.concatenate([[0], ends[:-1]])
        return Spans(self._chunk.rows, starts.astype(np.int64), ends.astype(np.int64))

    @cached_property
    def _order(self) -> pa.Array:
        return pa.array(order_of_words(self._found.astype(np.uint64)))

    def column(self, place: int | None) -> pa.Array | None:
        """Return a column in this order."""
        return None if place is None else self._chunk.arrays[place].take(self._order)


@dataclass(frozen=True)
class PartialGroups:
    """Groups of some rows as rows of their own: the key, the parts of what is made, the first position."""

    work: Grouping

    @cached_property
    def _made(self) -> list[tuple[PartialAggregate, int | None]]:
        """How the columns that are not of the key are made, and of which columns of the rows."""
        found: list[tuple[PartialAggregate, int | None]] = []
        for each in self.work.made:
            if isinstance(each, int):
                if each not in self.work.key:
                    found.append((FIRST, each))
                continue
            call, place = each
            assert call.partial is not None
            found.append((call.partial, place))
        return found

    @property
    def spec(self) -> SortSpec:
        """What brings parts together by key."""
        order = ByKeyHash(tuple(range(len(self.work.key))))
        return SortSpec(order, -1, self.work.ids, positions=True, combine=self)

    def of_rows(self, chunk: Chunk, start: int) -> Chunk:
        """Return the groups of consecutive rows."""
        places = np.arange(chunk.rows, dtype=np.uint64) + np.uint64(start)
        return self.of_placed_rows(Chunk(chunk.rows, (*chunk.arrays, pa.array(places)), chunk.ids))

    def of_placed_rows(self, chunk: Chunk) -> Chunk:
        """Return the groups of rows whose positions are their last column, in this order."""
        keys = [chunk.arrays[place] for place in self.work.key]
        found, count = codes(keys, chunk.rows, nulls=True)
        firsts = first_rows(found)
        first = pa.array(firsts)
        columns = [key.take(first) for key in keys]
        for partial, place in self._made:
            values = None if place is None else chunk.arrays[place]
            columns += partial.of(values, found, count).to_arrow()
        ids = chunk.ids[firsts] if self.work.ids and chunk.ids is not None else None
        return Chunk(count, (*columns, chunk.arrays[-1].take(first)), ids)

    def of_parts(self, chunk: Chunk) -> Chunk:
        """Return the groups of parts."""
        keys = chunk.arrays[: len(self.work.key)]
        found, count = codes(keys, chunk.rows, nulls=True)
        firsts = first_rows(found)
        first = pa.array(firsts)
        columns = [key.take(first) for key in keys]
        at = len(keys)
        for partial, _ in self._made:
            columns += partial.merge(chunk.arrays[at : at + partial.width], found, count).to_arrow()
            at += partial.width
        ids = None if chunk.ids is None else chunk.ids[firsts]
        return Chunk(count, (*columns, chunk.arrays[-1].take(first)), ids)

    def groups(self, chunk: Chunk) -> Chunk:
        """Return the groups of parts, which are all parts of their groups, and their first positions."""
        keys = chunk.arrays[: len(self.work.key)]
        found, count = codes(keys, chunk.rows, nulls=True)
        firsts = first_rows(found)
        first = pa.array(firsts)
        arrays = []
        at, parts = len(keys), iter(self._made)
        for each in self.work.made:
            if isinstance(each, int) and each in self.work.key:
                arrays.append(keys[self.work.key.index(each)].take(first))
                continue
            partial, _ = next(parts)
            columns = chunk.arrays[at : at + partial.width]
            at += partial.width
            kind = None if isinstance(each, int) else each[0].type
            arrays.append(partial.merge(columns, found, count).result(kind))
        ids = None if chunk.ids is None else chunk.ids[firsts]
        return Chunk(count, (*arrays, chunk.arrays[-1].take(first)), ids)

    def in_bucket(self, *sides: Chunk | None) -> Iterator[Chunk]:
        """Yield the groups of a bucket, and the positions of their first rows."""
        (chunk,) = sides
        if chunk is not None:
            yield self.groups(chunk)


@dataclass(frozen=True)
class ToGroup:
    """What groups the rows of pieces, when it is asked to."""

    below: tuple[Piece, ...]
    work: Grouping
    parts: int

    def __call__(self) -> RowParts:
        work = self.work
        partial = PartialGroups(work)
        spec = SortSpec(ByKeyHash(work.key), work.width, work.ids, positions=True)
        rows = gather(self.below, partial.spec if work.in_parts else spec)
        if rows.held is None and rows.rows:
            made: BucketWork = partial if work.in_parts else work
            return in_order_again([rows], made, len(work.made), work.ids, self.parts)
        if rows.held is None:
            return HeldParts(None, self.parts)
        if not rows.combined:
            return HeldParts(work.groups(rows.held)[0], self.parts)
        found = partial.groups(rows.held)
        return HeldParts(found.select(range(len(work.made))), self.parts)
