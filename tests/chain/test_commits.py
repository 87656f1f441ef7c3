from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chain.histories import (
    History,
    add_data,
    derivative,
    execute,
    moment,
    root,
    set_data_schema,
    taken,
)
from tests.chain.records import json_values
from trueline.chain import Block, Chain
from trueline.chain.block import (
    COMMIT_KEY,
    WHOLE,
    CommitRecord,
    check_commit_end,
    commit_record,
    is_commit_end,
)
from trueline.chain.branch import Branch
from trueline.chain.store.store import Folder
from trueline.chain.verify import verify_blocks
from trueline.dataset.at import resolve
from trueline.dataset.commit import commit_at, commits
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


MOVES, STAYS = taken("a", "a1", "a2", 9, 19), taken("a", "a1", None, 9)


@pytest.mark.parametrize(
    ("event", "ends"),
    [
        (execute(MOVES, data=(10, 19), prev=9), True),
        (execute(MOVES, data=(10, 19), prev=9, was="c1", leaves="c1"), True),
        (execute(MOVES, data=(10, 19), prev=9, was="c1", leaves="c2"), True),
        (execute(MOVES, prev=9, watermark=9), True),
        (execute(STAYS, prev=9, watermark=9), True),
        (execute(STAYS, prev=9, was="c1", leaves="c2"), True),
        (execute(STAYS, data=(10, 19), prev=9, was="c1", leaves="c2"), True),
        (execute(STAYS, data=(10, 19), prev=9, leaves="c2"), True),
        (execute(STAYS, data=(10, 19), prev=9), False),
        (execute(STAYS, data=(10, 19), prev=9, was="c1"), False),
        (execute(STAYS, data=(10, 19), prev=9, was="c1", leaves="c1"), False),
    ],
)
def test_a_transform_ends_a_commit_unless_it_has_records_and_nothing_else_new(event, ends):
    block = Block.from_bytes(derivative("a").block(event).to_bytes())
    assert is_commit_end(block) == ends
    if ends:
        check_commit_end(block)
        return
    with pytest.raises(InputError) as caught:
        check_commit_end(block)
    assert (caught.value.code, caught.value.block) == ("InsideCommit", block.hash)


def parts_and_end():
    """A derived dataset with a commit of one block, then one of two parts and an end."""
    first = execute(taken("a", None, "a1", None, 9), data=(0, 9), leaves="c1")
    history = derivative("a", events=(first,))
    blocks = []
    for number, (step, leaves) in enumerate(((STAYS, "c1"), (STAYS, "c1"), (MOVES, "c2")), 1):
        event = execute(
            step, data=(10 * number, 10 * number + 9), prev=10 * number - 1, was="c1", leaves=leaves
        )
        follows = {"prevBlockHash": str(blocks[-1].hash)} if blocks else {}
        position = {"sequenceNumber": history.chain.tail().sequence_number + number}
        blocks.append(history.block(event, systemTime=moment(50), **position, **follows))
    history.chain.append(*blocks)
    for left in ("c1", "c2"):  # by other software: that says nothing of rest
        history.store.put(Folder.CHECKPOINTS, left.encode())
    return history, [block.hash for block in blocks]


def test_the_parts_of_a_derived_commit_are_one_commit_in_the_log_and_its_counts():
    history, names = parts_and_end()
    newest, before, *_ = commits("x", history.chain.walk(), history.chain)
    assert (newest.block, newest.blocks, newest.offsets) == (names[-1], tuple(names), range(10, 40))
    assert before.offsets == range(10)
    for name in names:
        assert commit_at("x", history.chain, name) == newest
    entries = list(Chain(history.store).entries())
    assert [entry.is_end for entry in entries[-4:]] == [True, False, False, True]
    assert [entry.commits for entry in entries[-4:]] == [4, 4, 4, 5]


def test_a_part_of_a_derived_commit_cannot_be_read_at_or_reset_to():
    history, names = parts_and_end()
    chain = history.chain
    for name in names[:2]:
        for refused in (
            lambda name=name: resolve(chain, name),
            lambda name=name: resolve(chain, name.short),
            lambda name=name: chain.reset(name),
        ):
            with pytest.raises(InputError) as caught:
                refused()
            assert caught.value.code == "InsideCommit"
        assert resolve(chain, name, inside=True).block == name
    for offset in (19, 29):
        with pytest.raises(InputError) as caught:
            resolve(chain, offset)
        assert (caught.value.code, "9 or 39" in caught.value.remedy) == ("InsideCommit", True)
    assert resolve(chain, None) == (names[-1], 39)
    assert chain.head == names[-1]
    assert next(Branch.of(chain).data_ends()).hash == names[-1]


def test_a_chain_whose_head_is_a_part_is_read_at_the_commit_before():
    history, names = parts_and_end()
    history.store.move_head(names[1], expected=names[-1])
    chain = Chain(history.store)
    assert resolve(chain, None).offset == 9
    assert [end.last_offset for end in Branch.of(chain).data_ends()] == [9]


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
