"""Killed at any operation of a commit: the old head or the new one, and everything goes on."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from tests.faults import killed
from tests.workspace.records import column
from trueline.chain.chain import Chain
from trueline.chain.store.open import open_store
from trueline.errors import DatasetExists

DEED = "tests.workspace.zygote:deed"


def entries(chain):
    return list(chain.entries())


@pytest.mark.sampled
@pytest.mark.parametrize("torn", ["whole", "torn"])
def test_an_append_killed_at_any_operation_leaves_the_old_head_or_the_new_one(tmp_path, torn):
    with tl.open(tmp_path / "ws", create=True) as ws:
        ds = ws.create("trades")
        for n in range(3):
            ds.append(pa.table({"x": [n]}))
        old = ds.head
    outcomes = set()
    copies = killed(DEED, tmp_path / "ws", tmp_path / "copies", "append", torn, most=16)
    assert len(copies) > 12
    for copy in copies:
        with tl.open(copy) as ws:
            ds = ws["trades"]
            new = ds.head != old
            outcomes.add(new)
            assert column(ds, "x") == [0, 1, 2] + [100] * new
            assert ds.verify().ok
            fresh = Chain(open_store(copy / "datasets" / "trades"))
            assert entries(ds.chain) == entries(fresh)
            fresh.close()
            # The same append again is done once, whatever had become of the first.
            ds.append(pa.table({"x": [100]}), idempotency_key="k")
            assert ds.append(pa.table({"x": [101]})).offsets == range(4, 5)
            ws.gc(older_than=0)
            assert column(ds, "x") == [0, 1, 2, 100, 101]
            assert ds.verify().ok
            private = copy / "datasets" / "trades" / "private"
            assert list((private / "staging").iterdir()) == []
    assert outcomes == {False, True}


@pytest.mark.sampled
def test_a_creation_killed_at_any_operation_leaves_nothing_or_the_dataset(tmp_path):
    tl.open(tmp_path / "ws", create=True).close()
    outcomes, reserved = set(), 0
    for number, copy in enumerate(
        killed(DEED, tmp_path / "ws", tmp_path / "copies", "create", "whole", most=24)
    ):
        with tl.open(copy) as ws:
            there = "trades" in ws
            outcomes.add(there)
            assert [d.name for d in ws.datasets()] == ["trades"] * there
            if there or number % 2:
                ds = ws.create("trades")
                assert ds.info.blocks == 2
                assert ds.append(pa.table({"x": [1]})).rows == 1
            else:
                # The name is reserved or free; it is given back with what the creation left.
                other = ws.create("other")
                try:
                    other.rename("trades")
                except DatasetExists:
                    reserved += 1
                    ws.gc(older_than=0)
                    other.rename("trades")
            ws.gc(older_than=0)
            assert ws.verify().ok
            assert list(ws) == ["trades"]
    assert outcomes == {False, True}
    assert reserved > 5


@pytest.mark.sampled
@pytest.mark.parametrize("torn", ["whole", "torn"])
def test_a_rename_killed_at_any_operation_leaves_the_old_name_or_the_new_one(tmp_path, torn):
    with tl.open(tmp_path / "ws", create=True) as ws:
        ws.create("trades").append(pa.table({"x": [1]}))
    outcomes = set()
    copies = killed(DEED, tmp_path / "ws", tmp_path / "copies", "rename", torn, most=12)
    assert len(copies) > 5
    for copy in copies:
        with tl.open(copy) as ws:
            (name,) = ws
            outcomes.add(name)
            assert column(ws[name], "x") == [1]
            ws[name].rename("last")
            assert list(ws) == ["last"]
            assert ws["last"].append(pa.table({"x": [2]})).offsets == range(1, 2)
            names = {path.name for path in (copy / "datasets").iterdir()}
            assert names == {"trades", ".catalogue", ".catalogue.lock"}
    assert outcomes == {"trades", "deals"}
