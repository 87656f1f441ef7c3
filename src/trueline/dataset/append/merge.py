"""New rows are merged with what is there: the merge strategies over pieces, with their state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from trueline.chain.chain import Chain
from trueline.chain.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointFile
from trueline.chain.events import Checkpoint, SetVocab
from trueline.chain.head_state import Tail
from trueline.chain.store.scratch import Scratch
from trueline.chain.store.store import Folder, Store
from trueline.dataset.append.incoming import Incoming
from trueline.dataset.append.lacking import empty_snapshot, lacking
from trueline.dataset.append.merge_context import Means, Meeting
from trueline.dataset.append.merge_ranges import in_key_order, merged_ranges, sorted_runs
from trueline.dataset.append.pieces import FEW_BYTES, FEW_ROWS, IncomingPiece, RowRange
from trueline.dataset.append.source_order import in_source_order
from trueline.dataset.counts import counted_rows
from trueline.dataset.definition import key_equality_at
from trueline.dataset.merge.differences import rows_differ
from trueline.dataset.merge.result import MergeCounts, Op
from trueline.dataset.state.rewrite import extended
from trueline.dataset.state.segment import GONE, SegmentInfo
from trueline.dataset.state.state import State
from trueline.errors import ObjectMissing, SchemaError
from trueline.kernel.key_encoding import KEY, OFFSET, RANK, KeyEncoding, MergeKey, encode_keys
from trueline.kernel.sorted_keys import as_array, find, sorting, unified
from trueline.kernel.tasks import InlineTasks, Tasks
from trueline.merge import Keyed, KeyEquality, Ledger, Snapshot, Upsert

# So many rows are merged in memory. More are merged by tasks that hold half as many, because several
# run side by side: 5 M rows of 70 bytes go through 1.5 GB of address space on two cores.
ROWS_AT_ONCE: Final = 1 << 20
# Columns that merging and state put beside those of the data.
RESERVED: Final = frozenset({KEY, GONE, RANK, OFFSET, "_order"})


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """What merging gave: events in their final order, the state after them, rows left out by reason.

    `tally` counts what the events do, `passed` the bytes of rows and state that were read for it in this
    process; rows that were here already are not among them.
    """

    pieces: tuple[IncomingPiece, ...]
    state: State | None = None
    ignored: Mapping[str, int] = field(default_factory=dict)
    tally: MergeCounts = field(default_factory=MergeCounts)
    passed: int = 0


def open_state(store: Store, tail: Tail) -> State:
    """Open the state the last commit left."""
    encoding = MergeKey((), key_equality_at(tail)).encoding
    return State.open(store, read_checkpoint(store, tail), encoding=encoding)


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
    from trueline.dataset.dataset_at import Standing
    from trueline.dataset.read.current import CurrentRows

    state = State.open(chain.store, None, encoding=MergeKey((), key_equality_at(tail)).encoding)
    if tail.last_offset is None:
        return state
    standing = Standing("", chain, tail, tail.position)
    offset = tail.vocab.offset
    kept = (
        []
        if isinstance(strategy, Ledger)
        else [n for n in standing.schema.names if n not in tail.vocab.names[:3]]
    )
    parts: list[tuple[SegmentInfo, ...]] = []
    for rows in CurrentRows(standing, ()).folded([*kept, offset]):
        table = unified(
            rows, pa.schema([pa.field(KEY, pa.binary()), *(rows.schema.field(n) for n in [*kept, offset])])
        )
        table = table.rename_columns([KEY, *kept, OFFSET])
        table = table.add_column(1, GONE, pa.repeat(pa.scalar(False), table.num_rows))
        parts.append(state.write_part(table))
    return state.apply_parts(parts)


@dataclass(frozen=True, slots=True)
class Terms:
    """Where a merge works and who does it; `allow_empty` lets a snapshot without rows retract all."""

    scratch: Scratch
    tasks: Tasks
    allow_empty: bool = False


def merge_pieces(strategy: Keyed, incoming: Incoming, chain: Chain, tail: Tail, terms: Terms) -> MergeOutcome:
    """Merge rows in ranges of keys, a bounded number of rows at a time.

    State is a cache: where some of it is gone it is made again from the events.
    """
    _refuse_reserved(incoming)
    means = Means(terms.scratch, terms.tasks, max(ROWS_AT_ONCE // 2, 1))
    if isinstance(strategy, Snapshot) and incoming.pieces and not incoming.rows and not terms.allow_empty:
        _refuse_empty(incoming, counted_rows(chain, tail))
    try:
        return _merge(strategy, incoming, open_state(chain.store, tail), tail, means)
    except ObjectMissing:
        state = rebuilt_state(chain, tail, strategy)
        # Tasks find only what has its name.
        chain.store.sync()
        return _merge(strategy, incoming, state, tail, means)


def merge_into(
    state: State, key: Sequence[str], columns: pa.Schema, pieces: Sequence[IncomingPiece], terms: Terms
) -> State:
    """Return a state of groups with rows put in and, where `op` is 1, taken out; each key comes once."""
    means = Means(terms.scratch, terms.tasks, max(ROWS_AT_ONCE // 2, 1))
    meeting = Meeting(Upsert(tuple(key)), SetVocab(), columns, state, KeyEquality.GROUP, once=True)
    rows = sum(piece.rows for piece in pieces)
    if _is_here(pieces) and not isinstance(means.tasks, InlineTasks):
        means = replace(means, tasks=InlineTasks())
    if _are_few(rows, sum(map(_size, pieces)), means.tasks):
        outcome = _at_once(meeting, pieces, 0, means.tasks)
    else:
        parts = 1 if rows <= ROWS_AT_ONCE else -(-rows // means.rows_of_a_run)
        outcome = _in_ranges(meeting, pieces, 0, parts, means)
    assert outcome.state is not None
    return outcome.state


def _refuse_empty(incoming: Incoming, current: int) -> None:
    """Refuse a snapshot without rows where there are some: an export that failed leaves one."""
    if current:
        names = [note.name for note in incoming.files]
        raise empty_snapshot(names[0] if names else None, current)


def _refuse_reserved(incoming: Incoming) -> None:
    taken = sorted(RESERVED.intersection(incoming.schema.names))
    if taken:
        raise SchemaError(
            f"column {taken[0]!r} has a name that datasets with a key need for themselves",
            remedy=f"rename it; {', '.join(sorted(RESERVED))} cannot be used",
            code="ReservedColumn",
            column=taken[0],
        )


def _merge(strategy: Keyed, incoming: Incoming, state: State, tail: Tail, means: Means) -> MergeOutcome:
    """Merge rows into the state at a tail."""
    if not incoming.pieces:
        # Nothing was handed in; that is not the same as a snapshot of nothing.
        return MergeOutcome((), state)
    partial = lacking(strategy, incoming, tail)
    meeting = Meeting(strategy, incoming.vocab, incoming.columns, state, key_equality_at(tail), partial)
    # A snapshot is compared with all current rows.
    rows, size = incoming.rows, sum(map(_size, incoming.pieces))
    if isinstance(strategy, Snapshot):
        rows, size = rows + _rows_of(state), size + state.size
    if _is_here(incoming.pieces) and not isinstance(means.tasks, InlineTasks):
        # Rows in this process are not sent to others.
        means = replace(means, tasks=InlineTasks())
    if _are_few(rows, size, means.tasks):
        return _at_once(meeting, incoming.pieces, tail.next_offset, means.tasks)
    # What could be merged at once is one range, so that the state is the same whichever way it is merged.
    parts = 1 if rows <= ROWS_AT_ONCE else -(-rows // means.rows_of_a_run)
    return _in_ranges(meeting, incoming.pieces, tail.next_offset, parts, means)


def _are_few(rows: int, size: int, tasks: Tasks) -> bool:
    """Say whether rows are merged in this process at once, where others could do it too."""
    return rows <= ROWS_AT_ONCE if isinstance(tasks, InlineTasks) else rows <= FEW_ROWS and size <= FEW_BYTES


def _size(piece: IncomingPiece) -> int:
    """Return the bytes of a piece, as far as they are known."""
    return getattr(piece, "size", 0)


def _rows_of(state: State) -> int:
    return sum(info.rows for generation in state.generations for info in generation)


def _is_here(pieces: Sequence[IncomingPiece]) -> bool:
    """Say whether rows are in the memory of this process."""
    return any(piece.rows and getattr(piece, "table", None) is not None for piece in pieces)


def _at_once(meeting: Meeting, given: Sequence[IncomingPiece], first: int, tasks: Tasks) -> MergeOutcome:
    """Merge all rows in memory."""
    new = meeting.read([RowRange(piece, 0, piece.rows) for piece in given], 0)
    old = meeting.current(new)
    passed = (0 if _is_here(given) else new.nbytes) + (0 if old is None else old.nbytes)
    merged = meeting.merged_with(old, new)
    events = merged.events.drop_columns([RANK]) if RANK in merged.events.column_names else merged.events
    state = meeting.state
    if merged.delta is not None and merged.delta.num_rows:
        delta = merged.delta_with_offsets(OFFSET, first)
        # A ledger only asks whether a key is known.
        kept = delta.select([KEY, GONE, OFFSET]) if isinstance(meeting.strategy, Ledger) else delta
        state = extended(state, [kept], tasks, updated=_updated(meeting, merged.tally))
    pieces = (IncomingPiece.of(events),) if events.num_rows else ()
    return MergeOutcome(pieces, state, _counted(merged.ignored), merged.tally, passed)


def _in_ranges(
    meeting: Meeting, pieces: Sequence[IncomingPiece], first: int, parts: int, means: Means
) -> MergeOutcome:
    """Sort all rows through scratch, merge them range by range, and keep the events there too."""
    runs = sorted_runs(meeting, pieces, means)
    merged = merged_ranges(meeting, runs, parts, means)
    if isinstance(meeting.strategy, Ledger):
        events, segments = in_source_order(meeting, pieces, merged, first, means)
    else:
        events, segments = in_key_order(meeting, merged, first, means)
    ignored: Counter[str] = Counter()
    for each in merged:
        ignored.update(each.ignored)
    tally = sum((each.tally for each in merged), MergeCounts())
    state = meeting.state
    if segments:
        state = extended(state, segments, means.tasks, updated=_updated(meeting, tally))
    return MergeOutcome(events, state, _counted(ignored), tally)


def put_into(state: State, key: Sequence[str], before: pa.Table, after: pa.Table, op: str) -> State:
    """Do as `merge_into` where the caller has looked up what there is of the rows' groups: those `before`."""
    there, kept = _by_key(before, key)
    keys, rows = _by_key(after, key)
    places, known = find(there, keys)
    gone = np.asarray(as_array(rows[op])) == Op.RETRACT
    rows = rows.drop_columns([op])
    compare = [name for name in rows.column_names if name not in key]
    differs = np.ones(len(gone), dtype=bool)
    differs[known] = rows_differ(
        kept.take(pa.array(places[known])), rows.filter(pa.array(known)), compare, None
    )
    acts = np.flatnonzero(np.where(known, gone | differs, ~gone))
    known, gone = known[acts], gone[acts]
    # As if there were events: a group that is corrected has two.
    set_by = np.cumsum(1 + (known & ~gone)) - 1
    delta = rows.take(pa.array(acts)).take(pa.array(np.arange(len(acts)), mask=gone))
    delta = delta.add_column(0, GONE, pa.array(gone)).add_column(0, KEY, keys.take(pa.array(acts)))
    delta = delta.append_column(pa.field(OFFSET, pa.int64()), pa.array(set_by, mask=gone))
    updated = 0 if gone.any() else int(known.sum())
    return extended(state, [delta], InlineTasks(), updated=updated) if len(acts) else state


def _by_key(rows: pa.Table, key: Sequence[str]) -> tuple[pa.BinaryArray, pa.Table]:
    keys = encode_keys(rows, key, encoding=KeyEncoding.GROUP)
    order = sorting(keys)
    return (keys, rows) if order is None else (keys.take(pa.array(order)), rows.take(pa.array(order)))


def _updated(meeting: Meeting, tally: MergeCounts) -> int:
    """Return how many keys were set anew, where that is known: groups come once each."""
    return tally.updates if meeting.once and not tally.deletes else 0


def _counted(ignored: Mapping[str, int]) -> dict[str, int]:
    return {why: count for why, count in ignored.items() if count}
