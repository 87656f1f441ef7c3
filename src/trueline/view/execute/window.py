"""Columns computed over the rows around each row.

Without `by` rows stream through, and no more are in memory than the window and a few chunks need; with `by`
rows of equal values are brought together first and put back in order afterwards. Ranks of all rows are made
in the order of their values first, then the rest as rows stream through.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trueline.kernel import aggregates as s
from trueline.kernel.chunk import (
    BYTES_OF_A_CHUNK,
    ROWS_OF_A_CHUNK,
    Chunk,
    Piece,
    RowByRowPiece,
    as_one,
    bytes_of,
    on_threads,
    together,
)
from trueline.kernel.comparison import codes, places_in_order
from trueline.kernel.exchange import (
    ByColumns,
    ByKeyHash,
    Gathered,
    HeldParts,
    Once,
    OrderedParts,
    RowParts,
    SharedPiece,
    gather,
    in_order_again,
)
from trueline.kernel.external_sort import SortSpec, position
from trueline.kernel.order_statistics import RanksInOrder
from trueline.kernel.word_order import Places, order_of_words
from trueline.view.execute.dispatch import pieces, portable, row_count
from trueline.view.plan.aggregates import AggregateCall, needs_all_rows
from trueline.view.plan.node import Want
from trueline.view.plan.window import Window

Reach: TypeAlias = Callable[[int, int, int, int], tuple[Places, Places, Places]]

# So many rows at a time stay near the processor.
_BLOCK: Final = 1 << 16
# So many are brought together at most, where they stream through.
_AT_ONCE: Final = 1 << 19


@pieces.register(Window)
def _window(node: Window, want: Want) -> Sequence[Piece]:
    """Return one piece; the input's if no column of the window is wanted."""
    (below,) = node.wants(want)
    at = {column: place for place, column in enumerate(below.columns)}
    found = pieces(node.below, below)
    if not node.made(want):
        return found
    order: list[int | tuple[AggregateCall, int | None]] = []
    for index in want.columns:
        place = node.line[index]
        if isinstance(place, int):
            order.append(at[place])
        else:
            call = node.calls[place.output]
            order.append((call, None if call.column is None else at[call.column]))
    work = WindowWork(node.before, node.after, tuple(at[place] for place in node.by), tuple(order))
    if node.streams(want):
        return [WindowPiece(as_one(found), work)]
    if not node.by:
        ranked = Once(ToRank(tuple(found), tuple(work.ranks), len(below.columns), want.ids))
        return [WindowPiece(SharedPiece(ranked, 0, row_count(node)), work.with_ranks(len(below.columns) + 1))]
    shared = Once(ToWindow(tuple(found), work, len(below.columns), want.ids))
    return [SharedPiece(shared, 0, row_count(node))]


@portable.register(Window)
def _portable(node: Window) -> bool:
    """With `by`, or for ranks, each process would bring all rows together again."""
    return portable(node.below) and not node.by and not any(map(needs_all_rows, node.calls))


@dataclass(frozen=True)
class RankOf:
    """A column whose values are ranked, by where it is in a chunk, and in which direction."""

    at: int
    descending: bool


@dataclass(frozen=True)
class WindowWork:
    """How far windows reach, what keeps rows apart (by where it is in a chunk), and what is made."""

    before: int
    after: int
    by: tuple[int, ...]
    order: tuple[int | tuple[AggregateCall, int | None], ...]

    def _reach(self, make: s.AggregateKernel) -> int:
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

    @property
    def ranks(self) -> list[RankOf]:
        """The ranks that are made, each once."""
        return list(dict.fromkeys(filter(None, map(_rank_of, self.order))))

    def with_ranks(self, first: int) -> WindowWork:
        """Return it for rows that have their ranks, in columns from the first one on."""
        places = {rank: place for place, rank in enumerate(self.ranks, first)}
        order = (each if (rank := _rank_of(each)) is None else places[rank] for each in self.order)
        return replace(self, order=tuple(order))

    def rows(self, chunk: Chunk, first: int, last: int, gone: int) -> Chunk:
        """Return rows `first` up to `last` of a chunk, which has all rows around them that there are.

        `gone` rows came before those of the chunk.
        """
        made = self._made(chunk, None, np.array([chunk.rows]), range(first, last), gone)
        return self._with(chunk.slice(first, last - first), made)

    def partitions(self, chunk: Chunk) -> Chunk:
        """Return all rows of a chunk, which has all rows of each of its keys."""
        found, count = codes([chunk.arrays[place] for place in self.by], chunk.rows, nulls=True)
        order = order_of_words(found.view(np.uint64))
        ends = np.cumsum(np.bincount(found, minlength=count))
        return self._with(chunk, self._made(chunk, order, ends, range(chunk.rows)))

    def _made(
        self, chunk: Chunk, order: Places | None, ends: Places, rows: range, gone: int = 0
    ) -> list[pa.Array | None]:
        """Return the columns that are made, for some rows; None for those passed on.

        Rows lie one key after another, in this order of the chunk or as they are; `ends` are those of the
        keys. They are looked at some at a time, which stay near the processor.
        """
        made = [
            None if isinstance(each, int) else MadeValues(each[0].type.arrow, len(rows))
            for each in self.order
        ]
        step = len(rows) if self.ranks else max(_BLOCK, self.behind + self.ahead)
        # Within a key they are the same for one block after another.
        reach = lru_cache(2)(self._reached)

        def make(block: range) -> None:
            low, spans = self._spans(ends, block, gone, reach)
            given = self._given(chunk, order, low, spans.rows)
            places = (
                slice(block.start - rows.start, block.stop - rows.start)
                if order is None
                else order[block.start : block.stop]
            )
            for each, values in zip(self.order, made, strict=True):
                if not isinstance(each, int) and values is not None:
                    values.put(places, each[0].of(None if each[1] is None else given[each[1]], spans))

        blocks = [rows[start : start + step] for start in range(0, len(rows), max(1, step))]
        on_threads(make, blocks, len(rows))
        return [None if values is None else values.array() for values in made]

    def _spans(self, ends: Places, block: range, gone: int, reach: Reach) -> tuple[int, s.Spans]:
        """Return the first row that is looked at for some rows, and their stretches from there on."""
        first, last = np.searchsorted(ends, [block.start, block.stop - 1], side="right")
        stops = ends[first : last + 1]
        starts = np.concatenate([ends[first - 1 : first] if first else [0], stops[:-1]])
        low = max(block.start - self.behind, int(starts[0]))
        high = min(block.stop + self.ahead, int(stops[-1]))
        if len(stops) > 1:
            here = np.minimum(stops, block.stop) - np.maximum(starts, block.start)
            start, stop = np.repeat(starts - low, here), np.repeat(stops - low, here)
            at = np.arange(block.start - low, block.stop - low)
            lowest, highest = np.maximum(at - self.before, start), np.minimum(at + self.after + 1, stop)
        else:
            offset, rows = block.start - low, len(block)
            least, most = max(int(starts[0]) - low, offset - self.before), offset + rows + self.after
            at, lowest, highest = reach(offset, rows, least, min(int(stops[0]) - low, most))
            start, stop = (np.broadcast_to(each - low, rows) for each in (starts, stops))
        return low, s.Spans(high - low, lowest, highest, at, start, stop, gone)

    def _reached(self, first: int, rows: int, least: int, most: int) -> tuple[Places, Places, Places]:
        """Return rows, and from where to where each looks."""
        at = np.arange(first, first + rows)
        return at, np.maximum(at - self.before, least), np.minimum(at + self.after + 1, most)

    def _given(self, chunk: Chunk, order: Places | None, low: int, rows: int) -> dict[int, pa.Array]:
        """Return some rows of the columns that others are made of, by their places."""
        needed = {each[1] for each in self.order if isinstance(each, tuple) and each[1] is not None}
        if order is None:
            return {place: chunk.arrays[place].slice(low, rows) for place in needed}
        at = pa.array(order[low : low + rows])
        return {place: chunk.arrays[place].take(at) for place in needed}

    def starts(self, chunk: Chunk) -> list[int]:
        """Return where keys begin in a chunk that has their rows one key after another."""
        found, _ = codes([chunk.arrays[place] for place in self.by], chunk.rows, nulls=True)
        return [int(at) for at in np.flatnonzero(np.diff(found, prepend=-1))]

    def _with(self, chunk: Chunk, made: Sequence[pa.Array | None]) -> Chunk:
        arrays = tuple(
            chunk.arrays[each] if isinstance(each, int) else array
            for each, array in zip(self.order, made, strict=True)
        )
        return Chunk(chunk.rows, arrays, chunk.ids)

    def in_bucket(self, *sides: Chunk | None) -> Iterator[Chunk]:
        """Yield the rows of a bucket and their positions."""
        (chunk,) = sides
        if chunk is not None:
            found = self.partitions(chunk)
            yield Chunk(found.rows, (*found.arrays, chunk.arrays[-1]), found.ids)


class MadeValues:
    """A column that is made some rows at a time, which threads put where they belong."""

    def __init__(self, kind: pa.DataType, rows: int) -> None:
        self._kind, self._rows = kind, rows
        self._values: npt.NDArray[np.unsignedinteger] | None = None
        if pa.types.is_primitive(kind) and kind.bit_width >= 8:
            self._values = np.empty(rows, f"u{kind.bit_width // 8}")
        self._valid: npt.NDArray[np.bool_] | None = None
        self._parts: list[tuple[slice | Places, pa.Array]] = []
        self._lock = threading.Lock()

    def put(self, places: slice | Places, made: pa.Array) -> None:
        """Put values at some of the places; each place is given once."""
        if self._values is None:
            self._parts.append((places, made))
            return
        width = self._values.itemsize
        self._values[places] = np.frombuffer(
            made.buffers()[1], self._values.dtype, len(made), made.offset * width
        )
        if made.null_count:
            with self._lock:
                if self._valid is None:
                    self._valid = np.ones(self._rows, bool)
            self._valid[places] = np.asarray(made.is_valid())

    def array(self) -> pa.Array:
        """Return all values."""
        if self._values is not None:
            validity = None if self._valid is None else pa.array(self._valid).buffers()[1]
            return pa.Array.from_buffers(self._kind, self._rows, [validity, pa.py_buffer(self._values)])
        if not self._parts:
            return pa.array([], self._kind)
        made, every = pa.concat_arrays([values for _, values in self._parts]), np.arange(self._rows)
        back = np.empty(self._rows, np.int64)
        back[np.concatenate([every[places] for places, _ in self._parts])] = every
        return made.take(pa.array(back))


def _rank_of(each: int | tuple[AggregateCall, int | None]) -> RankOf | None:
    if isinstance(each, int) or each[1] is None or not needs_all_rows(each[0]):
        return None
    return RankOf(each[1], bool(each[0].k))


@dataclass(frozen=True, eq=False)
class WindowPiece(RowByRowPiece):
    """All rows of the input, with what is around them."""

    work: WindowWork

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows, some at a time; `done` of those in memory were yielded before."""
        behind, ahead = self.work.behind, self.work.ahead
        # Rows that stay in memory for their neighbours' sake are looked at again: no more than new ones.
        step = at_once = max(1, behind + ahead)
        memory: list[Chunk] = []
        rows = done = gone = size = 0
        for chunk in chain(self.below.chunks(), [None]):
            if chunk is not None:
                memory.append(chunk)
                rows, size = rows + chunk.rows, size + bytes_of(chunk)
            last = rows if chunk is None else rows - ahead
            least = step if size >= BYTES_OF_A_CHUNK else at_once
            if last <= done or (chunk is not None and last - done < least):
                continue
            # The first rows come soon, later ones in numbers that are worth two threads.
            at_once, size = max(step, min(2 * (last - done), _AT_ONCE)), 0
            held = together(memory)
            found = self.work.rows(held, done, last, gone)
            for start in range(0, found.rows, ROWS_OF_A_CHUNK):
                yield found.slice(start, ROWS_OF_A_CHUNK)
            first = max(0, last - behind)
            gone += first
            memory, rows, done = [held.slice(first)], rows - first, last - first


@dataclass(frozen=True)
class ToWindow:
    """What brings the rows of pieces together by key, when it is asked to."""

    below: tuple[Piece, ...]
    work: WindowWork
    width: int
    ids: bool

    def __call__(self) -> RowParts:
        work, columns = self.work, len(self.work.order)
        # Ranks within a key look at all of its rows: keys of equal hashes are worked on as a whole then.
        by = ByKeyHash(work.by) if work.ranks else ByColumns(work.by, (False,) * len(work.by))
        rows = gather(self.below, SortSpec(by, self.width, self.ids, positions=True))
        if rows.held is not None or not rows.rows:
            return HeldParts(None if rows.held is None else work.partitions(rows.held), 1)
        if work.ranks:
            return in_order_again([rows], work, columns, self.ids, 1)
        placed = KeyedPiece(rows, replace(work, order=(*work.order, self.width)))
        return OrderedParts(gather([placed], SortSpec(ByColumns((columns,), (False,)), columns, self.ids)), 1)


@dataclass(frozen=True, eq=False)
class KeyedPiece:
    """Rows in runs, one key after another, with what is around them of the same key.

    No more of a key is in memory than the window and what is read at a time need.
    """

    below: Gathered
    work: WindowWork

    @property
    def rows(self) -> int | None:
        """All of them."""
        return self.below.rows

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows; of the first key in memory `done` were yielded, `gone` more are left out."""
        work = self.work
        step = max(1, work.behind + work.ahead)
        memory: list[Chunk] = []
        rows = done = gone = 0
        for chunk in OrderedParts(self.below, 1).part(0):
            memory.append(chunk)
            rows += chunk.rows
            # Rows that stay in memory for their neighbours' sake are looked at again: no more than new ones.
            if rows - done < step:
                continue
            held = together(memory)
            *ends, last = work.starts(held)
            if ends:
                # The first key ends here, and so do all but the last.
                second = [*ends, last][1]
                yield work.rows(held.slice(0, second), done, second, gone)
                if second < last:
                    yield work.partitions(held.slice(second, last - second))
                held, done, gone = held.slice(last), 0, 0
            if (stop := held.rows - work.ahead) > done:
                yield work.rows(held, done, stop, gone)
                first = max(0, stop - work.behind)
                held, done, gone = held.slice(first), stop - first, gone + first
            memory, rows = [held], held.rows
        yield from self._last(together(memory), done, gone)

    def _last(self, held: Chunk, done: int, gone: int) -> Iterator[Chunk]:
        """Yield the rows that are left."""
        for first, stop in pairwise([*self.work.starts(held), held.rows]):
            yield self.work.rows(held.slice(first, stop - first), done, stop - first, gone)
            done = gone = 0


@dataclass(frozen=True)
class ToRank:
    """What gives all rows their places and ranks, as columns after `width` others, when it is asked to."""

    below: tuple[Piece, ...]
    ranks: tuple[RankOf, ...]
    width: int
    ids: bool

    def __call__(self) -> RowParts:
        pieces = [PlacedPiece(piece, number) for number, piece in enumerate(self.below)]
        rows = gather(pieces, self._by(self.ranks[0], 0))
        if rows.held is not None or not rows.rows:
            return HeldParts(None if rows.held is None else self._ranked(rows.held), 1)
        # Each time the rows come in the order of other values, at last in that of their places.
        orders = (*self.ranks[1:], RankOf(self.width, descending=False))
        for made, (rank, following) in enumerate(zip(self.ranks, orders, strict=True), 1):
            rows = gather([RankedPiece(rows, rank.at)], self._by(following, made))
        return OrderedParts(rows, 1)

    def _by(self, rank: RankOf, made: int) -> SortSpec:
        """Order rows that have so many ranks by the values of another one."""
        return SortSpec(ByColumns((rank.at,), (rank.descending,)), self.width + 1 + made, self.ids)

    def _ranked(self, rows: Chunk) -> Chunk:
        made = (_ranks(rows.arrays[each.at], descending=each.descending) for each in self.ranks)
        return Chunk(rows.rows, (*rows.arrays, *made), rows.ids)


def _ranks(values: pa.Array, *, descending: bool) -> pa.Array:
    """Return the rank of each of all values."""
    order = places_in_order([values], (descending,))
    found = np.empty(len(values), np.int64)
    found[order] = RanksInOrder()(values.take(pa.array(order)))
    return pa.array(found)


@dataclass(frozen=True, eq=False)
class PlacedPiece(RowByRowPiece):
    """A piece whose rows know their places, which are in the order of the pieces."""

    number: int

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows, their places last."""
        start = position(self.number, 0)
        for chunk in self.below.chunks():
            places = pa.array(np.arange(start, start + chunk.rows))
            yield Chunk(chunk.rows, (*chunk.arrays, places), chunk.ids)
            start += chunk.rows


@dataclass(frozen=True, eq=False)
class RankedPiece:
    """All rows in the order of the values of a column, with their ranks."""

    below: Gathered
    at: int

    @property
    def rows(self) -> int | None:
        """All of them."""
        return self.below.rows

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows, their ranks last."""
        ranks = RanksInOrder()
        for chunk in OrderedParts(self.below, 1).part(0):
            yield Chunk(chunk.rows, (*chunk.arrays, pa.array(ranks(chunk.arrays[self.at]))), chunk.ids)
