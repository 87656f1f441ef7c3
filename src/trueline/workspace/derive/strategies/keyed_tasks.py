"""Groups that are too many for this process: tasks hold their accumulators, and no row passes the driver.

Partial accumulators are sorted by group. Each task reads a range of groups, and what the state keeps of them;
Spark adds up and finishes them, and tasks write what becomes of the state and of the rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from trueline.chain.events import SetVocab
from trueline.dataset.append.frames import EventTimes, WritePartition, frame_rows, typed_frame
from trueline.dataset.append.incoming import nothing
from trueline.dataset.append.merge import Terms, merge_into
from trueline.dataset.append.merge_context import Means, Meeting
from trueline.dataset.append.merge_ranges import sorted_runs
from trueline.dataset.append.pieces import IncomingPiece, PieceWriter, WriteAsGiven
from trueline.dataset.derivation import KeyKind
from trueline.dataset.state import State
from trueline.kernel.key_encoding import KEY, KeyEncoding, KeyRange, ranges
from trueline.kernel.sorted_keys import as_array
from trueline.kernel.sorted_runs import RunFile, choose_splitters, read_range
from trueline.merge import KeyEquality, Upsert
from trueline.workspace.derive.strategies.accumulators import PARTS, SIGN, VERSION, Accumulation
from trueline.workspace.derive.strategies.bags import numbered_in_tasks
from trueline.workspace.derive.strategies.groups import (
    Partials,
    change_of,
    disagrees,
    types_of,
    update_of,
)
from trueline.workspace.derive.strategies.increment import DerivedTransaction, Impossible, run_sql

if TYPE_CHECKING:
    from trueline.chain.store.scratch import Scratch
    from trueline.dataset.append.incoming import Incoming

_LABEL: Final = "finishing groups"
# A task sorts so many rows, or as many as have so many bytes.
_ROWS_OF_A_RUN: Final = 1 << 19
_BYTES_OF_A_RUN: Final = 128 << 20
# A range has about so many groups, or bytes of what is kept; several for each core even out their sizes.
_ROWS_OF_A_RANGE: Final = 1 << 17
_BYTES_OF_A_RANGE: Final = 64 << 20
# What is kept is looked up for so many rows together, since that reads whole row groups of the state.
_ROWS_OF_A_LOOKUP: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class GroupParts:
    """Ranges of groups, each to be read by a task: their partial accumulators, and what is kept of them."""

    state: State
    scratch: Scratch
    runs: tuple[RunFile, ...]
    ranges: tuple[KeyRange, ...]
    schema: pa.Schema

    def tables(self, number: int) -> Iterator[pa.Table]:
        """Yield the parts of which groups are added up: what is kept counts before (0) and after (1)."""
        last = None
        for rows in _gathered(read_range(self.scratch, self.runs, self.ranges[number])):
            yield _of_version(rows.select(self.schema.names), 1)
            keys = as_array(rows[KEY]).unique()
            # What came and went of one group may lie in two tables.
            keys = keys[1:] if last is not None and keys[0].as_py() == last else keys
            last = rows[KEY][-1].as_py()
            for kept in self._kept(keys):
                for version in (0, 1):
                    yield _of_version(kept, version)

    def _kept(self, keys: pa.BinaryArray) -> Iterator[pa.Table]:
        """Yield what is kept of groups, a bounded number of bytes at a time."""
        if not self.state.generations or not len(keys):
            return
        columns = [name for name in self.schema.names if name != SIGN]
        if len(keys) == 1:
            found: pa.Table | None = self.state.lookup(keys, columns)
        else:
            found = self.state.lookup_within(keys, _BYTES_OF_A_RANGE, columns)
        if found is None:
            half = len(keys) // 2
            yield from self._kept(keys[:half])
            yield from self._kept(keys[half:])
            return
        signs = pa.array(np.ones(found.num_rows, np.int32))
        yield found.select(columns).append_column(SIGN, signs).select(self.schema.names).cast(self.schema)


def _gathered(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        many = sum(each.num_rows for each in waiting) >= _ROWS_OF_A_LOOKUP
        if many or sum(each.nbytes for each in waiting) >= _BYTES_OF_A_RANGE:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _of_version(rows: pa.Table, version: int) -> pa.Table:
    return rows.append_column(VERSION, pa.array(np.full(rows.num_rows, version, np.int32)))


@dataclass(frozen=True, slots=True)
class WriteGroups:
    """Writes what becomes of the groups of a partition: of the state, and of the rows of the result."""

    made: Accumulation
    scratch: Scratch
    schema: pa.Schema
    kept: pa.Schema | None
    op: str
    rows: WritePartition | WriteAsGiven

    def __call__(
        self, partition: int, batches: Iterator[pa.RecordBatch]
    ) -> tuple[IncomingPiece, IncomingPiece, EventTimes, bool]:
        """Write a partition; say whether a group lost more rows than it had."""
        updates: list[PieceWriter] = []
        wrong = False

        def changes() -> Iterator[pa.RecordBatch]:
            nonlocal wrong
            for batch in batches:
                found = pa.Table.from_batches([batch]).cast(self.schema)
                update = update_of(self.made, found, self.kept)
                wrong = wrong or disagrees(update)
                if not updates:
                    name = f"groups-{partition}-{uuid.uuid4().hex}.arrow"
                    updates.append(PieceWriter(self.scratch, name, update.schema))
                updates[0].write(update)
                yield from change_of(self.made, found, self.op).to_batches()

        written = self.rows(partition, changes())
        rows, times = (written, EventTimes(None, 0)) if isinstance(written, IncomingPiece) else written
        return (updates[0].finish() if updates else IncomingPiece(0)), rows, times, wrong


def finished_in_tasks(
    transaction: DerivedTransaction[Any],
    session: Any,
    partials: Partials,
    state: State,
    terms: Terms,
) -> tuple[State, Incoming]:
    """Add partial accumulators to those that are kept; return the state after, and rows that go and come."""
    from trueline.spark.frames import write_pieces
    from trueline.spark.increments import columns_of, frame_of_parts, with_whole_numbers
    from trueline.spark.types import arrow_schema_of

    made, schema, scratch = partials.made, partials.schema, terms.scratch
    pieces = partials.spooled(scratch)
    columns = columns_of(schema, [*made.kept, SIGN])
    parts = _parts(made, pieces, arrow_schema_of(columns), state, terms)
    frame = frame_of_parts(
        session, parts, len(parts.ranges), with_whole_numbers(columns, VERSION), label="reading groups"
    )
    frame.createOrReplaceTempView(PARTS)
    finished = run_sql(session, made.finish(types_of(made, schema)), [PARTS])
    found = arrow_schema_of(finished.schema)
    tail, is_bag = transaction.tail, transaction.derivation.identity is KeyKind.BAG
    change = change_of(made, found.empty_table(), tail.vocab.op).schema
    typed, with_op, ignored = typed_frame(change, tail, with_op=True)
    rows = WriteAsGiven(scratch, change) if is_bag else WritePartition(scratch, change, typed, with_op)
    kept = state.schema if state.generations else None
    written = write_pieces(
        finished, WriteGroups(made, scratch, found, kept, tail.vocab.op, rows), label=_LABEL
    )
    if any(wrong for *_, wrong in written):
        raise Impossible("state_disagrees")
    updates = [update for update, *_ in written if update.rows]
    columns_after = update_of(made, found.empty_table(), kept).schema
    after = merge_into(state, made.keys, columns_after, updates, terms) if updates else state
    came = tuple(piece for _, piece, *_ in written if piece.rows)
    if not came:
        return after, nothing(tail)
    if is_bag:
        return after, numbered_in_tasks(transaction, came, change, terms)
    times = [seen for _, _, seen, _ in written]
    return after, frame_rows(came, times, change, typed, with_op=with_op, ignored=ignored)


def _parts(
    made: Accumulation, pieces: Sequence[Any], schema: pa.Schema, state: State, terms: Terms
) -> GroupParts:
    """Sort partial accumulators by group and cut them into ranges."""
    rows, size = sum(piece.rows for piece in pieces), sum(piece.size for piece in pieces)
    empty = State.open(state.store, None, encoding=KeyEncoding.GROUP)
    meeting = Meeting(Upsert(made.keys), SetVocab(), schema, empty, KeyEquality.GROUP)
    rows_of_a_run = max(1, min(_ROWS_OF_A_RUN, rows * _BYTES_OF_A_RUN // max(1, size)))
    runs = sorted_runs(meeting, pieces, Means(terms.scratch, terms.tasks, rows_of_a_run))
    groups = sum(info.rows for generation in state.generations for info in generation)
    kept = state.size * min(1.0, rows / max(1, groups))
    count = max(-(-rows // _ROWS_OF_A_RANGE), int(size + kept) // _BYTES_OF_A_RANGE)
    # The samples have done their work and need not travel.
    short = tuple(RunFile(run.name, run.rows, ()) for run in runs)
    return GroupParts(state, terms.scratch, short, tuple(ranges(choose_splitters(runs, count))), schema)
