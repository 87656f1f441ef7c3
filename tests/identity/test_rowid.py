from __future__ import annotations

import pickle
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.identity.golden import golden
from trueline.errors import InputError
from trueline.identity import RowId

VECTORS = golden("rowid.json")
WORDS = st.integers(0, 2**64 - 1)
IDS = st.builds(RowId, WORDS, WORDS)
X = RowId.from_hex("fedcba98765432100123456789abcdef")


def murmur_block(at: RowId, k1: int, k2: int) -> RowId:
    """One body round of MurmurHash3 x64-128, from its published description."""
    mask = (1 << 64) - 1

    def rotl(x, r):
        return (x << r | x >> 64 - r) & mask

    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    h1 = at.low ^ (rotl(k1 * c1 & mask, 31) * c2 & mask)
    h1 = ((rotl(h1, 27) + at.high) * 5 + 0x52DCE729) & mask
    h2 = at.high ^ (rotl(k2 * c2 & mask, 33) * c1 & mask)
    return RowId(h1, ((rotl(h2, 31) + h1) * 5 + 0x38495AB5) & mask)


@pytest.mark.parametrize("case", VECTORS["unary"], ids=lambda case: case["in"])
def test_next_and_fork_give_the_golden_ids(case):
    assert RowId.from_hex(case["in"]).next().hex == case["next"]
    assert RowId.from_hex(case["in"]).fork().hex == case["fork"]


@pytest.mark.parametrize("case", VECTORS["combine"], ids=lambda case: case["a"] + "," + case["b"])
def test_combine_gives_the_golden_ids(case):
    assert RowId.from_hex(case["a"]).combine(RowId.from_hex(case["b"])).hex == case["out"]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (RowId(2).next(), "000000036699de8200000000a2dce729"),
        (RowId(2).fork(), "000000036699de8234e09d0bc9021911"),
        (RowId.ONES.next(), "00000001d699de4b0000000052dce71f"),
        (RowId.ONES.fork(), "00000001d699de4b34e09d0b39021927"),
        (RowId(1).combine(RowId(1)), "9e0a1d2d81d5142304cd6579179e9e51"),
        (RowId(5).combine(RowId(7)), "6ae986d114cc78851787f98390bfc330"),
        (X.combine(RowId(1)), "765d174e5ca5382a3c1a5d541766b728"),
        (RowId.ONES.combine(RowId.ONES), "e5d682b570163c0911c568ce86f22a18"),
        (RowId.ZERO.fork().next(), "5d0a500a3cf013dcc0e853f43421583b"),
        (RowId.ZERO.fork().next().next(), "77140f97615b189ef958c5fcd9b19790"),
        (RowId.ZERO.next().next(), "d93d410cd3a099340cf28427ebde3fb3"),
    ],
)
def test_more_ids_that_were_computed_beforehand(made, expected):
    assert made.hex == expected


def test_ten_steps_give_the_ids_computed_beforehand():
    forked = stepped = RowId.ZERO
    for _ in range(10):
        forked, stepped = forked.fork(), stepped.next()
    assert forked.hex == "dbb5ac31400ba7ca88e210b33cbc0347"
    assert stepped.hex == "95387cf89256c11f3334f14580f3e7aa"


def test_fork_follows_the_code_it_comes_from_and_not_its_comment():
    wrong = VECTORS["not_this"]["a_plain_murmur_block_1_0"]
    assert murmur_block(RowId.ZERO, 1, 0).hex == wrong
    assert RowId.from_hex(VECTORS["not_this"]["in"]).fork().hex != wrong


@given(IDS)
def test_next_absorbs_a_block_of_zeros_and_fork_does_not_absorb_a_one(one):
    assert one.next() == murmur_block(one, 0, 0)
    assert one.fork() != murmur_block(one, 1, 0)


@given(IDS, IDS)
def test_combine_absorbs_the_fork_of_the_other_id(left, right):
    key = right.fork()
    assert left.combine(right) == murmur_block(left, key.low, key.high)


@given(IDS, IDS)
def test_next_and_fork_never_merge_two_ids(left, right):
    assert (left.next() == right.next()) == (left == right)
    assert (left.fork() == right.fork()) == (left == right)
    assert left.next() != left.fork()


def test_combine_is_neither_commutative_nor_associative():
    ids = [RowId(n) for n in range(20)]
    assert all(a.combine(b) != b.combine(a) for a, b in product(ids, ids) if a != b)
    a, b, c = ids[:3]
    assert a.combine(b).combine(c) != a.combine(b.combine(c))


@given(IDS, IDS)
def test_order_is_high_then_low_and_the_bytes_agree(left, right):
    by_word = ((left.high, left.low) > (right.high, right.low)) - (
        (left.high, left.low) < (right.high, right.low)
    )
    assert (left > right) - (left < right) == by_word
    assert (left.bytes > right.bytes) - (left.bytes < right.bytes) == by_word
    assert (left.hex > right.hex) - (left.hex < right.hex) == by_word
    assert (left <= right, left >= right) == (by_word <= 0, by_word >= 0)
    assert (left == right) == (by_word == 0)


@given(IDS)
def test_an_id_comes_back_from_text_bytes_and_pickle(one):
    assert RowId.from_hex(one.hex) == RowId.from_hex(one.hex.upper()) == one
    assert RowId.from_bytes(one.bytes) == one
    assert pickle.loads(pickle.dumps(one)) == one
    assert hash(pickle.loads(pickle.dumps(one))) == hash(one)
    assert str(one) == one.hex
    assert len(one.hex) == 32
    assert len(one.bytes) == 16


@pytest.mark.parametrize(
    "make",
    [
        lambda: RowId(-1),
        lambda: RowId(2**64),
        lambda: RowId(0, -1),
        lambda: RowId(0, 2**64),
        lambda: RowId(1.0),  # type: ignore[arg-type]
        lambda: RowId("1"),  # type: ignore[arg-type]
        lambda: RowId.from_hex(""),
        lambda: RowId.from_hex("0" * 31),
        lambda: RowId.from_hex("0" * 33),
        lambda: RowId.from_hex("0x" + "0" * 30),
        lambda: RowId.from_hex("0" * 31 + "\n"),
        lambda: RowId.from_hex("０" * 32),
        lambda: RowId.from_hex(7),  # type: ignore[arg-type]
        lambda: RowId.from_bytes(bytes(15)),
        lambda: RowId.from_bytes("0" * 16),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_an_id_is_refused(make):
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.code == "BadRowId"
    assert "32 hex digits" in caught.value.remedy


def test_an_id_cannot_be_changed_and_is_not_compared_with_other_things():
    one = RowId(1)
    with pytest.raises(AttributeError):
        one.low = 2  # type: ignore[misc]
    assert one != 1
    with pytest.raises(TypeError):
        assert one < 1  # type: ignore[operator]
