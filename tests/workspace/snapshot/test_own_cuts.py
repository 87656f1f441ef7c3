"""Snapshots say which of their roots read inputs at cuts of their own, and why."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.cli.conftest import run  # noqa: F401 (a fixture)
from tests.workspace.derive.computed_here import computing, counted, define_by_hand

COLUMNS = {"account": pa.string(), "total": pa.float64()}


@pytest.mark.contract("cut:P16")
def test_a_snapshot_says_which_root_reads_inputs_at_a_cut_of_its_own(ws, run):  # noqa: F811
    ws.create("transfers").append(pa.table({"account": ["a"], "total": [1.0]}))
    why = {"credits": "any recent total will do"}
    define_by_hand(ws, "credits", "select 1", ["transfers"], columns=COLUMNS)
    define_by_hand(ws, "priced", "select 2", ["transfers", "credits"], columns=COLUMNS, nondet=why)
    define_by_hand(ws, "last", "select 3", ["priced"], columns=COLUMNS)
    with computing(counted):
        ws.pull()
    snap = ws.snapshot("last")
    assert set(snap.cut) == {"priced"}
    assert snap.own_cuts == {"priced": why} == snap.to_dict()["own_cuts"]
    line = "priced reads credits at a cut of its own: any recent total will do"
    assert line in snap._repr_html_()
    assert line in run("snapshot", "last", "-C", ws.location).out
    plain = ws.snapshot("credits")
    assert plain.own_cuts == {}
    assert "of its own" not in plain._repr_html_()


@pytest.mark.contract("cut:P16")
def test_what_reads_inputs_at_cuts_of_its_own_is_not_held_to_them(ws):
    ws.create("transfers").append(pa.table({"account": ["a"], "total": [1.0]}))
    define_by_hand(ws, "credits", "select 1", ["transfers"], columns=COLUMNS)
    why = {"credits": "any recent total will do"}
    define_by_hand(ws, "priced", "select 2", ["transfers", "credits"], columns=COLUMNS, nondet=why)
    with computing(counted):
        ws.pull()
        ws["transfers"].append(pa.table({"account": ["b"], "total": [2.0]}))
        ws.pull("credits")
    snap = ws.snapshot("priced", "credits", "transfers")
    assert snap.groups == (("priced",), ("credits", "transfers"))
    assert snap.positions["transfers"].offset == 1
