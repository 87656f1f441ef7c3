"""`trueline verify --replay` and `trueline compact` on the command line."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.by_hand import advance, define


@pytest.fixture
def shop(tmp_path):
    """A workspace with a copy of a derived dataset whose input is elsewhere."""
    with tl.open(tmp_path / "first", create=True) as ws:
        ds = define(ws, "d", pa.schema({"k": pa.string()}), ("k",))
        for name in "abc":
            advance(ws, ds, pa.table({"k": [name]}))
        ds.push(tmp_path / "copy")
    with tl.open(tmp_path / "shop", create=True) as ws:
        ws.clone(tmp_path / "copy", "d")
    return tmp_path / "shop"


def test_what_cannot_be_replayed_is_said_and_logs_show_what_was_taken(run, shop):
    said = run("-C", str(shop), "verify", "--replay")
    assert said.code == 0
    assert "not replayed: d: its inputs are not in this workspace: source" in said.out
    log = run("-C", str(shop), "log", "d", "-n", "1").out
    assert "+1 -1 rows" in log
    assert "offsets 3 to 3, recompute" in log
    assert "3 slices with 5 records" in run("-C", str(shop), "compact", "d").out
