"""Windows: rows of a key meet in one task; without a key, blocks of rows with their neighbours do.

Ranks of all rows are made before that (`ranks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from trueline.kernel.chunk import BYTES_OF_A_CHUNK, Chunk, Piece, RowByRowPiece, bytes_of, together
from trueline.spark.lowering.dispatch import LoweringTarget, layout_of, lowered
from trueline.spark.lowering.exchange import ranked
from trueline.spark.lowering.keys import equal_key
from trueline.spark.lowering.layout import Layout, OrderColumn
from trueline.spark.lowering.lowered import Lowered
from trueline.spark.lowering.ranks import RankedBy, ranges_of_values, with_rank
from trueline.spark.lowering.rows import column, columns_of
from trueline.view.execute.window import ToWindow, WindowWork
from trueline.view.plan.aggregates import AggregateCall, needs_all_rows
from trueline.view.plan.node import Want
from trueline.view.plan.window import Window

# Rows of a block, beside which its neighbours are few.
_BLOCK: Final = 65_536


@lowered.register(Window)
def _window(node: Window, want: Want, target: LoweringTarget) -> Lowered:
    (below,) = node.wants(want)
    target = target.in_order
    found = target.lower(node.below, below)
    at = {place: number for number, place in enumerate(below.columns)}
    layout = layout_of(node, want, found.layout)
    if not node.made(want):
        places = [at[place] for index in want.columns if isinstance(place := node.line[index], int)]
        return columns_of(found, places, layout)
    order: list[int | tuple[AggregateCall, int | None]] = []
    for index in want.columns:
        place = node.line[index]
        if isinstance(place, int):
            order.append(at[place])
        else:
            call = node.calls[place.output]
            order.append((call, None if call.column is None else at[call.column]))
    work = WindowWork(node.before, node.after, tuple(at[place] for place in node.by), tuple(order))
    if node.by:
        return _by_key(node, work, found, layout, len(below.columns))
    if node.streams(want):
        return _by_number(work, ranked(found, target).rows, layout)
    return _with_ranks(node, want, work, found, target)


def _by_key(node: Window, work: WindowWork, found: Lowered, layout: Layout, count: int) -> Lowered:
    keys = [
        equal_key(column(f"c{place}"), node.below.schema[of].type)
        for place, of in zip(work.by, node.by, strict=True)
    ]
    frame = found.frame.repartition(*keys).sortWithinPartitions(*found.in_order)
    width = count + len(layout.order)
    carried = WindowWork(work.before, work.after, work.by, (*work.order, *range(count, width)))
    return found.per_task(frame, partial(KeyedWindow, work=carried, width=width, ids=layout.ids), layout)


def _with_ranks(
    node: Window, want: Want, work: WindowWork, found: Lowered, target: LoweringTarget
) -> Lowered:
    """Rank all rows by ranges of values; look at rows beside others after that, if anything else is made."""
    (below,) = node.wants(want)
    by = [RankedBy(below.columns[each.at], each.descending) for each in work.ranks]
    # Values are counted here, so that nothing is ranked to be counted.
    ranges = ranges_of_values(node.below, below, found, by, target)
    is_alone = all(map(needs_all_rows, node.made(want)))
    rows = found if is_alone else ranked(found, target).rows
    for each in ranges:
        rows = with_rank(node.below, below, rows, each)
    work = work.with_ranks(len(below.columns))
    layout = layout_of(node, want, rows.layout)
    if not is_alone:
        return _by_number(work, rows, layout)
    places = [each for each in work.order if isinstance(each, int)]
    return columns_of(rows, places, layout)


@dataclass(frozen=True, eq=False)
class KeyedWindow(RowByRowPiece):
    """The rows of a task, which has all rows of its keys in order."""

    work: WindowWork
    width: int
    ids: bool

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows with what is around them."""
        yield from ToWindow((self.below,), self.work, self.width, self.ids)().part(0)


def _by_number(work: WindowWork, numbers: Lowered, layout: Layout) -> Lowered:
    """Give each block of rows its own task, with as many neighbours as windows reach."""
    from pyspark.sql import functions as f

    size = max(_BLOCK, 2 * (work.behind + work.ahead))
    number = column(numbers.layout.order_names[0])
    first = f.floor((f.greatest(number - work.ahead, f.lit(0))) / size)
    last = f.floor((number + work.behind) / size)
    given = Layout(numbers.layout.types, numbers.layout.ids, (*numbers.layout.order, OrderColumn(pa.int64())))
    frame = numbers.frame.select(
        *(column(name) for name in numbers.layout.names),
        f.explode(f.sequence(first, last)).alias(given.order_names[-1]),
    )
    block, rank = given.order_names[-1], given.order_names[0]
    frame = frame.repartition(column(block)).sortWithinPartitions(block, rank)
    made = Layout(layout.types, layout.ids, numbers.layout.order)
    carried = WindowWork(work.before, work.after, (), (*work.order, len(numbers.layout.types)))
    step = partial(BlockWindow, work=carried, size=size)
    return Lowered(frame, given, (step,), made, cuts=numbers.cuts, most=numbers.most)


@dataclass(frozen=True, eq=False)
class BlockWindow:
    """Blocks of rows with their neighbours: the last columns are a row's number and that of the block."""

    below: Piece
    work: WindowWork
    size: int

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows of each block, without its neighbours."""
        block: _Block | None = None
        for chunk in self.below.chunks():
            if not chunk.rows:
                continue
            rows = Chunk(chunk.rows, chunk.arrays[:-1], chunk.ids)
            blocks = np.asarray(chunk.arrays[-1])
            starts = [0, *map(int, np.flatnonzero(np.diff(blocks)) + 1)]
            for first, last in zip(starts, [*starts[1:], chunk.rows], strict=True):
                number = int(blocks[first])
                if block is None or block.number != number:
                    if block is not None:
                        yield from block.made()
                    block = _Block(number, self.size, self.work)
                yield from block.add(rows.slice(first, last - first))
        if block is not None:
            yield from block.made()


class _Block:
    """The rows of a block as they come, whose last column is their number, and those whose turn is next."""

    def __init__(self, number: int, size: int, work: WindowWork) -> None:
        self.number, self._work = number, work
        self._next, self._end = number * size, (number + 1) * size
        self._held: list[Chunk] = []
        self._new = self._kept = 0

    def add(self, chunk: Chunk) -> Iterator[Chunk]:
        """Take further rows; where they are wide, yield those that have all around them that they need."""
        self._held.append(chunk)
        self._new += bytes_of(chunk)
        # Rows that stay for their neighbours' sake are looked at again: no more than new ones.
        if self._new > max(BYTES_OF_A_CHUNK, self._kept):
            yield from self.made(self._work.ahead)

    def made(self, waiting: int = 0) -> Iterator[Chunk]:
        """Yield the rows of the block itself that are next, but not so many last ones."""
        whole = together(self._held)
        gone = int(whole.arrays[-1][0].as_py())
        first, last = self._next - gone, min(whole.rows - waiting, self._end - gone)
        if first < last:
            yield self._work.rows(whole, max(0, first), last, gone)
            self._next = gone + last
        kept = whole.slice(max(0, self._next - gone - self._work.behind))
        self._held, self._new, self._kept = [kept], 0, bytes_of(kept)
