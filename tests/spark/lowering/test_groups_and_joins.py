"""How groups, joins and orders are made on Spark: in parts, without computing rows twice."""

from __future__ import annotations

import math
import re
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.spark.lowering.counting import check
from tests.spark.lowering.nasty import everything
from trueline.spark.lowering import exchange, group_by, limit
from trueline.spark.lowering.aggregates import on_grid
from trueline.spark.lowering.deliver import in_order
from trueline.spark.lowering.dispatch import LoweringTarget
from trueline.spark.lowering.lowered import CombinedIds, IdsOfPlaces
from trueline.spark.lowering.partial_groups import GroupsOfParts
from trueline.view.execute import pieces
from trueline.view.execute.group_by import Grouping, PartialGroups
from trueline.view.execute.join import Matching
from trueline.view.execute.window import WindowWork
from trueline.view.plan.node import Node, Want

ROWS = 4_000


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Rows of a file of four groups, whose numbers Spark knows and whose sizes it does not."""
    random = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    made = pa.table(
        {
            "n": np.arange(ROWS),
            "k": random.integers(0, 50, ROWS),
            "x": random.normal(size=ROWS),
            "s": pa.array([f"text {n % 9}" for n in range(ROWS)]),
        }
    )
    pq.write_table(made, path, row_group_size=ROWS // 4)
    return tl.View.read_parquet(str(path))


def plan_of(view, session, *, ordered=True):
    """Return what Spark would do."""
    want = Want(tuple(column.index for column in view.schema), ids=ordered)
    found = LoweringTarget(session, ordered=ordered).lower(view.node, want)
    return found.frame._jdf.queryExecution().toString()


# --- groups ---------------------------------------------------------------------------------


EXACT = {"c": "count(*)", "t": "sum(x)", "a": "avg(k)", "m": "min(x)", "f": "first(n)"}


def test_groups_are_added_up_where_the_rows_are(rows, spark):
    plan = plan_of(rows.group_by("k").agg(**EXACT), spark)
    assert "HashAggregate" in plan
    assert "partial_sum" in plan
    assert "SortAggregate" not in plan.partition("== Physical Plan ==")[2]


@pytest.mark.parametrize("other", ["last(n)", "collect(n)", "variance(x)", "median(x)"])
def test_what_needs_all_rows_of_a_group_is_made_by_the_kernel(other, rows, spark):
    assert "HashAggregate" not in plan_of(rows.group_by("k").agg(**EXACT, o=other), spark)


def test_a_group_of_rows_in_an_order_of_values_is_made_by_the_kernel(rows, spark):
    view = rows.sort("x").group_by("s").agg(t="sum(x)")
    assert "HashAggregate" not in plan_of(view, spark)
    check(view, spark)


def test_where_nobody_asks_for_order_and_ids_none_are_made(rows, spark):
    view = rows.group_by("k").agg(c="count(*)", m="max(n)")
    assert "min_by" in plan_of(view, spark)
    plan = plan_of(view, spark, ordered=False)
    assert "position" not in plan
    # Whole numbers and counts need no task of ours either, but for reading.
    assert plan.partition("== Physical Plan ==")[2].count("MapInArrow") == 1


@pytest.mark.contract("exchange:E10")
def test_a_group_with_almost_all_rows_is_moved_in_parts(rows, spark):
    view = rows.with_columns(hot="n < 5").group_by("hot").agg(t="sum(x)", c="count(*)")
    found = LoweringTarget(spark).lower(view.node, everything(view))
    assert isinstance(found.steps[0].keywords["work"], group_by.PartsWork)
    # A part for each window of each piece at most, however many rows there are.
    assert found.base.count() <= 2 * 3
    check(view, spark)


@pytest.mark.parametrize("power", range(-1_074, 1_024, 31))
def test_words_of_a_grid_are_the_number_they_are_cut_from(power):
    number = 0x1F_FFFF_FFFF_FFFF
    limbs = on_grid(
        [(np.array([number & 0xFFFFFF]), power % 32), (np.array([number >> 24]), power % 32 + 24)]
    )
    assert sum(int(limb[0]) << 32 * place for place, limb in enumerate(limbs)) == number << power % 32


@pytest.mark.parametrize("sign", [1, -1])
def test_powers_of_two_of_all_sizes_are_summed_to_the_bit(sign, spark):
    """Each edge of a window is met, from the smallest number to the largest, and what is beside it."""
    powers = np.ldexp(1.0, np.arange(-1_074, 1_024))
    values = sign * np.concatenate([powers, np.nextafter(powers, 0), np.nextafter(powers, np.inf)])
    values = values[np.isfinite(values)]
    view = tl.View.from_arrow(pa.table({"k": np.arange(len(values)), "x": values}))
    check(view.group_by("k").agg(t="sum(x)"), spark)
    [total] = view.group_by().agg(t="sum(x)").on_spark(spark).to_arrow()["t"].to_pylist()
    assert total == sign * math.inf


# --- orders ---------------------------------------------------------------------------------


@pytest.fixture
def samples(monkeypatch):
    """The jobs that looked for ranges of an order."""
    found = []
    run = exchange.run

    def recorded(engine, action, *, label):
        found.append(label)
        return run(engine, action, label=label)

    monkeypatch.setattr(exchange, "run", recorded)
    return found


def test_no_row_is_computed_to_find_ranges_that_are_known(rows, spark, samples):
    other = rows.select("k", "n").rename(m="n").limit(60)
    views = [
        rows.shuffle(3),
        rows.join(rows.select("n", "x").rename(y="x"), on="n"),
        rows.join(rows.select("n", "x").rename(y="x"), on="n", how="full"),
        rows.group_by("k").agg(t="sum(x)"),
        rows.filter("k > 3").concat(rows),
        rows.filter("k > 3").group_by("s").agg(n="count(*)").join(other, on={"n": "k"}, how="left"),
    ]
    for view in views:
        check(view, spark)
    assert samples == []
    check(rows.sort("x"), spark)
    assert samples == ["choosing ranges"]


def test_few_rows_are_put_in_order_by_few_tasks(rows, spark, monkeypatch):
    monkeypatch.setattr(exchange, "_BYTES_OF_A_RANGE", 64 << 10)
    view = rows.select("n", "x").sort("x")
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "200")
    found = LoweringTarget(session).lower(view.node, everything(view))
    assert 1 < exchange.parts_of(found, LoweringTarget(session)) < 10
    check(view, session)


# --- joins ----------------------------------------------------------------------------------


SMALL = pa.table({"k": np.arange(50), "name": [f"name {n}" for n in range(50)]})


@pytest.mark.parametrize(
    ("how", "left", "right"),
    [
        ("inner", True, True),
        ("left", False, True),
        ("semi", False, True),
        ("right", True, False),
        ("full", False, False),
    ],
)
def test_a_side_that_is_known_to_be_small_goes_to_all_tasks(how, left, right, rows, spark):
    small = tl.View.from_arrow(SMALL)
    session = spark.newSession()
    for view, is_sent in (
        (small.join(rows, on="k", how=how), left),
        (rows.join(small, on="k", how=how), right),
    ):
        session.conf.set("spark.sql.autoBroadcastJoinThreshold", "1m")
        assert ("BroadcastHashJoin" in plan_of(view, session)) == is_sent
        assert ("goes to all tasks" in view.on_spark(session).explain()) == is_sent
        check(view, session)
        session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        assert "Broadcast" not in plan_of(view, session)


@pytest.mark.contract("exchange:E2")
def test_a_side_of_texts_that_nobody_measured_is_not_collected_in_the_driver(rows, spark):
    assert "Broadcast" not in plan_of(rows.join(rows.select("k", "s").limit(9).rename(u="s"), on="k"), spark)


@pytest.mark.contract("exchange:E2")
def test_no_side_of_a_cross_join_is_collected_in_the_driver(rows, spark, ds):
    """Spark would send the side around that it takes for smaller, whatever its size."""
    ds.append(pa.table({"t": ["a", "b", "c"]}))
    small, stored = rows.select("s").limit(9).rename(t="s"), ds.view().select("t")
    for other in (small, stored.sort("t"), stored.shuffle(1)):
        for view in (rows.join(other, how="cross"), other.join(rows, how="cross")):
            plan = plan_of(view, spark)
            assert "Broadcast" not in plan
            assert "CartesianProduct" in plan
            assert "keys" not in view.on_spark(spark).explain()
        check(view, spark)


def test_ids_of_a_join_are_combined_where_rows_are_written(rows, spark):
    view = rows.join(rows.select("n", "x").rename(y="x"), on="n").select("y", "k")
    found = LoweringTarget(spark).lower(view.node, everything(view))
    assert found.late
    assert found.base._jdf.queryExecution().toString().count("MapInArrow") == plan_reads(found)
    check(view, spark)


def plan_reads(found):
    """Return how often rows are read by tasks of ours, in all stages that a plan is shown in."""
    text = found.base._jdf.queryExecution().toString()
    return text.count("Scan ExistingRDD") + text.count("LogicalRDD")


# --- who moves rows, and what makes values of them ------------------------------------------


# What moves rows, and the class of this process's engine that makes what depends on several of them: the
# tasks of Spark run the same one. None where no value is made, only ids and order.
MOVED = {
    "sort": (lambda rows: rows.sort("x"), None),
    "shuffle": (lambda rows: rows.shuffle(1), None),
    "join": (lambda rows: rows.join(rows.select("k", "x").rename(y="x").sort("y"), on="k"), None),
    "join, full": (lambda rows: rows.join(rows.select("k", "x").rename(y="x"), on="k", how="full"), None),
    "join, cross": (lambda rows: rows.join(rows.select("n").rename(m="n"), how="cross"), None),
    "join as of": (lambda rows: rows.join(rows.rename(y="x", s2="s"), on="k", as_of="n"), Matching),
    "group": (lambda rows: rows.group_by("k").agg(l="last(n)", m="median(x)"), Grouping),
    "group in parts": (lambda rows: rows.group_by("k").agg(**EXACT), None),
    "window by a key": (lambda rows: rows.window(1, 1, by="k", t="sum(x)"), WindowWork),
    "window": (lambda rows: rows.sort("x").window(1, 1, t="sum(x)"), WindowWork),
    "limit": (lambda rows: rows.sort("x").limit(9), None),
    "skip": (lambda rows: rows.sort("x").skip(9), None),
    "zip": (lambda rows: rows.sort("x").zip(rows.select("n").rename(m="n")), None),
}


def works(found, seen=()):
    """Return what is used of the engine of this process in steps of tasks, or in what makes pieces."""
    if type(found).__module__.startswith("trueline.view.execute"):
        yield type(found)
    inside = {**getattr(found, "keywords", {}), **getattr(found, "__dict__", {})}
    for each in (*inside.values(), *(found if isinstance(found, tuple | list) else ())):
        if not isinstance(each, Node) and not any(each is other for other in seen):
            yield from works(each, (*seen, found))


@pytest.mark.contract("exchange:E4")
@pytest.mark.parametrize("name", MOVED)
def test_spark_moves_the_rows_and_the_kernel_makes_the_values(name, rows, spark, monkeypatch):
    monkeypatch.setattr(limit, "_FEW", 0)
    make, work = MOVED[name]
    view, target = make(rows), LoweringTarget(spark)
    found = target.lower(view.node, everything(view))
    moved = in_order(found, target).frame._jdf.queryExecution().executedPlan().toString()
    assert re.search(r"\bExchange\b|CartesianProduct", moved)
    if work is not None:
        assert work in works(found.steps)
        assert work in works(pieces(view.node, everything(view)))


@pytest.mark.contract("exchange:E4")
def test_parts_of_groups_are_put_together_by_the_kernel(spark, ds):
    """Of what Spark adds up in parts, and of what tasks have grouped where they read it."""
    ds.append(pa.table({"k": np.arange(20_000) % 7, "x": np.arange(20_000) / 7}))
    view = ds.view().group_by("k").agg(t="sum(x)")
    by_tasks = LoweringTarget(spark).lower(view.node, everything(view))
    assert PartialGroups in works(by_tasks.steps)
    assert "Exchange" in by_tasks.frame._jdf.queryExecution().executedPlan().toString()
    assert by_tasks.steps[0].func is GroupsOfParts
    check(view, spark)
    view = view.concat(view).group_by("k").agg(t="sum(t)")
    by_spark = LoweringTarget(spark).lower(view.node, everything(view))
    assert by_spark.steps[0].func is group_by.PartsTogether
    assert "HashAggregate" in by_spark.base._jdf.queryExecution().executedPlan().toString()


@pytest.mark.contract("exchange:E4")
def test_ids_of_joins_are_made_by_the_kernel(rows, spark):
    view = rows.join(rows.select("k", "x").rename(y="x").sort("y"), on="k")
    found = LoweringTarget(spark).lower(view.node, everything(view))
    made = [step.func if isinstance(step, partial) else step for step in found.steps]
    assert made in ([CombinedIds], [IdsOfPlaces])
