"""What a merge refuses or sets aside, and what it says then."""

from __future__ import annotations

import pyarrow as pa
import pytest

from trueline import merge
from trueline.dataset.merge import Merged, merge_batch
from trueline.errors import InputError, SchemaError

STRATEGIES = [merge.ledger("id"), merge.snapshot("id"), merge.changelog("id"), merge.upsert("id")]


def batch(ids, strategy=None, **columns) -> pa.Table:
    table = {"id": pa.array(ids, pa.int64()), "v": pa.array(range(len(ids)), pa.int64())} | columns
    if isinstance(strategy, merge.Changelog) and "op" not in table:
        table["op"] = pa.array([0] * len(ids), pa.int32())
    return pa.table(table)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_rows_without_a_key_are_refused_with_their_ranks(strategy):
    new = batch([1, None, 3, None], strategy).append_column("_rank", pa.array([10, 11, 12, 13]))
    with pytest.raises(InputError, match="fix these rows, or leave them out") as raised:
        merge_batch(strategy, new)
    assert (raised.value.code, raised.value.rows) == ("NullKey", [11, 13])


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_rows_without_a_key_can_be_set_aside(strategy):
    merged = merge_batch(strategy, batch([1, None, 3, None], strategy), null_keys="quarantine")
    assert merged.events["id"].to_pylist() == merged.delta["id"].to_pylist() == [1, 3]
    assert merged.quarantined.select(["v", "_rank"]).to_pydict() == {"v": [1, 3], "_rank": [1, 3]}
    assert sum(merged.ignored.values()) == 0
    joined = Merged.concat([merged, merge_batch(strategy, batch([], strategy))])
    assert joined.quarantined.num_rows == 2


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_a_key_column_that_is_not_there_is_named(strategy):
    with pytest.raises(SchemaError, match="missing primary key column 'id'") as raised:
        merge_batch(strategy, pa.table({"x": [1], "op": [0]}))
    assert raised.value.code == "MissingKeyColumn"


def test_the_column_of_operations_is_not_a_key():
    with pytest.raises(SchemaError, match="missing primary key column 'op'"):
        merge_batch(merge.upsert("op"), pa.table({"x": [1], "op": [0]}))


def test_keys_that_come_twice_in_a_snapshot_are_refused_and_shown():
    with pytest.raises(InputError) as raised:
        merge_batch(merge.snapshot("id"), batch([5, 1, 5, 2, 1, 1]))
    assert raised.value.code == "DuplicateKeys"
    assert (raised.value.count, raised.value.keys) == (2, [{"id": 1}, {"id": 5}])


def test_a_compare_column_that_is_not_there_is_named():
    with pytest.raises(SchemaError, match="missing compare column 'w'") as raised:
        merge_batch(merge.snapshot("id", compare=["v", "w"]), batch([1]))
    assert raised.value.code == "MissingCompareColumn"


@pytest.mark.parametrize("strategy", [merge.append(), merge.ledger("id"), merge.snapshot("id")], ids=str)
def test_operations_are_refused_where_the_strategy_finds_them(strategy):
    with pytest.raises(SchemaError, match="merge by changelog or upsert"):
        merge_batch(strategy, batch([1], op=[0]))


def test_a_changelog_needs_operations():
    with pytest.raises(SchemaError) as raised:
        merge_batch(merge.changelog("id"), batch([1]))
    assert raised.value.code == "MissingOp"


@pytest.mark.parametrize("ops", [[4, 0], [-1, 0]])
def test_an_operation_that_is_not_known_is_refused(ops):
    with pytest.raises(InputError) as raised:
        merge_batch(merge.changelog("id"), batch([1, 2], op=ops))
    assert (raised.value.code, raised.value.rows) == ("BadOp", [0])


def test_operations_are_numbers():
    with pytest.raises(SchemaError, match="whole numbers"):
        merge_batch(merge.upsert("id"), batch([1], op=["+A"]))


@pytest.mark.parametrize(
    ("ids", "ops", "rows"),
    [
        ([1], [2], [0]),
        ([1], [3], [0]),
        ([1, 1], [3, 2], [0, 1]),
        ([1, 2], [2, 3], [0, 1]),
        ([1, 1, 1], [2, 0, 3], [0, 2]),
        ([1, 1, 1], [2, 2, 3], [0]),
        ([1, 1, 1], [2, 3, 3], [2]),
        ([9, 1, 2], [0, 2, 3], [1, 2]),
    ],
)
def test_half_a_correction_is_refused(ids, ops, rows):
    with pytest.raises(InputError) as raised:
        merge_batch(merge.changelog("id"), batch(ids, op=ops))
    assert (raised.value.code, raised.value.rows) == ("BrokenPair", rows)


def test_a_changelog_keeps_the_order_of_each_key():
    merged = merge_batch(merge.changelog("id"), batch([2, 1, 2, 1, 1, 2], op=[0, 0, 1, 2, 3, 0]))
    assert merged.events["id"].to_pylist() == [1, 1, 1, 2, 2, 2]
    assert merged.events["op"].to_pylist() == [0, 2, 3, 0, 1, 0]
    assert merged.delta["_gone"].to_pylist() == [False, False]
    assert merged.set_by.to_pylist() == [2, 5]


def test_current_rows_of_another_type_or_with_a_key_twice_are_refused():
    with pytest.raises(SchemaError, match="'v' is int64, the current rows have string"):
        merge_batch(merge.upsert("id"), batch([1]), pa.table({"id": [1], "v": ["x"]}))
    with pytest.raises(InputError, match="twice among the current rows"):
        merge_batch(merge.upsert("id"), batch([1]), batch([1, 1]))


def test_ranks_are_unique_numbers():
    with pytest.raises(InputError, match="same rank"):
        merge_batch(merge.append(), batch([1, 2]).append_column("_rank", pa.array([1, 1])))
    with pytest.raises(InputError, match="not a rank"):
        merge_batch(merge.append(), batch([1]).append_column("_rank", pa.array(["x"])))


def test_a_column_that_came_later_is_missing_in_what_is_cancelled():
    old = pa.table({"id": [1, 2], "v": [7, 8]})
    new = pa.table({"id": [1], "v": [7], "w": ["new"]})
    merged = merge_batch(merge.snapshot("id"), new, old)
    assert merged.events.to_pylist() == [
        {"op": 2, "id": 1, "v": 7, "w": None},
        {"op": 3, "id": 1, "v": 7, "w": "new"},
        {"op": 1, "id": 2, "v": 8, "w": None},
    ]


def test_a_ledger_of_keys_alone_calls_everything_seen_a_duplicate():
    merged = merge_batch(merge.ledger("id"), batch([1, 2]), pa.table({"id": [1]}))
    assert merged.events["id"].to_pylist() == [2]
    assert (merged.ignored["duplicate"], merged.ignored["conflicting"]) == (1, 0)


@pytest.mark.parametrize("strategy", [merge.append(), *STRATEGIES], ids=str)
def test_no_rows_are_no_events(strategy):
    merged = merge_batch(strategy, batch([], strategy))
    assert merged.events.num_rows == 0
    assert merged.events.schema.field(0).equals(pa.field("op", pa.int32(), nullable=False))
    assert merged.delta is None or merged.delta.num_rows == 0
    with pytest.raises(InputError, match="nothing to join"):
        Merged.concat([])


def test_an_append_keeps_no_state():
    with pytest.raises(InputError, match="keeps no state"):
        merge_batch(merge.append(), batch([1])).delta_with_offsets("offset", 0)


# --- the strategies as values ---------------------------------------------------


@pytest.mark.parametrize("make", [merge.ledger, merge.snapshot, merge.changelog, merge.upsert])
def test_a_key_is_one_name_or_several(make):
    assert make("a") == make(["a"]) == make(("a",))
    assert make(["a", "b"]).key == ("a", "b")
    assert eval(f"merge.{make(['a', 'b'])}") == make(["a", "b"])
    for wrong in ("", [], [""], [1], ["a", "a"]):
        with pytest.raises(InputError):
            make(wrong)


def test_a_snapshot_says_what_it_compares():
    assert merge.snapshot("a", compare="b").compare == ("b",)
    assert merge.snapshot("a").compare is None
    assert eval(f"merge.{merge.snapshot('a', ['b', 'c'])}") == merge.snapshot("a", ["b", "c"])
    with pytest.raises(InputError):
        merge.snapshot("a", compare=[])
