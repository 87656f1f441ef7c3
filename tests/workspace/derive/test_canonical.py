"""Canonical queries: sums are exact, whatever the numbers and however rows are cut."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import trueline as tl
from trueline.workspace.derive.canonical import NotCanonical, canonical
from trueline.workspace.derive.evaluate import query_session, with_room
from trueline.workspace.derive.exact import widened
from trueline.workspace.derive.spark_sql import parsed

MOST = (1 << 63) - 1


def answered(workspace, table, text, partitions=3):
    """Return the rows of the canonical form of a query over one table, called t."""
    with query_session(workspace, {"t": tl.View.from_arrow(table)}) as session:
        session.session.conf.set("spark.sql.shuffle.partitions", str(partitions))
        made = canonical(parsed(text), session.types).text
        return with_room(
            lambda wide: session.session.sql(widened(made) if wide else made).toArrow().to_pylist()
        )


def bits(number):
    return None if number is None else "nan" if math.isnan(number) else struct.pack(">d", number).hex()


def exact(numbers):
    some = [number for number in numbers if number is not None]
    if not some:
        return None
    if any(map(math.isnan, some)) or (math.inf in some and -math.inf in some):
        return math.nan
    if math.inf in some or -math.inf in some:
        return math.inf if math.inf in some else -math.inf
    return float(sum(map(Fraction, some))) + 0.0


def nasty(groups=300):
    """Return numbers that cancel, of many sizes, with zeros, infinities, NaN and nulls among them."""
    random = np.random.default_rng(5)
    rows = []
    for group in range(groups):
        match group % 6:
            case 0:
                numbers = random.uniform(-1000, 1000, 20).tolist()
            case 1:
                numbers = random.choice([1e16, 1.0, -1e16, 0.1], 20).tolist()
            case 2:
                whole = random.integers(0, 1 << 53, 20)
                numbers = [math.ldexp(float(each), int(random.integers(-96, 9))) for each in whole]
            case 3:
                numbers = [0.0, -0.0, None, -0.0]
            case 4:
                numbers = random.choice([math.nan, math.inf, -math.inf, 1.0, 2.0, 3.0], 3).tolist()
            case _:
                numbers = [None]
        rows += [(group, number) for number in numbers]
    order = random.permutation(len(rows))
    return pa.table({"k": [rows[at][0] for at in order], "x": [rows[at][1] for at in order]})


@pytest.mark.contract("derive:V4")
@pytest.mark.parametrize("partitions", [1, 7])
def test_sums_and_averages_of_doubles_are_exact(spark_workspace, partitions):
    table = nasty()
    found = answered(spark_workspace, table, "select k, sum(x) s, avg(x) a from t group by k", partitions)
    groups: dict[int, list[float | None]] = {}
    for row in table.to_pylist():
        groups.setdefault(row["k"], []).append(row["x"])
    assert len(found) == len(groups)
    for row in found:
        numbers = groups[row["k"]]
        total, count = exact(numbers), sum(number is not None for number in numbers)
        assert bits(row["s"]) == bits(total)
        assert bits(row["a"]) == bits(None if total is None else total / count)


def test_only_the_total_of_whole_numbers_can_be_too_large(spark_workspace):
    table = pa.table({"x": [MOST, 1, -1]})
    assert answered(spark_workspace, table, "select sum(x) s from t") == [{"s": MOST}]
    with pytest.raises(Exception, match="OVERFLOW"):
        answered(spark_workspace, pa.table({"x": [MOST, 1]}), "select sum(x) s from t")


def test_zeros_and_nan_have_one_form_where_rows_are_compared(spark_workspace):
    table = pa.table({"x": [-0.0, 0.0, math.nan, -math.nan]})
    for text in (
        "select distinct x from t",
        "select x from t group by x",
        "select x from t union select x from t",
        "select min(x) x from t where x = 0",
    ):
        found = [bits(row["x"]) for row in answered(spark_workspace, table, text)]
        assert sorted(found) in (["0" * 16, "nan"], ["0" * 16]), text


def test_rows_that_tie_have_an_order(spark_workspace):
    table = pa.table({"k": [1] * 50, "x": list(range(50))})
    text = "select x, row_number() over (order by k) n from t order by k limit 5"
    found = answered(spark_workspace, table, text)
    assert [(row["x"], row["n"]) for row in found] == [(n, n + 1) for n in range(5)]


def test_collected_values_are_sorted(spark_workspace):
    table = pa.table({"x": [3, 1, 2, None]})
    assert answered(spark_workspace, table, "select collect_list(x) c from t") == [{"c": [1, 2, 3]}]


@pytest.mark.parametrize("text", ["select first(x) from t", "select stddev(distinct x) from t"])
def test_what_has_no_canonical_form_says_why(spark_workspace, text):
    with pytest.raises(NotCanonical):
        answered(spark_workspace, pa.table({"x": [0.5]}), text)


@pytest.mark.contract("derive:V4")
def test_sums_and_deviations_of_numbers_of_all_sizes_are_exact(spark_workspace):
    random = np.random.default_rng(7)
    whole = random.integers(-(1 << 53), 1 << 53, 400)
    numbers = [math.ldexp(float(each), int(random.integers(-1074, 960))) for each in whole]
    groups = [at % 20 for at in range(400)]
    text = "select k, sum(x) over (partition by k) w from t"
    grouped = "select k, sum(x) s, var_pop(x) v from t group by k"
    table = pa.table({"k": groups, "x": numbers})
    by_window = {row["k"]: row for row in answered(spark_workspace, table, text)}
    for row in answered(spark_workspace, table, grouped):
        own = [Fraction(number) for number, group in zip(numbers, groups, strict=True) if group == row["k"]]
        spread = sum(each * each for each in own) / len(own) - (sum(own) / len(own)) ** 2
        assert bits(row["s"]) == bits(exact([float(each) for each in own]))
        assert row["v"] == (float(spread) if spread < 2**1024 else math.inf)
        assert bits(by_window[row["k"]]["w"]) == bits(row["s"])
