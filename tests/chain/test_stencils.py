"""Writing by stencil must be writing, only faster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueline.chain import Block
from trueline.chain import block as stencils
from trueline.chain.block import Stencils
from trueline.chain.datatypes import Extra
from trueline.chain.encode import encode
from trueline.chain.events import (
    AddData,
    Checkpoint,
    DataSlice,
    ExecuteTransform,
    ExecuteTransformInput,
    OffsetInterval,
    SourceState,
)
from trueline.chain.instant import Instant
from trueline.errors import InputError
from trueline.identity import DatasetId
from trueline.identity.multihash import Multihash

numbers = st.one_of(st.integers(0, 3), st.integers(0, (1 << 64) - 1))
digests = st.binary(min_size=32, max_size=32)
hashes = st.one_of(digests.map(Multihash.sha3_256), digests.map(Multihash.arrow0_sha3_256))
moments = st.integers(-(10**18), 10**19).map(Instant)
slices = st.builds(DataSlice, hashes, hashes, st.builds(OffsetInterval, numbers, numbers), numbers)
checkpoints = st.builds(Checkpoint, hashes, numbers)
states = st.builds(SourceState, *(st.text("aé€😀", max_size=5) for _ in range(3)))
extras = st.dictionaries(st.text("ab/", max_size=3), st.integers(0, 20), max_size=2).map(Extra.of)
ids = st.binary(min_size=32, max_size=32).map(lambda raw: DatasetId.from_bytes(b"\xed\x01" + raw))


def maybe(values):
    return st.none() | values


added = st.builds(
    AddData,
    maybe(hashes),
    maybe(numbers),
    maybe(slices),
    maybe(checkpoints),
    maybe(moments),
    maybe(states),
    maybe(extras),
)
taken = st.builds(ExecuteTransformInput, ids, maybe(hashes), maybe(hashes), maybe(numbers), maybe(numbers))
executed = st.builds(
    ExecuteTransform,
    st.lists(taken, max_size=3).map(tuple),
    maybe(hashes),
    maybe(numbers),
    maybe(slices),
    maybe(checkpoints),
    maybe(moments),
)
blocks = st.builds(
    Block,
    system_time=moments,
    prev_block_hash=maybe(hashes),
    sequence_number=numbers,
    event=added | executed,
)


@given(st.lists(blocks, min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=12))
def test_any_blocks_in_any_order_are_written_as_without_stencils(made, order):
    known = Stencils()
    for number in order:
        block = made[number % len(made)]
        assert known.write(block) == encode(block)


def _like(value, draw):
    """A value of the same shape with everything in it drawn anew."""
    if isinstance(value, Multihash):
        return Multihash(value[:-64] + draw(digests).hex())
    if isinstance(value, DatasetId):
        return draw(ids)
    if isinstance(value, Instant):
        return draw(moments)
    if isinstance(value, Extra):
        return value
    if isinstance(value, int):
        # Zero is written by leaving the field out, so it is another shape.
        return draw(st.integers(1, (1 << 64) - 1)) if value else 0
    if isinstance(value, tuple):
        return tuple(_like(item, draw) for item in value)
    if isinstance(value, SourceState) or value is None:
        return value
    names = [name for name in type(value).__match_args__ if not name.startswith("_")] or [
        "system_time",
        "prev_block_hash",
        "sequence_number",
        "event",
    ]
    return replace(value, **{name: _like(getattr(value, name), draw) for name in names})


@given(blocks, st.data())
def test_blocks_of_one_shape_are_written_by_one_stencil(block, data):
    known = Stencils()
    for _ in range(4):
        other = _like(block, data.draw)
        assert known.write(other) == encode(other)
    assert len(known._known) == 1
    assert None not in known._known.values()


def rows(number: int, **more: object) -> Block:
    name = Multihash.of(b"%d" % number)
    piece = DataSlice(name, name, OffsetInterval(number, number + 9), 100)
    event = AddData(prev_offset=number - 1, new_data=piece, **more)
    return Block(system_time=Instant(number), prev_block_hash=name, sequence_number=number, event=event)


def test_from_the_third_of_a_shape_on_nothing_is_encoded(monkeypatch):
    calls = []

    def counted(block):
        calls.append(block)
        return encode(block)

    monkeypatch.setattr(stencils, "encode", counted)
    known = Stencils()
    for number in range(1, 50):
        known.write(rows(number))
    assert len(calls) == 2


def test_a_stencil_that_does_not_give_the_block_before_is_not_used(monkeypatch):
    cut = stencils._cut

    def swapped(raw, values, record):
        stencil = cut(raw, values, record)
        return stencil._replace(places=stencil.places[::-1])

    monkeypatch.setattr(stencils, "_cut", swapped)
    known = Stencils()
    for number in range(1, 6):
        assert known.write(rows(number)) == encode(rows(number))
    assert list(known._known.values()) == [None]


GOOD = {"extra": Extra('{"a":1}'), "new_source_state": SourceState("a", "b", "€")}


@pytest.mark.parametrize(
    "bad",
    [
        lambda: replace(rows(1, **GOOD), sequence_number=1 << 64),
        lambda: rows(1, **(GOOD | {"extra": Extra('{"a":1 ')})),
        lambda: rows(1, **(GOOD | {"new_source_state": SourceState("a", "b", "\ud800")})),
        lambda: replace(rows(1, **GOOD), system_time=None),
    ],
    ids=["a number too large", "extra that is not JSON", "text that is none", "a field that is missing"],
)
def test_what_cannot_be_written_is_refused_in_the_same_words(bad):
    def problem(write):
        with pytest.raises(InputError) as caught:
            write(bad())
        return str(caught.value)

    known = Stencils()
    for number in range(2, 6):
        known.write(rows(number, **GOOD))
    assert None not in known._known.values()
    assert problem(known.write) == problem(encode)


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(stencils, "MAX_STENCILS", 10)
    known = Stencils()
    for length in range(40):
        for number in range(1, 1 + length % 4):
            known.write(rows(number, extra=Extra.of({"a/b": "x" * length})))
        assert len(known._known) <= 10
        assert len(known._seen) <= 10
