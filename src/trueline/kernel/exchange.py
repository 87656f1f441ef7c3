"""Rows in another order, or brought together by key: what sort, shuffle, group and join go through.

Rows are collected by a few threads. While they fit in memory they stay there as they come. Beyond
that each thread sorts what it has, writes it as a *run*, and goes on; in the end every run is
cut at the same keys, so that part i of each makes part i of the whole. Runs are numbered by where
their rows came from: equal rows keep their order, however many threads there were.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from trueline.kernel.chunk import Chunk, bytes_of, together
from trueline.kernel.comparison import places_in_order
from trueline.kernel.pieces import Piece, PieceChain
from trueline.kernel.read_ahead import THREADS
from trueline.kernel.spill import Folder, Stored, memory_budget, store

# A row's position is the number of its stretch and its number there.
_STRETCH: Final = 40
# Stretches of pieces for each thread: enough that none waits long for the others.
_STRETCHES: Final = 4
# Rows are written and put together so many bytes at a time at least, however small the budget.
_LEAST: Final = 512

T = TypeVar("T")


class Ordering(Protocol):
    """What rows are ordered by; it can be pickled."""

    @property
    def descending(self) -> tuple[bool, ...]:
        """Which of the keys fall."""

    def keys(self, chunk: Chunk) -> Sequence[pa.Array]:
        """Return the keys of some rows."""


@dataclass(frozen=True)
class Plan:
    """What an exchange does with its rows: orders them, and carries on the first `keep` columns."""

    order: Ordering
    keep: int
    ids: bool
    positions: bool = False

    def carried(self, chunk: Chunk) -> Chunk:
        """Return what is carried on of some rows."""
        return Chunk(chunk.rows, chunk.arrays[: self.keep], chunk.ids if self.ids else None)


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Rows in a file, in order: what is carried, then their keys, then their positions if asked for."""

    stored: Stored
    keys: int
    size: int


class Room:
    """How much memory the threads of one exchange share, and whether it was too little."""

    def __init__(self, budget: int, threads: int) -> None:
        self.left = budget
        self.run_bytes = max(_LEAST, budget // (4 * threads))
        self.spilling = budget <= 0
        self.stopped = False
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """Take some memory."""
        with self._lock:
            self.left -= size
            self.spilling = self.spilling or self.left < 0


@dataclass(frozen=True)
class Routed:
    """What became of a stretch of the input: runs, and rows that are still in memory."""

    runs: tuple[SortedRun, ...]
    held: tuple[Chunk, ...]
    first: int  # the number of the first row that is held


def route(piece: Piece, number: int, plan: Plan, room: Room, folder: Folder) -> Routed:
    """Read a stretch of the input; hold its rows, or write them as runs where there is no room.

    This is all that an exchange asks of a worker: one elsewhere needs a room of no bytes and a shared folder.
    """
    runs: list[SortedRun] = []
    held: list[Chunk] = []
    size = first = 0
    for chunk in piece.chunks():
        if room.stopped:
            break
        held.append(chunk)
        size += bytes_of(chunk)
        room.add(bytes_of(chunk))
        if room.spilling and size >= room.run_bytes:
            runs.append(write_run(held, number, first, plan, folder))
            first += sum(each.rows for each in held)
            room.add(-size)
            held, size = [], 0
    return Routed(tuple(runs), tuple(held), first)


def write_run(chunks: Sequence[Chunk], number: int, first: int, plan: Plan, folder: Folder) -> SortedRun:
    """Sort rows and write them."""
    whole = together(chunks)
    keys = list(plan.order.keys(whole))
    places = places_in_order(keys, plan.order.descending)
    if plan.positions:
        start = (number << _STRETCH) + first
        keys.append(pa.array(np.arange(start, start + whole.rows, dtype=np.uint64)))
    carried = plan.carried(whole)
    added = Chunk(whole.rows, (*carried.arrays, *keys), carried.ids).take(places)
    return SortedRun(store(added, folder), len(keys), bytes_of(added))


# --- all of them ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Gathered:
    """All rows of an exchange: in memory as they came (`held`), or in runs (none, if there are no rows)."""

    plan: Plan
    held: Chunk | None
    runs: tuple[SortedRun, ...]
    folder: Folder
    budget: int

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
        return max(_LEAST, self.budget // (4 * THREADS))

    def in_runs(self) -> Gathered:
        """Return the same in runs, for rows that meet others which do not fit in memory."""
        if self.held is None:
            return self
        run = write_run([self.held], 0, 0, self.plan, self.folder)
        return Gathered(self.plan, None, (run,), self.folder, self.budget)


def gather(pieces: Sequence[Piece], plan: Plan, *, threads: int = THREADS) -> Gathered:
    """Read pieces by a few threads and gather their rows."""
    budget, folder = memory_budget(), Folder()
    room = Room(budget, threads)
    try:
        routed = _routed(_stretches(pieces, threads * _STRETCHES), plan, room, folder, threads)
    except BaseException:
        folder.remove()
        raise
    if not room.spilling:
        chunks = [chunk for each in routed for chunk in each.held if chunk.rows]
        return Gathered(plan, together(chunks) if chunks else None, (), folder, budget)
    runs: list[SortedRun] = []
    for number, each in enumerate(routed):
        runs += each.runs
        if each.held:
            runs.append(write_run(each.held, number, each.first, plan, folder))
    return Gathered(plan, None, tuple(runs), folder, budget)


def _routed(stretches: Sequence[Piece], plan: Plan, room: Room, folder: Folder, threads: int) -> list[Routed]:
    if len(stretches) < 2 or threads < 2:
        return [route(piece, number, plan, room, folder) for number, piece in enumerate(stretches)]
    with ThreadPoolExecutor(threads, thread_name_prefix="trueline-exchange") as pool:
        waiting = [
            pool.submit(route, piece, number, plan, room, folder) for number, piece in enumerate(stretches)
        ]
        try:
            return [each.result() for each in waiting]
        except BaseException:
            room.stopped = True
            for each in waiting:
                each.cancel()
            raise


def _stretches(pieces: Sequence[Piece], most: int) -> list[Piece]:
    """Put neighbours together, so that runs are few and large however small the pieces are."""
    parts = min(len(pieces), most)
    cuts = [len(pieces) * part // parts for part in range(parts + 1)] if parts else []
    return [PieceChain(tuple(pieces[start:stop])) for start, stop in pairwise(cuts)]


# --- once for all readers -------------------------------------------------------------------


class Once(Generic[T]):
    """Something that is made when it is first asked for, by one thread, for all who ask.

    It can be pickled before: whoever gets it makes it anew.
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
