from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chain.histories import History, add_data, derivative, execute, root, set_data_schema, taken
from tests.chain.records import json_values
from trueline.chain import Block, Chain
from trueline.chain.block import COMMIT_KEY, WHOLE, CommitRecord, commit_record, is_commit_end
from trueline.chain.verify import verify_blocks
from trueline.errors import InputError


def with_record(value: Any, **more: Any) -> dict[str, Any]:
    return add_data((0, 9), extra={COMMIT_KEY: value}, **more)


def stored(value: Any) -> Block:
    """A block as another process would read it."""
    return Block.from_bytes(root().block(with_record(value)).to_bytes())


@pytest.mark.parametrize(
    ("part", "parts", "ends"), [(1, 1, True), (1, 2, False), (2, 2, True), (2, 3, False)]
)
def test_only_the_last_part_is_the_end_of_a_commit(part, parts, ends):
    block = stored({"part": part, "parts": parts})
    assert commit_record(block) == CommitRecord(part, parts)
    assert is_commit_end(block) == ends


def test_every_block_that_says_nothing_is_a_whole_commit():
    history = root(add_data((0, 9)), add_data(prev=9, watermark=1, extra={"example.org/x": 1}))
    history.append({"kind": "SetInfo", "description": COMMIT_KEY})
    for _, block in history.chain.walk():
        assert commit_record(block) is WHOLE
        assert is_commit_end(block)


def test_a_transform_is_always_a_whole_commit():
    history = derivative("a", events=(execute(taken("a", None, "a1", None, 9), data=(0, 9)),))
    assert is_commit_end(history.chain.block(history.head))


def test_a_name_that_only_occurs_in_a_value_is_no_record():
    block = root().block(add_data((0, 9), extra={"example.org/x": COMMIT_KEY}))
    assert commit_record(block) is WHOLE


@given(
    st.integers(1, 5).flatmap(lambda parts: st.tuples(st.integers(1, parts), st.just(parts))),
    st.dictionaries(
        st.text(max_size=8).filter(lambda key: key not in ("part", "parts")), json_values, max_size=3
    ),
)
def test_a_record_survives_its_block(place, notes):
    record = CommitRecord(*place, notes or None)
    extra = record.to_extra()
    if extra is None:
        assert record == WHOLE
        return
    assert commit_record(stored(extra.value[COMMIT_KEY])) == record


def test_a_record_with_nothing_to_say_is_not_written():
    assert CommitRecord().to_extra() is None
    assert CommitRecord(1, 2).to_extra().value == {COMMIT_KEY: {"part": 1, "parts": 2}}
    assert CommitRecord(notes={"files": []}).to_extra().value == {COMMIT_KEY: {"files": []}}


NOT_OURS = [
    3,
    None,
    "text",
    [],
    {"part": 0, "parts": 2},
    {"part": 3, "parts": 2},
    {"part": 1, "parts": 1 << 40},
    {"part": "1", "parts": 2},
    {"part": 1.0, "parts": 2},
    {"part": True, "parts": 2},
    {"part": None, "parts": 2},
    {"parts": 0},
]


@pytest.mark.parametrize("value", NOT_OURS, ids=repr)
def test_a_record_that_is_not_ours_is_refused_where_it_is_asked_for(value):
    with pytest.raises(InputError) as caught:
        CommitRecord.from_value(value)
    assert COMMIT_KEY in caught.value.problem
    assert caught.value.remedy


@pytest.mark.parametrize("value", NOT_OURS, ids=repr)
def test_a_record_that_is_not_ours_does_not_make_a_chain_unreadable(value):
    history = root(with_record(value))
    history.append(add_data((10, 19), prev=9))
    fresh = Chain(history.store)
    assert fresh.tail().last_offset == 19
    assert verify_blocks(fresh).ok
    assert all(entry.is_end for entry in fresh.entries())


def test_parts_of_a_commit_are_told_apart_from_its_end_in_the_index():
    history = History()
    blocks = [history.block(set_data_schema())]
    for part in (1, 2, 3):
        extra = {COMMIT_KEY: {"part": part, "parts": 3}}
        prev = 10 * part - 11 if part > 1 else None
        event = add_data((10 * part - 10, 10 * part - 1), prev=prev, extra=extra)
        number = len(blocks) + 1
        header = {"prevBlockHash": str(blocks[-1].hash), "sequenceNumber": number}
        blocks.append(history.block(event, **header))
    history.chain.append(*blocks)
    assert [entry.is_end for entry in history.chain.entries()] == [True, True, False, False, True]
    assert [entry.commits for entry in Chain(history.store).entries()] == [1, 2, 2, 2, 3]
