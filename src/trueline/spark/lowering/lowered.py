"""A view's node on Spark: a frame, what its columns are, and what is still to be done to its rows in tasks.

Steps that look at single rows are not frames of their own: they wait until the frame is asked for, and then
run one after another in one task, where the rows are in Python already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from trueline import types as t
from trueline.chain.store.scratch import Scratch
from trueline.identity import RowIds
from trueline.kernel.chunk import Chunk, Piece, RowByRowPiece
from trueline.spark.engines import engine_of
from trueline.spark.errors import carrying, lasting_nonce
from trueline.spark.lowering.bad_cells import BadCellNotes
from trueline.spark.lowering.layout import Layout, OrderColumn
from trueline.spark.packing import pack, shares, unpack
from trueline.spark.workers import versioned
from trueline.view.source_cells import arriving

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from trueline.view.plan.node import Node, Want

# Rows of a piece that nobody has counted are fewer than this.
_MOST_BITS: Final = 40
Step: TypeAlias = Callable[[Piece], Piece]
# Values of the first columns of an order that cut rows into so many ranges of about the same size.
CutPoints: TypeAlias = Callable[[int], Sequence[tuple[Any, ...]]]


@dataclass(frozen=True)
class Lowered:
    """Rows on Spark, in no order of the frame's: `layout.order` says which they have.

    `cuts` says where ranges of the order begin, without a look at these rows; `most` how many rows there are
    at most, if that is known; `about` is a guess, by which a sample is taken; `text` guesses how many bytes
    texts and lists have on average. Steps that are `late` may as
    well be taken after the rows of `base` were moved: its order begins as theirs does.
    """

    base: DataFrame
    given: Layout | TaskPieces  # what `base` is: rows, or numbers of pieces of a view
    steps: tuple[Step, ...]
    layout: Layout
    is_ordered: bool = False  # whether tasks, one after another, have the rows in order
    cuts: CutPoints | None = None
    most: int | None = None
    about: int | None = None
    text: int | None = None
    late: bool = False
    ids_are_places: bool = False  # whether the id of a row is its only column of order, and 0

    @cached_property
    def frame(self) -> DataFrame:
        """The rows, everything done."""
        work = self.work
        if work is None:
            return self.base
        return self.base.mapInArrow(versioned(work, work.nonce), self.layout.spark_schema)

    @property
    def unfinished(self) -> Lowered:
        """The rows to be moved: without the steps that may be taken after that."""
        if not self.late or not isinstance(self.given, Layout):
            return self
        return replace(Lowered(self.base, self.given, (), self.given), **self._known)

    @property
    def work(self) -> TaskWork | None:
        """What tasks do to the rows of `base`; None for nothing."""
        if not self.steps and isinstance(self.given, Layout):
            return None
        return TaskWork(self.given, tuple(map(pack, self.steps)), self.layout, lasting_nonce())

    @property
    def _known(self) -> dict[str, Any]:
        """What is known of the rows, whatever columns they have."""
        return {"cuts": self.cuts, "most": self.most, "about": self.about, "text": self.text}

    @property
    def multiplied(self) -> Lowered:
        """The same of rows of which each may have become several: nobody knows how many there are."""
        return replace(self, most=None, about=self.about if self.most is None else self.most)

    def then(self, step: Step, layout: Layout, *, keeps_order: bool = True) -> Lowered:
        """Return it with one more thing done to its rows in tasks."""
        order = self.layout.order
        return replace(
            self,
            steps=(*self.steps, step),
            layout=layout,
            is_ordered=self.is_ordered and keeps_order,
            cuts=self.cuts if layout.order[: len(order)] == order else None,
            late=False,
            ids_are_places=False,
        )

    def per_task(self, frame: DataFrame, step: Step, layout: Layout) -> Lowered:
        """Return what a step makes of all rows of each task of a frame that has these columns."""
        return replace(Lowered(frame, self.layout, (step,), layout), **self._known)

    def select(self, columns: Sequence[Column], layout: Layout) -> Lowered:
        """Return other columns, computed by Spark."""
        named = [column.alias(name) for column, name in zip(columns, layout.names, strict=True)]
        found = replace(Lowered(self.frame.select(*named), layout, (), layout), **self._known)
        return found if layout.order == self.layout.order else replace(found, cuts=None)

    def with_ids_of_places(self, sides: int) -> Lowered:
        """Return rows without ids with those that their last columns of order are, made as late as can be."""
        layout = replace(self.layout, ids=True)
        step = partial(IdsOfPlaces, sides=sides)
        return replace(Lowered(self.base, self.layout, (step,), layout, late=True), **self._known)

    @property
    def makes_ids_late(self) -> bool:
        """Whether all that is still to be done is making ids, however many columns there are."""
        made = tuple(step.func if isinstance(step, partial) else step for step in self.steps)
        return self.late and made in ((CombinedIds,), (IdsOfPlaces,))

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
        self, given: Layout | TaskPieces, steps: tuple[bytes, ...], layout: Layout, nonce: str
    ) -> None:
        self.given, self.steps, self.layout, self.nonce = given, steps, layout, nonce

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, for a task that does more with them."""
        piece: Piece = TaskRows(self.given, batches)
        for step in self.steps:
            piece = unpack(step)(piece)
        for chunk in piece.chunks():
            if chunk.rows:
                yield self.layout.encode(chunk)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying(self.nonce, "running the view"):
            yield from self.rows(batches)


@dataclass(frozen=True, eq=False)
class TaskRows:
    """The rows of a task as a piece: those Spark hands over, or those of the pieces it names."""

    given: Layout | TaskPieces
    batches: Iterator[pa.RecordBatch]

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows; those of pieces come with their places, if they have any."""
        if isinstance(self.given, Layout):
            yield from self.given.chunks(self.batches)
            return
        for batch in self.batches:
            for number in batch.column(0).to_pylist():
                yield from self.given.chunks(number)


@dataclass(frozen=True)
class TaskPieces:
    """Packed pieces of a view, and the places of their first rows in its order; None if nobody asks.

    Where all pieces are counted a place is the number of the row; else each piece has room for more rows
    than any has. Of a share of the pieces, `before` is how many are in others before it.
    """

    packed: tuple[bytes, ...]
    firsts: tuple[int, ...] | None
    below: int
    count: int | None
    notes: BadCellNotes | None = None
    before: int = 0

    @classmethod
    def of(cls, parts: Sequence[Piece], *, ordered: bool, notes: BadCellNotes | None = None) -> TaskPieces:
        """Pack pieces, each to be read by a task."""
        counts = [piece.rows for piece in parts]
        known = [rows for rows in counts if rows is not None]
        count = sum(known) if len(known) == len(counts) else None
        if count is None:
            firsts = [number << _MOST_BITS for number in range(len(parts) + 1)]
        else:
            firsts = list(accumulate(known, initial=0))
        packed = tuple(pack(piece) for piece in parts)
        return cls(packed, tuple(firsts[:-1]) if ordered else None, max(1, firsts[-1]), count, notes)

    def share(self, numbers: range) -> TaskPieces:
        """Return some of the pieces."""
        some = slice(numbers.start, numbers.stop)
        firsts = None if self.firsts is None else self.firsts[some]
        return replace(self, packed=self.packed[some], firsts=firsts, before=numbers.start)

    def chunks(self, number: int) -> Iterator[Chunk]:
        """Yield the rows of a piece, their places last; note its bad cells when it was read to its end."""
        with arriving() as counts:
            piece: Piece = unpack(self.packed[number])
        start = 0 if self.firsts is None else self.firsts[number]
        for chunk in piece.chunks():
            places = () if self.firsts is None else (count_from(start, chunk.rows),)
            yield Chunk(chunk.rows, (*chunk.arrays, *places), chunk.ids)
            start += chunk.rows
        if self.notes is not None:
            self.notes.write(self.before + number, counts)


def count_from(start: int, rows: int) -> pa.Array:
    """Return the numbers of some rows."""
    return pa.array(np.arange(start, start + rows, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class CountedPiece(RowByRowPiece):
    """A piece whose rows are numbered as they come: the order of rows that one row became."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows, their numbers last."""
        start = 0
        for chunk in self.below.chunks():
            yield Chunk(chunk.rows, (*chunk.arrays, count_from(start, chunk.rows)), chunk.ids)
            start += chunk.rows


@dataclass(frozen=True, eq=False)
class CombinedIds(RowByRowPiece):
    """A piece whose rows have the ids of the left, and those of the right as their last two columns."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows with their ids combined."""
        for chunk in self.below.chunks():
            assert chunk.ids is not None
            low, high = (np.asarray(words).view(np.uint64) for words in chunk.arrays[-2:])
            yield Chunk(chunk.rows, chunk.arrays[:-2], chunk.ids.combine(RowIds(low, high)))


@dataclass(frozen=True, eq=False)
class IdsOfPlaces(RowByRowPiece):
    """A piece whose rows get their ids from their last columns of order: the places of one row, or of two.

    Where an id is the place of its row, it need not be moved beside it. A null is the place of a partner that
    is not there.
    """

    sides: int

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows with their ids."""
        for chunk in self.below.chunks():
            ids = reduce(RowIds.combine, map(_ids_of_places, chunk.arrays[-self.sides :]))
            yield Chunk(chunk.rows, chunk.arrays, ids)


def _ids_of_places(places: pa.Array) -> RowIds:
    low = np.asarray(places.fill_null(-1)).view(np.uint64)
    high = np.zeros(len(low), np.uint64)
    if places.null_count:
        high[np.asarray(places.is_null())] = ~np.uint64(0)
    return RowIds(low, high)


def types_of(schema: Any, columns: Sequence[int]) -> tuple[t.Type, ...]:
    """Return the types of columns of a schema, by their places."""
    return tuple(schema[place].type for place in columns)


# --- rows that tasks read -------------------------------------------------------------------


def read_by_tasks(
    session: SparkSession,
    node: Node,
    want: Want,
    parts: Sequence[Piece],
    *,
    ordered: bool = True,
    notes: Scratch | None = None,
) -> Lowered:
    """Return pieces of a node that tasks read, in the order of pieces and rows.

    Bad cells that they meet are noted in scratch, if there is some.
    """
    told = None if notes is None else BadCellNotes.of(notes)
    given = TaskPieces.of(parts, ordered=ordered, notes=told)
    order = (OrderColumn(pa.int64(), below=given.below),) if ordered else ()
    layout = Layout(types_of(node.schema, want.columns), want.ids, order)
    engine, cuts = engine_of(session), EvenCuts(given.below)
    found = [
        Lowered(engine.numbers(len(each), len(each)), given.share(each), (), layout, is_ordered=True)
        for each in shares(given.packed)
    ]
    if len(found) == 1:
        return replace(found[0], cuts=cuts, most=given.count)
    frame = reduce(lambda one, other: one.union(other), (each.frame for each in found))
    # Behind Connect the numbers are ranges, whose partitions a union may merge.
    is_ordered = not engine.is_connect
    return Lowered(frame, layout, (), layout, is_ordered=is_ordered, cuts=cuts, most=given.count)


@dataclass(frozen=True)
class EvenCuts:
    """Cuts of an order by one whole number, which is `low` at least and below another, anywhere between."""

    below: int
    low: int = 0

    def step(self, parts: int) -> int:
        """How many of the numbers are in a range."""
        return max(1, -(-(self.below - self.low) // parts))

    def __call__(self, parts: int) -> list[tuple[int]]:
        """Return the first number of each range but the first."""
        return [(place,) for place in range(self.low + self.step(parts), self.below, self.step(parts))]
