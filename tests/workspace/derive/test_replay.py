"""Verification by replay: what is recorded is computed again from its inputs, and lies are found."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.forging import forge, with_value
from trueline import console
from trueline.chain.checkpoint import derived_checkpoint
from trueline.chain.events import Checkpoint
from trueline.chain.store.store import Folder
from trueline.workspace.derive.define import DerivationRequest, derive
from trueline.workspace.derive.follow import follow_all

BALANCES = "select account, sum(amount) as total, count(*) as n from transfers group by account"
LARGE = "select id, amount from transfers where amount > 1"


def transfers(workspace, *rows):
    if "transfers" not in workspace:
        workspace.create("transfers", merge=tl.merge.upsert("id"))
    table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(("id", "account", "amount"))})
    return workspace["transfers"].append(table)


@pytest.fixture
def ws(spark_workspace):
    """Balances, what is large, accounts as a bag and a total over a derived dataset, in three pulls."""
    ws = spark_workspace
    transfers(ws, (1, "a", 0.1), (2, "b", 2.0), (3, "a", 0.2), (4, None, -0.0))
    derive(ws, DerivationRequest("balances", BALANCES, key="account"))
    derive(ws, DerivationRequest("large", LARGE, key="id"))
    derive(ws, DerivationRequest("accounts", "select account from transfers"))
    derive(ws, DerivationRequest("grand", "select sum(total) as total from balances", key="total"))
    names = ["balances", "large", "accounts", "grand"]
    follow_all(ws, names)
    transfers(ws, (1, "b", 0.3), (5, "c", 1e16))
    follow_all(ws, names)
    transfers(ws, (2, "b", 0.5), (6, "c", 0.25))
    follow_all(ws, names)
    return ws


def tree(folder):
    """Return every file with its bytes, but for the private index, which is a cache."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and ".trueline" not in path.parts and "private" not in path.parts
    }


@pytest.mark.contract("derive:V23", "derive:V25")
def test_every_commit_gives_the_same_again_also_without_state_and_nothing_changes(ws):
    before = tree(ws.location)
    with console.use(console.CapturedConsole()) as seen:
        report = ws.verify(replay=True)
    assert report.problems == ()
    assert report.replayed == 12
    assert any("replay evaluates 12 commits over 66 input records" in str(item) for item in seen.items)
    assert ws.verify("grand", replay="head").replayed == 1
    assert ws["balances"].verify(after=ws["balances"].commit(), replay=True).replayed == 0
    assert tree(ws.location) == before
    for dataset in ws.datasets():
        for file in Path(dataset.chain.store.location, "checkpoints").iterdir():
            if b"trueline/checkpoint" not in file.read_bytes()[:4096]:
                file.unlink()
    again = ws["balances"].verify(replay=True)
    assert {problem.kind.value for problem in again.problems} <= {"missing"}
