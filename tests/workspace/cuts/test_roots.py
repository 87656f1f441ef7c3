"""Which datasets a cut is made of: those a workspace does not compute."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from tests.chain.store.small_s3 import serving
from tests.workspace.test_deletion import derived
from trueline.chain import Chain, MemoryStore
from trueline.chain.events import AddData, SetInfo
from trueline.chain.head_state import next_block
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.cuts.roots import Roots, heads_of, positions_of


def rows(count):
    return pa.table({"x": range(count)})


def test_a_derived_dataset_rests_on_the_roots_of_its_inputs(ws):
    a, b, c = (ws.create(name) for name in "abc")
    derived(ws, "low", "a", "b")
    derived(ws, "high", "low", "c")
    derived(ws, "other", "c")
    roots = Roots(ws)
    assert roots.under("high") == {a.id, b.id, c.id}
    assert roots.under("low", "other") == {a.id, b.id, c.id}
    assert roots.under("other") == roots.under("c", "other") == {c.id}
    assert roots.under() == frozenset()


@pytest.mark.contract("cut:P18")
def test_a_clone_is_a_root_whatever_it_is_a_clone_of(ws, tmp_path):
    with tl.open(tmp_path / "far", create=True) as far:
        far.create("a").append(rows(3))
        derived(far, "low", "a")
        far["low"].push(tmp_path / "copy")
        far["a"].push(tmp_path / "copy-a")
        low, a = far["low"].id, far["a"].id
    ws.clone(tmp_path / "copy", "low")
    derived(ws, "high", "low")
    roots, log = Roots(ws), CutLog.of(ws)
    assert roots.under("high") == {low}, "what it was computed from is not even here"
    ws.clone(tmp_path / "copy-a", "a")
    assert roots.under("high") == {low}, "and this workspace does not compute it"
    assert roots.under("low", "a") == {low, a}
    assert log.record(roots.under("a", "high")).number == 1
    assert log.newest()[a].offset == 2
    with tl.open(tmp_path / "far") as far:
        far["a"].append(rows(2))
        far["a"].push(tmp_path / "copy-a")
    assert log.record([a]).number == 1, "a cut is of what is here"
    ws.pull("a")
    assert (log.record([a]).number, log.newest()[a].offset) == (2, 4)


def test_a_derived_dataset_whose_inputs_are_not_here_is_a_root(ws):
    ws.create("a")
    low = derived(ws, "low", "a")
    ws.create("b")
    derived(ws, "high", "low")
    ws._catalogue.delete("a")
    assert Roots(ws).under("high") == {low.id}


def test_of_a_dataset_and_a_clone_of_it_the_dataset_is_taken(ws, tmp_path):
    sales = ws.create("sales")
    sales.append(rows(2))
    sales.push(tmp_path / "copy")
    ws.clone(tmp_path / "copy", "aaa")
    ws.clone(tmp_path / "copy", "zzz")
    sales.append(rows(3))
    log = CutLog.of(ws)
    assert log.record([sales.id])[sales.id].offset == 4


def test_an_id_that_is_not_here_has_no_chain_and_is_found_once_it_is(ws, tmp_path):
    with tl.open(tmp_path / "far", create=True) as far:
        name = far.create("a").id
        far["a"].push(tmp_path / "copy")
    roots = Roots(ws)
    assert roots.chain_of(name) is None
    ws.clone(tmp_path / "copy", "a")
    assert roots.chain_of(name).head is not None


def test_a_dataset_that_was_renamed_is_the_same_root(ws):
    sales = ws.create("sales")
    sales.append(rows(1))
    log = CutLog.of(ws)
    log.record([sales.id])
    sales.rename("orders")
    sales.append(rows(1))
    assert (log.record([sales.id]).number, Roots(ws).under("orders")) == (2, {sales.id})


def test_positions_are_those_of_the_newest_commits_with_data(ws):
    a, b = ws.create("a"), ws.create("b")
    commit = a.append(rows(5))
    a.chain.append(next_block(a.chain.tail(), SetInfo(description="more")))
    heads = heads_of(Roots(ws).chain_of, [a.id, b.id])
    assert positions_of(heads) == {a.id: (commit.block, 4), b.id: None}
    assert heads[a.id].branch.tail.head != commit.block
    assert isinstance(a.chain.block(heads[a.id].end.hash).event, AddData)


def test_an_empty_chain_has_no_position():
    assert positions_of(heads_of(lambda _: Chain(MemoryStore()), ["did:odf:x"])) == {"did:odf:x": None}


def test_the_log_of_a_workspace_in_an_object_store_is_shared(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with serving() as server:
        with tl.open("s3://bucket/lake", create=True, **server.options) as ws:
            sales = ws.create("sales")
            sales.append(rows(3))
            cut = CutLog.of(ws).record([sales.id])
        with tl.open("s3://bucket/lake", **server.options) as ws:
            assert CutLog.of(ws).record([sales.id]).to_bytes() == cut.to_bytes()
            assert (list(ws), ws.verify().ok, ws.gc(older_than=0).objects) == (["sales"], True, 0)
            assert CutLog.of(ws).newest() == cut
    assert "lake/datasets/.cuts/cut/1" in server.objects


def test_a_workspace_with_cuts_is_otherwise_as_before(ws):
    sales = ws.create("sales")
    sales.append(rows(3))
    log = CutLog.of(ws)
    log.record([sales.id])
    log.put_reached(1, sales.id)
    assert list(ws) == ["sales"]
    assert ws.verify().ok
    assert ws.gc(older_than=0).objects == 0
    assert log.reached(1) == {sales.id}
    assert CutLog.of(ws).newest()[sales.id].offset == 2
