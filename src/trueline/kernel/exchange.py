"""Rows in another order, or brought together by key: what sort, shuffle, group, join and window go through.

Rows are collected by a few threads. While they fit in memory they stay there as they come. Beyond that each
thread sorts what it has and writes it as a run (`external_sort`). Results come in as many pieces as a reader
likes: ranges of an order, or what is made of rows with equal keys, bucket by bucket, put back in order.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Generic, Protocol, TypeVar

import pyarrow as pa

from trueline.errors import InputError
from trueline.kernel.chunk import ROWS_OF_A_CHUNK, Chunk, Piece, PieceChain, bytes_of, together
from trueline.kernel.comparison import places_in_order
from trueline.kernel.external_sort import (
    Combine,
    SortedRun,
    SortSpec,
    between,
    bucket,
    cut_points,
    position,
    write_run,
)
from trueline.kernel.read_ahead import THREADS
from trueline.kernel.spill import MEMORY_VARIABLE, SpillFolder
from trueline.kernel.value_hash import Salt, hash_ids, hash_values
from trueline.kernel.word_order import Places

# Stretches of pieces for each thread: enough that none waits long for the others.
_STRETCHES: Final = 4
# Rows are written and put together so many bytes at a time at least, however small the budget.
_LEAST: Final = 512
# Pieces for each thread, where a reader does not say how many.
_PIECES: Final = 2
# Rows that are combined at a time at most.
_ROWS_TO_COMBINE: Final = 1 << 21
# Bytes of rows that are put together at a time.
_BYTES: Final = 64 << 20

_DEFAULT_MB: Final = 1_024
# One Arrow array holds less than 2 GB of text, and rows held in memory are put together in one.
_MOST_MB: Final = 1_536

T = TypeVar("T")


# --- orderings ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ByColumns:
    """The values of some columns of a chunk, by where they are there."""

    at: tuple[int, ...]
    descending: tuple[bool, ...]

    def keys(self, chunk: Chunk) -> Sequence[pa.Array]:
        """Return the columns."""
        return [chunk.arrays[place] for place in self.at]


@dataclass(frozen=True)
class ByKeyHash:
    """A hash of key columns, by where they are in a chunk."""

    at: tuple[int, ...]
    descending: tuple[bool, ...] = (False,)

    def keys(self, chunk: Chunk) -> Sequence[pa.Array]:
        """Return the hashes."""
        found = hash_values([chunk.arrays[place] for place in self.at], chunk.rows, Salt.of("exchange", 0))
        return [pa.array(found)]


@dataclass(frozen=True)
class ByIdHash:
    """A hash of the row ids."""

    salt: Salt
    descending: tuple[bool, ...] = (False,)

    def keys(self, chunk: Chunk) -> Sequence[pa.Array]:
        """Return the hashes."""
        assert chunk.ids is not None
        return [pa.array(hash_ids(chunk.ids, self.salt))]


# --- collecting rows ------------------------------------------------------------------------


def memory_budget() -> int:
    """Return how many bytes of rows an operator holds in memory before it writes files.

    1 GB, or what the variable TRUELINE_VIEW_MEMORY_MB says, at most 1,536 MB.
    """
    given = os.environ.get(MEMORY_VARIABLE, "").strip()
    if not given:
        return _DEFAULT_MB << 20
    if not given.isdecimal() or not int(given):
        raise InputError(
            f"{MEMORY_VARIABLE} is {given!r}, which is not a number of megabytes",
            remedy="give a whole number, 1 or more",
            code="ConfigError",
        )
    return min(int(given), _MOST_MB) << 20


class MemoryShare:
    """How much memory the threads of one exchange share, and where rows go when it was too little."""

    def __init__(self, budget: int, threads: int) -> None:
        self.budget = self.left = budget
        self._folder: SpillFolder | None = None
        self.run_bytes = max(_LEAST, budget // (4 * threads))
        self.spilling = budget <= 0
        self.stopped = False
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """Take some memory."""
        with self._lock:
            self.left -= size
            self.spilling = self.spilling or self.left < 0

    @property
    def folder(self) -> SpillFolder:
        """The folder of the exchange, made when rows first go there."""
        with self._lock:
            self._folder = self._folder or SpillFolder()
            return self._folder

    def close(self) -> None:
        """Remove what was written."""
        if self._folder is not None:
            self._folder.remove()


@dataclass(frozen=True)
class Routed:
    """What became of a stretch of the input: runs, parts of rows, and rows that are still in memory."""

    runs: tuple[SortedRun, ...]
    held: tuple[Chunk, ...]
    first: int  # the number of the first row that is held
    parts: tuple[Chunk, ...] = ()


class _Held:
    """The rows of a stretch that are in memory, and what became of those before them."""

    def __init__(self, number: int, spec: SortSpec, memory: MemoryShare) -> None:
        self.number, self.spec, self.memory = number, spec, memory
        self.runs: list[SortedRun] = []
        self.chunks: list[Chunk] = []
        self.parts: list[Chunk] = []
        self.size = self.rows = self.first = self.combined = 0

    def add(self, chunk: Chunk) -> None:
        """Hold some rows; combine all that are held, or write them, where they are many."""
        self.chunks.append(chunk)
        size = bytes_of(chunk)
        self.size, self.rows = self.size + size, self.rows + chunk.rows
        self.memory.add(size)
        if self.spec.combine is not None:
            if self.size >= self.memory.run_bytes or self.rows >= _ROWS_TO_COMBINE:
                self._combine(self.spec.combine)
        elif self.memory.spilling and self.size >= self.memory.run_bytes:
            self.runs.append(write_run(self.chunks, self.number, self.first, self.spec, self.memory.folder))
            self._forget(0)

    def _forget(self, kept: int) -> None:
        self.memory.add(kept - self.size)
        self.first += self.rows
        self.chunks, self.size, self.rows = [], 0, 0

    def _combine(self, combine: Combine) -> None:
        """Make parts of the rows; parts are put together when they are twice what was left of them before."""
        self.parts.append(combine.of_rows(together(self.chunks), position(self.number, self.first)))
        self._forget(bytes_of(self.parts[-1]))
        before = sum(map(bytes_of, self.parts))
        if before < max(self.memory.run_bytes, 2 * self.combined):
            return
        if len(self.parts) > 1:
            self.parts = [combine.of_parts(together(self.parts))]
        self.combined = bytes_of(self.parts[0])
        self.memory.add(self.combined - before)
        if self.memory.spilling and 2 * self.combined >= self.memory.run_bytes:
            self.runs.append(write_run(self.parts, self.number, 0, self.spec, self.memory.folder))
            self.memory.add(-self.combined)
            self.parts, self.combined = [], 0


def route(piece: Piece, number: int, spec: SortSpec, memory: MemoryShare) -> Routed:
    """Read a stretch of the input; hold its rows, or write them as runs where there is no room.

    This is all that an exchange asks of a worker: one elsewhere needs a share of no bytes, and a folder.
    """
    held = _Held(number, spec, memory)
    for chunk in piece.chunks():
        if memory.stopped:
            break
        if chunk.rows:
            held.add(chunk)
    return Routed(tuple(held.runs), tuple(held.chunks), held.first, tuple(held.parts))


@dataclass(frozen=True)
class Gathered:
    """All rows of an exchange, or parts of them (`combined`): held in memory in order, or in runs."""

    spec: SortSpec
    held: Chunk | None
    runs: tuple[SortedRun, ...]
    memory: MemoryShare
    combined: bool = False

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.held.rows if self.held is not None else sum(run.stored.rows for run in self.runs)

    @property
    def size(self) -> int:
        """How many bytes they take."""
        return bytes_of(self.held) if self.held is not None else sum(run.size for run in self.runs)

    @property
    def part_bytes(self) -> int:
        """How many bytes of runs are put together at a time."""
        return max(_LEAST, self.memory.budget // (4 * THREADS))

    def in_runs(self) -> Gathered:
        """Return the same in runs, for rows that meet others which do not fit in memory."""
        if self.held is None:
            return self
        run = write_run([self.held], 0, 0, self.spec, self.memory.folder)
        return Gathered(self.spec, None, (run,), self.memory)


def gather(pieces: Sequence[Piece], spec: SortSpec, *, threads: int = THREADS) -> Gathered:
    """Read pieces by a few threads and gather their rows."""
    memory = MemoryShare(memory_budget(), threads)
    try:
        routed = _routed(_stretches(pieces, threads * _STRETCHES), spec, memory, threads)
    except BaseException:
        memory.close()
        raise
    combined = spec.combine is not None and (memory.spilling or any(each.parts for each in routed))
    if combined:
        routed = [_all_in_parts(each, number, spec) for number, each in enumerate(routed)]
    if not memory.spilling:
        chunks = [chunk for each in routed for chunk in each.held]
        return Gathered(spec, together(chunks) if chunks else None, (), memory, combined)
    runs: list[SortedRun] = []
    for number, each in enumerate(routed):
        runs += each.runs
        if each.held:
            runs.append(write_run(each.held, number, each.first, spec, memory.folder))
    return Gathered(spec, None, tuple(runs), memory, combined)


def _all_in_parts(routed: Routed, number: int, spec: SortSpec) -> Routed:
    """Return what became of a stretch with no rows in memory but parts."""
    parts = routed.parts
    if routed.held and spec.combine is not None:
        parts += (spec.combine.of_rows(together(routed.held), position(number, routed.first)),)
    return Routed(routed.runs, parts, 0)


def _routed(stretches: Sequence[Piece], spec: SortSpec, memory: MemoryShare, threads: int) -> list[Routed]:
    if len(stretches) < 2 or threads < 2:
        return [route(piece, number, spec, memory) for number, piece in enumerate(stretches)]
    with ThreadPoolExecutor(threads, thread_name_prefix="trueline-exchange") as pool:
        waiting = [pool.submit(route, piece, number, spec, memory) for number, piece in enumerate(stretches)]
        try:
            return [each.result() for each in waiting]
        except BaseException:
            memory.stopped = True
            for each in waiting:
                each.cancel()
            raise


def _stretches(pieces: Sequence[Piece], most: int) -> list[Piece]:
    """Put neighbours together, so that runs are few and large however small the pieces are."""
    parts = min(len(pieces), most)
    cuts = [len(pieces) * part // parts for part in range(parts + 1)] if parts else []
    return [PieceChain(tuple(pieces[start:stop])) for start, stop in pairwise(cuts)]


# --- results, in parts ----------------------------------------------------------------------


class RowParts(Protocol):
    """Rows in so many parts, of which each can be read by itself."""

    def part(self, number: int) -> Iterator[Chunk]:
        """Yield the rows of one part."""


@dataclass(frozen=True)
class HeldParts:
    """Rows in memory that are in order already; None if there are none."""

    chunk: Chunk | None
    parts: int

    def part(self, number: int) -> Iterator[Chunk]:
        """Yield the rows of one part."""
        if self.chunk is not None:
            low, high = (self.chunk.rows * (number + at) // self.parts for at in (0, 1))
            step = _step(self.chunk)
            for start in range(low, high, step):
                yield self.chunk.slice(start, min(step, high - start))


class OrderedParts:
    """All rows of an exchange in order, in parts of about the same size; positions of runs come last."""

    def __init__(self, gathered: Gathered, parts: int) -> None:
        self.gathered = gathered
        self.parts = parts
        spec = gathered.spec
        if gathered.held is not None:
            keys = list(spec.order.keys(gathered.held))
            self._order = places_in_order(keys, spec.order.descending)
            self._held = spec.carried(gathered.held)
            return
        self._steps = max(1, -(-gathered.size // (parts * gathered.part_bytes)))
        self._cuts = cut_points(gathered.runs, spec.order.descending, parts * self._steps)

    def part(self, number: int) -> Iterator[Chunk]:
        """Yield the rows of one part."""
        if self.gathered.held is not None:
            rows = len(self._order)
            yield from _taken(
                self._held, self._order[rows * number // self.parts : rows * (number + 1) // self.parts]
            )
            return
        descending = self.gathered.spec.order.descending
        for step in range(number * self._steps, (number + 1) * self._steps):
            found = between(self.gathered.runs, self._cuts[step], self._cuts[step + 1])
            if found is not None:
                chunk, keys = found
                if self.gathered.spec.positions:
                    chunk = Chunk(chunk.rows, (*chunk.arrays, keys[-1]), chunk.ids)
                yield from _taken(chunk, places_in_order(keys[: len(descending)], descending))


def _step(chunk: Chunk) -> int:
    """Say how many rows are handed on at a time: fewer where rows are large."""
    if not chunk.rows:
        return ROWS_OF_A_CHUNK
    return max(1, min(ROWS_OF_A_CHUNK, _BYTES * chunk.rows // max(1, bytes_of(chunk))))


def _taken(chunk: Chunk, places: Places) -> Iterator[Chunk]:
    """Yield the rows at these places, some at a time."""
    step = _step(chunk)
    for start in range(0, len(places), step):
        yield from _taken_at_once(chunk, places[start : start + step])


def _taken_at_once(chunk: Chunk, places: Places) -> Iterator[Chunk]:
    try:
        found = chunk.take(places)
    except pa.ArrowInvalid:
        # More than 2 GB of text, where many rows are one large one.
        if len(places) < 2:
            raise
        middle = len(places) // 2
        yield from _taken_at_once(chunk, places[:middle])
        yield from _taken_at_once(chunk, places[middle:])
        return
    yield found


# --- bucket by bucket -----------------------------------------------------------------------


class BucketWork(Protocol):
    """What is made of all rows whose keys have hashes in one range; it can be pickled."""

    def in_bucket(self, *sides: Chunk | None) -> Iterator[Chunk]:
        """Yield rows and, as their last column, the positions that put them in order.

        The chunks have positions as their last columns too; None is a side without rows.
        """


@dataclass(frozen=True, eq=False)
class BucketPiece:
    """The rows that are made in one bucket."""

    sides: tuple[Gathered, ...]
    number: int
    buckets: int
    work: BucketWork

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows and their positions."""
        chunks = [bucket(side.runs, self.number, self.buckets) for side in self.sides]
        if any(chunk is not None for chunk in chunks):
            yield from self.work.in_bucket(*chunks)


def in_order_again(
    sides: Sequence[Gathered], work: BucketWork, columns: int, ids: bool, parts: int
) -> OrderedParts:
    """Do the work on rows in runs bucket by bucket, and put what it makes in the order of its positions."""
    buckets = -(-max(side.size for side in sides) // sides[0].part_bytes)
    pieces = [BucketPiece(tuple(sides), number, buckets, work) for number in range(buckets)]
    return OrderedParts(gather(pieces, SortSpec(ByColumns((columns,), (False,)), columns, ids)), parts)


# --- once for all readers -------------------------------------------------------------------


class Once(Generic[T]):
    """Something that is made when it is first asked for, by one thread, for all who ask.

    It can be pickled before: the receiver makes its own.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._lock = threading.Lock()
        self._made: list[T] = []
        self._error: BaseException | None = None

    def __call__(self) -> T:
        with self._lock:
            if self._error is not None:
                raise self._error
            if not self._made:
                assert self._make is not None
                try:
                    self._made.append(self._make())
                except BaseException as error:
                    self._error = error
                    raise
                # What it was made of may hold memory and files of its own.
                self._make = None
            return self._made[0]

    def __reduce__(self) -> tuple[Any, ...]:
        if self._make is None:
            raise TypeError("rows that were read already cannot be sent elsewhere: open the view again")
        return Once, (self._make,)


@dataclass(frozen=True, eq=False)
class SharedPiece:
    """One part of what is made once; the first reader of a part makes all of them."""

    shared: Once[Any]
    number: int
    rows: int | None = None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        yield from self.shared().part(self.number)


@dataclass(frozen=True)
class ToOrder:
    """What orders the rows of pieces, when it is asked to."""

    below: tuple[Piece, ...]
    spec: SortSpec
    parts: int

    def __call__(self) -> OrderedParts:
        return OrderedParts(gather(self.below, self.spec), self.parts)


def ordered_pieces(below: Sequence[Piece], spec: SortSpec, parts: int) -> list[Piece]:
    """Return the rows of pieces in another order, in so many pieces."""
    shared = Once(ToOrder(tuple(below), spec, parts))
    return [SharedPiece(shared, number) for number in range(parts)]


def how_many(wished: int, total: int | None) -> int:
    """Say in how many pieces rows that are gathered first should come."""
    parts = max(wished, _PIECES * THREADS)
    return parts if total is None else min(parts, total)
