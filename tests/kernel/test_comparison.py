"""What operators reckon with: exact sums, hashes, orders and keys."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.view.verbs.test_table import written_hash
from trueline.identity import RowId, RowIds
from trueline.kernel import chunk, key_index
from trueline.kernel import comparison as keys
from trueline.kernel import exact_sums as sums
from trueline.kernel.comparison import places_in_order, row_key
from trueline.kernel.value_hash import Salt, hash_ids, hash_values
from trueline.kernel.word_order import order_of_words

NAN = float("nan")


# --- sums -------------------------------------------------------------------------------------


def exact(values):
    """The sum as fractions have it, rounded once."""
    total = sum(map(Fraction, values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=examples(50))
@given(
    st.lists(finite | st.sampled_from([1e16, -1e16, 1.0, 2.0**-53, 5e-324, 1.7e308, -1.7e308]), max_size=12)
)
def test_a_sum_is_exact_in_both_ways_of_adding(values):
    array, starts = np.array(values, float), range(len(values) + 1)
    low, high = (
        np.array(each) for each in zip(*[(a, b) for a in starts for b in starts if a <= b], strict=True)
    )
    expected = [exact(values[a:b]) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    assert sums._limb_sums(array, low, high).tolist() == expected
    assert sums.float_sums(array, low, high).tolist() == expected
    for a, b, total in zip(low, high, expected, strict=True):
        found = sums.float_sums(array[a:b], np.array([0]), np.array([b - a]))[0]
        assert found == total
        assert math.copysign(1, found) == (1 if total == 0 else math.copysign(1, total))


def test_many_rows_are_added_in_blocks_without_a_trace(monkeypatch):
    values = np.random.default_rng(3).normal(0, 1e9, 500) * 10.0 ** (np.arange(500) % 40 - 20)
    monkeypatch.setattr(sums, "_BLOCK", 16)
    for low, width in (
        (np.arange(0, 480), 20),
        (np.arange(0, 500, 5), 5),
        (np.arange(470), 1),
        (np.arange(90), 400),
    ):
        high = np.minimum(low + width, 500)
        expected = [math.fsum(values[a:b]) for a, b in zip(low, high, strict=True)]
        assert sums.float_sums(values, low, high).tolist() == expected
        assert sums._limb_sums(values, low[::-1].copy(), high[::-1].copy()).tolist() == expected[::-1]


def test_nan_and_infinities_add_up_as_they_do():
    def total(*values):
        return float(sums.float_sums(np.array(values), np.array([0]), np.array([len(values)]))[0])

    assert total(1.0, math.inf) == math.inf
    assert total(-math.inf, 1e308, 1e308) == -math.inf
    assert math.isnan(total(math.inf, -math.inf))
    assert math.isnan(total(1.0, NAN, math.inf))
    assert total(1.7e308, 1.7e308, -1.7e308) == 1.7e308  # more than there is on the way, not in the end
    assert math.copysign(1, total(-0.0, -0.0)) == 1


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6), st.lists(st.integers(0, 2**64 - 1), max_size=6)
)
def test_whole_sums_know_when_they_do_not_fit(signed, unsigned):
    for values, kind in ((signed, np.int64), (unsigned, np.uint64)):
        limbs = sums.whole_sums(np.array(values, kind), np.array([0]), np.array([len(values)]))
        words, wrong = sums.as_words(limbs, signed=kind is np.int64)
        info = np.iinfo(kind)
        assert bool(wrong[0]) == (not info.min <= sum(values) <= info.max)
        assert wrong[0] or int(words.view(kind)[0]) == sum(values)
        assert sums.rounded(limbs, 0)[0] == float(sum(values))


@given(st.lists(st.integers(-(2**62), 2**62 - 1) | st.integers(-9, 9), max_size=9))
def test_whole_sums_of_stretches_are_exact_where_those_of_beginnings_overflow(values):
    low, high = (np.ravel(each) for each in np.triu_indices(len(values) + 1))
    words, wrong = sums.as_words(sums.whole_sums(np.array(values, np.int64), low, high), signed=True)
    found = zip(low.tolist(), high.tolist(), words.view(np.int64).tolist(), wrong.tolist(), strict=True)
    for start, stop, word, is_wrong in found:
        total = sum(values[start:stop])
        assert is_wrong == (not -(2**63) <= total < 2**63)
        assert is_wrong or word == total


# --- hashes -----------------------------------------------------------------------------------


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers())
def test_ids_are_hashed_as_it_is_written_down(low, high, seed):
    found = hash_ids(RowIds.of([RowId(low, high)]), Salt.of("shuffle", seed))[0]
    assert int(found) == written_hash("shuffle", seed, low, high)


def test_hashes_never_change():
    """Numbers that splits of people's data rest on."""
    assert hash_ids(RowIds.range(0, 3), Salt.of("split/0", 0)).tolist() == GOLDEN["ids"]
    for name, array in GIVEN.items():
        assert hash_values([array], len(array), Salt.of("split/0", 0)).tolist() == GOLDEN[name], name


GIVEN = {
    "int64": pa.array([1, -1, None]),
    "float64": pa.array([1.5, -0.0, NAN, None]),
    "text": pa.array(["", "a", "eight by", "nine byte", "é" * 200, None]),
    "timestamp": pa.array([1], pa.timestamp("us", "UTC")),
    "bool": pa.array([True, False]),
    "decimal": pa.array([1, -1], pa.int64()).cast(pa.decimal128(19, 0)),
}
GOLDEN = {
    "ids": [17826976266221722654, 13536892383348318026, 17263650342069683866],
    "int64": [7063683565612675077, 1664396046426281004, 17324155894636513562],
    "float64": [8647965562114579837, 3613583947539170177, 8205039683273326680, 17324155894636513562],
    "text": [
        3613583947539170177,
        3705476303510244284,
        12784161016986659766,
        6710596131346073038,
        16572801487169682826,
        17324155894636513562,
    ],
    "timestamp": [7063683565612675077],
    "bool": [7063683565612675077, 3613583947539170177],
    "decimal": [2641468878992300092, 18203412398517294241],
}


@given(st.lists(st.none() | st.text(max_size=40) | st.just("x" * 300), max_size=10), st.integers(0, 5))
def test_a_value_has_its_hash_wherever_it_stands(values, skip):
    array = pa.array(values, pa.string())
    whole = hash_values([array], len(values), Salt(1, 2))
    assert (
        hash_values([array.slice(skip)], max(0, len(values) - skip), Salt(1, 2)).tolist()
        == whole[skip:].tolist()
    )
    for value, found in zip(values, whole, strict=True):
        assert hash_values([pa.array([value], pa.string())], 1, Salt(1, 2))[0] == found
    assert len(set(whole.tolist())) == len(set(values))


def mixed(word):
    """`mix` as the page writes it down."""
    word ^= word >> 30
    word = word * 0xBF58476D1CE4E5B9 % 2**64
    word ^= word >> 27
    word = word * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31


@given(
    st.none() | st.text(max_size=80), st.none() | st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1)
)
def test_values_are_hashed_as_it_is_written_down(text, number, salt):
    golden, missing = 0x9E3779B97F4A7C15, 0x6D697373696E6721
    raw = (text or "").encode()
    word = len(raw)
    for at in range(0, len(raw), 8):
        word = mixed((word + golden) % 2**64 ^ int.from_bytes(raw[at : at + 8], "little"))
    expected = salt
    for each in (missing if text is None else word, missing if number is None else number % 2**64):
        expected = mixed((expected + golden) % 2**64 ^ each)
    arrays = [pa.array([text], pa.string()), pa.array([number], pa.int64())]
    assert len(raw) > 256 or int(hash_values(arrays, 1, Salt(salt, 0))[0]) == expected


def test_equal_values_have_equal_hashes():
    salt = Salt(3, 4)

    def one(value, kind):
        return int(hash_values([pa.array([value], kind)], 1, salt)[0])

    assert one(7, pa.int8()) == one(7, pa.uint64()) == one(7, pa.int64())
    assert one(0.0, pa.float64()) == one(-0.0, pa.float32())
    assert one(NAN, pa.float64()) == one(NAN, pa.float32())
    assert one("a", pa.string()) == one("a", pa.large_string()) == one(b"a", pa.binary())
    assert one(1.0, pa.float64()) != one(1, pa.int64())


# --- order ------------------------------------------------------------------------------------


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3) | st.integers(2**63, 2**63 + 9), max_size=60))
def test_words_are_put_in_order_and_equal_ones_stay(words):
    array = np.array(words, np.uint64)
    assert order_of_words(array).tolist() == np.argsort(array, kind="stable").tolist()


def test_many_words_are_sorted_by_threads():
    words = np.random.default_rng(1).integers(0, 2**64 - 1, 1_100_000, dtype=np.uint64)
    words[::7] = words[0]
    assert np.array_equal(order_of_words(words), np.argsort(words, kind="stable"))


@given(
    st.lists(
        st.tuples(st.sampled_from([None, NAN, 0.0, -0.0, 1.0, -1.0]), st.sampled_from([None, "a", "b"]))
    ),
    st.tuples(st.booleans(), st.booleans()),
)
def test_rows_are_compared_one_by_one_as_they_are_all_together(rows, descending):
    arrays = [
        pa.array([row[0] for row in rows], pa.float64()),
        pa.array([row[1] for row in rows], pa.string()),
    ]
    for chosen in ([0], [1], [0, 1], [1, 0]):
        columns, down = [arrays[at] for at in chosen], [descending[at] for at in chosen]
        key = row_key(columns, down)
        expected = sorted(range(len(rows)), key=key)
        assert places_in_order(columns, down).tolist() == expected


# --- keys -------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, "a", "b"])), max_size=20),
    st.lists(st.tuples(st.sampled_from([None, 1, 2, 3]), st.sampled_from([None, "a", "c"])), max_size=20),
)
def test_keys_are_numbered_by_their_first_rows_and_found_again(rows, others):
    def arrays(given):
        return [
            pa.array([row[0] for row in given], pa.int64()),
            pa.array([row[1] for row in given], pa.string()),
        ]

    found, count = keys.codes(arrays(rows), len(rows), nulls=True)
    firsts = list(dict.fromkeys(rows))
    assert found.tolist() == [firsts.index(row) for row in rows]
    assert count == len(firsts)
    assert keys.first_rows(found).tolist() == [rows.index(row) for row in firsts]
    index = key_index.KeyIndex(arrays(rows), len(rows))
    whole = [row for row in dict.fromkeys(rows) if None not in row]
    assert index.codes.tolist() == [whole.index(row) if row in whole else -1 for row in rows]
    assert index.find(arrays(others), len(others)).tolist() == [
        whole.index(row) if row in whole else -1 for row in others
    ]


@pytest.mark.parametrize(("mask", "known"), [(2**64 - 1, 60), (0xFF, 3)], ids=["apart", "shared"])
def test_many_texts_are_numbered_as_few_are(monkeypatch, mask, known):
    real = hash_values
    for module in (keys, key_index):
        monkeypatch.setattr(module, "hash_values", lambda *given: real(*given) & np.uint64(mask))
    monkeypatch.setattr(keys, "_MANY_TEXTS", 8)
    rows = [f"text {number * number % 151}" for number in range(150)]
    found, count = keys.codes([pa.array(rows)], len(rows), nulls=True)
    firsts = list(dict.fromkeys(rows))
    assert found.tolist() == [firsts.index(row) for row in rows]
    assert count == len(firsts)
    index = key_index.KeyIndex([pa.array(firsts[:known])], known)
    others, alone = ["none", *firsts, None], [-1] * (count - known + 1)
    assert index.find([pa.array(others)], len(others)).tolist() == [-1, *range(known), *alone]


@pytest.mark.parametrize(
    "rows",
    [
        [None if number % 41 == 5 else f"text {number * number % 151}" for number in range(1_000)],
        [number * number % 151 - number // 70 for number in range(1_000)],
        [f"text {number % 7}" for number in range(1_000)],
        [None if number % 50 == 3 else f"text {number % 7}" for number in range(1_000)],
        [
            None if number % 90 == 89 else f"late {number % 5}" if number % 70 == 69 else f"text {number % 7}"
            for number in range(1_000)
        ],
    ],
    ids=["texts", "whole numbers", "few texts", "few texts and null", "few texts, some of them late"],
)
def test_keys_are_numbered_by_threads_and_in_blocks_as_at_once(rows, monkeypatch):
    monkeypatch.setattr(keys, "_MANY", 100)
    monkeypatch.setattr(chunk, "_MANY", 100)
    monkeypatch.setattr(keys, "_BLOCK", 30)
    monkeypatch.setattr(keys, "_SAMPLE", 100)
    found, count = keys.codes([pa.array(rows)], len(rows), nulls=True)
    firsts = list(dict.fromkeys(rows))
    assert found.tolist() == [firsts.index(row) for row in rows]
    assert count == len(firsts)


@given(st.lists(st.sampled_from([None, 0.0, -0.0, 1.5, float("nan"), float("inf")]), max_size=30))
def test_rows_are_like_the_one_before_where_their_codes_are(values):
    for array in (pa.array(values, pa.float64()), pa.array([None if v is None else str(v) for v in values])):
        order = keys.places_in_order([array], (False,))
        code = keys.codes([array], len(array), nulls=True)[0][order]
        like = [bool(at and code[at] == code[at - 1]) for at in range(len(code))]
        assert keys.like_the_one_before(array, order).tolist() == like


def test_among_no_keys_none_is_found(monkeypatch):
    monkeypatch.setattr(key_index, "hash_values", lambda _arrays, rows, _salt: np.zeros(rows, np.uint64))
    index = key_index.KeyIndex([pa.array([], pa.string())] * 2, 0)
    assert index.find([pa.array(["a"]), pa.array(["b"])], 1).tolist() == [-1]


def test_keys_that_share_a_hash_are_kept_apart(monkeypatch):
    real = hash_values

    def poor(arrays, rows, salt):
        return real(arrays, rows, salt) & np.uint64(0x3)

    names = [f"key {number}" for number in range(4)]
    for module in (keys, key_index):
        monkeypatch.setattr(module, "hash_values", poor)
    index = key_index.KeyIndex([pa.array(names[:2])], 2)
    assert index.find([pa.array(names)], 4).tolist() == [0, 1, -1, -1]
    with pytest.raises(AssertionError, match="apart"):
        key_index.KeyIndex([pa.array([f"key {number}" for number in range(5)])], 5)
