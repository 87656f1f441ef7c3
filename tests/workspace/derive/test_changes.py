"""Definitions over the events of an input: `changes('x')`."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.following import follow_all
from tests.workspace.derive.histories import begin, next_commit
from trueline.dataset.derivation import KeyKind, derivation_at
from trueline.errors import InputError, TruelineError
from trueline.workspace.derive import strategies
from trueline.workspace.derive.strategies import increment

EVENTS = "select offset as at, op as what, id, i from changes('t')"
COUNTS = "select op as what, count(*) as n, max(offset) as newest from changes('t') group by op"


def rows(dataset):
    return dataset.view().to_arrow().to_pylist()


def expected(dataset):
    """The events as `changes` shows them."""
    return [
        (row["offset"], row["op"], row["id"], row["i"]) for row in dataset.changes().to_arrow().to_pylist()
    ]


@pytest.fixture
def used(monkeypatch):
    """By which strategy and why each dataset came to where it is."""
    found = {}
    advance = strategies.advance_by

    def noted(given):
        advanced = advance(given)
        found[given.dataset.name] = advanced.strategy, advanced.reason
        return advanced

    monkeypatch.setattr("trueline.workspace.derive.follow.advance_by", noted)
    return found


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_events_are_followed_by_the_increment(spark_workspace, monkeypatch, used, large):
    if large:
        # Nothing is few enough to be read here.
        monkeypatch.setattr(increment, "DRIVER_EVENTS", -1)
        monkeypatch.setattr(increment, "DRIVER_EVENTS_HERE", -1)
    random_ = random.Random(5)
    dataset = begin(spark_workspace, tl.merge.upsert("id"))
    events = spark_workspace.derive("events", EVENTS)
    counts = spark_workspace.derive("counts", COUNTS, strategy="incremental")
    there = derivation_at(events.chain.tail())
    assert (there.strategy, there.key, there.identity) == ("stateless", ("at",), KeyKind.PROVEN)
    next_commit(random_, dataset)
    follow_all(spark_workspace, ["events", "counts"])
    for _ in range(3):
        next_commit(random_, dataset)
        next_commit(random_, dataset)
        follow_all(spark_workspace, ["events", "counts"])
        assert used == {"events": ("stateless", ""), "counts": ("keyed", "")}
        found = sorted(((row["at"], row["what"], row["id"], row["i"]) for row in rows(events)), key=repr)
        assert found == sorted(expected(dataset), key=repr)
        shown = expected(dataset)
        for row in rows(counts):
            of = [each[0] for each in shown if each[1] == row["what"]]
            assert (row["n"], row["newest"]) == (len(of), max(of))
    assert {row["what"] for row in rows(counts)} >= {"insert", "update_preimage", "update_postimage"}
    # What was retracted stays an event; the derived dataset itself never takes anything back.
    assert set(events.changes().to_arrow()["op"].to_pylist()) == {"insert"}
    assert spark_workspace.verify("events", "counts", replay=True).ok


def test_rows_and_events_of_one_input_in_one_query(spark_workspace):
    dataset = begin(spark_workspace, tl.merge.upsert("id"))
    made = spark_workspace.derive(
        "often",
        "select t.id, t.i, c.n from t join (select id, count(*) as n from changes('t')"
        " where op like 'update_post%' group by id) c on t.id = c.id",
        key="id",
    )
    row = {"id": 1, "k": "a", "x": 1.0, "i": 1, "d": None}
    schema = dataset.schema.to_arrow()
    for number in range(3):
        dataset.append(pa.Table.from_pylist([row | {"i": number}], schema))
    assert spark_workspace.pull("often").ok
    assert rows(made) == [{"id": 1, "i": 2, "n": 2}]
    assert derivation_at(made.chain.tail()).reason == "join"
    assert spark_workspace.verify("often", replay=True).ok
    dataset.append(pa.Table.from_pylist([row | {"op": 1}], schema.append(pa.field("op", pa.int32()))))
    spark_workspace.pull("often")
    assert rows(made) == []
    assert spark_workspace.verify("often", replay="head").ok


def test_events_of_a_derived_input_and_of_one_with_another_name(spark_workspace):
    dataset = begin(spark_workspace, tl.merge.upsert("id"))
    spark_workspace.derive("sums", "select k, count(*) as n from t group by k", key="k")
    moves = spark_workspace.derive(
        "moves",
        {"all": "select * from changes('s')", "last": "select k, n, op as what, offset as at from `all`"},
        inputs={"s": "sums"},
        key="at",
    )
    for number in range(3):
        table = {"id": [number], "k": ["a"], "x": [1.0], "i": [1], "d": [None]}
        dataset.append(pa.table(table, dataset.schema.to_arrow()))
        spark_workspace.pull("moves")
    assert [(row["what"], row["n"]) for row in rows(moves)] == [
        ("insert", 1),
        ("update_preimage", 1),
        ("update_postimage", 2),
        ("update_preimage", 2),
        ("update_postimage", 3),
    ]
    assert spark_workspace.verify("sums", "moves", replay=True).ok
    # The text is kept as it was written, so that the same again is the same.
    assert (
        spark_workspace.derive(
            "moves",
            {"all": "select * from changes('s')", "last": "select k, n, op as what, offset as at from `all`"},
            inputs={"s": "sums"},
            key="at",
        )
        is moves
    )


SYSTEM = "changes('times', system => true)"
LATE = {
    "each": f"select offset as at, id, late, event_time as t from {SYSTEM}",
    "counted": f"select late, count(*) as n from {SYSTEM} group by late",
    "ranked": (
        f"select offset as at, late, row_number() over (partition by late order by offset) as r from {SYSTEM}"
    ),
}


@pytest.mark.contract("derive:V27")
def test_definitions_read_which_records_were_late_when_they_came(spark_workspace, monkeypatch, used):
    kind = pa.timestamp("ms", "UTC")
    schema = pa.schema({"id": pa.int64(), "event_time": kind})
    root = spark_workspace.create("times", schema=schema, event_time="event_time")

    def happened(watermark, *times):
        moments = pa.array([1000 * time for time in times], kind)
        root.append(pa.table({"id": range(len(times)), "event_time": moments}), watermark=watermark)

    def decided():
        return root.changes(system=True).to_arrow()["late"].to_pylist()

    def shown():
        """What each dataset says was late, in the order of offsets."""
        counted = {row["late"]: row["n"] for row in rows(spark_workspace["counted"])}
        assert counted == {each: decided().count(each) for each in set(decided())}
        return [[row["late"] for row in rows(spark_workspace[name])] for name in ("each", "ranked")]

    happened("1970-01-01T00:00:05Z", 3, 10)
    made = [spark_workspace.derive(name, text) for name, text in LATE.items()]
    found = [derivation_at(each.chain.tail()) for each in made]
    assert [each.strategy for each in found] == ["stateless", "keyed", "recompute"]
    assert [each.key for each in found] == [("at",), ("late",), ("at",)]
    spark_workspace.pull()
    # Decided by the watermark before the commit, whatever becomes of it.
    happened("1970-01-01T00:00:15Z", 4, 6)
    happened("1970-01-01T00:01:00Z", 14, 16, 15)
    spark_workspace.pull()
    assert (used["each"], used["counted"]) == (("stateless", ""), ("keyed", ""))
    assert decided() == [False, False, True, False, True, False, False]
    assert shown() == [decided()] * 2
    # Where they are many, tasks read them.
    monkeypatch.setattr(increment, "DRIVER_EVENTS", -1)
    monkeypatch.setattr(increment, "DRIVER_EVENTS_HERE", -1)
    happened(None, 59, 60, 1)
    spark_workspace.pull()
    assert (used["each"], used["counted"]) == (("stateless", ""), ("keyed", ""))
    assert decided()[-3:] == [True, False, True]
    assert shown() == [decided()] * 2
    # All over again, from larger files, and by replay it is the same.
    root.compact()
    assert [each.differed for each in spark_workspace.pull(full_refresh=True)] == [False] * 3
    assert spark_workspace.verify(replay=True).problems == ()
    own = pa.table({"id": [9], "event_time": pa.array([0], kind), "late": ["a column of its own"]})
    root.append(own, new_columns="add")
    with pytest.raises(TruelineError, match="a column 'late' of its own"):
        spark_workspace.pull("each")


def test_what_cannot_be_read_is_refused(spark_workspace):
    begin(spark_workspace, tl.merge.upsert("id"))
    for text, inputs, words in (
        ("select id from changes('tt')", None, "tt"),
        ("select id from changes(t)", None, "in quotes"),
        ("select id from changes('t', 1)", None, "in quotes"),
        ("select id from changes('t', system => false)", None, "in quotes"),
        ("select id from changes('tt', system => true)", None, "tt"),
        ("select id from changes('x')", ["t"], "changes('x')"),
        ("select * from changes('t')", None, "rename it"),
    ):
        with pytest.raises(TruelineError) as caught:
            spark_workspace.derive("made", text, inputs=inputs)
        assert words in str(caught.value), text
        assert caught.value.remedy
        assert "made" not in spark_workspace
    with pytest.raises(InputError, match="cannot be an input of itself"):
        spark_workspace.derive("made", "select id from t")
        spark_workspace.derive("made", "select id from changes('made')", on_change="rebuild")
