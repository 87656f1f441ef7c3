"""The merge kernels against the slow oracle, over sequences of batches, whole and by ranges of keys."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dataset.merge.oracle import Oracle, fold, same
from tests.examples import examples
from trueline import merge
from trueline.chain.events import SetVocab
from trueline.chain.store.memory import MemoryStore
from trueline.dataset.merge import IGNORED, Merged, merge_batch
from trueline.dataset.state import State, encode_keys, ranges

# Every example keeps state in files; `make soak` looks at more of them.
MAX = examples(25)
KEY = ["city", "year"]
SCHEMA = pa.schema(
    [
        pa.field("event_time", pa.timestamp("ms", "UTC")),
        pa.field("city", pa.string(), nullable=False),
        pa.field("year", pa.int32(), nullable=False),
        pa.field("x", pa.float64()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
TIMES = [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2021, 1, 1, tzinfo=dt.UTC)]
SOURCE_TIME = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROWS = st.fixed_dictionaries(
    {
        "event_time": st.none() | st.sampled_from(TIMES),
        "city": st.sampled_from(["a", "b", "a\0", ""]),
        "year": st.integers(-1, 1),
        "x": st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
        "tags": st.none() | st.lists(st.none() | st.sampled_from("pq"), max_size=2),
    }
)
BATCHES = st.lists(st.lists(ROWS, max_size=12), max_size=4)
OPS = st.sampled_from([0, 1, 2, 3, None])
TABLE_OF_OPS = pa.schema([*SCHEMA, pa.field("op", pa.int32())])


def identity(row):
    return tuple(row[name] for name in KEY)


def one_per_key(batch):
    return list({identity(row): row for row in batch}.values())


@st.composite
def changelogs(draw):
    """Batches of events in which each correction is whole, within its key; keys are interleaved."""
    batches = []
    for _ in range(draw(st.integers(0, 3))):
        queues = {}
        for row in draw(st.lists(ROWS, max_size=8)):
            queue = queues.setdefault(identity(row), [])
            if draw(st.booleans()):
                queue += [(2, row), (3, {**row, "x": draw(st.sampled_from([1.0, 2.0]))})]
            else:
                queue.append((draw(st.sampled_from([0, 1])), row))
        batch = []
        while any(queues.values()):
            k = draw(st.sampled_from(sorted(k for k, queue in queues.items() if queue)))
            batch.append(queues[k].pop(0))
        batches.append(batch)
    return batches


CASES = {
    "append": (merge.append(), BATCHES),
    "ledger": (merge.ledger(KEY), BATCHES),
    "snapshot": (merge.snapshot(KEY), BATCHES.map(lambda batches: [one_per_key(batch) for batch in batches])),
    "snapshot of some columns": (
        merge.snapshot(KEY, compare="x"),
        BATCHES.map(lambda batches: [one_per_key(batch) for batch in batches]),
    ),
    "upsert": (merge.upsert(KEY), st.lists(st.lists(st.tuples(OPS, ROWS), max_size=12), max_size=4)),
    "changelog": (merge.changelog(KEY), changelogs()),
}


def has_ops(strategy) -> bool:
    return isinstance(strategy, merge.Upsert | merge.Changelog)


def table_of(batch, strategy) -> pa.Table:
    if has_ops(strategy):
        return pa.Table.from_pylist([{**row, "op": op} for op, row in batch], schema=TABLE_OF_OPS)
    return pa.Table.from_pylist(batch, schema=SCHEMA)


def current_rows(state: State, strategy, new: pa.Table) -> pa.Table | None:
    """What the caller hands over: for a snapshot every current row, else those of the keys that came."""
    if isinstance(strategy, merge.Snapshot):
        return pa.Table.from_batches(batches) if (batches := list(state.scan())) else None
    return state.lookup(encode_keys(new, KEY))


def events_of(merged: Merged):
    rows = merged.events.to_pylist()
    for row in rows:
        row.pop("_rank", None)
    return [(row.pop("op"), row) for row in rows]


def assert_same_events(found, expected):
    assert [op for op, _ in found] == [op for op, _ in expected]
    for (_, left), (_, right) in zip(found, expected, strict=True):
        assert same(left, right), (left, right)


@settings(max_examples=MAX)
@pytest.mark.parametrize("case", CASES)
@given(data=st.data(), source_time=st.none() | st.just(SOURCE_TIME))
def test_events_and_state_are_those_of_the_oracle(case, data, source_time):
    strategy, batches = CASES[case]
    oracle = Oracle(KEY, SCHEMA.names, "event_time", source_time, getattr(strategy, "compare", None))
    state = State.open(MemoryStore(), None)
    scalar = None if source_time is None else pa.scalar(source_time, SCHEMA.field("event_time").type)
    for batch in data.draw(batches):
        new = table_of(batch, strategy)
        merged = merge_batch(strategy, new, current_rows(state, strategy, new), source_time=scalar)
        expected, ignored = getattr(oracle, strategy.NAME)(batch)
        assert_same_events(events_of(merged), expected)
        assert merged.ignored == {why: ignored[why] for why in IGNORED}
        assert merged.events.schema.field("op").type == pa.int32()
        assert merged.quarantined.num_rows == 0
        if merged.delta is not None:
            state = state.apply(merged.delta_with_offsets("offset", len(oracle.history))).compact_if_needed()
        oracle.history += expected
    if not isinstance(strategy, merge.Append):
        kept = {identity(row): row for batch in state.scan() for row in batch.to_pylist()}
        folded = fold(oracle.history, KEY)
        assert list(kept) == sorted(folded)
        for k, (offset, row) in folded.items():
            assert kept[k]["offset"] == offset
            assert same({name: kept[k][name] for name in SCHEMA.names}, row)


@settings(max_examples=MAX)
@pytest.mark.parametrize("case", [case for case in CASES if case != "append"])
@given(
    data=st.data(), cuts=st.sets(st.tuples(st.sampled_from(["a", "b", ""]), st.integers(-1, 1)), max_size=4)
)
def test_ranges_of_keys_joined_are_the_whole(case, data, cuts):
    strategy, batches = CASES[case]
    state = State.open(MemoryStore(), None)
    cut_table = pa.Table.from_pylist([dict(zip(KEY, cut, strict=True)) for cut in cuts], schema=SCHEMA)
    splitters = sorted(encode_keys(cut_table, KEY).to_pylist())
    for batch in data.draw(batches):
        new = table_of(batch, strategy).append_column("_rank", pa.array(range(len(batch)), pa.int64()))
        keys = encode_keys(new, KEY).to_pylist()
        old = current_rows(state, strategy, new)
        whole = merge_batch(strategy, new, old)
        parts = []
        for each in ranges(splitters):
            mine = new.filter(pa.array([key in each for key in keys], pa.bool_()))
            theirs = old and old.filter(
                pa.array([key in each for key in old["_key"].to_pylist()], pa.bool_())
            )
            parts.append(merge_batch(strategy, mine, theirs))
        joined = Merged.concat(parts)
        assert_same_events(events_of(joined), events_of(whole))
        assert same(joined.delta.to_pylist(), whole.delta.to_pylist())
        assert joined.set_by.to_pylist() == whole.set_by.to_pylist()
        assert joined.ignored == whole.ignored
        state = state.apply(whole.delta)


@given(batch=st.lists(ROWS, max_size=12), seed=st.permutations(range(12)), step=st.integers(1, 5))
def test_rank_is_the_order_of_the_source_however_rows_come(batch, seed, step):
    new = table_of(batch, merge.append()).append_column("_rank", pa.array(range(len(batch)), pa.int64()))
    order = [place for place in seed if place < len(batch)]
    mixed = new.take(pa.array(order, pa.int64()))
    mixed = pa.concat_tables([mixed.slice(n, step) for n in range(0, len(batch), step)] or [mixed])
    for strategy in (merge.append(), merge.ledger(KEY)):
        assert_same_events(
            events_of(merge_batch(strategy, mixed)),
            events_of(merge_batch(strategy, new.drop_columns(["_rank"]))),
        )


def test_other_names_of_system_columns_are_followed():
    vocab = SetVocab(operation_type_column="kind", event_time_column="seen")
    new = pa.table({"seen": pa.array([None], pa.date32()), "op": ["mine"], "kind": [0], "id": [1]})
    old = pa.table({"seen": pa.array([dt.date(2020, 1, 1)]), "op": ["mine"], "id": [1]})
    merged = merge_batch(merge.upsert("id"), new, old, vocab=vocab)
    assert merged.events.num_rows == 0
    assert merged.events.column_names == ["kind", "seen", "op", "id"]
    assert merged.ignored["unchanged"] == 1


def test_a_declared_event_time_that_becomes_null_is_a_difference_in_a_whole_result():
    vocab = SetVocab(event_time_column="seen")
    days = pa.array([dt.date(2020, 1, 1)])
    new = pa.table({"seen": pa.array([None], pa.date32()), "id": [1]})
    old = pa.table({"seen": days, "id": [1]})
    assert merge_batch(merge.snapshot("id"), new, old, vocab=vocab).events["seen"].to_pylist() == [
        dt.date(2020, 1, 1),
        None,
    ]
    change = pa.table({"seen": pa.array([days[0].as_py(), None], pa.date32()), "op": [1, 0], "id": [1, 1]})
    found = merge_batch(merge.NetChange(("id",)), change, old, vocab=vocab)
    assert found.events["seen"].to_pylist() == [dt.date(2020, 1, 1), None]
    # Where the source gives rows a time, null is that one.
    given = pa.scalar(dt.date(2021, 1, 1))
    same = merge_batch(merge.snapshot("id"), new, old, vocab=vocab, source_time=given)
    assert same.events.num_rows == 0
