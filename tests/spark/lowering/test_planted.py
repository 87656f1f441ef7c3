"""Mistakes that lowering could make, planted one at a time: the comparison with this process finds each."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import trueline as tl
from tests.spark.lowering.nasty import difference, everything, in_process, rows_of, table
from trueline import types as t
from trueline.spark.lowering import aggregates, deliver, join
from trueline.spark.lowering.aggregates import CatalystAggregate
from trueline.spark.lowering.deliver import delivered
from trueline.spark.lowering.exchange import ranges

A = tl.View.from_arrow(table(240, 1))
B = tl.View.from_arrow(table(60, 2)).select("i", "x", "n").rename(m="n")


def position_dropped(monkeypatch):
    """Rows are in the order of the key; those of one key have lost theirs."""

    def by_key_only(found, target):
        kept = replace(found.layout, order=found.layout.order[:1])
        return replace(found, base=ranges(replace(found, layout=kept), target).in_order(), is_ordered=True)

    monkeypatch.setattr(deliver, "in_order", by_key_only)


def nan_unequal(monkeypatch):
    """A NaN that is a key has no partner."""
    from pyspark.sql import functions as f

    right = join.equal_key
    monkeypatch.setattr(
        join,
        "equal_key",
        lambda value, kind: (
            f.when(f.isnan(value), None).otherwise(value) if kind == t.float64 else right(value, kind)
        ),
    )


def order_assumed(monkeypatch):
    """Whatever is delivered is taken to be in order already."""
    monkeypatch.setattr(deliver, "in_order", lambda found, target: found)


def partial_sums(monkeypatch):
    """Floats are added as they come, in parts that are rounded each."""
    from pyspark.sql import functions as f

    monkeypatch.setattr(
        aggregates,
        "_float_sum",
        lambda name: CatalystAggregate((f.sum(f.col(name)),), (t.float64,), first_part),
    )


def window_dropped(monkeypatch):
    """Floats far from one are taken for such that are near."""
    monkeypatch.setattr(aggregates, "_SMALLEST", -1_000)
    monkeypatch.setattr(aggregates, "_WINDOW", 2_000)


def hash_for_equality(monkeypatch):
    """Keys with equal hashes are taken to be equal."""
    from pyspark.sql import functions as f

    monkeypatch.setattr(join, "equal_key", lambda value, kind: f.pmod(f.hash(value), f.lit(2)))


def first_part(parts, spans, call):
    """Return the sum of the first part of a group."""
    return parts[0].take(pa.array(spans.low))


FINITE = "x > -10 and x < 10 and x <> 0"
SORTED = A.shuffle(7).sort("i")
SUMS = A.select("i", "x").filter(FINITE).group_by("i").agg(s="sum(x)")
FAR = tl.View.from_arrow(pa.table({"i": [1, 1, 1], "x": [1e10, 1e-20, -1e10]})).group_by("i").agg(s="sum(x)")
JOINED = A.select("i", "x", "n").join(B.select("x", "m"), on="x", how="left")
BY_VALUE = A.select("i", "x").join(B.select("x", "m"), on="x")


@pytest.mark.parametrize(
    ("plant", "view"),
    [
        (position_dropped, SORTED),
        (nan_unequal, JOINED),
        (order_assumed, A.shuffle(7)),
        (partial_sums, SUMS),
        (window_dropped, FAR),
        (hash_for_equality, BY_VALUE),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_planted_mistake_is_found(plant, view, spark):
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "3")

    def found():
        return difference(in_process(view), rows_of(delivered(view.node, everything(view), session)), view)

    assert found() == ""
    with pytest.MonkeyPatch.context() as monkeypatch:
        plant(monkeypatch)
        assert found() != ""
