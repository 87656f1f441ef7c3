"""New rows meet what is there: the merge strategies over pieces, with their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from trueline.chain.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointFile
from trueline.chain.events import Checkpoint, SetVocab
from trueline.chain.scratch import Scratch
from trueline.chain.store import Folder, Store
from trueline.chain.tail import Tail
from trueline.merge import Append, Keyed, Ledger, Snapshot, Strategy
from trueline.workspace.ingest.incoming import Incoming
from trueline.workspace.ingest.pieces import Piece
from trueline.workspace.merging.merged import RANK, Merged
from trueline.workspace.merging.sorted_runs import Run, choose_splitters, read_range, sort_run
from trueline.workspace.merging.strategies import merge_batch
from trueline.workspace.state.keys import KEY, KeyRange, encode_keys, ranges
from trueline.workspace.state.state import State

OFFSET = "_offset"
ROWS_AT_ONCE = 1 << 20


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


def merge_pieces(
    strategy: Strategy, incoming: Incoming, store: Store, tail: Tail, scratch: Scratch
) -> Outcome:
    """Merge rows in ranges of keys, a bounded number of rows at a time."""
    if isinstance(strategy, Append):
        return Outcome(incoming.pieces)
    state = open_state(store, tail)
    merges = _Merging(strategy, state, incoming.vocab, tail.next_offset)
    if incoming.rows <= ROWS_AT_ONCE:
        merges.add(_ranked(incoming.pieces, 0))
    else:
        merges.add_ranges(incoming.pieces, incoming.rows, scratch)
    return merges.outcome()


class _Merging:
    """Merges one range of keys after another; events are numbered as they come."""

    def __init__(self, strategy: Keyed, state: State, vocab: SetVocab, first: int) -> None:
        self.strategy = strategy
        self.state = state
        self.vocab = vocab
        self.first = first
        self.merged: list[Merged] = []

    def add(self, new: pa.Table, key_range: KeyRange | None = None) -> None:
        """Merge the new rows of a range of keys."""
        self.merged.append(merge_batch(self.strategy, new, self._old(new, key_range), vocab=self.vocab))

    def add_ranges(self, pieces: Sequence[Piece], rows: int, scratch: Scratch) -> None:
        """Sort all rows through scratch and merge them range by range."""
        runs: list[Run] = []
        rank = 0
        for number, piece in enumerate(pieces):
            for start in range(0, piece.rows, ROWS_AT_ONCE):
                stop = min(piece.rows, start + ROWS_AT_ONCE)
                table = _with_rank(pa.concat_tables(piece.read(start, stop)), rank)
                runs.append(sort_run(table, self.strategy.key, scratch, f"run-{number}-{start}"))
                rank += stop - start
        for key_range in ranges(choose_splitters(runs, -(-rows // ROWS_AT_ONCE) or 1)):
            parts = list(read_range(scratch, runs, key_range))
            if parts or isinstance(self.strategy, Snapshot):
                self.add(pa.concat_tables(parts) if parts else _ranked(pieces, 0).slice(0, 0), key_range)

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

    def outcome(self) -> Outcome:
        """Number the events and bring the state up to them."""
        merged = Merged.concat(self.merged) if len(self.merged) > 1 else self.merged[0]
        ignored = {why: count for why, count in merged.ignored.items() if count}
        events = merged.events.drop_columns([RANK]) if RANK in merged.events.column_names else merged.events
        state = self.state
        if merged.delta is not None and merged.delta.num_rows:
            state = state.apply(self._delta(merged)).compact_if_needed()
        return Outcome((Piece.of(events),) if events.num_rows else (), state, ignored)

    def _delta(self, merged: Merged) -> pa.Table:
        delta = merged.delta_with_offsets(OFFSET, self.first)
        if isinstance(self.strategy, Ledger):
            # A ledger only asks whether a key is known.
            kept = [KEY, "_gone", OFFSET]
            return delta.select(kept)
        return delta


def _ranked(pieces: Sequence[Piece], first: int) -> pa.Table:
    tables = [table for piece in pieces for table in piece.read(0, piece.rows)]
    return _with_rank(pa.concat_tables(tables), first)


def _with_rank(table: pa.Table, first: int) -> pa.Table:
    return table.append_column(RANK, pa.array(np.arange(first, first + table.num_rows, dtype=np.int64)))
