"""Aggregates of unusual numbers, and how they are written."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest

import trueline as tl
from tests.view.verbs.reading import divided
from tests.view.verbs.test_group_by import quantile, root, variance
from trueline.errors import InputError, SchemaError
from trueline.view.plan.aggregates import _IN_GROUPS, _IN_WINDOWS

INF, NAN = math.inf, math.nan


def of(data, kind, **texts):
    """Aggregates of one column `x`."""
    view = tl.View.from_arrow(pa.table({"x": pa.array(data, kind)}))
    (row,) = view.group_by().agg(**texts).to_arrow().to_pylist()
    return row


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ([-(1 << 63), (1 << 63) - 1, 0, None, -1], pa.int64()),
        ([(1 << 64) - 1, (1 << 64) - 2, 1], pa.uint64()),
        ([-128, 127, 5], pa.int8()),
        ([0.1, 0.2, 0.30000001192092896], pa.float32()),
        ([5e-324, 1e-320, -5e-324], pa.float64()),
        ([1e16, 1e16 + 2, 1e16 + 4], pa.float64()),
        ([1e200, -1e200, 3.0], pa.float64()),
        ([0.0, -0.0, 0.0], pa.float64()),
        ([Decimal("-" + "9" * 19 + "." + "9" * 19), Decimal("0.1"), None, Decimal(7)], pa.decimal128(38, 19)),
        ([Decimal("-" + "9" * 50), Decimal("9" * 50)], pa.decimal256(60, 0)),
    ],
    ids=str,
)
def test_deviations_and_quantiles_are_rounded_once(data, kind):
    given = pa.array(data, kind).to_pylist()
    there = [each for each in given if each is not None]
    found = of(data, kind, v="variance(x)", s="stddev(x)", m="median(x)", q="quantile(x, 0.999999999)")
    exact = variance(there)
    assert found["s"] == root(exact)
    assert found["v"] == (INF if exact > Fraction(1.7976931348623157e308) else float(exact))
    assert found["m"] == quantile(there, Fraction(1, 2))
    assert found["q"] == quantile(there, Fraction(999_999_999, 1_000_000_000))


def test_what_is_not_finite_has_no_deviation_but_a_median():
    texts = {"v": "variance(x)", "s": "stddev(x)", "m": "median(x)", "q": "quantile(x, 1)"}
    infinite = of([1.0, 2.0, INF], pa.float64(), **texts)
    assert math.isnan(infinite["v"])
    assert math.isnan(infinite["s"])
    assert (infinite["m"], infinite["q"]) == (2.0, INF)
    assert of([1.0, INF, INF, INF], pa.float64(), m="median(x)") == {"m": INF}
    assert of([-INF, -INF, 1.0], pa.float64(), m="quantile(x, 0.25)") == {"m": -INF}
    assert math.isnan(of([-INF, INF], pa.float64(), m="median(x)")["m"])
    assert math.isnan(of([1.0, NAN], pa.float64(), m="median(x)")["m"])
    assert of([1.0, NAN, -1.0], pa.float64(), m="median(x)") == {"m": 1.0}


def test_one_value_has_a_median_and_no_deviation_and_none_has_neither():
    texts = {"v": "variance(x)", "s": "stddev(x)", "m": "median(x)"}
    assert of([3, None], pa.int64(), **texts) == {"v": None, "s": None, "m": 3.0}
    assert of([None], pa.int64(), **texts) == {"v": None, "s": None, "m": None}
    assert math.copysign(1, of([-0.0], pa.float64(), m="median(x)")["m"]) == 1.0


def test_pieces_do_not_change_a_bit_of_a_deviation():
    numbers = [math.sin(number) * 10.0 ** (number % 40 - 20) for number in range(999)]
    table = pa.table({"k": [number % 3 for number in range(999)], "x": numbers})
    texts = {"s": "stddev(x)", "v": "variance(x)", "m": "median(x)", "q": "quantile(x, 0.1)"}
    found = [
        view.group_by("k").agg(**texts).to_arrow().to_pydict()
        for view in (
            tl.View.from_arrow(table),
            tl.View(divided(table, 1, 500, 498)),
            tl.View.from_arrow(table).sort("x").sort("k"),
        )
    ]
    assert found[0] == found[1] == found[2]
    assert found[0]["v"] == [float(variance(numbers[start::3])) for start in range(3)]


# --- how they are written -----------------------------------------------------------------------


def test_an_expression_may_be_made_of_aggregates():
    view = tl.View.from_rows(
        [{"k": "a", "x": 1, "y": 4.0}, {"k": "a", "x": 2, "y": None}, {"k": "b", "x": 3, "y": 8.0}]
    )
    found = view.group_by("k").agg(
        mean="sum(x) / count(*)",
        n="count(*)",
        named="concat(upper(k), ':', cast(count(*) as text))",
        spread="case when max(x) > min(x) then 'wide' else 'narrow' end",
        scaled="round(avg(y + x) * :rate, 1)",
        rate=10,
        text="concat('sum(x)', first(k))",
    )
    assert found.columns == ("k", "mean", "n", "named", "spread", "scaled", "text")
    assert found.to_arrow().to_pylist() == [
        {"k": "a", "mean": 1.5, "n": 2, "named": "A:2", "spread": "wide", "scaled": 50.0, "text": "sum(x)a"},
        {
            "k": "b",
            "mean": 3.0,
            "n": 1,
            "named": "B:1",
            "spread": "narrow",
            "scaled": 110.0,
            "text": "sum(x)b",
        },
    ]
    # Ids are those of the first rows, whatever is computed from the aggregates.
    assert [str(row) for row in found.with_row_id("id").select("id").to_arrow()["id"].to_pylist()] == [
        str(row)
        for row in view.group_by("k")
        .agg(n="count(*)")
        .with_row_id("id")
        .select("id")
        .to_arrow()["id"]
        .to_pylist()
    ]


def test_each_aggregate_of_expressions_is_made_once_and_read_only_where_it_is_wanted():
    view = tl.View.from_rows([{"x": 1, "y": 2}])
    found = view.group_by().agg(a="sum(x) + 1", b="sum(x) + sum(y)")
    assert "grouped by nothing, with sum(x) = sum(x), sum(y) = sum(y)" in found.explain()
    assert "y" not in found.explain("a").rsplit("reads", 1)[1]


def test_names_that_are_taken_are_left_alone():
    view = tl.View.from_arrow(pa.table({"sum(x)": [7], "x": [1]}))
    found = view.group_by("sum(x)").agg(y="sum(x) * 2")
    assert found.to_arrow().to_pydict() == {"sum(x)": [7], "y": [2]}


def test_other_names_of_aggregates_are_understood():
    found = of(
        [1, 2, 4],
        pa.int64(),
        a="mean(x)",
        b="STD(x)",
        c="var_samp(x)",
        d="percentile(x, 0.5)",
        e="n_unique(x)",
        f="collect_list(x)",
        g="count()",
    )
    same = of(
        [1, 2, 4],
        pa.int64(),
        a="avg(x)",
        b="stddev(x)",
        c="variance(x)",
        d="median(x)",
        e="count(distinct x)",
        f="collect(x)",
        g="count(*)",
    )
    assert found == same


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("sum(avg(x))", "aggregate twice"),
        ("medain(x)", "did you mean median"),
        ("approx_count_distinct(x)", "count_distinct(x) is exact"),
        ("x", "write one of count"),
        ("sum(distinct x)", "write one of count"),
        ("sum(x, 2)", "write sum(x)"),
        ("quantile(x)", "quantile(x, 0.9)"),
        ("quantile(x, 2)", "quantile(x, 0.9)"),
        ("sum(x) + median(x", "docs/expressions.md"),
    ],
)
def test_what_is_wrong_with_an_aggregate_is_said_with_what_to_write(text, remedy):
    with pytest.raises(InputError) as caught:
        tl.View.from_rows([{"x": 1}]).group_by().agg(y=text)
    assert caught.value.code == "BadExpression"
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("name", sorted(_IN_GROUPS))
def test_an_aggregate_of_another_language_says_what_to_write_and_that_works(name):
    view = tl.View.from_rows([{"x": 1}, {"x": 3}])
    with pytest.raises(InputError) as caught:
        view.group_by().agg(y=f"{name}(x)")
    assert caught.value.remedy == f"instead of {name}: {_IN_GROUPS[name]}"
    text = re.match(r"[a-z_]+\(.*\)", _IN_GROUPS[name])
    if text and name not in ("mode", "collect_set"):
        assert view.group_by().agg(y=text[0]).count() == 1


@pytest.mark.parametrize("name", sorted(_IN_WINDOWS))
def test_what_to_write_in_a_window_works_there(name):
    view = tl.View.from_rows([{"x": 1}, {"x": 3}])
    with pytest.raises(InputError) as caught:
        view.window(1, y=f"{name}(x)")
    assert caught.value.remedy == f"instead of {name}: {_IN_WINDOWS[name]}"
    text = re.match(r"[a-z_]+\(.*?\)", _IN_WINDOWS[name])
    assert view.window(1, y=text[0]).count() == 2


def test_the_deviation_of_all_is_made_of_that_of_a_sample():
    found = of([1, 2, 4], pa.int64(), s=_IN_GROUPS["stddev_pop"], v=_IN_GROUPS["var_pop"])
    assert found == {"s": pytest.approx(math.sqrt(14 / 9)), "v": pytest.approx(14 / 9)}


def test_a_column_outside_of_all_aggregates_is_refused_by_name():
    groups = tl.View.from_rows([{"k": 1, "x": 1}]).group_by("k")
    with pytest.raises(SchemaError, match="'x' is outside all aggregates") as caught:
        groups.agg(y="sum(x) / x")
    assert "first(`x`)" in caught.value.remedy
    assert groups.agg(y="sum(x) / first(`x`)").to_arrow()["y"].to_pylist() == [1.0]
    with pytest.raises(SchemaError, match="no column 'z'"):
        groups.agg(y="sum(x) / z")


def test_a_value_of_the_first_row_is_the_column_itself():
    table = pa.table([pa.array([1, 0], pa.uint32())], pa.schema([tl.types.field("c", tl.types.category(2))]))
    view = tl.View.from_arrow(table)
    found = view.group_by().agg(f="first(c)", l="last(c)")
    assert found.origin("f").column == "c"
    assert found.origin("l") is None
