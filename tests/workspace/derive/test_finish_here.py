"""The last step of aggregates in this process has the bits of the last step on Spark, or is left to Spark."""

from __future__ import annotations

import math
import random

import numpy as np
import pyarrow as pa
import pytest

import trueline as tl
from tests.spark.passing import jobs_in
from tests.workspace.derive.following import follow_all
from trueline.chain.checkpoint import derived_checkpoint
from trueline.dataset.derivation import derivation_at
from trueline.spark.increments import columns_of, local_frame, local_table, with_whole_numbers
from trueline.spark.types import arrow_schema_of
from trueline.workspace.derive.define import DerivationRequest, derive
from trueline.workspace.derive.strategies import increment, keyed
from trueline.workspace.derive.strategies.accumulators import PARTS, SIGN, VERSION, accumulation_of_text
from trueline.workspace.derive.strategies.expressions_here import Elsewhere
from trueline.workspace.derive.strategies.finish_here import accumulating, finished_here
from trueline.workspace.derive.strategies.groups import types_of
from trueline.workspace.derive.strategies.increment import run_sql

# Which of these queries end in this process, whatever the rows.
HERE = {
    "sums": "select k, sum(x) as a, avg(x) as b, count(*) as c, count(x) as d from t group by k",
    "whole": "select k, sum(i) as a, avg(i) as b, count(i) as c from t group by k",
    "small": "select k, sum(s) as a, avg(s) as b from t group by k",
    "having": "select k, sum(x) as a from t group by k having count(*) > 2 and not sum(i) < 5",
    "expressions": "select k, sum(x) - 1.5D as a, sum(i) + sum(s) as b, count(*) * 2L as c from t group by k",
    "global": "select sum(x) as a, count(*) as c from t",
    "filtered": "select k, sum(x) filter (where i > 0) as a, count_if(x > 0) as b from t group by k",
    "distinct": "select distinct k, s from t",
    "two keys": "select k, x as y, count(*) as n from t group by k, x",
}
THERE = {
    "rounded": "select k, round(sum(x), 2) as a from t group by k",
    "variance": "select k, var_pop(i) as a from t group by k",
    "text": "select k, concat('n', count(*)) as a from t group by k",
    "values": "select k, count(distinct i) as a from t group by k",
}
SMALL = [None, -(2**31), 2**31 - 1, 3, 4]
NUMBERS = [0.0, -0.0, 1.5, -2.25, 1e-9, 0.1, -0.1, 3e15, math.inf, -math.inf, math.nan, None, 2.0**62, -7.0]
WHOLE = [0, 1, -1, 2**53 + 1, -(2**60), 12, -12, None]
HUGE = [2**62, -(2**62), 2**63 - 1, -(2**63)]


def rows_of(seed: int, count: int, groups: int) -> pa.Table:
    chance = random.Random(seed)
    # Totals of the huge ones may not fit.
    whole = WHOLE if seed < 10 else WHOLE + HUGE
    return pa.table(
        {
            "k": pa.array([chance.choice([None, *range(groups)]) for _ in range(count)], pa.int64()),
            "x": pa.array([chance.choice(NUMBERS) for _ in range(count)], pa.float64()),
            "i": pa.array([chance.choice(whole) for _ in range(count)], pa.int64()),
            "s": pa.array([chance.choice(SMALL) for _ in range(count)], pa.int32()),
        }
    )


class Query:
    """A query, taken apart; its two last steps."""

    def __init__(self, workspace, text):
        root = workspace.create("t")
        root.append(rows_of(0, 3, 2))
        derive(workspace, DerivationRequest("d", text))
        found = derivation_at(workspace["d"].chain.tail())
        self.strategy = found.strategy
        self.made = accumulation_of_text(found.canonical[-1], append_only=False)
        self.room = workspace._spark.first

    def partial(self, session, rows: pa.Table) -> pa.Table:
        local_frame(session, rows).createOrReplaceTempView("t")
        frame = run_sql(session, self.made.partial, ["t"])
        self.schema = frame.schema
        return local_table(frame, label="test")

    def signed(self, session, rows: pa.Table, sign: int) -> pa.Table:
        found = self.partial(session, rows)
        return found.append_column(SIGN, pa.array(np.full(found.num_rows, sign, np.int32)))

    def both(self, session, kept: pa.Table, parts: pa.Table) -> tuple[list, list]:
        """Return the groups before and after as both ways give them."""
        columns = [*self.made.kept, SIGN]
        old = kept.append_column(SIGN, pa.array(np.ones(kept.num_rows, np.int32))).select(columns)
        new = parts.select(columns)
        versions = np.concatenate([np.zeros(len(old)), np.ones(len(old) + len(new))]).astype(np.int32)
        tables = pa.concat_tables([old, old.cast(old.schema), new.cast(old.schema)])
        schema = with_whole_numbers(columns_of(self.schema, self.made.kept), SIGN, VERSION)
        tables = tables.append_column(VERSION, pa.array(versions))
        local_frame(session, tables, schema).createOrReplaceTempView(PARTS)
        frame = run_sql(session, self.made.finish(types_of(self.made, self.schema)), [PARTS])
        result = arrow_schema_of(frame.schema).field("r").type
        kinds = [result.field(at).type for at in range(result.num_fields)]
        # Where this answers Spark must not refuse.
        ours = finished_here(self.made, kept, new, kinds)
        return told(ours), told(local_table(frame, label="test"))


def told(table: pa.Table) -> list[str]:
    """Return rows as text in one order; the bits of a double are in its hexadecimal form."""
    return sorted(str(_exactly(row)) for row in table.to_pylist())


def _exactly(value):
    if isinstance(value, dict):
        return {name: _exactly(each) for name, each in value.items()}
    return value.hex() if isinstance(value, float) else value


def halves(query, session, seed, groups):
    """Return what is kept of some rows, and parts of others that come and of some of the first that go."""
    first, second = rows_of(seed, 60, groups), rows_of(seed + 1, 40, groups)
    kept = query.partial(session, first)
    # Some groups lose all rows.
    gone = first.filter(pa.array([(k or 0) % 2 == 0 for k in first["k"].to_pylist()]))
    return kept, pa.concat_tables([query.signed(session, gone, -1), query.signed(session, second, 1)])


@pytest.mark.contract("derive:V4")
@pytest.mark.parametrize("name", HERE)
def test_groups_end_here_as_they_end_on_spark(spark_workspace, name):
    query = Query(spark_workspace, HERE[name])
    assert query.strategy == "keyed"
    here = accumulating(query.made)
    compared = 0
    with query.room.lent() as session:
        for seed in (1, 11):
            kept, parts = halves(query, session, seed, groups=6)
            rows = rows_of(seed, 60, 6)
            assert told(here.of(rows.select(sorted(here.columns) or ["k"]), kept.schema, 1 << 20)) == told(
                kept
            )
            try:
                ours, theirs = query.both(session, kept, parts)
            except Elsewhere:
                continue
            assert ours == theirs
            compared += 1
    assert compared


@pytest.mark.parametrize("name", THERE)
def test_what_is_not_known_here_is_left_to_spark(spark_workspace, name):
    query = Query(spark_workspace, THERE[name])
    with query.room.lent() as session:
        kept, parts = halves(query, session, 1, groups=3)
        with pytest.raises(Elsewhere):
            query.both(session, kept, parts)


def test_numbers_that_do_not_fit_are_left_to_spark(spark_workspace):
    query = Query(spark_workspace, HERE["whole"])
    many = pa.table({"k": [1, 1], "x": [0.0, 0.0], "i": [2**63 - 1, 1], "s": pa.array([1, 1], pa.int32())})
    with query.room.lent() as session:
        kept = query.partial(session, many.slice(0, 1))
        parts = query.partial(session, many.slice(1)).append_column(SIGN, pa.array([1], pa.int32()))
        with pytest.raises(Elsewhere):
            finished_here(query.made, kept, parts, [pa.int64(), pa.int64(), pa.float64(), pa.int64()])


def test_a_division_by_zero_is_left_to_spark(spark_workspace):
    query = Query(spark_workspace, "select k, count(*) / sum(x) as a from t group by k")
    zero = pa.table({"k": [1], "x": [0.0], "i": [1], "s": pa.array([1], pa.int32())})
    with query.room.lent() as session:
        kept = query.partial(session, zero)
        parts = kept.append_column(SIGN, pa.array([1], pa.int32()))
        with pytest.raises(Elsewhere):
            finished_here(query.made, kept, parts, [pa.int64(), pa.float64()])


def test_a_type_that_was_not_recorded_is_left_to_spark(spark_workspace):
    query = Query(spark_workspace, HERE["global"])
    with query.room.lent() as session:
        kept, parts = halves(query, session, 1, groups=3)
        with pytest.raises(Elsewhere):
            finished_here(query.made, kept, parts, [pa.float32(), pa.int64()])


# Rows of which some names have large letters; queries that look as if all of them were known here.
CAPITALS = pa.table(
    {
        "City": ["a", "b", "a"],
        "x": [1.0, 1.0, 2.5],
        "i": pa.array([3, 3, 7], pa.int32()),
        "n": [1, 2, 1],
        "text": ["1_000", "12", "x"],
    }
)
TWICE = [
    "select cast(count(*) as string) as n from t",
    "select count(*) as n, count(*) % 2 as odd from t",
    "select case when count(*) = 4 then 0D else 1 / (count(*) - 4) end as n from t",
    "select City, sum(x * (1.0 / i)) as a, sum(x * (1.0 / 3.0)) as b from t group by City",
    "select count_if(1.0 / i > 0.33333333333333D) as a from t",
    "select n as g, sum(i) as s from t as y(q, x, n, i, w) group by n",
    "select city, sum(N) as s, avg(X) as m from t where I > 0 group by city",
    "select sum(try_cast(text as int)) as a, count(shiftright(n, null)) as b from t",
    "select count_if(floor(x, 1) > 1.2) as a from t",
    f"select n, count(*) as c from t where {' or '.join(f'i = {each}' for each in range(300))} group by n",
    f"select count(case {' '.join(f'when i = {each} then {each}' for each in range(250))} end) as c from t",
]


@pytest.mark.parametrize(
    ("merge", "queries"),
    [(tl.merge.append(), TWICE), (tl.merge.upsert(["City", "x"]), TWICE[:2])],
    ids=["append", "upsert"],
)
def test_what_looks_known_here_is_what_spark_makes_of_it(spark_workspace, monkeypatch, merge, queries):
    root = spark_workspace.create("t", merge=merge)
    root.append(CAPITALS.slice(0, 2))
    for number, query in enumerate(queries):
        for side in ("here", "there"):
            done = derive(spark_workspace, DerivationRequest(f"{side}{number}", query))
            assert derivation_at(done.chain.tail()).strategy == "keyed", query
    first, then = CAPITALS.slice(1), pa.concat_tables([CAPITALS.slice(2), CAPITALS.slice(0, 1)])
    # Where nothing is retracted one more pull shows as much as two.
    pulls = (None, pa.concat_tables([first, then])) if merge == tl.merge.append() else (None, first, then)
    for more in pulls:
        if more is not None:
            root.append(more)
        follow_all(spark_workspace, [f"here{number}" for number in range(len(queries))])
        with monkeypatch.context() as patch:
            patch.setattr(keyed, "accumulating", lambda made: None)
            patch.setattr(keyed, "finished_here", elsewhere)
            follow_all(spark_workspace, [f"there{number}" for number in range(len(queries))])
        for number, query in enumerate(queries):
            ours, theirs = (spark_workspace[f"{side}{number}"] for side in ("here", "there"))
            assert told(ours.view().to_arrow()) == told(theirs.view().to_arrow()), query
            assert state_of(ours) == state_of(theirs), query


def elsewhere(*_):
    raise Elsewhere


def state_of(dataset):
    """Return the hashes of the files of accumulators."""
    left = derived_checkpoint(dataset.chain.store, dataset.chain.tail().data)
    return [str(file.hash) for file in left.state]


def test_accumulators_have_no_more_bytes_than_there_is_room_for(spark_workspace):
    query = Query(spark_workspace, HERE["sums"])
    here = accumulating(query.made)
    numbers = np.arange(200_000)
    rows = pa.table({"k": numbers // 2, "x": numbers / 7})
    with query.room.lent() as session:
        kept = query.partial(session, rows_of(0, 3, 2))
    assert here.of(rows, kept.schema, 64 << 20).num_rows == 100_000
    few = pa.table({"k": numbers % 4, "x": rows["x"]})
    assert here.of(few, kept.schema, 4 << 20).num_rows == 4
    with pytest.raises(Elsewhere):
        here.of(rows, kept.schema, 4 << 20)


def test_a_state_without_room_is_left_to_tasks(spark_workspace, monkeypatch):
    root = spark_workspace.create("t")
    root.append(rows_of(0, 3, 2))
    derive(spark_workspace, DerivationRequest("d", HERE["sums"]))
    follow_all(spark_workspace, ["d"])
    monkeypatch.setattr(increment, "DRIVER_BYTES", 900)
    root.append(rows_of(1, 30, 2))
    follow_all(spark_workspace, ["d"])
    derive(spark_workspace, DerivationRequest("again", HERE["sums"]))
    monkeypatch.undo()
    follow_all(spark_workspace, ["again"])
    assert told(spark_workspace["d"].view().to_arrow()) == told(spark_workspace["again"].view().to_arrow())


def test_a_small_increment_takes_no_job(spark_workspace, spark):
    root = spark_workspace.create("t")
    root.append(rows_of(0, 3, 2))
    derive(spark_workspace, DerivationRequest("d", HERE["sums"]))
    follow_all(spark_workspace, ["d"])
    root.append(rows_of(1, 30, 2))
    with jobs_in(spark) as jobs:
        follow_all(spark_workspace, ["d"])
    assert jobs == []
