"""Everything that makes a view here keeps the contracts, alone and on top of each other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.examples import examples
from tests.testing.registry import LOADERS, OPERATORS, PLAIN, SAVERS, SOURCES, SPLITS, sample_file
from trueline.errors import SchemaError
from trueline.testing import check, checks, views
from trueline.testing.generate import mixed


def holds(*kinds):
    """Mark a test with the contracts that the checks of some kinds hold."""
    found = [each for kind in kinds for each in checks(kind).values()]
    names = {name for each in found for name in (f"kit:{each.number}", *each.contracts)}
    return pytest.mark.contract(*sorted(names))


@holds("view")
@pytest.mark.parametrize("name", list(SOURCES))
def test_sources(name, tmp_path):
    assert check(SOURCES[name](tmp_path)).held


@holds("view", "operator")
@pytest.mark.parametrize("name", list(OPERATORS))
def test_operators(name):
    report = check(OPERATORS[name], mixed())
    assert {"K6.opening", "K10.merged"} <= set(report.held)
    assert "K6.columns" in report.held or name == "filter nothing"


@holds("view")
@pytest.mark.parametrize("name", ["sort", "shuffle", "group_by", "window by", "cache", "join full"])
def test_operators_that_keep_rows_on_disk(name, monkeypatch):
    for module in ("kernel.exchange", "view.execute.cache"):
        monkeypatch.setattr(f"trueline.{module}.memory_budget", lambda: 0)
    only = ["K3", "K9", "K10.merged", "K11", "K12"]
    assert "K9.left" in check(OPERATORS[name].make(mixed()), only=only).held


@holds("view", "split")
@pytest.mark.parametrize("name", list(SPLITS))
def test_splits(name):
    assert {"K12.disjoint", "K12.complete", "K12.grown"} <= set(check(SPLITS[name], mixed()).held)


@holds("view", "loader")
@pytest.mark.parametrize("name", list(LOADERS))
def test_loaders(name, tmp_path):
    assert set(checks("loader")) <= set(check(LOADERS[name], sample_file(tmp_path)).held)


@holds("saver")
@pytest.mark.parametrize(("name", "sample"), [(name, each) for name in SAVERS for each in SAVERS[name][1]])
def test_savers(name, sample):
    view = views()[sample]
    if name == "write_csv":
        view = view.select(*(column for column in view.schema if column.type.is_primitive))
    assert check(SAVERS[name][0](view), view).held


@pytest.mark.parametrize("write", ["write_csv", "write_parquet"])
def test_savers_refuse_what_would_lose_rows(write, tmp_path):
    with pytest.raises(SchemaError, match="no columns"):
        getattr(views()["no columns"], write)(tmp_path / "out")


@holds("view")
def test_a_frozen_spark_frame(spark):
    frame = spark.range(30).selectExpr("id", "id % 7 as kind")
    assert check(tl.View.from_spark(frame, order_by=["kind", "id"])).held
    assert check(tl.View.from_spark(frame.repartition(3)), only=["K3", "K10", "K12"]).held


@holds("view")
@pytest.mark.parametrize("name", list(views()))
def test_hard_views(name):
    assert check(views()[name]).held


@pytest.mark.parametrize(
    "name", [name for name in views(large=True) if name.endswith("7 rows") or ",53" in name]
)
def test_views_around_the_size_of_a_chunk(name):
    view = views(large=True)[name].filter("n % 2 = 0")
    assert check(view, only=["K4", "K10.merged", "K7.position"]).held


# --- on top of each other -------------------------------------------------------------------------

ON_TOP = {
    "filter": lambda v: v.filter("n > 2"),
    "compute": lambda v: v.with_columns(x="n + x"),
    "limit": lambda v: v.limit(13),
    "skip": lambda v: v.skip(2),
    "concat": lambda v: v.concat(v),
    "sort": lambda v: v.sort("s"),
    "shuffle": lambda v: v.shuffle(1),
    "sample": lambda v: v.sample(1.2, seed=2, replace=True),
    "window": lambda v: v.window(1, 1, x="sum(n)"),
    "cache": lambda v: v.cache(),
    "join": lambda v: v.join(v.select("n").limit(5), on="n", how="left"),
    "group": lambda v: v.group_by("n", "s").agg(x="sum(x)"),
    "zip": lambda v: v.zip(v.select("x").rename(z="x")).select("n", "x", "s"),
    "rename": lambda v: v.rename(t="s").with_columns(s="t").drop("t"),
}


@holds("view")
@given(st.lists(st.sampled_from(sorted(ON_TOP)), min_size=2, max_size=4))
@settings(max_examples=examples(20))
def test_operators_on_top_of_each_other(names):
    view = tl.View.from_arrow(PLAIN)
    for name in names:
        view = ON_TOP[name](view)
    assert check(view.limit(60)).held
