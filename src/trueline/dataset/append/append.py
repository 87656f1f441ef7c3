"""Adding rows to a root dataset: taken in, merged, written as slices, published by one move of the head."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from trueline.chain.block import CURRENT, KINDS, OPERATIONS, Block, CommitRecord, check_key
from trueline.chain.chain import Chain
from trueline.chain.events import DatasetKind, Event, SetDataSchema
from trueline.chain.head_state import Tail, follow, next_add_data, next_block
from trueline.chain.instant import Instant
from trueline.chain.schema import fields_of
from trueline.chain.store.files import refusal
from trueline.chain.store.scratch import Scratch
from trueline.chain.store.store import Folder, Store
from trueline.dataset.append.frames import take_frame, take_view
from trueline.dataset.append.incoming import Incoming, from_table, no_rows, nothing
from trueline.dataset.append.intake import AppendRequest, ColumnOf, Held, as_table, hold, is_frame
from trueline.dataset.append.merge import MergeOutcome, Terms, merge_pieces, write_checkpoint
from trueline.dataset.append.new_columns import NewColumns
from trueline.dataset.append.pieces import ROWS_OF_A_SLICE
from trueline.dataset.append.slices import SliceLayout, Written, write_all
from trueline.dataset.append.staged import StagedRows
from trueline.dataset.append.stream import (
    as_stream,
    in_batches,
    plan_on_spark,
    same_columns,
    take_stream,
)
from trueline.dataset.checks import CheckedCommit, advice_of, without_broken
from trueline.dataset.commit import Advice, Commit, earlier
from trueline.dataset.counts import counted_rows
from trueline.dataset.definition import addendum_at, check_appendable, strategy_of
from trueline.dataset.derivation import checks_at
from trueline.errors import InputError, RefCASFailed, TaskFailed, TruelineError, check_memory
from trueline.identity.multihash import Multihash
from trueline.kernel.tasks import InlineTasks, Tasks
from trueline.merge import Append, Changelog, NetChange, Snapshot, Strategy, Upsert
from trueline.readers import Source
from trueline.view.origin import Origin, noted

# Each costs writing all slices once more.
LOST_RACES: Final = 2
# Asked once: the answer is read from a file, which takes 45 µs.
_WORKERS: Final = min(4, os.cpu_count() or 1)


def append_rows(
    name: str,
    chain: Chain,
    tail: Tail,
    request: AppendRequest,
    *,
    tasks: Tasks | None = None,
    clock: Callable[[], Instant] | None = None,
) -> Commit:
    """Add rows as one commit, whatever other writers do meanwhile; `tasks` run where the rows are."""
    check_key(request.idempotency_key)
    explicit = None if request.watermark is None else as_instant(request.watermark)
    only_watermark = _is_nothing(request.data) and not request.allow_empty
    check_appendable(name, tail, nothing=request.polled is not None or only_watermark)
    if request.new_columns is None:
        request = replace(request, new_columns=addendum_at(tail).new_columns or "error")
    run = tasks if tasks is not None else in_this_process()
    with typed_errors(chain.store.location), chain.store.scratch() as scratch:
        incoming = _take(chain, tail, request, scratch, run)
        if request.idempotency_key is not None:
            incoming = incoming.with_digest(run)
        order = Order(
            name,
            strategy_of(tail),
            incoming,
            request.idempotency_key,
            explicit,
            addendum_at(tail).lateness_ns,
            clock,
            request.allow_empty,
            origins=_origins(request.data),
            column_of=request.column_of,
        )
        return commit(chain, order, scratch, run)


def _take(chain: Chain, tail: Tail, request: AppendRequest, scratch: Scratch, tasks: Tasks) -> Incoming:
    """Return the rows of a request, ready for the dataset."""
    data, preparation = request.data, request.preparation
    new = request.new_columns or "error"
    if are_files(data):
        from trueline.dataset.append.files import take_files

        taken = take_files(chain, tail, request, scratch, tasks)
        if not taken.files:
            return taken

        def retake() -> Incoming:
            now = chain.tail()
            assert now is not None
            return _take(chain, now, request, scratch, tasks)

        state = None if request.polled is None else request.polled.state
        return replace(taken, source_state=state, retake=retake)
    if is_frame(data) and preparation is not None:
        raise InputError(
            "steps apply to files and tables, not to Spark frames",
            remedy="transform the frame before it is appended",
            code="StepsOnFrame",
        )
    for_files = request.reader is not None or request.max_bad is not None or request.resend
    if is_frame(data) and not for_files:
        return take_frame(data, tail, scratch, tasks, new)
    if isinstance(data, StagedRows) and not for_files:
        return data.take(chain, tail, new)
    if (plan := plan_on_spark(data)) is not None and not for_files and preparation is None:
        return take_view(plan, tail, scratch, new)
    if _is_nothing(data) and tail.schema is not None and request.reader is None:
        # That the snapshot is empty has to be said.
        is_snapshot = request.allow_empty and isinstance(strategy_of(tail), Snapshot)
        return no_rows(tail) if is_snapshot else nothing(tail)
    if for_files:
        raise InputError(
            "reader, max_bad and resend are for files",
            remedy="leave them out, or give a path",
            code="NotFiles",
        )
    with_op = isinstance(strategy_of(tail), Changelog | Upsert)
    if isinstance(data, pa.Table) and preparation is None:
        return _from_memory(data, tail, scratch, tasks, with_op=with_op, new=new)
    stream = as_stream(data)
    if preparation is not None:
        from trueline.dataset.prepare.prepare import prepare_tables

        given = stream if stream is not None else iter([as_table(hold(data, tail), tail)])
        table, steps = prepare_tables(same_columns(given), preparation, scratch)
        return replace(take_stream(in_batches(table), tail, scratch, with_op=with_op, new=new), steps=steps)
    if stream is not None:
        return take_stream(stream, tail, scratch, with_op=with_op, new=new)
    return _from_memory(hold(data, tail), tail, scratch, tasks, with_op=with_op, new=new)


def _from_memory(
    held: Held, tail: Tail, scratch: Scratch, tasks: Tasks, *, with_op: bool, new: NewColumns
) -> Incoming:
    """Take rows that this process holds; many go through scratch where other processes write the slices."""
    if isinstance(tasks, InlineTasks) or not isinstance(held, pa.Table):
        return from_table(held, tail, with_op=with_op, new=new)
    return take_stream(in_batches(held), tail, scratch, with_op=with_op, new=new)


def in_this_process() -> Tasks:
    """Return what does the work where no other tasks are given."""
    return InlineTasks(workers=_WORKERS)


@contextmanager
def typed_errors(place: str) -> Iterator[None]:
    """Say what the disk refused: scratch files are written without the store."""
    try:
        yield
    except TaskFailed as error:
        if isinstance(cause := error.__cause__, OSError):
            check_memory(cause, "reading the rows")
            raise refusal(cause, "write rows to", place) from error
        raise
    except TruelineError:
        raise
    except MemoryError as error:
        check_memory(error, "reading the rows")
        raise
    except OSError as error:
        check_memory(error, "reading the rows")
        raise refusal(error, "write rows to", place) from error


def _origins(data: object) -> tuple[Origin, ...]:
    """Say which records of datasets what is appended was made from, where that is known: of views."""
    if not hasattr(data, "__arrow_c_stream__"):
        return ()
    from trueline.view.view import View

    return tuple(data.origins.values()) if isinstance(data, View) else ()


def are_files(data: object) -> bool:
    """Say whether what was handed in names files."""
    if isinstance(data, str | os.PathLike | Source):
        return True
    return (
        isinstance(data, Sequence)
        and not isinstance(data, bytes | bytearray)
        and bool(data)
        and all(isinstance(item, str | os.PathLike | Source) for item in data)
    )


def _is_nothing(data: object) -> bool:
    """Say whether nothing was handed in, so that only the watermark can move."""
    return isinstance(data, list) and not data


# --- from rows that are ready to one commit ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be committed, and on what terms; `clock` says what time it is, if not the system's clock.

    With `allow_empty` a snapshot without rows retracts all there are; `reverts_to` is the commit whose rows
    are restored. With `is_replay` checks only leave rows out: the commit was judged when it was made.
    """

    name: str
    strategy: Strategy | NetChange
    incoming: Incoming
    key: str | None = None
    watermark: Instant | None = None
    lateness_ns: int = 0
    clock: Callable[[], Instant] | None = None
    allow_empty: bool = False
    reverts_to: Multihash | None = None
    origins: tuple[Origin, ...] = ()
    column_of: ColumnOf | None = None
    is_replay: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit that is ready to follow one tail, and no other."""

    tail: Tail
    incoming: Incoming
    outcome: MergeOutcome
    written: list[Written]
    system_time: Instant
    watermark: Instant | None
    current_rows: int | None = None
    checks: Mapping[str, int] = field(default_factory=dict)


def commit(chain: Chain, order: Order, scratch: Scratch, tasks: Tasks) -> Commit:
    """Commit rows, whatever other writers do meanwhile.

    Offsets follow the head, so a head that moved means writing the slices
    again. Writers take turns; a large commit is first prepared without its
    turn, and prepared again, within it, only if others came in between. Who
    takes no turns may come in between again; after `LOST_RACES` of these
    only this writer moves the head.
    """
    if (before := earlier(order.name, chain, order.key, order.incoming.is_same_as)) is not None:
        return before
    prepared: Prepared | None = None
    lost = 0
    if order.incoming.rows > ROWS_OF_A_SLICE:
        tail = chain.tail()
        assert tail is not None
        prepared = prepare(chain, tail, order, scratch, tasks)
    while True:
        with chain.store.turn(alone=lost >= LOST_RACES):
            tail = chain.tail()
            assert tail is not None
            if (before := earlier(order.name, chain, order.key, order.incoming.is_same_as)) is not None:
                return before
            overtaken = order.incoming.is_overtaken(chain, tail)
            if not overtaken and (prepared is None or prepared.tail.head != tail.head):
                prepared = prepare(chain, tail, order, scratch, tasks)
            try:
                if prepared is not None and not overtaken:
                    return publish(chain, prepared, order)
            except RefCASFailed:
                prepared, lost = None, lost + 1  # someone who takes no turns
        if overtaken and order.incoming.retake is not None:
            # Reading files may take long, so not within the turn.
            order, prepared = replace(order, incoming=order.incoming.retake()), None


def prepare(chain: Chain, tail: Tail, order: Order, scratch: Scratch, tasks: Tasks) -> Prepared:
    """Merge and write everything a commit after this tail needs; nothing of it is visible yet."""
    incoming = order.incoming.for_tail(tail)
    # A time of its own for every commit: neighbours with equal times are one commit.
    system_time = Instant(max((order.clock or Instant.now)(), tail.system_time + 1))
    checks = checks_at(tail) if tail.attachments is not None else ()
    broken: Mapping[str, int] = {}
    terms = Terms(scratch, tasks, order.allow_empty)
    if checks:
        incoming, broken = without_broken(checks, incoming, order.strategy, terms)
    outcome = MergeOutcome(incoming.pieces)
    if not isinstance(order.strategy, Append):
        outcome = merge_pieces(order.strategy, incoming, chain, tail, terms)
    if checks:
        growth = incoming.rows if isinstance(order.strategy, Append) else outcome.tally.growth
        judged = CheckedCommit(order.name, chain, tail, outcome.pieces, growth, order.column_of)
        broken = {**broken, **judged.judge(checks, tasks, is_replay=order.is_replay)}
    derived = tail.dataset_kind is DatasetKind.Derivative
    layout = SliceLayout(incoming.schema, incoming.vocab, system_time, tail.watermark, whole_pairs=derived)
    written = write_all(chain.store, outcome.pieces, layout, tail.next_offset, tasks)
    watermark = watermark_after(tail, incoming.newest, order.watermark, order.lateness_ns)
    current = None
    if not isinstance(order.strategy, Append):
        current = counted_rows(chain, tail) + outcome.tally.growth
    return Prepared(tail, incoming, outcome, written, system_time, watermark, current, broken)


def publish(chain: Chain, prepared: Prepared, order: Order) -> Commit:
    """Append the blocks of a prepared commit and move the head once."""
    notes = _notes(chain.store, prepared, order)
    recorded = bool(prepared.written) or prepared.watermark != prepared.tail.watermark
    recorded = recorded or any(key in notes for key in ("idempotency_key", "files"))
    if not recorded:
        return _nothing(prepared, order)
    blocks = _blocks(chain.store, prepared, notes)
    chain.append(*blocks)
    made = Commit.of(order.name, [(block.hash, block) for block in blocks], chain)
    incoming, advice = prepared.incoming, prepared.incoming.advice
    if made.bad:
        remedy = "look at commit.bad_cells(); max_bad=0 refuses such files"
        advice = (Advice("BadCells", f"{made.bad_summary}, null instead", remedy), *advice)
    if prepared.checks:
        advice = (*advice, *advice_of(prepared.checks))
    return replace(
        made,
        skipped=incoming.skipped,
        left_out=incoming.left_out,
        duplicates=incoming.duplicates,
        advice=advice,
    )


def _nothing(prepared: Prepared, order: Order) -> Commit:
    tail = prepared.tail
    offsets = range(tail.next_offset, tail.next_offset)
    return Commit(
        order.name,
        tail.head,
        tail.sequence_number,
        tail.system_time,
        offsets,
        tail.watermark,
        ignored=prepared.outcome.ignored,
        skipped=prepared.incoming.skipped,
        left_out=prepared.incoming.left_out,
        duplicates=prepared.incoming.duplicates,
    )


def _notes(store: Store, prepared: Prepared, order: Order) -> dict[str, Any]:
    """What the commit says of itself, beside its rows."""
    incoming = prepared.incoming
    notes: dict[str, Any] = {}
    if order.key is not None:
        notes |= {"idempotency_key": order.key, "digest": incoming.digest}
    if order.reverts_to is not None:
        notes["reverted_to"] = str(order.reverts_to)
    counts: Mapping[str, Any] = {
        "rounded": incoming.rounded,
        "late": sum(written.late for written in prepared.written),
        "bad": dict(incoming.bad),
        "ignored": dict(prepared.outcome.ignored),
        "checks": dict(prepared.checks),
    }
    notes |= {name: value for name, value in counts.items() if value}
    notes |= _row_counts(prepared)
    if incoming.ignored_columns:
        notes["ignored_columns"] = list(incoming.ignored_columns)
    if incoming.steps:
        notes["steps"] = list(incoming.steps)
    if order.origins:
        notes["origins"] = [noted(origin) for origin in order.origins]
    if order.column_of is not None and order.column_of.judged_at:
        notes["judged_at"] = dict(order.column_of.judged_at)
    if incoming.files:
        notes["files"] = _files(incoming, prepared.tail.next_offset, isinstance(order.strategy, Append))
    if incoming.bad_cells is not None and incoming.bad_cells.num_rows:
        notes["objects"] = {"bad_cells": _bad_cells(store, incoming.bad_cells)}
    return notes


def _row_counts(prepared: Prepared) -> dict[str, Any]:
    """What the commit did to current rows, and how many there are now; nothing where all rows are."""
    if prepared.current_rows is None:
        return {}
    tally = prepared.outcome.tally
    counts = dict(zip(KINDS, (tally.inserts, tally.updates, tally.deletes), strict=True))
    done = {OPERATIONS: {kind: count for kind, count in counts.items() if count}} if prepared.written else {}
    return {CURRENT: prepared.current_rows, **done}


def _files(incoming: Incoming, first: int, in_order: bool) -> list[dict[str, Any]]:
    """List the files; where rows keep their order, with the offsets each became."""
    listed = []
    for note in incoming.files:
        file: dict[str, Any] = {
            "name": note.name,
            "hash": str(note.hash),
            "size": note.size,
            "rows": note.rows,
        }
        if in_order and note.rows:
            file["offsets"] = [first, first + note.rows - 1]
        first += note.rows
        listed.append(file)
    return listed


def _bad_cells(store: Store, cells: pa.Table) -> dict[str, Any]:
    writer = store.writer(Folder.DATA)
    try:
        with pa.output_stream(writer) as sink:
            pq.write_table(cells, sink, compression="snappy")
        stored = writer.finish()
    finally:
        writer.abandon()
    return {"hash": str(stored.hash), "size": stored.size}


def _blocks(store: Store, prepared: Prepared, notes: Mapping[str, Any]) -> list[Block]:
    """Definitions first, then one AddData per slice; what is said of the whole is in the last."""
    tail = prepared.tail
    blocks: list[Block] = []
    for event in definitions_of(prepared):
        blocks.append(next_block(tail, event, prepared.system_time))
        tail = follow(tail, blocks[-1])
    parts = max(len(prepared.written), 1)
    for part in range(1, parts + 1):
        new: dict[str, Any] = {
            "extra": CommitRecord(part, parts, notes if part == parts else None).to_extra()
        }
        if prepared.written:
            new["new_data"] = prepared.written[part - 1].slice
        if part == parts:
            new["new_watermark"] = prepared.watermark
            if prepared.incoming.source_state is not None:
                new["new_source_state"] = prepared.incoming.source_state
            checkpoint = _checkpoint(store, prepared, notes)
            if checkpoint is not None:
                new["new_checkpoint"] = checkpoint
        blocks.append(next_block(tail, next_add_data(tail, **new), prepared.system_time))
        tail = follow(tail, blocks[-1])
    return blocks


def _checkpoint(store: Store, prepared: Prepared, notes: Mapping[str, Any]) -> Any:
    """Return a new checkpoint if the state moved, or if the commit would otherwise record nothing (D9)."""
    state = prepared.outcome.state
    if prepared.written:
        return write_checkpoint(store, state, {}) if state is not None else None
    if prepared.watermark != prepared.tail.watermark:
        return None
    sequence = prepared.tail.sequence_number + 1
    return write_checkpoint(store, state, {"commit": {**notes, "sequence_number": sequence}})


def definitions_of(prepared: Prepared) -> list[Event]:
    """The vocabulary and the schema, where these rows bring or extend them."""
    tail, incoming = prepared.tail, prepared.incoming
    events: list[Event] = []
    if incoming.vocab != tail.vocab:
        events.append(incoming.vocab)
    current = fields_of(tail.schema) if tail.schema is not None else None
    if prepared.written and current != incoming.schema.fields:
        events.append(SetDataSchema(schema=incoming.schema))
    return events


FIRST = Instant.parse("0001-01-01T00:00:00Z")


def as_instant(moment: object) -> Instant:
    """Read a point in time: an aware datetime, a date (its beginning, UTC), or RFC 3339 text.

    >>> as_instant("2026-11-13T12:00:00+01:00"), as_instant(date(2026, 11, 13))
    (Instant('2026-11-13T11:00:00Z'), Instant('2026-11-13T00:00:00Z'))
    """
    if isinstance(moment, Instant):
        return moment
    if isinstance(moment, datetime):
        return Instant.of(moment)
    if isinstance(moment, date):
        return Instant.parse(f"{moment.isoformat()}T00:00:00Z")
    if isinstance(moment, str):
        return Instant.parse(f"{moment}T00:00:00Z" if len(moment) == 10 else moment)
    raise InputError(f"{moment!r} is not a time", remedy="give an aware datetime or RFC 3339 text")


def watermark_after(
    tail: Tail, newest: Instant | None, explicit: Instant | None, lateness_ns: int
) -> Instant | None:
    """Return the watermark after rows up to `newest`: it lags by the lateness and never goes back (D5)."""
    found = explicit
    if found is None and newest is not None:
        found = Instant(max(newest - lateness_ns, FIRST))
    before = tail.watermark
    return before if found is None or (before is not None and found < before) else found
