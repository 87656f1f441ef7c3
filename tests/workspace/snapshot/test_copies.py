"""Copies of derived datasets as roots: what is computed here from several of them is not torn."""

from __future__ import annotations

import pytest

import trueline as tl
from tests.workspace.snapshot.bank import AMOUNTS, VIEWS, Bank, balanced
from tests.workspace.snapshot.local import Local
from trueline.chain.store.store import Folder
from trueline.errors import PullError
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
