"""Derived datasets follow their inputs: what they hold equals the query over the inputs at the same cut."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from tests.spark.passing import ROWS, passing
from tests.workspace.derive.following import follow_all
from trueline.chain.checkpoint import derived_checkpoint
from trueline.dataset.append import merge as merging
from trueline.errors import DatasetExists, InputError, SchemaError
from trueline.workspace.derive import judge
from trueline.workspace.derive.define import derive
from trueline.workspace.derive.request import DerivationRequest

BALANCES = "select account, sum(amount) as total, count(*) as n from transfers group by account"


def transfers(workspace, *rows):
    """Append transfers by id; a known id is corrected."""
    if "transfers" not in workspace:
        workspace.create("transfers", merge=tl.merge.upsert("id"))
    table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(("id", "account", "amount"))})
    return workspace["transfers"].append(table)


def rows(dataset):
    return dataset.view().to_arrow().to_pylist()


@pytest.fixture
def ws(spark_workspace):
    transfers(spark_workspace, (1, "a", 0.1), (2, "b", 2.0), (3, "a", 0.2), (4, None, -0.0))
    return spark_workspace


def test_a_result_is_recorded_as_the_change_that_it_makes(ws, monkeypatch):
    """By what the definition records: nobody judges a query again to pull it; a replay does, and agrees."""
    balances = derive(ws, DerivationRequest("balances", BALANCES, key="account"))
    assert balances.kind == "derived"
    with monkeypatch.context() as unjudged:
        for name in ("judged", "judged_steps"):
            unjudged.setattr(judge, name, None)
        assert follow_all(ws, ["balances"])["balances"].rows == 3
        check_balances(ws, balances)
    assert ws.verify().ok
    assert balances.verify().problems == ()


def check_balances(ws, balances):
    assert rows(balances) == [
        {"account": "a", "total": 0.30000000000000004, "n": 2},
        {"account": "b", "total": 2.0, "n": 1},
        {"account": None, "total": 0.0, "n": 1},
    ]
    transfers(ws, (1, "b", 0.3), (5, "c", 1e16))
    follow_all(ws, ["balances"])
    assert rows(balances) == [
        {"account": "a", "total": 0.2, "n": 1},
        {"account": "b", "total": 2.3, "n": 2},
        {"account": "c", "total": 1e16, "n": 1},
        {"account": None, "total": 0.0, "n": 1},
    ]
    events = balances.changes().to_arrow().select(["op", "account"]).to_pylist()[3:]
    assert [(event["op"], event["account"]) for event in events] == [
        ("update_preimage", "a"),
        ("update_postimage", "a"),
        ("update_preimage", "b"),
        ("update_postimage", "b"),
        ("insert", "c"),
    ]


def test_nothing_new_is_nothing_to_do_and_an_advance_without_rows_is_recorded(ws):
    large = derive(
        ws, DerivationRequest("large", "select id, amount from transfers where amount > 1", key="id")
    )
    assert follow_all(ws, ["large"])["large"].rows == 1
    head = large.head
    assert follow_all(ws, ["large"]) == {"large": None}
    assert large.head == head
    transfers(ws, (9, "z", 0.5))
    assert follow_all(ws, ["large"])["large"].rows == 0
    left = derived_checkpoint(large.chain.store, large.chain.tail().data)
    assert left.at_rest
    assert left.origin.roots[ws["transfers"].id].block == ws["transfers"].chain.tail().head


def test_datasets_over_derived_ones_rest_on_the_same_roots(ws):
    derive(ws, DerivationRequest("balances", BALANCES, key="account"))
    follow_all(ws, ["balances"])
    total = derive(ws, DerivationRequest("total", "select sum(total) as total from balances", key="total"))
    follow_all(ws, ["total"])
    assert rows(total) == [{"total": 2.3}]
    left = derived_checkpoint(total.chain.store, total.chain.tail().data)
    assert set(left.origin.roots) == {ws["transfers"].id}
    assert set(left.origin.definitions) == {ws["balances"].id, total.id}


def test_rows_without_a_key_are_a_bag(ws):
    amounts = derive(ws, DerivationRequest("amounts", "select account from transfers"))
    follow_all(ws, ["amounts"])
    transfers(ws, (5, "a", 1.0), (2, "c", 2.0))
    follow_all(ws, ["amounts"])
    assert amounts.columns == ("account",)
    assert sorted(str(row["account"]) for row in rows(amounts)) == ["None", "a", "a", "a", "c"]


@pytest.mark.contract("derive:V7")
def test_a_key_that_the_result_violates_stops_the_commit(ws):
    derive(ws, DerivationRequest("wrong", "select account, id from transfers", key="account"))
    with pytest.raises(InputError, match="more than once") as caught:
        follow_all(ws, ["wrong"])
    assert caught.value.code == "KeyViolated"
    assert caught.value.fields["keys"] == [{"account": "a"}]
    assert [row["account"] for row in caught.value.fields["rows"]] == ["a", "a"]
    assert {row["id"] for row in caught.value.fields["rows"]} == {1, 3}
    assert ws["wrong"].chain.tail().data is None


def test_the_same_definition_again_is_the_dataset_another_one_raises(ws):
    first = derive(ws, DerivationRequest("balances", BALANCES, key="account"))
    assert derive(ws, DerivationRequest("balances", BALANCES, key="account")) is first
    with pytest.raises(DatasetExists, match="query: "):
        derive(ws, DerivationRequest("balances", BALANCES + " having sum(amount) > 0", key="account"))


@pytest.mark.contract("chain:T13")
def test_an_input_without_columns_is_refused(ws):
    ws.create("empty")
    with pytest.raises(SchemaError, match="'empty' has no columns yet") as caught:
        derive(ws, DerivationRequest("x", "select * from empty"))
    assert caught.value.code == "InputSchemaNotDefined"
    assert "x" not in ws


def test_what_cannot_be_defined_is_refused(ws):
    for request, error, words in (
        (DerivationRequest("x", "select now() from transfers"), InputError, "when it runs"),
        (DerivationRequest("transfers", "select * from transfers"), InputError, "input of itself"),
        (DerivationRequest("x", "select 1"), InputError, "no dataset"),
        (DerivationRequest("x", "select id from transfers", key="nr"), SchemaError, "'nr'"),
    ):
        with pytest.raises(error, match=words):
            derive(ws, request)
        assert "x" not in ws


@pytest.mark.contract("derive:V26")
def test_what_a_whole_result_brings_to_this_process_is_counted(ws, monkeypatch):
    ranked = "select id, row_number() over (order by amount, id) as at from transfers"
    ws.derive("ranked", ranked, key="id")
    ws.pull()
    # A few rows are compared here, with those that are there; more are by tasks.
    for number, few in ((5, merging.FEW_ROWS), (6, 0)):
        monkeypatch.setattr(merging, "FEW_ROWS", few)
        transfers(ws, (number, "c", -float(number)))
        with passing() as passed:
            done = ws.pull("ranked")["ranked"]
        assert (done.strategy, done.rows > 0) == ("recompute", True)
        assert (done.driver_bytes > 0) == (passed[ROWS] > 0) == (few > 0)
    assert rows(ws["ranked"])[-1] == {"id": 6, "at": 1}
