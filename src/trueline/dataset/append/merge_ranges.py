"""A merge of many rows as tasks: pieces become sorted runs, then each range of keys is merged by one task.

The driver gets names, counts and hashes only; rows go from piece to run, from
run to events and to segments within tasks. Runs are cut by rank and ranges by
the keys in them, so neither the events nor the segments depend on how many
tasks ran, where, or how the rows were partitioned before.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.store.scratch import Scratch
from trueline.dataset.append.merge_context import Means, Meeting
from trueline.dataset.append.pieces import IncomingPiece, PieceWriter, RowRange, cut
from trueline.dataset.merge.result import MergeCounts, Merged
from trueline.dataset.state.segment import GONE, SegmentInfo
from trueline.dataset.state.state import State
from trueline.kernel.key_encoding import KEY, OFFSET, RANK, KeyRange, null_key, ranges
from trueline.kernel.sorted_runs import RunFile, choose_splitters, read_range, sort_run
from trueline.merge import Ledger, Snapshot

# Of the rows without a key, each task names so many.
_NAMED: Final = 20
Segments = list[tuple[SegmentInfo, ...]]


def file_name(what: str) -> str:
    """Name a scratch file: every attempt of a task writes its own, so that none is read half written."""
    return f"{what}-{uuid.uuid4().hex}.arrow"


def spooled(scratch: Scratch, what: str, rows: pa.Table) -> IncomingPiece:
    """Write rows to scratch."""
    writer = PieceWriter(scratch, file_name(what), rows.schema)
    writer.write(rows)
    return writer.finish()


# --- sorting ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SortTask:
    """Rows that follow one another in the source, the first of them with a rank."""

    meeting: Meeting
    scratch: Scratch
    parts: tuple[RowRange, ...]
    rank: int


@dataclass(frozen=True, slots=True)
class Sorted:
    """A run; or, where keys are null, how many and some ranks of them."""

    run: RunFile | None
    without_key: int = 0
    ranks: tuple[int, ...] = ()


def sort_part(task: SortTask) -> Sorted:
    """Sort rows by key into a run of scratch."""
    key = task.meeting.key
    rows = task.meeting.read(task.parts, task.rank)
    missing = np.flatnonzero(key.missing(rows))
    if len(missing):
        return Sorted(None, len(missing), tuple(int(row) + task.rank for row in missing[:_NAMED]))
    return Sorted(sort_run(rows, key, task.scratch, file_name("run")))


def sorted_runs(meeting: Meeting, pieces: Sequence[IncomingPiece], means: Means) -> list[RunFile]:
    """Sort all rows; rows without a key refuse them."""
    rows = means.rows_of_a_run
    work = [
        SortTask(meeting, means.scratch, parts, number * rows)
        for number, parts in enumerate(cut(pieces, rows))
    ]
    done = dict(means.tasks.map(sort_part, work, label="sort by key"))
    results = [done[number] for number in range(len(work))]
    if missing := sum(result.without_key for result in results):
        ranks = [rank for result in results for rank in result.ranks]
        raise null_key(meeting.strategy.key, ranks, missing)
    return [result.run for result in results if result.run is not None]


# --- merging ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RangeTask:
    """A range of keys, and the runs that hold its rows."""

    meeting: Meeting
    scratch: Scratch
    runs: tuple[RunFile, ...]
    key_range: KeyRange
    rows_of_a_run: int


@dataclass(frozen=True, slots=True)
class RangeMerged:
    """What a range became, all of it in scratch.

    `events` in the order of keys, and `delta`, what they do to the state, with the number of the event that
    set a key. A ledger has the ranks that count instead: in `delta` by key, in `ranks` ascending, those of
    the n-th run from `starts[n]` to `starts[n + 1]`.
    """

    events: IncomingPiece | None = None
    delta: IncomingPiece | None = None
    ranks: IncomingPiece | None = None
    starts: tuple[int, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    tally: MergeCounts = field(default_factory=MergeCounts)


def merge_range(task: RangeTask) -> RangeMerged:
    """Merge the rows of a range into its part of the state."""
    meeting = task.meeting
    tables = list(read_range(task.scratch, task.runs, task.key_range))
    if not tables and not isinstance(meeting.strategy, Snapshot):
        return RangeMerged()
    merged = meeting.merged(pa.concat_tables(tables) if tables else meeting.nothing(), task.key_range)
    ignored = {why: count for why, count in merged.ignored.items() if count}
    if merged.delta is None or not merged.delta.num_rows:
        return RangeMerged(ignored=ignored)
    if isinstance(meeting.strategy, Ledger):
        return _by_source(task, merged, ignored)
    return RangeMerged(
        spooled(task.scratch, "events", merged.events),
        spooled(task.scratch, "delta", merged.delta_with_offsets(OFFSET, 0)),
        ignored=ignored,
        tally=merged.tally,
    )


def _by_source(task: RangeTask, merged: Merged, ignored: Mapping[str, int]) -> RangeMerged:
    """Keep the ranks of a ledger: which events there are is known when all ranges are merged."""
    assert merged.delta is not None
    ranks = merged.events[RANK].combine_chunks()
    delta = merged.delta.select([KEY, GONE]).append_column(RANK, ranks.take(merged.set_by))
    # The events of a range are in the order of the source, so their ranks ascend.
    bounds = np.arange(len(task.runs) + 1, dtype=np.int64) * task.rows_of_a_run
    return RangeMerged(
        delta=spooled(task.scratch, "keys", delta),
        ranks=spooled(task.scratch, "ranks", pa.table({RANK: ranks})),
        starts=tuple(np.searchsorted(np.asarray(ranks), bounds).tolist()),
        ignored=ignored,
        tally=merged.tally,
    )


def merged_ranges(meeting: Meeting, runs: Sequence[RunFile], parts: int, means: Means) -> list[RangeMerged]:
    """Merge all rows, in about so many ranges; a snapshot is also cut where the state is."""
    splitters = set(choose_splitters(runs, parts))
    if isinstance(meeting.strategy, Snapshot):
        splitters.update(meeting.state.splitters(parts))
    # The samples have done their work and need not travel.
    short = tuple(RunFile(run.name, run.rows, ()) for run in runs)
    work = [
        RangeTask(meeting, means.scratch, short, key_range, means.rows_of_a_run)
        for key_range in ranges(sorted(splitters))
    ]
    done = dict(means.tasks.map(merge_range, work, label="merge by key"))
    return [done[number] for number in range(len(work))]


# --- the segments of the state --------------------------------------------------


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """What the events of a range do to the state, and the offset of the first of them."""

    state: State
    delta: IncomingPiece
    first: int


def write_segments_of(task: SegmentTask) -> tuple[SegmentInfo, ...]:
    """Write a range's part of the next generation; it is durable when this returns."""
    delta = pa.concat_tables(task.delta.read(0, task.delta.rows))
    place = delta.schema.get_field_index(OFFSET)
    offsets = pc.add(delta[OFFSET], pa.scalar(task.first, pa.int64()))
    with task.state.store.lease():
        segments = task.state.write_part(delta.set_column(place, delta.schema.field(place), offsets))
        task.state.store.sync()
    return segments


def in_key_order(
    meeting: Meeting, merged: Sequence[RangeMerged], first: int, means: Means
) -> tuple[tuple[IncomingPiece, ...], Segments]:
    """Return the events of all ranges, from the offset `first` on, and the segments of the state after."""
    events: list[IncomingPiece] = []
    work: list[SegmentTask] = []
    for each in merged:
        if each.events is not None and each.delta is not None:
            events.append(each.events)
            work.append(SegmentTask(meeting.state, each.delta, first))
            first += each.events.rows
    done = dict(means.tasks.map(write_segments_of, work, label="write state"))
    return tuple(events), [done[number] for number in range(len(work)) if done[number]]
