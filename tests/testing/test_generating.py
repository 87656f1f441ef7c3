"""The hard views are as hard as their names say."""

from __future__ import annotations

import math

import pytest

from trueline import types as t
from trueline.kernel.chunk import ROWS_OF_A_CHUNK
from trueline.testing import views
from trueline.testing.generate import mixed


@pytest.fixture(scope="module")
def found():
    return views(large=True)


def column(view, name):
    with view.cursor([name]) as cursor:
        get = cursor.getter(name)
        values = []
        while cursor.move_next():
            values.append(get())
    return values


def test_sizes(found):
    assert [found[name].row_count for name in ("no rows", "one row", "no columns")] == [0, 1, 5]
    assert len(found["no columns"].schema) == len(found["no rows and no columns"].schema) == 0
    large = {view.row_count for view in found.values() if (view.row_count or 0) > 1_000}
    assert large == {ROWS_OF_A_CHUNK - 1, ROWS_OF_A_CHUNK, ROWS_OF_A_CHUNK + 1}
    assert len(found["many columns"].schema) == 300


def test_missing_and_hidden(found):
    every = found["all missing"]
    assert all(value is None for each in every.schema for value in column(every, each.name))
    assert [each.is_hidden for each in found["hidden names"].schema] == [True, False, True, False]


def test_vectors(found):
    lengths = [None if v is None else len(v) for v in column(found["vectors of any length"], "v")]
    assert {0, 300, None} <= set(lengths)
    huge = column(found["huge sparse vectors"], "v")
    assert {len(v) for v in huge if v is not None} == {100_000}
    assert any(v is not None and v.indices is not None and len(v.indices) < 20 for v in huge)


def test_values(found):
    few = column(found["categories at their count"], "all")
    assert max(code for code in few if code is not None) == (1 << 32) - 1
    floats = column(found["NaN and infinities"], "x")
    assert any(x is not None and math.isnan(x) for x in floats)
    assert any(x == 0 and math.copysign(1, x) < 0 for x in floats if x is not None)
    text = column(found["hard text"], "text")
    assert {"", '"', "😀"} <= {each[:1] for each in text}
    assert any("\n" in each for each in text)
    assert len(set(zip(*(column(found["duplicates"], n) for n in "xy"), strict=True))) == 1


def test_the_sample_has_a_column_of_most_types_with_values_missing():
    view = mixed()
    kinds = {type(each.type) for each in view.schema}
    assert {t.Primitive, t.Category, t.Vector} <= kinds
    assert all(None in column(view, each.name) for each in view.schema if each.name != "x")
