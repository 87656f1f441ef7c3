"""Queries that work row by row: run over the rows that inputs lost and over those they gained."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from trueline.dataset.advance import with_copies
from trueline.dataset.append.append import in_this_process
from trueline.dataset.append.frames import take_frame
from trueline.dataset.append.incoming import from_table, nothing
from trueline.dataset.append.merge import Terms
from trueline.dataset.derivation import KeyKind
from trueline.workspace.derive.strategies.increment import (
    Delta,
    DerivedTransaction,
    Impossible,
    Recorded,
    delta_of,
    increment_session,
    side_of,
)

_LABEL: Final = "following the inputs"


def follow_stateless(transaction: DerivedTransaction[Recorded]) -> Recorded:
    """Record what the rows that were lost and gained make of the result."""
    with increment_session(transaction) as session:
        delta = delta_of(transaction, session)
        if not delta.sides:
            return commit_rows(transaction, None)
        frame = _signed(transaction, session(), delta)
        if delta.is_local:
            from trueline.spark.increments import local_table

            rows = transaction.carried.add(local_table(frame, label=_LABEL))
            return commit_rows(transaction, rows)
        if transaction.derivation.identity is KeyKind.BAG:
            raise Impossible("bag_too_large")
        return _commit_frame(transaction, frame)


def _signed(transaction: DerivedTransaction[Any], session: Any, delta: Delta) -> Any:
    """Return the rows of the result that go, then those that come; `op` says which they are."""
    from trueline.spark.increments import one_after_another

    *_, text = transaction.derivation.canonical
    frames = []
    for sign, rows in delta.sides:
        frames.append((1 if sign < 0 else 0, side_of(session, text, rows, delta)))
    found = one_after_another(frames, transaction.tail.vocab.op)
    return found.coalesce(1) if delta.is_local else found


def commit_rows(transaction: DerivedTransaction[Recorded], change: pa.Table | None, **left: Any) -> Recorded:
    """Commit rows of this process that go and come."""
    dataset, tail = transaction.dataset, transaction.tail
    if change is None or not change.num_rows:
        rows = nothing(tail)
    else:
        if transaction.derivation.identity is KeyKind.BAG:
            change = with_copies(dataset.chain, tail, transaction.derivation, change, tail.vocab.op)
        rows = from_table(change, tail, with_op=True)
    with dataset.chain.store.scratch() as scratch:
        terms = Terms(scratch, in_this_process())
        return transaction.record(transaction, rows, transaction.leaving(**left), terms)


def _commit_frame(transaction: DerivedTransaction[Recorded], frame: Any) -> Recorded:
    """Commit rows that are many: tasks write and merge them."""
    dataset, tail = transaction.dataset, transaction.tail
    tasks = transaction.workspace._spark.tasks_for(frame)
    with dataset.chain.store.scratch() as scratch:
        rows = take_frame(frame, tail, scratch, tasks, with_op=True)
        return transaction.record(transaction, rows, transaction.advance, Terms(scratch, tasks))
