"""Rewriting state as tasks: each takes a range of keys of the generations that become one."""

from __future__ import annotations

from dataclasses import dataclass

from trueline.dataset.state.segment import ROWS_OF_A_FILE, SegmentInfo
from trueline.dataset.state.state import State
from trueline.kernel.key_encoding import KeyRange, ranges
from trueline.kernel.tasks import Tasks


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
