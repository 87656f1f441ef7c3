"""Operators upon operators: ids stay unique, sets are the serial rows, ids say who a row is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.examples import examples
from tests.view.verbs.reading import Counting, agree, divided, memory
from trueline.view import execute
from trueline.view.plan.node import Want

TABLE = pa.table(
    {
        "n": pa.array([3, 1, None, 3, 2, 1, 0], pa.int64()),
        "s": pa.array(["a", "b", "a", None, "c", "b", "b"]),
        "v": pa.array([[1, 2], [], None, [3], [4, 5, 6], [7], [8, None]], pa.list_(pa.int64())),
    }
)
SOURCES = [
    lambda: tl.View.from_arrow(TABLE),
    lambda: tl.View(divided(TABLE, 2, 1, 4)),
    lambda: tl.View(Counting(TABLE, batch=3)),
    lambda: tl.View.from_arrow(TABLE.slice(0, 0)),
]
MOST = 120  # rows; what grows beyond is cut


def columns_again(view):
    """The three columns every operator here gives and takes."""
    return view.select("n", "s", "v")


ONE = {
    "filter": lambda v: v.filter("n > 0"),
    "computed": lambda v: columns_again(v.with_columns(n="n * 2")),
    "limit": lambda v: v.skip(1).limit(40),
    "tail": lambda v: v.tail(30),
    "distinct": lambda v: v.distinct("s"),
    "drop nulls": lambda v: v.drop_nulls("n"),
    "fill null": lambda v: v.fill_null(n=5),
    "rank": lambda v: columns_again(v.window(by="s", n="rank(n)")),
    "sample": lambda v: v.sample(0.7, seed=1),
    "draw": lambda v: v.sample(1.3, seed=2, replace=True),
    "split": lambda v: v.split((0.6, 0.4), by="s")[0],
    "fold": lambda v: v.folds(3)[0][0],
    "sort": lambda v: v.sort("s", "n", descending=[False, True]),
    "shuffle": lambda v: v.shuffle(8),
    "explode": lambda v: columns_again(v.with_columns(w="v").explode("w").drop("n").rename(n="w")),
    "explode outer": lambda v: columns_again(
        v.with_columns(w="v").explode("w", outer=True).drop("n").rename(n="w")
    ),
    "group": lambda v: v.group_by("s").agg(n="max(n)", v="collect(n)").select("n", "s", "v"),
    "window": lambda v: columns_again(v.window(1, 1, n="sum(n)")),
    "window by": lambda v: columns_again(v.window(1, 0, by="s", n="count(n)")),
    "cache": lambda v: v.cache(),
}
TWO = {
    "concat": lambda v, w: v.concat(w),
    "concat itself": lambda v, w: v.concat(v, w),
    "zip": lambda v, w: columns_again(v.drop("n").zip(w.select("n"))),
    "inner": lambda v, w: v.join(w.select("s").limit(9), "s"),
    "left": lambda v, w: columns_again(v.select("s", "v").join(w.select("s", "n").limit(9), "s", how="left")),
    "right": lambda v, w: v.join(w.select("n", "s").limit(9), ["n", "s"], how="right"),
    "cross": lambda v, w: v.join(w.select().limit(3), how="cross"),
    "full": lambda v, w: v.join(w.select("n", "s").limit(9), ["n", "s"], how="full"),
    "itself": lambda v, w: v.join(v.select("s").limit(20), "s"),
    "as of": lambda v, w: v.join(w.select("s", "n"), "s", how="full", as_of="n").select("n", "s", "v"),
    "semi": lambda v, w: v.join(w.limit(3), "s", how="semi"),
    "anti": lambda v, w: v.join(w.limit(3), "n", how="anti"),
}

leaf = st.sampled_from(SOURCES).map(lambda make: make())
composed = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(sorted(ONE)), inner).map(lambda each: ONE[each[0]](each[1]).limit(MOST)),
        st.tuples(st.sampled_from(sorted(TWO)), inner, inner).map(
            lambda each: TWO[each[0]](each[1], each[2]).limit(MOST)
        ),
    ),
    max_leaves=5,
)


@pytest.mark.contract("view:C74")
@pytest.mark.contract("view:C77")
@pytest.mark.contract("view:C64")
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(composed, st.sampled_from([1 << 30, 600]))
def test_any_composition_follows_the_laws_of_reading(view, limit):
    with memory(limit):
        agree(view)


@pytest.mark.parametrize("name", sorted(ONE))
def test_an_operator_upon_itself_follows_the_laws_of_reading(name):
    for source in SOURCES[:3]:
        agree(ONE[name](ONE[name](source())).limit(MOST), sets=(2, 3))


@pytest.mark.parametrize("name", sorted(TWO))
def test_an_operator_of_two_views_upon_itself_follows_the_laws_of_reading(name):
    for first in SOURCES[1:3]:
        once = TWO[name](first(), SOURCES[0]()).limit(MOST)
        agree(TWO[name](once, once).limit(MOST), sets=(2, 3))


@pytest.mark.contract("view:C75")
def test_ids_are_unique_at_a_million_rows():
    base = tl.View.from_arrow(
        pa.table({"n": range(3_000), "k": [n // 3 for n in range(3_000)], "v": [[1, 2, 3, 4]] * 3_000})
    )
    twice = base.with_columns(w="v").explode("v").explode("w")
    views = [
        base,
        base.explode("v"),
        twice,
        twice.with_columns(w="n").join(base, "n", how="left"),
        base.concat(base).concat(base.concat(base), base.concat(base)),
        base.join(base, "k"),
        base.join(base, "k").join(base.filter("n < 1000").select("k"), "k", how="full"),
        base.join(base.filter("n > 2500"), "n", how="left"),
        base.filter("n < 100").join(base, "n", how="full"),
        base.sample(4.0, seed=1, replace=True).sample(4.0, seed=1, replace=True),
        base.sample(60.0, seed=2, replace=True),
        base.group_by("k").agg(n="min(n)"),
        base.explode("v").join(base.explode("v").select("k"), "k"),
    ]
    alike = [view.select("n") for view in views]
    everything = alike[0].concat(*alike[1:], *alike, alike[0].concat(*alike[1:]))
    low, high = [], []
    for piece in execute.pieces(everything.node, Want((), ids=True)):
        for chunk in piece.chunks():
            low.append(chunk.ids.low)
            high.append(chunk.ids.high)
    words = np.empty(sum(map(len, low)), dtype=[("low", np.uint64), ("high", np.uint64)])
    words["low"], words["high"] = np.concatenate(low), np.concatenate(high)
    assert len(words) > 1_000_000
    assert len(np.unique(words)) == len(words)
