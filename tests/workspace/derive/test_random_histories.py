"""Random tables, histories, queries and pulls: rows are those of a run from scratch, and of DuckDB."""

from __future__ import annotations

import math
import random
import time
from datetime import datetime
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.following import follow_all
from tests.workspace.derive.queries import QUERIES, tables
from tests.workspace.derive.random_schemas import PAIRED, RandomPair

# Of each merge strategy one: append, ledger, snapshot, upsert, changelog.
SEEDS = [2, 3, 5, 23, 27]


@pytest.mark.contract("derive:V1")
@pytest.mark.contract("derive:V2")
@pytest.mark.parametrize(("seed", "paired"), list(zip(SEEDS, PAIRED, strict=True)))
def test_rows_are_those_of_a_run_from_scratch_and_of_another_engine(spark_workspace, seed, paired):
    check(spark_workspace, random.Random(seed), seed, queries=1, paired=[paired], pulls=2)


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
    end, seed = time.monotonic() + soak_minutes * 60, random.randrange(2**31)
    while time.monotonic() < end:
        random_ = random.Random(seed)
        known = [query for query in QUERIES if query.kind in ("canonical", "opaque")]
        with tl.open(tmp_path / str(seed), create=True, spark=spark) as workspace:
            check_library(workspace, random_, random_.sample(known, 3), seed)
        seed += 1


@pytest.mark.contract("derive:V1")
def test_some_queries_of_the_library_follow_its_tables(spark_workspace):
    known = [query for query in QUERIES if query.kind in ("canonical", "opaque")]
    some = known[:: len(known) // 15][:15]
    assert len(some) == 15
    check_library(spark_workspace, random.Random(8), some, 8, pulls=1)


def check_library(workspace, random_, queries, seed, *, pulls=3):
    """Bring the tables of the library in by commits, some rows wrong at first; pull in between."""
    final = tables()
    workspace.create("t", schema=final["t"].schema, merge=tl.merge.upsert("id"))
    workspace.create("u", schema=final["u"].schema).append(final["u"])
    names = {f"q{at}": query for at, query in enumerate(queries)}
    for name, query in names.items():
        workspace.derive(name, query.sql)
    rows = final["t"].to_pylist()
    for _ in range(pulls):
        some = random_.sample(rows, 40)
        wrong = [{**row, "y": 7.5, "k": 3, "l": [9]} for row in some[:10]]
        workspace["t"].append(pa.Table.from_pylist([*wrong, *some[10:]], final["t"].schema))
        follow_all(workspace, [name for name in names if random_.random() < 0.7] or list(names))
    workspace["t"].append(final["t"])
    follow_all(workspace, list(names))
    report = workspace.verify(*names, replay="head")
    assert report.problems == (), (seed, queries)
    database = duckdb.connect()
    database.execute("set timezone = 'UTC'")
    for name, table in final.items():
        database.register(name, table)
    for name, query in names.items():
        if query.duckdb:
            theirs = database.sql(query.sql if query.duckdb is True else query.duckdb).to_arrow_table()
            ours = workspace[name].view().to_arrow().to_pylist()
            assert differs(ours, theirs.to_pylist()) is None, (seed, query.name)


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
