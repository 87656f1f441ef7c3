"""Ranks of all rows: values are cut into ranges, whose rows are counted; no task has all rows.

A value that was chosen as a cut is a range by itself. All its rows have the rank that the counts say, so they
go to any task, however many there are. The rows of each range between two cuts meet in one task in the order
of their values, pass through it with none but the last value remembered, and go on with the order they had.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trueline import types as t
from trueline.kernel.chunk import Chunk, RowByRowPiece
from trueline.kernel.order_statistics import RanksInOrder
from trueline.spark.engines import engine_of
from trueline.spark.jobs import run
from trueline.spark.lowering.dispatch import LoweringTarget, is_read_by_tasks
from trueline.spark.lowering.exchange import compared, parts_of, told_apart
from trueline.spark.lowering.keys import sort_key
from trueline.spark.lowering.layout import OrderColumn
from trueline.spark.lowering.lowered import Lowered, order_of
from trueline.spark.lowering.rows import column
from trueline.spark.lowering.sort import KeyCuts
from trueline.view.plan.node import Node, Want
from trueline.view.plan.sort import Sort

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class RankedBy:
    """A column whose values are ranked, in which direction."""

    column: int
    descending: bool

    def key(self, node: Node, columns: Sequence[int]) -> tuple[Column, OrderColumn]:
        """Return what orders the rows of a node that have these columns."""
        value = column(f"c{columns.index(self.column)}")
        return sort_key(value, node.schema[self.column].type, descending=self.descending)


@dataclass(frozen=True)
class ValueRanges:
    """The values that cut an order into `2 * len(cuts) + 1` ranges, and how many rows are before each.

    Even numbers are those of ranges between two cuts, odd ones those of the cuts themselves. Rows go to so
    many `parts`, which are more than the cuts.
    """

    by: RankedBy
    parts: int
    cuts: Sequence[Any]
    starts: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """How many ranges there are."""
        return 2 * len(self.cuts) + 1

    def number(self, value: Column, order: OrderColumn) -> Column:
        """Return the number of the range of a row, by what orders it."""
        return self._among(value, order, 0, len(self.cuts)).cast("bigint")

    def _among(self, value: Column, order: OrderColumn, low: int, high: int) -> Column:
        """Find by halves how many cuts, of those from low to high, are not after a row."""
        from pyspark.sql import functions as f

        if low < high:
            middle = (low + high) // 2
            is_before, _ = compared(value, order, self.cuts[middle])
            below = self._among(value, order, low, middle)
            return f.when(is_before, below).otherwise(self._among(value, order, middle + 1, high))
        if not low:
            return f.lit(0)
        _, is_cut = compared(value, order, self.cuts[low - 1])
        return f.when(is_cut, 2 * low - 1).otherwise(2 * low)


def ranges_of_values(
    node: Node, below: Want, found: Lowered, by: Sequence[RankedBy], target: LoweringTarget
) -> list[ValueRanges]:
    """Cut the values of each column that is ranked, by a job for each, and count all ranges by one more."""
    parts = parts_of(found, target)
    chosen: list[ValueRanges] = []
    for each in by:
        cuts: list[tuple[Any, ...]] = []
        if parts > 1:
            sort = Sort(node, (each.column,), (each.descending,))
            cuts = told_apart([cut[:1] for cut in KeyCuts(sort, below, found, target)(parts)])
        chosen.append(ValueRanges(each, parts, [cut[0] for cut in cuts]))
    if is_read_by_tasks(node):
        # Nothing but what is ranked is read.
        below = Want(tuple(dict.fromkeys(each.column for each in by)))
        found = target.lower(node, below)
    return _counted(node, below, found, chosen, target)


def _counted(
    node: Node, below: Want, found: Lowered, chosen: Sequence[ValueRanges], target: LoweringTarget
) -> list[ValueRanges]:
    from pyspark.sql import functions as f

    firsts = list(accumulate((each.count for each in chosen), initial=0))
    numbers = [
        each.number(*each.by.key(node, below.columns)) + first
        for each, first in zip(chosen, firsts, strict=False)
    ]
    rows = found.frame.select(f.explode(f.array(*numbers)).alias("part"))
    counting = rows.groupBy("part").agg(f.count(f.lit(1)).alias("rows"))
    table = run(engine_of(target.session), counting.toArrow, label="counting rows")
    counts = np.zeros(firsts[-1], np.int64)
    counts[np.asarray(table["part"])] = np.asarray(table["rows"])
    return [
        replace(each, starts=tuple(accumulate(counts[first : first + each.count].tolist(), initial=0)))
        for each, first in zip(chosen, firsts, strict=False)
    ]


def with_rank(node: Node, below: Want, found: Lowered, ranges: ValueRanges) -> Lowered:
    """Return rows with one more column, their ranks by ranges that were counted."""
    from pyspark.sql import functions as f

    layout = found.layout
    key, order = ranges.by.key(node, below.columns)
    given = replace(layout, order=(*layout.order, order, OrderColumn(pa.int64())))
    value, number = given.order_names[-2:]
    frame = found.frame.select(*(column(name) for name in layout.names), key.alias(value))
    frame = frame.withColumn(number, ranges.number(column(value), order))
    # Rows of a cut go anywhere, but to the same place when a task is run again.
    anywhere = f.pmod(f.xxhash64(*(layout.order_names or (value,))), f.lit(ranges.parts))
    part = f.when(column(number) % 2 == 1, anywhere).otherwise(f.floor(column(number) / 2))
    moved = frame.repartitionById(ranges.parts, part.cast("int"))
    frame = moved.sortWithinPartitions(column(number), order_of(given)[-2])
    made = replace(layout, types=(*layout.types, t.int64))
    step = partial(RankedRows, starts=ranges.starts, at=len(layout.types))
    rows = replace(found, layout=given).per_task(frame, step, made)
    return replace(rows, most=ranges.starts[-1])


@dataclass(frozen=True, eq=False)
class RankedRows(RowByRowPiece):
    """Rows of ranges of values, in the order of values: these and the number of the range come last.

    Ranks come after the first `at` columns.
    """

    starts: tuple[int, ...]
    at: int

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows with their ranks."""
        current, ranks = -1, RanksInOrder()
        for chunk in self.below.chunks():
            *arrays, values, numbers = chunk.arrays
            ranges = np.asarray(numbers)
            edges = np.flatnonzero(np.diff(ranges, prepend=ranges[0] - 1))
            found = []
            for first, last in zip(edges, [*edges[1:], chunk.rows], strict=True):
                if ranges[first] != current:
                    current = int(ranges[first])
                    ranks = RanksInOrder(self.starts[current])
                found.append(ranks(values.slice(first, last - first)))
            made = pa.array(np.concatenate(found))
            yield Chunk(chunk.rows, (*arrays[: self.at], made, *arrays[self.at :]), chunk.ids)
