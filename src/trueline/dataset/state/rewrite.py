"""How a state takes an update, and rewriting it as tasks: each takes a range of keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from trueline.dataset.state.segment import ROWS_OF_A_FILE, SegmentInfo
from trueline.dataset.state.state import State
from trueline.kernel.key_encoding import KeyRange, ranges
from trueline.kernel.tasks import Tasks

# Of the rows there are: an update with as many would be written once now and once more with the next one.
LARGE: Final = 0.5
# Fewer rows are written as soon as they are merged, and parts of them by tasks are not written for nothing.
MERGED_AT_LEAST: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """A file of a state that is to be hashed."""

    state: State
    segment: SegmentInfo


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """A range of keys of the generations from `start` on."""

    state: State
    start: int
    key_range: KeyRange


def verify_one(task: VerifyTask) -> None:
    """Check a file: its hash, and every group of rows in it."""
    task.state.verify_segment(task.segment)


def rewrite_range(task: RewriteTask) -> tuple[SegmentInfo, ...]:
    """Write a range of keys again; it is durable when this returns."""
    with task.state.store.lease():
        segments = task.state.write_merged(task.start, task.key_range, verified=True)
        task.state.store.sync()
    return segments


def compacted(state: State, tasks: Tasks, *, rows_of_a_range: int = ROWS_OF_A_FILE) -> State:
    """Return the same rows in fewer files, if the rules of `compaction` ask for it.

    How the rows are cut follows from the state alone, never from the tasks.
    """
    start = state.due
    if start is None:
        return state
    old = [info for generation in state.generations[start:] for info in generation]
    parts = -(-sum(info.rows for info in old) // rows_of_a_range)
    splitters = state.splitters(parts)
    if not splitters:
        return state.compact_if_needed()
    for _ in tasks.map(verify_one, [VerifyTask(state, info) for info in old], label="verify state"):
        pass
    work = [RewriteTask(state, start, key_range) for key_range in ranges(splitters)]
    done = dict(tasks.map(rewrite_range, work, label="rewrite state"))
    return state.replaced(start, [info for number in range(len(work)) for info in done[number]])


def extended(
    state: State, parts: Sequence[pa.Table | Sequence[SegmentInfo]], tasks: Tasks, *, updated: int
) -> State:
    """Return the state after an update in parts of ascending keys; the files do not depend on the parts.

    What there is becomes fewer files before, so that none is written for nothing. An update in which all keys
    there are were `updated` takes the place of what there is; a large one is merged with it, if one file can
    hold both.
    """
    there = sum(info.rows for generation in state.generations for info in generation)
    if len(state.generations) == 1 and updated == there:
        written = [state.write_part(part) if isinstance(part, pa.Table) else part for part in parts]
        return state.replaced(0, [info for part in written for info in part])
    rows = sum(
        part.num_rows if isinstance(part, pa.Table) else sum(info.rows for info in part) for part in parts
    )
    if rows < LARGE * there or not MERGED_AT_LEAST <= there <= ROWS_OF_A_FILE - rows:
        return compacted(state, tasks).apply_parts(parts)
    if len(parts) == 1 and isinstance(parts[0], pa.Table):
        return state.merged_with(parts[0])
    after = state.apply_parts(parts)
    return after.replaced(0, after.write_merged(0))
