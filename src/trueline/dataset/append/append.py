"""Adding rows to a root dataset: take them in, then commit them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import pyarrow as pa

from trueline.chain.chain import Chain
from trueline.chain.head_state import Tail
from trueline.chain.instant import Instant
from trueline.chain.store.files import refusal
from trueline.chain.store.scratch import Scratch
from trueline.dataset.append.commit import Order, as_instant, commit
from trueline.dataset.append.frames import take_frame, take_view
from trueline.dataset.append.incoming import Incoming, from_table, no_rows, nothing
from trueline.dataset.append.intake import AppendRequest, as_table, hold, is_frame
from trueline.dataset.append.staged import StagedRows
from trueline.dataset.append.stream import (
    as_stream,
    in_batches,
    plan_on_spark,
    same_columns,
    take_stream,
)
from trueline.dataset.commit import Commit, check_key
from trueline.dataset.definition import addendum_at, check_appendable, strategy_of
from trueline.errors import InputError, TaskFailed, TruelineError, check_memory
from trueline.kernel.tasks import InlineTasks, Tasks
from trueline.merge import Changelog, Snapshot, Upsert
from trueline.readers import Source
from trueline.view.origin import Origin

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
    run = tasks if tasks is not None else InlineTasks(workers=_WORKERS)
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
        )
        return commit(chain, order, scratch, run)


def _take(chain: Chain, tail: Tail, request: AppendRequest, scratch: Scratch, tasks: Tasks) -> Incoming:
    """Return the rows of a request, ready for the dataset."""
    data, preparation = request.data, request.preparation
    new = request.new_columns or "error"
    if _are_files(data):
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
        return from_table(data, tail, with_op=with_op, new=new)
    stream = as_stream(data)
    if preparation is not None:
        from trueline.dataset.prepare.prepare import prepare_tables

        given = stream if stream is not None else iter([as_table(hold(data, tail), tail)])
        table, steps = prepare_tables(same_columns(given), preparation, scratch)
        return replace(take_stream(in_batches(table), tail, scratch, with_op=with_op, new=new), steps=steps)
    if stream is not None:
        return take_stream(stream, tail, scratch, with_op=with_op, new=new)
    return from_table(hold(data, tail), tail, with_op=with_op, new=new)


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
