"""What another definition of a dataset does to its rows, without Spark."""

from __future__ import annotations

import html
import json

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.computed_here import by_hand, computing, define_by_hand
from trueline import check
from trueline.chain.events import SetTransform
from trueline.cli.app import run
from trueline.errors import InputError, InputReset, PullError
from trueline.workspace.derive import strategies
from trueline.workspace.derive.redefine import OnChange, redefine

COLUMNS = {"account": pa.string(), "total": pa.float64()}
POSITIVE = check.in_range("total", 0)


def rows(**totals):
    return pa.table({"account": list(totals), "total": [float(each) for each in totals.values()]})


def shown(dataset):
    found = dataset.view().to_arrow().to_pylist()
    return {row["account"]: row["total"] for row in found}


def together(_, inputs):
    """Compute the rows of all inputs, those of the first where an account is in several."""
    found = [row for _, table in sorted(inputs.items()) for row in table.to_pylist()]
    return rows(**{row["account"]: row["total"] for row in reversed(found)})


@pytest.fixture
def bank(ws):
    ws.create("transfers", merge=tl.merge.upsert("account")).append(rows(a=1, b=-2))
    ws.create("rates", merge=tl.merge.upsert("account")).append(rows(c=3))
    return ws


def defined(ws, sql="q", inputs=("transfers",), change=None, **more):
    """Define `q`, or what is to become of it."""
    if change is None:
        return define_by_hand(ws, "q", sql, list(inputs), columns=COLUMNS, **more)
    derivation, schema = by_hand(ws, sql, list(inputs), columns=COLUMNS, **more)
    return redefine(ws, ws["q"], derivation, schema, change)


def definitions(dataset):
    return sum(isinstance(block.event, SetTransform) for _, block in dataset.blocks())


@pytest.mark.contract("derive:V15")
@pytest.mark.contract("derive:V22")
def test_a_check_that_leaves_rows_out_is_part_of_what_is_computed(bank):
    made = defined(bank)
    with computing(together):
        bank.pull("q")
        assert shown(made) == {"a": 1.0, "b": -2.0}
        defined(bank, change=OnChange.REBUILD, checks=(POSITIVE.quarantine(),))
        assert (definitions(made), bank.plan("q")["q"].state) == (2, "redefined")
        assert bank.pull("q")["q"].commit.checks == {str(POSITIVE.quarantine()): 1}
        assert shown(made) == {"a": 1.0}
        # A check that only judges changes no row.
        defined(bank, change=OnChange.REBUILD, checks=(POSITIVE.quarantine(), check.not_null("total").warn()))
        assert definitions(made) == 2
        defined(bank, change=OnChange.REBUILD, checks=(POSITIVE.warn(),))
        bank.pull("q")
        assert shown(made) == {"a": 1.0, "b": -2.0}
        assert made.verify(replay=True).ok


@pytest.mark.contract("derive:V16")
def test_an_input_that_a_definition_no_longer_reads_may_be_reset(bank):
    first = bank["rates"].commit()
    bank["rates"].append(rows(d=4))
    made = defined(bank, inputs=("transfers", "rates"))
    with computing(together):
        bank.pull("q")
        defined(bank, "less", change=OnChange.REBUILD)
        bank["rates"].reset(to=first)
        assert bank.plan("q")["q"].error is None
        bank.pull("q")
        assert shown(made) == {"a": 1.0, "b": -2.0}
        bank["transfers"].append(rows(e=5))
        bank.pull("q", full_refresh=True)
        assert shown(made) == {"a": 1.0, "b": -2.0, "e": 5.0}
        assert made.verify(replay="head").ok


@pytest.mark.contract("derive:V16")
def test_an_input_that_is_read_still_is_not_reset_unnoticed(bank):
    first = bank["rates"].commit()
    bank["rates"].append(rows(d=4))
    defined(bank, inputs=("transfers", "rates"))
    with computing(together):
        bank.pull("q")
        defined(bank, "less", ("rates",), change=OnChange.REBUILD)
        with pytest.warns(tl.errors.DataWarning, match="'q' was computed from commits that are gone"):
            bank["rates"].reset(to=first)
        with pytest.raises(PullError) as caught:
            bank.pull("q")
    assert isinstance(caught.value.report.errors["q"], InputReset)


@pytest.mark.contract("derive:V16")
def test_a_clone_that_diverged_and_was_replaced_is_not_followed_unnoticed(ws, tmp_path):
    ws.create("transfers").append(rows(a=1))
    first = ws["transfers"].commit()
    remote = str(tmp_path / "remote")
    ws["transfers"].push(remote)
    with tl.open(tmp_path / "other", create=True) as other, computing(together):
        other.clone(remote, "copy")
        define_by_hand(other, "q", "q", ["copy"], columns=COLUMNS)
        define_by_hand(other, "over", "over", ["q"], columns=COLUMNS)
        ws["transfers"].append(rows(b=2))
        ws["transfers"].push(remote)
        other.pull("over")
        before = {name: other[name].head for name in ("copy", "q", "over")}
        # Where it came from goes another way.
        ws["transfers"].reset(to=first)
        ws["transfers"].append(rows(c=3))
        ws["transfers"].push(remote, force=True)
        with pytest.raises(PullError) as caught:
            other.pull("over")
        assert caught.value.report.errors["copy"].code == "Diverged"
        assert {name: other[name].head for name in before} == before
        other.clone(remote, "copy", force=True)
        assert {stage.dataset: stage.state for stage in other.plan("over")} == {
            "q": "refused",
            "over": "refused",
        }
        with pytest.raises(PullError) as caught:
            other.pull("over")
        error = caught.value.report.errors["q"]
        assert isinstance(error, InputReset)
        assert (error.taken, error.now) == (before["copy"], ws["transfers"].head)
        assert str(before["copy"]) in str(error)
        assert str(ws["transfers"].head) in str(error)
        assert {name: other[name].head for name in ("q", "over")} == {
            name: before[name] for name in ("q", "over")
        }
        assert "`trueline reset q --rebuild`" in error.remedy


FLOW = {"strategy": "stateless", "reason": ""}


@pytest.fixture
def log(ws):
    """Rows that only get more, and what follows them by the increment."""
    ws.create("log").append(rows(a=1))
    ws.create("other").append(rows(a=1))
    defined(ws, inputs=("log",), **FLOW)
    return ws


@pytest.mark.contract("derive:V15")
@pytest.mark.contract("derive:V29")
def test_rows_from_before_a_definition_stay_when_all_is_computed_again(log):
    with computing(together):
        log.pull("q")
        made = defined(log, "select account, total from log", ("log",), OnChange.FROM_HERE, **FLOW)
        log.pull("q")
        head = made.head
        for _ in range(2):
            done = log.pull("q", full_refresh=True)["q"]
            assert (done.differed, done.not_refreshed, made.head) == (None, "from_here", head)
            assert "not computed again, since rows from before its definition are to stay" in done.told
            assert done.to_dict()["not_refreshed"] == "from_here"
        defined(log, "select account, total from log", ("log",), OnChange.REBUILD, **FLOW)
        assert log.pull("q", full_refresh=True)["q"].differed is False


@pytest.mark.contract("derive:V18")
def test_a_plan_of_a_redefined_dataset_reads_all_and_says_so_as_the_pull_does(log):
    def planned():
        stage = log.plan("q")["q"]
        return stage.state, stage.strategy, stage.reason, stage.estimate

    log["log"].append(rows(b=2, c=3))
    with computing(together):
        assert planned() == ("new", "stateless", "", 3)
        log.pull("q")
        defined(log, "select total, account from log", ("log",), OnChange.REBUILD, **FLOW)
        # Nothing is new, and everything is read.
        assert planned() == ("redefined", "recompute", "redefined", 3)
        assert "recompute (redefined), reads about 3 records" in log.plan("q").explain()
        log["log"].append(rows(d=4))
        assert planned() == ("behind", "recompute", "redefined", 4)
        done = log.pull(log.plan("q"))["q"]
        assert (done.strategy, done.reason) == ("recompute", "redefined")
        assert planned() == ("current", "stateless", "", 0)
        log["log"].append(rows(e=5))
        assert planned() == ("behind", "stateless", "", 1)
        # Rows from before a definition that holds from here on are not read again.
        defined(log, "select account, total from log", ("log",), OnChange.FROM_HERE, **FLOW)
        assert planned() == ("behind", "stateless", "", 1)
        # What follows by groups, and has none kept.
        defined(log, inputs=("log",), change=OnChange.REBUILD, **{**FLOW, "strategy": "keyed"})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(strategies, "_kept", lambda *_: {})
            assert planned() == ("behind", "recompute", "redefined", 5)
            log.pull("q")
            log["log"].append(rows(f=6))
            assert planned() == ("behind", "recompute", "no_state", 6)


@pytest.mark.contract("derive:V15")
@pytest.mark.parametrize(
    ("inputs", "more", "why"),
    [
        (("log",), {"strategy": "keyed"}, "rows that are there already would change with later rows"),
        (("log", "transfers"), FLOW, "rows of 'transfers' can be corrected"),
        (("log", "sums"), FLOW, "rows of 'sums' can be corrected"),
        (("log",), {**FLOW, "key": "total"}, "the key or the columns are other ones"),
        (("other",), FLOW, "the inputs are other ones"),
    ],
    ids=["not row by row", "rows are corrected", "results are corrected", "another key", "other inputs"],
)
def test_from_here_is_refused_where_rows_that_stay_would_be_wrong(log, bank, inputs, more, why):
    sums = "select account, sum(total) as total from log group by account"
    define_by_hand(log, "sums", sums, ["log"], columns=COLUMNS, strategy="keyed")
    made = log["q"]
    head = made.head
    with pytest.raises(InputError) as caught:
        defined(log, f"select * from {', '.join(inputs)}", inputs, OnChange.FROM_HERE, **more)
    assert caught.value.code == "NotFromHere"
    assert why in str(caught.value)
    assert made.head == head


@pytest.mark.contract("derive:V15")
def test_the_log_and_the_lineage_say_how_a_definition_came_into_force(log, capsys):
    where = ["-C", log.location]

    def told():
        """How the newest definition came into force, in the log and in the lineage."""
        (commit,) = [each for each in log["q"].log() if "SetTransform" in each.events][:1]
        (node,) = [each for each in log.lineage("q").nodes if each.name == "q"]
        assert (commit.to_dict()["on_change"], commit.replaces) == (
            commit.on_change,
            node.to_dict()["replaces"],
        )
        assert run([*where, "log", "q", "--json"]) == 0
        assert f'"on_change": {json.dumps(commit.on_change)}' in capsys.readouterr().out
        assert run([*where, "log", "q"]) == 0
        shown = capsys.readouterr().out
        assert run([*where, "lineage", "q"]) == 0
        return commit.on_change, node.on_change, commit.summary, shown, capsys.readouterr().out

    assert told()[:2] == (None, None)
    with computing(together):
        log.pull("q")
        for change in (OnChange.FROM_HERE, OnChange.REBUILD):
            defined(log, change.value, ("log",), change, **FLOW)
            in_log, in_lineage, summary, shown, drawn = told()
            assert (in_log, in_lineage) == (change.value, change.value)
            assert summary == f"SetTransform, SetAttachments ({change.value})"
            assert summary in shown
            assert "q (" + change.value + ")" in html.unescape(drawn.replace("#", "&#"))
    assert '"q" [shape=box, label="q (rebuild)"]' in log.lineage("q").dot()
    old = str(log["q"].id)
    derivation, schema = by_hand(log, "less", ["log"], columns={"account": pa.string()}, **FLOW)
    redefine(log, log["q"], derivation, schema, OnChange.REBUILD)
    in_log, in_lineage, summary, *_ = told()
    assert (in_log, in_lineage) == ("rebuild", "rebuild")
    assert summary.endswith(f"(rebuild, in place of {old})")
    assert log.lineage("q").to_dict()["nodes"][-1]["replaces"] == old


@pytest.mark.contract("derive:V16")
@pytest.mark.contract("derive:V18")
def test_a_plan_refuses_what_is_computed_from_a_replaced_input_as_a_pull_does(log):
    define_by_hand(log, "top", "select * from q", ["q"], columns=COLUMNS)
    define_by_hand(log, "over", "select * from top", ["top"], columns=COLUMNS)
    old = log["q"]
    with computing(together):
        log.pull()
        derivation, schema = by_hand(log, "less", ["log"], columns={"account": pa.string()}, **FLOW)
        with pytest.warns(tl.errors.DataWarning, match="'top' rests on the old one"):
            redefine(log, old, derivation, schema, OnChange.REBUILD)
        heads = {name: log[name].head for name in ("top", "over")}
        plan = log.plan("over")
        states = {each.dataset: each.state for each in plan}
        assert states == {old.name: "current", "top": "refused", "over": "refused"}
        planned = [plan[name].error for name in ("top", "over")]
        assert planned[0] is planned[1]
        for pulled in (("over",), (plan,)):
            with pytest.raises(PullError) as caught:
                log.pull(*pulled)
            assert caught.value.report["over"].waits_for == ("top",)
            for error in (caught.value.report.errors["top"], planned[0]):
                assert error.code == "InputReplaced"
                assert (error.fields["taken"], error.fields["now"]) == (old.head, log["q"].head)
                assert f"up to block {old.head}" in str(error)
                assert f"at block {log['q'].head}" in str(error)
                assert "ws['top'].reset(rebuild=True)" in error.remedy
        assert {name: log[name].head for name in heads} == heads
