"""Which datasets are computed from which: selectors, order, lineage, plans of what is not computed yet."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.computed_here import define_by_hand
from trueline.cli.app import run
from trueline.errors import DatasetNotFound, InputError
from trueline.workspace.dependencies import Dependencies

COLUMNS = {"account": pa.string(), "total": pa.float64()}


@pytest.fixture
def bank(ws):
    for name in ("transfers", "rates"):
        ws.create(name).append(pa.table({"account": ["a", "b"], "total": [1.0, 2.0]}))
    sql = "select account, total from {}"
    for name, inputs in (
        ("credits", ["transfers"]),
        ("debits", ["transfers"]),
        ("balances", ["credits", "debits"]),
        ("report", ["balances", "rates"]),
    ):
        define_by_hand(ws, name, sql.format(" join ".join(inputs)), inputs, columns=COLUMNS)
    return ws


def test_datasets_are_named_with_what_is_around_them(bank):
    known = Dependencies.of(bank)
    assert known.named(["balances"]) == ["balances"]
    assert known.named(["+balances"]) == ["balances", "credits", "debits", "transfers"]
    assert known.named(["1+balances"]) == ["balances", "credits", "debits"]
    assert known.named(["credits+"]) == ["balances", "credits", "report"]
    assert known.named(["credits+1", "rates"]) == ["balances", "credits", "rates"]
    assert known.named(["+credits+"]) == ["balances", "credits", "report", "transfers"]
    assert known.roots("report") == {"transfers", "rates"}
    assert known.in_order(["report", "balances", "debits", "credits"]) == [
        "credits",
        "debits",
        "balances",
        "report",
    ]
    with pytest.raises(DatasetNotFound, match="did you mean 'credits'"):
        known.named(["+credit"])
    for text in ("", "+", "a++", "x+credits"):
        with pytest.raises(InputError):
            known.named([text])


def test_a_plan_of_what_was_never_computed(bank):
    plan = bank.plan("report")
    assert [(stage.dataset, stage.state, stage.stops) for stage in plan] == [
        ("credits", "new", (1,)),
        ("debits", "new", (1,)),
        ("balances", "new", (1,)),
        ("report", "new", (1,)),
    ]
    assert [str(each) for each in plan["report"].inputs] == [
        "balances: after it was pulled",
        "rates: 2 new (0 to 1)",
    ]
    assert plan["credits"].behind.commits == 1  # what only defines a root does not count
    assert bank._location.cuts().names("cut") == []  # a plan records nothing


def test_lineage_is_drawn_and_told_to_other_tools(bank):
    graph = bank.lineage("balances")
    assert [(node.name, node.kind) for node in graph.nodes] == [
        ("transfers", "root"),
        ("credits", "derived"),
        ("debits", "derived"),
        ("balances", "derived"),
        ("report", "derived"),
    ]
    assert [(edge.input, edge.dataset) for edge in graph.edges] == [
        ("transfers", "credits"),
        ("transfers", "debits"),
        ("credits", "balances"),
        ("debits", "balances"),
        ("balances", "report"),
    ]
    assert "n1 --> n3" in graph.mermaid()
    assert '"credits" -> "balances";' in graph.dot()
    (event,) = [each for each in graph.openlineage("shop") if each["job"]["name"] == "balances"]
    assert [each["name"] for each in event["inputs"]] == ["credits", "debits"]
    assert event["job"]["facets"]["sql"]["query"] == "select account, total from credits join debits"
    assert event["outputs"][0]["facets"]["schema"]["fields"] == [
        {"name": "account", "type": "text"},
        {"name": "total", "type": "float64"},
    ]
    assert "credits, debits" in graph._repr_html_()
    assert len(bank.lineage().nodes) == 6


def test_an_input_that_is_not_here_is_drawn_and_refused(bank, tmp_path):
    with tl.open(tmp_path / "copy", create=True) as other:
        bank["transfers"].push(tmp_path / "out")
        define_by_hand(bank, "alone", "select account, total from rates", ["rates"], columns=COLUMNS)
        bank["alone"].push(tmp_path / "alone")
        other.clone(str(tmp_path / "alone"), "alone")
        assert other.lineage().nodes[0].kind == "clone"
        assert not len(other.plan())


def test_on_the_command_line(bank, capsys):
    where = ["-C", bank.location]
    assert run([*where, "plan", "balances"]) == 0
    assert "balances  new: nothing was computed yet" in capsys.readouterr().out
    assert run([*where, "plan", "credits+", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [stage["dataset"] for stage in shown["stages"]] == ["credits", "debits", "balances", "report"]
    assert run([*where, "lineage", "credits", "--format", "dot"]) == 0
    assert capsys.readouterr().out.startswith("digraph lineage {")
    assert run([*where, "lineage", "--format", "openlineage", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 4
    assert run([*where, "lineage", "--format", "png"]) == 2
    assert "mermaid, dot, openlineage" in capsys.readouterr().err
