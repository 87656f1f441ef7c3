"""How derived datasets follow their inputs: by the increment where that is possible, else by recomputing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trueline.chain.checkpoint import DerivedCheckpoint, derived_checkpoint
from trueline.chain.events import ExecuteTransform
from trueline.dataset.advance import commit_result
from trueline.dataset.commit import Commit
from trueline.errors import InputError, TruelineError
from trueline.kernel.power_sums import ESCAPED
from trueline.workspace.derive.evaluate import QuerySession, query_session, taken
from trueline.workspace.derive.function import check_partitionings, permitted
from trueline.workspace.derive.input_tables import tables_read, views_at
from trueline.workspace.derive.strategies.classify import (
    KEYED,
    RECOMPUTE,
    STATELESS,
    InputFacts,
    StrategyVerdict,
    classify,
)
from trueline.workspace.derive.strategies.increment import (
    DerivedTransaction,
    Impossible,
    is_same_definition,
)
from trueline.workspace.derive.strategies.keyed import KEPT, built, follow_keyed, judged
from trueline.workspace.derive.strategies.stateless import follow_stateless
from trueline.workspace.pull.scheduler import go_on

if TYPE_CHECKING:
    from trueline.chain.store.scratch import Scratch
    from trueline.dataset.append.incoming import Incoming
    from trueline.dataset.derivation import Derivation
    from trueline.kernel.tasks import Tasks
    from trueline.workspace.dataset import Dataset


def with_strategy(derivation: Derivation, inputs: Mapping[str, Dataset], session: QuerySession) -> Derivation:
    """Say how a dataset follows its inputs."""
    *steps, text = derivation.canonical
    if steps or derivation.reason:
        return replace(derivation, strategy=RECOMPUTE, reason=derivation.reason or "steps")
    facts = {
        table.name: InputFacts(table.only_grows(inputs[table.alias]))
        for table in tables_read([text], list(inputs))
    }
    verdict = classify(text, facts, derivation.key, operators=session.operators(text))
    if verdict.strategy == KEYED:
        append_only = all(fact.append_only for fact in facts.values())
        if reason := judged(session.session, text, session.tables, append_only=append_only):
            verdict = StrategyVerdict(RECOMPUTE, reason)
    return replace(derivation, strategy=verdict.strategy, reason=verdict.reason)


@dataclass(frozen=True, slots=True)
class Advanced:
    """What a transaction did: its commit, by which strategy, why by no better one, and what passed here."""

    commit: Commit
    strategy: str
    reason: str = ""
    driver_bytes: int = 0


def advance_by(transaction: DerivedTransaction[Commit]) -> Advanced:
    """Bring a dataset to the positions of a transaction by the strategy of its definition.

    Where an increment is not possible (the first time, or without its state) all is computed; the reason
    says so. What is recorded is the same.
    """
    strategy = transaction.derivation.strategy
    reason = transaction.derivation.reason
    transaction.check_statements()
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
        if transaction.derivation.from_here and reason != "first":
            raise InputError(
                f"{transaction.dataset.name!r} cannot follow by the increment ({reason}), and the rows from"
                " before its definition are to stay",
                remedy="define it again with on_change='rebuild'",
                code="CannotRecompute",
                reason=reason,
            )
    return Advanced(recomputed(transaction), RECOMPUTE, reason, transaction.carried.size)


def _remediable(error: TruelineError) -> str | None:
    """Return the code of an error that computing the whole result does not have, None for others."""
    if error.code == "RowsDisagree":
        return "state_disagrees"
    return "wide_numbers" if ESCAPED in str(error) else None


def _increment(transaction: DerivedTransaction[Commit], strategy: str) -> Commit:
    left = _left(transaction)
    if left is None:
        raise Impossible("first")
    is_other = not is_same_definition(left, transaction.advance.left) or transaction.tail.redefined
    if is_other and not transaction.derivation.from_here:
        raise Impossible("redefined")
    return follow_keyed(transaction, left) if strategy == KEYED else follow_stateless(transaction)


def _left(transaction: DerivedTransaction[Any]) -> DerivedCheckpoint | None:
    event = transaction.tail.data
    if not isinstance(event, ExecuteTransform):
        return None
    return derived_checkpoint(transaction.dataset.chain.store, event)


def recomputed(transaction: DerivedTransaction[Commit]) -> Commit:
    """Compute the whole result and record what it changes; what the strategy keeps is made again."""
    dataset, derivation = transaction.dataset, transaction.derivation
    with computed(transaction) as (session, result, scratch, tasks):
        left = _kept(transaction, session, scratch) if derivation.strategy == KEYED else {}
        go_on()
        transaction.check_head()
        return commit_result(
            dataset.name,
            dataset.chain,
            derivation,
            result,
            replace(transaction.leaving(**left), passing=transaction.carried.note),
            scratch=scratch,
            tasks=tasks,
            tail=transaction.tail,
        )


@contextmanager
def computed(transaction: DerivedTransaction[Any]) -> Iterator[tuple[QuerySession, Incoming, Scratch, Tasks]]:
    """Compute the whole result; it is there while the context is open."""
    workspace, dataset, derivation = transaction.workspace, transaction.dataset, transaction.derivation
    views = views_at(derivation, transaction.inputs, transaction.advance.positions)
    function = permitted(workspace, dataset, derivation)
    with query_session(workspace, views, function) as session, dataset.chain.store.scratch() as scratch:
        if function is not None and (transaction.tail.data is None or transaction.tail.redefined):
            check_partitionings(session, derivation)
        result, tasks = taken(workspace, session, derivation, transaction.tail, scratch)
        yield session, result, scratch, tasks


def _kept(transaction: DerivedTransaction[Any], session: QuerySession, scratch: Scratch) -> dict[str, Any]:
    """Make the accumulators again; without them the next increment is computed as a whole too."""
    try:
        name, files = built(transaction, session.session, scratch)
    except Impossible:
        return {}
    return {"state": files, "more": {**transaction.advance.left.more, KEPT: name}}


def kept_after(
    transaction: DerivedTransaction[Any], session: QuerySession, scratch: Scratch
) -> DerivedCheckpoint | None:
    """Return what the next increment goes on from after a whole result; None where it cannot."""
    left = transaction.advance.left
    if transaction.derivation.strategy == STATELESS:
        return left
    kept = _kept(transaction, session, scratch) if transaction.derivation.strategy == KEYED else {}
    return replace(left, **kept) if kept else None
