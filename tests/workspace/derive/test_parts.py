"""Commits of several blocks: pulled by each strategy, read by what rests on them, replayed, redefined."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

import trueline as tl
from tests.forging import forge, with_value
from tests.workspace.derive.following import follow_all
from tests.workspace.derive.recorded import NOON
from tests.workspace.derive.small_slices import parts_of, slices_by_commit, slices_of
from tests.workspace.derive.test_reading import without_state
from tests.workspace.derive.test_strategies import check
from trueline.workspace.derive import replay

ROWS = 2
# Each strategy, a bag, and two that read the result of another: by the increment and as a whole.
DEFINED = {
    "balances": ("select account, sum(amount) as total from transfers group by account", "account", "keyed"),
    "accounts": ("select account from transfers", None, "stateless"),
    "moved": ("select id, account, amount * 2 as twice from transfers", "id", "stateless"),
    "ranked": ("select id, rank() over (order by amount) as r from transfers", "id", "recompute"),
    "shown": ("select account, total + 1 as more from balances", "account", "stateless"),
    "summed": ("select round(total) as t, count(*) as n from balances group by round(total)", "t", "keyed"),
}


def transfers(workspace, rows):
    if "transfers" not in workspace:
        workspace.create("transfers", merge=tl.merge.upsert("id"))
    table = {name: [row[at] for row in rows] for at, name in enumerate(("id", "account", "amount"))}
    workspace["transfers"].append(pa.table(table))


@pytest.fixture(scope="module", autouse=True)
def small_slices():
    with slices_of(ROWS):
        yield


@pytest.fixture(scope="module")
def history(tmp_path_factory, spark):
    """Two pulls, the second of which corrects, retracts and adds rows of several slices."""
    folder = tmp_path_factory.mktemp("parts") / "ws"
    with tl.open(folder, create=True, spark=spark) as ws:
        transfers(ws, [(number, "abcdefg"[number % 7], number / 4) for number in range(11)])
        for name, (text, key, strategy) in DEFINED.items():
            assert ws.derive(name, text, key=key).info.strategy == strategy
        follow_all(ws, list(DEFINED))
        transfers(ws, [(number, "bcdxyz"[number % 6], number / 3) for number in range(3, 14)])
        follow_all(ws, list(DEFINED))
        for name in DEFINED:
            first, second = slices_by_commit(ws[name])
            assert min(first, second) > 1, (name, first, second)
    return folder


@pytest.fixture
def ws(history, tmp_path, spark):
    shutil.copytree(history, tmp_path / "ws")
    with tl.open(tmp_path / "ws", spark=spark) as workspace:
        yield workspace


@pytest.mark.contract("derive:V1")
@pytest.mark.contract("derive:V13")
def test_increments_of_several_slices_record_what_recomputing_would(spark_workspace, monkeypatch):
    names = ["sums", "bag"]
    check(spark_workspace, monkeypatch, tl.merge.upsert("id"), names, seed=4, pulls=2)
    for name in names:
        assert parts_of(spark_workspace[name]), name


@pytest.mark.contract("derive:V13")
@pytest.mark.contract("derive:V23")
@pytest.mark.parametrize("by_increment", [False, True], ids=["whole", "by increment"])
def test_commits_of_several_blocks_are_replayed_whole(ws, monkeypatch, by_increment):
    monkeypatch.setattr(replay, "_WORTH_INCREMENTS", 1 if by_increment else 100)
    report = ws.verify(replay=True)
    assert (report.problems, report.replayed) == ((), 2 * len(DEFINED))


@pytest.mark.contract("derive:V24")
@pytest.mark.parametrize("name", ["moved", "balances"])
def test_a_part_that_was_changed_with_all_its_hashes_is_found(ws, name):
    dataset = ws[name]
    part = parts_of(dataset)[-1]
    column = dataset.view().schema.names[-1]
    forge(dataset.chain, part, with_value(column, 0, 1_000_000.0))
    assert dataset.verify(replay=False).ok
    newest = next(commit.block for commit in dataset.log() if commit.inputs)
    found = dataset.verify(replay=True).problems
    assert {str(problem.kind) for problem in found} == {"not_reproducible"}
    # What is replayed is the commit: it is named by its end.
    assert found[0].block == newest
    assert "1000000.0" in found[0].message


@pytest.mark.contract("derive:V13")
@pytest.mark.contract("derive:V15")
def test_another_key_takes_rows_of_several_slices_out_and_puts_them_in_again(ws):
    moved = ws["moved"]
    before = moved.view().to_arrow()
    text, *_ = DEFINED["moved"]
    ws.derive("moved", text, key=("id", "account"), on_change="rebuild")
    follow_all(ws, ["moved"])
    newest = next(commit for commit in moved.log() if commit.inputs)
    assert newest.changes == f"+{before.num_rows} -{before.num_rows} rows"
    assert len(newest.blocks) > before.num_rows / ROWS
    assert moved.view().to_arrow().sort_by("id").equals(before.sort_by("id"))
    transfers(ws, [(1, "q", 1.0), (30, "r", 2.0), (31, "r", 2.0)])
    follow_all(ws, ["moved"])
    assert slices_by_commit(moved)[-1] > 1
    report = moved.verify(replay=True)
    assert (report.problems, report.replayed) == ((), 4)


@pytest.mark.contract("derive:V17")
@pytest.mark.contract("derive:V25")
def test_a_copy_without_state_goes_on_from_several_slices_as_the_original_does(ws, tmp_path, spark):
    shutil.copytree(ws.location, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / ".trueline")
    with tl.open(tmp_path / "copy", spark=spark) as copy:
        found = []
        for name in DEFINED:
            without_state(copy[name])
        for each in (ws, copy):
            each.clock = lambda: NOON
            transfers(each, [(number, "abc"[number % 3], 5.5) for number in range(8)])
            follow_all(each, list(DEFINED))
            assert slices_by_commit(each["shown"])[-1] > 1
            found.append({name: logical_hashes(each[name]) for name in DEFINED})
        assert found[0] == found[1]


def logical_hashes(dataset):
    data = [block.data_event for _, block in dataset.blocks()]
    return [each.new_data.logical_hash for each in data if each is not None and each.new_data is not None]
