"""Relations to datasets that are no inputs: judged at the cut, after these, whatever their name. No Spark."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.computed_here import computing, counted, define_by_hand
from trueline import check
from trueline.chain.checkpoint import derived_checkpoint
from trueline.dataset.derivation import checks_at
from trueline.errors import CheckFailed, InputError, PullError
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.dependencies import Dependencies
from trueline.workspace.derive import follow
from trueline.workspace.derive.checks import bound, refuse_circle_of_checks

COLUMNS = {"account": pa.string(), "total": pa.float64()}
GONE = pa.table({"account": ["all"], "op": pa.array([1], pa.int32())})


@pytest.fixture
def ws(tmp_path):
    """Transfers, and accounts that are read by nobody."""
    with tl.open(tmp_path / "ws", create=True) as workspace:
        workspace.create("transfers").append([{"account": "a"}])
        workspace.create("accounts", merge=tl.merge.upsert("account")).append([{"account": "all"}])
        with computing(counted):
            yield workspace


def defined(workspace, name, *checks, inputs=("transfers",)):
    return define_by_hand(workspace, name, name, inputs, columns=COLUMNS, checks=bound(workspace, checks))


def related(other="accounts"):
    return check.relation("account", other)


@pytest.mark.contract("derive:V28")
def test_a_relation_is_judged_at_the_cut_and_not_at_what_came_after_it(ws, monkeypatch):
    defined(ws, "counts", related())
    real = follow.follow_to

    def after_the_cut(*given, **named):
        ws["accounts"].append(GONE)
        return real(*given, **named)

    monkeypatch.setattr("trueline.workspace.pull.derived.follow_to", after_the_cut)
    at = ws["accounts"].head
    (pulled,) = ws.pull("counts")
    assert pulled.rows == 1
    # The cut has a position of what the check refers to; the origin of the rows has none.
    newest = CutLog.of(ws).newest()
    assert newest.positions[ws["accounts"].id].block == at
    left = derived_checkpoint(ws["counts"].chain.store, ws["counts"].chain.tail().data)
    assert list(left.origin.roots) == [ws["transfers"].id]
    assert left.more["judged_at"] == {str(ws["accounts"].id): str(at)}
    # At the next cut the row is gone.
    ws["transfers"].append([{"account": "a"}])
    with pytest.raises(PullError, match="1 row breaks relation"):
        ws.pull("counts")


def test_what_a_check_refers_to_is_computed_before_it_is_judged(ws):
    defined(ws, "zz")
    defined(ws, "aa", related("zz"))
    known = Dependencies.of(ws)
    assert known.in_order(["aa", "zz"]) == ["zz", "aa"]
    assert (known.inputs("aa"), known.needs("aa")) == (("transfers",), ("transfers", "zz"))
    assert known.roots("aa") == {"transfers"}
    # What is named alone brings along what it is judged by.
    assert {each.dataset: each.rows for each in ws.pull("aa", workers=1)} == {"zz": 1, "aa": 1}


def test_what_waits_for_a_check_says_for_whom(ws):
    defined(ws, "zz", check.row_count(at_least=5))
    defined(ws, "aa", related("zz"))
    with pytest.raises(PullError) as caught:
        ws.pull()
    said = {each.dataset: each for each in caught.value.report}
    assert isinstance(said["zz"].error, CheckFailed)
    assert said["aa"].waits_for == ("zz",)


def test_a_definition_from_before_ids_were_recorded_is_still_read(ws):
    define_by_hand(ws, "counts", "counts", ["transfers"], columns=COLUMNS, checks=(related(),))
    (there,) = checks_at(ws["counts"].chain.tail())
    assert there.option("id") is None
    assert [each.rows for each in ws.pull("counts")] == [1]


def test_what_a_check_refers_to_may_get_another_name(ws):
    defined(ws, "counts", related())
    ws.create("payments", checks=[related()]).append([{"account": "all"}])
    ws["accounts"].rename("people")
    # Who takes the old name is not meant.
    ws.create("accounts").append([{"account": "x"}])
    ws.delete("accounts")
    ws.create("accounts").append([{"account": "x"}])
    assert [each.rows for each in ws.pull("counts")] == [1]
    assert ws["payments"].append([{"account": "all"}]).rows == 1
    # The same definition, with the name as it is now, is no other one.
    assert ws.create("payments", checks=[related("people")]) is ws["payments"]
    with pytest.raises(InputError, match="checks"):
        ws.create("payments", checks=[related("accounts"), check.not_null("account")])


def test_what_checks_refer_to_is_not_deleted_unasked(ws):
    defined(ws, "counts", related())
    ws.create("payments", checks=[related()])
    with pytest.raises(InputError) as caught:
        ws.delete("accounts")
    assert caught.value.code == "DatasetInUse"
    assert "checks of 'counts', 'payments' refer to it" in caught.value.problem
    ws.delete("counts")
    ws.delete("payments")
    ws.delete("accounts")


def test_lineage_shows_what_checks_refer_to_and_does_not_say_it_was_read(ws):
    defined(ws, "counts", related())
    ws.create("payments", checks=[related()])
    graph = ws.lineage()
    checked = sorted((each.input, each.dataset) for each in graph.edges if each.checks)
    assert checked == [("accounts", "counts"), ("accounts", "payments")]
    assert '"accounts" -> "counts" [style=dashed, label="checks"];' in graph.dot()
    (job,) = graph.openlineage()
    assert [each["name"] for each in job["inputs"]] == ["transfers"]
    assert [node.name for node in ws.lineage("counts").nodes] == ["accounts", "transfers", "counts"]


def test_a_root_records_where_its_relations_were_judged(ws):
    payments = ws.create("payments", checks=[related()])
    commit = payments.append([{"account": "all"}])
    event = payments.chain.block(commit.block).event
    said = json.loads(event.extra.entries) if isinstance(event.extra.entries, str) else event.extra.entries
    noted = said["trueline/commit"]["judged_at"]
    assert noted == {str(ws["accounts"].id): str(ws["accounts"].head)}


def test_a_check_that_would_have_to_be_judged_before_its_dataset_is_refused(ws):
    defined(ws, "counts")
    defined(ws, "more", inputs=["counts"])
    with pytest.raises(InputError, match="comes after it") as caught:
        refuse_circle_of_checks(ws, "counts", [related("more")])
    assert caught.value.code == "Cycle"
    # Where it was recorded all the same, it looks at what is there, and nothing stands still.
    defined(ws, "self", related("all"))
    assert Dependencies.of(ws)["self"].checks == ()


def test_a_full_refresh_judges_relations_too(ws):
    defined(ws, "counts", related())
    ws.pull()
    with computing(lambda *_: pa.table({"account": ["all"], "total": [7.0]})):
        (pulled,) = ws.pull("counts", full_refresh=True)
    assert pulled.differed
    with computing(lambda *_: pa.table({"account": ["x"], "total": [7.0]})), pytest.raises(PullError):
        ws.pull("counts", full_refresh=True)
