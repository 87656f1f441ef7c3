"""Many rows that nothing identifies: tasks number their copies, each for a range of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from trueline.chain.events import SetVocab
from trueline.dataset.advance import Bag, numbered_copies
from trueline.dataset.append.frames import EventTimes, WritePartition, frame_rows, typed_frame
from trueline.dataset.append.merge import Terms, rebuilt_state
from trueline.dataset.append.merge_context import Means, Meeting
from trueline.dataset.append.merge_ranges import sorted_runs
from trueline.dataset.append.pieces import IncomingPiece
from trueline.dataset.dataset_at import Standing
from trueline.dataset.state import State
from trueline.kernel.key_encoding import KEY, RANK, KeyEncoding, KeyRange, ranges
from trueline.kernel.sorted_runs import RunFile, choose_splitters, read_range
from trueline.merge import KeyEquality, NetChange, Upsert
from trueline.workspace.derive.strategies.increment import DerivedTransaction

if TYPE_CHECKING:
    from trueline.chain.store.scratch import Scratch
    from trueline.dataset.append.incoming import Incoming

# A task holds so many rows of a change.
_ROWS_OF_A_RANGE: Final = 1 << 19


@dataclass(frozen=True, slots=True)
class _CopiesTask:
    """A range of equal rows, and the runs that hold them."""

    bag: Bag
    scratch: Scratch
    runs: tuple[RunFile, ...]
    key_range: KeyRange
    write: WritePartition


def number_range(task: _CopiesTask) -> tuple[IncomingPiece, EventTimes]:
    """Number the copies of the rows of a range."""
    tables = list(read_range(task.scratch, task.runs, task.key_range))
    if not tables:
        return IncomingPiece(0), EventTimes(None, 0)
    change = numbered_copies(task.bag, pa.concat_tables(tables).drop_columns([KEY, RANK]))
    return task.write(0, iter(change.to_batches()))


def numbered_in_tasks(
    transaction: DerivedTransaction[Any], pieces: Sequence[Any], schema: pa.Schema, terms: Terms
) -> Incoming:
    """Return rows that go and come with the numbers of their copies."""
    tail, scratch, tasks = transaction.tail, terms.scratch, terms.tasks
    current = _current(transaction)
    bag = Bag.of(
        tail, transaction.derivation, None if current is None else partial(current.lookup, columns=())
    )
    empty = State.open(transaction.dataset.chain.store, None, encoding=KeyEncoding.GROUP)
    meeting = Meeting(Upsert(bag.columns), SetVocab(), schema, empty, KeyEquality.GROUP)
    runs = sorted_runs(meeting, pieces, Means(scratch, tasks, _ROWS_OF_A_RANGE))
    parts = -(-sum(run.rows for run in runs) // _ROWS_OF_A_RANGE)
    short = tuple(RunFile(run.name, run.rows, ()) for run in runs)
    made = bag.schema(schema)
    typed, with_op, ignored = typed_frame(made, tail, with_op=True)
    write = WritePartition(scratch, made, typed, with_op)
    work = [
        _CopiesTask(bag, scratch, short, key_range, write)
        for key_range in ranges(choose_splitters(runs, parts))
    ]
    done = dict(tasks.map(number_range, work, label="number equal rows"))
    written = [done[number] for number in range(len(work))]
    found = tuple(piece for piece, _ in written if piece.rows)
    times = [seen for _, seen in written]
    return frame_rows(found, times, made, typed, with_op=with_op, ignored=ignored)


def _current(transaction: DerivedTransaction[Any]) -> State | None:
    """Return the state of the current rows, made again where it is gone; None where there are none."""
    chain, tail = transaction.dataset.chain, transaction.tail
    if tail.last_offset is None:
        return None
    kept = Standing("", chain, tail, tail.position).state
    if kept is not None:
        return kept
    made = rebuilt_state(chain, tail, NetChange(transaction.derivation.key))
    # Tasks find only what has its name.
    chain.store.sync()
    return made
