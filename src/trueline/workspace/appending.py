"""Adding rows: plan from the head, write the slice, move the head; again if someone was faster."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.chain import Chain
from trueline.chain.commits import CommitRecord, commit_record
from trueline.chain.events import DataSlice, Event, SetDataSchema
from trueline.chain.instant import Instant
from trueline.chain.planning import next_add_data
from trueline.chain.tail import Tail
from trueline.errors import InputError, RefCASFailed, SchemaError
from trueline.identity.logical import logical_hash
from trueline.workspace.commit import Commit, commit_at, linked
from trueline.workspace.definition import check_appendable
from trueline.workspace.intake import Fitted, fit, hold
from trueline.workspace.slices import write_slice

MAX_KEY = 512


def append_rows(
    name: str, chain: Chain, tail: Tail, data: object, *, watermark: object = None, key: str | None = None
) -> Commit:
    """Add rows to a root dataset as one commit, whatever other writers do meanwhile.

    A lost race (rule chain:C8) costs one more round: the rows get the offsets
    that follow the winner's, so their slice is written again.
    """
    _check_key(key)
    explicit = None if watermark is None else as_instant(watermark)
    held = hold(data)
    fitted: Fitted | None = None
    digest: str | None = None
    before = tail
    while True:
        check_appendable(name, tail)
        if fitted is None or (before.schema, before.vocab) != (tail.schema, tail.vocab):
            fitted, before = fit(held, tail), tail
            digest = str(logical_hash(fitted.table)) if key is not None else None
        if key is not None and (earlier := _earlier(name, chain, key, digest)) is not None:
            return earlier
        moved = _watermark(tail, fitted, explicit)
        if not fitted.table.num_rows and moved == tail.watermark:
            return _nothing(name, tail)
        try:
            return _commit(name, chain, tail, fitted, watermark=moved, record=_record(key, digest, fitted))
        except RefCASFailed:
            found = chain.tail()
            assert found is not None
            tail = found


def _commit(
    name: str, chain: Chain, tail: Tail, fitted: Fitted, *, watermark: Instant | None, record: CommitRecord
) -> Commit:
    # A time of its own for every commit: neighbours with equal times are one commit.
    system_time = Instant(max(Instant.now(), tail.system_time + 1))
    with chain.store.lease():
        new: dict[str, Any] = {"new_watermark": watermark, "extra": record.to_extra()}
        if fitted.table.num_rows:
            new["new_data"] = _slice(chain, tail, fitted, system_time)
        blocks = linked(tail, [*_definitions(tail, fitted), next_add_data(tail, **new)], system_time)
        chain.append(*blocks)
    return Commit.of(name, [(block.hash, block) for block in blocks])


def _slice(chain: Chain, tail: Tail, fitted: Fitted, system_time: Instant) -> DataSlice:
    vocab = fitted.vocab or tail.vocab
    return write_slice(
        chain.store, fitted.table, fitted.schema, vocab, first=tail.next_offset, system_time=system_time
    )


def _definitions(tail: Tail, fitted: Fitted) -> list[Event]:
    events: list[Event] = []
    if fitted.vocab is not None:
        events.append(fitted.vocab)
    if tail.schema is None and fitted.table.num_rows:
        events.append(SetDataSchema(schema=fitted.schema))
    return events


def _nothing(name: str, tail: Tail) -> Commit:
    offsets = range(tail.next_offset, tail.next_offset)
    return Commit(name, tail.head, tail.sequence_number, tail.system_time, offsets, tail.watermark)


# --- once only ------------------------------------------------------------------


def _check_key(key: object) -> None:
    if key is not None and (not isinstance(key, str) or not 0 < len(key) <= MAX_KEY):
        raise InputError(
            f"the idempotency key is {key!r:.80}",
            remedy=f"give text of 1 to {MAX_KEY} characters",
            code="BadKey",
        )


def _record(key: str | None, digest: str | None, fitted: Fitted) -> CommitRecord:
    notes: dict[str, Any] = {}
    if key is not None:
        notes |= {"idempotency_key": key, "digest": digest}
    if fitted.rounded:
        notes["rounded"] = fitted.rounded
    return CommitRecord(notes=notes or None)


def _earlier(name: str, chain: Chain, key: str, digest: str | None) -> Commit | None:
    """Return the commit that carries a key already; other data under the same key is an error."""
    block = chain.token(key)
    if block is None:
        return None
    commit = commit_at(name, chain, block.hash)
    if (commit_record(block).notes or {}).get("digest") != digest:
        raise InputError(
            f"the idempotency key {key!r} belongs to commit {commit.short}, which added other data",
            remedy="use a new key for new data",
            code="KeyReused",
            key=key,
            commit=commit.block,
        )
    return commit


# --- watermarks -----------------------------------------------------------------


def as_instant(moment: object) -> Instant:
    """Read a moment: an aware datetime, a date (its beginning, UTC), or RFC 3339 text.

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
    raise InputError(f"{moment!r} is not a moment", remedy="give an aware datetime or RFC 3339 text")


def _watermark(tail: Tail, fitted: Fitted, explicit: Instant | None) -> Instant | None:
    """Return the watermark after these rows; it never goes back (rule chain:D5)."""
    found = explicit if explicit is not None else _newest(fitted)
    before = tail.watermark
    return before if found is None or (before is not None and found < before) else found


def _newest(fitted: Fitted) -> Instant | None:
    column = fitted.table.column(0)
    newest = pc.max(column).cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).as_py() if len(column) else None
    if newest is None:
        return None
    try:
        return Instant(newest * 1_000_000)
    except InputError as error:
        name = fitted.table.column_names[0]
        raise SchemaError(f"column {name!r}: {error.problem}", remedy=error.remedy, column=name) from None
