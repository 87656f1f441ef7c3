"""The table of what runs where is made from the code, and has every step that a view can take."""

from __future__ import annotations

import re

import pytest

from tests.examples import some
from tests.spark.lowering.nasty import everything
from tools import places
from trueline.spark.lowering.deliver import in_order
from trueline.spark.lowering.dispatch import LoweringTarget
from trueline.spark.lowering.places import describe
from trueline.view.verbs import Verbs


@pytest.mark.contract("exchange:E7")
def test_the_page_says_what_explain_says():
    assert places.page() == places.PAGE.read_text(encoding="utf-8"), "run `python tools/places.py`"


def test_every_verb_is_in_the_table():
    named = {word for name in places.VERBS for word in re.findall(r"`(\w+)", name)}
    assert {name for name in vars(Verbs) if not name.startswith("_")} <= named


def test_a_step_that_says_something_else_is_found(monkeypatch):
    monkeypatch.setattr(places, "describe", lambda node: "somewhere")
    assert places.main(["--check"]) == 1


# What is said of a step → what the plan has for it, and what it does not have.
PLANS = {
    "in the tasks that have the rows": ("MapInArrow", "Exchange"),
    "each row gets its place": ("", "Exchange"),
    "Spark keeps the first rows of the order": ("TakeOrderedAndProject", "hashpartitioning"),
    "rows by number": ("REPARTITION_BY", "SinglePartition"),
    "rows of equal number are joined": ("SortMergeJoin", "Broadcast"),
    "else a union": ("", "Exchange"),
    "exact parts of groups": ("Exchange", "Broadcast"),
    "a shuffle brings rows of equal keys to one task": ("hashpartitioning", "SinglePartition"),
    "Spark's join, by a shuffle": ("SortMergeJoin", "Broadcast"),
    "Spark's join, by a task for each part": ("CartesianProduct", "Broadcast"),
    "all rows of both sides meet in one task": ("SinglePartition", "hashpartitioning"),
    "ranges of values go to tasks": ("REPARTITION_BY", "SinglePartition"),
    "blocks of rows go to tasks": ("hashpartitioning", "SinglePartition"),
    "nothing is kept": ("", "InMemory"),
}


@pytest.fixture
def session(spark):
    """Plans that stay as they are made, in which no side of a join is sent to all tasks."""
    found = spark.newSession()
    for name, value in {
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    }.items():
        found.conf.set(name, value)
    return found


def plan_of(frame) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()


def lowered(view, session):
    """Return a view's rows on Spark, and how many jobs that took."""
    scheduler = session.sparkContext._jsc.sc().dagScheduler()
    before = scheduler.numTotalJobs()
    found = LoweringTarget(session).lower(view.node, everything(view))
    return found, scheduler.numTotalJobs() - before


@pytest.mark.contract("exchange:E7")
@pytest.mark.sampled
@pytest.mark.parametrize("name", some(places.VERBS, 16))
def test_the_plan_is_what_is_said_of_the_step(name, session):
    view = places.VERBS[name](places.UNCOUNTED)
    text = describe(places._telling(view.node))
    said = [tokens for phrase, tokens in PLANS.items() if phrase in text]
    assert said, text
    found, jobs = lowered(view, session)
    plan = plan_of(found.frame)
    for has, lacks in said:
        assert has in plan, text
        assert not lacks or lacks not in plan, text
    assert (jobs > 0) == ("counted first" in text)


@pytest.mark.contract("exchange:E7")
@pytest.mark.parametrize("name", ["`sort`", "`shuffle`"])
def test_ranges_of_an_order_are_brought_together_where_it_is_needed(name, session):
    found, _ = lowered(places.VERBS[name](places.UNCOUNTED), session)
    assert "REPARTITION_BY" in plan_of(in_order(found, LoweringTarget(session)).frame)


@pytest.mark.contract("exchange:E7")
def test_a_small_side_of_a_join_goes_to_all_tasks_where_that_is_said(session):
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "10MB")
    for right, is_said in (
        (places._table(9), True),
        (places.UNCOUNTED.group_by("n").agg(c="count(*)"), False),
    ):
        view = places.UNCOUNTED.join(right, on="n")
        assert ("goes to all tasks instead" in describe(view.node)) == is_said
        assert ("Broadcast" in plan_of(lowered(view, session)[0].frame)) == is_said


@pytest.mark.contract("exchange:E7")
def test_what_tasks_cannot_read_piece_by_piece_is_done_by_spark_where_that_is_said(session):
    rows = places.UNCOUNTED
    for view, has, lacks in (
        (rows.concat(rows), "MapInArrow", "Union"),
        (rows.sort("n").concat(rows), "Union", "Exchange"),
        (rows.group_by().agg(s="sum(n)"), "SinglePartition", "Aggregate"),
        (rows.group_by("k").agg(s="sum(n)"), "Aggregate", "SinglePartition"),
    ):
        plan = plan_of(lowered(view, session)[0].frame)
        assert has in plan
        assert lacks not in plan
