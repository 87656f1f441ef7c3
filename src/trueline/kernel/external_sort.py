"""Parts of what an exchange gathered: ranges of an order, or buckets of a hash."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from trueline.kernel.chunk import ROWS_OF_A_CHUNK, Chunk, bytes_of, together
from trueline.kernel.comparison import Places, places_in_order, row_key, sorted_words
from trueline.kernel.exchange import Gathered, Once, Plan, gather
from trueline.kernel.pieces import Piece
from trueline.kernel.read_ahead import THREADS

# Rows of a run that stand for the others when the runs are cut.
_SAMPLES: Final = 256
# Pieces for each thread, where a reader has no wish.
_PIECES: Final = 2
# Bytes of rows that are put together at a time.
_BYTES: Final = 64 << 20


class Ordered:
    """All rows of an exchange in order, cut into parts of about the same size."""

    def __init__(self, gathered: Gathered, parts: int) -> None:
        self.gathered = gathered
        self.parts = parts
        plan = gathered.plan
        if gathered.held is not None:
            keys = list(plan.order.keys(gathered.held))
            self._order = places_in_order(keys, plan.order.descending)
            self._held = plan.carried(gathered.held)
            return
        self._steps = max(1, -(-gathered.size // (parts * gathered.part_bytes)))
        self._cuts = _cuts(gathered, parts * self._steps)

    def part(self, number: int) -> Iterator[Chunk]:
        """Yield the rows of one part."""
        if self.gathered.held is not None:
            rows = len(self._order)
            chosen = self._order[rows * number // self.parts : rows * (number + 1) // self.parts]
            yield from taken(self._held, chosen)
            return
        descending = self.gathered.plan.order.descending
        for step in range(number * self._steps, (number + 1) * self._steps):
            found = _between(self.gathered, self._cuts[step], self._cuts[step + 1])
            if found is not None:
                chunk, keys = found
                yield from taken(chunk, places_in_order(keys[: len(descending)], descending))


def _cuts(gathered: Gathered, parts: int) -> list[list[int]]:
    """Cut all runs into so many parts: for each cut, where it falls in each run.

    Rows are ordered by key, then by where they came from, so a cut may fall between equal keys.
    """
    counts = [run.stored.rows for run in gathered.runs]
    descending = gathered.plan.order.descending
    keys = [run.stored.load().arrays[-run.keys :][: len(descending)] for run in gathered.runs]
    # Where all keys are words, words are compared, many at a time.
    plain = [sorted_words(each[0], descending[0]) if len(each) == 1 else None for each in keys]
    words = None if any(each is None for each in plain) else [each for each in plain if each is not None]
    key_of: Any = [each.item for each in words] if words else [row_key(each, descending) for each in keys]
    samples: list[tuple[Any, int, int]] = []
    for number, rows in enumerate(counts):
        step = max(1, rows // _SAMPLES)
        samples += [(key_of[number](row), number, row) for row in range(step // 2, rows, step)]
    samples.sort()
    chosen = [samples[len(samples) * part // parts] for part in range(1, parts)] if samples else []
    at = [
        _places(words[number] if words else key_of[number], counts[number], number, chosen)
        for number in range(len(counts))
    ]
    cuts = [[each[part] for each in at] for part in range(len(chosen))]
    return [[0] * len(counts), *cuts, *[counts] * (parts - len(chosen))]


def _places(keys: Any, rows: int, number: int, chosen: Sequence[tuple[Any, int, int]]) -> list[int]:
    """Say where each cut falls in the run of this number; it was chosen at a row of one of the runs."""
    if isinstance(keys, np.ndarray):
        wanted = np.array([key for key, _, _ in chosen], np.uint64)
        left, right = (np.searchsorted(keys, wanted, side=side).tolist() for side in ("left", "right"))
    else:
        left, right = (
            [bisect(range(rows), key, key=keys) for key, _, _ in chosen]
            for bisect in (bisect_left, bisect_right)
        )
    return [
        row if number == run else (right if number < run else left)[at]
        for at, (_, run, row) in enumerate(chosen)
    ]


def bucket(gathered: Gathered, number: int, buckets: int) -> Chunk | None:
    """Return the rows whose key, a hash, is in one of so many equal ranges, in their old order.

    Their positions are the last column. None if there are none.
    """
    low, high = ((number + at) * (1 << 64) // buckets for at in (0, 1))
    start, stop = [], []
    for run in gathered.runs:
        words = np.asarray(run.stored.load().arrays[-run.keys])
        start.append(int(np.searchsorted(words, np.uint64(low))))
        stop.append(run.stored.rows if high == 1 << 64 else int(np.searchsorted(words, np.uint64(high))))
    found = _between(gathered, start, stop)
    if found is None:
        return None
    chunk, keys = found
    places = places_in_order([keys[-1]], (False,))
    return Chunk(chunk.rows, (*chunk.arrays, keys[-1]), chunk.ids).take(places)


def _between(
    gathered: Gathered, start: Sequence[int], stop: Sequence[int]
) -> tuple[Chunk, tuple[pa.Array, ...]] | None:
    """Return the rows between two cuts and their keys, None if there are none."""
    parts = [
        run.stored.load().slice(first, last - first)
        for run, first, last in zip(gathered.runs, start, stop, strict=True)
        if first < last
    ]
    if not parts:
        return None
    whole = together(parts)
    keep = len(whole.arrays) - gathered.runs[0].keys
    return Chunk(whole.rows, whole.arrays[:keep], whole.ids), whole.arrays[keep:]


# --- as pieces ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToOrder:
    """What orders the rows of pieces, when it is asked to."""

    below: tuple[Piece, ...]
    plan: Plan
    parts: int

    def __call__(self) -> Ordered:
        return Ordered(gather(self.below, self.plan), self.parts)


@dataclass(frozen=True, eq=False)
class OrderedPiece:
    """One part of ordered rows; whoever reads the first part orders them all."""

    ordered: Once[Ordered]
    number: int

    @property
    def rows(self) -> int | None:
        """Only the end will tell."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        yield from self.ordered().part(self.number)


def how_many(wished: int, total: int | None) -> int:
    """Say in how many pieces rows that are gathered first should come."""
    parts = max(wished, _PIECES * THREADS)
    return parts if total is None else min(parts, total)


def ordered_pieces(below: Sequence[Piece], plan: Plan, parts: int) -> list[Piece]:
    """Return the rows of pieces in another order, in so many pieces."""
    shared = Once(ToOrder(tuple(below), plan, parts))
    return [OrderedPiece(shared, number) for number in range(parts)]


def taken(chunk: Chunk, places: Places) -> Iterator[Chunk]:
    """Yield the rows at these places, some at a time: fewer where rows are large."""
    step = ROWS_OF_A_CHUNK
    if chunk.rows:
        step = max(1, min(step, _BYTES * chunk.rows // max(1, bytes_of(chunk))))
    for start in range(0, len(places), step):
        yield from _taken(chunk, places[start : start + step])


def _taken(chunk: Chunk, places: Places) -> Iterator[Chunk]:
    try:
        found = chunk.take(places)
    except pa.ArrowInvalid:
        # More than 2 GB of text, where many rows are one large one.
        if len(places) < 2:
            raise
        middle = len(places) // 2
        yield from _taken(chunk, places[:middle])
        yield from _taken(chunk, places[middle:])
        return
    yield found
