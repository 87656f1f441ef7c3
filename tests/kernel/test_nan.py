"""NaN has one pattern, which one module knows."""

from __future__ import annotations

import math
import re
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.architecture import ROOT
from trueline.kernel.nan import canonical, canonical_bits, canonical_floats

SPECIAL = [0, 1 << 63, 0x7FF8 << 48, 0xFFF8 << 48, 0x7FF0 << 48 | 1]
WORDS = st.integers(0, 2**64 - 1) | st.sampled_from(SPECIAL)
QUIET = 0x7FF8 << 48


def expected(word: int, *, one_zero: bool) -> int:
    if math.isnan(struct.unpack("<d", struct.pack("<Q", word))[0]):
        return QUIET
    return 0 if one_zero and word == 1 << 63 else word


@given(st.lists(WORDS, max_size=9), st.booleans())
def test_every_way_to_look_at_floats_sees_the_same_nan(words, one_zero):
    floats = np.array(words, np.uint64).view(np.float64)
    wanted = [expected(word, one_zero=one_zero) for word in words]
    array = pa.array(floats)
    assert canonical_bits(array, one_zero=one_zero).tolist() == wanted
    if one_zero:
        assert canonical_floats(floats).view(np.uint64).tolist() == wanted
        return
    chunk = canonical(pa.chunked_array([array])).combine_chunks()
    assert np.asarray(chunk).view(np.uint64).tolist() == wanted


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_slices_and_widths_have_the_bits_of_their_values(kind):
    array = pa.array(np.array([1, -0.0, np.nan, -np.nan, np.inf], kind))
    whole = canonical_bits(array, one_zero=True)
    assert canonical_bits(array.slice(1, 3), one_zero=True).tolist() == whole[1:4].tolist()
    assert whole[1] == 0
    assert whole[2] == whole[3]
    assert canonical_bits(array.slice(0, 0)).tolist() == []


def test_no_other_module_has_a_pattern_of_its_own():
    pattern = re.compile(r"0x7(ff_?8|e00|fc0)", re.IGNORECASE)
    found = [
        path.relative_to(ROOT / "src" / "trueline").as_posix()
        for path in (ROOT / "src").rglob("*.py")
        if pattern.search(path.read_text(encoding="utf-8"))
    ]
    assert found == ["kernel/nan.py"]
