"""Groups: rows with equal keys meet in one task, in their order, and the kernel groups them there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trueline.kernel.chunk import Chunk, Piece
from trueline.spark.lowering.dispatch import LoweringTarget, lowered
from trueline.spark.lowering.keys import equal_key
from trueline.spark.lowering.layout import Layout
from trueline.spark.lowering.lowered import Lowered, types_of
from trueline.spark.lowering.rows import column
from trueline.view.execute.group_by import Grouping, ToGroup
from trueline.view.plan.aggregates import AggregateCall
from trueline.view.plan.group_by import GroupBy
from trueline.view.plan.node import Want

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@lowered.register(GroupBy)
def _group_by(node: GroupBy, want: Want, target: LoweringTarget) -> Lowered:
    (below,) = node.wants(want)
    found = target.lower(node.below, below)
    at = {place: number for number, place in enumerate(below.columns)}
    made: list[int | tuple[AggregateCall, int | None]] = []
    for index in want.columns:
        if index < len(node.by):
            made.append(at[node.by[index]])
        else:
            call = node.calls[index - len(node.by)]
            made.append((call, None if call.column is None else at[call.column]))
    count, order = len(below.columns), found.layout.order
    # A group is where its first row is: what orders that row is passed on as the key is.
    work = Grouping(
        tuple(at[place] for place in node.by),
        (*made, *range(count, count + len(order))),
        count + len(order),
        want.ids,
    )
    rows = brought_together(found, node, below)
    layout = Layout(types_of(node.schema, want.columns), want.ids, order)
    return found.per_task(rows, partial(GroupTask, work=work), layout)


def brought_together(found: Lowered, node: GroupBy, below: Want) -> DataFrame:
    """Return a frame whose tasks have all rows of their keys, in order."""
    keys = [
        equal_key(column(f"c{below.columns.index(place)}"), node.below.schema[place].type)
        for place in node.by
    ]
    frame = found.frame.repartition(*keys) if keys else found.frame.repartition(1)
    return frame.sortWithinPartitions(*found.in_order)


@dataclass(frozen=True, eq=False)
class GroupTask:
    """The groups of the rows of a task."""

    below: Piece
    work: Grouping

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the groups; rows that do not fit in memory go to files."""
        yield from ToGroup((self.below,), self.work, 1)().part(0)
