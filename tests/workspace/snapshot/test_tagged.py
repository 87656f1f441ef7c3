"""Snapshots of tags whose commits were named one by one, or came with copies: none of them is torn."""

from __future__ import annotations

import pytest

import trueline as tl
from tests.workspace.snapshot.bank import AMOUNTS, VIEWS, summed
from tests.workspace.snapshot.local import Local
from trueline.errors import CutGone, DatasetNotFound, InputError, NoCommonCut, NothingShared
from trueline.workspace.snapshot.find import read_together


def rows(view):
    return view.to_arrow().to_pylist()


def tag_each(bank, *names):
    for name in names:
        bank.workspace.tag("v1", bank.workspace[name])


@pytest.mark.contract("cut:P12")
def test_a_tag_of_commits_that_do_not_agree_gives_no_snapshot(bank):
    ws = bank.workspace
    bank.transfer(2)
    bank.pull(*VIEWS)
    bank.transfer(3)
    bank.pull("credits")
    tag_each(bank, "credits", "debits")
    torn = "names commits of 'credits' and 'debits' that do not agree: they are at different states of 'tr"
    for read in (
        lambda: ws.snapshot("credits", "debits", at="v1"),
        lambda: ws.snapshot(at="v1"),
        lambda: read_together(ws, ["credits", "debits"], "v1"),  # as a query does
    ):
        with pytest.raises(NoCommonCut, match=torn) as caught:
            read()
        assert (caught.value.dataset, caught.value.source) == ("debits", "transfers")
    for name, offset in (("credits", 4), ("debits", 1)):
        snap = ws.snapshot(name, at="v1")
        assert snap.cut == {"transfers": offset}, "what it was made from is told by the commit"
        assert ws.snapshot(name, cut=snap).positions == snap.positions
    tag_each(bank, "transfers")
    assert ws.snapshot("credits", at="v1").cut == {"transfers": 4}
    with pytest.raises(NoCommonCut, match="'debits' and 'transfers'"):
        ws.snapshot("debits", at="v1")  # the tag has the transfers themselves elsewhere


@pytest.mark.contract("cut:P12")
def test_a_tag_of_commits_under_other_definitions_gives_no_snapshot(bank):
    ws = bank.workspace
    bank.transfer(2)
    bank.pull(*VIEWS)
    bank.redefine("credits", summed("receiver"))
    bank.pull("credits")
    tag_each(bank, "credits", "balances")
    with pytest.raises(NoCommonCut, match="at different states of 'credits'"):
        ws.snapshot(at="v1")
    assert ws.snapshot("balances", at="v1").cut == {"transfers": 1}


@pytest.mark.contract("cut:P12")
def test_a_tag_of_what_was_never_pulled_agrees_with_what_is_empty_alone(bank):
    ws = bank.workspace
    tag_each(bank, "credits", "debits", "balances")
    assert ws.snapshot(at="v1").cut == {"transfers": None}
    bank.transfer(2)
    bank.pull("credits", "debits")
    tag_each(bank, "transfers")
    with pytest.raises(NoCommonCut, match="at different states of 'transfers'"):
        ws.snapshot("credits", at="v1")


@pytest.mark.contract("cut:P6", "cut:P15")
def test_a_tag_of_single_commits_that_agree_is_a_snapshot_in_groups(bank):
    ws = bank.workspace
    ws.create("weather").append([{"t": 20.5}])
    bank.transfer(2)
    bank.pull(*VIEWS)
    tag_each(bank, "total", "weather", "debits")
    bank.transfer(2)
    bank.pull(*VIEWS)
    snap = ws.snapshot("debits", "weather", "total", at="v1")
    assert snap.groups == (("debits", "total"), ("weather",))
    assert snap.cut == {"transfers": 1, "weather": 0}
    assert snap.lag == {"debits": 1, "weather": 0, "total": 1, "transfers": 1}
    assert ws.snapshot(*snap, cut=snap).positions == snap.positions
    assert read_together(ws, ["debits", "weather"], "v1").cut == {"transfers": 1, "weather": 0}
    with pytest.raises(NothingShared):
        ws.snapshot(at="v1", together=True)
    assert ws.snapshot("debits", "total", at="v1", together=True).groups == (("debits", "total"),)


@pytest.mark.contract("cut:P12", "cut:P18")
def test_tags_of_one_name_that_came_with_copies_make_no_torn_snapshot(bank, tmp_path):
    """Pushed at different times under one name, cloned into one workspace."""
    ws = bank.workspace
    for name in ("credits", "debits"):
        bank.transfer(2)
        bank.pull(*VIEWS)
        tag_each(bank, name)
        ws[name].push(tmp_path / name)
        ws.untag("v1")
    with tl.open(tmp_path / "near", create=True) as near:
        for name in ("credits", "debits"):
            near.clone(tmp_path / name, name)
        assert sorted(near.tags()["v1"].at) == ["credits", "debits"]
        with pytest.raises(NoCommonCut, match="do not agree: they are at different states of did:odf"):
            near.snapshot(at="v1")
        here = Local(near)
        here.derive("owed", ("debits",), lambda debits: debits, AMOUNTS)
        here.pull("owed")
        near.untag("v1")
        near.tag("v1", near["credits"])
        near.tag("v1", near["owed"])
        with pytest.raises(NoCommonCut, match="different states of did:odf"):
            near.snapshot(at="v1")


@pytest.mark.contract("cut:P15")
def test_a_tag_and_a_snapshot_stay_with_a_dataset_whose_name_another_has_taken(bank):
    ws = bank.workspace
    ws.create("weather").append([{"t": 20.5}])
    snap = ws.snapshot("weather")
    ws.tag("v1", snap)
    ws["weather"].rename("old-weather")
    ws.create("weather").append([{"t": 1.5}])
    assert rows(snap["weather"]) == rows(ws.snapshot(at="v1")["old-weather"]) == [{"t": 20.5}]
    with pytest.raises(InputError, match="does not name a commit of 'weather'"):
        ws.snapshot("weather", at="v1")
    with pytest.raises(InputError, match="the earlier snapshot does not have 'weather'"):
        ws.snapshot("weather").changes("weather", since=snap)
    with pytest.raises(InputError, match="does not say where 'weather' is"):
        ws.snapshot("weather", cut=snap)
    assert ws.snapshot("old-weather", cut=snap).positions["old-weather"] == snap.positions["weather"]


@pytest.mark.contract("cut:P15", "cut:P17")
def test_an_open_snapshot_holds_its_roots_and_can_be_tagged_whatever_happens(bank):
    """The tag names the roots too, though nobody asked the snapshot for them."""
    ws = bank.workspace
    first = bank.transfer(3)
    bank.pull("credits", "debits")
    bank.transfer(2)
    bank.pull("credits", "debits")
    snap = ws.snapshot("credits", "debits")
    ws["transfers"].chain.reset(first.block)
    ws.gc(older_than=0)
    assert sorted(ws.tag("q3", snap).at) == ["credits", "debits", "transfers"]
    snap.close()
    ws.gc(older_than=0)
    again = ws.snapshot(at="q3")
    assert again.cut == {"transfers": 4}
    assert {name: rows(again[name]) for name in ("credits", "debits")} == {
        name: bank.expected(4)[name] for name in ("credits", "debits")
    }
    assert again["transfers"].count() == 5


@pytest.mark.contract("cut:P15")
@pytest.mark.parametrize("names", [("transfers",), ("credits",)])
def test_a_tag_of_what_is_not_there_any_more_is_refused(bank, names):
    ws = bank.workspace
    first = bank.transfer(3)
    bank.transfer(2)
    bank.pull("credits")
    ws.create("weather").append([{"t": 20.5}])
    ws.tag("q3", "weather")
    snap = ws.snapshot(*names)
    snap.close()
    ws["transfers"].chain.reset(first.block)
    ws.tag("q2", snap)  # it is still there
    ws.untag("q2")
    ws.gc(older_than=0)
    for tag in ("q2", "q3"):
        with pytest.raises(CutGone, match=r"commit .* of 'transfers' is not there any more"):
            ws.tag(tag, snap)
    assert {name: list(tag.at) for name, tag in ws.tags().items()} == {"q3": ["weather"]}


def test_a_tag_of_a_snapshot_whose_dataset_was_deleted_is_refused(bank):
    ws = bank.workspace
    ws.create("weather").append([{"t": 20.5}])
    snap = ws.snapshot("weather")
    ws.delete("weather")
    with pytest.raises(DatasetNotFound, match="no dataset 'weather'"):
        ws.tag("q3", snap)
    assert ws.tags() == {}
