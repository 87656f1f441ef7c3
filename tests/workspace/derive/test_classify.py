"""Which queries follow by the increment, and the stable code of those that do not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from trueline.workspace.derive.strategies.accumulators import accumulation, parsed
from trueline.workspace.derive.strategies.classify import REASONS, InputFacts, classify
from trueline.workspace.derive.strategies.increment import Impossible
from trueline.workspace.derive.strategies.keyed import check_accumulators

INPUTS = {"t": InputFacts(), "s": InputFacts()}
QUERIES = [
    ("select t.a from t where t.b > 1", "stateless", ""),
    ("select t.a as a from t union all select s.a as a from s", "stateless", ""),
    ("select t.a, e.z from t lateral view explode(t.b) e as z", "stateless", ""),
    ("with q as (select t.a + 1 as a from t) select q.a from q order by q.a", "stateless", ""),
    ("select q.a from (select t.a from t) as q", "stateless", ""),
    ("select t.a, count(*) as n from t group by t.a having count(*) > 1", "keyed", ""),
    ("select t.a + 1 as a, (t.a + 1) * sum(t.b) as n from t group by t.a + 1", "keyed", ""),
    ("select min(t.a) as n, every(t.b) as e from t", "keyed", ""),
    ("select distinct t.a, t.b from t", "keyed", ""),
    ("with q as (select t.a from t) select q.a, count(*) as n from q group by q.a", "keyed", ""),
    ("select t.a, count(distinct t.b) as n, collect_list(t.b) as c from t group by t.a", "keyed", ""),
    ("select t.a from t join s on t.a = s.a", "recompute", "join"),
    ("select t.a from t, s", "recompute", "join"),
    ("select t.a, count(*) as n from t join s on t.a = s.a group by t.a", "recompute", "join"),
    ("select sum(t.a) over (partition by t.b) as n from t", "recompute", "window"),
    ("select t.a, sum(count(*)) over () as n from t group by t.a", "recompute", "window"),
    ("select t.a from t where t.a in (select s.a from s)", "recompute", "subquery"),
    ("select t.a, (select max(s.a) from s) as m from t", "recompute", "subquery"),
    ("select t.a from t order by t.a limit 3", "recompute", "limit"),
    ("select t.a, count(*) as n from t group by t.a limit 3", "recompute", "limit"),
    ("select t.a from t union select s.a from s", "recompute", "set_operation"),
    ("select t.a from t except select s.a from s", "recompute", "set_operation"),
    ("select t.a, count(*) as n from t group by rollup(t.a)", "recompute", "grouping_sets"),
    ("select t.a, count(*) as n from t group by cube(t.a)", "recompute", "grouping_sets"),
    (
        "select max(q.n) as m from (select count(*) as n from t group by t.a) as q",
        "recompute",
        "nested_aggregate",
    ),
    ("select count(*) as n from t union all select count(*) as n from s", "recompute", "several_aggregates"),
    ("select * from t pivot (sum(b) for a in (1, 2))", "recompute", "pivot"),
    ("select t.a from t tablesample (10 percent)", "recompute", "pivot"),
    ("select x.a from elsewhere as x", "recompute", "table"),
    ("select t.b, count(*) as n from t group by t.a", "recompute", "ungrouped"),
    ("select some_function_of_tomorrow(t.a) as n from t", "recompute", "operator"),
    ("select from where", "recompute", "opaque"),
]


@pytest.mark.contract("derive:V19")
@pytest.mark.parametrize(("text", "strategy", "reason"), QUERIES)
def test_a_query_has_a_strategy_or_a_reason(text, strategy, reason):
    verdict = classify(text, INPUTS)
    assert (verdict.strategy, verdict.reason) == (strategy, reason)
    assert verdict.is_incremental == (strategy != "recompute")
    assert bool(verdict.explained) == bool(reason)


def test_every_reason_is_explained_and_shown_by_a_query():
    asked_of_spark = {"steps", "inexact", "key_type"}
    assert {reason for _, _, reason in QUERIES if reason} | asked_of_spark == set(REASONS)


def test_every_reason_is_in_the_documentation():
    page = (Path(__file__).parents[3] / "docs" / "incremental.md").read_text(encoding="utf-8")
    assert [code for code, why in REASONS.items() if f"| `{code}` | {why} |" not in page] == []


def test_a_function_that_is_not_known_may_be_an_aggregate_unless_spark_says_otherwise():
    text = "select some_function_of_tomorrow(t.a) as n from t"
    assert classify(text, INPUTS, operators={"Project", "SubqueryAlias", "View"}).strategy == "stateless"
    assert classify(text, INPUTS, operators={"Aggregate", "SubqueryAlias", "View"}).reason == "operator"
    assert classify("select t.a from t", INPUTS, operators={"Deduplicate", "View"}).reason == "operator"


@pytest.mark.contract("derive:V4")
def test_a_plain_sum_of_doubles_is_not_an_accumulator():
    made = accumulation(parsed("select sum(t.x) as s, max(t.x) as m from t"), append_only=True)
    exact = pa.schema({"a0": pa.int64(), "a1": pa.int64(), "a2": pa.float64()})
    assert list(made.sums.values()) == ["sum", "sum", "max"]
    check_accumulators(made, exact)
    with pytest.raises(Impossible, match="inexact"):
        check_accumulators(made, exact.set(0, pa.field("a0", pa.float64())))


def test_extremes_of_inputs_that_lose_rows_are_computed_from_values():
    query = parsed("select t.k, min(t.x) as lo, count(*) as n from t group by t.k")
    assert accumulation(query, append_only=True).values == ()
    kept = accumulation(query, append_only=False)
    assert kept.values == ("v0",)
    assert kept.kept == ("k0", "n", "a0", "m")
