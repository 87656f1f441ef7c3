from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chain.golden import Vector, vectors
from tests.chain.hostile import (
    cost_of,
    event_block,
    manifest,
    read,
    set_data_schema,
    table,
    union,
    vector,
)
from tests.examples import examples
from trueline.chain import Block
from trueline.chain import decode_templates as shapes
from trueline.chain.decode_templates import trace
from trueline.chain.encode import MAX_BLOCK_BYTES, MAX_DEPTH
from trueline.errors import MalformedBlock, UnsupportedVersion

GOLDEN = [case.raw for case in vectors()]


def each(*versions: int) -> pytest.MarkDecorator:
    cases = [pytest.param(case, id=case.id) for case in vectors() if case.version in versions]
    return pytest.mark.parametrize("case", cases)


ADD_DATA, SET_TRANSFORM, SET_INFO, SET_DATA_SCHEMA = 1, 5, 8, 10
LIST, MAP, OPTION, STRUCT, STRING = 17, 18, 20, 21, 24
CALLS_PER_BYTE = 25
BYTES_PER_BYTE = 100


# --- damage ---------------------------------------------------------------------


@each(3)
def test_every_bit_flipped_is_read_as_another_block_or_refused(case: Vector):
    refused = 0
    for position in range(len(case.raw)):
        for bit in range(8):
            changed = bytearray(case.raw)
            changed[position] ^= 1 << bit
            refused += read(bytes(changed)) is None
    assert refused > len(case.raw)


@each(2)
def test_every_byte_set_to_its_extremes_is_read_as_another_block_or_refused(case: Vector):
    for position in range(len(case.raw)):
        for value in (0x00, 0x01, 0x7F, 0x80, 0xFF):
            changed = bytearray(case.raw)
            changed[position] = value
            read(bytes(changed))


@each(2, 3)
def test_a_block_cut_short_is_refused(case: Vector):
    for length in range(len(case.raw)):
        cut = read(case.raw[:length])
        # What the last few bytes hold may be the padding behind the last string.
        assert cut is None or not case.raw[length:].strip(b"\0")


@each(2, 3)
def test_a_block_with_its_beginning_cut_off_is_refused(case: Vector):
    for start in range(1, len(case.raw)):
        assert read(case.raw[start:]) is None


def test_two_blocks_spliced_anywhere_are_read_or_refused():
    chance = random.Random(7)
    for _ in range(3000):
        first, second = chance.choice(GOLDEN), chance.choice(GOLDEN)
        cut = chance.randrange(0, min(len(first), len(second)), chance.choice([1, 4]))
        read(first[:cut] + second[cut:])
        read(first[:cut] + second)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(raw):
    assert read(raw) is None


@given(st.binary(max_size=300))
def test_random_content_in_a_good_wrapper_is_refused(raw):
    assert read(manifest(raw)) is None


@pytest.mark.parametrize("raw", [b"", b"\0", b"\0" * 3, b"\0" * 4, b"\xff" * 64, b"\0" * 4096], ids=repr)
def test_hardly_any_bytes_and_bytes_of_one_kind_are_refused(raw):
    assert read(raw) is None


# --- numbers that lie -----------------------------------------------------------

LIES = st.one_of(
    st.sampled_from([0, 1, 2, 3, 4, 8, 12, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFC]),
    st.integers(0, 64),
    st.integers(0, 0xFFFFFFFF),
)


@st.composite
def lying_blocks(draw) -> bytes:
    """A golden block in which some lengths, counts, offsets and tags are not what they were."""
    raw = bytearray(draw(st.sampled_from(GOLDEN)))
    for _ in range(draw(st.integers(1, 6))):
        width, code = draw(st.sampled_from([(4, "<I"), (2, "<H"), (1, "<B")]))
        at = draw(st.integers(0, len(raw) - width))
        struct.pack_into(code, raw, at - at % width, draw(LIES) & ((1 << 8 * width) - 1))
    return bytes(raw)


@settings(max_examples=examples(333))
@given(lying_blocks())
def test_offsets_lengths_and_tags_that_lie_are_read_or_refused_at_bounded_cost(raw):
    read(raw)
    cost = cost_of(lambda: Block.from_bytes(raw))
    assert cost.calls <= CALLS_PER_BYTE * len(raw) + 2_000
    assert cost.peak <= BYTES_PER_BYTE * len(raw) + 100_000


@st.composite
def wild_buffers(draw) -> bytes:
    """Words that are small offsets into the buffer itself: tables over tables, layouts before and behind."""
    count = draw(st.integers(2, 60))
    small = st.one_of(
        st.integers(-4 * count, 4 * count).map(lambda n: n & 0xFFFFFFFF),
        st.builds(
            lambda size, slots: (4 + 2 * slots) | (4 + size) << 16, st.integers(0, 60), st.integers(0, 12)
        ),
        st.builds(lambda a, b: a | b << 16, st.integers(0, 40), st.integers(0, 40)),
    )
    words = draw(st.lists(small, min_size=count, max_size=count))
    words[0] = draw(st.integers(1, count)) * 4
    return struct.pack(f"<{count}I", *words)


@settings(max_examples=examples(166))
@given(wild_buffers())
def test_wild_buffers_are_read_or_refused(content):
    read(manifest(content))


# --- buffers that unfold --------------------------------------------------------


def laughs(levels: int, width: int) -> bytes:
    """A struct of structs in which every level names the level below many times."""

    def event(builder):
        name = builder.CreateString("x")
        below, tag = table(builder, 0), STRING
        for _ in range(levels):
            field = union(builder, 4, 1, tag, below, (0, name))
            below, tag = table(builder, 1, (0, vector(builder, [field] * width))), STRUCT
        return set_data_schema(builder, [union(builder, 4, 1, tag, below, (0, name))])

    return event_block(SET_DATA_SCHEMA, event)


def pairs(levels: int) -> bytes:
    """A map whose key and value are the same map, and so on."""

    def event(builder):
        below, tag = table(builder, 0), STRING
        for _ in range(levels):
            builder.StartObject(5)
            for slot in (0, 2):
                builder.PrependUint8Slot(slot, tag, 0)
                builder.PrependUOffsetTRelativeSlot(slot + 1, below, 0)
            below, tag = int(builder.EndObject()), MAP
        return set_data_schema(builder, [union(builder, 4, 1, tag, below, (0, builder.CreateString("x")))])

    return event_block(SET_DATA_SCHEMA, event)


def same_string(times: int, length: int) -> bytes:
    """One long keyword, named many times."""

    def event(builder):
        text = builder.CreateString("x" * length)
        return table(builder, 2, (1, vector(builder, [text] * times)))

    return event_block(SET_INFO, event)


def same_table(times: int) -> bytes:
    """One small input, named many times."""

    def event(builder):
        text = builder.CreateString("x")
        one = table(builder, 2, (0, text), (1, text))
        sql = table(builder, 5, (0, text))
        inputs = vector(builder, [one] * times)
        return union(builder, 3, 1, 1, sql, (0, inputs))

    return event_block(SET_TRANSFORM, event)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(laughs(3, 10), id="1,000 fields"),
        pytest.param(laughs(9, 10), id="a billion fields"),
        pytest.param(laughs(25, 40), id="more fields than atoms"),
        pytest.param(pairs(20), id="a million maps"),
        pytest.param(pairs(55), id="maps beyond counting"),
        pytest.param(same_string(50_000, 100_000), id="five gigabytes of keywords"),
        pytest.param(same_table(30_000), id="one input 30,000 times"),
    ],
)
def test_a_small_buffer_cannot_unfold_into_a_large_tree(raw):
    cost = cost_of(lambda: Block.from_bytes(raw))
    assert cost.calls <= CALLS_PER_BYTE * len(raw) + 2_000
    assert cost.peak <= BYTES_PER_BYTE * len(raw) + 100_000


def test_parts_shared_a_few_times_are_read():
    block = Block.from_bytes(laughs(2, 2))
    assert len(block.event.schema.fields[0].type.fields[1].type.fields) == 2
    assert read(laughs(2, 2)) == block


def test_a_block_whose_parts_overlap_is_looked_through_for_a_shape_once(monkeypatch):
    traced = []
    monkeypatch.setattr(shapes, "trace", lambda raw, record: traced.append(raw) or trace(raw, record))
    reader = shapes.Shapes(Block)
    for _ in range(10):
        reader.read(laughs(2, 2))
    assert len(traced) <= 1


@pytest.mark.parametrize("view", [lambda changing: changing, memoryview], ids=["bytearray", "memoryview"])
def test_bytes_that_may_change_are_copied(view):
    raw = vectors()[5].raw
    changing = bytearray(raw)
    block = Block.from_bytes(view(changing))
    changing[-1] ^= 1
    assert block.to_bytes() == raw


# --- depth ----------------------------------------------------------------------


def options(levels: int) -> bytes:
    """A column that is optional so many times over."""

    def event(builder):
        below, tag = table(builder, 0), STRING
        for _ in range(levels):
            below, tag = union(builder, 2, 0, tag, below), OPTION
        return set_data_schema(builder, [union(builder, 4, 1, tag, below, (0, builder.CreateString("x")))])

    return event_block(SET_DATA_SCHEMA, event)


def test_nesting_is_read_to_the_depth_that_can_be_written_and_no_further():
    # Block, event, schema, column, and the type itself.
    deepest = MAX_DEPTH - 5
    assert read(options(deepest)) is not None
    for levels in (deepest + 1, 200, 20_000):
        with pytest.raises(MalformedBlock, match="deeper"):
            Block.from_bytes(options(levels))


def test_depth_is_refused_before_it_is_explored():
    raw = options(20_000)
    assert cost_of(lambda: Block.from_bytes(raw)).calls < 5_000


# --- counts and lengths ---------------------------------------------------------


@pytest.mark.parametrize("count", [2, 100, 0x3FFFFFFF, 0x40000000, 0xFFFFFFFF])
def test_a_vector_that_claims_more_members_than_there_are_is_refused(count):
    raw = bytearray(same_string(1, 8))
    # The count of one, directly before the offset of the one keyword.
    at = raw.index(struct.pack("<II", 1, 4))
    struct.pack_into("<I", raw, at, count)
    with pytest.raises(MalformedBlock):
        Block.from_bytes(bytes(raw))
    assert cost_of(lambda: Block.from_bytes(bytes(raw))).peak < 50_000


@pytest.mark.parametrize("length", [7, 12, 100, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_string_that_does_not_end_where_it_says_is_refused(length):
    raw = bytearray(same_string(1, 8))
    at = raw.index(b"x" * 8) - 4
    struct.pack_into("<I", raw, at, length)
    with pytest.raises(MalformedBlock):
        Block.from_bytes(bytes(raw))
    assert cost_of(lambda: Block.from_bytes(bytes(raw))).peak < 50_000


def test_a_block_larger_than_any_may_be_is_refused_unread():
    raw = bytes(MAX_BLOCK_BYTES + 1)
    with pytest.raises(MalformedBlock, match="bytes"):
        Block.from_bytes(raw)
    assert cost_of(lambda: Block.from_bytes(raw)).calls < 100


# --- wrappers -------------------------------------------------------------------


def content_of(raw: bytes) -> bytes:
    """What a golden manifest wraps."""
    return raw[raw.index(struct.pack("<q", 0x400000)) + 16 :]


@pytest.mark.parametrize("version", [0, 1, 4, -1, 0x7FFFFFFF])
def test_another_version_is_refused_by_its_number(version):
    golden = content_of(vectors()[0].raw)
    assert read(manifest(golden)) is not None
    with pytest.raises(UnsupportedVersion) as caught:
        Block.from_bytes(manifest(golden, version=version) if version else lacking_version(golden))
    assert str(version) in caught.value.problem
    assert "2 and 3" in caught.value.problem
    if version == 1:
        assert "sequence numbers" in caught.value.remedy


def lacking_version(content: bytes) -> bytes:
    """A manifest with an explicit version of zero."""
    raw = bytearray(manifest(content, version=7))
    at = raw.index(struct.pack("<iq", 7, 0x400000))
    struct.pack_into("<i", raw, at, 0)
    return bytes(raw)


@pytest.mark.parametrize("kind", [0x400001, 1, -1])
def test_a_manifest_of_another_kind_is_refused(kind):
    with pytest.raises(MalformedBlock, match="kind"):
        Block.from_bytes(manifest(content_of(vectors()[0].raw), kind=kind))


def test_a_field_nobody_knows_is_refused():
    def event(builder):
        text = builder.CreateString("x")
        return table(builder, 3, (0, text), (2, text))

    with pytest.raises(MalformedBlock, match="not known"):
        Block.from_bytes(event_block(SET_INFO, event))


@pytest.mark.parametrize("tag", [14, 15, 200, 255])
def test_an_event_nobody_knows_is_refused(tag):
    with pytest.raises(MalformedBlock, match=f"tag {tag}"):
        Block.from_bytes(event_block(tag, lambda builder: table(builder, 0)))


def test_text_that_is_not_unicode_is_refused():
    def event(builder):
        return table(builder, 2, (0, builder.CreateString(b"\xff\xfe")))

    with pytest.raises(MalformedBlock, match="UTF-8"):
        Block.from_bytes(event_block(SET_INFO, event))


# --- attributes -----------------------------------------------------------------


def with_extra(text: str | bytes) -> bytes:
    def event(builder):
        extra = table(builder, 1, (0, builder.CreateString(text)))
        return table(builder, 7, (6, extra))

    return event_block(ADD_DATA, event)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        '{"a/b":1',
        '{"a/b":NaN}',
        '{"a/b":-Infinity}',
        '{"a/b":1e999}',
        '{"a/b":"\\ud800"}',
        '{"a/b":' + "9" * 5000 + "}",
        '{"a/b":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"a/b":' + "[" * 100 + "]" * 100 + "}",
        '{"a/b":1}{}',
    ],
    ids=lambda text: text[:24] or "nothing",
)
def test_attributes_that_are_not_json_are_refused(text):
    with pytest.raises(MalformedBlock):
        Block.from_bytes(with_extra(text))


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"a/b":null}',
        '{"a/b":' + "[" * 98 + "0" + "]" * 98 + "}",
        '{"a/b":' + "[" + "[1]," * 300 + "0]}",
        '{ "b" : 1 , "a" : [ 1.5 , true ] }',
        '{"ü":"\\u00fc\\ud83d\\ude00"}',
    ],
)
def test_attributes_that_are_json_are_read_however_they_are_written(text):
    assert read(with_extra(text)) is not None
