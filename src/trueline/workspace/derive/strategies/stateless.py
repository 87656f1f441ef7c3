"""Queries that work row by row: run over the rows that inputs lost and over those they gained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from trueline.dataset.advance import with_copies
from trueline.dataset.append.append import in_this_process
from trueline.dataset.append.frames import take_frame
from trueline.dataset.append.incoming import from_table, nothing
from trueline.dataset.append.merge import Terms
from trueline.dataset.append.pieces import WriteAsGiven
from trueline.dataset.derivation import KeyKind
from trueline.workspace.derive.strategies.bags import numbered_in_tasks
from trueline.workspace.derive.strategies.increment import (
    Delta,
    DerivedTransaction,
    DriverBytes,
    Recorded,
    delta_of,
    increment_session,
)
from trueline.workspace.derive.strategies.spooled import read_within, side_of, spooled

if TYPE_CHECKING:
    from trueline.chain.store.scratch import Scratch
    from trueline.dataset.append.incoming import Incoming

_LABEL: Final = "following the inputs"
# A query may make more of rows: what comes of more than this part of the room is looked at in a file first.
_GROWTH: Final = 7


def follow_stateless(transaction: DerivedTransaction[Recorded]) -> Recorded:
    """Record what the rows that were lost and gained make of the result."""
    *_, text = transaction.statements
    with increment_session(transaction) as session, transaction.dataset.chain.store.scratch() as scratch:
        delta = delta_of(transaction, session)
        if not delta.sides:
            return commit_rows(transaction, None)
        frame = _signed(transaction, text, session(), delta, scratch)
        if delta.is_local and (rows := _few_rows(transaction.carried, frame, scratch)) is not None:
            return commit_rows(transaction, transaction.carried.add(rows))
        return _commit_frame(transaction, frame, scratch)


def _few_rows(carried: DriverBytes, frame: Any, scratch: Scratch) -> pa.Table | None:
    """Bring what a small change makes of the result to this process; None if that is not small."""
    from trueline.spark.increments import local_table
    from trueline.spark.types import arrow_schema_of

    if _GROWTH * carried.size <= carried.room:
        return local_table(frame.coalesce(1), label=_LABEL)
    if scratch.folder is None:
        return None
    return read_within(spooled(frame, scratch, _LABEL), arrow_schema_of(frame.schema), carried.room)


def _signed(
    transaction: DerivedTransaction[Any], text: str, session: Any, delta: Delta, scratch: Scratch
) -> Any:
    """Return the rows of the result that go, then those that come; `op` says which they are."""
    from trueline.spark.increments import one_after_another

    frames = []
    for sign, rows in delta.sides:
        frames.append((1 if sign < 0 else 0, side_of(session, text, rows, delta, scratch)))
    return one_after_another(frames, transaction.tail.vocab.op)


def commit_rows(transaction: DerivedTransaction[Recorded], change: pa.Table | None, **left: Any) -> Recorded:
    """Commit rows of this process that go and come."""
    rows = rows_of_change(transaction, change)
    with transaction.dataset.chain.store.scratch() as scratch:
        terms = Terms(scratch, in_this_process())
        return transaction.record(transaction, rows, transaction.leaving(**left), terms)


def rows_of_change(transaction: DerivedTransaction[Any], change: pa.Table | None) -> Incoming:
    """Return rows of this process that go and come as they are committed."""
    tail = transaction.tail
    if change is None or not change.num_rows:
        return nothing(tail)
    if transaction.derivation.identity is KeyKind.BAG:
        change = with_copies(transaction.dataset.chain, tail, transaction.derivation, change)
    return from_table(change, tail, with_op=True)


def _commit_frame(transaction: DerivedTransaction[Recorded], frame: Any, scratch: Scratch) -> Recorded:
    """Commit rows that are many: tasks write and merge them."""
    terms = Terms(scratch, transaction.workspace._spark.tasks_for(frame))
    if transaction.derivation.identity is KeyKind.BAG:
        rows = _bag(transaction, frame, terms)
    else:
        rows = take_frame(frame, transaction.tail, scratch, terms.tasks, with_op=True)
    return transaction.record(transaction, rows, transaction.advance, terms)


def _bag(transaction: DerivedTransaction[Any], frame: Any, terms: Terms) -> Incoming:
    """Return rows that nothing identifies, their copies numbered."""
    from trueline.spark.frames import write_pieces
    from trueline.spark.types import arrow_schema_of

    schema = arrow_schema_of(frame.schema)
    written = write_pieces(frame, WriteAsGiven(terms.scratch, schema), label=_LABEL)
    pieces = [piece for piece in written if piece.rows]
    return numbered_in_tasks(transaction, pieces, schema, terms) if pieces else nothing(transaction.tail)
