"""Columns computed over the rows around each row, in the order of the view.

Rows, ids and order are those of the input. A window depends on the order of rows: it comes in one piece and
is not shuffled (view:C71), unless none of its columns is asked for. Without `by` rows stream through, and
no more are in memory than the window and a chunk need; with `by` rows of equal values are brought together
first and put back in order afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from trueline.kernel import aggregates as s
from trueline.kernel.chunk import ROWS_OF_A_CHUNK, Chunk, together
from trueline.kernel.comparison import codes, order_of_words
from trueline.kernel.exchange import Gathered, Once, Plan, gather
from trueline.kernel.external_sort import Ordered, bucket
from trueline.kernel.pieces import Piece, as_one
from trueline.view.operators.columns import Made
from trueline.view.operators.grouping import ByKey
from trueline.view.operators.sorting import ByColumns
from trueline.view.plan.aggregate_calls import Asked, bound, needed
from trueline.view.plan.node import Node, Want
from trueline.view.schema import Schema, key_columns


@dataclass(frozen=True, eq=False)
class Windowed(Node):
    """The columns of the input, and aggregates over `before` rows, the row itself, and `after` rows."""

    below: Node
    before: int
    after: int
    by: tuple[int, ...]
    asked: tuple[Asked, ...]
    line: tuple[int | Made, ...]
    columns: Schema

    @property
    def schema(self) -> Schema:
        """The columns there are now."""
        return self.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        """One."""
        return (self.below,)

    @property
    def row_count(self) -> int | None:
        """That of the input (view:C31)."""
        return self.below.row_count

    @property
    def can_shuffle(self) -> bool:
        """What is before and after a row is the order's to say (view:C71)."""
        return False

    @property
    def portable(self) -> bool:
        """With `by` each process would bring all rows together again."""
        return self.below.portable and not self.by

    @property
    def serial(self) -> str | None:
        """Neighbours are known by reading in order (view:C71)."""
        return "a window reads rows beside their neighbours"

    @property
    def title(self) -> str:
        made = ", ".join(f"{each.name} = {each.text}" for each in self.asked)
        key = ", ".join(self.below.schema[place].name for place in self.by)
        reach = f"{self.before:,} rows before and {self.after:,} after"
        return f"with {made} over {reach}{f' by {key}' if key else ''}"

    def _made(self, want: Want) -> list[Asked]:
        found = (self.line[index] for index in want.columns)
        return [self.asked[place.output] for place in found if isinstance(place, Made)]

    def wants(self, want: Want) -> tuple[Want, ...]:
        """The columns passed on, what aggregates read that are wanted, and what keeps rows apart."""
        passed = [place for index in want.columns if isinstance(place := self.line[index], int)]
        made = self._made(want)
        return (want.of(tuple(dict.fromkeys((*passed, *needed(made), *(self.by if made else ()))))),)

    def passed(self, column: int) -> tuple[int, int] | None:
        """A column that is not made here is the input's."""
        place = self.line[column]
        return (0, place) if isinstance(place, int) else None

    def pieces(self, want: Want) -> Sequence[Piece]:
        """Return one piece; the input's if no column of the window is wanted."""
        (below,) = self.wants(want)
        at = {column: place for place, column in enumerate(below.columns)}
        made = self._made(want)
        if not made:
            return self.below.pieces(below)
        order: list[int | tuple[Asked, int | None]] = []
        for index in want.columns:
            place = self.line[index]
            if isinstance(place, int):
                order.append(at[place])
            else:
                asked = self.asked[place.output]
                order.append((asked, None if asked.column is None else at[asked.column]))
        work = Window(self.before, self.after, tuple(at[place] for place in self.by), tuple(order))
        if not self.by:
            return [WindowedPiece(as_one(self.below.pieces(below)), work)]
        pieces = tuple(self.below.pieces(below))
        return [GatheredWindow(Once(ToWindow(pieces, work, len(below.columns), want.ids)), self.row_count)]


@dataclass(frozen=True)
class Window:
    """How far windows reach, what keeps rows apart (by where it stands in a chunk), and what is made."""

    before: int
    after: int
    by: tuple[int, ...]
    order: tuple[int | tuple[Asked, int | None], ...]

    def _reach(self, make: s.Aggregate) -> int:
        return max(
            (each[0].k for each in self.order if isinstance(each, tuple) and each[0].kind.make is make),
            default=0,
        )

    @property
    def behind(self) -> int:
        """How many rows before a row are looked at."""
        return max(self.before, self._reach(s.lag))

    @property
    def ahead(self) -> int:
        """How many rows after a row are looked at."""
        return max(self.after, self._reach(s.lead))

    def values(self, chunk: Chunk, spans: s.Spans) -> list[pa.Array | None]:
        """Return the columns that are made, for the rows of the spans; None for those passed on."""
        return [
            None
            if isinstance(each, int)
            else each[0].of(None if each[1] is None else chunk.arrays[each[1]], spans)
            for each in self.order
        ]

    def rows(self, chunk: Chunk, first: int, last: int) -> Chunk:
        """Return rows `first` up to `last` of a chunk, which has all rows around them that there are."""
        at = np.arange(first, last)
        low, high = np.maximum(at - self.before, 0), np.minimum(at + self.after + 1, chunk.rows)
        edge = np.zeros(len(at), np.int64)
        made = self.values(chunk, s.Spans(chunk.rows, low, high, at, edge, edge + chunk.rows))
        part = chunk.slice(first, last - first)
        return self._with(part, made)

    def partitions(self, chunk: Chunk) -> Chunk:
        """Return all rows of a chunk, which has all rows of each of its keys."""
        found, count = codes([chunk.arrays[place] for place in self.by], chunk.rows, missing=True)
        order = order_of_words(found.astype(np.uint64))
        ends = np.cumsum(np.bincount(found, minlength=count))
        group = found[order]
        stop = ends[group]
        start = np.concatenate([[0], ends])[group]
        at = np.arange(chunk.rows)
        low, high = np.maximum(at - self.before, start), np.minimum(at + self.after + 1, stop)
        made = self.values(chunk.take(order), s.Spans(chunk.rows, low, high, at, start, stop))
        back = np.empty(chunk.rows, np.int64)
        back[order] = at
        places = pa.array(back)
        return self._with(chunk, [None if array is None else array.take(places) for array in made])

    def _with(self, chunk: Chunk, made: Sequence[pa.Array | None]) -> Chunk:
        arrays = tuple(
            chunk.arrays[each] if isinstance(each, int) else array
            for each, array in zip(self.order, made, strict=True)
        )
        return Chunk(chunk.rows, arrays, chunk.ids)


@dataclass(frozen=True, eq=False)
class WindowedPiece:
    """All rows of the input, with what is around them."""

    below: Piece
    work: Window

    @property
    def rows(self) -> int | None:
        """Those of the input."""
        return self.below.rows

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows, some at a time; `done` of those in memory were yielded before."""
        behind, ahead = self.work.behind, self.work.ahead
        # Rows that stay in memory for their neighbours' sake are looked at again: no more than new ones.
        step = max(1, behind + ahead)
        memory: list[Chunk] = []
        rows = done = 0
        for chunk in chain(self.below.chunks(), [None]):
            if chunk is not None:
                memory.append(chunk)
                rows += chunk.rows
            last = rows if chunk is None else rows - ahead
            if last <= done or (chunk is not None and last - done < step):
                continue
            held = together(memory)
            found = self.work.rows(held, done, last)
            for start in range(0, found.rows, ROWS_OF_A_CHUNK):
                yield found.slice(start, ROWS_OF_A_CHUNK)
            first = max(0, last - behind)
            memory, rows, done = [held.slice(first)], rows - first, last - first


# --- with `by` ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToWindow:
    """What brings the rows of pieces together by key, when it is asked to."""

    below: tuple[Piece, ...]
    work: Window
    width: int
    ids: bool

    def __call__(self) -> Chunk | Ordered | None:
        gathered = gather(self.below, Plan(ByKey(self.work.by), self.width, self.ids, positions=True))
        if gathered.held is not None:
            return self.work.partitions(gathered.held)
        if not gathered.rows:
            return None
        buckets = -(-gathered.size // gathered.part_bytes)
        pieces = [WindowedBucket(gathered, number, buckets, self.work) for number in range(buckets)]
        made = len(self.work.order)
        return Ordered(gather(pieces, Plan(ByColumns((made,), (False,)), made, self.ids)), 1)


@dataclass(frozen=True, eq=False)
class WindowedBucket:
    """The rows whose keys have hashes in one range, with what is around them, and their positions."""

    gathered: Gathered
    number: int
    buckets: int
    work: Window

    @property
    def rows(self) -> int | None:
        """Only the end will tell."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        chunk = bucket(self.gathered, self.number, self.buckets)
        if chunk is not None:
            found = self.work.partitions(chunk)
            yield Chunk(found.rows, (*found.arrays, chunk.arrays[-1]), found.ids)


@dataclass(frozen=True, eq=False)
class GatheredWindow:
    """All rows in their old order."""

    shared: Once[Chunk | Ordered | None]
    rows: int | None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        found = self.shared()
        if isinstance(found, Chunk):
            for start in range(0, found.rows, ROWS_OF_A_CHUNK):
                yield found.slice(start, ROWS_OF_A_CHUNK)
        elif found is not None:
            yield from found.part(0)


def windowed(
    below: Node, before: int, after: int, by: str | Sequence[str] | None, aggregates: Mapping[str, str]
) -> Windowed:
    """Add aggregates over the rows around each row."""
    names = () if by is None else (by,) if isinstance(by, str) else tuple(by)
    key = tuple(column.index for column in key_columns(below.schema, names, "a window"))
    node, asked = bound(below, aggregates, window=True)
    schema, old = below.schema.added([each.field for each in asked])
    waiting: dict[str, list[int]] = {}
    for number, each in enumerate(asked):
        waiting.setdefault(each.name, []).append(number)
    line = tuple(
        place if place is not None else Made(0, waiting[column.name].pop(0))
        for place, column in zip(old, schema, strict=True)
    )
    return Windowed(node, before, after, key, tuple(asked), line, schema)
