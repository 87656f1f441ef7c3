"""External sort: rows that do not fit in memory go to files as sorted runs, which are cut at the same keys.

Part i of each run makes part i of the whole. Runs are numbered by where their rows came from: equal rows keep
their order, however many threads there were.

Two modules sort what does not fit in memory, and share how samples are taken and cuts chosen (`sorted_keys`).
Here any columns order the rows, rising or falling, compared as SQL does; a part is loaded by row number from
mapped files of this process and sorted whole, so nothing is merged. `sorted_runs` orders by the bytes of a
merge key, writes runs with checksums that tasks on other machines read, and streams a merge of them (the one
merge there is, `sorted_keys.merged`, which also reads the state of a dataset).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from trueline.kernel.chunk import Chunk, bytes_of, together
from trueline.kernel.comparison import places_in_order, row_key, sorted_words
from trueline.kernel.sorted_keys import even_cuts, sample_places
from trueline.kernel.spill import SpilledChunk, SpillFolder, store

# A row's position is the number of its stretch of the input and its number there.
_STRETCH: Final = 40


class Ordering(Protocol):
    """What rows are ordered by; it can be pickled."""

    @property
    def descending(self) -> tuple[bool, ...]:
        """Which of the keys fall."""

    def keys(self, chunk: Chunk) -> Sequence[pa.Array]:
        """Return the keys of some rows."""


class Combine(Protocol):
    """What makes fewer rows of many, which mean the same: parts, such as partial aggregates of groups.

    The last column of parts has the positions of their first rows.
    """

    def of_rows(self, chunk: Chunk, start: int) -> Chunk:
        """Return the parts of consecutive rows, of which the first has the position `start`."""

    def of_parts(self, chunk: Chunk) -> Chunk:
        """Return fewer parts, made of parts that are in the order of the rows."""


@dataclass(frozen=True)
class SortSpec:
    """What is done with rows: their order, and that the first `keep` columns are carried on.

    With `combine` only parts are ordered and carried on, all their columns but the positions.
    """

    order: Ordering
    keep: int
    ids: bool
    positions: bool = False
    combine: Combine | None = None

    def carried(self, chunk: Chunk) -> Chunk:
        """Return what is carried on of some rows."""
        return Chunk(chunk.rows, chunk.arrays[: self.keep], chunk.ids if self.ids else None)


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Rows in a file, in order: what is carried, then their keys, then their positions if asked for."""

    stored: SpilledChunk
    keys: int
    size: int


def position(number: int, row: int) -> int:
    """Return the position of a row of the stretch of this number."""
    return (number << _STRETCH) + row


def write_run(
    chunks: Sequence[Chunk], number: int, first: int, spec: SortSpec, folder: SpillFolder
) -> SortedRun:
    """Sort rows and write them; they are those from number `first` on of the stretch of this number."""
    whole = together(chunks)
    keys = list(spec.order.keys(whole))
    places = places_in_order(keys, spec.order.descending)
    if spec.combine is not None:
        keys.append(whole.arrays[-1])
    elif spec.positions:
        start = position(number, first)
        keys.append(pa.array(np.arange(start, start + whole.rows, dtype=np.uint64)))
    carried = spec.carried(whole)
    added = Chunk(whole.rows, (*carried.arrays, *keys), carried.ids).take(places)
    return SortedRun(store(added, folder), len(keys), bytes_of(added))


# --- cut points -----------------------------------------------------------------------------


def cut_points(runs: Sequence[SortedRun], descending: Sequence[bool], parts: int) -> list[list[int]]:
    """Cut all runs into so many parts: for each cut, where it falls in each run.

    Rows are ordered by key, then by where they came from, so a cut may fall between equal keys.
    """
    counts = [run.stored.rows for run in runs]
    keys = [run.stored.load().arrays[-run.keys :][: len(descending)] for run in runs]
    # Where all keys are words, words are compared, many at a time.
    plain = [sorted_words(each[0], descending[0]) if len(each) == 1 else None for each in keys]
    words = None if any(each is None for each in plain) else [each for each in plain if each is not None]
    key_of: Any = [each.item for each in words] if words else [row_key(each, descending) for each in keys]
    samples: list[tuple[tuple[Any, int, int], float]] = []
    for number, rows in enumerate(counts):
        places = sample_places(rows).tolist()
        samples += [((key_of[number](row), number, row), rows / len(places)) for row in places]
    chosen = even_cuts(samples, parts)
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


def between(
    runs: Sequence[SortedRun], start: Sequence[int], stop: Sequence[int]
) -> tuple[Chunk, tuple[pa.Array, ...]] | None:
    """Return the rows between two cuts and their keys, None if there are none."""
    parts = [
        run.stored.load().slice(first, last - first)
        for run, first, last in zip(runs, start, stop, strict=True)
        if first < last
    ]
    if not parts:
        return None
    whole = together(parts)
    keep = len(whole.arrays) - runs[0].keys
    return Chunk(whole.rows, whole.arrays[:keep], whole.ids), whole.arrays[keep:]


def bucket(runs: Sequence[SortedRun], number: int, buckets: int) -> Chunk | None:
    """Return the rows whose key, a hash, is in one of so many equal ranges, in their old order.

    Their positions are the last column. None if there are none.
    """
    low, high = ((number + at) * (1 << 64) // buckets for at in (0, 1))
    start, stop = [], []
    for run in runs:
        words = np.asarray(run.stored.load().arrays[-run.keys])
        start.append(int(np.searchsorted(words, np.uint64(low))))
        stop.append(run.stored.rows if high == 1 << 64 else int(np.searchsorted(words, np.uint64(high))))
    found = between(runs, start, stop)
    if found is None:
        return None
    chunk, keys = found
    places = places_in_order([keys[-1]], (False,))
    return Chunk(chunk.rows, (*chunk.arrays, keys[-1]), chunk.ids).take(places)
