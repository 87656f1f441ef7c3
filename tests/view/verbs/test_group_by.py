"""Groups and their aggregates, against aggregates written out in loops."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal, localcontext
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.examples import examples
from tests.view.verbs.reading import agree, divided, ids, memory, values
from trueline.errors import InputError, SchemaError
from trueline.identity import RowId
from trueline.view.execute.group_by import PartialGroups

NAN = float("nan")
AGGREGATES = {
    "rows": "count(*)",
    "there": "count(x)",
    "total": "sum(x)",
    "whole": "sum(i)",
    "mean": "avg(x)",
    "whole_mean": "avg(i)",
    "least": "min(x)",
    "most": "max(i)",
    "last_text": "max(s)",
    "opening": "first(x)",
    "closing": "last(s)",
    "kinds": "count(distinct s)",
    "all_of_them": "collect(i)",
    "some": "any(b)",
    "every": "all(b)",
    "made": "sum(i * 2 + 1)",
    "middle": "median(x)",
    "whole_middle": "median(i)",
    "high": "quantile(x, 0.9)",
    "low": "quantile(i, 0.25)",
    "spread": "variance(x)",
    "whole_spread": "variance(i)",
    "deviation": "stddev(x)",
    "texts": "count_distinct(s)",
    "share": "sum(i) / count(*) + coalesce(k, 7)",
}

row = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, 0.0, 1.0]),
        "x": st.none() | st.floats(-1e300, 1e300, allow_nan=False) | st.sampled_from([1e16, 1.0, -1e16, 0.1]),
        "i": st.none() | st.integers(-5, 5),
        "s": st.sampled_from([None, "a", "b"]),
        "b": st.none() | st.booleans(),
    }
)
SCHEMA = pa.schema({"k": pa.float64(), "x": pa.float64(), "i": pa.int64(), "s": pa.string(), "b": pa.bool_()})


def quantile(numbers, part):
    """What lies on the line between two neighbours, rounded once."""
    if not numbers:
        return None
    exact = sorted(map(Fraction, numbers))
    place = (len(exact) - 1) * part
    low = exact[math.floor(place)]
    return float(low + (exact[math.ceil(place)] - low) * (place - math.floor(place)))


def variance(numbers):
    """The variance of a sample as a fraction."""
    exact = list(map(Fraction, numbers))
    mean = sum(exact) / len(exact)
    return sum((each - mean) ** 2 for each in exact) / (len(exact) - 1)


def root(fraction):
    """The square root, correctly rounded: by so many digits that the next ones cannot matter."""
    with localcontext(prec=400):
        return float((Decimal(fraction.numerator) / Decimal(fraction.denominator)).sqrt())


def rounded(fraction):
    try:
        return float(fraction)
    except OverflowError:
        return math.inf


def looped(rows):
    """The aggregates of the rows of a group, the slow way."""

    def there(name):
        return [row[name] for row in rows if row[name] is not None]

    x, i, s, b = (there(name) for name in "xisb")
    total = float(sum(map(Fraction, x), Fraction(0))) if x else None
    return {
        "rows": len(rows),
        "there": len(x),
        "total": total,
        "whole": sum(i) if i else None,
        "mean": total / len(x) if x else None,
        "whole_mean": sum(i) / len(i) if i else None,
        "least": min(x, default=None),
        "most": max(i, default=None),
        "last_text": max(s, default=None),
        "opening": rows[0]["x"],
        "closing": rows[-1]["s"],
        "kinds": len(set(s)),
        "all_of_them": [row["i"] for row in rows],
        "some": any(b) if b else None,
        "every": all(b) if b else None,
        "made": sum(2 * each + 1 for each in i) if i else None,
        "middle": quantile(x, Fraction(1, 2)),
        "whole_middle": quantile(i, Fraction(1, 2)),
        "high": quantile(x, Fraction(9, 10)),
        "low": quantile(i, Fraction(1, 4)),
        "spread": rounded(variance(x)) if len(x) > 1 else None,
        "whole_spread": float(variance(i)) if len(i) > 1 else None,
        "deviation": root(variance(x)) if len(x) > 1 else None,
        "texts": len(set(s)),
        "share": sum(i) / len(rows) + (7 if rows[0]["k"] is None else rows[0]["k"]) if i else None,
    }


@settings(max_examples=examples(80))
@given(st.lists(row, max_size=25), st.sampled_from([1 << 30, 100]))
def test_groups_are_what_loops_would_give(rows, limit):
    groups = {}
    for number, each in enumerate(rows):
        groups.setdefault(each["k"], []).append((number, each))
    view = tl.View.from_arrow(pa.Table.from_pylist(rows, SCHEMA))
    with memory(limit):
        found = view.group_by("k").agg(**AGGREGATES).with_row_id("id").to_arrow().to_pylist()
    assert len(found) == len(groups)
    for (key, members), group in zip(groups.items(), found, strict=True):
        assert group.pop("id") == RowId(members[0][0]).bytes
        assert group.pop("k") == key
        assert group == looped([each for _, each in members])


def test_pieces_and_threads_do_not_change_a_bit():
    numbers = [math.sin(number) * 10.0 ** (number % 40 - 20) for number in range(999)]
    table = pa.table({"k": [number % 3 for number in range(999)], "x": numbers})
    expected = None
    for view in (
        tl.View.from_arrow(table),
        tl.View(divided(table, 1, 500, 498)),
        tl.View.from_arrow(table).cache(),
    ):
        found = view.group_by("k").agg(t="sum(x)", m="avg(x)").to_arrow().to_pydict()
        expected = expected or found
        assert found == expected
    exact = [float(sum(map(Fraction, numbers[start::3]))) for start in range(3)]
    assert expected["t"] == exact


def test_keys_that_are_missing_or_nan_make_groups():
    table = pa.table({"x": [NAN, None, -0.0, NAN, 0.0, None], "y": ["a", "a", "a", "a", "a", "b"]})
    view = tl.View.from_arrow(table)
    assert values(view.group_by("x").agg(n="count(*)"), "n") == [2, 2, 2]
    assert values(view.group_by("x", "y").agg(n="count(*)"), "n") == [2, 1, 2, 1]


def test_all_rows_are_one_group_where_no_column_is_named():
    view = tl.View.range(10)
    found = view.group_by().agg(total="sum(n)")
    assert found.to_arrow().to_pylist() == [{"total": 45}]
    assert ids(found) == [RowId(0)]
    assert view.limit(0).group_by().agg(total="sum(n)").count() == 0


def test_whole_numbers_that_do_not_fit_have_no_sum_but_an_average():
    most, least = 2**63 - 1, -(2**63)
    table = pa.table({"k": [0, 0, 1, 1, 1, 2], "x": [most, 1, most, most, least, least]})
    found = tl.View.from_arrow(table).group_by("k").agg(t="sum(x)", m="avg(x)").to_arrow().to_pydict()
    assert found["t"] == [None, most + most + least, least]
    assert found["m"] == [2.0**62, float((2 * most + least) / 3), float(least)]
    unsigned = tl.View.from_arrow(pa.table({"x": pa.array([2**64 - 1, 0], pa.uint64())})).group_by()
    assert unsigned.agg(t="sum(x)").to_arrow()["t"].to_pylist() == [2**64 - 1]
    assert unsigned.agg(t="sum(x)").schema["t"].type == tl.types.uint64


def test_decimals_and_durations_add_up():
    table = pa.table(
        {
            "d": pa.array([Decimal("0.01"), Decimal("-5.00"), None, Decimal("2.00")], pa.decimal128(5, 2)),
            "w": pa.array([Decimal(10) ** 37 * 9] * 2 + [None] * 2, pa.decimal128(38, 0)),
            "t": pa.array([1, 2, None, -8], pa.duration("s")),
        }
    )
    view = tl.View.from_arrow(table).group_by()
    assert view.agg(x="sum(d)").to_arrow()["x"].to_pylist() == [Decimal("-2.99")]
    assert view.agg(x="avg(d)").to_arrow()["x"].to_pylist() == [Decimal("-0.996667")]
    assert view.agg(x="sum(w)").to_arrow()["x"].to_pylist() == [None]
    assert view.agg(x="sum(t)").to_arrow()["x"].to_pylist() == [timedelta(seconds=-5)]
    assert view.agg(x="avg(t)").to_arrow()["x"].to_pylist() == [timedelta(seconds=-2)]


@pytest.mark.parametrize(
    ("kind", "data", "least", "most"),
    [
        (pa.float64(), [2.0, NAN, -1.0, None], -1.0, "NaN"),
        (pa.float32(), [NAN, None], "NaN", "NaN"),
        (pa.uint64(), [0, 2**64 - 1, None], 0, 2**64 - 1),
        (pa.int8(), [-128, 127, 0], -128, 127),
        (pa.bool_(), [True, None, False], False, True),
        (pa.string(), ["b", "", None, "é"], "", "é"),
        (pa.binary(), [b"b", None], b"b", b"b"),
        (pa.decimal128(4, 1), [Decimal("-1.5"), Decimal("1.5")], Decimal("-1.5"), Decimal("1.5")),
        (pa.date32(), [None, None], None, None),
    ],
    ids=str,
)
def test_extremes_follow_the_order_of_sort(kind, data, least, most):
    view = tl.View.from_arrow(pa.table({"x": pa.array(data, kind)}))
    found = view.group_by().agg(least="min(x)", most="max(x)")
    assert found.schema["least"].type == view.schema["x"].type
    (row,) = found.to_arrow().to_pylist()
    shown = ["NaN" if isinstance(each, float) and math.isnan(each) else each for each in row.values()]
    assert shown == [least, most]


def test_any_column_has_a_first_and_a_last_value():
    table = pa.table({"k": [1, 1, 2], "v": [[1.0], None, [2.0, 3.0]], "z": [{"a": 1}, {"a": 2}, None]})
    found = tl.View.from_arrow(table).group_by("k").agg(v="last(v)", z="first(z)", c="count(v)")
    assert found.to_arrow().to_pylist() == [
        {"k": 1, "v": None, "z": {"a": 1}, "c": 1},
        {"k": 2, "v": [2.0, 3.0], "z": None, "c": 1},
    ]


def test_only_what_the_wanted_aggregates_need_is_read():
    source = divided(pa.table({"k": [1, 2], "a": [1, 2], "b": [1, 2]}), 2)
    view = tl.View(source).group_by("k").agg(x="sum(a)", y="sum(b + 1)")
    view.select("x").to_arrow()
    assert source.cells == {"k": 2, "a": 2, "b": 0}
    view.select("y").to_arrow()
    assert source.cells == {"k": 4, "a": 2, "b": 2}
    assert view.node.passed(0) == (0, 0)
    assert view.node.passed(1) is None


def test_names_in_back_ticks_and_taken_names_are_understood():
    view = tl.View.from_arrow(pa.table({"unit price": [1, 2], "n * 2": [7, 7], "n": [1, 1]}))
    found = view.group_by("n").agg(a="sum(`unit price`)", b="SUM( n * 2 )", c="sum(`n * 2`)")
    assert found.to_arrow().to_pylist() == [{"n": 1, "a": 3, "b": 4, "c": 14}]


def test_what_is_no_aggregate_is_refused():
    view = tl.View.from_rows([{"k": "a", "x": 1, "v": [1.0]}]).group_by("k")
    for text in ("x", "medain(x)", "x + 1", "sum(sum(x))", "sum()", "sum(*)", "lag(x, 1)", "max(x, 1)", 3):
        with pytest.raises(InputError):
            view.agg(y=text)
    for text in ("sum(k)", "any(x)", "max(v)", "collect(v)", "count(distinct v)"):
        with pytest.raises(SchemaError, match="it takes"):
            view.agg(y=text)
    with pytest.raises(SchemaError, match="column of the key"):
        view.agg(k="count(*)")
    with pytest.raises(SchemaError, match="no column 'q'"):
        view.agg(y="sum(q)")
    with pytest.raises(SchemaError, match="cannot compare"):
        tl.View.from_rows([{"v": [1.0]}]).group_by("v")


def test_groups_follow_the_laws_of_reading():
    table = pa.table({"k": [number % 11 for number in range(100)], "n": range(100)})
    view = tl.View(divided(table, 30, 70)).group_by("k").agg(s="sum(n)", c="collect(n)")
    assert len(agree(view)) == 11
    with memory(500):
        assert len(agree(view, sets=(3,))) == 11


@pytest.mark.contract("exchange:E10")
def test_a_key_with_most_of_the_rows_is_never_whole_in_memory(monkeypatch):
    rows = 20_000
    table = pa.table(
        {
            "k": [0 if number % 10 else number for number in range(rows)],
            "x": [math.sin(number) * 10.0 ** (number % 30 - 15) for number in range(rows)],
            "s": [f"text {number % 7}" for number in range(rows)],
        }
    )
    texts = {"n": "count(*)", "t": "sum(x)", "m": "avg(x)", "l": "max(s)", "f": "first(s)", "c": "last(x)"}
    view = tl.View(divided(table, 7_000, 7_000, 6_000)).group_by("k").agg(**texts, d="count(distinct s)")
    expected = view.with_row_id("id").to_arrow()
    held = []
    merged = PartialGroups.groups

    def watched(self, chunk):
        held.append(max(chunk.arrays[0].value_counts().field("counts").to_pylist()))
        return merged(self, chunk)

    monkeypatch.setattr(PartialGroups, "groups", watched)
    with memory(40_000):  # about a twentieth of the rows
        assert view.with_row_id("id").to_arrow().equals(expected)
    # The rows of the one key came in a few parts, in files between.
    assert len(held) > 1
    assert max(held) < 200
