"""Keyed strategies through the whole way in: events, state and counts, commit after commit."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.examples import examples
from tests.workspace.records import records
from trueline.chain.store.memory import MemoryStore
from trueline.dataset.append import merge as merging
from trueline.dataset.append.merge import open_state
from trueline.errors import InputError


def table(*rows):
    return pa.table({"id": [row[0] for row in rows], "city": [row[1] for row in rows]}, schema=SCHEMA)


SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])


def events(ds):
    return [tuple(row.values()) for row in records(ds).select(["op", "id", "city"]).to_pylist()]


def state(ds):
    tail = ds.chain.tail()
    found = {}
    for batch in open_state(ds.chain.store, tail).scan():
        for row in batch.to_pylist():
            found[row["id"]] = (row["city"], row["_offset"])
    return found


def test_an_upsert_corrects_adds_and_drops_what_is_unchanged(ws):
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    ds.append(table((1, "Bern"), (2, "Basel")))
    commit = ds.append(table((2, "Zug"), (1, "Bern"), (3, "Chur")))
    assert events(ds) == [(0, 1, "Bern"), (0, 2, "Basel"), (2, 2, "Basel"), (3, 2, "Zug"), (0, 3, "Chur")]
    assert (commit.rows, commit.ignored) == (3, {"unchanged": 1})
    assert state(ds) == {1: ("Bern", 0), 2: ("Zug", 3), 3: ("Chur", 4)}
    assert ds.verify().ok


def test_an_upsert_may_take_keys_away(ws):
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    ds.append(table((1, "Bern"), (2, "Basel")))
    ds.append([{"id": 1, "city": None, "op": 1}, {"id": 9, "city": None, "op": 1}])
    assert events(ds)[2:] == [(1, 1, "Bern")]
    assert state(ds) == {2: ("Basel", 1)}


def test_a_ledger_keeps_the_first_row_of_a_key(ws):
    ds = ws.create("x", merge=tl.merge.ledger("id"))
    ds.append(table((5, "Bern"), (1, "Basel"), (5, "Zug")))
    commit = ds.append(table((1, "Basel"), (2, "Chur"), (5, "Olten")))
    assert events(ds) == [(0, 5, "Bern"), (0, 1, "Basel"), (0, 2, "Chur")]
    assert sum(commit.ignored.values()) == 2


def test_a_snapshot_becomes_what_differs_from_the_one_before(ws):
    ds = ws.create("x", merge=tl.merge.snapshot("id"))
    ds.append(table((1, "Bern"), (2, "Basel")))
    ds.append(table((2, "Zug"), (3, "Chur")))
    assert events(ds)[2:] == [(1, 1, "Bern"), (2, 2, "Basel"), (3, 2, "Zug"), (0, 3, "Chur")]
    assert state(ds) == {2: ("Zug", 4), 3: ("Chur", 5)}


def test_a_changelog_is_taken_as_it_is(ws):
    ds = ws.create("x", merge=tl.merge.changelog("id"))
    ds.append([{"id": 1, "city": "Bern", "op": 0}, {"id": 2, "city": "Zug", "op": 0}])
    ds.append([{"id": 1, "city": "Bern", "op": 2}, {"id": 1, "city": "Thun", "op": 3}])
    assert state(ds) == {1: ("Thun", 3), 2: ("Zug", 1)}


def test_a_row_without_a_key_refuses_the_batch(ws):
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    with pytest.raises(InputError) as refused:
        ds.append(table((1, "Bern"), (None, "Zug")))
    assert refused.value.code == "NullKey"
    assert ds.info.rows == 0


def test_a_batch_that_changes_nothing_records_nothing_unless_it_has_a_key(ws):
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    ds.append(table((1, "Bern")))
    head = ds.head
    assert ds.append(table((1, "Bern"))).ignored == {"unchanged": 1}
    assert ds.head == head
    kept = ds.append(table((1, "Bern")), idempotency_key="k")
    assert (kept.rows, kept.block) == (0, ds.head)
    assert ds.head != head
    assert ds.append(table((1, "Bern")), idempotency_key="k").block == kept.block
    ds.append(table((1, "Zug")))
    assert state(ds) == {1: ("Zug", 2)}
    assert ds.verify().ok


def test_a_merge_goes_on_after_the_schema_grew(ws):
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    ds.append(table((1, "Bern"), (2, "Zug")))
    ds.append(pa.table({"id": [2], "city": ["Zug"], "canton": ["ZG"]}), new_columns="add")
    assert ds.schema.names == ("id", "city", "canton")
    assert records(ds).select(["op", "id", "canton"]).to_pylist()[2:] == [
        {"op": 2, "id": 2, "canton": None},
        {"op": 3, "id": 2, "canton": "ZG"},
    ]


rows = st.lists(st.tuples(st.integers(0, 8), st.sampled_from("abc")), max_size=12)


@settings(max_examples=examples(25))
@given(st.lists(rows, min_size=1, max_size=5), st.sampled_from(["upsert", "ledger", "snapshot"]))
def test_ranges_of_keys_give_what_one_range_gives(tmp_path_factory, batches, strategy):
    """The same batches, merged at once and a few rows at a time through sorted runs."""
    if strategy == "snapshot":
        batches = [list({key: (key, city) for key, city in batch}.values()) for batch in batches]
    seen = []
    for at_once in (1 << 20, 3):
        with pytest.MonkeyPatch.context() as patch, tl.open(tmp_path_factory.mktemp("w"), create=True) as ws:
            patch.setattr(merging, "ROWS_AT_ONCE", at_once)
            ds = ws.create("x", merge=getattr(tl.merge, strategy)("id"))
            for batch in batches:
                ds.append(table(*batch))
            seen.append((events(ds) if ds.info.rows else [], state_keys(ds)))
    assert seen[0] == seen[1]


def state_keys(ds):
    found = open_state(ds.chain.store, ds.chain.tail())
    return [row for batch in found.scan() for row in batch.to_pylist()]


def test_memory_stores_have_state_too():
    tail = type("T", (), {"checkpoint": None, "attachments": None})
    assert open_state(MemoryStore(), tail).generations == ()
