"""Slices of a commit, written side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from trueline.chain.store import Store
from trueline.workspace.ingest.pieces import Part, Piece, cut
from trueline.workspace.slices import SliceLayout, Written, is_small, write_slice, write_small_slice
from trueline.workspace.tasks import Inline, Tasks


@dataclass(frozen=True, slots=True)
class SliceTask:
    """One slice to write: its rows, how it looks, where it begins, and the store it goes to."""

    store: Store
    parts: tuple[Part, ...]
    layout: SliceLayout
    first: int


def write_one(task: SliceTask) -> Written:
    """Write one slice; it is durable under its name when this returns. Doing it twice does no harm."""
    # Its own lease ends here; that of a put without one would stay in an object store for a day.
    with task.store.lease():
        written = write_slice(task.store, _rows(task.parts), task.layout, task.first)
        task.store.sync()
    return written


def _rows(parts: Sequence[Part]) -> Iterator[pa.Table]:
    for part in parts:
        yield from part.piece.read(part.start, part.stop)


def _is_in_memory(parts: Sequence[Part]) -> bool:
    return all(getattr(part.piece, "table", None) is not None for part in parts)


def _write_alone(task: SliceTask) -> Written:
    """Write the only slice of a commit."""
    if len(task.parts) == 1 and _is_in_memory(task.parts):
        (rows,) = _rows(task.parts)
        if is_small(rows, task.layout):
            return write_small_slice(task.store, rows, task.layout, task.first)
    return write_slice(task.store, _rows(task.parts), task.layout, task.first)


def write_all(
    store: Store, pieces: Sequence[Piece], layout: SliceLayout, first: int, tasks: Tasks
) -> list[Written]:
    """Write the rows of the pieces as slices with dense offsets from `first` on."""
    work: list[SliceTask] = []
    for parts in cut(pieces):
        work.append(SliceTask(store, parts, layout, first))
        first += sum(part.rows for part in parts)
    if len(work) == 1 and (isinstance(tasks, Inline) or _is_in_memory(work[0].parts)):
        # The head moves next, which makes it durable together with the blocks.
        return [_write_alone(work[0])]
    done = dict(tasks.map(write_one, work, label="write slices"))
    return [done[index] for index in range(len(work))]
