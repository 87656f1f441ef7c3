"""Snapshots: datasets that are updated one by one, read at one state of the world."""

from __future__ import annotations

from tests.workspace.snapshot.conftest import VIEWS


def rows(view):
    return view.to_arrow().to_pylist()


def test_first(bank):
    ws = bank.workspace
    bank.transfer(3)
    bank.pull(*VIEWS)
    snap = ws.snapshot(*VIEWS)
    assert snap.cut == {"transfers": 2}
    assert {name: rows(snap[name]) for name in VIEWS} == bank.expected(2)
    bank.transfer(2)
    cut = bank.record(*VIEWS)
    bank.follow("credits", cut)
    snap = ws.snapshot("credits", "debits")
    assert snap.cut == {"transfers": 2}
    print(snap, snap.lag, snap.at, snap._repr_html_())
    bank.follow("debits", cut)
    assert ws.snapshot("credits", "debits").cut == {"transfers": 4}
    assert ws.snapshot(*VIEWS).cut == {"transfers": 2}
