"""Queries with the strategy that each follows its inputs by, or the code that says why it is recomputed.

They are small, one or two for each code, and what is said of them needs no Spark; the queries of `queries.py`
are judged by Spark, too.
"""

from __future__ import annotations

from typing import Final

from trueline.workspace.derive.strategies.classify import InputFacts

INPUTS: Final = {"t": InputFacts(), "s": InputFacts()}
QUERIES: Final = [
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
