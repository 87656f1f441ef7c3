"""The life of derived datasets: checks, going back, and how far they are behind."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.following import follow_all
from trueline import check
from trueline.chain.checkpoint import is_ours
from trueline.chain.instant import Instant
from trueline.errors import CheckFailed, DataWarning, InputError

BALANCES = "select account, sum(amount) as total from transfers group by account"


def append(workspace, *rows):
    if "transfers" not in workspace:
        workspace.create("transfers", merge=tl.merge.upsert("id"))
    names = ("id", "account", "amount")
    return workspace["transfers"].append(
        pa.table({n: [row[at] for row in rows] for at, n in enumerate(names)})
    )


@pytest.fixture
def ws(spark_workspace):
    append(spark_workspace, (1, "a", 1.0), (2, "b", 2.0))
    return spark_workspace


def rows(dataset):
    return {row["account"]: row["total"] for row in dataset.view().to_arrow().to_pylist()}


@pytest.mark.contract("derive:V22")
def test_a_check_of_a_derived_dataset_stops_leaves_out_or_counts(ws):
    ws.create("accounts").append([{"account": "a"}, {"account": "b"}])
    stops = ws.derive("stops", BALANCES, key="account", checks=[check.in_range("total", 0)])
    warns = ws.derive(
        "warns",
        BALANCES,
        key="account",
        checks=[
            check.in_range("total", 0).warn(),
            check.relation("account", "accounts").warn(),
            check.unique("total").warn(),
            check.row_count(at_most=2).warn(),
        ],
    )
    leaves = ws.derive("leaves", BALANCES, key="account", checks=[check.in_range("total", 0).quarantine()])
    for name in ("stops", "warns", "leaves"):
        assert follow_all(ws, [name])[name].checks == {}
    append(ws, (3, "c", -5.0), (4, "d", -5.0))
    head = stops.head
    with pytest.raises(CheckFailed, match="nothing was committed to 'stops'"):
        follow_all(ws, ["stops"])
    assert stops.head == head
    expected = {
        "in_range('total', at_least=0).warn()": 2,
        "relation('account', 'accounts', 'account').warn()": 2,
        "unique('total').warn()": 1,
        "row_count(at_most=2).warn()": 4,
    }
    commit = follow_all(ws, ["warns"])["warns"]
    assert commit.checks == expected
    assert warns.commit(commit.short).checks == expected
    assert rows(warns) == {"a": 1.0, "b": 2.0, "c": -5.0, "d": -5.0}
    assert follow_all(ws, ["leaves"])["leaves"].checks == {"in_range('total', at_least=0).quarantine()": 2}
    assert rows(leaves) == {"a": 1.0, "b": 2.0}
    # Corrected before it was ever taken: nothing fails.
    append(ws, (3, "c", 5.0), (4, "d", 6.0))
    follow_all(ws, ["stops"])
    assert rows(stops) == {"a": 1.0, "b": 2.0, "c": 5.0, "d": 6.0}


@pytest.mark.contract("derive:V15")
def test_rows_that_a_new_check_leaves_out_go_and_come_back(ws):
    append(ws, (3, "c", -5.0), (4, "d", -6.0))
    queries = {"each": "select id, account, amount as total from transfers", "sums": BALANCES}
    followed = {"each": "stateless", "sums": "keyed"}
    kept = [check.in_range("total", 0).quarantine()]
    for name, query in queries.items():
        ws.derive(name, query)
    follow_all(ws, queries)
    for name, query in queries.items():
        ws.derive(name, query, checks=kept, on_change="rebuild")
    follow_all(ws, queries)
    for name in queries:
        assert ws[name].info.strategy == followed[name]
        assert rows(ws[name]) == {"a": 1.0, "b": 2.0}
    # One bad row goes, another becomes good: both were left out.
    ws["transfers"].append(
        pa.table({"op": [1, 0], "id": [3, 4], "account": ["c", "d"], "amount": [-5.0, 6.0]})
    )
    follow_all(ws, queries)
    for name, query in queries.items():
        assert rows(ws[name]) == {"a": 1.0, "b": 2.0, "d": 6.0}
        assert ws.verify(name, replay="head").ok
        ws.derive(name, query, on_change="rebuild")
    append(ws, (5, "e", -7.0))
    follow_all(ws, queries)
    for name in queries:
        assert rows(ws[name]) == {"a": 1.0, "b": 2.0, "d": 6.0, "e": -7.0}
        assert ws.verify(name, replay="head").ok


@pytest.mark.contract("derive:V28", "derive:V16")
def test_going_back_names_what_rests_on_it_and_rebuilds_it(ws):
    first = ws["transfers"].commit()
    balances = ws.derive("balances", BALANCES, key="account")
    total = ws.derive("total", "select sum(total) as total from balances", key="total")
    follow_all(ws, ["total"])
    good = balances.commit()
    append(ws, (3, "a", 10.0))
    follow_all(ws, ["total"])
    ws.tag("audit", "transfers")
    with pytest.raises(InputError, match="audit"):
        ws["transfers"].reset(to=first)
    ws.untag("audit")
    with pytest.warns(DataWarning, match="'balances' was computed from commits that are gone"):
        assert ws["transfers"].reset(to=first) == ("balances",)
    assert ws["transfers"].head == first.block
    assert balances.reset(rebuild=True) == ("total",)
    assert balances.head == good.block
    append(ws, (4, "b", 20.0))
    follow_all(ws, ["total"])
    assert rows(balances) == {"a": 1.0, "b": 22.0}
    assert total.view().to_arrow().to_pylist() == [{"total": 23.0}]
    assert ws.verify().ok
    with pytest.raises(InputError, match="nothing can rebuild it"):
        ws["transfers"].reset(rebuild=True)


@pytest.mark.contract("derive:V28")
def test_a_definition_outlives_the_rows_that_are_cut_off(ws):
    before = ws["transfers"].commit()
    append(ws, (3, "c", 3.0))
    balances = ws.derive("balances", BALANCES, key="account")
    follow_all(ws, ["balances"])
    ws.derive("balances", BALANCES + " having sum(amount) > 1", key="account", on_change="rebuild")
    follow_all(ws, ["balances"])
    assert ws["transfers"].reset(to=before, rebuild=True) == ("balances",)
    append(ws, (5, "e", 5.0))
    follow_all(ws, ["balances"])
    assert rows(balances) == {"b": 2.0, "e": 5.0}


@pytest.mark.contract("derive:V28")
@pytest.mark.contract("derive:V25")
def test_what_rests_on_a_renamed_dataset_goes_on_and_so_does_all_of_it_without_caches(ws):
    ws.derive("balances", BALANCES, key="account")
    rich = ws.derive("rich", "select account, total from balances where total > 1.5", key="account")
    ws.pull()
    ws["transfers"].rename("payments")
    ws["balances"].rename("accounts")
    append_to = ws["payments"].append
    append_to(pa.table({"id": [1, 3], "account": ["a", "c"], "amount": [4.0, 1.0]}))
    report = ws.pull("+rich")
    # By the increment, under the names that they have now.
    assert [(each.dataset, each.strategy) for each in report if each.is_derived] == [
        ("accounts", "keyed"),
        ("rich", "stateless"),
    ]
    assert (rows(ws["accounts"]), rows(rich)) == ({"a": 4.0, "b": 2.0, "c": 1.0}, {"a": 4.0, "b": 2.0})
    assert (ws["accounts"].info.inputs, rich.info.inputs) == (("payments",), ("accounts",))
    # State, indexes and cuts are caches: what is downstream of them goes on too.
    for name in ("accounts", "rich"):
        folder = Path(ws[name].chain.store.location, "checkpoints")
        for file in folder.iterdir():
            if not is_ours(file.read_bytes()):
                file.unlink()
    ws.close()
    for name in (".trueline", "datasets/.cuts"):
        shutil.rmtree(Path(ws.location, name))
    append_to(pa.table({"id": [3, 2], "account": ["c", "b"], "amount": [7.0, 0.5]}))
    report = ws.pull("rich")
    assert [(each.dataset, each.strategy, each.reason) for each in report] == [
        ("accounts", "recompute", "state_missing"),
        ("rich", "stateless", ""),
    ]
    assert report["rich"].commit.changes == "+1 -1 rows"
    assert (rows(ws["accounts"]), rows(rich)) == ({"a": 4.0, "b": 0.5, "c": 7.0}, {"a": 4.0, "c": 7.0})
    report = ws.verify(replay=True)
    assert (report.problems, report.replayed) == ((), 6)


@pytest.mark.contract("derive:V30")
def test_a_dataset_says_how_far_it_is_behind(ws):
    now = [Instant(Instant.now() + 3600 * 10**9)]
    ws.clock = lambda: now[0]
    old = ws.derive("balances", BALANCES, key="account", checks=[check.max_age("1h")])
    assert old.health().too_old == ("max_age('1h'): there are no data",)
    follow_all(ws, ["balances"])
    info = old.info
    assert (info.behind_commits, info.behind_seconds, info.last_cut) == (0, 0.0, 1)
    assert info.inputs == ("transfers",)
    assert info.strategy
    assert info.checks == ("max_age('1h')",)
    assert old.health().too_old == ()
    append(ws, (3, "c", 3.0))
    now[0] = Instant(now[0] + 7200 * 10**9)
    append(ws, (4, "d", 3.0))
    info = old.info
    assert info.behind_commits == 2
    assert 7100 < info.behind_seconds < 7300
    assert old.health().too_old == ("max_age('1h'): the newest data are 7,200 s old",)
    assert "behind_commits" in old._repr_html_()
