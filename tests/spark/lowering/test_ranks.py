"""Ranks of all rows: by ranges of values, of which no task has all rows, whatever the values are."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trueline as tl
from tests.spark.lowering.nasty import difference, everything, in_process, rows_of, table
from trueline.kernel.chunk import Chunk, together
from trueline.kernel.comparison import places_in_order
from trueline.spark.lowering import exchange, ranks
from trueline.spark.lowering.deliver import delivered
from trueline.spark.lowering.dispatch import LoweringTarget
from trueline.spark.lowering.ranks import RankedRows

A = tl.View.from_arrow(table(240, 1))
ORDERED = ["i", "u", "x", "f", "s", "b", "at", "day", "d", "large", "raw"]


@pytest.fixture
def session_of(spark):
    """Return a session with so many partitions, which stay as many."""

    def made(parts):
        found = spark.newSession()
        found.conf.set("spark.sql.shuffle.partitions", str(parts))
        found.conf.set("spark.sql.adaptive.enabled", "false")
        return found

    return made


def check(view, session) -> str:
    return difference(in_process(view), rows_of(delivered(view.node, everything(view), session)), view)


def ranked(view, names, falling):
    """Rank several columns, of which every second one falls the other way."""
    ways = {name: " desc" if falling == bool(at % 2) else "" for at, name in enumerate(names)}
    return view.window(**{f"r_{name}": f"rank({name}{way})" for name, way in ways.items()})


def every() -> list:
    """Return all columns by so many partitions, under names by which `make soak` takes them part by part."""
    return [
        pytest.param(parts, ORDERED, falling, id=f"{parts}p-{'falling' if falling else 'rising'}")
        for parts in (1, 3, 20)
        for falling in (False, True)
    ]


@pytest.mark.contract("exchange:E1", "exchange:E3", "exchange:E5")
@pytest.mark.parametrize(
    ("parts", "names", "falling"),
    [(3, ORDERED[:6], True), (20, ["s", "x"], False)],
    ids=str,
)
def test_ranks_of_values_of_all_types_are_those_of_this_process(parts, names, falling, session_of):
    assert check(ranked(A, names, falling), session_of(parts)) == ""


@pytest.mark.soak
@pytest.mark.parametrize(("parts", "names", "falling"), every())
def test_ranks_of_all_values_are_equal_by_any_number_of_partitions(parts, names, falling, session_of):
    assert check(ranked(A, names, falling), session_of(parts)) == ""


@pytest.mark.contract("exchange:E1", "exchange:E3")
def test_ranks_go_beside_what_a_window_reads(session_of):
    view = A.sort("s").window(1, 2, r="rank(x)", t="sum(i)", q="rank(x desc)", n="row_number()", p="rank(x)")
    assert check(view.filter("r > 5").select("n", "p", "t", "q"), session_of(3)) == ""


ROWS = 400
VALUES = {
    "all differ": np.arange(ROWS) * 7 % ROWS,
    "few": np.arange(ROWS) % 2,
    "one": np.zeros(ROWS, np.int64),
    "none": np.full(ROWS, None),
    "most are one": np.where(np.arange(ROWS) % 10, 5, np.arange(ROWS)),
}


@pytest.mark.contract("exchange:E2", "exchange:E10")
@pytest.mark.parametrize("name", VALUES)
def test_no_task_has_most_of_the_rows(name, session_of):
    from pyspark.sql import functions as f

    table = pa.table({"x": pa.array(VALUES[name], pa.int64()), "n": range(ROWS)})
    view = tl.View.from_arrow(table).window(r="rank(x)")
    frame = LoweringTarget(session_of(4)).lower(view.node, everything(view)).frame
    rows = frame.groupBy(f.spark_partition_id()).count().toPandas()["count"]
    assert rows.sum() == ROWS
    assert rows.max() < ROWS / 2


@pytest.mark.contract("exchange:E2", "exchange:E7")
def test_values_are_looked_at_once_and_rows_counted_once_for_several_ranks(session_of, monkeypatch):
    seen = []
    for module in (exchange, ranks):

        def noted(*arguments, label, real=module.run):
            seen.append(label)
            return real(*arguments, label=label)

        monkeypatch.setattr(module, "run", noted)
    view = A.select("x", "s").window(r="rank(x)", q="rank(s desc)", p="rank(x)")
    view.to_spark(session_of(3))
    assert seen == ["choosing ranges", "choosing ranges", "counting rows"]


def f_lit(value):
    """Return a column of one value."""
    from pyspark.sql import functions as f

    return f.lit(value)


def starts_forgotten(monkeypatch):
    """Each range begins with the first rank."""
    counted = ranks._counted
    monkeypatch.setattr(
        ranks,
        "_counted",
        lambda *given: [replace(each, starts=(0,) * len(each.starts)) for each in counted(*given)],
    )


def values_not_in_order(monkeypatch):
    """Rows of a range come in any order."""
    monkeypatch.setattr(ranks, "order_of", lambda layout: [f_lit("any"), f_lit("any")])


def zeros_unequal(monkeypatch):
    """One zero is before the other."""
    from pyspark.sql import functions as f

    key = ranks.sort_key

    def bits(value, kind, **how):
        found, order = key(value, kind, **how)
        return f.when(value == 0, f.when(value.cast("string") == "-0.0", -1e-300).otherwise(0)).otherwise(
            found
        ), order

    monkeypatch.setattr(ranks, "sort_key", bits)


@pytest.mark.parametrize(
    "plant", [starts_forgotten, values_not_in_order, zeros_unequal], ids=lambda each: each.__name__
)
def test_a_planted_mistake_is_found(plant, session_of, monkeypatch):
    """The comparison above can fail."""
    plant(monkeypatch)
    assert check(A.select("x").window(r="rank(x)"), session_of(3)) != ""


# --- in tasks -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """Rows in chunks of given sizes."""

    whole: Chunk
    sizes: tuple[int, ...]

    def chunks(self):
        """Yield them, the rest at last."""
        start = 0
        for size in (*self.sizes, self.whole.rows):
            found = self.whole.slice(start, min(size, self.whole.rows - start))
            if found.rows:
                yield found
            start += found.rows


@given(
    st.lists(st.sampled_from([-1.0, -0.0, 0.0, 2.0, math.nan, None]), min_size=1, max_size=20),
    st.lists(st.integers(1, 5), max_size=6),
)
def test_a_rank_is_the_same_however_rows_are_cut_into_chunks(values, sizes):
    """Values up to 0 are of one range, which begins with rank 1; the others of one that begins with 101."""
    array = pa.array(values, pa.float64())
    array = array.take(pa.array(places_in_order([array], (False,))))
    numbers = [0 if value is not None and value <= 0 else 1 for value in array.to_pylist()]
    rows = Chunk(len(values), (pa.array(range(len(values))), array, pa.array(numbers, pa.int64())))
    found = together(list(RankedRows(Cut(rows, tuple(sizes)), (0, 100), 1).chunks()))
    assert found.arrays[0].equals(rows.arrays[0])
    keys = [order_key(value) for value in array.to_pylist()]
    expected = [
        1 + 100 * number + sum(other < key and at == number for other, at in zip(keys, numbers, strict=True))
        for key, number in zip(keys, numbers, strict=True)
    ]
    assert found.arrays[1].to_pylist() == expected


def order_key(value):
    """Return what a value is ranked by: null last, NaN before it."""
    if value is None:
        return 2, 0.0
    return (1, 0.0) if math.isnan(value) else (0, value)
