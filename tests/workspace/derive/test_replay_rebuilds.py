"""Rebuilds, other keys and checks are replayed with the definition in force at each commit."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
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
