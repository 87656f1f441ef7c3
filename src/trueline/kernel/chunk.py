"""Rows on their way: chunks of them in memory, and pieces that one reader reads chunk by chunk.

A view put after itself forty times has 2**40 pieces; a reader of the first rows needs one of them. So long
sequences of pieces make what they are asked for.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import Final, Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline.identity import RowIds
from trueline.kernel.read_ahead import THREADS, ReadAhead

S = TypeVar("S")
T = TypeVar("T")
# Fewer rows than this are worked on by one thread.
_MANY: Final = 1 << 18

ROWS_OF_A_CHUNK: Final = 65_536
# Of wide rows fewer are put together: text of more than 2 GiB is no array.
BYTES_OF_A_CHUNK: Final = 64 << 20
# So many neighbours one thread reads in one go, where nothing that is read is let go: with a handover between
# threads for each of 77 pieces, a filter of 5 M rows took 26 ms of the processor, with ten 19, with none 18.
_NEIGHBOURS: Final = 8
# Shares of the pieces for each thread: enough that none waits long for the others.
_SHARES: Final = 4
# So many are as well made at once.
_FEW: Final = 4_096

# The C library gives memory back to the system that is freed above twice the largest array it saw freed, at
# first 0.25 MB: what a block of rows takes would be given back and taken again block by block. With this one
# freed the hashes of 5 M short texts took 0.1 s of a processor, without 0.28.
np.empty(8 << 20, np.uint8)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows: an array for each column that was wanted, of exactly the column's Arrow type.

    Vectors alone may come in one of two encodings (`trueline.kernel.vectors`).
    With no columns there are still rows, and ids if they were wanted (view:C33).
    """

    rows: int
    arrays: tuple[pa.Array, ...]
    ids: RowIds | None = None

    def slice(self, start: int, count: int | None = None) -> Chunk:
        """Return the rows from number `start` on."""
        left = max(0, self.rows - start)
        rows = left if count is None else min(left, count)
        ids = None if self.ids is None else self.ids[start : start + rows]
        return Chunk(rows, tuple(array.slice(start, rows) for array in self.arrays), ids)

    def take(self, places: npt.NDArray[np.int64]) -> Chunk:
        """Return the rows at these places, in this order."""
        at = pa.array(places)
        ids = None if self.ids is None else RowIds(self.ids.low[places], self.ids.high[places])
        return Chunk(len(places), tuple(array.take(at) for array in self.arrays), ids)

    def filter(self, mask: npt.NDArray[np.bool_] | pa.BooleanArray) -> Chunk:
        """Return the rows where a mask, which has no nulls, is true."""
        chosen = pa.array(mask) if isinstance(mask, np.ndarray) else mask
        kept = chosen.true_count
        if kept == self.rows:
            return self
        ids = None if self.ids is None else self.ids[np.asarray(chosen)]
        arrays = [_bare(array, chosen) for array in self.arrays]
        if len(arrays) < 2:
            return Chunk(kept, tuple(array.filter(chosen) for array in arrays), ids)
        # Together: the mask is turned into places once, which is most of the work.
        batch = pa.RecordBatch.from_arrays(arrays, names=list(map(str, range(len(arrays)))))
        return Chunk(kept, tuple(batch.filter(chosen).columns), ids)

    def select(self, places: Sequence[int], *, ids: bool = True) -> Chunk:
        """Return some of the arrays, by their positions here."""
        return Chunk(self.rows, tuple(self.arrays[place] for place in places), self.ids if ids else None)


def _bare(array: pa.Array, chosen: pa.BooleanArray) -> pa.Array:
    """Return values without their nulls if none of those is chosen: they are filtered in half the time."""
    if not array.null_count or not pa.types.is_primitive(array.type):
        return array
    if pc.and_(chosen, array.is_null()).true_count:
        return array
    return pa.Array.from_buffers(array.type, len(array), [None, array.buffers()[1]], 0, array.offset)


def joined(chunks: Sequence[Chunk], kinds: Sequence[pa.DataType], *, ids: bool) -> Chunk:
    """Return chunks one after another as one."""
    from trueline.kernel.vectors import concatenated

    arrays = tuple(
        concatenated([chunk.arrays[place] for chunk in chunks], kind) for place, kind in enumerate(kinds)
    )
    found = RowIds.concat([chunk.ids for chunk in chunks if chunk.ids is not None]) if ids else None
    return Chunk(sum(chunk.rows for chunk in chunks), arrays, found)


def together(chunks: Sequence[Chunk]) -> Chunk:
    """Return chunks of the same columns as one; there is at least one."""
    if len(chunks) == 1:
        return chunks[0]
    kinds = []
    for place in range(len(chunks[0].arrays)):
        found = dict.fromkeys(chunk.arrays[place].type for chunk in chunks)
        # Vectors alone may come in two encodings; together they are dense.
        kinds.append(next((kind for kind in found if not pa.types.is_struct(kind)), next(iter(found))))
    return joined(chunks, kinds, ids=chunks[0].ids is not None)


def bytes_of(chunk: Chunk) -> int:
    """Return how many bytes rows take in memory."""
    ids = 0 if chunk.ids is None else 16 * chunk.rows
    return ids + sum(int(array.nbytes) for array in chunk.arrays)


# --- pieces ---------------------------------------------------------------------------------


class Piece(Protocol):
    """Some consecutive rows of a node, which one reader reads; it can be pickled and read elsewhere.

    Making one reads nothing. Reading it reads nothing that belongs to another piece.
    """

    @property
    def rows(self) -> int | None:
        """How many rows it has, None if that takes reading."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order; closing the iterator lets go of everything it holds."""


@dataclass(frozen=True, eq=False)
class RowByRowPiece:
    """A piece that has a row for each row of another one."""

    below: Piece

    @property
    def rows(self) -> int | None:
        """As many as the other has."""
        return self.below.rows


@dataclass(frozen=True)
class PieceChain:
    """Pieces read one after another, as one piece."""

    parts: Sequence[Piece]

    @property
    def rows(self) -> int | None:
        """The sum, if all are known."""
        total = 0
        for part in self.parts:
            rows = part.rows
            if rows is None:
                return None
            total += rows
        return total

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order."""
        for part in self.parts:
            yield from part.chunks()


def as_one(pieces: Sequence[Piece]) -> Piece:
    """Return pieces as one that reads them one after another."""
    return pieces[0] if len(pieces) == 1 else PieceChain(pieces)


class _LazyPieces(Sequence[Piece]):
    """A sequence that makes what it is asked for."""

    @overload
    def __getitem__(self, at: int) -> Piece: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Piece]: ...
    def __getitem__(self, at: int | slice) -> Piece | Sequence[Piece]:
        if isinstance(at, slice):
            return SlicedPieces(self, range(len(self))[at])
        return self._at(range(len(self))[at])

    def _at(self, place: int) -> Piece:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class ConcatenatedPieces(_LazyPieces):
    """Sequences of pieces, none of them empty, one after another."""

    parts: tuple[Sequence[Piece], ...]

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(len(part) for part in self.parts))

    def __len__(self) -> int:
        return min(self._ends[-1], sys.maxsize)

    def __iter__(self) -> Iterator[Piece]:
        return chain.from_iterable(self.parts)

    def _at(self, place: int) -> Piece:
        number = bisect_right(self._ends, place)
        return self.parts[number][place - (self._ends[number - 1] if number else 0)]


@dataclass(frozen=True, eq=False)
class SlicedPieces(_LazyPieces):
    """Pieces of a sequence, by their places in it."""

    whole: Sequence[Piece]
    places: range

    def __len__(self) -> int:
        return len(self.places)

    def _at(self, place: int) -> Piece:
        return self.whole[self.places[place]]


@dataclass(frozen=True, eq=False)
class MappedPieces(_LazyPieces):
    """Pieces made of others, one of each."""

    below: Sequence[Piece]
    make: Callable[[Piece], Piece]

    def __len__(self) -> int:
        return len(self.below)

    def __iter__(self) -> Iterator[Piece]:
        return map(self.make, self.below)

    def _at(self, place: int) -> Piece:
        return self.make(self.below[place])


def concat_pieces(parts: Sequence[Sequence[Piece]]) -> Sequence[Piece]:
    """Return the pieces of several sequences one after another."""
    some = tuple(part for part in parts if part)
    if sum(len(part) for part in some) <= _FEW:
        return list(chain.from_iterable(some))
    return some[0] if len(some) == 1 else ConcatenatedPieces(some)


def map_pieces(pieces: Sequence[Piece], make: Callable[[Piece], Piece]) -> Sequence[Piece]:
    """Return a piece made of each."""
    return MappedPieces(pieces, make) if len(pieces) > _FEW else [make(piece) for piece in pieces]


def in_order(pieces: Sequence[Piece], threads: int = THREADS) -> Iterator[tuple[int, Chunk]]:
    """Yield (number of the piece, chunk) in the order of the pieces, which threads read ahead.

    Nothing is read before the first chunk is asked for. Closing the iterator ends the threads.
    """
    if len(pieces) < 2 or threads < 2:
        for number, piece in enumerate(pieces):
            for chunk in piece.chunks():
                yield number, chunk
        return
    with ReadAhead(lambda number: pieces[number].chunks(), len(pieces), min(threads, len(pieces))) as ahead:
        yield from ahead.run()


def all_chunks(pieces: Sequence[Piece], make: Callable[[Chunk], T], threads: int = THREADS) -> list[T]:
    """Return what is made of each chunk in the order of the pieces; threads read, and make."""
    if len(pieces) < 2 or threads < 2:
        return [make(chunk) for piece in pieces for chunk in piece.chunks()]
    step = min(_NEIGHBOURS, max(1, len(pieces) // (_SHARES * threads)))

    def share(number: int) -> Iterator[list[T]]:
        made, rows = [], 0
        for piece in pieces[number * step : (number + 1) * step]:
            for chunk in piece.chunks():
                made.append(make(chunk))
                rows += chunk.rows
                if rows >= _NEIGHBOURS * ROWS_OF_A_CHUNK:
                    yield made
                    made, rows = [], 0
        yield made

    shares = -(-len(pieces) // step)
    with ReadAhead(share, shares, min(threads, shares)) as ahead:
        return [each for _, made in ahead.run() for each in made]


def on_threads(work: Callable[[S], T], items: Sequence[S], rows: int) -> list[T]:
    """Do some work for each item, by a few threads where there are many rows to look at."""
    if len(items) < 2 or rows < _MANY or THREADS < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(THREADS, len(items)), thread_name_prefix="trueline-work") as pool:
        return list(pool.map(work, items))
