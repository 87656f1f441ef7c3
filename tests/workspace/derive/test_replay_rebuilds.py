"""Rebuilds, other keys and checks are replayed with the definition in force at each commit."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from tests.forging import forge, forget, with_value
from tests.workspace.derive.following import follow_all
from trueline.chain.checkpoint import is_ours
from trueline.chain.store.store import Folder


@pytest.mark.contract("derive:V14")
@pytest.mark.contract("derive:V25")
def test_each_commit_is_replayed_with_the_definition_that_was_in_force(spark_workspace, spark, tmp_path):
    ws = spark_workspace
    transfers = ws.create("transfers", merge=tl.merge.upsert("id"))
    transfers.append(pa.table({"id": [1, 2, 3], "account": ["a", "b", "a"], "amount": [1.0, 2.0, 3.0]}))
    query = "select account, id, sum(amount) as total from transfers group by account, id"
    ws.derive("sums", query, key="id")
    follow_all(ws, ["sums"])
    # Over inputs that did not move: another result, then another key.
    query = "select account, id, sum(amount) * 0.5 as total from transfers group by account, id"
    ws.derive("sums", query, key="id", on_change="rebuild")
    follow_all(ws, ["sums"])
    ws.derive("sums", query, key=["account", "id"], on_change="rebuild")
    follow_all(ws, ["sums"])
    transfers.append(pa.table({"id": [3, 4], "account": ["b", None], "amount": [5.0, -0.0]}))
    follow_all(ws, ["sums"])
    report = ws.verify("sums", replay=True)
    assert report.problems == ()
    assert report.replayed == 4
    assert ws.verify("sums", replay="head").ok
    # A copy has no state; rebuilds over inputs that did not move rest on the origin in their checkpoint.
    with tl.open(tmp_path / "elsewhere", create=True, spark=spark) as other:
        for name in ("transfers", "sums"):
            ws[name].push(tmp_path / "copies" / name)
            store = other.clone(tmp_path / "copies" / name, name).chain.store
            for each in list(store.list(Folder.CHECKPOINTS)):
                if not is_ours(store.get(Folder.CHECKPOINTS, each.hash)):
                    store.delete(Folder.CHECKPOINTS, each.hash)
        report = other["sums"].verify(replay=True)
        assert (report.problems, report.replayed) == ((), 4)


@pytest.mark.contract("derive:V15")
@pytest.mark.contract("derive:V23")
@pytest.mark.contract("derive:V24")
def test_rows_that_stay_are_replayed_as_they_were_made(spark_workspace):
    ws = spark_workspace
    log = ws.create("log")
    log.append(pa.table({"n": [1, 2]}))
    made = ws.derive("doubled", "select n, n * 2 as m from log", key="n")
    follow_all(ws, ["doubled"])
    text = "select n, n * 3 as m from log where n > 3"
    ws.derive("doubled", text, key="n", on_change="from_here")
    for more in ([3, 4], [5, 6]):
        log.append(pa.table({"n": more}))
        follow_all(ws, ["doubled"])
    # While it is in force, and in a copy that is forged then.
    report = ws.verify("doubled", replay=True)
    assert (report.problems, report.replayed) == ((), 3)
    head = ws.verify("doubled", replay="head")
    assert (head.problems, head.replayed) == ((), 0)
    assert any("rows from before its definition stay" in each for each in head.not_checked)
    honest = made.head
    middle = [commit.block for commit in made.log() if commit.inputs][1]
    forge(made.chain, middle, with_value("m", 0, 1_000))
    assert ws.verify("doubled", replay=False).ok
    (problem,) = ws.verify("doubled", replay=True).problems
    assert (str(problem.kind), "m: 1000" in problem.message) == ("not_reproducible", True)
    made.chain.store.move_head(honest, expected=made.head)
    forget(made.chain)

    # And after the rows were made anew.
    ws.derive("doubled", text, key="n", on_change="rebuild")
    follow_all(ws, ["doubled"])
    report = ws.verify("doubled", replay=True)
    assert (report.problems, report.replayed) == ((), 4)
    assert ws.verify("doubled", replay="head").replayed == 1
    forge(made.chain, middle, with_value("m", 0, 1_000))
    found = ws.verify("doubled", replay=True).problems
    assert "m: 1000" in found[0].message
