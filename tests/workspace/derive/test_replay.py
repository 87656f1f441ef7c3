"""Verification by replay: what is recorded is computed again from its inputs, and lies are found."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.attacks.test_foreign_definitions import attach
from tests.forging import forge, forget, with_value
from tests.workspace.derive.following import follow_all
from trueline import console
from trueline.chain.checkpoint import DerivedCheckpoint, DerivedOrigin, derived_checkpoint, is_ours
from trueline.chain.events import Checkpoint
from trueline.chain.store.store import Folder
from trueline.dataset.derivation import derivation_at
from trueline.errors import InputError
from trueline.workspace.derive.define import DerivationRequest, derive

BALANCES = "select account, sum(amount) as total, count(*) as n from transfers group by account"


def transfers(workspace, *rows):
    if "transfers" not in workspace:
        workspace.create("transfers", merge=tl.merge.upsert("id"))
    table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(("id", "account", "amount"))})
    return workspace["transfers"].append(table)


@pytest.fixture(scope="module")
def history(tmp_path_factory, spark):
    """Balances, the accounts as a bag, and what is over one as a dataset over balances, in two pulls."""
    folder = tmp_path_factory.mktemp("history") / "ws"
    with tl.open(folder, create=True, spark=spark) as ws:
        transfers(ws, (1, "a", 0.1), (2, "b", 2.0), (3, "a", 0.2), (4, None, -0.0))
        derive(ws, DerivationRequest("balances", BALANCES, key="account"))
        derive(ws, DerivationRequest("accounts", "select account from transfers"))
        derive(
            ws, DerivationRequest("rich", "select account, n from balances where total > 1", key="account")
        )
        follow_all(ws, ["accounts", "rich"])
        transfers(ws, (1, "b", 0.3), (5, "c", 1e16))
        follow_all(ws, ["accounts", "rich"])
    return folder


@pytest.fixture
def ws(history, tmp_path, spark):
    """A copy of it, of its own."""
    shutil.copytree(history, tmp_path / "ws")
    with tl.open(tmp_path / "ws", spark=spark) as workspace:
        yield workspace


def tree(folder):
    """Return every file with its bytes, but for indexes, locks and leases, which are nobody's data."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
        and "index" not in path.parts
        and "leases" not in path.parts
        and "lock" not in path.name
    }


def kinds(report):
    return [str(problem.kind) for problem in report.problems]


@pytest.mark.contract("derive:V23")
@pytest.mark.contract("derive:V25")
def test_every_commit_gives_the_same_again_also_without_state_and_nothing_changes(ws):
    before = tree(ws.location)
    with console.use(console.CapturedConsole()) as seen:
        report = ws.verify(replay=True)
    assert report.problems == ()
    assert report.replayed == 6
    assert "replay evaluates 6 commits over 33 input records (the newest alone: 22)" in str(seen.items)
    assert tree(ws.location) == before
    # State, indexes and cuts are not needed for the same answers, nor for the next pull.
    shown = {dataset.name: dataset.view().to_arrow() for dataset in ws.datasets()}
    changed = ws["balances"].diff(before_newest(ws["balances"])).to_arrow()
    for dataset in ws.datasets():
        checkpoints = Path(dataset.chain.store.location, "checkpoints")
        for file in checkpoints.iterdir() if checkpoints.exists() else ():
            if dataset.kind == "derived" and not is_ours(file.read_bytes()):
                file.unlink()
    ws.close()
    for folder in (".trueline", "datasets/.cuts"):
        shutil.rmtree(Path(ws.location, folder))
    report = ws.verify("rich", replay="head")
    assert report.problems == ()
    assert report.replayed == 1
    assert any("made again when needed" in each for each in report.not_checked)
    assert {dataset.name: dataset.view().to_arrow() for dataset in ws.datasets()} == shown
    assert ws["balances"].diff(before_newest(ws["balances"])).to_arrow() == changed
    transfers(ws, (7, "d", 8.0))
    follow_all(ws, ["balances"])
    assert ws["balances"].get("d") == {"account": "d", "total": 8.0, "n": 1}
    assert ws["balances"].commit().changes == "+1 row"


def test_whoever_interrupts_a_replay_is_told_how_to_go_on(ws):
    balances = ws["balances"]
    with console.use(console.CapturedConsole()) as seen:

        def stop(_: int) -> None:
            if seen.items:  # the estimate, so this is the first commit
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            balances.verify(replay=True, progress=stop)
    first = before_newest(balances).short
    assert f"`trueline verify balances --replay --after {first}` goes on" in str(seen.items)
    assert balances.verify(after=first, replay=True).replayed == 1


@pytest.mark.contract("derive:V24")
def test_a_slice_that_was_changed_with_all_its_hashes_is_found(ws):
    balances = ws["balances"]
    first = before_newest(balances)
    forge(balances.chain, first, with_value("total", 1, 2_000_000.0))
    assert balances.verify(replay=False).ok
    found = balances.verify(replay=True)
    assert set(kinds(found)) == {"not_reproducible"}
    assert "balances: the commit does not record what the definition gives" in found.problems[0].message
    assert "recorded insert {account: 'b', total: 2000000.0, n: 1}" in found.problems[0].message
    assert "replayed insert {account: 'b', total: 2.0, n: 1}" in found.problems[0].message
    head = balances.verify(replay="head")
    # The next commit had corrected that row, so that the current ones are right again.
    assert kinds(head) == []


@pytest.mark.contract("derive:V24")
@pytest.mark.parametrize("mode", [True, "head"])
def test_a_query_that_is_run_in_the_place_of_the_one_that_is_recorded_is_found(ws, mode):
    """Rows that fit what is run prove nothing, if that is not what the definition says."""
    balances = ws["balances"]
    recorded = derivation_at(balances.chain.tail())
    attach(balances, canonical=tuple(text.replace("count(*)", "count(*) + 1") for text in recorded.canonical))
    assert derivation_at(balances.chain.tail()).canonical != recorded.canonical
    transfers(ws, (9, "z", 1.0))
    follow_all(ws, ["balances"])
    assert balances.get("z")["n"] == 2
    found = balances.verify(replay=mode)
    assert kinds(found) == ["not_reproducible"]
    assert "its canonical query is not what its query gives: recorded" in found.problems[0].message


@pytest.mark.contract("derive:V23")
def test_other_versions_are_told_from_a_wrong_result(ws):
    balances = ws["balances"]
    newest = balances.chain.tail().head
    event = balances.chain.tail().data
    left = derived_checkpoint(balances.chain.store, event)
    assert set(left.versions) == {"canonical", "spark", "java", "tzdata"}
    assert all(left.versions.values())
    rewrite(balances.chain, replace(left, versions={**left.versions, "spark": "3.0.0"}))
    # As long as the result is the same, versions do not matter.
    assert balances.verify(after=before_newest(balances), replay=True).ok
    forge(balances.chain, balances.chain.tail().head, with_value("n", 0, 7))
    found = balances.verify(after=before_newest(balances), replay=True)
    assert kinds(found) == ["other_engine"]
    assert "which was computed with spark 3.0.0 (here 4." in found.problems[0].message
    assert newest != balances.head


def test_an_origin_without_definitions_or_with_other_positions_is_found(ws):
    rich, balances = ws["rich"], ws["balances"]
    origin = derived_checkpoint(rich.chain.store, rich.chain.tail().data).origin
    own = {rich.id: origin.definitions[rich.id]}
    for dataset, wrong, words in (
        (rich, DerivedOrigin(origin.roots, {}), "names another or none"),
        (rich, DerivedOrigin(origin.roots, own), "balances was made with definition"),
        (rich, DerivedOrigin({}, origin.definitions), "balances rests on"),
        (balances, DerivedOrigin({}, origin.definitions), "transfers is not among its roots"),
    ):
        left = derived_checkpoint(dataset.chain.store, dataset.chain.tail().data)
        rewrite(dataset.chain, replace(left, origin=wrong))
        found = dataset.verify(after=before_newest(dataset), replay=True)
        assert kinds(found) == ["not_reproducible"]
        assert words in found.problems[0].message


def test_what_cannot_be_replayed_is_not_checked(ws, tmp_path, spark):
    ws["rich"].push(tmp_path / "copy")
    with tl.open(tmp_path / "elsewhere", create=True, spark=spark) as other:
        copy = other.clone(tmp_path / "copy", "rich")
        assert copy.view().to_arrow().to_pylist() == ws["rich"].view().to_arrow().to_pylist()
        report = copy.verify(replay=True)
        assert report.ok
        assert report.replayed == 0
        assert "replay of rich: its inputs are not in this workspace: balances" in report.not_checked
    with pytest.raises(InputError, match="replay is 'all'"):
        ws.verify(replay="all")


def before_newest(dataset):
    """Return the commit before the newest."""
    return [commit.block for commit in dataset.log() if commit.rows][1]


def rewrite(chain, left: DerivedCheckpoint):
    """Put another checkpoint into the newest block."""
    tail = chain.tail()
    block = chain.block(tail.head)
    raw = left.to_file().to_bytes()
    made = Checkpoint(chain.store.put(Folder.CHECKPOINTS, raw), len(raw))
    block = replace(block, event=replace(block.event, new_checkpoint=made))
    name = chain.store.put(Folder.BLOCKS, block.to_bytes())
    chain.store.move_head(name, expected=tail.head)
    forget(chain)
