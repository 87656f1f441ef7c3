"""Medians and quantiles of groups: small groups are sorted, large ones divided, with the same bits."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from trueline import types as t
from trueline.kernel import order_statistics
from trueline.kernel.aggregates import Spans
from trueline.kernel.order_statistics import WHOLE, quantile

KINDS = {
    "float64": (pa.float64(), st.floats(width=64) | st.sampled_from([0.0, -0.0, math.nan, 1e308, 5e-324])),
    "float32": (pa.float32(), st.floats(width=32)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
}


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_groups_that_are_divided_have_the_quantiles_of_those_that_are_sorted(name, data):
    kind, strategy = KINDS[name]
    groups = data.draw(st.lists(st.lists(st.none() | strategy, max_size=12), min_size=1, max_size=4))
    ends = np.cumsum([len(each) for each in groups])
    values = pa.array([value for group in groups for value in group], kind)
    spans = Spans(len(values), np.concatenate([[0], ends[:-1]]), ends)
    part = data.draw(st.sampled_from([0, 1, WHOLE // 3, WHOLE // 2, WHOLE - 1, WHOLE]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_statistics, "_MANY_ROWS", 1 << 40)
        sorted_ = quantile(values, spans, t.float64, part)
        patch.setattr(order_statistics, "_MANY_ROWS", 0)
        divided = quantile(values, spans, t.float64, part)
    assert divided.is_null().equals(sorted_.is_null())
    bits = [np.asarray(each.fill_null(0.0)).view(np.int64).tolist() for each in (divided, sorted_)]
    assert bits[0] == bits[1]


def test_large_groups_are_divided_and_small_ones_are_sorted(monkeypatch):
    seen = []

    def spied(name):
        made = getattr(order_statistics, name)

        def make(*given, **more):
            seen.append(name)
            return made(*given, **more)

        monkeypatch.setattr(order_statistics, name, make)

    spied("_Divided")
    spied("_Ordered")
    values = pa.array(np.arange(4 * order_statistics._MANY_ROWS, dtype=np.float64))
    for groups in (4, 8):
        ends = np.arange(1, groups + 1) * (len(values) // groups)
        spans = Spans(len(values), ends - len(values) // groups, ends)
        found = quantile(values, spans, t.float64, WHOLE // 2)
        assert found.to_pylist() == [(a + b - 1) / 2 for a, b in zip(spans.low, spans.high, strict=True)]
    assert seen == ["_Divided", "_Ordered"]
