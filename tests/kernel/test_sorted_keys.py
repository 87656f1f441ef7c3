"""Searching, sorting and overlaying sorted keys, against the plainest way to say it."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueline.dataset.state import KeyRange
from trueline.kernel.sorted_keys import (
    ascends,
    find,
    merged,
    numbers,
    overlay,
    repeats,
    search_sorted,
    sorting,
    within,
)

# One length of up to eight bytes, one longer, one that begins alike, and mixed lengths take different ways.
KEYS = st.one_of(
    st.lists(st.binary(min_size=2, max_size=2), max_size=40),
    st.lists(st.binary(min_size=8, max_size=8), max_size=40),
    st.lists(st.binary(min_size=9, max_size=9), max_size=40),
    st.builds(
        lambda ahead, keys: [ahead + key for key in keys],
        st.sampled_from([b"\x00", b"\x01", b"together"]),
        st.lists(st.binary(min_size=8, max_size=8), max_size=40),
    ),
    st.lists(st.binary(max_size=3), max_size=40),
)


def binary(keys) -> pa.Array:
    """Keys as an array that does not begin at the start of its buffers."""
    return pa.array([b"before", *keys, b"after"], pa.binary())[1:-1]


@given(keys=KEYS, wanted=KEYS)
def test_searching_finds_how_many_keys_are_smaller(keys, wanted):
    keys = sorted(set(keys))
    found, hits = find(binary(keys), binary(wanted))
    assert found.tolist() == [bisect_left(keys, key) for key in wanted]
    assert hits.tolist() == [key in keys for key in wanted]
    assert search_sorted(binary(keys), binary(wanted)).tolist() == found.tolist()


@given(
    keys=st.sets(st.binary(min_size=1, max_size=3), min_size=60, max_size=90),
    wanted=st.lists(st.binary(max_size=3), min_size=2, max_size=5),
)
def test_a_few_keys_are_found_among_many(keys, wanted):
    keys = sorted(keys)
    assert search_sorted(binary(keys), binary(wanted)).tolist() == [bisect_left(keys, key) for key in wanted]


@given(keys=KEYS)
def test_sorting_is_stable_and_says_when_there_is_nothing_to_do(keys):
    order = sorting(binary(keys))
    expected = sorted(range(len(keys)), key=lambda i: keys[i])
    assert (list(range(len(keys))) if order is None else order.tolist()) == expected
    assert (order is None) == (keys == sorted(keys))


@given(keys=KEYS)
def test_ascending_and_repeated_keys_are_told(keys):
    assert ascends(binary(keys)) == all(a < b for a, b in pairwise(keys))
    keys.sort()
    assert repeats(binary(keys)).tolist() == [i > 0 and keys[i] == keys[i - 1] for i in range(len(keys))]


@given(keys=KEYS, first=st.none() | st.binary(max_size=3), end=st.none() | st.binary(max_size=3))
def test_a_range_is_cut_out_of_sorted_keys(keys, first, end):
    keys.sort()
    start, stop = within(binary(keys), KeyRange(first, end))
    assert keys[start:stop] == [key for key in keys if key in KeyRange(first, end)]


def test_keys_of_other_lengths_are_no_numbers():
    assert numbers(binary([b"ab", b"c", b"def"])) is None  # their sum alone would pass
    assert numbers(binary([b"a23456789", b"b23456789"])) is None
    assert numbers(binary([b"long" * 5])) is None
    assert numbers(binary([b"\x01" + bytes(7) + b"\x02", b"\x01" + bytes(8)])).tolist() == [2, 0]
    assert numbers(binary([b"", b""])) is None
    assert numbers(binary([b"\x01\x00", b"\x00\xff"])).tolist() == [256, 255]


LAYERS = st.lists(
    st.dictionaries(st.binary(min_size=1, max_size=2) | st.binary(min_size=2, max_size=2), st.integers(0, 9)),
    max_size=5,
)


def table(layer: dict[bytes, int]) -> pa.Table:
    keys = sorted(layer)
    return pa.table(
        {"k": pa.array(keys, pa.binary()), "v": pa.array([layer[key] for key in keys], pa.int64())}
    )


def flat(layers) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for layer in layers:
        found |= layer
    return found


@given(layers=LAYERS.filter(any))
def test_the_last_table_that_has_a_key_wins(layers):
    result = overlay([table(layer) for layer in layers], "k")
    assert list(zip(result["k"].to_pylist(), result["v"].to_pylist(), strict=True)) == sorted(
        flat(layers).items()
    )


@given(layers=LAYERS, step=st.integers(1, 4))
def test_streams_are_merged_as_if_they_were_whole(layers, step):
    def stream(layer):
        whole = table(layer)
        yield whole.slice(0, 0)
        for start in range(0, whole.num_rows, step):
            yield whole.slice(start, step)

    pieces = list(merged([stream(layer) for layer in layers], "k"))
    found = [(k, v) for piece in pieces for k, v in zip(*piece.to_pydict().values(), strict=True)]
    assert found == sorted(flat(layers).items())
    # Bounded: what is given out at once is at most one piece of each stream.
    assert all(0 < piece.num_rows <= step * len(layers) for piece in pieces)


def test_a_stream_is_read_only_as_far_as_needed():
    asked = []

    def stream(name, starts):
        for start in starts:
            asked.append(name)
            yield pa.table({"k": pa.array([b"%02d" % start], pa.binary())})

    first = next(merged([stream("a", range(0, 50, 2)), stream("b", range(1, 50, 2))], "k"))
    assert first["k"].to_pylist() == [b"00"]
    assert asked == ["a", "b"]


@pytest.mark.parametrize("keys", [[b"b", b"a"], [b"a", b"a"], [None, b"a"]])
def test_disorder_repetition_and_missing_keys_do_not_ascend(keys):
    assert not ascends(pa.array(keys, pa.binary()))
