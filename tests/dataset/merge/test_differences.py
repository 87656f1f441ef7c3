"""Values that differ, for every type, against Python's own comparison."""

from __future__ import annotations

import decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dataset.merge.oracle import same
from trueline.dataset.merge.differences import distinct

FLOATS = st.sampled_from([0.0, -0.0, 1.0, float("nan"), float("inf")])
TEXT = st.sampled_from(["", "a", "b"])
KINDS = {
    "int": (pa.int32(), st.integers(0, 2)),
    "bool": (pa.bool_(), st.booleans()),
    "float": (pa.float64(), FLOATS),
    "text": (pa.string(), TEXT),
    "large text": (pa.large_string(), TEXT),
    "bytes": (pa.binary(), st.sampled_from([b"", b"\0", b"\0\0"])),
    "decimal": (pa.decimal128(5, 2), st.sampled_from([decimal.Decimal("1.00"), decimal.Decimal("1.01")])),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), TEXT),
    "null": (pa.null(), st.none()),
    "list": (pa.list_(pa.float64()), st.lists(st.none() | FLOATS, max_size=2)),
    "large list": (pa.large_list(pa.string()), st.lists(st.none() | TEXT, max_size=2)),
    "fixed list": (pa.list_(pa.int8(), 2), st.lists(st.none() | st.integers(0, 1), min_size=2, max_size=2)),
    "struct": (
        pa.struct([("a", pa.float64()), ("b", pa.string())]),
        st.fixed_dictionaries({"a": st.none() | FLOATS, "b": st.none() | TEXT}),
    ),
    "list of struct": (
        pa.list_(pa.struct([("a", pa.float64())])),
        st.lists(st.none() | st.fixed_dictionaries({"a": st.none() | FLOATS}), max_size=2),
    ),
    "list of lists": (
        pa.list_(pa.list_(pa.int8())),
        st.lists(st.none() | st.lists(st.none() | st.integers(0, 1), max_size=2), max_size=2),
    ),
    "map": (
        pa.map_(pa.string(), pa.float64()),
        st.dictionaries(TEXT, st.none() | FLOATS, max_size=2).map(lambda d: list(d.items())),
    ),
}


def equal(left, right) -> bool:
    """As the oracle has it, with maps as lists of pairs."""
    if isinstance(left, tuple) and isinstance(right, tuple):
        return same(list(left), list(right))
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    return same(left, right)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_columns_differ_where_their_values_do(kind, data):
    type_, values = KINDS[kind]
    pairs = data.draw(st.lists(st.tuples(st.none() | values, st.none() | values), min_size=2, max_size=8))
    left, right = (pa.array([pair[side] for pair in pairs], type=type_) for side in (0, 1))
    expected = [not equal(a, b) for a, b in pairs]
    assert distinct(left, right).tolist() == expected
    # A slice begins inside its buffers.
    assert distinct(left[1:], right[1:]).tolist() == expected[1:]
    assert distinct(left, left).tolist() == [False] * len(pairs)
