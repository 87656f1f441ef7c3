"""Events that keep the order of the source although keys decided which there are: those of a ledger.

Ranges say by rank which rows count. For each run of the source one task
gathers that into bits and writes the rows; then each range finds the offsets
of its keys by counting bits. So no process holds a number for every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trueline.chain.store.scratch import Scratch
from trueline.dataset.append.merge_context import Means, Meeting
from trueline.dataset.append.merge_ranges import RangeMerged, Segments, file_name, spooled
from trueline.dataset.append.pieces import IncomingPiece, RowRange, cut
from trueline.dataset.state.segment import SegmentInfo
from trueline.dataset.state.state import State
from trueline.kernel.key_encoding import OFFSET, RANK
from trueline.kernel.sorted_keys import as_array


@dataclass(frozen=True, slots=True)
class SelectTask:
    """The rows of a run, and where the ranges say which of them count."""

    meeting: Meeting
    scratch: Scratch
    parts: tuple[RowRange, ...]
    rank: int
    ranks: tuple[RowRange, ...]


@dataclass(frozen=True, slots=True)
class Selected:
    """The rows of a run that count, and a file with a bit for each of its rows."""

    events: IncomingPiece
    bits: str


def select_rows(task: SelectTask) -> Selected:
    """Write the rows of a run that count, in their order."""
    counts = np.zeros(sum(part.rows for part in task.parts), dtype=bool)
    for part in task.ranks:
        for table in part.piece.read(part.start, part.stop):
            counts[np.asarray(as_array(table[RANK])) - task.rank] = True
    name = file_name("bits")
    with task.scratch.create(name) as file:
        file.write(np.packbits(counts).tobytes())
    rows = task.meeting.read(task.parts, task.rank).drop_columns([RANK])
    return Selected(spooled(task.scratch, "events", rows.filter(pa.array(counts))), name)


@dataclass(frozen=True, slots=True)
class KeysTask:
    """Keys of a range with their ranks; for each run that has some the file of bits and its first offset."""

    state: State
    scratch: Scratch
    keys: IncomingPiece
    rows_of_a_run: int
    runs: tuple[tuple[int, str, int], ...]


def write_keys(task: KeysTask) -> tuple[SegmentInfo, ...]:
    """Write a range's part of the next generation; it is durable when this returns."""
    table = pa.concat_tables(task.keys.read(0, task.keys.rows))
    offsets = pa.array(_offsets(task, np.asarray(as_array(table[RANK]))))
    with task.state.store.lease():
        segments = task.state.write_part(table.drop_columns([RANK]).append_column(OFFSET, offsets))
        task.state.store.sync()
    return segments


def _offsets(task: KeysTask, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the offset of each rank: how many rows that count are before it."""
    order = np.argsort(ranks, kind="stable")
    ascending = ranks[order]
    found = np.empty(len(ranks), dtype=np.int64)
    for number, bits, first in task.runs:
        rank = number * task.rows_of_a_run
        start, end = np.searchsorted(ascending, [rank, rank + task.rows_of_a_run])
        if start == end:
            continue
        with task.scratch.open(bits) as file:
            counts = np.unpackbits(np.frombuffer(file.read(), dtype=np.uint8))
        before = np.cumsum(counts, dtype=np.int64)
        found[order[start:end]] = before[ascending[start:end] - rank] + (first - 1)
    return found


def in_source_order(
    meeting: Meeting,
    pieces: Sequence[IncomingPiece],
    merged: Sequence[RangeMerged],
    first: int,
    means: Means,
) -> tuple[tuple[IncomingPiece, ...], Segments]:
    """Return the events of a ledger and the segments of the state that hold their keys."""
    scratch, rows_of_a_run = means.scratch, means.rows_of_a_run
    work, numbers = [], []
    for number, parts in enumerate(cut(pieces, rows_of_a_run)):
        ranks = tuple(
            RowRange(each.ranks, each.starts[number], each.starts[number + 1])
            for each in merged
            if each.ranks is not None and each.starts[number] < each.starts[number + 1]
        )
        if ranks:
            numbers.append(number)
            work.append(SelectTask(meeting, scratch, parts, number * rows_of_a_run, ranks))
    done = dict(means.tasks.map(select_rows, work, label="select rows"))
    selected = [done[index] for index in range(len(work))]
    runs = []
    for number, each in zip(numbers, selected, strict=True):
        runs.append((number, each.bits, first))
        first += each.events.rows
    keys = [
        KeysTask(meeting.state, scratch, each.delta, rows_of_a_run, _runs_of(each, runs))
        for each in merged
        if each.delta is not None
    ]
    written = dict(means.tasks.map(write_keys, keys, label="write state"))
    segments = [written[index] for index in range(len(keys)) if written[index]]
    return tuple(each.events for each in selected), segments


def _runs_of(merged: RangeMerged, runs: Sequence[tuple[int, str, int]]) -> tuple[tuple[int, str, int], ...]:
    """Leave out the runs of which a range has no row."""
    counts = [end - start for start, end in pairwise(merged.starts)]
    return tuple(run for run in runs if counts[run[0]])
