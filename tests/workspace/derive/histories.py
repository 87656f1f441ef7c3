"""Random histories of an input: late, corrected and retracted rows, keys that come back, odd numbers."""

from __future__ import annotations

import math
import random
from decimal import Decimal

import pyarrow as pa

import trueline as tl

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "k": pa.string(),
        "x": pa.float64(),
        "i": pa.int64(),
        "d": pa.decimal128(10, 2),
    }
)
MOST = (1 << 63) - 1
# Their total is the greatest number there is: it is passed on the way if they are added in another order.
EDGE = [(100, "edge", 7.75, MOST, None), (101, "edge", 7.75, 1, None), (102, "edge", 7.75, -1, None)]

QUERIES = {
    "sums": (
        (
            "select k, count(*) as n, count(x) as nx, sum(x) as sx, avg(x) as ax, sum(i) as si, sum(d) as sd,"
            " bool_and(i > 0) as every_i, bool_or(i > 2) as any_i, count_if(i > 3) as some_i,"
            " sum(d) filter (where i > 2) as fd from t group by k having count(*) > 1 or sum(d) is not null"
        ),
        "k",
    ),
    "kept_values": (
        (
            "select k, count(distinct i) as di, min(x) as lo, max(x) as hi, sort_array(collect_list(i)) as c,"
            " max_by(id, struct(i, id)) as b, avg(d) as ad from t group by k"
        ),
        "k",
    ),
    "whole": ("select count(*) as n, sum(x) as s, min(x) as m, count(distinct k) as d from t", None),
    "by_number": ("select x, count(*) as n, min(i) as m from t group by x", "x"),
    "spread": (
        (
            "select k, var_samp(d) as vd, stddev_pop(i % 97) as si, covar_pop(d, i % 97) as cov,"
            " any(i > 3) as some_i,"
            " sum(i) / nullif(count(*), 1) as r from t group by k"
        ),
        "k",
    ),
    "exploded": (
        "select id, p.at, p.v from t lateral view posexplode(array(i, id, length(k))) p as at, v",
        None,
    ),
    "both": (
        "select id, 'large' as what, d from t where i > 2 union all select id, 'all' as what, d from t",
        None,
    ),
    "bag": ("select k, i from t where i > 1", None),
    # Of rows that are only appended.
    "ends": (
        (
            "select k, first(x) as fx, last(i) as li, first(d, true) as fd,"
            " last_value(x) filter (where i > 1) as lx, first(i ignore nulls) + count(*) as fi,"
            " max_by(id, i) as m, collect_list(id) as c"
            " from t as rows where id > 3 group by k"
        ),
        "k",
    ),
    "last": ("select last(id) as id, first(k) as k from t", None),
    "mapped": ("select id, x * 2 as y, d from t where i is not null", "id"),
}


def rows(random_: random.Random, ids: list[int]) -> pa.Table:
    """Return rows with these ids."""
    found = [
        (
            number,
            random_.choice(["a", "b", "c", "d", None]),
            random_.choice([0.1, 0.2, -0.0, 0.0, 1e15, -1e15, math.nan, math.inf, -math.inf, None]),
            random_.choice([None, 1, 2, 3, 4, 1 << 57, -(1 << 57)]),
            random_.choice([None, Decimal("1.25"), Decimal("-3.10")]),
        )
        for number in ids
    ]
    return table(found)


def table(found: list[tuple]) -> pa.Table:
    columns = zip(*found, strict=True) if found else [[]] * len(SCHEMA)
    return pa.table([pa.array(list(each), f.type) for each, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def begin(workspace: tl.Workspace, merge: tl.merge.Strategy) -> tl.Dataset:
    return workspace.create("t", schema=SCHEMA, merge=merge)


def next_commit(random_: random.Random, dataset: tl.Dataset) -> None:
    """Append once more: what the strategy of the dataset makes of it is a part of the history."""
    kind = dataset.info.merge or ""
    if kind.startswith("append"):
        dataset.append(rows(random_, [random_.randrange(40) for _ in range(random_.randint(0, 8))]))
        return
    ids = random_.sample(range(30), random_.randint(1, 8))
    made = rows(random_, ids)
    there = {row["id"] for row in dataset.view().to_arrow().to_pylist()}
    if random_.random() < 0.3 and not there.issuperset({100, 101, 102}):
        made = pa.concat_tables([made, table(EDGE)])
    gone = [number in there and number < 100 and random_.random() < 0.4 for number in made["id"].to_pylist()]
    if kind.startswith("upsert"):
        dataset.append(made.append_column("op", pa.array([int(each) for each in gone], pa.int32())))
        return
    events = []
    for row, is_gone in zip(made.to_pylist(), gone, strict=True):
        if is_gone:
            events.append(row | {"op": 1})
        elif row["id"] in there:
            # A changelog says what it was given: the row before may not be the one that is there.
            events += [row | {"op": 2, "x": 99.0}, row | {"op": 3}]
        else:
            events.append(row | {"op": 0})
    dataset.append(pa.Table.from_pylist(events, SCHEMA.append(pa.field("op", pa.int32()))))
