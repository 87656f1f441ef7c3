"""A definition whose result is not a function of its inputs is refused, with function, place and reason."""

from __future__ import annotations

import pytest

from trueline.errors import IrreproducibleQuery
from trueline.workspace.derive.reproducible import REFUSED, check_calls, check_reproducible


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_each_is_refused_where_it_is_called(name):
    text = f"select x,\n  {name.upper()} (x) from t"
    with pytest.raises(IrreproducibleQuery) as caught:
        check_reproducible(text)
    assert caught.value.fields["line"] == 2
    assert caught.value.fields["column"] == 3
    assert caught.value.remedy


@pytest.mark.contract("derive:V5")
def test_what_everybody_knows_to_differ_from_run_to_run_is_in_the_list():
    known = """now current_timestamp current_date localtimestamp rand randn random uuid shuffle
        input_file_name monotonically_increasing_id spark_partition_id approx_count_distinct approx_percentile
        percentile_approx approx_top_k current_user"""
    assert set(known.split()) <= set(REFUSED)


@pytest.mark.parametrize("name", ["current_date", "current_timestamp", "localtimestamp"])
def test_some_need_no_brackets(name):
    with pytest.raises(IrreproducibleQuery, match=name):
        check_reproducible(f"select {name} from t")


def test_rows_taken_by_chance_are_refused():
    with pytest.raises(IrreproducibleQuery, match="by chance"):
        check_reproducible("select * from t tablesample (10 percent)")


@pytest.mark.parametrize(
    "text",
    [
        "select rand from t",
        "select 'now()' from t -- rand()",
        "select /* uuid() */ x from t",
        "select first_value(x) over (order by y) from t",
    ],
)
def test_names_texts_and_comments_are_not_calls(text):
    check_reproducible(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("select `rand`() from t", "rand"),
        ("select system.builtin.now() from t", "now"),
        ("select timestamp 'now' from t", "timestamp 'now'"),
        ("select date ' Yesterday' from t", "date"),
        ("select unix_timestamp() from t", "unix_timestamp"),
        ("select first_value(x) from t", "first_value"),
        ("select any_value(x) filter (where y > (1)) from t", "any_value"),
    ],
)
def test_other_ways_to_the_same_are_refused(text, what):
    with pytest.raises(IrreproducibleQuery, match=what):
        check_reproducible(text)


@pytest.mark.parametrize(
    "text",
    [
        "select first(x) over (order by y) from t",
        "select last_value(x) ignore nulls over (order by (y)) from t",
        "select first(x) filter (where (y > 1)) over w from t window w as (order by y)",
        "select unix_timestamp(ts), timestamp '2026-01-01', 'now' from t",
    ],
)
def test_a_window_gives_an_order(text):
    check_reproducible(text)


def test_a_function_of_spark_that_is_not_known_is_refused():
    with pytest.raises(IrreproducibleQuery, match="not known here"):
        check_calls("select brand_new(x) from t", frozenset({"brand_new"}))
