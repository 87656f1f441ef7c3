"""Pulling derived datasets: all of them exactly to one cut, each after what it reads."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

import trueline as tl
from trueline.chain.branch import Branch
from trueline.chain.checkpoint import derived_checkpoint
from trueline.chain.instant import Instant
from trueline.dataset.append import frames
from trueline.errors import InputError, InputReset, PullError, StalePlan
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.derive import follow, strategies
from trueline.workspace.derive.define import DerivationRequest, derive

SUM = "select account, sum(amount) as total from transfers where amount {} 0 group by account"
BOTH = "select account, total from credits union all select account, total from debits"
DERIVED = {
    "credits": (SUM.format(">"), "account"),
    "debits": (SUM.format("<"), "account"),
    "balances": (f"select account, sum(total) as total from ({BOTH}) group by account", "account"),
}


def transfers(workspace, *rows):
    if "transfers" not in workspace:
        workspace.create("transfers", merge=tl.merge.upsert("id"), event_time="at")
    columns = {name: [row[place] for row in rows] for place, name in enumerate(("id", "account", "amount"))}
    moments = [Instant.parse(f"2026-01-{row[0]:02}T00:00:00Z").datetime for row in rows]
    return workspace["transfers"].append(
        pa.table({**columns, "at": pa.array(moments, pa.timestamp("ms", "UTC"))})
    )


def define(workspace, *names):
    for name in names or DERIVED:
        sql, key = DERIVED[name]
        derive(workspace, DerivationRequest(name, sql, key=key))


def rows(workspace, name):
    return {row["account"]: row["total"] for row in workspace[name].view().to_arrow().to_pylist()}


def origins(dataset):
    """Where a dataset was at rest, oldest first: the offsets of its roots, by name."""
    names = {node.id: node.name for node in dataset.workspace.datasets()}
    left = [
        derived_checkpoint(dataset.chain.store, dataset.chain.block(end.hash).event)
        for end in Branch.of(dataset.chain).data_ends()
    ]
    return [{names[root]: at.offset for root, at in each.origin.roots.items()} for each in reversed(left)]


@pytest.fixture
def bank(spark_workspace):
    transfers(spark_workspace, (1, "a", 5.0), (2, "b", -2.0))
    define(spark_workspace)
    return spark_workspace


@pytest.mark.contract("cut:P1")
@pytest.mark.contract("derive:V10")
@pytest.mark.contract("derive:V11")
@pytest.mark.contract("derive:V12")
def test_a_pull_brings_a_diamond_to_one_cut_and_partial_pulls_stop_where_others_are(bank):
    report = bank.pull()
    assert [each.dataset for each in report] == ["credits", "debits", "balances"]
    assert {each.cut for each in report} == {1}
    assert rows(bank, "balances") == {"a": 5.0, "b": -2.0}
    log = CutLog.of(bank)
    assert log.reached(1) == {bank[name].id for name in DERIVED}
    assert [each.told for each in bank.pull("balances")] == ["up to date"] * 3
    # One of them alone: the others stay.
    transfers(bank, (3, "a", -1.0))
    assert [each.dataset for each in bank.pull("credits")] == ["credits"]
    assert origins(bank["credits"]) == [{"transfers": 1}, {"transfers": 2}]
    head = bank["credits"].chain.tail().data
    assert head.new_data is None  # nothing came of it, and that was recorded
    assert [taken.new_offset for taken in head.query_inputs] == [2]
    assert rows(bank, "balances") == {"a": 5.0, "b": -2.0}
    # The others stop where it is, and read it where it was then.
    transfers(bank, (4, "b", 9.0), (1, "a", 6.0))
    report = bank.pull("balances")
    assert [len(each.commits) for each in report] == [1, 2, 2]
    ends = [{"transfers": 1}, {"transfers": 2}, {"transfers": 5}]
    assert {name: origins(bank[name]) for name in DERIVED} == dict.fromkeys(DERIVED, ends)
    assert rows(bank, "balances") == {"a": 5.0, "b": 7.0}
    middle = report["balances"].commits[0]
    read = bank["balances"].chain.block(middle.block).event.query_inputs
    assert [taken.last_block for taken in read] == [
        commit.block for name in ("credits", "debits") for commit in list(bank[name].log())[1:2]
    ]
    assert bank["balances"].chain.tail().watermark == bank["transfers"].chain.tail().watermark
    # A new one goes through the stops of the others too.
    transfers(bank, (5, "c", 1.0))
    bank.pull("debits")
    derive(bank, DerivationRequest("count", "select count(*) as n from credits", key="n"))
    bank.pull("count")
    assert origins(bank["count"]) == [{"transfers": 5}, {"transfers": 6}]
    assert bank.verify().ok


@pytest.mark.contract("derive:V20")
@pytest.mark.contract("derive:V16")
def test_what_fails_stops_only_what_rests_on_it_and_a_reset_input_is_refused_before_anything_is_written(bank):
    derive(bank, DerivationRequest("wrong", "select account, id from transfers", key="account"))
    derive(bank, DerivationRequest("after", "select count(*) as n from wrong", key="n"))
    first = bank["transfers"].head
    transfers(bank, (6, "a", 1.0))
    with pytest.raises(PullError, match="rest on these: after") as caught:
        bank.pull()
    report = caught.value.report
    assert set(report.errors) == {"wrong"}
    assert report.errors["wrong"].code == "KeyViolated"
    assert report["after"].waits_for == ("wrong",)
    assert bank["after"].chain.tail().data is None
    assert rows(bank, "balances") == {"a": 6.0, "b": -2.0}
    # What was read is gone.
    heads = {name: bank[name].head for name in DERIVED}
    second = bank["transfers"].head
    bank["transfers"].chain.reset(first)
    transfers(bank, (7, "b", 1.0))
    plan = bank.plan("balances")
    assert {stage.dataset: stage.state for stage in plan} == dict.fromkeys(DERIVED, "refused")
    with pytest.raises(PullError) as caught:
        bank.pull("balances")
    found = caught.value.report.errors
    assert set(found) == {"credits", "debits"}
    assert isinstance(found["credits"], InputReset)
    assert (found["credits"].taken, found["credits"].now) == (second, bank["transfers"].head)
    assert {name: bank[name].head for name in DERIVED} == heads


@pytest.mark.contract("derive:V18")
@pytest.mark.contract("derive:V30")
def test_a_plan_says_what_a_pull_would_do_without_spark_and_is_carried_out_exactly(bank, tmp_path):
    bank.clock = lambda: Instant.parse("2100-01-01T00:00:00Z")
    bank.pull()
    transfers(bank, (3, "a", -1.0))
    bank.pull("credits")
    transfers(bank, (4, "b", 9.0), (8, "c", 1.0))
    with tl.open(tmp_path / "ws") as other:
        other.clock = lambda: Instant.parse("2100-01-01T01:00:00Z")
        plan = other.plan("balances")
        assert not other._spark._rooms
    assert [(stage.dataset, stage.state, stage.stops) for stage in plan] == [
        ("credits", "behind", (3,)),
        ("debits", "behind", (2, 3)),
        ("balances", "behind", (2, 3)),
    ]
    (new,) = plan["debits"].inputs
    assert (new.name, new.after, new.upto, new.records) == ("transfers", 1, 4, 3)
    assert plan["balances"].inputs[0].records is None  # it depends on what comes of credits
    assert (plan["debits"].behind.commits, plan["credits"].behind.commits) == (2, 1)
    assert plan["credits"].behind.seconds == 3600
    assert (plan["debits"].strategy, plan["debits"].reason) == ("keyed", "")
    assert plan["debits"].estimate == 3  # the new records
    assert "transfers: 3 new (2 to 4)" in plan.explain()
    assert "transfers: 3 new" in plan._repr_html_()
    assert plan.to_dict()["stages"][1]["stops"] == [2, 3]
    transfers(bank, (9, "c", 1.0))
    heads = {name: bank[name].head for name in DERIVED}
    with pytest.raises(StalePlan, match="transfers moved"):
        bank.pull(plan)
    assert {name: bank[name].head for name in DERIVED} == heads
    plan = bank.plan("debits")
    assert [(each.dataset, len(each.commits)) for each in bank.pull(plan)] == [("debits", 2)]
    with pytest.raises(StalePlan, match="debits moved"):
        bank.pull(plan)
    assert not bank.plan("debits").moves
    with pytest.raises(InputError, match="alone"):
        bank.pull(plan, "credits")


@pytest.mark.contract("derive:V29")
def test_a_full_refresh_records_what_differs_and_says_whether_anything_did(bank, monkeypatch):
    taken = frames.take_frame

    def lossy(frame, *rest):
        return taken(frame.limit(0), *rest)

    monkeypatch.setattr(frames, "take_frame", lossy)
    bank.pull("credits")
    assert rows(bank, "credits") == {}
    monkeypatch.undo()
    assert bank.pull("balances")["credits"].told == "up to date"
    report = bank.pull("balances", full_refresh=True)
    assert {each.dataset: each.differed for each in report} == {
        "credits": True,
        "debits": False,
        "balances": False,
    }
    assert rows(bank, "balances") == {"a": 5.0, "b": -2.0}
    heads = {name: bank[name].head for name in DERIVED}
    report = bank.pull("balances", full_refresh=True)
    assert [each.told for each in report] == ["equals its definition"] * 3
    assert {name: bank[name].head for name in DERIVED} == heads
    assert bank.verify().ok


def test_of_two_pullers_one_computes_and_the_other_finds_it_done(bank, spark, tmp_path, monkeypatch):
    commit = strategies.commit_result
    with tl.open(tmp_path / "ws", spark=spark) as other:
        cut = CutLog.of(bank).record([bank["transfers"].id])
        assert follow.follow_to(other, other["credits"], cut).commit.rows == 1
        assert follow.follow_to(bank, bank["credits"], cut) is None
        # One that takes no turns is faster.
        known = follow.Dependencies.of(other)

        def overtaken(*args, **more):
            monkeypatch.setattr(strategies, "commit_result", commit)
            assert follow._followed(other, other["debits"], follow.Origins(known, cut), None).commit.rows == 1
            return commit(*args, **more)

        monkeypatch.setattr(strategies, "commit_result", overtaken)
        assert follow.follow_to(bank, bank["debits"], cut) is None
        # Both at once: they take turns.
        made = []
        threads = [
            threading.Thread(target=lambda ws=ws: made.append(follow.follow_to(ws, ws["balances"], cut)))
            for ws in (bank, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(each is None for each in made) == [False, True]


def test_watching_pulls_again_more_rarely_while_nothing_comes(bank):
    pauses, reports = [], []

    def stop(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            transfers(bank, (3, "a", -1.0))
        return len(pauses) == 4

    last = bank.pull("debits", watch=True, stop=stop, on_report=reports.append)
    assert pauses == [1, 2, 4, 1]
    assert [len(each["debits"].commits) for each in reports] == [1, 0, 0, 1]
    assert last is reports[-1]


@pytest.mark.contract("cut:P16")
def test_what_reads_an_input_at_a_cut_of_its_own_is_a_root_of_its_own(bank):
    why = "any recent total will do"
    bank.derive(
        "priced",
        "select t.account, t.amount, c.total from transfers t join credits c on t.account = c.account",
        inputs={"transfers": "transfers", "credits": tl.nondet(why)},
    )
    bank.derive("last", "select count(*) as n from priced", key="n")
    assert [each.dataset for each in bank.pull("last")] == ["credits", "priced", "last"]
    left = derived_checkpoint(bank["priced"].chain.store, bank["priced"].chain.tail().data)
    assert set(left.origin.roots) == {bank["transfers"].id, bank["credits"].id}
    left = derived_checkpoint(bank["last"].chain.store, bank["last"].chain.tail().data)
    assert set(left.origin.roots) == {bank["priced"].id}
    (edge,) = [edge for edge in bank.lineage("priced").edges if edge.own_cut]
    assert (edge.input, edge.dataset, edge.own_cut) == ("credits", "priced", why)
    transfers(bank, (3, "a", 2.0))
    plan = bank.plan("last")
    assert plan["priced"].inputs[1].own_cut == why
    assert [stage.state for stage in plan] == ["behind"] * 3
    bank.pull("last")
    assert [row["n"] for row in bank["last"].view().to_arrow().to_pylist()] == [2]
    plan = bank.plan("last")
    assert not plan.moves
    # Also of what is up to date: whoever reads the plan should know.
    assert f"credits: nothing new, at a cut of its own: {why}" in plan.explain()
    snap = bank.snapshot("last", "credits")
    assert set(snap.cut) == {"priced", "transfers"}
    assert snap["last"].to_arrow().to_pylist() == [{"n": 2}]
    report = bank.verify("priced", "last", replay=True)
    assert (report.problems, report.replayed >= 4) == ((), True)


@pytest.mark.contract("derive:V18")
def test_a_plan_says_what_is_kept_and_which_columns_a_star_does_not_stand_for(bank):
    bank.derive("copied", "select t.*, 1 as one from transfers t", key="id")
    bank.pull("copied", "credits")
    assert bank.plan("copied")["copied"].not_taken == {}
    row = {"id": 3, "account": "z", "amount": 1.0, "at": Instant.parse("2026-01-03T00:00:00Z").datetime}
    bank["transfers"].append([row | {"note": "new"}], new_columns="add")
    plan = bank.plan("copied", "credits")
    assert plan["copied"].not_taken == {"transfers": ("note",)}
    assert "transfers: not in its *, which stands for what was there: note" in plan.explain()
    count, size = plan["credits"].kept
    assert (count, size > 0) == (1, True)
    assert plan["copied"].kept == (0, 0)
    assert f"keeps 1 row ({size:,} bytes) beside its own" in plan.explain()
    assert plan.to_dict()["stages"][0]["kept"].keys() == {"rows", "bytes"}
    bank.pull("copied")
    assert "note" not in bank["copied"].view().columns
