"""A library of queries for tests of derived datasets, over small tables with everything that goes wrong.

`t` has nulls, both zeros, NaN, infinities, numbers that cancel and that are too large or too small for the
fast form of exact sums (`x`), ordinary numbers (`y`), ties (`d`), whole numbers that overflow on the
way (`n`);
`u` has a row for some values of `k`, and two for one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Final

import pyarrow as pa

import trueline as tl
from trueline.workspace.derive.strategies.classify import KEYED, RECOMPUTE, STATELESS

MOST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Query:
    """A query; `kind` is what the judge makes of it: canonical, opaque, or the code it is refused with.

    `duckdb` is what DuckDB is asked for the same rows: the same text, another, or nothing. `how` is the
    strategy by which it follows its inputs, of which only `u` never loses rows, or the code of why it is
    recomputed.
    """

    name: str
    sql: str
    kind: str = "canonical"
    duckdb: str | bool = True
    key: tuple[str, ...] | None = None
    how: str = ""

    @property
    def is_run(self) -> bool:
        """Whether it is not refused."""
        return self.kind in ("canonical", "opaque")

    @property
    def strategy(self) -> str:
        """The strategy by which it follows its inputs."""
        return self.how if self.how in (STATELESS, KEYED) else RECOMPUTE

    @property
    def reason(self) -> str:
        """Why it is recomputed, if it is: a stable code."""
        return self.how if self.strategy == RECOMPUTE else ""


def tables() -> dict[str, pa.Table]:
    """Return the tables of the library."""
    rows = 210
    strange = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 1e-40, 1e16, -1e16, 0.1, None]
    words = ["a", "b", "A", "", None, "ä", "zz"]
    t = pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "k": pa.array([None if at % 17 == 0 else at % 7 for at in range(rows)], pa.int32()),
            "d": pa.array([at % 3 for at in range(rows)], pa.int32()),
            "x": pa.array([strange[(at * 5) % 13] for at in range(rows)], pa.float64()),
            "f": pa.array([None if at % 11 == 0 else at / 7 - 9 for at in range(rows)], pa.float32()),
            "y": pa.array(
                [None if at % 13 == 0 else (at * 37 % 101) / 10 for at in range(rows)], pa.float64()
            ),
            "n": pa.array([(MOST, 1, -1, -MOST, None)[at % 5] for at in range(rows)], pa.int64()),
            "i": pa.array([at * 31 % 100 for at in range(rows)], pa.int64()),
            "m": pa.array([Decimal(at * 7 % 50) / 4 for at in range(rows)], pa.decimal128(12, 2)),
            "s": pa.array([words[at * 3 % 7] for at in range(rows)], pa.string()),
            "b": pa.array([None if at % 9 == 0 else at % 2 == 0 for at in range(rows)], pa.bool_()),
            "day": pa.array([date(2026, 1 + at % 4, 1 + at % 28) for at in range(rows)], pa.date32()),
            "ts": pa.array(
                [datetime(2026, 1, 1, at % 24, at % 60) for at in range(rows)], pa.timestamp("us", "UTC")
            ),
            "l": pa.array([list(range(at % 4)) for at in range(rows)], pa.list_(pa.int64())),
        }
    )
    u = pa.table({"k": pa.array([1, 2, 2, 5, 9], pa.int32()), "name": ["one", "two", "zwei", "five", "nine"]})
    return {"t": t, "u": u}


KEYS: Final = {"t": ("id",)}
# How rows of a table come into a dataset, where not by appending them.
MERGE: Final = {"t": tl.merge.upsert("id")}

QUERIES: Final = (
    # --- by row -----------------------------------------------------------------------------------
    Query("all columns", "select * from u", how="stateless"),
    Query("projection", "select id, y * 2 as z from t where i > 50", key=("id",), how="stateless"),
    Query("zeros and nan", "select id, x, -x as minus from t", duckdb=False, key=("id",), how="stateless"),
    Query("floats", "select id, f, f * 2 as g from t", key=("id",), how="stateless"),
    Query(
        "case",
        "select id, case when y > 5 then 'high' when y is null then 'none' else 'low' end as c from t",
        how="stateless",
    ),
    Query("lateral alias", "select id, y + 1 as a, a * 2 as b from t", "opaque", how="round_trip"),
    Query(
        "functions",
        "select id, upper(s) as u, length(s) as n, coalesce(s, '-') as c, abs(i - 50) as a from t",
        how="stateless",
    ),
    Query(
        "nested",
        "select id, named_struct('x', x, 'l', array(-0.0D, x)) as v from t",
        duckdb=False,
        how="stateless",
    ),
    Query(
        "explode",
        "select id, explode(l) as v from t",
        duckdb="select id, unnest(l) as v from t",
        how="stateless",
    ),
    Query("explode doubles", "select explode(array(x, -0.0D)) as v from t", duckdb=False, how="stateless"),
    Query(
        "lateral view",
        "select t.id, e.p, e.v from t lateral view posexplode(l) e as p, v",
        duckdb=False,
        key=("id", "p"),
        how="stateless",
    ),
    Query("in", "select id from t where s in ('a', 'b') and k between 2 and 4", key=("id",), how="stateless"),
    Query("typed null", "select id, cast(null as double) as z from t where id < 5", how="stateless"),
    # --- aggregates -------------------------------------------------------------------------------
    Query("count", "select k, count(*) as n, count(y) as c from t group by k", key=("k",), how="keyed"),
    Query("sum and avg", "select k, sum(y) as s, avg(y) as a from t group by k", key=("k",), how="keyed"),
    Query(
        "strange sums",
        "select k, sum(x) as s, avg(x) as a from t group by k",
        duckdb=False,
        key=("k",),
        how="keyed",
    ),
    Query(
        "finite strange sums",
        "select d, sum(x) as s from t where abs(x) < double('inf') group by d",
        duckdb=False,
        how="keyed",
    ),
    Query(
        "tiny sums",
        "select d, sum(x) as s from t where abs(x) < 1e-30D group by d",
        duckdb=False,
        how="keyed",
    ),
    Query("float sums", "select d, sum(f) as s, avg(f) as a from t group by d", how="keyed"),
    Query("mean and std", "select k, mean(y) as m, std(y) as s from t group by k", duckdb=False, how="keyed"),
    Query(
        "whole sums",
        "select sum(n) as s from t where id < 120",
        duckdb="select sum(n)::bigint as s from t where id < 120",
        how="keyed",
    ),
    Query(
        "whole averages",
        "select d, avg(i) as a, sum(i) as s from t group by d",
        duckdb="select d, avg(i) as a, sum(i)::bigint as s from t group by d",
        how="keyed",
    ),
    Query("decimal sums", "select d, sum(m) as s from t group by d", how="keyed"),
    Query(
        "try sums", "select k, try_sum(n) as s, try_avg(y) as a from t group by k", duckdb=False, how="keyed"
    ),
    Query(
        "filtered sums",
        "select k, sum(y) filter (where i > 50) as s, count(*) filter (where b) as c from t group by k",
        how="keyed",
    ),
    Query(
        "variance",
        "select k, variance(y) as v, stddev(y) as s, var_pop(y) as p, stddev_pop(y) as q from t group by k",
        how="keyed",
    ),
    Query("strange variance", "select d, var_samp(x) as v from t group by d", duckdb=False, how="keyed"),
    Query(
        "large variance",
        "select d, stddev_pop(x) as v from t where abs(x) < double('inf') group by d",
        duckdb=False,
        how="keyed",
    ),
    Query(
        "covariance",
        "select d, covar_pop(y, i) as c, covar_samp(y, i) as s, corr(y, i) as r from t group by d",
        how="keyed",
    ),
    Query(
        "min and max",
        "select k, min(x) as a, max(x) as b, min(s) as c, max(day) as e from t group by k",
        duckdb=False,
        how="keyed",
    ),
    Query("extremes", "select k, min(y) as a, max(y) as b, max(day) as e from t group by k", how="keyed"),
    Query(
        "distinct",
        "select d, count(distinct x) as a, count(distinct k, s) as b from t group by d",
        duckdb=False,
        how="keyed",
    ),
    Query(
        "distinct counts",
        "select d, count(distinct k) as a, count(distinct s) as b from t group by d",
        how="keyed",
    ),
    Query(
        "distinct sums",
        "select d, sum(distinct y) as a, avg(distinct y) as b, sum(distinct i) as c from t group by d",
        duckdb=(
            "select d, sum(distinct y) as a, avg(distinct y) as b, sum(distinct i)::bigint "
            "as c from t group by d"
        ),
        how="keyed",
    ),
    Query(
        "bools",
        "select k, bool_and(b) as a, any(b) as o, every(i > 2) as e, count_if(b) as c from t group by k",
        duckdb=(
            "select k, bool_and(b) as a, bool_or(b) as o, bool_and(i > 2) as e, "
            "count_if(b)::bigint as c from t group by k"
        ),
        how="keyed",
    ),
    Query(
        "bits", "select d, bit_and(i) as a, bit_or(i) as o, bit_xor(i) as x from t group by d", how="keyed"
    ),
    Query(
        "percentiles",
        "select d, median(y) as m, percentile(y, 0.3) as p from t group by d",
        duckdb="select d, median(y) as m, quantile_cont(y, 0.3) as p from t group by d",
        how="keyed",
    ),
    Query(
        "percentile_cont",
        "select d, percentile_cont(0.25) within group (order by y) as p from t group by d",
        how="ungrouped",
    ),
    Query("mode", "select k, mode(d) as m, mode(x) as o from t group by k", duckdb=False, how="keyed"),
    Query(
        "collect",
        "select k, collect_list(i) as l, collect_set(s) as s, array_agg(x) as a from t group by k",
        duckdb=False,
        how="keyed",
    ),
    Query(
        "listagg",
        "select d, listagg(s, ',') as l, string_agg(s, '-') within group (order by d) as m from t group by d",
        duckdb=False,
        how="keyed",
    ),
    Query(
        "min_by",
        "select d, max_by(id, y) as a, min_by(s, d) as b from t group by d",
        duckdb=False,
        how="keyed",
    ),
    Query(
        "having", "select k, sum(y) as s from t group by k having sum(y) > 100 and count(*) > 3", how="keyed"
    ),
    Query(
        "having and order",
        "select k, count(*) as c from t group by k having sum(y) > 1 order by c",
        how="keyed",
    ),
    Query("global", "select sum(y) as s, count(*) as n, max(ts) as m from t", how="keyed"),
    Query(
        "global over nothing",
        "select sum(y) as s, avg(y) as a, count(*) as n, stddev(y) as d from t where id < 0",
        how="keyed",
    ),
    Query(
        "unnamed columns", "select k, sum(y), max(i) from t group by k", duckdb=False, key=("k",), how="keyed"
    ),
    Query("positions", "select k, d, sum(y) as s from t group by 1, 2", key=("k", "d"), how="keyed"),
    Query("group by all", "select k, d, count(*) as c from t group by all", duckdb=True, how="grouping_sets"),
    Query(
        "group by alias",
        "select k % 2 as odd, sum(i) as s from t group by odd",
        duckdb=False,
        key=("odd",),
        how="keyed",
    ),
    Query(
        "group by doubles",
        "select x, x + 1 as z, count(*) as c from t group by x",
        duckdb=False,
        key=("x",),
        how="keyed",
    ),
    Query(
        "group by function",
        "select month(day) as m, sum(y) as s from t group by month(day)",
        key=("m",),
        how="keyed",
    ),
    Query(
        "function of a key", "select k % 2 as odd, count(*) as c from t group by k", duckdb=True, how="keyed"
    ),
    Query(
        "rollup", "select k, d, sum(y) as s, count(*) as c from t group by rollup (k, d)", how="grouping_sets"
    ),
    Query(
        "cube of doubles",
        "select d, x, count(*) as c, grouping_id() as g from t group by cube (d, x)",
        duckdb=False,
        how="grouping_sets",
    ),
    Query(
        "grouping sets",
        "select k, d, count(*) as c from t group by grouping sets ((k), (d), ())",
        how="grouping_sets",
    ),
    Query(
        "window function of time",
        "select window(ts, '6 hours').start as w, count(*) as c from t group by window(ts, '6 hours')",
        duckdb=False,
        how="key_type",
    ),
    Query(
        "expressions over aggregates",
        "select k, sum(y) / count(*) as r, max(i) - min(i) as w from t group by k",
        how="keyed",
    ),
    # --- distinct and sets ------------------------------------------------------------------------
    Query("select distinct", "select distinct k, d from t", key=("k", "d"), how="keyed"),
    Query("distinct doubles", "select distinct x from t", duckdb=False, key=("x",), how="keyed"),
    Query("union", "select k from t union select k from u", how="set_operation"),
    Query(
        "union all",
        "select 'a' as w, id from t union all select 'b', id from t",
        key=("w", "id"),
        how="stateless",
    ),
    Query(
        "both counts",
        "select count(*) as n from t union all select count(*) from u",
        how="several_aggregates",
    ),
    Query("union of doubles", "select x from t union select -x from t", duckdb=False, how="set_operation"),
    Query("except", "select k from t except select k from u", how="set_operation"),
    Query("intersect", "select k from t intersect select k from u", how="set_operation"),
    # --- joins and subqueries ---------------------------------------------------------------------
    Query("join", "select t.id, u.name from t join u on t.k = u.k", how="join"),
    Query("left join", "select t.id, u.name from t left join u using (k)", how="join"),
    Query("full join", "select t.k, u.name from t full outer join u on t.k = u.k", how="join"),
    Query(
        "semi and anti",
        "select id from t left semi join u on t.k = u.k where not exists (select 1 from u v where v.k = t.d)",
        duckdb=(
            "select id from t semi join u on t.k = u.k where not exists (select 1 from u v where v.k = t.d)"
        ),
        how="join",
    ),
    Query(
        "join of aggregates",
        "select u.name, sum(t.y) as s from t join u on t.k = u.k group by u.name",
        how="join",
    ),
    Query(
        "with",
        (
            "with a as (select k, sum(y) as s from t group by k), b as (select k, max(s) as "
            "m from a group by k) select a.k, a.s, b.m from a join b on a.k = b.k"
        ),
        how="nested_aggregate",
    ),
    Query(
        "subquery",
        "select k, s from (select k, sum(y) as s from t group by k) where s > 20",
        key=("k",),
        how="nested_aggregate",
    ),
    Query("scalar subquery", "select id, y - (select avg(y) from t) as r from t", how="subquery"),
    Query(
        "correlated sum", "select u.k, (select sum(t.y) from t where t.k = u.k) as s from u", how="subquery"
    ),
    Query(
        "lateral join",
        "select u.name, m.s from u, lateral (select sum(t.y) as s from t where t.k = u.k) m",
        how="join",
    ),
    Query(
        "aggregate of aggregate",
        "select max(s) as m from (select k, sum(x) as s from t group by k)",
        duckdb=False,
        how="nested_aggregate",
    ),
    # --- windows and limits -----------------------------------------------------------------------
    Query(
        "row_number",
        "select id, row_number() over (partition by k order by d) as r from t",
        duckdb=False,
        how="window",
    ),
    Query(
        "ranks",
        "select id, rank() over (order by d) as r, dense_rank() over (partition by k order by d) as e from t",
        how="window",
    ),
    Query(
        "running sums",
        (
            "select id, sum(y) over (partition by k order by id rows between 2 preceding and "
            "current row) as s from t"
        ),
        how="window",
    ),
    Query(
        "range sums",
        "select id, sum(x) over (partition by d order by i) as s, avg(y) over (partition by k) as a from t",
        duckdb=False,
        how="window",
    ),
    Query(
        "lag and lead",
        "select id, lag(y) over (order by id) as a, lead(s, 2, '-') over (order by id) as b from t",
        how="window",
    ),
    Query(
        "first_value",
        "select id, first_value(id) over (partition by k order by d) as f from t",
        duckdb=False,
        how="window",
    ),
    Query(
        "named window",
        "select id, ntile(4) over w as q, max(y) over w as m from t window w as (partition by d order by id)",
        how="window",
    ),
    Query(
        "window over groups",
        "select k, sum(y) as s, row_number() over (order by count(*)) as r from t group by k",
        duckdb=False,
        how="window",
    ),
    Query(
        "newest of each",
        (
            "select id, k from (select id, k, row_number() over (partition by k order by ts "
            "desc) as r from t) where r = 1"
        ),
        duckdb=False,
        how="window",
    ),
    Query("limit", "select s, d from t order by d limit 7", duckdb=False, how="limit"),
    Query(
        "limit without order",
        "select id from t limit 3",
        duckdb="select id from t order by id limit 3",
        how="limit",
    ),
    Query(
        "limit of groups",
        "select k, sum(y) as s from t group by k order by sum(y) desc limit 2",
        duckdb=False,
        how="limit",
    ),
    Query(
        "limit of a union",
        "select k from t union all select k from u order by k limit 5 offset 2",
        duckdb=False,
        how="limit",
    ),
    Query(
        "pivot of counts",
        "select * from (select d, b, id from t) pivot (count(id) for d in (0 as z, 1 as o))",
        duckdb=False,
        how="nested_aggregate",
    ),
    Query(
        "unpivot",
        "select id, what, v from (select id, i, d from t) unpivot (v for what in (i, d))",
        duckdb=False,
        how="pivot",
    ),
    Query(
        "lambda",
        "select id, transform(l, e -> e + i) as m from t",
        duckdb=False,
        key=("id",),
        how="stateless",
    ),
    Query(
        "time window",
        "select window(ts, '1 hour').start as h, count(*) as n from t group by window(ts, '1 hour')",
        duckdb=False,
        how="key_type",
    ),
    Query(
        "hint",
        "select /*+ BROADCAST(u) */ t.id, u.name from t join u on t.k = u.k",
        duckdb="select t.id, u.name from t join u on t.k = u.k",
        how="join",
    ),
    Query(
        "hint of partitions", "select /*+ COALESCE(2) */ id, s from t", "opaque", how="operator:Repartition"
    ),
    # --- refused ----------------------------------------------------------------------------------
    Query("first", "select k, first(y) as f from t group by k", "IrreproducibleQuery", False),
    Query("clock", "select id, current_date as c from t", "IrreproducibleQuery", False),
    Query("quoted clock", "select id, `now`() as c from t", "IrreproducibleQuery", False),
    Query("clock of a literal", "select id, timestamp 'now' as c from t", "IrreproducibleQuery", False),
    Query("clock of a cast", "select id, cast('today' as date) as c from t", "IrreproducibleQuery", False),
    Query("sketch", "select approx_count_distinct(k) as c from t", "IrreproducibleQuery", False),
    Query("kurtosis", "select kurtosis(y) as c from t", "IrreproducibleQuery", False),
    Query(
        "last of a range", "select id, last_value(id) over (order by d) as c from t", "NotCanonical", False
    ),
    Query(
        "sums of wide decimals",
        "select sum(cast(m as decimal(38, 2))) as s from t",
        "NotCanonical",
        False,
    ),
    Query(
        "list over a window",
        "select listagg(s, ',') over (partition by d) as c from t",
        "NotCanonical",
        False,
    ),
    Query("maps by extremes", "select min_by(map('a', id), d) as c from t", "NotCanonical", False),
    Query(
        "ranks of grouping sets",
        "select k, s, row_number() over (order by k) as r from t group by grouping sets ((k), (s))",
        "NotCanonical",
        False,
    ),
    Query(
        "ranks of maps",
        "select m, row_number() over (order by d) as r from (select d, map(d, id) as m from t)",
        "NotCanonical",
        False,
    ),
    Query("limit of maps", "select id, map(s, i) as m from t order by d limit 3", "NotCanonical", False),
    Query(
        "pivot of sums",
        "select * from (select d, k, y from t) pivot (sum(y) for d in (0, 1))",
        "NotCanonical",
        False,
    ),
    Query(
        "collation",
        "select s collate unicode_ci as c, count(*) as n from t group by s collate unicode_ci",
        "NotCanonical",
        False,
    ),
)
