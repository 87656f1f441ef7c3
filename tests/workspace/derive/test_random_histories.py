"""Random tables, histories, queries and pulls: rows are those of a run from scratch, and of DuckDB."""

from __future__ import annotations

import math
import random
import time
from datetime import datetime
from decimal import Decimal
from itertools import chain

import duckdb
import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.following import follow_all
from tests.workspace.derive.queries import QUERIES, tables
from tests.workspace.derive.random_schemas import MERGES, PAIRED, RandomPair

# Of each merge strategy one: append, ledger, snapshot, upsert, changelog. What they ask is checked below.
SEEDS = [32, 54, 6, 13, 0]
# Windows of time can only be read by Spark's own parser, so that `derive` refuses them.
KNOWN = [query for query in QUERIES if query.kind in ("canonical", "opaque") and "window(ts" not in query.sql]


@pytest.mark.contract("derive:V1")
@pytest.mark.contract("derive:V2")
@pytest.mark.parametrize(("seed", "paired"), list(zip(SEEDS, PAIRED, strict=True)))
def test_rows_are_those_of_a_run_from_scratch_and_of_another_engine(spark_workspace, seed, paired):
    check(spark_workspace, random.Random(seed), seed, queries=1, paired=[paired], pulls=2)


def test_the_seeds_ask_for_what_is_hard_of_each_kind_of_history():
    asked, merges = [], []
    for seed in SEEDS:
        random_ = random.Random(seed)
        table = RandomPair.of(random_).t
        (query,) = table.queries(1).values()
        merges.append(table.merge)
        asked += [
            f"{kind}: {what}"
            for name, kind in table.columns.items()
            for what in ("sum", "avg", "count(distinct")
            if f"{what}({name})" in query.sql or f"{what} {name})" in query.sql
        ]
        asked += ["having"] * ("having" in query.sql)
    assert sorted(merges) == sorted(MERGES)
    for each in ("wild: sum", "wild: avg", "double: sum", "double: avg", "double: count(distinct", "having"):
        assert each in asked, (each, asked)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_rows_are_those_of_a_run_from_scratch_for_longer(spark, tmp_path, soak_minutes):
    end, seed = time.monotonic() + soak_minutes * 60, random.randrange(2**31)
    while time.monotonic() < end:
        with tl.open(tmp_path / str(seed), create=True, spark=spark) as workspace:
            random_ = random.Random(seed)
            check(workspace, random_, seed, queries=4, paired=random_.sample(PAIRED, 2), pulls=8)
        seed += 1


def check(workspace, random_, seed, *, queries, paired, pulls):
    """Pull some of the queries after some commits; compare all of them with both others at the end."""
    pair = RandomPair.of(random_)
    datasets = [(table, table.create(workspace)) for table in (pair.t, pair.u)]
    asked = pair.t.queries(queries)
    for at, kind in enumerate(paired):
        asked |= pair.queries(f"p{at}", kind)
    for name, query in asked.items():
        made = workspace.derive(name, query.sql, key=query.key)
        assert query.strategy in (None, made.info.strategy), (seed, query.sql)
    for at in range(pulls):
        # At first there may be no rows at all; later mostly one of the tables moves alone.
        for _ in range(random_.randint(at > 0, 2)):
            table, dataset = random_.choice(datasets)
            table.next_commit(dataset)
        some = [name for name in asked if random_.random() < 0.6]
        if some:
            follow_all(workspace, some)
    follow_all(workspace, list(asked))
    report = workspace.verify(*asked, replay="head")
    assert report.problems == (), (seed, pair, asked)
    assert report.replayed == len(asked)
    database = duckdb.connect()
    database.execute("set timezone = 'UTC'")
    for table, dataset in datasets:
        database.register(table.name, dataset.view().to_arrow())
    for name, query in asked.items():
        database.execute(f"create view {name} as {query.sql}")
        if query.duckdb:
            ours = workspace[name].view().to_arrow().to_pylist()
            theirs = database.sql(query.sql).to_arrow_table().to_pylist()
            assert differs(ours, theirs) is None, (seed, pair, query.sql, differs(ours, theirs))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_library_of_queries_follows_its_tables(spark, tmp_path, soak_minutes):
    """All of it once, in an order of the seed; then on, as long as there is time."""
    end, seed = time.monotonic() + soak_minutes * 60, random.randrange(2**31)
    waiting = []
    is_first = True
    while waiting or is_first or time.monotonic() < end:
        random_ = random.Random(seed)
        if not waiting:
            waiting, is_first = random_.sample(KNOWN, len(KNOWN)), False
        with tl.open(tmp_path / str(seed), create=True, spark=spark) as workspace:
            check_library(workspace, random_, waiting[:6], seed)
        waiting = waiting[6:]
        seed += 1


# Of each way to follow, and of what is hard to follow: three in four do without computing all again.
FOLLOWED = {
    "stateless": ("lateral view", "union all"),
    "keyed": ("variance", "covariance", "distinct sums", "bits", "mode", "listagg", "collect"),
    "recompute": ("full join", "range sums", "cube of doubles"),
}


@pytest.mark.contract("derive:V1")
def test_some_queries_of_the_library_follow_its_tables(spark_workspace):
    names = {name: strategy for strategy, given in FOLLOWED.items() for name in given}
    some = [query for query in KNOWN if query.name in names]
    assert len(some) == len(names)
    # Each is computed once, and follows once what came, went and was put right.
    used = check_library(spark_workspace, random.Random(8), some, 8, pulls=1, share=1)
    assert used == names


def check_library(workspace, random_, queries, seed, *, pulls=3, share=0.7):
    """Bring the tables of the library in by commits, pull a share of them in between; return the strategies.

    Rows are wrong at first, go and come back; the numbers of five rows cancel, so that these go together.
    """
    final = tables()
    t = workspace.create("t", schema=final["t"].schema, merge=tl.merge.upsert("id"))
    u = workspace.create("u", schema=final["u"].schema, merge=tl.merge.upsert(["k", "name"]))
    names = {f"q{at}": query for at, query in enumerate(queries)}
    for name, query in names.items():
        workspace.derive(name, query.sql)
    rows, others = final["t"].to_pylist(), final["u"].to_pylist()
    fives = [rows[at : at + 5] for at in range(0, len(rows), 5)]
    for _ in range(pulls):
        given = random_.sample(fives, 9)
        wrong, right, gone = (list(chain(*given[at : at + 3])) for at in (0, 3, 6))
        wrong = [{**row, "y": 7.5, "k": 3, "l": [9]} for row in wrong]
        # Of those that go some are there, some come just before, and some were never seen.
        put(t, final["t"].schema, [*wrong, *right, *gone[:8]])
        put(t, final["t"].schema, gone, gone=True)
        put(u, final["u"].schema, [*random_.sample(others, 2), {"k": 3, "name": f"at {random_.random()}"}])
        there = u.view().to_arrow().to_pylist()
        put(u, final["u"].schema, random_.sample(there, 1), gone=True)
        follow_all(workspace, [name for name in names if random_.random() < share] or list(names))
    put(
        u, final["u"].schema, [row for row in u.view().to_arrow().to_pylist() if row not in others], gone=True
    )
    for dataset in (t, u):
        put(dataset, final[dataset.name].schema, final[dataset.name].to_pylist())
    follow_all(workspace, list(names))
    report = workspace.verify(*names, replay="head")
    assert report.problems == (), (seed, queries)
    database = duckdb.connect()
    database.execute("set timezone = 'UTC'")
    for name, table in final.items():
        assert bag(workspace[name].view().to_arrow()) == bag(table)
        database.register(name, table)
    for name, query in names.items():
        if query.duckdb:
            theirs = database.sql(query.sql if query.duckdb is True else query.duckdb).to_arrow_table()
            ours = workspace[name].view().to_arrow().to_pylist()
            assert differs(ours, theirs.to_pylist()) is None, (seed, query.name)
    return {query.name: workspace[name].info.strategy for name, query in names.items()}


def put(dataset, schema, found, *, gone=False):
    ops = pa.array([int(gone)] * len(found), pa.int32())
    dataset.append(pa.Table.from_pylist(found, schema).append_column("op", ops), allow_empty=True)


def bag(table):
    return sorted(map(str, table.to_pylist()))


def differs(ours, theirs):
    """Return the first two rows that are not near each other, None if there are none."""
    if len(ours) != len(theirs):
        return len(ours), len(theirs)
    one, other = (
        sorted((tuple(map(plain, row.values())) for row in rows), key=rough) for rows in (ours, theirs)
    )
    for left, right in zip(one, other, strict=True):
        if not all(map(near, left, right)):
            return left, right
    return None


def plain(value):
    """Numbers are doubles, unless they are whole and too large for that; there is one zero and one NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value.isoformat() if isinstance(value, datetime) else value
    is_large = not isinstance(value, float) and value == int(value) and abs(value) > 1 << 53
    return int(value) if is_large else float(value) + 0.0


def rough(row):
    """What rows are sorted by: numbers to six digits."""
    return [f"{value:.5e}" if isinstance(value, float) else repr(value) for value in row]


def near(left, right):
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9) or (
            math.isnan(left) and math.isnan(right)
        )
    return left == right


def test_two_rows_that_differ_are_seen():
    assert differs([{"a": 1.0, "b": None}], [{"a": 1.0 + 1e-12, "b": None}]) is None
    assert differs([{"a": -0.0}, {"a": math.nan}], [{"a": math.nan}, {"a": 0.0}]) is None
    assert differs([{"a": 1.0}], [{"a": 1.0 + 1e-6}]) is not None
    assert differs([{"a": None}], [{"a": 0.0}]) is not None
    assert differs([{"a": 1 << 60}], [{"a": (1 << 60) + 1}]) is not None
    assert differs([{"a": 1 << 60}], [{"a": Decimal(1 << 60)}]) is None
    assert differs([{"a": 1}], []) is not None
