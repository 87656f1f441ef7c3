"""A row for each group: rows are brought together by a hash of the key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from trueline.kernel.aggregates import Spans
from trueline.kernel.chunk import Chunk, Piece
from trueline.kernel.comparison import Places, codes, first_rows, order_of_words
from trueline.kernel.exchange import (
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
from trueline.view.execute.dispatch import pieces, portable
from trueline.view.plan.aggregates import AggregateCall
from trueline.view.plan.group_by import GroupBy
from trueline.view.plan.node import Want


@pieces.register(GroupBy)
def _group_by(node: GroupBy, want: Want) -> Sequence[Piece]:
    (below,) = node.wants(want)
    at = {column: place for place, column in enumerate(below.columns)}
    made: list[int | tuple[AggregateCall, int | None]] = []
    for index in want.columns:
        if index < len(node.by):
            made.append(at[node.by[index]])
        else:
            call = node.calls[index - len(node.by)]
            made.append((call, None if call.column is None else at[call.column]))
    parts = how_many(want.parts, None)
    key = tuple(at[place] for place in node.by)
    work = Grouping(key, tuple(made), len(below.columns), want.ids)
    shared = Once(ToGroup(tuple(pieces(node.below, below)), work, parts))
    return [SharedPiece(shared, number) for number in range(parts)]


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

    def groups(self, chunk: Chunk) -> tuple[Chunk, Places]:
        """Return the groups of some rows, which are all rows of their groups; and their first rows."""
        found, count = codes([chunk.arrays[place] for place in self.key], chunk.rows, nulls=True)
        firsts = first_rows(found)
        order = order_of_words(found.astype(np.uint64))
        ends = np.cumsum(np.bincount(found, minlength=count))
        spans = Spans(chunk.rows, np.concatenate([[0], ends[:-1]]).astype(np.int64), ends.astype(np.int64))
        at, first = pa.array(order), pa.array(firsts)
        sorted_: dict[int, pa.Array] = {}
        arrays = []
        for each in self.made:
            if isinstance(each, int):
                arrays.append(chunk.arrays[each].take(first))
                continue
            call, place = each
            if place is not None and place not in sorted_:
                sorted_[place] = chunk.arrays[place].take(at)
            arrays.append(call.of(None if place is None else sorted_[place], spans))
        ids = chunk.ids[firsts] if self.ids and chunk.ids is not None else None
        return Chunk(count, tuple(arrays), ids), firsts

    def in_bucket(self, *sides: Chunk | None) -> Iterator[Chunk]:
        """Yield the groups of a bucket, and the positions of their first rows."""
        (chunk,) = sides
        if chunk is not None:
            found, firsts = self.groups(chunk)
            yield Chunk(found.rows, (*found.arrays, chunk.arrays[-1].take(pa.array(firsts))), found.ids)


@dataclass(frozen=True)
class ToGroup:
    """What groups the rows of pieces, when it is asked to."""

    below: tuple[Piece, ...]
    work: Grouping
    parts: int

    def __call__(self) -> RowParts:
        work = self.work
        rows = gather(self.below, SortSpec(ByKeyHash(work.key), work.width, work.ids, positions=True))
        if rows.held is not None or not rows.rows:
            return HeldParts(None if rows.held is None else work.groups(rows.held)[0], self.parts)
        return in_order_again([rows], work, len(work.made), work.ids, self.parts)
