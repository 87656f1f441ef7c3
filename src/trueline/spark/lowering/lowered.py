"""A view's node on Spark: a frame, what its columns are, and what is still to be done to its rows in tasks.

Steps that look at single rows are not frames of their own: they wait until the frame is asked for, and then
run one after another in one task, where the rows are in Python already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from trueline import types as t
from trueline.kernel.chunk import Chunk, Piece
from trueline.spark.errors import carrying, lasting_nonce
from trueline.spark.lowering.layout import Layout, OrderColumn
from trueline.spark.packing import pack, unpack

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from trueline.view.plan.node import Node, Want

_PLACE: Final = (OrderColumn(pa.int64()), OrderColumn(pa.int64()))
Step: TypeAlias = Callable[[Piece], Piece]


@dataclass(frozen=True)
class Lowered:
    """Rows on Spark, in no order of the frame's: `layout.order` says which they have."""

    base: DataFrame
    given: Layout | tuple[bytes, ...]  # what `base` is: rows, or numbers of packed pieces of a view
    steps: tuple[Step, ...]
    layout: Layout
    is_ordered: bool = False  # whether tasks, one after another, have the rows in order

    @cached_property
    def frame(self) -> DataFrame:
        """The rows, everything done."""
        if not self.steps and isinstance(self.given, Layout):
            return self.base
        work = TaskWork(self.given, tuple(map(pack, self.steps)), self.layout, lasting_nonce())
        return self.base.mapInArrow(work, self.layout.spark_schema)

    def then(self, step: Step, layout: Layout, *, keeps_order: bool = True) -> Lowered:
        """Return it with one more thing done to its rows in tasks."""
        is_ordered = self.is_ordered and keeps_order
        return Lowered(self.base, self.given, (*self.steps, step), layout, is_ordered)

    def per_task(self, frame: DataFrame, step: Step, layout: Layout) -> Lowered:
        """Return what a step makes of all rows of each task of a frame that has these columns."""
        return Lowered(frame, self.layout, (step,), layout)

    def select(self, columns: Sequence[Column], layout: Layout) -> Lowered:
        """Return other columns, computed by Spark."""
        named = [column.alias(name) for column, name in zip(columns, layout.names, strict=True)]
        return Lowered(self.frame.select(*named), layout, (), layout)

    @property
    def in_order(self) -> list[Column]:
        """What to sort by."""
        return order_of(self.layout)


def order_of(layout: Layout, prefix: str = "") -> list[Column]:
    """Return the columns that rows are sorted by, each in its direction, under names that begin so."""
    from pyspark.sql import functions as f

    return [
        f.desc_nulls_last(prefix + name) if each.descending else f.asc_nulls_last(prefix + name)
        for name, each in zip(layout.order_names, layout.order, strict=True)
    ]


def with_order(layout: Layout, *more: OrderColumn) -> Layout:
    """Return a layout with further columns of order."""
    return replace(layout, order=(*layout.order, *more))


class TaskWork:
    """What one task does: reads its rows, takes all steps, and hands the result back."""

    def __init__(
        self, given: Layout | tuple[bytes, ...], steps: tuple[bytes, ...], layout: Layout, nonce: str
    ) -> None:
        self.given, self.steps, self.layout, self.nonce = given, steps, layout, nonce

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying(self.nonce, "running the view"):
            piece: Piece = TaskRows(self.given, batches)
            for step in self.steps:
                piece = unpack(step)(piece)
            for chunk in piece.chunks():
                if chunk.rows:
                    yield self.layout.encode(chunk)


@dataclass(frozen=True, eq=False)
class TaskRows:
    """The rows of a task as a piece: those Spark hands over, or those of the pieces it names."""

    given: Layout | tuple[bytes, ...]
    batches: Iterator[pa.RecordBatch]

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows; those of a piece are ordered by its number and theirs."""
        if isinstance(self.given, Layout):
            yield from self.given.chunks(self.batches)
            return
        for batch in self.batches:
            for number in batch.column(0).to_pylist():
                yield from numbered(unpack(self.given[number]), number)


def numbered(piece: Piece, number: int) -> Iterator[Chunk]:
    """Yield the rows of a piece, ordered by its number and theirs in it."""
    start = 0
    for chunk in piece.chunks():
        place = pa.array(np.full(chunk.rows, number, np.int64))
        yield Chunk(chunk.rows, (*chunk.arrays, place, count_from(start, chunk.rows)), chunk.ids)
        start += chunk.rows


def count_from(start: int, rows: int) -> pa.Array:
    """Return the numbers of some rows."""
    return pa.array(np.arange(start, start + rows, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class CountedPiece:
    """A piece whose rows are numbered as they come: the order of rows that one row became."""

    below: Piece

    @property
    def rows(self) -> int | None:
        """Those of the piece."""
        return self.below.rows

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows, their numbers last."""
        start = 0
        for chunk in self.below.chunks():
            yield Chunk(chunk.rows, (*chunk.arrays, count_from(start, chunk.rows)), chunk.ids)
            start += chunk.rows


def types_of(schema: Any, columns: Sequence[int]) -> tuple[t.Type, ...]:
    """Return the types of columns of a schema, by their places."""
    return tuple(schema[place].type for place in columns)


# --- rows that tasks read -------------------------------------------------------------------


def read_by_tasks(session: SparkSession, node: Node, want: Want, parts: Sequence[Piece]) -> Lowered:
    """Return pieces of a node that tasks read, in the order of pieces and rows."""
    packed = tuple(pack(piece) for piece in parts)
    layout = Layout(types_of(node.schema, want.columns), want.ids, _PLACE)
    count = len(packed)
    return Lowered(session.range(0, count, 1, max(1, count)), packed, (), layout, is_ordered=True)
