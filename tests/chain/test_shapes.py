"""Reading by shape must be reading, only faster."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chain.growing import add_rows, grow_root
from trueline.chain import Block, Chain, MemoryStore
from trueline.chain.decode import decode
from trueline.chain.decode_templates import MAX_LENGTHS, Shapes, trace
from trueline.chain.encode import encode
from trueline.errors import MalformedBlock, UnsupportedVersion

GOLDEN = Path(__file__).parents[1] / "golden" / "chain" / "odf"


def outcome(read, raw):
    try:
        return read(raw)
    except (MalformedBlock, UnsupportedVersion) as error:
        return type(error)


def blocks() -> list[bytes]:
    chain = grow_root(Chain(MemoryStore()), 3)
    golden = json.loads((GOLDEN / "blocks-v3.json").read_text())["vectors"]
    return [bytes.fromhex(vector["bytes_hex"]) for vector in golden] + [b.to_bytes() for _, b in chain.walk()]


@pytest.mark.parametrize("raw", blocks(), ids=len)
def test_a_learnt_shape_gives_the_same_block(raw):
    shapes = Shapes(Block)
    expected = decode(raw, Block)
    assert [shapes.read(raw) for _ in range(4)] == [expected] * 4


def test_values_may_differ_within_a_shape():
    shapes = Shapes(Block)
    chain = grow_root(Chain(MemoryStore()), 1)
    made = []
    for _ in range(6):
        chain.append(add_rows(chain))
        raw = chain.block(chain.head).to_bytes()
        made.append((shapes.read(raw), decode(raw, Block)))
    assert all(one == other for one, other in made)
    assert len({len(encode(one)) for one, _ in made}) == 1
    assert [len(known) for known in shapes._known.values()] == [1]


@pytest.mark.parametrize("raw", blocks(), ids=len)
def test_every_flipped_byte_is_read_as_without_shapes(raw):
    """The shape is learnt from the good block, then tempted with bad ones."""
    shapes = Shapes(Block)
    shapes.read(raw), shapes.read(raw)
    randomness = random.Random(len(raw))
    for place in range(len(raw)):
        bad = bytearray(raw)
        bad[place] ^= randomness.randrange(1, 256)
        assert outcome(shapes.read, bytes(bad)) == outcome(lambda b: decode(b, Block), bytes(bad)), place


@given(st.sampled_from(blocks()), st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=6))
def test_any_bytes_are_read_as_without_shapes(raw, changes):
    bad = bytearray(raw)
    for place, value in changes:
        bad[place % len(bad)] = value
    first = Shapes(Block)
    # The damaged block teaches its own shape first; then both are read.
    expected = outcome(lambda b: decode(b, Block), bytes(bad))
    assert [outcome(first.read, bytes(bad)) for _ in range(3)] == [expected] * 3
    assert outcome(first.read, raw) == decode(raw, Block)


def test_values_that_lie_over_structure_teach_nothing():
    """A string whose text is another table's layout: the shape would not be told by its structure."""
    raw = bytearray(blocks()[0])
    found = 0
    for place in range(len(raw)):
        for value in (0, 4, 8, 12, 16, 20):
            bad = bytearray(raw)
            bad[place] = value
            try:
                _, shape = trace(bytes(bad), Block)
            except (MalformedBlock, UnsupportedVersion):
                continue
            found += shape is None
    assert found


def test_memory_is_bounded():
    shapes = Shapes(Block)
    for size in range(MAX_LENGTHS * 2):
        with pytest.raises(MalformedBlock):
            shapes.read(b"\0" * size)
    assert len(shapes._known) <= MAX_LENGTHS
