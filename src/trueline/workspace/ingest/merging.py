"""New rows meet what is there: the merge strategies over pieces, with their state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from trueline.chain.chain import Chain
from trueline.chain.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointFile
from trueline.chain.events import Checkpoint
from trueline.chain.scratch import Scratch
from trueline.chain.store import Folder, Store
from trueline.chain.tail import Tail
from trueline.errors import ObjectMissing, SchemaError
from trueline.merge import Append, Keyed, Ledger, Snapshot, Strategy
from trueline.workspace.ingest.incoming import Incoming
from trueline.workspace.ingest.pieces import Part, Piece, cut
from trueline.workspace.ingest.spilling import EventsByKey, EventsBySource
from trueline.workspace.merging.merged import RANK, Merged
from trueline.workspace.merging.sorted_runs import choose_splitters, read_range, sort_run
from trueline.workspace.merging.strategies import merge_batch
from trueline.workspace.state.keys import (
    KEY,
    OFFSET,
    KeyRange,
    encode_keys,
    null_key,
    ranges,
    rows_without_key,
)
from trueline.workspace.state.ordering import unified
from trueline.workspace.state.segment import GONE, SegmentInfo
from trueline.workspace.state.state import State

ROWS_AT_ONCE: Final = 1 << 20
# Columns that merging and state put beside those of the data.
RESERVED: Final = frozenset({KEY, GONE, RANK, OFFSET, "_order"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What merging gave: events in their final order, the state after them, rows left out by reason."""

    pieces: tuple[Piece, ...]
    state: State | None = None
    ignored: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)


def open_state(store: Store, tail: Tail) -> State:
    """Open the state the last commit left."""
    return State.open(store, read_checkpoint(store, tail))


def read_checkpoint(store: Store, tail: Tail) -> CheckpointFile | None:
    """Read the checkpoint in force."""
    if tail.checkpoint is None:
        return None
    raw = store.get(Folder.CHECKPOINTS, tail.checkpoint, limit=MAX_CHECKPOINT_BYTES)
    return CheckpointFile.from_bytes(raw)


def write_checkpoint(store: Store, state: State | None, notes: Mapping[str, object]) -> Checkpoint:
    """Stage a checkpoint file for a state."""
    raw = CheckpointFile(state.files if state is not None else (), notes).to_bytes()
    return Checkpoint(store.put(Folder.CHECKPOINTS, raw), len(raw))


def rebuilt_state(chain: Chain, tail: Tail, strategy: Keyed) -> State:
    """Make the state at a tail from the events, because it is not there."""
    # Reading is only needed here; every append would pay for importing it.
    from trueline.workspace.reading.current import CurrentRows
    from trueline.workspace.reading.standing import Standing

    state = State.open(chain.store, None)
    if tail.last_offset is None:
        return state
    standing = Standing("", chain, tail, tail.position)
    offset = tail.vocab.offset
    kept = (
        []
        if isinstance(strategy, Ledger)
        else [n for n in standing.schema.names if n not in tail.vocab.names[:3]]
    )
    parts = []
    for rows in CurrentRows(standing, ()).folded([*kept, offset]):
        table = unified(
            rows, pa.schema([pa.field(KEY, pa.binary()), *(rows.schema.field(n) for n in [*kept, offset])])
        )
        table = table.rename_columns([KEY, *kept, OFFSET])
        parts.append(table.add_column(1, GONE, pa.repeat(pa.scalar(False), table.num_rows)))
    return state.apply_parts(parts)


def merge_pieces(
    strategy: Strategy, incoming: Incoming, chain: Chain, tail: Tail, scratch: Scratch
) -> Outcome:
    """Merge rows in ranges of keys, a bounded number of rows at a time.

    State is a cache: where some of it is gone it is made again from the events.
    """
    if isinstance(strategy, Append):
        return Outcome(incoming.pieces)
    _refuse_reserved(incoming)
    try:
        return _merge(strategy, incoming, open_state(chain.store, tail), tail, scratch)
    except ObjectMissing:
        return _merge(strategy, incoming, rebuilt_state(chain, tail, strategy), tail, scratch)


def _refuse_reserved(incoming: Incoming) -> None:
    taken = sorted(RESERVED.intersection(incoming.schema.names))
    if taken:
        raise SchemaError(
            f"column {taken[0]!r} has a name that datasets with a key need for themselves",
            remedy=f"rename it; {', '.join(sorted(RESERVED))} cannot be used",
            code="ReservedColumn",
            column=taken[0],
        )


def _merge(strategy: Keyed, incoming: Incoming, state: State, tail: Tail, scratch: Scratch) -> Outcome:
    if not incoming.pieces:
        # Nothing was handed in; that is not the same as a snapshot of nothing.
        return Outcome((), state)
    merging = _Merging(strategy, state, incoming, tail.next_offset)
    # A snapshot is held against all current rows.
    against = _rows_of(state) if isinstance(strategy, Snapshot) else 0
    if incoming.rows + against <= ROWS_AT_ONCE:
        return merging.at_once()
    return merging.in_ranges(scratch, -(-(incoming.rows + against) // ROWS_AT_ONCE))


def _rows_of(state: State) -> int:
    return sum(info.rows for generation in state.generations for info in generation)


@dataclass(frozen=True)
class _Merging:
    """New rows, the state they meet, and the offset of their first event."""

    strategy: Keyed
    state: State
    incoming: Incoming
    first: int

    def at_once(self) -> Outcome:
        """Merge all rows in memory."""
        parts = [Part(piece, 0, piece.rows) for piece in self.incoming.pieces]
        merged = self._merged(self._read(parts, 0))
        events = merged.events.drop_columns([RANK]) if RANK in merged.events.column_names else merged.events
        state = self.state
        if merged.delta is not None and merged.delta.num_rows:
            delta = merged.delta_with_offsets(OFFSET, self.first)
            # A ledger only asks whether a key is known.
            kept = delta.select([KEY, GONE, OFFSET]) if isinstance(self.strategy, Ledger) else delta
            state = _extended(state, [kept])
        return Outcome((Piece.of(events),) if events.num_rows else (), state, _counted(merged.ignored))

    def in_ranges(self, scratch: Scratch, parts: int) -> Outcome:
        """Sort all rows through scratch, merge them range by range, and keep the events there too."""
        runs, rank = [], 0
        for number, piece in enumerate(cut(self.incoming.pieces, ROWS_AT_ONCE)):
            table = self._read(piece, rank)
            missing = rows_without_key(table, self.strategy.key)
            if missing.any():
                raise null_key(self.strategy.key, np.flatnonzero(missing) + rank)
            runs.append(sort_run(table, self.strategy.key, scratch, f"run-{number}.parquet"))
            rank += table.num_rows
        splitters = set(choose_splitters(runs, parts))
        if isinstance(self.strategy, Snapshot):
            splitters.update(self.state.splitters(parts))
        spilled: EventsBySource | EventsByKey
        if isinstance(self.strategy, Ledger):
            spilled = EventsBySource(scratch, self.state, OFFSET, self.first, rank)
        else:
            spilled = EventsByKey(scratch, self.state, OFFSET, self.first)
        for key_range in ranges(sorted(splitters)):
            tables = list(read_range(scratch, runs, key_range))
            if tables or isinstance(self.strategy, Snapshot):
                spilled.add(self._merged(pa.concat_tables(tables) if tables else self._nothing(), key_range))
        if isinstance(spilled, EventsBySource):
            batches = (
                self._read((part,), 0) for parts in cut(self.incoming.pieces, ROWS_AT_ONCE) for part in parts
            )
            pieces, segments = spilled.finish(table.drop_columns([RANK]) for table in batches)
        else:
            pieces, segments = spilled.finish()
        state = _extended(self.state, segments) if segments else self.state
        return Outcome(pieces, state, _counted(spilled.ignored))

    def _read(self, parts: Sequence[Part], rank: int) -> pa.Table:
        """Read rows with all columns of the dataset, also those others added meanwhile, and number them."""
        schema = self.incoming.columns
        tables = [unified(table, schema) for part in parts for table in _tables(part)]
        return _with_rank(pa.concat_tables(tables) if tables else schema.empty_table(), rank)

    def _nothing(self) -> pa.Table:
        empty = _with_rank(self.incoming.columns.empty_table(), 0)
        return empty.append_column(pa.field(KEY, pa.binary(), nullable=False), pa.array([], pa.binary()))

    def _merged(self, new: pa.Table, key_range: KeyRange | None = None) -> Merged:
        return merge_batch(self.strategy, new, self._old(new, key_range), vocab=self.incoming.vocab)

    def _old(self, new: pa.Table, key_range: KeyRange | None) -> pa.Table | None:
        """Return the current rows a strategy needs: those of the new keys, for a snapshot all."""
        if not self.state.generations:
            return None
        columns = [name for name in self.state.schema.names if name != OFFSET]
        if isinstance(self.strategy, Snapshot):
            batches = list(self.state.scan(columns, key_range))
            return pa.Table.from_batches(batches) if batches else None
        keys = new[KEY].combine_chunks() if KEY in new.column_names else encode_keys(new, self.strategy.key)
        return self.state.lookup(keys, columns)


def _extended(state: State, parts: Sequence[pa.Table | Sequence[SegmentInfo]]) -> State:
    """Add a generation; what there is becomes fewer files before, so that none is written in vain."""
    return state.compact_if_needed().apply_parts(parts)


def _tables(part: Part) -> Iterator[pa.Table]:
    return part.piece.read(part.start, part.stop)


def _counted(ignored: Mapping[str, int]) -> dict[str, int]:
    return {why: count for why, count in ignored.items() if count}


def _with_rank(table: pa.Table, first: int) -> pa.Table:
    return table.append_column(RANK, pa.array(np.arange(first, first + table.num_rows, dtype=np.int64)))
