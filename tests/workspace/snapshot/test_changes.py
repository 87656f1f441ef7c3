"""What changed between two snapshots, whoever took them, and whatever datasets are called meanwhile."""

from __future__ import annotations

import pytest

import trueline as tl
from tests.workspace.snapshot.bank import VIEWS, Bank, summed
from trueline.errors import CutGone, DatasetNotFound, InputError


def rows(view):
    return view.to_arrow().to_pylist()


def by_key(view):
    return {row.get("account", row.get("id")): row["amount"] for row in rows(view)}


def changed(earlier, later, name, called=None):
    """The rows of an earlier snapshot, with the changes up to a later one."""
    made = by_key(earlier[called or name])
    for event in rows(later.changes(name, since=earlier)):
        key = event.get("account", event.get("id"))
        if event["op"] in ("insert", "update_postimage"):
            made[key] = event["amount"]
        else:
            assert made.pop(key) == event["amount"]
    return made


@pytest.mark.contract("cut:P7")
def test_earlier_rows_and_changes_make_later_rows_for_all_datasets(bank):
    ws = bank.workspace
    bank.transfer(3)
    bank.pull(*VIEWS)
    earlier = ws.snapshot(*VIEWS)
    bank.transfer(9)
    bank.pull(*VIEWS)
    later = ws.snapshot(*VIEWS)
    for name in VIEWS:
        assert changed(earlier, later, name) == by_key(later[name])
    with pytest.raises(InputError, match="comes after"):
        earlier.changes("credits", since=later)
    with pytest.raises(DatasetNotFound, match="not in this snapshot"):
        later["transfers"]


def test_snapshots_of_two_openings_of_one_place_give_changes(bank):
    ws = bank.workspace
    bank.transfer(3)
    bank.pull(*VIEWS)
    with tl.open(ws.location) as other:
        earlier = other.snapshot(*VIEWS)
        bank.transfer(2)
        bank.pull(*VIEWS)
        later = ws.snapshot(*VIEWS)
        for name in VIEWS:
            assert changed(earlier, later, name) == by_key(later[name])


def test_changes_since_a_snapshot_of_something_else_are_refused(bank, tmp_path):
    bank.transfer(3)
    bank.pull(*VIEWS)
    later = bank.workspace.snapshot(*VIEWS)
    with tl.open(tmp_path / "other", create=True) as other:
        elsewhere = Bank(other)
        elsewhere.transfer(1)
        elsewhere.pull(*VIEWS)
        with pytest.raises(InputError, match="the earlier snapshot does not have 'credits'"):
            later.changes("credits", since=other.snapshot(*VIEWS))
    with pytest.raises(InputError, match="is not a snapshot"):
        later.changes("credits", since="yesterday")


@pytest.mark.contract("cut:P12")
def test_what_a_reset_cut_off_is_compared_with_what_was_before_it_alone(bank):
    ws = bank.workspace
    first = bank.transfer(3)
    earliest = ws.snapshot("transfers")
    bank.transfer(2)
    earlier = ws.snapshot("transfers")
    bank.transfer(1)
    cut_off = ws.snapshot("transfers")
    ws["transfers"].chain.reset(first.block)
    bank.transfer(4)
    later = ws.snapshot("transfers")
    assert later.changes("transfers", since=earliest).count() == 4
    assert cut_off.changes("transfers", since=earlier).count() == 1, "both were cut off"
    for upto, since in ((later, cut_off), (cut_off, later)):
        with pytest.raises(CutGone, match=cut_off.at["transfers"].block.short):
            upto.changes("transfers", since=since)


@pytest.mark.contract("cut:P15")
def test_a_snapshot_is_the_same_when_datasets_are_called_otherwise(bank):
    ws = bank.workspace
    bank.transfer(3)
    bank.pull("credits", "debits")
    earlier = ws.snapshot("transfers", "credits", "debits")
    ws["transfers"].rename("payments")
    ws["credits"].rename("received")
    bank.workspace["payments"].append([{"id": 9, "sender": 9, "receiver": 0, "amount": 9}])
    assert ws.snapshot("debits", cut=earlier).positions["debits"] == earlier.positions["debits"]
    assert sorted(ws.tag("q3", earlier).at) == ["debits", "payments", "received"]
    assert rows(earlier["credits"]) == rows(ws["received"].view()) == bank.expected(2)["credits"]
    later = ws.snapshot("payments", "debits")
    assert ws.snapshot("payments")["payments"].count() == 4
    assert later.changes("debits", since=earlier).count() == 0
    assert ws.snapshot("payments").changes("payments", since=earlier).count() == 1


def test_changes_go_across_a_definition_that_was_made_anew(bank):
    ws = bank.workspace
    bank.transfer(3)
    bank.pull("credits", "debits")
    earlier = ws.snapshot("credits", "debits")
    bank.redefine("credits", summed("sender"))
    bank.transfer(2)
    bank.pull("credits", "debits")
    later = ws.snapshot("credits", "debits")
    assert changed(earlier, later, "credits") == by_key(later["credits"]) == by_key(later["debits"])
