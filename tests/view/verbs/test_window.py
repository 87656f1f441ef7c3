"""Windows: what is around a row, against windows written out in loops; nothing depends on chunks."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.examples import examples
from tests.view.verbs.reading import Counting, agree, divided, ids, memory, serial, values
from tests.view.verbs.test_group_by import quantile, root, variance
from trueline.errors import InputError, SchemaError
from trueline.kernel import chunk, exchange, external_sort
from trueline.view.execute import window

AGGREGATES = {
    "rows": "count(*)",
    "there": "count(x)",
    "total": "sum(x)",
    "mean": "avg(x)",
    "least": "min(x)",
    "most": "max(x)",
    "text": "min(s)",
    "opening": "first(x)",
    "closing": "last(s)",
    "earlier": "lag(x, 3)",
    "later": "lead(s)",
    "texts": "collect(s)",
    "some": "any(b)",
    "every": "all(b)",
    "made": "max(x * 0 + 1)",
    "number": "row_number()",
    "middle": "median(x)",
    "low": "quantile(x, 0.2)",
    "spread": "stddev(x)",
}
row = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, 1, 2]),
        "x": st.none() | st.floats(-1e9, 1e9) | st.sampled_from([1e300, -1e300, 1.0, 1e-300]),
        "s": st.sampled_from([None, "a", "b"]),
        "b": st.none() | st.booleans(),
    }
)
SCHEMA = pa.schema({"k": pa.int64(), "x": pa.float64(), "s": pa.string(), "b": pa.bool_()})


def looped(rows, before, after):
    """The aggregates around each row, the slow way."""
    found = []
    for at in range(len(rows)):
        around = rows[max(0, at - before) : at + after + 1]
        x, s, b = ([each[name] for each in around if each[name] is not None] for name in "xsb")
        total = math.fsum(x) + 0.0 if x else None
        found.append(
            {
                "rows": len(around),
                "there": len(x),
                "total": total,
                "mean": total / len(x) if x else None,
                "least": min(x, default=None),
                "most": max(x, default=None),
                "text": min(s, default=None),
                "opening": around[0]["x"],
                "closing": around[-1]["s"],
                "earlier": rows[at - 3]["x"] if at >= 3 else None,
                "later": rows[at + 1]["s"] if at + 1 < len(rows) else None,
                "texts": [each["s"] for each in around],
                "some": any(b) if b else None,
                "every": all(b) if b else None,
                "made": 1.0 if x else None,
                "number": at + 1,
                "middle": quantile(x, Fraction(1, 2)),
                "low": quantile(x, Fraction(1, 5)),
                "spread": root(variance(x)) if len(x) > 1 else None,
            }
        )
    return found


@settings(max_examples=examples(60))
@given(
    st.lists(row, max_size=20),
    st.integers(0, 4) | st.just(100),
    st.integers(0, 4) | st.just(100),
    st.sampled_from([1, 3, 50]),
)
def test_windows_are_what_loops_would_give_whatever_the_chunks(rows, before, after, batch):
    view = tl.View(Counting(pa.Table.from_pylist(rows, SCHEMA), batch=batch))
    found = view.window(before, after, **AGGREGATES)
    assert found.select(*AGGREGATES).to_arrow().to_pylist() == looped(rows, before, after)


@pytest.mark.parametrize("batch", [1, 4, 7])
@pytest.mark.parametrize("reach", [(0, 0), (2, 0), (0, 2)])
def test_rows_further_off_than_the_window_are_found_across_chunks(batch, reach):
    view = tl.View(Counting(pa.table({"n": range(30)}), batch=batch)).window(
        *reach, a="lag(n, 6)", b="lead(n, 5)"
    )
    assert values(view, "a", "b") == [
        (n - 6 if n >= 6 else None, n + 5 if n + 5 < 30 else None) for n in range(30)
    ]


@settings(max_examples=examples(40))
@given(
    st.lists(row, max_size=20),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([1 << 30, 50]),
    st.sampled_from([1, window._BLOCK]),
)
def test_with_by_a_window_is_among_equal_rows(rows, before, after, limit, block):
    expected = [None] * len(rows)
    for key in (None, 1, 2):
        places = [at for at, each in enumerate(rows) if each["k"] == key]
        for at, each in zip(places, looped([rows[at] for at in places], before, after), strict=True):
            expected[at] = each
    with memory(limit), patch.object(window, "_BLOCK", block):
        view = tl.View(Counting(pa.Table.from_pylist(rows, SCHEMA))).window(
            before, after, by="k", **AGGREGATES
        )
        assert view.select(*AGGREGATES).to_arrow().to_pylist() == expected
        assert [each.low for each in ids(view)] == list(range(len(rows)))


def ranked(rows, down):
    """The rank of each row, the slow way: null after all, NaN before it, equal values alike."""

    def place(value):
        if value is None:
            return 2, 0
        return (1, 0) if math.isnan(value) else (0, -value if down else value)

    return [1 + sum(place(other) < place(each) for other in rows) for each in rows]


@settings(max_examples=examples(40))
@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, 1, 2]), st.sampled_from([None, math.nan, 0.0, -0.0, 1.0, math.inf, -5.5])
        ),
        max_size=20,
    ),
    st.sampled_from([1 << 30, 50]),
)
def test_a_rank_counts_the_rows_before_it_wherever_they_are(rows, limit):
    table = pa.table(
        {"k": pa.array([k for k, _ in rows], pa.int64()), "x": pa.array([x for _, x in rows], pa.float64())}
    )
    expected = []
    for at, (key, _) in enumerate(rows):
        places = [each for each, (k, _) in enumerate(rows) if k == key]
        mine = places.index(at)
        expected.append(
            tuple(ranked([rows[each][1] for each in places], down)[mine] for down in (False, True))
        )
    with memory(limit):
        view = tl.View(Counting(table, batch=3))
        found = view.window(by="k", r="rank(x)", d="rank(x desc)", n="row_number()")
        assert values(found, "r", "d") == expected
        alone = view.window(1, a="rank(x asc)", b="sum(k)")
        assert values(alone, "a") == ranked([x for _, x in rows], False)
        assert [each.low for each in ids(alone)] == list(range(len(rows)))


@pytest.mark.parametrize("limit", [1 << 30, 200_000])
def test_all_rows_are_ranked_in_the_memory_there_is(limit, monkeypatch):
    """Beyond it no more rows are put in order at a time than have room."""
    rows, most, real = 50_000, [0], exchange.places_in_order

    def noted(keys, descending):
        most[0] = max(most[0], len(keys[0]))
        return real(keys, descending)

    for module in (exchange, external_sort, window):
        monkeypatch.setattr(module, "places_in_order", noted)
    random = np.random.default_rng(1)
    table = pa.table({"x": random.integers(0, 9, rows), "s": random.choice(["a", "b", "c"], rows)})
    with memory(limit):
        view = tl.View(divided(table, 20_000, 10, 29_990)).window(
            1, r="rank(x)", q="rank(s desc)", t="sum(x)"
        )
        found = view.select("r", "q", "t").to_arrow()
    x = np.asarray(table["x"])
    before = np.concatenate([[0], np.cumsum(np.bincount(x))])
    assert found["r"].to_pylist() == (before[x] + 1).tolist()
    assert found["q"].to_pylist() == pc.rank(table["s"], sort_keys="descending", tiebreaker="min").to_pylist()
    assert found["t"].to_pylist() == (x + np.concatenate([[0], x[:-1]])).tolist()
    assert (most[0] == rows) if limit > 1 << 20 else (most[0] < rows / 4)


KEYS = {
    "floats": pa.array([0.0, -0.0, math.nan, -math.nan, None, 1.5], pa.float64()),
    "texts": pa.array(["", "a", "a\0", "b", None, "é"]),
    "bytes": pa.array([b"", b"\0", b"a", None, b"ab", b"\xff"]),
    "truths": pa.array([True, False, None] * 2),
    "decimals": pa.array([Decimal("1.10"), Decimal("-3.00"), None] * 2, pa.decimal128(20, 2)),
    "wide": pa.array([0, 1, 2**64 - 1, None, 2**63, 1], pa.uint64()),
    "days": pa.array([0, -1, None] * 2, pa.int32()).cast(pa.date32()),
    "instants": pa.array([0, 1, None] * 2, pa.timestamp("ns", "UTC")),
}


BY_KEY = {"s": "sum(x)", "m": "min(x)", "a": "lag(n, 4)", "b": "lead(n, 3)", "i": "row_number()"}


@pytest.mark.parametrize(
    "by", [["floats"], ["texts"], ["bytes"], ["truths", "wide"], ["days", "decimals"], ["instants"]]
)
def test_keys_of_any_type_are_told_apart_beyond_the_memory_there_is(by):
    random = np.random.default_rng(2)
    rows = 600
    columns = {name: array.take(pa.array(random.integers(0, 6, rows))) for name, array in KEYS.items()}
    table = pa.table({"n": range(rows), "x": random.normal(size=rows), **columns})
    found = []
    for limit in (1 << 30, 3_000):
        with memory(limit):
            view = tl.View(divided(table, 200, 1, 399)).window(3, 2, by=by, **BY_KEY)
            found.append((view.select(*BY_KEY).to_arrow(), ids(view)))
    assert found[0][0].equals(found[1][0])
    assert found[0][1] == found[1][1]


@pytest.mark.contract("exchange:E10")
def test_of_a_key_with_almost_all_rows_no_more_are_in_memory_than_have_room(monkeypatch):
    rows, most, real = 50_000, [0], window.WindowWork._made

    def noted(work, chunk, *of):
        most[0] = max(most[0], chunk.rows)
        return real(work, chunk, *of)

    monkeypatch.setattr(window.WindowWork, "_made", noted)
    random = np.random.default_rng(1)
    k = np.where(random.random(rows) < 0.95, 0, random.integers(0, 9, rows))
    table = pa.table({"k": k, "n": range(rows), "x": random.normal(size=rows)})
    found = []
    for limit in (1 << 30, 200_000):
        most[0] = 0
        with memory(limit):
            view = tl.View(divided(table, 20_000, 10, 29_990)).window(30, 20, by="k", **BY_KEY)
            found.append(view.select(*BY_KEY).to_arrow())
        assert (most[0] == rows) if limit > 1 << 20 else (most[0] < rows / 10)
    assert found[0].equals(found[1])


def test_the_last_row_of_each_key_is_found_by_its_number():
    rows = [{"k": "a", "t": 1}, {"k": "b", "t": 5}, {"k": "a", "t": 3}]
    latest = (
        tl.View.from_rows(rows).sort("t", descending=True).window(by="k", n="row_number()").filter("n = 1")
    )
    assert values(latest, "k", "t") == [("b", 5), ("a", 3)]


def test_no_more_rows_are_in_memory_than_the_window_and_a_chunk():
    source = Counting(pa.table({"n": range(10_000)}))
    with tl.View(source).window(5, 20, s="sum(n)").cursor(["s"]) as cursor:
        assert cursor.move_next()
        assert source.cells["n"] <= 100
    assert source.open == 0


@pytest.mark.contract("view:C71")
def test_a_window_is_neither_shuffled_nor_divided_but_says_why():
    view = tl.View(divided(pa.table({"n": range(50)}), 25, 25)).window(1, 1, s="sum(n)")
    assert not view.can_shuffle
    assert serial(view, seed=4) == serial(view)
    assert len(view.cursor_set(["s"], 4)) == 1
    assert len(view.cursor_set(["n"], 2)) == 2
    assert "neighbours" in view.explain()
    agree(view)


def test_a_column_of_a_known_name_hides_the_old_one_and_the_window_sees_the_old():
    view = tl.View.from_arrow(pa.table({"x": [1, 2, 4], "y": [0, 0, 0]}))
    found = view.window(1, 0, x="sum(x)", z="first(x)")
    assert [(column.name, column.is_hidden) for column in found.schema] == [
        ("x", True),
        ("x", False),
        ("y", False),
        ("z", False),
    ]
    assert values(found, "x", "z") == [(1, 1), (3, 1), (6, 2)]
    assert found.node.passed(0) == (0, 0)


def test_long_windows_sum_exactly_too():
    numbers = [(-1) ** n * 10.0 ** (n % 30) for n in range(400)]
    found = values(tl.View.from_arrow(pa.table({"x": numbers})).window(200, 150, s="sum(x)"), "s")
    assert found == [math.fsum(numbers[max(0, at - 200) : at + 151]) for at in range(400)]


@pytest.mark.parametrize("by", [None, "k"])
def test_windows_of_many_rows_are_those_of_a_few_rows_at_a_time(by, monkeypatch):
    random, rows = np.random.default_rng(3), 2_000
    x = pa.array(random.integers(-9, 9, rows), mask=random.random(rows) < 0.1)
    k, s = random.integers(0, 30, rows), [f"row {n}" if n % 7 else None for n in range(rows)]
    view = tl.View.from_arrow(pa.table({"k": k, "x": x, "s": s, "b": random.random(rows) < 0.5}))
    made = view.window(3, 2, by=by, **AGGREGATES)
    at_once = made.to_arrow()
    monkeypatch.setattr(window, "_BLOCK", 50)
    monkeypatch.setattr(chunk, "_MANY", 1)  # by several threads
    assert made.to_arrow().equals(at_once)


def test_what_is_no_window_is_refused():
    view = tl.View.range(3)
    for arguments in ((-1,), (1, -1), (1.5,), (True,)):
        with pytest.raises(InputError):
            view.window(*arguments, s="sum(n)")
    for text in (
        "count(distinct n)",
        "lag(n, -1)",
        "n",
        "sum(n), 1",
        "sum(n) + 1",
        "row_number(n)",
        "rank()",
        "rank(n, 1)",
        "rank(n down)",
        "quantile(n)",
        "quantile(n, 1.1)",
        "quantile(n, x)",
        "quantile(n, 0.12345678912)",
    ):
        with pytest.raises((InputError, SchemaError)):
            view.window(1, 0, s=text)


def test_an_empty_view_has_empty_windows():
    empty = tl.View.range(0)
    assert empty.window(1, 1, s="sum(n)", c="collect(n)").to_arrow().num_rows == 0
    assert empty.window(1, 1, by="n", s="sum(n)").to_arrow().num_rows == 0
