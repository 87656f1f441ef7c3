"""`trueline verify --replay` and `trueline compact` on the command line."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.by_hand import advance, define
from trueline.chain.verify import VerificationReport
from trueline.workspace.derive import replay


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


def test_datasets_are_verified_with_what_they_rest_on(run, tmp_path):
    with tl.open(tmp_path / "first", create=True) as ws:
        ws.create("other").append([{"x": 1}])
        for name in "ab":
            advance(ws, define(ws, name, pa.schema({"k": pa.string()}), ("k",)), pa.table({"k": [name]}))
        assert list(ws.verify("+b").datasets) == ["source", "b"]
        assert list(ws.verify("source+").datasets) == ["source", "a", "b"]
        assert list(ws.verify("b", "other", "b").datasets) == ["b", "other"]
        with pytest.raises(tl.errors.InputError, match="cannot name a dataset"):
            ws.verify("+b@1")
    found = run("-C", str(tmp_path / "first"), "verify", "+a", "--json").json
    assert [(each["name"], each["ok"]) for each in found["datasets"]] == [("source", True), ("a", True)]
    assert run("-C", str(tmp_path / "first"), "verify", "+a", "--after", "1").code == 2


def test_several_datasets_are_replayed_side_by_side(run, tmp_path, monkeypatch):
    with tl.open(tmp_path / "first", create=True) as ws:
        for name in "ab":
            advance(ws, define(ws, name, pa.schema({"k": pa.string()}), ("k",)), pa.table({"k": [name]}))
    asked = []

    def replayed(_workspace, datasets, mode, *, workers, **_):
        asked.append(([each.name for each in datasets], mode, workers))
        return sum((VerificationReport(replayed=1).of(each.name) for each in datasets), VerificationReport())

    monkeypatch.setattr(replay, "replay_datasets", replayed)
    done = run("-C", str(tmp_path / "first"), "verify", "a", "b", "--replay", "--workers", "3", "--json").json
    assert asked == [(["a", "b"], True, 3)]
    assert [each["replayed"] for each in done["datasets"]] == [1, 1]
    run("-C", str(tmp_path / "first"), "verify", "a", "--replay-head")
    assert asked[1][:2] == (["a"], "head")
