"""The golden cases of the merge strategies: history, input, and the events that follow."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pytest

from tests.architecture import ROOT
from trueline import merge
from trueline.chain.store.memory import MemoryStore
from trueline.dataset.merge import merge_batch
from trueline.dataset.state import State, encode_keys
from trueline.errors import SchemaError

GOLDEN = json.loads((ROOT / "tests/golden/workspace/merge-strategies.json").read_text(encoding="utf-8"))
DATA = pa.schema(
    [
        ("event_time", pa.timestamp("ms", "UTC")),
        ("year", pa.int32()),
        ("city", pa.string()),
        ("population", pa.int64()),
    ]
)


def cases(area):
    return [
        pytest.param(case.get("primary_key", GOLDEN[area]["primary_key"]), case, id=case["name"])
        for case in GOLDEN[area]["cases"]
    ]


def table(rows, *, ops=False, keyed_by_year=True):
    """Rows as columns; the year is a column of its own where it is part of the key, else the event time."""
    found = []
    for row in rows:
        op, year, city, population = row if ops else (None, *row)
        seen = None if year is None or keyed_by_year else dt.datetime(year, 1, 1, tzinfo=dt.UTC)
        found.append(
            {
                "op": op,
                "event_time": seen,
                "year": year if keyed_by_year else None,
                "city": city,
                "population": population,
            }
        )
    schema = pa.schema([("op", pa.int32()), *DATA]) if ops else DATA
    return pa.Table.from_pylist(found, schema=schema)


def shown(events, *, keyed_by_year=True):
    return [
        [
            row["op"],
            row["year"] if keyed_by_year else row["event_time"] and row["event_time"].year,
            row["city"],
            row["population"],
        ]
        for row in events.to_pylist()
    ]


def state_of(history, key, **options) -> State:
    """The state that the events of a history leave, as a changelog would."""
    state = State.open(MemoryStore(), None)
    for row in history:
        single = table([row], ops=True, **options)
        # One event at a time: the golden histories hold a correction as two rows, which one batch must pair.
        rows = single.drop_columns(["op"])
        gone = pa.array([row[0] == 1])
        state = state.apply(rows.add_column(0, "_gone", gone).add_column(0, "_key", encode_keys(rows, key)))
    return state


def current(state: State) -> pa.Table | None:
    batches = list(state.scan())
    return pa.Table.from_batches(batches) if batches else None


@pytest.mark.parametrize(("key", "case"), cases("ledger"))
def test_ledger(key, case):
    if "error" in case:
        with pytest.raises(SchemaError, match=case["error"]):
            merge_batch(merge.ledger(key), table(case["input"]))
        return
    old = current(state_of(case["history"], key))
    merged = merge_batch(merge.ledger(key), table(case["input"]), old)
    assert shown(merged.events) == case["expected"]
    assert sum(merged.ignored.values()) == len(case["input"]) - len(case["expected"])


def test_ledger_counts_what_it_ignores_by_whether_it_says_otherwise():
    by_name = {case["name"]: case for case in GOLDEN["ledger"]["cases"]}
    counted = {}
    for name in ("seen_tail_ordered", "changed_value_same_pk_is_dropped"):
        old = current(state_of(by_name[name]["history"], ["year", "city"]))
        ignored = merge_batch(merge.ledger(["year", "city"]), table(by_name[name]["input"]), old).ignored
        counted[name] = (ignored["duplicate"], ignored["conflicting"])
    assert counted == {"seen_tail_ordered": (2, 0), "changed_value_same_pk_is_dropped": (0, 1)}


@pytest.mark.parametrize(("key", "case"), cases("snapshot_project"))
def test_a_history_projects_to_its_current_rows(key, case):
    found = current(state_of(case["history"], key, keyed_by_year=False))
    rows = [] if found is None else found.to_pylist()
    expected = [(year, city, population) for _, year, city, population in case["expected"]]
    assert sorted((row["event_time"].year, row["city"], row["population"]) for row in rows) == sorted(
        expected
    )
    # The same through the kernel: a changelog folds to the state its delta makes.
    merged = merge_batch(merge.changelog(key), table(case["history"], ops=True, keyed_by_year=False))
    folded = current(State.open(MemoryStore(), None).apply(merged.delta))
    assert (folded and folded.to_pylist()) == (found and found.to_pylist())


@pytest.mark.parametrize(("key", "case"), cases("snapshot_merge"))
def test_snapshot(key, case):
    old = current(state_of(case["history"], key, keyed_by_year=False))
    merged = merge_batch(merge.snapshot(key), table(case["input"], keyed_by_year=False), old)
    assert shown(merged.events, keyed_by_year=False) == case["expected"]


@pytest.mark.parametrize(("key", "case"), cases("upsert"))
def test_upsert(key, case):
    old = current(state_of(case["history"], key))
    merged = merge_batch(merge.upsert(key), table(case["input"], ops=True), old)
    assert shown(merged.events) == case["expected"]


def test_every_golden_case_is_run():
    areas = {"ledger", "snapshot_project", "snapshot_merge", "upsert"}
    assert {name for name, value in GOLDEN.items() if isinstance(value, dict) and "cases" in value} == areas
    assert sum(len(GOLDEN[area]["cases"]) for area in areas) == 19
