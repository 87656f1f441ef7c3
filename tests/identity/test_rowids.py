from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueline.errors import InputError
from trueline.identity import RowId, RowIds
from trueline.identity import rowids as module

WORDS = st.integers(0, 2**64 - 1) | st.integers(0, 3) | st.integers(2**64 - 3, 2**64 - 1)
IDS = st.builds(RowId, WORDS, WORDS)
COLUMNS = st.lists(IDS, max_size=20)


def distinct(ids: RowIds) -> int:
    words = np.stack([ids.low, ids.high], axis=1)
    return len(np.unique(words.view(np.dtype([("low", "u8"), ("high", "u8")]))))


@given(COLUMNS)
def test_columns_compute_what_single_ids_do(ids):
    column = RowIds.of(ids)
    assert list(column) == ids
    assert list(column.next()) == [one.next() for one in ids]
    assert list(column.fork()) == [one.fork() for one in ids]


@given(st.lists(st.tuples(IDS, IDS), max_size=20), IDS)
def test_columns_combine_as_single_ids_do(pairs, other):
    left, right = RowIds.of([pair[0] for pair in pairs]), RowIds.of([pair[1] for pair in pairs])
    assert list(left.combine(right)) == [a.combine(b) for a, b in pairs]
    assert list(left.combine(other)) == [a.combine(other) for a, _ in pairs]
    assert list(RowIds.repeat(other, len(pairs)).combine(right)) == [other.combine(b) for _, b in pairs]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 9])
def test_blocks_join_without_a_seam(monkeypatch, count):
    ids, others = RowIds.range(7, count).fork(), RowIds.range(0, count)
    whole = [ids.next(), ids.fork(), ids.combine(others), ids.combine(RowId(3))]
    monkeypatch.setattr(module, "_BLOCK", 4)
    assert [ids.next(), ids.fork(), ids.combine(others), ids.combine(RowId(3))] == whole


def test_an_operation_leaves_its_input_as_it_was():
    ids = RowIds.range(0, 5).fork()
    before = list(ids)
    ids.next(), ids.fork(), ids.combine(ids), ids.combine(RowId(1))
    assert list(ids) == before
    assert list(ids.combine(ids)) == [one.combine(one) for one in before]


def test_a_range_carries_into_the_high_word():
    ids = RowIds.range(RowId(2**64 - 2, high=5), 4)
    assert list(ids) == [RowId(2**64 - 2, 5), RowId(2**64 - 1, 5), RowId(0, 6), RowId(1, 6)]
    assert list(RowIds.range(10, 2)) == [RowId(10), RowId(11)]
    assert list(RowIds.range(RowId.ONES, 1)) == [RowId.ONES]


@pytest.mark.parametrize(("start", "count"), [(RowId.ONES, 2), (0, -1), (-1, 1), (2**64, 1)])
def test_a_range_that_does_not_exist_is_refused(start, count):
    with pytest.raises(InputError):
        RowIds.range(start, count)


@given(COLUMNS, st.data())
def test_parts_of_a_column_are_ids_and_columns(ids, data):
    column = RowIds.of(ids)
    part = data.draw(st.slices(len(ids)))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids))), dtype=bool)
    assert list(column[part]) == ids[part]
    assert list(column[mask]) == [one for one, kept in zip(ids, mask, strict=True) if kept]
    assert [column[i] for i in range(-len(ids), len(ids))] == ids + ids
    assert list(RowIds.concat([column[: len(ids) // 2], column[len(ids) // 2 :]])) == ids
    with pytest.raises(IndexError):
        column[len(ids)]


def test_nothing_concatenates_to_nothing():
    assert len(RowIds.concat([])) == 0


@given(COLUMNS)
def test_sorting_is_unsigned_by_high_then_low_and_stable(ids):
    order = RowIds.of(ids).argsort()
    assert order.tolist() == sorted(range(len(ids)), key=lambda i: ids[i])
    low = [RowId(one.low) for one in ids]
    assert RowIds.of(low).argsort().tolist() == sorted(range(len(ids)), key=lambda i: low[i])


@given(COLUMNS, st.integers(0, 20), st.integers(0, 20))
def test_arrow_holds_the_same_bytes_as_single_ids(ids, start, length):
    array = RowIds.of(ids).to_arrow()
    assert array.type == pa.binary(16)
    array.validate(full=True)
    assert array.to_pylist() == [one.bytes for one in ids]
    assert list(RowIds.from_arrow(array.slice(start, length))) == ids[start : start + length]
    chunked = pa.chunked_array([array.slice(0, 3), array.slice(3)], pa.binary(16))
    assert list(RowIds.from_arrow(chunked)) == ids


@pytest.mark.parametrize(
    "array", [pa.array([None, bytes(16)], pa.binary(16)), pa.array([bytes(15)], pa.binary(15)), pa.array([1])]
)
def test_arrow_that_holds_no_ids_is_refused(array):
    with pytest.raises(InputError):
        RowIds.from_arrow(array)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (np.zeros(2, np.int64), np.zeros(2, np.uint64)),
        (np.zeros(2, np.uint64), np.zeros(3, np.uint64)),
        (np.zeros((2, 1), np.uint64), np.zeros(2, np.uint64)),
        ([0], np.zeros(1, np.uint64)),
    ],
)
def test_words_of_another_shape_are_refused(low, high):
    with pytest.raises(InputError):
        RowIds(low, high)


def test_columns_of_different_lengths_do_not_combine():
    with pytest.raises(InputError, match="2 ids cannot be combined with 3"):
        RowIds.range(0, 2).combine(RowIds.range(0, 3))


def test_a_column_cannot_be_changed_even_after_a_pickle():
    for ids in (RowIds.range(0, 3), pickle.loads(pickle.dumps(RowIds.range(0, 3)))):
        assert ids == RowIds.range(0, 3)
        with pytest.raises(ValueError, match="read-only"):
            ids.low[0] = 9
        with pytest.raises(AttributeError):
            ids.low = ids.high


def test_columns_are_equal_when_their_ids_are():
    assert RowIds.range(0, 3) == RowIds.of([RowId(0), RowId(1), RowId(2)])
    assert RowIds.range(0, 3) != RowIds.range(1, 3)
    assert RowIds.range(0, 3) != RowIds.range(0, 4)
    assert RowIds.range(0, 1) != RowId(0)


@pytest.mark.contract("view:C77")
@given(st.integers(0, 2**64 - 1), st.data())
def test_ids_made_by_the_rules_do_not_collide(start, data):
    size = data.draw(st.integers(1, 4000))
    source = RowIds.range(start, size)
    forked = source.fork()
    fanned = [forked]
    for _ in range(data.draw(st.integers(0, 4))):
        fanned.append(fanned[-1].next())
    other = RowIds.range(data.draw(st.integers(0, 2**64 - 1)), data.draw(st.integers(1, 4)))
    joined = [RowIds.concat(fanned).combine(key) for key in other]
    stepped = [ids.next() for ids in joined]
    for parts in ([source], [forked], fanned, joined, joined + stepped):
        ids = RowIds.concat(parts)
        assert distinct(ids) == len(ids)


@pytest.mark.contract("view:C77")
def test_a_million_ids_made_by_every_rule_do_not_collide():
    source = RowIds.range(0, 50_000)
    fanned = [source.fork()]
    for _ in range(4):
        fanned.append(fanned[-1].next())
    united = RowIds.concat(fanned)
    ids = RowIds.concat([united.combine(key) for key in RowIds.range(0, 4)])
    assert len(ids) == 1_000_000
    assert distinct(ids) == 1_000_000
