"""The order of texts by words of eight bytes is Arrow's, equal ones as they were."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueline.kernel import comparison, word_order
from trueline.kernel.comparison import places_in_order
from trueline.kernel.word_order import different_words, order_of_texts

pieces = st.sampled_from(["", "a", "b", "\0", "abcdefgh", "12345678", "é", "😀"])
texts = st.lists(pieces, max_size=12).map("".join)


@pytest.mark.parametrize("down", [False, True])
@given(st.lists(texts | st.text(max_size=9), max_size=40))
def test_texts_are_ordered_by_their_bytes(down, given_texts):
    array = pa.array(given_texts, pa.string())
    how = "descending" if down else "ascending"
    for each in (array, array.cast(pa.binary()), pa.concat_arrays([array, array]).slice(len(array))):
        assert order_of_texts(each, down).tolist() == pc.array_sort_indices(each, order=how).to_pylist()


@pytest.mark.parametrize("different", [3, 100_000])
@pytest.mark.parametrize("down", [False, True])
def test_many_texts_come_in_the_order_of_few(different, down, monkeypatch):
    random = np.random.default_rng(2)
    numbers = random.integers(0, different, 20_000)
    array = pa.array(
        [f"a text that is long {number}" for number in numbers], mask=random.random(20_000) < 0.1
    )
    found = places_in_order([array], [down])
    monkeypatch.setattr(comparison, "_MANY_TEXTS", 1 << 30)
    assert np.array_equal(found, places_in_order([array], [down]))


def test_words_that_share_their_upper_bits_are_sorted_twice(monkeypatch):
    words = np.random.default_rng(4).integers(0, 1 << 62, 5_000, dtype=np.uint64) & np.uint64(
        0x3F00_0000_0000_00FF
    )
    ties = []
    monkeypatch.setattr(word_order, "_sort_ties", lambda *given: ties.append(given))
    assert np.array_equal(word_order.order_of_words(words), np.argsort(words, kind="stable"))
    assert ties == []


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3) | st.just(2**64 - 1), max_size=30))
def test_different_words_come_in_order(words):
    assert different_words(np.array(words, np.uint64)).tolist() == sorted(set(words))
