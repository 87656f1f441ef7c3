"""Everything that makes a view here keeps the contracts, alone and on top of each other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.testing.registry import LOADERS, OPERATORS, PLAIN, SAVERS, SOURCES, SPLITS, sample_file
from trueline.testing import check, checks, views
from trueline.testing.generating import mixed

KIT = [f"kit:K{number}" for number in (*range(1, 14), 17, 18, 19, 20)]
CONTRACTS = sorted({name for each in checks().values() for name in each.contracts})
pytestmark = pytest.mark.contract(*KIT, *CONTRACTS)


@pytest.mark.parametrize("name", list(SOURCES))
def test_sources(name, tmp_path):
    assert check(SOURCES[name](tmp_path)).held


@pytest.mark.parametrize("name", list(OPERATORS))
def test_operators(name):
    report = check(OPERATORS[name], mixed())
    assert {"K6.opening", "K10.merged"} <= set(report.held)
    assert "K6.columns" in report.held or name == "filter nothing"


@pytest.mark.parametrize("name", list(SPLITS))
def test_splits(name):
    assert {"K12.disjoint", "K12.complete", "K12.grown"} <= set(check(SPLITS[name], mixed()).held)


@pytest.mark.parametrize("name", list(LOADERS))
def test_loaders(name, tmp_path):
    assert set(checks("loader")) <= set(check(LOADERS[name], sample_file(tmp_path)).held)


@pytest.mark.parametrize("name", list(SAVERS))
@pytest.mark.parametrize("sample", [name for name in views() if "no columns" not in name])
def test_savers(name, sample):
    assert check(SAVERS[name], views()[sample]).held


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


@given(st.lists(st.sampled_from(sorted(ON_TOP)), min_size=2, max_size=4))
@settings(max_examples=20)
def test_operators_on_top_of_each_other(names):
    view = tl.View.from_arrow(PLAIN)
    for name in names:
        view = ON_TOP[name](view)
    assert check(view.limit(60)).held
