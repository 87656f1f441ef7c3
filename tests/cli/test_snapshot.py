"""Datasets that agree, from the command line: snapshot and tag."""

from __future__ import annotations

import re

import pytest

import trueline as tl
from tests.workspace.snapshot.bank import VIEWS, Bank


@pytest.fixture
def shop(tmp_path):
    with tl.open(tmp_path / "bank", create=True) as ws:
        bank = Bank(ws)
        bank.transfer(3)
        bank.pull(*VIEWS)
        bank.transfer(2)
        bank.pull("credits")
    return tmp_path / "bank"


def test_snapshot_shows_the_commit_of_each_dataset_where_they_agree(run, shop):
    done = run("-C", shop, "snapshot", "credits", "debits", "--json")
    assert (done.code, done.json["cut"]) == (0, {"transfers": 2})
    assert done.json["datasets"]["credits"]["behind"] == 1
    shown = run("-C", shop, "snapshot", "credits", "debits").out
    printed = re.search("cut (transfers=2@[0-9a-f]{8})", shown)[1]
    assert run("-C", shop, "snapshot", "credits", "--cut", printed, "--json").json["cut"] == {"transfers": 2}
    assert "newer commits" in shown
    assert run("-C", shop, "snapshot", "credits", "--cut", "transfers=4", "--json").json["cut"] == {
        "transfers": 4
    }
    assert run("-C", shop, "snapshot", "credits", "--cut", "1", "--json").json["number"] == 1
    with tl.open(shop) as ws:
        ws.create("weather").append([{"t": 1.5}])
    assert "these share nothing with each other: credits; weather" in (
        run("-C", shop, "snapshot", "credits", "weather").out
    )
    refused = run("-C", shop, "snapshot", "credits", "weather", "--together", "--json")
    assert (refused.code, refused.error["code"]) == (2, "NothingShared")
    refused = run("-C", shop, "snapshot", "debits", "--cut", "transfers=4", "--json")
    assert (refused.code, refused.error["code"]) == (2, "NoCommonCut")


def test_a_snapshot_is_of_a_time(run, shop):
    with tl.open(shop) as ws:
        after, before = (str(commit.system_time) for commit in list(ws["transfers"].log())[:2])
    assert run("-C", shop, "snapshot", "transfers", "--at", before, "--json").json["cut"] == {"transfers": 2}
    assert run("-C", shop, "snapshot", "transfers", "--at", after, "--json").json["cut"] == {"transfers": 4}
    refused = run("-C", shop, "snapshot", "credits", "debits", "--at", before, "--json")
    assert (refused.code, refused.error["code"]) == (2, "NoCommonCut")


@pytest.mark.contract("cut:P14")
def test_a_snapshot_brings_laggards_to_the_newest_cut_and_not_beyond_it(run, shop):
    with tl.open(shop) as ws:
        bank = Bank(ws)
        bank.transfer(1)
        with bank.computing():
            done = run("-C", shop, "snapshot", *VIEWS, "--advance", "--json")
        assert (done.code, done.json["cut"]) == (0, {"transfers": 4})
        assert run("-C", shop, "snapshot", *VIEWS, "--json").json["cut"] == {"transfers": 4}
        assert ws["transfers"].chain.tail().last_offset == 5


def test_a_snapshot_is_tagged_and_read_again(run, shop):
    assert "tagged q3" in run("-C", shop, "snapshot", "credits", "debits", "--tag", "q3").out
    assert run("-C", shop, "tag", "q4", "credits", "debits").code == 0
    tags = {each["tag"]: each["datasets"] for each in run("-C", shop, "tag", "--json").json["tags"]}
    assert tags["q3"] == tags["q4"]
    assert set(tags["q3"]) == {"credits", "debits", "transfers"}
    again = run("-C", shop, "snapshot", "--at", "q3", "--json").json
    assert (again["cut"], list(again["datasets"])) == ({"transfers": 2}, ["credits", "debits", "transfers"])
    assert len(run("-C", shop, "show", "credits@q3", "--json").json["rows"]) == 3


def test_sql_is_read_at_a_time_or_at_a_cut(run, shop):
    refused = run("-C", shop, "sql", "select 1", "--at", "2026-01-01", "--cut", "1", "--json")
    assert (refused.code, refused.error["message"]) == (2, "--at and --cut cannot be combined")
