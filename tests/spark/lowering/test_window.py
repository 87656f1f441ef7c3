"""Windows without a key go to tasks in blocks with their neighbours; no rows that are counted meet in one."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import trueline as tl
from tests.spark.lowering.nasty import FLOATS, difference, everything, in_process, rows_of
from trueline.spark.lowering import limit, window
from trueline.spark.lowering.deliver import delivered
from trueline.spark.lowering.dispatch import LoweringTarget

ROWS = 60


def _rows() -> pa.Table:
    random = np.random.default_rng(4)
    return pa.table(
        {
            "n": random.permutation(ROWS),
            "x": pa.array(random.choice(FLOATS, ROWS), mask=random.random(ROWS) < 0.1),
            "k": random.integers(0, 9, ROWS),
        }
    )


A = tl.View.from_arrow(_rows())
# How far windows reach: over one row, over blocks and more, to one side only, beyond all rows.
REACHES = [(0, 0), (1, 0), (0, 1), (3, 5), (17, 0), (0, 23), (9, 40), (ROWS, ROWS)]


def windows(rows):
    return [
        rows.sort("x").window(before, after, s="sum(k)", c="count(x)", f="first(n)", l="last(n)")
        for before, after in REACHES
    ] + [
        rows.sort("k").window(1, 1, g="lag(n, 20)", h="lead(n, 11)", s="sum(k)"),
        rows.filter("n < 7").window(2, 2, s="sum(k)"),
    ]


@pytest.fixture
def session(spark):
    """Three partitions that stay three."""
    found = spark.newSession()
    found.conf.set("spark.sql.shuffle.partitions", "3")
    found.conf.set("spark.sql.adaptive.enabled", "false")
    return found


def check(view, session) -> str:
    return difference(in_process(view), rows_of(delivered(view.node, everything(view), session)), view)


@pytest.mark.contract("exchange:E1", "exchange:E3")
@pytest.mark.parametrize(("rows_of_a_block", "first"), [(7, 0), (16, 1)])
def test_windows_over_the_edges_of_blocks_are_those_of_this_process(
    rows_of_a_block, first, session, monkeypatch
):
    monkeypatch.setattr(window, "_BLOCK", rows_of_a_block)
    for view in windows(A)[first::2]:
        assert check(view, session) == "", view.explain()


@pytest.mark.parametrize("side", ["behind", "ahead"])
def test_a_neighbour_too_few_is_found(side, session, monkeypatch):
    """The comparison above can fail."""
    monkeypatch.setattr(window, "_BLOCK", 7)
    right = window._by_number

    def short(work, *rest):
        named = {name: getattr(work, name) for name in ("before", "after", "order", "behind", "ahead")}
        return right(SimpleNamespace(**named | {side: named[side] - 1}), *rest)

    monkeypatch.setattr(window, "_by_number", short)
    assert check(A.sort("x").window(2, 2, s="sum(k)"), session) != ""


SPREAD = {
    "window": A.sort("x").window(2, 1, s="sum(k)"),
    "skip": A.sort("x").skip(5),
    "tail": A.sort("x").tail(50),
    "limit": A.sort("x").limit(50),
    "zip": A.sort("x").zip(A.select("k").rename(j="k").shuffle(1)),
}


@pytest.mark.contract("exchange:E2")
@pytest.mark.parametrize("name", SPREAD)
def test_rows_that_are_counted_are_not_brought_to_one_task(name, session, monkeypatch):
    monkeypatch.setattr(window, "_BLOCK", 16)
    monkeypatch.setattr(limit, "_FEW", 10)
    view = SPREAD[name]
    frame = LoweringTarget(session).lower(view.node, everything(view)).frame
    assert "SinglePartition" not in frame._jdf.queryExecution().toString()
    assert frame.rdd.getNumPartitions() > 1


@pytest.mark.contract("exchange:E7")
def test_explain_says_where_all_rows_meet_in_one_task(session):
    timed = A.select("k", "n")
    for view, is_one in (
        (A.window(1, 1, s="sum(k)"), False),
        (A.window(r="rank(x)"), False),
        (A.window(by="k", r="rank(x)"), False),
        (timed.join(timed, as_of="k"), True),
    ):
        plan = LoweringTarget(session).lower(view.node, everything(view)).frame._jdf.queryExecution()
        assert ("SinglePartition" in plan.toString()) == is_one
        assert ("meet in one task" in view.on_spark(session).explain()) == is_one
