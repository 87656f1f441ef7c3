"""Aggregates in parts: however rows are cut, the bits are those of all rows of a group side by side."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from trueline import types as t
from trueline.kernel import aggregates as s
from trueline.kernel import chunk, limbs, moment_sums, moments, partial_aggregates
from trueline.kernel.aggregates import Spans
from trueline.kernel.partial_aggregates import partial_aggregate
from trueline.kernel.vectors import concatenated
from trueline.kernel.word_order import order_of_words
from trueline.view.plan.aggregates import _KINDS

GROUPS = 4
NASTY = [
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    1e-300,
    1e16,
    -1e16,
    0.1,
    1.7e308,
    -1.7e308,
    math.inf,
    -math.inf,
    math.nan,
]
TEXTS = ["", "a", "ab", "b", "é", "a\0"]
KINDS = {
    "float64": (pa.float64(), st.floats(width=64) | st.sampled_from(NASTY)),
    "float32": (pa.float32(), st.floats(width=32)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1) | st.integers(0, 3)),
    "bool": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.sampled_from(TEXTS)),
    "binary": (pa.binary(), st.binary(max_size=3)),
    "decimal": (pa.decimal128(20, 2), st.decimals(-(10**17), 10**17, places=2)),
    "wide decimal": (pa.decimal256(60, 0), st.integers(-(10**59), 10**59).map(Decimal)),
    "duration": (
        pa.duration("us"),
        st.integers(-(10**15), 10**15).map(lambda us: timedelta(microseconds=us)),
    ),
    "time": (pa.timestamp("ns", "UTC"), st.integers(-(2**62), 2**62)),
    "day": (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
}
PAIRS = [
    (word, name)
    for word, kind in _KINDS.items()
    for name, (arrow, _) in KINDS.items()
    if kind.groups
    and kind.result(t.of(arrow)) is not None
    and partial_aggregate(kind.make, arrow) is not None
]


def array_of(values, kind):
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).view(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, kind)


def side_by_side(make, values, found, kind):
    """The aggregate of stretches of rows, the rows of each group brought together."""
    order = order_of_words(found.astype(np.uint64))
    ends = np.cumsum(np.bincount(found, minlength=found.max() + 1))
    spans = Spans(len(found), np.concatenate([[0], ends[:-1]]), ends)
    return make(values.take(pa.array(order)), spans, kind, 0)


def bits(array):
    """Values that can be compared, bit by bit where they are floats."""
    if pa.types.is_floating(array.type):
        width = "i8" if array.type == pa.float64() else "i4"
        plain = np.asarray(array.fill_null(0.0)).view(width).tolist()
        return [None if null else each for each, null in zip(plain, array.is_null().to_pylist(), strict=True)]
    return (
        array.to_pylist()
        if not pa.types.is_temporal(array.type)
        else array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()).to_pylist()
    )


@pytest.mark.contract("exchange:E10")
@pytest.mark.parametrize(("word", "name"), PAIRS, ids=[f"{word} of {name}" for word, name in PAIRS])
@settings(max_examples=examples(25))
@given(data=st.data())
def test_parts_give_the_bits_of_all_rows_side_by_side(word, name, data):
    arrow, strategy = KINDS[name]
    rows = data.draw(
        st.lists(st.tuples(st.integers(0, GROUPS - 1), st.none() | strategy), min_size=1, max_size=30)
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    kind = _KINDS[word]
    result = kind.result(t.of(arrow))
    values = array_of([value for _, value in rows], arrow)
    # Groups are numbered in the order of their first rows, in each part anew.
    firsts = list(dict.fromkeys(group for group, _ in rows))
    found = np.array([firsts.index(group) for group, _ in rows])
    expected = side_by_side(kind.make, values, found, result)
    partial = partial_aggregate(kind.make, arrow)
    assert bits(partial.of(values, found, len(firsts)).result(result)) == bits(expected)

    columns, numbers = [], []
    for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        here = list(dict.fromkeys(found[start:stop].tolist()))
        if not here:
            continue
        local = np.array([here.index(code) for code in found[start:stop].tolist()])
        columns.append(partial.of(values.slice(start, stop - start), local, len(here)).to_arrow())
        numbers += here
    assert all(len(each) == partial.width for each in columns)
    together = [concatenated(list(each), each[0].type) for each in zip(*columns, strict=True)]
    codes = np.array(numbers)
    assert bits(partial.merge(together, codes, len(firsts)).result(result)) == bits(expected)
    again = partial.merge(together, codes, len(firsts)).to_arrow()
    assert bits(partial.merge(again, np.arange(len(firsts)), len(firsts)).result(result)) == bits(expected)


@pytest.mark.parametrize("word", ["stddev", "variance", "sum", "avg", "min", "max", "count"])
@pytest.mark.parametrize("scale", [1.0, 1e-155, 1e150, 2.0**-1040], ids=str)
def test_threads_and_blocks_leave_no_trace(word, scale, monkeypatch):
    monkeypatch.setattr(partial_aggregates, "_MANY_ROWS", 100)
    monkeypatch.setattr(chunk, "_MANY", 100)
    monkeypatch.setattr(limbs, "_BLOCK", 64)
    monkeypatch.setattr(limbs, "_ROWS", 200)
    monkeypatch.setattr(moment_sums, "_BLOCK", 90)
    random = np.random.default_rng(7)
    plain = random.normal(size=2_000) * 10.0 ** random.integers(-12, 12, 2_000) * scale
    plain[::97] = 0.0
    for odd in ([], [math.nan], [math.inf], [math.inf, -math.inf]):
        values = pa.array([*plain.tolist(), *odd, None])
        # One group has rows in the first stretch alone.
        found = np.concatenate([[0, 1, 2, 3], random.integers(0, 3, len(values) - 4)])
        kind = _KINDS[word]
        result = kind.result(t.float64)
        made = partial_aggregate(kind.make, pa.float64()).of(values, found, 4).result(result)
        assert bits(made) == bits(side_by_side(kind.make, values, found, result))


def test_what_needs_all_rows_at_once_is_not_made_in_parts():
    assert partial_aggregate(moments.variance, pa.decimal128(20, 2)) is None
    assert partial_aggregate(s.collect, pa.int64()) is None


# --- sums by group ------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e270, 2.0**-1060], ids=str)
@pytest.mark.parametrize("groups", [1, 7, 100_000])
def test_sums_of_many_blocks_are_exact(scale, groups, monkeypatch):
    monkeypatch.setattr(limbs, "_BLOCK", 600)
    monkeypatch.setattr(limbs, "_ROWS", 1_000)
    monkeypatch.setattr(limbs, "_FEW_GROUPS", 1_000)
    random = np.random.default_rng(3)
    rows = max(5_500, groups // 2)
    values = random.normal(size=rows) * 10.0 ** random.integers(-12, 12, rows) * scale
    group = random.integers(0, groups, rows)
    most = int(np.bincount(group).max())
    found = limbs.floats_by_group(values, group, groups, most)
    assert found is not None
    sums, lowest = found
    some = np.unique(group)[:50]
    exact = [math.fsum(values[group == number].tolist()) for number in some.tolist()]
    assert limbs.rounded(sums, 32 * lowest)[some].tolist() == exact


def test_parts_are_carried_before_they_overflow(monkeypatch):
    monkeypatch.setattr(limbs, "_BLOCK", 1_000)
    monkeypatch.setattr(limbs, "_ROWS", 1 << 12)
    monkeypatch.setattr(limbs, "_PART", 50)
    values = np.full(30_000, -math.nextafter(1.0, 0.0))
    found, lowest = limbs.floats_by_group(values, np.zeros(30_000, np.int64), 1, 30_000)
    assert limbs.rounded(found, 32 * lowest).tolist() == [math.fsum(values.tolist())]


def test_numbers_that_are_too_large_or_too_far_apart_are_cut_one_by_one(monkeypatch):
    one = np.zeros(2, np.int64)
    assert limbs.floats_by_group(np.array([1e300, 1.0]), one, 1, 2) is None
    monkeypatch.setattr(limbs, "_SIDE_BY_SIDE", 12)
    assert limbs.floats_by_group(np.array([1e200, 1e-200]), one, 1, 2) is None


@pytest.mark.parametrize("kind", ["i8", "u8", "i4", "i1"])
def test_whole_sums_of_many_blocks_are_exact(kind, monkeypatch):
    monkeypatch.setattr(partial_aggregates, "_BLOCK", 64)
    info = np.iinfo(kind)
    random = np.random.default_rng(5)
    values = random.integers(info.min, info.max, 1_000, dtype=kind, endpoint=True)
    group = random.integers(0, 3, 1_000)
    low, high = partial_aggregates._integers_by_group(values, group, 3)
    expected = [sum(values[group == number].tolist()) for number in range(3)]
    assert [a + (b << 32) for a, b in zip(low.tolist(), high.tolist(), strict=True)] == expected
