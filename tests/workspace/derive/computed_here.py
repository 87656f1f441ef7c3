"""Derived datasets that are defined without Spark, for tests of what needs none: graphs, plans, lineage."""

from __future__ import annotations

from contextlib import contextmanager

import pyarrow as pa
import pytest

from trueline.chain.events import TransformInput
from trueline.chain.sources import SqlQueryStep
from trueline.dataset.append.incoming import from_table
from trueline.dataset.append.intake import whole_schema
from trueline.dataset.definition import vocabulary
from trueline.dataset.derivation import Derivation, KeyKind
from trueline.kernel.tasks import InlineTasks
from trueline.workspace.creation import CreationPlan, make
from trueline.workspace.derive import follow, replay_commit, strategies
from trueline.workspace.derive.judged_again import StatementVerdict
from trueline.workspace.derive.strategies.increment import DerivedTransaction


def by_hand(workspace, sql, inputs, *, columns, key="account", **more):
    """Return a definition as `derive` would make it, and the columns of its result."""
    read = tuple(TransformInput(str(workspace[each].id), each) for each in inputs)
    said = {"reason": "by_hand", "canonical": (sql,), "queries": (SqlQueryStep(query=sql),)} | more
    derivation = Derivation(inputs=read, key=(key,), identity=KeyKind.DECLARED, written=sql, **said)
    return derivation, whole_schema(pa.schema(columns), vocabulary(None))


def define_by_hand(workspace, name, sql, inputs, *, columns, key="account", **more):
    """Record a definition as `derive` would; `columns` are the Arrow types of the result by name."""
    derivation, schema = by_hand(workspace, sql, inputs, columns=columns, key=key, **more)
    plan = CreationPlan(lambda owner, now: derivation.blocks(owner, schema, now), derivation.differences)
    return make(workspace, name, plan)


@contextmanager
def computing(function):
    """Let a function of a name and its inputs as tables give the results, for tests of when that is."""

    @contextmanager
    def computed(transaction):
        read = {
            alias: dataset.view(transaction.advance.positions[dataset.id].block).to_arrow()
            for alias, dataset in transaction.inputs.items()
        }
        table = function(transaction.dataset.name, read)
        with transaction.dataset.chain.store.scratch() as scratch:
            rows = from_table(table, transaction.tail, with_op=False)
            yield None, rows, scratch, InlineTasks()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strategies, "computed", computed)
        patch.setattr(follow, "computed", computed)
        patch.setattr(replay_commit, "computed", computed)
        patch.setattr(replay_commit, "judged_again", lambda *_: StatementVerdict())
        patch.setattr(DerivedTransaction, "check_statements", lambda _: None)
        for module in (follow, replay_commit):
            patch.setattr(module, "engine_versions", lambda _: {})
        yield


def counted(_name, inputs):
    """Count the rows of the inputs."""
    return pa.table({"account": ["all"], "total": [float(sum(map(len, inputs.values())))]})
