"""How derived datasets follow their inputs: by the increment where that is possible, else by recomputing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trueline.chain.checkpoint import DerivedCheckpoint, derived_checkpoint
from trueline.chain.events import ExecuteTransform
from trueline.dataset.advance import commit_result
from trueline.dataset.append.frames import take_frame
from trueline.dataset.commit import Commit
from trueline.errors import TruelineError
from trueline.workspace.derive.evaluate import query_session, views_at
from trueline.workspace.derive.exact import ESCAPED
from trueline.workspace.derive.strategies.classify import KEYED, RECOMPUTE, STATELESS
from trueline.workspace.derive.strategies.increment import DerivedTransaction, Impossible, is_same_definition
from trueline.workspace.derive.strategies.keyed import KEPT, built, follow_keyed
from trueline.workspace.derive.strategies.stateless import follow_stateless

if TYPE_CHECKING:
    from trueline.chain.store.scratch import Scratch


@dataclass(frozen=True, slots=True)
class Advanced:
    """What a transaction did: its commit, by which strategy, why by no better one, and what passed here."""

    commit: Commit
    strategy: str
    reason: str = ""
    driver_bytes: int = 0


def advance_by(transaction: DerivedTransaction) -> Advanced:
    """Bring a dataset to the positions of a transaction by the strategy of its definition.

    Where an increment is not possible (the first time, or without its state) all is computed; the reason
    says so. What is recorded is the same.
    """
    strategy = transaction.derivation.strategy
    reason = transaction.derivation.reason
    if strategy in (STATELESS, KEYED):
        try:
            commit = _increment(transaction, strategy)
        except Impossible as problem:
            reason = problem.code
        except TruelineError as error:
            found = _remediable(error)
            if found is None:
                raise
            reason = found
        else:
            return Advanced(commit, strategy, "", transaction.carried.size)
    return Advanced(recomputed(transaction), RECOMPUTE, reason, transaction.carried.size)


def _remediable(error: TruelineError) -> str | None:
    """Return the code of an error that computing the whole result does not have, None for others."""
    if error.code == "RowsDisagree":
        return "state_disagrees"
    return "wide_numbers" if ESCAPED in str(error) else None


def _increment(transaction: DerivedTransaction, strategy: str) -> Commit:
    left = _left(transaction)
    if left is None:
        raise Impossible("first")
    if not is_same_definition(left, transaction.advance.left) or transaction.tail.redefined:
        raise Impossible("redefined")
    return follow_keyed(transaction, left) if strategy == KEYED else follow_stateless(transaction)


def _left(transaction: DerivedTransaction) -> DerivedCheckpoint | None:
    event = transaction.tail.data
    if not isinstance(event, ExecuteTransform):
        return None
    return derived_checkpoint(transaction.dataset.chain.store, event)


def recomputed(transaction: DerivedTransaction) -> Commit:
    """Compute the whole result and record what it changes; what the strategy keeps is made again."""
    dataset, derivation = transaction.dataset, transaction.derivation
    views = views_at(transaction.inputs, transaction.advance.positions)
    with query_session(transaction.workspace, views) as session, dataset.chain.store.scratch() as scratch:
        left = _kept(transaction, session.session, scratch) if derivation.strategy == KEYED else {}
        frame = session.result(derivation)
        tasks = transaction.workspace._spark.tasks_for(frame)
        result = take_frame(frame, transaction.tail, scratch, tasks)
        return commit_result(
            dataset.name,
            dataset.chain,
            derivation,
            result,
            transaction.leaving(**left),
            scratch=scratch,
            tasks=tasks,
        )


def _kept(transaction: DerivedTransaction, session: Any, scratch: Scratch) -> dict[str, Any]:
    """Make the accumulators again; without them the next increment is computed as a whole too."""
    try:
        name, files = built(transaction, session, scratch)
    except Impossible:
        return {}
    return {"state": files, "more": {**transaction.advance.left.more, KEPT: name}}
