"""Adding rows to a root dataset: take them in, then commit them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from trueline.chain.chain import Chain
from trueline.chain.events import SourceState
from trueline.chain.scratch import Scratch
from trueline.chain.tail import Tail
from trueline.errors import InputError
from trueline.identity.logical import logical_hash
from trueline.identity.multihash import Multihash
from trueline.merge import Changelog, Upsert
from trueline.readers import Source
from trueline.workspace.addendum import addendum_of
from trueline.workspace.commit import Commit
from trueline.workspace.definition import check_appendable, strategy_of
from trueline.workspace.ingest.committing import Order, commit
from trueline.workspace.ingest.incoming import Incoming, from_table
from trueline.workspace.ingest.once import check_key
from trueline.workspace.ingest.watermarks import as_instant
from trueline.workspace.intake import hold
from trueline.workspace.tasks import Inline, Tasks


@dataclass(frozen=True, slots=True)
class Polled:
    """That files come from the declared source of a dataset, and how far it has been read with them."""

    versions: bool = False
    state: SourceState | None = None


def append_rows(
    name: str,
    chain: Chain,
    tail: Tail,
    data: object,
    *,
    reader: Any = None,
    max_bad: float | None = None,
    watermark: object = None,
    key: str | None = None,
    resend: bool = False,
    tasks: Tasks | None = None,
    polled: Polled | None = None,
) -> Commit:
    """Add rows as one commit, whatever other writers do meanwhile."""
    check_key(key)
    explicit = None if watermark is None else as_instant(watermark)
    check_appendable(name, tail, nothing=polled is not None or _is_nothing(data))
    run = tasks if tasks is not None else Inline(workers=min(4, os.cpu_count() or 1))
    with chain.store.scratch() as scratch:
        incoming = _take(
            chain, tail, data, reader, max_bad, resend=resend, scratch=scratch, tasks=run, polled=polled
        )
        if key is not None:
            incoming = replace(incoming, digest=_digest(incoming))
        order = Order(name, strategy_of(tail), incoming, key, explicit, addendum_of(chain).lateness_ns)
        return commit(chain, order, scratch, run)


def _take(
    chain: Chain,
    tail: Tail,
    data: object,
    reader: Any,
    max_bad: float | None,
    *,
    resend: bool,
    scratch: Scratch,
    tasks: Tasks,
    polled: Polled | None,
) -> Incoming:
    if _are_files(data):
        from trueline.workspace.ingest.files import take_files

        source = polled if polled is not None else Polled()
        taken = take_files(
            chain,
            tail,
            data,
            reader,
            max_bad,
            resend=resend,
            scratch=scratch,
            tasks=tasks,
            versions=source.versions,
        )
        return replace(taken, source_state=source.state) if taken.files else taken
    if reader is not None or max_bad is not None or resend:
        raise InputError(
            "reader, max_bad and resend are for files",
            remedy="leave them out, or give a path",
            code="NotFiles",
        )
    return from_table(hold(data), tail, with_op=isinstance(strategy_of(tail), Changelog | Upsert))


def _are_files(data: object) -> bool:
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


def _digest(incoming: Incoming) -> str:
    """Tell what was handed in, for retries: the files by their hashes, rows by their logical hash."""
    if incoming.files or incoming.skipped:
        return str(Multihash.of("\n".join(sorted(note.hash for note in incoming.files)).encode()))
    (piece,) = incoming.pieces
    return str(logical_hash(piece.table))
