"""Mistakes that are easily made, planted one at a time: each is found by what looks for such ones.

A sum that is not exact is planted in `test_queries`, retractions that are skipped and raw events in
`test_strategies` and `test_replay_increments`, an origin without definitions in `test_replay`.
"""

from __future__ import annotations

import random
import shutil

import numpy as np
import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.by_hand import advance, define
from tests.workspace.derive.following import follow_all
from tests.workspace.derive.histories import QUERIES, begin, next_commit, rows
from tests.workspace.derive.test_reading import COLUMNS, small, table, without_state
from trueline.chain.checkpoint import derived_checkpoint
from trueline.chain.events import ExecuteTransform
from trueline.chain.head_state import Position
from trueline.dataset.read import current
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.derive import follow, rest, strategies
from trueline.workspace.derive.strategies import keyed

__all__ = ["small"]


def wrongly_read(dataset, results):
    """Return the ends at which the rows of a dataset are not one of the results that it was given."""
    known = [sorted(map(str, result.to_pylist())) for result in results]
    ends = [commit.block for commit in dataset.log() if commit.rows]
    return [at for at in ends if sorted(map(str, dataset.view(at).to_arrow().to_pylist())) not in known]


@pytest.fixture
def read(ws, small):
    """A derived dataset with parts, updates and deletes, without state, and the results it was given."""
    dataset = define(ws, "d", COLUMNS, ("k",))
    names = [f"k{number:02}" for number in range(11)]
    results = [table(**dict.fromkeys(names, number)) for number in range(2)]
    results.append(table(**dict.fromkeys(names[3:], 1)))
    for result in results:
        advance(ws, dataset, result)
    without_state(dataset)
    assert wrongly_read(dataset, results) == []
    return dataset, results


@pytest.mark.contract("derive:V13")
def test_a_part_that_is_read_as_an_end(read, monkeypatch, tmp_path):
    dataset, results = read
    monkeypatch.setattr(ExecuteTransform, "is_part", property(lambda _: False))
    # As whoever made the mistake would have opened it, without an index that knows better.
    shutil.copytree(dataset.workspace.location, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / ".trueline")
    with tl.open(tmp_path / "copy") as other:
        assert wrongly_read(other["d"], results) != []


@pytest.mark.contract("derive:V6")
def test_a_row_before_its_correction_that_is_shown_as_current(read, monkeypatch):
    dataset, results = read

    def one_too_early(first_of_key, last_of_key):
        # Of a key with several events the last but one: before a correction to, the correction from.
        return np.append(last_of_key[1:] & ~first_of_key[1:], False) | (first_of_key & last_of_key)

    monkeypatch.setattr(current, "last", one_too_early)
    assert wrongly_read(dataset, results) != []


def replay_kinds(dataset):
    return {str(problem.kind) for problem in dataset.verify(replay=True).problems}


@pytest.fixture
def bank(spark_workspace):
    """Balances over transfers, and the rich over balances."""
    ws = spark_workspace
    ws.create("transfers", merge=tl.merge.upsert("id"))
    ws["transfers"].append(pa.table({"id": [1, 2], "account": ["a", "b"], "amount": [1.0, 2.0]}))
    ws.derive(
        "balances", "select account, sum(amount) as total from transfers group by account", key="account"
    )
    ws.derive("rich", "select account, total from balances where total > 1", key="account")
    return ws


@pytest.mark.contract("cut:P1")
def test_heads_that_are_read_instead_of_a_cut(bank, monkeypatch):
    follow_all(bank, ["rich"])
    for number in (3, 4):
        bank["transfers"].append(pa.table({"id": [number], "account": ["b"], "amount": [10.0]}))
        follow_all(bank, ["balances"])
    right = follow.positions_at

    def heads(origins, node):
        found = right(origins, node)
        for name in origins.known.inputs(node.name):
            read = origins.known[name]
            tail = read.dataset.chain.tail()
            found[read.id] = Position(tail.head, tail.last_offset)
        return found

    monkeypatch.setattr(follow, "positions_at", heads)
    # Balances have been at this cut, and are further now.
    cut = CutLog.of(bank).cut(CutLog.of(bank).newest().number - 1)
    assert follow.follow_to(bank, bank["rich"], cut).commit.rows
    monkeypatch.undo()
    report = bank["rich"].verify(replay=True)
    assert replay_kinds(bank["rich"]) == {"not_reproducible"}
    assert "balances rests on" in report.problems[0].message
    assert replay_kinds(bank["balances"]) == set()


@pytest.mark.contract("derive:V25")
def test_an_origin_that_does_not_say_by_which_definitions(bank, monkeypatch):
    real = rest.Origins.of

    def without(self, name):
        found = real(self, name)
        own = self.known[name].id
        return type(found)(found.roots, {own: found.definitions[own]})

    monkeypatch.setattr(rest.Origins, "of", without)
    follow_all(bank, ["rich"])
    # What it rests on is redefined, over the same rows: nobody would follow.
    text = "select account, sum(amount) * 10 as total from transfers group by account"
    bank.derive("balances", text, key="account", on_change="rebuild")
    follow_all(bank, ["rich"])
    assert [row["total"] for row in bank["rich"].view().to_arrow().to_pylist()] == [2.0]
    monkeypatch.undo()
    report = bank["rich"].verify(replay=True)
    assert {str(problem.kind) for problem in report.problems} == {"not_reproducible"}
    assert "balances was made with definition" in report.problems[0].message


@pytest.mark.contract("derive:V17")
def test_state_that_was_to_be_made_again_and_was_not(spark_workspace, monkeypatch):
    """The accumulators of an earlier commit are kept where the whole result was computed."""
    ws, random_ = spark_workspace, random.Random(7)
    dataset = begin(ws, tl.merge.upsert("id"))
    dataset.append(rows(random_, list(range(12))))
    text, key = QUERIES["sums"]
    sums = ws.derive("sums", text, key=key)
    follow_all(ws, ["sums"])
    store = sums.chain.store
    old = derived_checkpoint(store, sums.chain.tail().data)
    files = tuple(file for file in old.state if file.notes["state"].startswith("aggregates"))
    used = []
    advance_by = strategies.advance_by

    def noted(given):
        used.append(advance_by(given))
        return used[-1]

    def impossible(*_):
        raise keyed.Impossible("state_missing")

    monkeypatch.setattr(follow, "advance_by", noted)
    with monkeypatch.context() as patch:
        patch.setattr(strategies, "_increment", impossible)
        said = {"state": files, "more": {keyed.KEPT: f"aggregates-{keyed.LAYOUT}"}}
        patch.setattr(strategies, "_kept", lambda *_: said)
        dataset.append(rows(random_, [1, 2, 3, 4, 5, 6]))
        follow_all(ws, ["sums"])
    dataset.append(rows(random_, [1, 2, 3, 4, 5, 6]))
    follow_all(ws, ["sums"])
    # Rows that such accumulators would retract are not there, so that all is computed again.
    assert [(each.strategy, each.reason) for each in used] == [
        ("recompute", "state_missing"),
        ("recompute", "state_disagrees"),
    ]
    next_commit(random_, dataset)
    follow_all(ws, ["sums"])
    assert used[-1].strategy == "keyed"
    assert ws.verify("sums", replay="head").ok
