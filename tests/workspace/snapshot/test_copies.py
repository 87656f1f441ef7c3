"""Copies of derived datasets as roots: what is computed here from several of them is not torn."""

from __future__ import annotations

import pytest

import trueline as tl
from tests.workspace.snapshot.bank import AMOUNTS, VIEWS, Bank, balanced
from tests.workspace.snapshot.local import Local
from trueline.chain.store.store import Folder
from trueline.errors import CannotCompare, PullError
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.dependencies import Dependencies
from trueline.workspace.pull.derived import groups_of, roots_of

pytestmark = pytest.mark.contract("cut:P1", "cut:P18")


@pytest.fixture
def banks(tmp_path):
    """A bank, and a workspace with copies of its credits and debits, over which balances are computed."""
    with tl.open(tmp_path / "far", create=True) as far, tl.open(tmp_path / "near", create=True) as near:
        bank, here = Bank(far), Local(near)
        bank.transfer(3)
        bank.pull(*VIEWS)
        send(bank, tmp_path, "credits", "debits", "transfers")
        for name in ("credits", "debits"):
            near.clone(tmp_path / "remote" / name, name)
        here.derive("balances", ("credits", "debits"), balanced, AMOUNTS)
        yield bank, here, tmp_path


def send(bank, folder, *names):
    for name in names:
        bank.workspace[name].push(folder / "remote" / name)


def record(workspace, *names):
    known = Dependencies.of(workspace)
    roots = [known[name].dataset.id for name in roots_of(known, names)]
    return CutLog.of(workspace).record(roots, groups_of(known, names))


def test_copies_that_are_read_together_are_taken_where_they_agree(banks):
    bank, here, folder = banks
    near = here.workspace
    for count in (2, 4):
        bank.transfer(count)
        bank.pull(*VIEWS)
        send(bank, folder, "credits")  # the debits come later
        near.pull("credits")
        cut = record(near, "balances")
        here.pull("balances", cut=cut)
        amounts = [row["amount"] for row in near["balances"].view().to_arrow().to_pylist()]
        assert sum(amounts) == 0, "money appears"
    newest = near["credits"].chain.position.block
    assert cut[near["credits"].id].block != newest
    send(bank, folder, "debits")
    near.pull("debits")
    cut = record(near, "balances")
    assert cut[near["credits"].id].block == newest
    here.pull("balances", cut=cut)
    assert near["balances"].view().to_arrow().to_pylist() == bank.expected(8)["balances"]


def test_a_snapshot_that_advances_takes_copies_where_they_agree(banks):
    bank, here, folder = banks
    near = here.workspace
    bank.transfer(2)
    bank.pull(*VIEWS)
    send(bank, folder, "credits")
    near.pull("credits")
    with here.computing():
        snap = near.snapshot("credits", "balances", advance=True)
    assert sum(row["amount"] for row in snap["balances"].to_arrow().to_pylist()) == 0, "money appears"
    assert snap.at["credits"].block != near["credits"].chain.position.block


def test_each_by_itself_would_show_money_that_is_not_there(banks):
    bank, here, folder = banks
    bank.transfer(2)
    bank.pull(*VIEWS)
    send(bank, folder, "credits")
    here.workspace.pull("credits")
    here.pull("balances")  # a cut without groups
    amounts = [row["amount"] for row in here.workspace["balances"].view().to_arrow().to_pylist()]
    assert sum(amounts) != 0


def test_a_copy_does_not_hold_back_those_that_nobody_reads_with_it(banks):
    bank, here, folder = banks
    near = here.workspace
    near.clone(folder / "remote" / "transfers", "transfers")
    here.derive("count", ("transfers",), lambda transfers: [], AMOUNTS)
    bank.transfer(2)
    bank.pull(*VIEWS)
    send(bank, folder, "transfers", "credits")
    near.pull("transfers", "credits")
    cut = record(near, "balances", "count")
    assert cut[near["transfers"].id].offset == 4
    here.derive("both", ("transfers", "debits"), lambda transfers, debits: [], AMOUNTS)
    held = CutLog.of(near).preview(
        [near["transfers"].id, near["debits"].id], groups_of(Dependencies.of(near), ["both"])
    )
    assert held[near["transfers"].id].offset == 4, "what a cut has passed it has passed"


def test_a_root_is_held_to_what_a_copy_that_is_read_with_it_was_made_from(banks):
    bank, here, folder = banks
    near = here.workspace
    near.clone(folder / "remote" / "transfers", "transfers")
    here.derive("both", ("transfers", "debits"), lambda transfers, debits: [], AMOUNTS)
    bank.transfer(2)
    bank.pull(*VIEWS)
    send(bank, folder, "transfers")
    near.pull("transfers")
    cut = record(near, "both")
    assert cut[near["transfers"].id].offset == 2, "the debits have not read more"
    send(bank, folder, "debits")
    near.pull("debits")
    assert record(near, "both")[near["transfers"].id].offset == 4


# --- copies of what lies deeper -----------------------------------------------------------


@pytest.fixture
def deep(tmp_path):
    """A bank, and an empty workspace: nothing in it says how the bank's views hang together."""
    with tl.open(tmp_path / "far", create=True) as far, tl.open(tmp_path / "near", create=True) as near:
        bank = Bank(far)
        bank.derive("audit", ("credits",), copied, AMOUNTS)
        bank.transfer(3)
        bank.pull(*VIEWS, "audit")
        yield bank, Local(near), tmp_path


def copied(credits):  # noqa: A002 (the name of a dataset)
    return credits


def before_data(chain):
    return max(
        (e for n in range(9) if (e := chain.entry_number(n)) and e.data is None),
        key=lambda e: e.sequence_number,
    ).hash


def clone(here, folder, *names):
    for name in names:
        here.workspace.clone(folder / "remote" / name, name)


@pytest.mark.contract("cut:P6", "cut:P12")
@pytest.mark.parametrize("old", ["balances", "total"])
def test_a_copy_is_held_to_roots_that_are_no_inputs_of_it(deep, old):
    bank, here, folder = deep
    send(bank, folder, old)
    bank.transfer(2)
    bank.pull(*VIEWS)
    send(bank, folder, "transfers", "credits")
    clone(here, folder, old, "transfers", "credits")
    for other in ("transfers", "credits"):
        snap = here.workspace.snapshot(old, other, together=True)
        assert snap.groups == ((old, other),)
        for name in (old, other):
            rows = snap[name].to_arrow().to_pylist()
            assert len(rows) == 3 if name == "transfers" else rows == bank.expected(2)[name]
    alone = here.workspace.snapshot("credits")
    assert alone["credits"].to_arrow().to_pylist() == bank.expected(4)["credits"], "nobody holds it back"


@pytest.mark.contract("cut:P6", "cut:P12")
def test_copies_agree_where_nothing_that_they_share_is_here(deep):
    bank, here, folder = deep
    send(bank, folder, "total")
    bank.transfer(2)
    bank.pull(*VIEWS)
    send(bank, folder, "credits")
    clone(here, folder, "total", "credits")
    snap = here.workspace.snapshot("total", "credits", together=True)
    assert snap["credits"].to_arrow().to_pylist() == bank.expected(2)["credits"]


def test_a_cut_holds_a_root_to_a_copy_that_reads_it_further_up(deep):
    bank, here, folder = deep
    send(bank, folder, "total")
    bank.transfer(2)
    bank.pull(*VIEWS)
    send(bank, folder, "transfers")
    clone(here, folder, "total", "transfers")
    near = here.workspace
    here.derive("both", ("transfers", "total"), lambda transfers, total: [], AMOUNTS)
    assert record(near, "both")[near["transfers"].id].offset == 2
    send(bank, folder, "total")
    near.pull("total")
    assert record(near, "both")[near["transfers"].id].offset == 4


@pytest.mark.contract("cut:P6")
def test_a_copy_is_held_to_what_a_dataset_between_was_computed_from_here(tmp_path):
    """The root of a copy is a copy of what is computed here: what it rests on is known by that."""
    with tl.open(tmp_path / "near", create=True) as near, tl.open(tmp_path / "far", create=True) as far:
        bank, there = Bank(near), Local(far)
        bank.transfer(3)
        bank.pull("credits")
        near["credits"].push(tmp_path / "remote" / "credits")
        far.clone(tmp_path / "remote" / "credits", "credits")
        there.derive("audit", ("credits",), copied, AMOUNTS)
        there.pull("audit")
        far["audit"].push(tmp_path / "remote" / "audit")
        near.clone(tmp_path / "remote" / "audit", "audit")
        bank.transfer(2)
        bank.pull("credits")
        for other in ("transfers", "credits"):
            assert near.snapshot("audit", other, together=True).positions[other].offset == 2


@pytest.mark.contract("cut:P6", "cut:P12")
def test_copies_made_under_different_definitions_of_what_is_not_here_do_not_agree(deep):
    bank, here, folder = deep
    near, same = here.workspace, bank.record("total")
    send(bank, folder, "total")
    bank.redefine("credits", lambda transfers: [{"account": 77, "amount": 1}])
    for name in ("credits", "audit"):
        bank.follow(name, same)
    send(bank, folder, "audit")
    clone(here, folder, "total", "audit")
    with pytest.raises(CannotCompare, match="under different definitions") as caught:
        near.snapshot("total", "audit")
    assert caught.value.datasets == ("total", "audit")
    assert "which is not here" in str(caught.value)
    here.derive("both", ("total", "audit"), lambda total, audit: [], AMOUNTS)
    assert len(record(near, "both")) == 0, "a cut takes neither"
    bank.pull(*VIEWS)
    send(bank, folder, "total")
    near.pull("total", "audit")
    assert near.snapshot("total", "audit").positions.keys() == {"total", "audit"}
    assert len(record(near, "both")) == 2


@pytest.mark.contract("cut:P12")
def test_copies_made_before_and_after_a_reset_of_what_is_not_here_cannot_be_compared(deep):
    bank, here, folder = deep
    far = bank.workspace
    send(bank, folder, "audit")
    for name in ("transfers", *VIEWS):
        far[name].chain.reset(before_data(far[name].chain))
    bank.made = 10
    bank.transfer(3)
    bank.pull(*VIEWS)
    send(bank, folder, "total")
    clone(here, folder, "audit", "total")
    with pytest.raises(CannotCompare, match="at different commits"):
        here.workspace.snapshot("audit", "total")


@pytest.mark.contract("derive:V20")
def test_a_damaged_copy_is_reported_and_stops_its_readers_alone(banks):
    _, here, _ = banks
    near = here.workspace
    here.derive("owed", ("debits",), lambda debits: debits, AMOUNTS)
    left = near["credits"].chain.tail().data.new_checkpoint
    near["credits"].chain.store.delete(Folder.CHECKPOINTS, left.physical_hash)
    with here.computing(), tl.open(near.location) as again, pytest.raises(PullError) as e:
        again.pull()
    report = e.value.report
    assert set(report.errors) == {"credits"}
    assert report["balances"].waits_for == ("credits",)
    assert report["owed"].commit is not None
