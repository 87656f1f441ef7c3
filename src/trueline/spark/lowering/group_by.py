"""Groups: Spark adds up what it adds to the bit, and the kernel rounds; other rows meet in tasks, in order.

Parts of groups that Spark makes (`aggregates`) are put together by the kernel. Where an aggregate needs all
rows of a group, or the order has no numbers to find its first row by, rows with equal keys meet in one task,
in their order, and the kernel groups them there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa

from trueline import types as t
from trueline.identity import RowIds
from trueline.kernel.aggregates import Spans, first
from trueline.kernel.chunk import Chunk, Piece, together
from trueline.kernel.comparison import codes
from trueline.kernel.word_order import Places
from trueline.spark.lowering.aggregates import (
    CatalystAggregate,
    Finish,
    catalyst_aggregate,
    is_partial,
)
from trueline.spark.lowering.dispatch import LoweringTarget, lowered
from trueline.spark.lowering.keys import equal_key
from trueline.spark.lowering.layout import IDS, Layout, OrderColumn
from trueline.spark.lowering.lowered import Lowered, Step, order_of, types_of
from trueline.spark.lowering.partial_groups import grouped_by_tasks
from trueline.spark.lowering.rows import column
from trueline.view.execute.group_by import Grouping, ToGroup, made_columns
from trueline.view.plan.aggregates import AggregateCall
from trueline.view.plan.group_by import GroupBy
from trueline.view.plan.node import Want

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_POSITION: Final = "position"
# Bits of a whole number from 0 on.
_BITS: Final = 63
MadeOfParts: TypeAlias = int | tuple[AggregateCall, Finish, tuple[int, ...]]


@lowered.register(GroupBy)
def _group_by(node: GroupBy, want: Want, target: LoweringTarget) -> Lowered:
    if is_in_parts(node, want):
        found = _in_parts(node, want, target)
        if found is not None:
            return found
    return _by_kernel(node, want, target.in_order)


# --- by Spark's aggregation -------------------------------------------------------------------


def is_in_parts(node: GroupBy, want: Want) -> bool:
    """Say whether groups can be made in parts, as far as aggregates go."""
    return all(is_partial(call, _kind(call, node)) for call in _calls(node, want))


def _calls(node: GroupBy, want: Want) -> list[AggregateCall]:
    return [node.calls[index - len(node.by)] for index in want.columns if index >= len(node.by)]


def _kind(call: AggregateCall, node: GroupBy) -> t.Type | None:
    return None if call.column is None else node.below.schema[call.column].type


def _in_parts(node: GroupBy, want: Want, target: LoweringTarget) -> Lowered | None:
    """Return groups that Spark makes in parts; None if the order is not one of small whole numbers."""
    kinds = [node.below.schema[place].type for place in node.by]
    is_first = any(call.kind.make is first for call in _calls(node, want))
    # Which zero, and which NaN, a key is shown as is for its first row to say.
    needs_order = want.ids or is_first or any(kind in t.FLOATS for kind in kinds)
    by_tasks = grouped_by_tasks(node, want, target, ordered=target.ordered or needs_order)
    if by_tasks is not None:
        return by_tasks
    (below,) = node.wants(want)
    found = (target.in_order if needs_order else target).lower(node.below, below)
    is_ordered = target.ordered or needs_order
    position = packed_order(found.layout.order) if is_ordered else None
    if is_ordered and position is None:
        return None
    return GroupsInParts(node, want, below, found, kinds, position).lowered()


def packed_order(order: Sequence[OrderColumn]) -> Column | None:
    """Return all columns of an order as one whole number; None if it would have too many bits."""
    from pyspark.sql import functions as f

    if not all(each.below and not each.descending for each in order):
        return None
    if not order or sum(each.below.bit_length() for each in order) > _BITS:
        return None
    found = f.lit(0).cast("bigint")
    for number, each in enumerate(order):
        # Null is last: as the number that all are below.
        value = f.coalesce(column(f"o{number}"), f.lit(each.below).cast("bigint"))
        found = value if not number else f.shiftleft(found, each.below.bit_length()).bitwiseOR(value)
    return found


def unpacked_order(order: Sequence[OrderColumn]) -> list[Column]:
    """Return the columns of an order from its one whole number."""
    from pyspark.sql import functions as f

    found: list[Column] = []
    shift = 0
    for each in reversed(order):
        bits = each.below.bit_length()
        value = f.shiftright(column(_POSITION), shift).bitwiseAND(f.lit((1 << bits) - 1).cast("bigint"))
        found.append(f.when(value == each.below, None).otherwise(value))
        shift += bits
    return found[::-1]


@dataclass(frozen=True)
class GroupsInParts:
    """What becomes of groups that Spark makes: an aggregation, and where it takes one, another exchange."""

    node: GroupBy
    want: Want
    below: Want
    found: Lowered
    kinds: list[t.Type]
    position: Column | None

    def lowered(self) -> Lowered:
        """Return the groups."""
        node, want, found = self.node, self.want, self.found
        at = {place: number for number, place in enumerate(self.below.columns)}
        keys = [f"c{at[place]}" for place in node.by]
        parts = [
            catalyst_aggregate(call, _kind(call, node), f"c{at.get(call.column or 0, 0)}", column(_POSITION))
            for call in _calls(node, want)
        ]
        rows = found.unfinished
        order = rows.layout.order if self.position is not None else ()
        types = [*self.kinds, *(kind for part in parts for kind in part.types)]
        # Ids that are made of places late are those of the first rows then.
        given = Layout(tuple(types), want.ids and rows.layout.ids, order)
        grouped = self._aggregated(rows, keys, parts, given)
        made = tuple(self._made(parts))
        windows = any(part.window for part in parts)
        steps: tuple[Step, ...] = found.steps if found.late else ()
        if windows:
            grouped = self._brought_together(grouped, given)
        if windows or any(part.finish for part in parts):
            work = PartsWork(len(keys), made, is_alone=not windows)
            steps = (partial(PartsTogether, work=work), *steps)
        else:
            places = [each if isinstance(each, int) else each[2][0] for each in made]
            grouped, given = _shown(grouped, places, given)
        layout = Layout(types_of(node.schema, want.columns), want.ids, found.layout.order if order else ())
        late = bool(steps and order and not windows)
        return Lowered(grouped, given, steps, layout, cuts=found.cuts, most=found.most, late=late)

    def _brought_together(self, grouped: DataFrame, given: Layout) -> DataFrame:
        """Return parts of equal keys one after another, in the order of their first rows."""
        equal = [equal_key(column(f"c{number}"), kind) for number, kind in enumerate(self.kinds)]
        moved = grouped.repartition(*equal) if equal else grouped.repartition(1)
        by = [*equal, *order_of(given)]
        return moved.sortWithinPartitions(*by) if by else moved

    def _made(self, parts: Sequence[CatalystAggregate]) -> Iterator[MadeOfParts]:
        """Yield where each wanted column is in the parts, or what it is made of."""
        width, number = len(self.kinds), 0
        starts = np.cumsum([width, *(len(part.types) for part in parts)])
        for index in self.want.columns:
            if index < width:
                yield index
                continue
            part, start = parts[number], int(starts[number])
            call = self.node.calls[index - width]
            yield call, part.merge, tuple(range(start, start + len(part.types)))
            number += 1

    def _aggregated(
        self, rows: Lowered, keys: Sequence[str], parts: Sequence[CatalystAggregate], given: Layout
    ) -> DataFrame:
        """Return a row for each part of a group."""
        from pyspark.sql import functions as f

        frame = rows.frame
        if self.position is not None:
            frame = frame.withColumn(_POSITION, self.position)
        for level in zip_longest(*(part.before for part in parts), fillvalue={}):
            frame = frame.withColumns({name: value for each in level for name, value in each.items()})
        named = enumerate(zip(keys, self.kinds, strict=True))
        by = [equal_key(column(name), kind).alias(f"k{number}") for number, (name, kind) in named]
        windows = list(dict.fromkeys(part.window for part in parts if part.window))
        # Without a key there is still no group of no rows.
        by += [f.lit(0).alias("k")] if not by else []
        position = column(_POSITION)
        # Where an id is the place of its row, the first place of a group is the id of its first row.
        ids = IDS if given.ids and not rows.ids_are_places else ()
        more = [f"o{number}" for number in range(len(self.found.layout.order), len(given.order))]
        firsts = [f"c{n}" for n, kind in enumerate(self.kinds) if kind in t.FLOATS]
        made_of: list[Column] = [
            *(f.min_by(column(keys[int(name[1:])]), position).alias(f"first_{name}") for name in firsts),
            *(f.min_by(column(name), position).alias(name) for name in (*ids, *more)),
        ]
        if self.position is not None:
            made_of.append(f.min(position).alias(_POSITION))
        values: list[Column] = []
        for number, part in enumerate(parts):
            names = [f"p{number}_{place}" for place in range(len(part.made))]
            made_of += [each.alias(name) for each, name in zip(part.made, names, strict=True)]
            values += [column(name) for name in ([part.window] if part.window else []) + names]
        if not made_of:
            made_of.append(f.count(f.lit(1)).alias("rows"))
        grouped = frame.groupBy(*by, *(column(name) for name in windows)).agg(*made_of)
        shown = [column(f"first_c{n}" if kind in t.FLOATS else f"k{n}") for n, kind in enumerate(self.kinds)]
        order = unpacked_order(self.found.layout.order) if self.position is not None else []
        of_first = [column(name) for name in ids]
        if given.ids and not ids:
            of_first = [*order, f.lit(0).cast("bigint")]
        columns = [*shown, *values, *of_first, *order, *(column(name) for name in more)]
        return grouped.select([each.alias(name) for each, name in zip(columns, given.names, strict=True)])


def _shown(grouped: DataFrame, places: Sequence[int], given: Layout) -> tuple[DataFrame, Layout]:
    """Return groups of one part each, with the columns at these places."""
    layout = replace(given, types=tuple(given.types[place] for place in places))
    rest = given.names[len(given.types) :]
    columns = [*(column(f"c{place}") for place in places), *(column(name) for name in rest)]
    named = [each.alias(name) for each, name in zip(columns, layout.names, strict=True)]
    return grouped.select(named), layout


@dataclass(frozen=True)
class PartsWork:
    """How groups are made of their parts: key columns first, and which columns are made of which parts."""

    keys: int
    made: tuple[MadeOfParts, ...]
    is_alone: bool  # whether each part is a group

    def starts(self, chunk: Chunk) -> Places:
        """Return where groups begin among parts of which those with equal keys are neighbours."""
        if self.is_alone:
            return np.arange(chunk.rows)
        if not self.keys:
            return np.zeros(1, np.int64)
        found, _ = codes(list(chunk.arrays[: self.keys]), chunk.rows, nulls=True)
        return np.flatnonzero(np.diff(found, prepend=found[0] - 1))

    def groups(self, chunk: Chunk, starts: Places) -> Chunk:
        """Return the groups; what a first row has is that of their first part."""
        spans = Spans(chunk.rows, starts, np.append(starts[1:], chunk.rows))
        at = pa.array(starts)
        arrays = [
            chunk.arrays[each].take(at)
            if isinstance(each, int)
            else each[1]([chunk.arrays[place] for place in each[2]], spans, each[0])
            for each in self.made
        ]
        width = self.keys + sum(len(each[2]) for each in self.made if not isinstance(each, int))
        order = [array.take(at) for array in chunk.arrays[width:]]
        ids = RowIds(chunk.ids.low[starts], chunk.ids.high[starts]) if chunk.ids is not None else None
        return Chunk(len(starts), (*arrays, *order), ids)


@dataclass(frozen=True, eq=False)
class PartsTogether:
    """The groups of the parts of a task, which has all parts of its groups, one group after another."""

    below: Piece
    work: PartsWork

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the groups; the last of a chunk may go on in the next."""
        held: Chunk | None = None
        for chunk in self.below.chunks():
            parts = chunk if held is None else together([held, chunk])
            starts = self.work.starts(parts)
            if self.work.is_alone:
                yield self.work.groups(parts, starts)
                continue
            last = int(starts[-1])
            held = parts.slice(last)
            if last:
                yield self.work.groups(parts.slice(0, last), starts[:-1])
        if held is not None:
            yield self.work.groups(held, np.zeros(1, np.int64))


# --- by the kernel ----------------------------------------------------------------------------


def _by_kernel(node: GroupBy, want: Want, target: LoweringTarget) -> Lowered:
    (below,) = node.wants(want)
    found = target.lower(node.below, below)
    at = {place: number for number, place in enumerate(below.columns)}
    count, order = len(below.columns), found.layout.order
    # A group is where its first row is: what orders that row is passed on as the key is.
    work = Grouping(
        tuple(at[place] for place in node.by),
        (*made_columns(node, want, at), *range(count, count + len(order))),
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
