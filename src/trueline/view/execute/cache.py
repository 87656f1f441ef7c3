"""Rows that are kept once they were read: each column of each row is computed once (view:C104).

Rows, ids and order are those of the input, and all of them can be shuffled. Columns are computed when a
reader first wants them, by the first that wants them, for all readers; how far rows were read is remembered.
Beyond the budget rows go to files. All of it is let go with the last view and cursor that rest on it.

Where a reader leaves before the end and nobody else reads, nothing stays open. The next one has what is kept
and goes on from there: pieces of the input that were read are not read again, and of the one in which the
first reader left its rows are passed over once more, since only its start is known (a file, a group of rows).
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from trueline.kernel.chunk import ROWS_OF_A_CHUNK, Chunk, Piece, PieceChain, bytes_of, in_order
from trueline.kernel.exchange import memory_budget
from trueline.kernel.read_ahead import THREADS
from trueline.kernel.spill import SpilledChunk, SpillFolder, store
from trueline.view.execute.dispatch import is_in_memory, pieces, row_count, serial
from trueline.view.execute.zip import abreast
from trueline.view.plan.cache import Cache
from trueline.view.plan.limit import Limit
from trueline.view.plan.node import Node, NodeState, Want


class CachedColumns:
    """Columns that are read together, and how far they were read."""

    def __init__(self, kept: CachedRows, want: Want) -> None:
        self.kept, self.want = kept, want
        self.ended = False
        self.ends = [0]  # how many rows there are up to the end of each chunk
        self._chunks: list[Chunk | SpilledChunk] = []
        self._lock = threading.Lock()
        self._readers = 0
        self._pieces: Sequence[Piece] | None = None
        self._stream: Iterator[tuple[int, Chunk]] | None = None
        self._begun = 0  # the piece the stream begins with
        self._place, self._taken = 0, 0  # the piece that is read, and how many of its rows are kept
        self._again = 0  # how many of these the stream has yet to pass over

    @property
    def complete(self) -> bool:
        """Whether all rows were read: the end was seen, or there are as many as there can be."""
        return self.ended or self.ends[-1] == self.kept.total

    def chunks(self, first: int, last: int | None) -> Iterator[Chunk]:
        """Yield rows `first` up to `last`; read those that nobody has read before."""
        with self._lock:
            self._readers += 1
        number = 0
        try:
            while True:
                with self._lock:
                    if number == 0:
                        number = bisect_right(self.ends, first) - 1
                    while number >= len(self._chunks) and not self.complete:
                        self._read()
                    if number >= len(self._chunks):
                        return
                    found, start, end = self._chunks[number], self.ends[number], self.ends[number + 1]
                chunk = found.load() if isinstance(found, SpilledChunk) else found
                skip = max(0, first - start)
                yield chunk.slice(skip, (end if last is None else min(end, last)) - start - skip)
                number += 1
                if last is not None and end >= last:
                    return
        finally:
            with self._lock:
                self._readers -= 1
                if self._readers == 0:
                    self._leave()

    def _read(self) -> None:
        """Read the next chunk; the lock is held, since all who wait want it."""
        if self._stream is None:
            self._stream = self._opened()
        try:
            found = next(self._stream, None)
        except BaseException:
            self._leave()
            raise
        if found is None:
            self.ended = True
            self._leave()
            return
        number, chunk = found
        if self._begun + number != self._place:
            self._place, self._taken, self._again = self._begun + number, 0, 0
        new = chunk.slice(self._again) if self._again else chunk
        self._again -= chunk.rows - new.rows
        if new.rows:
            self._chunks.append(self.kept.keep(new))
            self.ends.append(self.ends[-1] + new.rows)
            self._taken += new.rows

    def _opened(self) -> Iterator[tuple[int, Chunk]]:
        below = self.kept.below
        if self._pieces is None:
            self._pieces = pieces(below, self.want)
        self._begun, self._again = self._place, self._taken
        rest = self._pieces[self._begun :] if self._begun else self._pieces
        return in_order(rest, 1 if is_in_memory(below) else THREADS)

    def _leave(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None and hasattr(stream, "close"):
            stream.close()


class CachedRows:
    """All that was read of a node so far."""

    def __init__(self, below: Node) -> None:
        self.below = below
        self._lock = threading.Lock()
        self._fills: dict[int | None, CachedColumns] = {}  # by column; None are the ids
        self._left = memory_budget()
        self._folder = SpillFolder()

    @property
    def total(self) -> int | None:
        """How many rows there are, if the input says so or the end was seen."""
        known = row_count(self.below)
        if known is not None:
            return known
        with self._lock:
            return next((fill.ends[-1] for fill in self._fills.values() if fill.ended), None)

    def is_filled(self, want: Want) -> bool:
        """Say whether all that is wanted was read to the end; with no columns, whether anything was."""
        with self._lock:
            keys = self._keys(want) or list(self._fills)[:1] or [None]
            found = [self._fills.get(key) for key in keys]
        return all(fill is not None and fill.complete for fill in found)

    def fills(self, want: Want) -> list[CachedColumns]:
        """Return what holds the columns that are wanted; those that nobody has wanted before are one more."""
        with self._lock:
            new = [key for key in self._keys(want) if key not in self._fills]
            if new or not self._fills:
                columns = tuple(key for key in new if key is not None)
                fill = CachedColumns(self, Want(columns, ids=None in new))
                self._fills.update(dict.fromkeys(new or (-1,), fill))
            return list(dict.fromkeys(self._fills[key] for key in self._keys(want))) or [
                next(iter(self._fills.values()))
            ]

    def _keys(self, want: Want) -> list[int | None]:
        return [*want.columns, *([None] if want.ids else [])]

    def keep(self, chunk: Chunk) -> Chunk | SpilledChunk:
        """Keep rows in memory, or in a file where there is no room."""
        size = bytes_of(chunk)
        with self._lock:
            held = size <= self._left
            self._left -= size if held else 0
        return chunk if held else store(chunk, self._folder)


_kept: Final = NodeState[CachedRows](lambda node: CachedRows(node.below))


@row_count.register(Cache)
def _row_count(node: Cache) -> int | None:
    """That of the input, or known once all rows were read (view:C29, view:C104)."""
    return _kept.of(node).total


@serial.register(Cache)
def _serial(node: Cache) -> str | None:
    return None if _kept.of(node).is_filled(Want(())) else node.serial


@pieces.register(Cache)
def _cache(node: Cache, want: Want) -> Sequence[Piece]:
    """Return equal parts of rows that are kept, else one piece."""
    kept, plain = _kept.of(node), Want(want.columns, want.ids)
    total = kept.total
    if total is None or not kept.is_filled(plain):
        return [CachePiece(kept, plain, 0, None)]
    parts = min(total, max(want.parts, THREADS, -(-total // ROWS_OF_A_CHUNK)))
    cuts = [total * part // parts for part in range(parts + 1)] if parts else []
    return [CachePiece(kept, plain, first, last) for first, last in pairwise(cuts)]


@dataclass(frozen=True, eq=False)
class CachePiece:
    """Rows `first` up to `last`, or all of them. Elsewhere, they are read from the input."""

    kept: CachedRows
    want: Want
    first: int
    last: int | None

    @property
    def rows(self) -> int | None:
        """Known of rows that are kept."""
        return None if self.last is None else self.last - self.first

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        fills = self.kept.fills(self.want)
        places: list[tuple[int, int]] = []
        for column in self.want.columns:
            number = next(at for at, fill in enumerate(fills) if column in fill.want.columns)
            places.append((number, fills[number].want.columns.index(column)))
        for chunks in abreast([fill.chunks(self.first, self.last) for fill in fills]):
            ids = next((chunk.ids for chunk in chunks if chunk.ids is not None), None)
            arrays = tuple(chunks[number].arrays[place] for number, place in places)
            yield Chunk(chunks[0].rows, arrays, ids if self.want.ids else None)

    def __reduce__(self) -> tuple[Any, ...]:
        count = None if self.last is None else self.last - self.first
        return PieceChain, (tuple(pieces(Limit(self.kept.below, self.first, count), self.want)),)
