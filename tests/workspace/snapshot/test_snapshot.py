"""Snapshots: datasets that are updated one by one, read at one state of the world."""

from __future__ import annotations

import math
import random
import re
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import trueline as tl
from tests.examples import examples
from tests.workspace.snapshot.bank import AMOUNTS, VIEWS, Bank, balanced, summed, total
from trueline.chain.chain import Chain
from trueline.chain.instant import Instant
from trueline.chain.store.store import Folder
from trueline.errors import (
    CutGone,
    DataWarning,
    Diverged,
    InputError,
    NoCommonCut,
    NothingShared,
    WaitTimeout,
)
from trueline.workspace.snapshot import histories
from trueline.workspace.snapshot.agree import agree


def rows(view):
    return view.to_arrow().to_pylist()


def all_rows(snap):
    return {name: rows(snap[name]) for name in snap}


@pytest.mark.contract("cut:P5", "cut:P6", "cut:P7")
def test_a_snapshot_is_what_the_definitions_make_of_one_cut(bank):
    ws = bank.workspace
    bank.transfer(3)
    bank.pull(*VIEWS)
    bank.transfer(2)
    cut = bank.record(*VIEWS)
    bank.follow("credits", cut)
    old = ws.snapshot("credits", "debits")
    assert old.cut == {"transfers": 2}, "one of them is ahead"
    assert old.lag == {"transfers": 1, "credits": 1, "debits": 0}
    assert all_rows(old) == {name: bank.expected(2)[name] for name in old}
    bank.follow("debits", cut)
    assert ws.snapshot("credits", "debits").cut == {"transfers": 4}
    assert ws.snapshot("credits", "transfers")["transfers"].count() == 5, "a root is where its readers are"
    behind = ws.snapshot(*VIEWS)
    assert behind.cut == {"transfers": 2}, "what was derived from both has not moved"
    assert all_rows(behind) == bank.expected(2)
    bank.follow("balances", cut)
    bank.follow("total", cut)
    assert all_rows(ws.snapshot(*VIEWS)) == bank.expected(4)
    assert all_rows(old) == {name: bank.expected(2)[name] for name in old}, "a snapshot stays where it is"


@pytest.mark.sampled
@pytest.mark.contract("cut:P13")
def test_snapshots_never_show_money_that_heads_show(bank):
    """Readings while datasets are updated one by one, each against what its own cut should give."""
    ws, chance = bank.workspace, random.Random(7)
    bank.transfer(5)
    bank.pull(*VIEWS)
    readings = torn = 0
    last, seen = -1, set()
    while readings < examples(400):
        bank.transfer(chance.randint(1, 4))
        cut = bank.record(*VIEWS)
        for name in VIEWS:
            bank.follow(name, cut)
            if chance.random() < 0.1:
                break  # it crashed, and the next pull goes on
            for _ in range(chance.choice((2, 8, 16))):
                readings += 1
                snap = ws.snapshot("credits", "debits", *chance.sample(VIEWS[2:], chance.randint(0, 2)))
                offset = snap.cut["transfers"]
                for view, at in snap.positions.items():
                    # What one commit shows for one cut does not change.
                    if (view, at.block, offset) not in seen:
                        assert rows(snap[view]) == bank.expected(offset)[view]
                        seen.add((view, at.block, offset))
                if set(snap) == {"credits", "debits"}:
                    assert offset >= last
                    last = offset
                snap.close()
        heads = {name: rows(ws[name].view()) for name in ("credits", "debits")}
        money = [sum(row["amount"] for row in heads[name]) for name in heads]
        torn += money[0] != money[1]
    assert torn > 0, "the heads have to disagree at times, or nothing was shown"


@pytest.mark.contract("cut:P6")
def test_what_was_made_under_an_earlier_definition_does_not_agree(bank):
    ws = bank.workspace
    bank.transfer(3)
    cut = bank.pull(*VIEWS)
    bank.redefine("credits", summed("receiver"))
    with pytest.raises(NoCommonCut, match="'credits' was defined anew and not pulled since") as caught:
        ws.snapshot("credits", "debits")
    assert caught.value.dataset == "credits"
    bank.follow("credits", cut)
    assert ws.snapshot("credits", "debits").cut == {"transfers": 2}
    with pytest.raises(NoCommonCut, match="'balances' was made under an earlier definition of 'credits'"):
        ws.snapshot("credits", "balances")
    with pytest.raises(NoCommonCut, match="'total' was made under an earlier definition of 'credits'"):
        ws.snapshot("total", "credits")
    bank.follow("balances", cut)
    assert ws.snapshot("credits", "balances").cut == {"transfers": 2}
    with pytest.raises(NoCommonCut, match="'total'"):
        ws.snapshot("total", "credits")
    bank.follow("total", cut)
    assert all_rows(ws.snapshot(*VIEWS)) == bank.expected(2)


@pytest.mark.contract("cut:P12")
def test_a_reset_input_is_answered_by_what_was_before_it_or_by_diverged(bank):
    ws = bank.workspace
    first = bank.transfer(3)
    bank.pull(*VIEWS)
    second = bank.transfer(2)
    bank.pull(*VIEWS)
    transfers = ws["transfers"].chain
    transfers.reset(first.block)
    snap = ws.snapshot(*VIEWS)
    assert snap.cut == {"transfers": 2}
    assert all_rows(snap) == bank.expected(2)
    begun = next(iter(transfers.walk(transfers.block(first.block).prev_block_hash)))[0]
    transfers.reset(begun)
    bank.transfer(1)
    with pytest.raises(Diverged, match="'transfers' was reset") as caught:
        ws.snapshot(*VIEWS)
    assert caught.value.source == "transfers"
    assert caught.value.block in (first.block, second.block), "a commit that was lost"


@pytest.mark.contract("cut:P12")
def test_what_diverged_agrees_again_after_what_the_remedy_says(bank):
    ws, transfers = bank.workspace, bank.workspace["transfers"]
    first = bank.transfer(2)
    bank.transfer(1)
    bank.pull("credits")
    bank.transfer(1)
    bank.pull("debits")
    with pytest.warns(DataWarning, match="computed from commits that are gone now"):
        transfers.reset(to=first)
    transfers.append([{"id": 9, "sender": 7, "receiver": 8, "amount": 50}])
    done, snap = [], None
    while snap is None and len(done) < 3:
        try:
            snap = ws.snapshot("credits", "debits")
        except Diverged as diverged:
            (call,) = re.findall(r"(ws\['\w+'\]\.reset\(rebuild=True\)), and pull", diverged.remedy)
            eval(call)
            with bank.computing():
                ws.pull(diverged.dataset)
            done.append(diverged.dataset)
    assert sorted(done) == ["credits", "debits"]
    with bank.computing():
        ws.pull()
    snap = ws.snapshot(*VIEWS)
    assert snap.cut == {"transfers": 2}
    moved = rows(transfers.view())
    assert [row["amount"] for row in moved] == [1, 2, 50]
    made = {"credits": summed("receiver")(moved), "debits": summed("sender")(moved)}
    made["balances"] = balanced(**made)
    assert all_rows(snap) == made | {"total": total(made["balances"])}


@pytest.mark.contract("cut:P12")
def test_datasets_that_were_never_together_have_no_common_cut(bank):
    ws = bank.workspace
    assert ws.snapshot().cut == {"transfers": None}, "what is all empty agrees"
    assert rows(ws.snapshot("total")["total"]) == []
    ws.create("weather").append([{"t": 20.5}])
    ws.create("news")
    assert ws.snapshot("weather", "news", "total").cut == {"weather": 0, "news": None, "transfers": None}
    bank.transfer(1)
    assert ws.snapshot("weather", "news", "transfers").cut["transfers"] == 0
    with pytest.raises(NoCommonCut, match="'credits' has not been pulled yet"):
        ws.snapshot("weather", "credits")
    with pytest.raises(NoCommonCut, match="has not been pulled yet") as caught:
        ws.snapshot("transfers", "credits")
    assert caught.value.remedy == "ws.pull('credits'), then try again"
    bank.pull("credits")
    bank.transfer(1)
    bank.pull("debits")
    with pytest.raises(NoCommonCut, match="were never at one state"):
        ws.snapshot("credits", "debits")


@pytest.mark.contract("cut:P6")
def test_datasets_that_share_nothing_are_apart(bank):
    ws = bank.workspace
    bank.transfer(2)
    bank.pull("credits", "debits")
    ws.create("weather").append(pa.table({"t": [20.5]}))
    snap = ws.snapshot("credits", "weather", "debits")
    assert snap.groups == (("credits", "debits"), ("weather",))
    assert snap.cut == {"transfers": 1, "weather": 0}
    with pytest.raises(NothingShared) as caught:
        ws.snapshot("credits", "weather", together=True)
    assert caught.value.groups == (("credits",), ("weather",))
    assert ws.snapshot("credits", "debits", together=True).groups == (("credits", "debits"),)


@pytest.mark.contract("cut:P15")
def test_a_cut_handed_back_gives_the_same_rows(bank):
    ws = bank.workspace
    bank.transfer(3)
    first = bank.pull(*VIEWS)
    snap = ws.snapshot(*VIEWS)
    bank.transfer(4)
    bank.pull(*VIEWS)
    expected = bank.expected(2)
    with tl.open(ws.location) as other:
        for cut in (first.number, first, snap.cut, snap, "1", "transfers=2", snap.shown_cut):
            again = other.snapshot(*VIEWS, cut=cut)
            assert again.cut == {"transfers": 2}
            assert all_rows(again) == expected
    assert ws.snapshot("total", cut=first.number).number == 1
    bank.redefine("credits", lambda transfers: [])
    bank.pull(*VIEWS)
    assert rows(ws.snapshot("credits")["credits"]) == []
    assert all_rows(ws.snapshot(*VIEWS, cut=first)) == expected, "what a cut showed then it shows now"


@pytest.mark.contract("cut:P6")
def test_datasets_over_one_root_of_a_transaction_each_are_apart_until_they_are_pulled_together(bank):
    """Nothing that is computed from all its roots shows a part of it, nor do the roots by themselves."""
    ws = bank.workspace
    for root in ("orders", "lines"):
        ws.create(root).append([{"id": 0}])
        bank.derive(f"{root}_count", (root,), lambda **read: count(*read.values()), AMOUNTS)
    bank.derive("both", ("orders", "lines"), lambda **read: count(*read.values()), AMOUNTS)
    computed = ("orders_count", "lines_count", "both")
    bank.pull(*computed)
    with ws.transaction():
        ws["orders"].append([{"id": 1}])
        ws["lines"].append([{"id": 1}])
    bank.pull("orders_count")
    assert ws.snapshot("orders", "lines").cut == {"orders": 1, "lines": 1}
    assert ws.snapshot("both").cut == {"orders": 0, "lines": 0}
    for names in (("orders_count", "lines_count"), ("orders", "lines_count")):
        apart = ws.snapshot(*names)
        assert (apart.cut, len(apart.groups)) == ({"orders": 1, "lines": 0}, 2)
    assert ws.snapshot(*computed).cut == {"orders": 0, "lines": 0}, "what rests on both joins them"
    with bank.computing():
        together = ws.snapshot("orders_count", "lines_count", advance=True)
    assert together.cut == {"orders": 1, "lines": 1}


def count(*tables):
    return [{"account": 1, "amount": sum(map(len, tables))}]


@pytest.mark.contract("cut:P15", "cut:P17")
def test_a_printed_cut_is_that_of_the_same_commits_or_is_gone(bank):
    ws = bank.workspace
    first = bank.transfer(3)
    bank.transfer(2)
    with ws.snapshot("transfers") as snap:
        printed = snap.shown_cut
        was = all_rows(snap)
    assert printed == f"transfers=4@{snap.at['transfers'].short}"
    ws["transfers"].append([], watermark="2099-01-01T00:00:00Z")
    assert ws["transfers"].head != snap.at["transfers"].block
    assert all_rows(ws.snapshot("transfers", cut=printed)) == was, "a watermark moves no offset"
    ws["transfers"].chain.reset(first.block)
    bank.made = 7
    bank.transfer(2)
    with pytest.raises(CutGone, match=f"commit {snap.at['transfers'].short} of 'transfers' is not there"):
        ws.snapshot("transfers", cut=printed)
    assert ws.snapshot("transfers", cut=snap.cut).cut == {"transfers": 4}, "an offset alone is what is there"
    assert ws.snapshot("transfers").shown_cut != printed


@pytest.mark.contract("cut:P12", "cut:P17")
def test_cuts_that_are_not_there_are_refused(bank):
    ws = bank.workspace
    first = bank.transfer(3)
    bank.pull("credits")
    bank.transfer(3)
    cut = bank.pull("credits")
    for wrong, words in (
        (99, "there is no cut 99"),
        ({"transfers": 1}, "no commit of 'transfers' ends at offset 1"),
        ({}, "does not say where 'transfers' is"),
        ("what", "is not a cut"),
        (1.5, "is not a cut"),
        ({"transfers": "x"}, "is not an offset"),
        ("transfers=2@", "is not a cut"),
        ("transfers=2@xyz1", "is not a cut"),
    ):
        with pytest.raises(InputError, match=words):
            ws.snapshot("credits", cut=wrong)
    with pytest.raises(NoCommonCut, match="never all at cut 2: 'debits' has not been pulled yet"):
        ws.snapshot("credits", "debits", cut=cut)
    bank.pull("debits")
    with pytest.raises(NoCommonCut, match="never all at cut 1"):
        ws.snapshot("credits", "debits", cut=1)
    ws["transfers"].chain.reset(first.block)
    with pytest.raises(CutGone, match="a reset has cut it off"):
        ws.snapshot("credits", cut=cut)
    with pytest.raises(InputError, match="exclude each other"):
        ws.snapshot("credits", cut=1, at="2026-01-01")


def test_a_snapshot_of_a_time_is_what_agreed_then(bank):
    ws = bank.workspace
    for day in (1, 2, 3):
        ws.clock = lambda day=day: Instant.parse(f"2099-01-0{day}T12:00:00Z")
        bank.transfer(2)
        bank.follow("credits", bank.record("credits"))
        if day != 2:
            bank.follow("debits", bank.record("debits"))
    for at in ("2099-01-01", datetime(2099, 1, 2, 13, tzinfo=UTC), "2099-01-02T13:00:00Z"):
        assert ws.snapshot("credits", "debits", at=at).cut == {"transfers": 1}
    assert ws.snapshot("credits", at="2099-01-02").cut == {"transfers": 3}
    assert ws.snapshot("credits", "debits", at="head").cut == {"transfers": 5}
    with pytest.raises(InputError, match="did not exist"):
        ws.snapshot("credits", at="2001-01-01")
    with pytest.raises(InputError, match="is not a time or a tag"):
        ws.snapshot("credits", at=17)


@pytest.mark.contract("cut:P12")
def test_an_input_whose_clock_is_ahead_was_not_reset(bank):
    """What is computed is dated with the beginning of its pull: what it has read may be dated later."""
    ws = bank.workspace
    times = {"early": "2099-01-01T10:00:00Z", "late": "2099-01-01T10:00:05Z"}
    ws.clock = lambda: Instant.parse(times["late"])
    bank.transfer(2)
    cut = bank.record("credits")
    ws.clock = lambda: Instant.parse(times["early"])
    bank.follow("credits", cut)
    with pytest.raises(NoCommonCut, match="is dated 2099-01-01T10:00:05Z") as caught:
        ws.snapshot("credits", at="2099-01-01T10:00:02Z")
    assert "was reset" not in str(caught.value)
    assert ws.snapshot("credits", at=times["late"]).cut == {"transfers": 1}


@pytest.mark.contract("cut:P4")
def test_what_is_not_at_rest_is_passed_over(bank):
    ws = bank.workspace
    bank.transfer(3)
    bank.pull(*VIEWS)
    bank.transfer(2)
    cut = bank.record(*VIEWS)
    bank.follow("credits", cut, at_rest=False)
    assert ws.snapshot("credits").cut == {"transfers": 2}
    bank.follow("credits", cut)
    assert ws.snapshot("credits").cut == {"transfers": 4}


def test_an_advance_without_rows_separates_nobody(tmp_path):
    """A dataset whose input went on without a change is as new as that input."""
    with tl.open(tmp_path / "ws", create=True) as ws:
        bank = Bank(ws)
        large = lambda transfers: [  # noqa: E731
            {"account": row["id"], "amount": row["amount"]} for row in transfers if row["amount"] > 100
        ]
        bank.derive("large", ("transfers",), large, AMOUNTS)
        bank.derive("largest", ("large",), lambda large: large, AMOUNTS)
        bank.transfer(3)
        bank.pull("large", "largest", "credits")
        bank.transfer(3)
        bank.pull("large", "credits")
        assert ws.snapshot("largest", "credits").cut == {"transfers": 5}


@pytest.mark.contract("cut:P8")
def test_finding_a_snapshot_reads_few_blocks_whatever_the_history(bank, monkeypatch):
    """All at their heads after 1 and 40 commits; and one 40 and 400 commits behind the others."""
    read, block = [], Chain.block

    def reading(chain, name):
        read.append(name)
        return block(chain, name)

    def counted(*names):
        with monkeypatch.context() as patch:
            patch.setattr(Chain, "block", reading)
            read.clear()
            found = agree(bank.workspace, [bank.workspace[name] for name in names])
        return len(read), found.reads["blocks"], found.reads["steps"]

    def go_on(commits, *names):
        for _ in range(commits):
            bank.transfer(1)
            cut = bank.record("credits")
            for name in names:
                bank.follow(name, cut, made=[])

    def looked_at():
        counted("credits", "debits")  # the index follows, and the state at the head is read
        return counted("credits", "debits")

    go_on(1, "credits", "debits")
    first = looked_at()
    go_on(40, "credits", "debits")
    assert looked_at() == first, "the newest is found at once"
    go_on(40, "credits")
    near = looked_at()
    go_on(360, "credits")
    far = looked_at()
    assert far[:2] == near[:2], "blocks are read where the search ends"
    assert near[1] <= 3
    assert near[2] < far[2] <= near[2] + 2 * math.log2(10)


def test_an_index_that_does_not_fit_its_blocks_is_made_anew(bank):
    ws = bank.workspace
    bank.transfer(3)
    bank.pull("credits", "debits")
    bank.transfer(2)
    bank.pull("credits", "debits")
    index = ws["credits"].chain._index
    with index._writing() as connection:
        (old,) = connection.execute("SELECT block FROM taken ORDER BY seq LIMIT 1").fetchone()
        connection.execute("UPDATE taken SET block = ?, last_offset = 2", (old,))
    assert ws.snapshot("credits", "debits").cut == {"transfers": 4}


@pytest.mark.contract("cut:P12", "cut:P18")
def test_copies_of_derived_datasets_agree_as_far_as_can_be_known(tmp_path):
    far = tl.open(tmp_path / "far", create=True)
    bank = Bank(far)
    bank.transfer(3)
    bank.pull(*VIEWS)
    far["credits"].push(tmp_path / "credits")
    bank.transfer(2)
    bank.pull(*VIEWS)
    far["credits"].push(tmp_path / "credits")
    far["debits"].push(tmp_path / "debits")
    bank.transfer(2)
    bank.pull(*VIEWS)
    for name in ("credits", "total", "transfers"):
        far[name].push(tmp_path / name)
    with tl.open(tmp_path / "near", create=True) as near:
        for name in ("credits", "debits"):
            near.clone(tmp_path / name, name)
        snap = near.snapshot("credits", "debits", together=True)
        assert all_rows(snap) == {name: bank.expected(4)[name] for name in snap}
        near.clone(tmp_path / "total", "total")
        snap = near.snapshot("debits", "total", together=True)
        assert all_rows(snap) == {name: bank.expected(4)[name] for name in snap}
        near.clone(tmp_path / "transfers", "transfers")
        assert near.snapshot("credits", "transfers").cut["transfers"] == 6
        assert near.snapshot("debits", "transfers").cut["transfers"] == 4
    far.close()


def test_a_snapshot_shows_itself(bank):
    bank.transfer(2)
    bank.pull("credits", "debits")
    snap = bank.workspace.snapshot("credits", "debits")
    assert str(snap) == " = ".join(f"{name}@{bank.workspace[name].head.short}" for name in snap)
    assert repr(snap) == f"<Snapshot {snap}>"
    assert snap.to_dict()["cut"] == {"transfers": 1}
    bank.workspace.create("weather").append([{"t": 20.5}] * 3)
    bank.transfer(3)
    shown = bank.workspace.snapshot("credits", "weather")
    html = shown._repr_html_()
    assert "Snapshot at transfers 1, weather 2" in html
    cells = [re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row) for row in html.split("<tr")[1:]]
    assert cells == [
        ["dataset", "commit", "last offset", "newer commits", "group"],
        ["credits", shown.at["credits"].short, "1", "0", "1"],
        ["weather", shown.at["weather"].short, "2", "0", "2"],
    ]
    assert (len(snap), "credits" in snap, "total" in snap) == (2, True, False)
    assert snap.at["credits"].block == bank.workspace["credits"].head


@pytest.mark.contract("cut:P15", "cut:P17")
def test_a_tag_names_a_snapshot_and_keeps_it_whatever_happens(bank, tmp_path):
    ws = bank.workspace
    first = bank.transfer(3)
    bank.pull(*VIEWS)
    bank.transfer(2)
    bank.pull(*VIEWS)
    tag = ws.tag("q3", ws.snapshot("credits", "debits"))
    assert sorted(tag.at) == ["credits", "debits", "transfers"]
    expected = {name: bank.expected(4)[name] for name in ("credits", "debits")}
    bank.transfer(2)
    bank.pull(*VIEWS)
    assert rows(ws["credits"].view("q3")) == expected["credits"]
    for name in ("credits", "debits", "transfers"):
        ws[name].push(tmp_path / name)
    ws["transfers"].chain.reset(first.block)
    for name in ("credits", "debits"):
        second = next(iter(ws[name].log(tag.at[name])))
        ws[name].chain.reset(next(b for b, _ in ws[name].blocks(second.block) if b != second.block))
    ws.gc(older_than=0)
    with tl.open(ws.location) as other:
        again = other.snapshot("credits", "debits", at="q3")
        assert all_rows(again) == expected
        assert again.cut == {"transfers": 4}
        assert again.at["credits"].block == tag.at["credits"]
        assert list(other.snapshot(at="q3")) == ["credits", "debits", "transfers"]
    with pytest.raises(InputError, match="does not name a commit of 'total'"):
        ws.snapshot("total", at="q3")
    ws.untag("q3")
    ws.gc(older_than=0)
    with pytest.raises(InputError, match="is not a time or a tag"):
        ws.snapshot("credits", at="q3")
    with tl.open(tmp_path / "near", create=True) as near:
        for name in ("credits", "debits", "transfers"):
            near.clone(tmp_path / name, name)
        assert all_rows(near.snapshot("credits", "debits", at="q3")) == expected


def test_snapshots_of_an_object_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with tl.open("memory://snapshots/bank", create=True) as ws:
        bank = Bank(ws)
        first = bank.transfer(3)
        bank.pull(*VIEWS)
        with pytest.raises(WaitTimeout):
            bank.transfer(2).wait("credits", timeout=0)
        assert all_rows(ws.snapshot(*VIEWS)) == bank.expected(2)
        second = bank.transfer(1)
        with ws.snapshot("transfers") as snap:
            ws["transfers"].chain.reset(first.block)
            ws.gc(older_than=0)
            assert snap["transfers"].count() == 6
        ws.gc(older_than=0)
        assert ws["transfers"].chain.store.size(Folder.BLOCKS, second.block) is None


@pytest.mark.contract("cut:P13")
def test_a_pull_between_two_looks_at_heads_does_not_confuse_a_snapshot(bank, monkeypatch):
    """Who was looked at first has read nothing that those looked at later do not have."""
    ws = bank.workspace
    bank.transfer(2)
    bank.pull(*VIEWS)
    seen = histories._seen
    for number in range(5):
        looks = iter(range(9))

        def looking(dataset, moment, number=number, looks=looks):
            if next(looks, None) == number:
                bank.transfer(1)
                bank.pull(*VIEWS)
            return seen(dataset, moment)

        before = ws.snapshot(*VIEWS).cut["transfers"]
        with monkeypatch.context() as patched:
            patched.setattr(histories, "_seen", looking)
            snap = ws.snapshot(*VIEWS)
        assert snap.cut["transfers"] >= before
        assert all_rows(snap) == bank.expected(snap.cut["transfers"])
