"""Groups that tasks make of the rows they read: the same as in this process, and only where keys are few."""

from __future__ import annotations

from itertools import count

import numpy as np
import pyarrow as pa
import pytest

import trueline as tl
from tests.spark.lowering.nasty import difference, everything, far, in_process, rows_of, table
from trueline.dataset.read import events
from trueline.spark.lowering import partial_groups
from trueline.spark.lowering.deliver import delivered
from trueline.spark.lowering.dispatch import LoweringTarget
from trueline.spark.lowering.partial_groups import CombineLimits, GroupsOfParts, most_groups
from trueline.view.plan.node import Want

PARTS = 5
SUMS = {"n": "count(*)", "t": "sum(x)", "a": "avg(f)", "u": "sum(u)", "w": "avg(u)", "m": "max(x)"}
FIRSTS = {"fs": "first(s)", "fx": "first(x)", "M": "max(s)", "some": "any(b)", "e": "all(b)", "l": "min(u)"}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    with tl.open(tmp_path_factory.mktemp("ws") / "ws", create=True) as made:
        yield made


@pytest.fixture(scope="module")
def dataset(workspace):
    """Give what makes a dataset of a table, in several commits."""
    numbers = count()

    def made(rows):
        found = workspace.create(f"rows{next(numbers)}")
        for part in range(PARTS):
            low, high = (rows.num_rows * at // PARTS for at in (part, part + 1))
            found.append(rows.slice(low, high - low))
        return found.view()

    return made


@pytest.fixture(scope="module")
def nasty(dataset):
    return dataset(table(240, 1).drop_columns(["large", "v", "at"]))


@pytest.fixture
def few_rows_are_enough(monkeypatch):
    """Parts are made however few rows there are, of few rows at a time, by several tasks."""
    monkeypatch.setattr(events, "_ROWS_OF_A_PIECE", 30)
    monkeypatch.setattr(partial_groups, "_ROWS_OF_A_PART", 0)
    monkeypatch.setattr(partial_groups, "CombineLimits", lambda: CombineLimits(rows=40))


def lowered(view, session, *, ordered=True):
    want = Want(tuple(column.index for column in view.schema), ids=ordered)
    return LoweringTarget(session, ordered=ordered).lower(view.node, want)


def is_by_tasks(view, session, *, ordered=True):
    found = lowered(view, session, ordered=ordered)
    return any(getattr(step, "func", None) is GroupsOfParts for step in found.steps)


def check(view, session):
    assert is_by_tasks(view, session)
    found = rows_of(delivered(view.node, everything(view), session))
    assert difference(in_process(view), found, view) == ""


@pytest.mark.contract("exchange:E1")
@pytest.mark.usefixtures("few_rows_are_enough")
@pytest.mark.parametrize("keys", [["i"], ["b"], ["day"], ["i", "b"], []], ids=str)
@pytest.mark.parametrize("made", [SUMS, FIRSTS], ids=["sums", "firsts"])
def test_groups_are_those_of_this_process(keys, made, nasty, spark):
    check(nasty.group_by(*keys).agg(**made), spark)
    check(nasty.filter("n % 3 = 1").group_by(*keys).agg(**made), spark)


@pytest.mark.contract("exchange:E1")
@pytest.mark.usefixtures("few_rows_are_enough")
def test_sums_far_apart_are_those_of_this_process(dataset, spark):
    view = dataset(far(400))
    check(view.group_by("k").agg(t="sum(y)", a="avg(y)", z="sum(z)", n="count(y)"), spark)
    check(view.with_columns(w="y * 2").group_by("k").agg(t="sum(w)"), spark)


@pytest.mark.usefixtures("few_rows_are_enough")
@pytest.mark.parametrize("keys", [["x", "f"], ["s"], ["x", "s"], ["u", "raw"], ["n"]], ids=str)
def test_whatever_the_keys_are_groups_are_those_of_this_process(monkeypatch, keys, nasty, spark):
    """Where keys are many it takes longer, and is no less right."""
    monkeypatch.setattr(partial_groups, "most_groups", lambda node: 1_000)
    check(nasty.group_by(*keys).agg(rows="count(*)", t="sum(x)", v="first(i)"), spark)


@pytest.mark.usefixtures("few_rows_are_enough")
def test_parts_that_take_too_much_memory_are_sent_on_before_the_rest(monkeypatch, nasty, spark):
    monkeypatch.setattr(partial_groups, "CombineLimits", lambda: CombineLimits(rows=20, size=1_000))
    check(nasty.group_by("i").agg(**SUMS), spark)


def test_many_rows_of_few_keys_are_grouped_where_they_are_read(dataset, spark):
    rows = 20_000
    view = dataset(pa.table({"k": np.arange(rows) % 7, "x": np.arange(rows) / 7, "n": np.arange(rows)}))
    few = view.group_by("k").agg(t="sum(x)")
    check(few, spark)
    assert is_by_tasks(few, spark, ordered=False)
    plan = few.to_spark(spark)._jdf.queryExecution().toString()
    assert "HashAggregate" not in plan
    assert not is_by_tasks(view.group_by("n").agg(t="sum(x)"), spark)
    assert not is_by_tasks(view.with_columns(j="k + 1").group_by("j").agg(t="sum(x)"), spark)
    assert not is_by_tasks(view.group_by("k").agg(t="last(x)"), spark)


def test_footers_say_how_many_groups_there_may_be(nasty):
    assert most_groups(nasty.group_by("i").agg(n="count(*)").node) == 7
    assert most_groups(nasty.select("b", "i").rename(j="i").group_by("b", "j").agg(n="count(*)").node) == 21
    assert most_groups(nasty.group_by("s").agg(n="count(*)").node) is None
    assert most_groups(nasty.group_by("u").agg(n="count(*)").node) is None
    assert most_groups(nasty.group_by().agg(n="count(*)").node) == 1


@pytest.mark.usefixtures("few_rows_are_enough")
def test_parts_that_do_not_meet_are_found(monkeypatch, nasty, spark):
    from pyspark.sql import functions as f

    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "3")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    view = nasty.group_by("i").agg(n="count(*)", t="sum(n)")
    check(view, session)
    monkeypatch.setattr(partial_groups, "equal_key", lambda value, kind: f.spark_partition_id())
    found = rows_of(delivered(view.node, everything(view), session))
    assert difference(in_process(view), found, view) != ""
