"""Verbs that look at single rows: select, filter, with_columns, explode, sample, concat, cache.

Each runs the piece of this process in the tasks; the columns that order the rows are carried along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trueline.kernel.chunk import Piece
from trueline.spark.lowering.dispatch import LoweringTarget, layout_of, lowered
from trueline.spark.lowering.layout import IDS, Layout, OrderColumn
from trueline.spark.lowering.lowered import CountedPiece, Lowered, Step, types_of, with_order
from trueline.view.execute.concat import ConcatPiece
from trueline.view.execute.explode import ExplodePiece
from trueline.view.execute.filter import FilterPiece
from trueline.view.execute.sample import SamplePiece
from trueline.view.execute.with_columns import ColumnsPiece, KernelCall
from trueline.view.plan.cache import Cache
from trueline.view.plan.concat import Concat
from trueline.view.plan.explode import Explode
from trueline.view.plan.filter import Filter
from trueline.view.plan.node import Node, Want
from trueline.view.plan.on_spark import OnSpark
from trueline.view.plan.sample import Sample
from trueline.view.plan.select import Select
from trueline.view.plan.with_columns import MadeColumn, WithColumns

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class StepChain:
    """Steps one after another, as one that travels."""

    steps: tuple[Step, ...]

    def __call__(self, piece: Piece) -> Piece:
        return reduce(lambda made, step: step(made), self.steps, piece)


@dataclass(frozen=True)
class Carried:
    """Where columns are when those of the order come right after the first `keep` of them."""

    count: int
    keep: int
    order: int

    def at(self, place: int) -> int:
        """Return where the column is that was at a place."""
        return place if place < self.keep else place + self.order

    @property
    def kept(self) -> int:
        """How many columns are kept, those of the order included."""
        return self.keep + self.order

    @property
    def step(self) -> Step:
        """What moves them there."""
        places = (
            *range(self.keep),
            *range(self.count, self.count + self.order),
            *range(self.keep, self.count),
        )
        return partial(ColumnsPiece, calls=(), order=places, ids=True)


def _carried(below: Want, want: Want, found: Lowered) -> Carried:
    return Carried(len(below.columns), len(want.columns), len(found.layout.order))


@lowered.register(Select)
def _select(node: Select, want: Want, target: LoweringTarget) -> Lowered:
    (below,) = node.wants(want)
    found = target.lower(node.below, below)
    places = [below.columns.index(node.places[index]) for index in want.columns]
    return columns_of(found, places, layout_of(node, want, found.layout))


def columns_of(found: Lowered, places: Sequence[int], layout: Layout) -> Lowered:
    """Return some of the columns, in the tasks that have the rows at hand anyway, else by Spark.

    The layout has the order that the rows have, or none.
    """
    if found.makes_ids_late:
        # Ids wait for the end, however many columns there are.
        rows = found.unfinished
        given = replace(rows.layout, types=layout.types)
        fewer = rows.select([*(column(f"c{place}") for place in places), *rest(rows)], given)
        return replace(found, base=fewer.base, given=given, layout=layout)
    if found.steps or not isinstance(found.given, Layout):
        count = len(found.layout.types)
        kept = (*places, *range(count, count + len(layout.order)))
        return found.then(partial(ColumnsPiece, calls=(), order=kept, ids=layout.ids), layout)
    more = layout.names[len(layout.types) :]
    return found.select([column(name) for name in (*(f"c{place}" for place in places), *more)], layout)


def column(name: str) -> Column:
    """Return a column of a frame by its name."""
    from pyspark.sql import functions as f

    return f.col(name)


def rest(found: Lowered) -> list[Column]:
    """Return the columns of ids and order."""
    names = found.layout.names[len(found.layout.types) :]
    return [column(name) for name in names]


@lowered.register(Filter)
def _filter(node: Filter, want: Want, target: LoweringTarget) -> Lowered:
    (below,) = node.wants(want)
    found = target.lower(node.below, below)
    where = _carried(below, want, found)
    at = tuple(where.at(below.columns.index(place)) for place in node.needed)
    keep = partial(FilterPiece, where=node.where, at=at, keep=where.kept)
    return found.then(StepChain((where.step, keep)), layout_of(node, want, found.layout))


@lowered.register(WithColumns)
def _with_columns(node: WithColumns, want: Want, target: LoweringTarget) -> Lowered:
    (below,) = node.wants(want)
    found = target.lower(node.below, below)
    _, kernels = node.divided(want)
    at = {place: number for number, place in enumerate(below.columns)}
    calls = tuple(KernelCall(node.kernels[k], tuple(at[c] for c in node.kernels[k].inputs)) for k in kernels)
    places = tuple(
        at[place] if isinstance(place, int) else MadeColumn(kernels.index(place.kernel), place.output)
        for place in (node.line[index] for index in want.columns)
    )
    count = len(below.columns)
    order = (*places, *range(count, count + len(found.layout.order)))
    step = partial(ColumnsPiece, calls=calls, order=order, ids=want.ids)
    return found.then(step, layout_of(node, want, found.layout))


@lowered.register(Explode)
def _explode(node: Explode, want: Want, target: LoweringTarget) -> Lowered:
    (below,) = node.wants(want)
    found = target.lower(node.below, below)
    where = _carried(below, want, found)
    at = where.at(below.columns.index(node.column))
    explode = partial(ExplodePiece, at=at, keep=where.kept, kind=node.vector, outer=node.outer)
    layout = with_order(layout_of(node, want, found.layout), OrderColumn(pa.int64()))
    return found.then(StepChain((where.step, explode, CountedPiece)), layout).multiplied


@lowered.register(Sample)
def _sample(node: Sample, want: Want, target: LoweringTarget) -> Lowered:
    (below,) = node.wants(want)
    found = target.lower(node.below, below)
    where = _carried(below, want, found)
    at = tuple(where.at(below.columns.index(place)) for place in node.by)
    choose = partial(SamplePiece, choice=node.choice, at=at, keep=where.kept, ids=want.ids)
    layout = layout_of(node, want, found.layout)
    if node.choice.draws is None:
        return found.then(StepChain((where.step, choose)), layout)
    layout = with_order(layout, OrderColumn(pa.int64()))
    return found.then(StepChain((where.step, choose, CountedPiece)), layout).multiplied


@lowered.register(OnSpark)
@lowered.register(Cache)
def _as_below(node: Cache | OnSpark, want: Want, target: LoweringTarget) -> Lowered:
    """The rows of the input: what a cache keeps stays in its process, and this is Spark already."""
    return target.lower(node.below, want)


# --- one after another ----------------------------------------------------------------------


@lowered.register(Concat)
def _concat(node: Concat, want: Want, target: LoweringTarget) -> Lowered:
    found = [target.lower(view, below) for view, below in zip(node.views, node.wants(want), strict=True)]
    if want.ids:
        found = [
            each.then(partial(ConcatPiece, number=number), each.layout) for number, each in enumerate(found)
        ]
    return one_after_another(node, want, found)


def one_after_another(node: Node, want: Want, found: Sequence[Lowered]) -> Lowered:
    """Return all rows of the first, then of the second, and so on."""
    slots, places = common_slots([each.layout.order for each in found])
    first = OrderColumn(pa.int64(), below=len(found))
    layout = Layout(types_of(node.schema, want.columns), want.ids, (first, *slots))
    parts = [
        _placed(each, number, at, layout) for number, (each, at) in enumerate(zip(found, places, strict=True))
    ]
    frame = reduce(lambda one, other: one.union(other), (each.frame for each in parts))
    cuts = CutsInTurn(tuple(found), tuple(map(tuple, places))) if all(each.cuts for each in found) else None
    known = [each.most for each in found if each.most is not None]
    most = sum(known) if len(known) == len(found) else None
    return Lowered(frame, layout, (), layout, cuts=cuts, most=most)


@dataclass(frozen=True)
class CutsInTurn:
    """Cuts of rows that come one after another: those of each, in the columns where its order is."""

    found: tuple[Lowered, ...]
    places: tuple[tuple[int, ...], ...]

    def __call__(self, parts: int) -> list[tuple[Any, ...]]:
        """Give each the same share of the parts."""
        cuts: list[tuple[Any, ...]] = []
        for number, (each, places) in enumerate(zip(self.found, self.places, strict=True)):
            assert each.cuts is not None
            cuts += [(number,)] if number else []
            for cut in each.cuts(max(1, parts // len(self.found))):
                at = dict(zip(places, cut, strict=False))
                cuts.append((number, *(at.get(slot) for slot in range(max(at, default=-1) + 1))))
        return cuts


def _placed(found: Lowered, number: int, places: Sequence[int], layout: Layout) -> Lowered:
    from pyspark.sql import functions as f

    where = dict(zip(places, found.layout.order_names, strict=True))
    spark = dict(zip(layout.names, (field.dataType for field in layout.spark_schema), strict=True))
    values = [column(name) for name in (*found.layout.columns, *(IDS if layout.ids else ()))]
    order = [f.lit(number).cast("bigint")]
    for slot in range(len(layout.order) - 1):
        kind = spark[f"o{slot + 1}"]
        order.append(column(where[slot]) if slot in where else f.lit(None).cast(kind))
    return found.select([*values, *order], layout)


def common_slots(
    orders: Sequence[Sequence[OrderColumn]],
) -> tuple[list[OrderColumn], list[list[int]]]:
    """Return columns that hold each of several orders, and where each has its own: in its sequence."""
    slots: list[OrderColumn] = []
    places: list[list[int]] = []
    for order in orders:
        taken: list[int] = []
        for each in order:
            start = taken[-1] + 1 if taken else 0
            at = next((slot for slot in range(start, len(slots)) if _alike(slots[slot], each)), len(slots))
            if at == len(slots):
                slots.append(each)
            else:
                slots[at] = _of_both(slots[at], each)
            taken.append(at)
        assert all(one < other for one, other in pairwise(taken))
        places.append(taken)
    return slots, places


def _alike(one: OrderColumn, other: OrderColumn) -> bool:
    return (one.kind, one.descending) == (other.kind, other.descending)


def _of_both(one: OrderColumn, other: OrderColumn) -> OrderColumn:
    below = max(one.below, other.below) if one.below and other.below else 0
    return replace(one, below=below)
