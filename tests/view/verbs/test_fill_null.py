"""Rows without nulls, and values where there was null."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

import trueline as tl
from tests.view.verbs.reading import agree, values
from trueline.errors import InputError, SchemaError

NAN = float("nan")
TABLE = pa.table(
    {
        "i": pa.array([1, None, 3], pa.int32()),
        "f": pa.array([None, NAN, 1.5]),
        "m": pa.array([None, Decimal("1.50"), None], pa.decimal128(9, 2)),
        "s": pa.array(["a", None, None]),
        "b": pa.array([None, True, False]),
        "d": pa.array([dt.date(2026, 1, 1), None, None]),
        "unit `price`": pa.array([1, 2, None], pa.int64()),
        "v": pa.array([[1.0], None, []], pa.list_(pa.float64())),
    }
)


def view():
    return tl.View.from_arrow(TABLE)


def test_rows_with_a_null_are_left_out_and_nan_is_not_null():
    assert values(view().drop_nulls("f"), "i") == [None, 3]
    assert view().drop_nulls().count() == 0
    assert values(view().drop_nulls("i", "unit `price`"), "i") == [1]
    assert values(view().drop_nulls("v"), "i") == [1, 3]
    agree(view().drop_nulls("s"))
    with pytest.raises(SchemaError, match="no column 'z'"):
        view().drop_nulls("z")


def test_columns_that_cannot_be_null_are_not_looked_at():
    sure = tl.View.range(3)
    assert not sure.schema["n"].nullable
    assert sure.drop_nulls() is sure


def test_a_value_alone_goes_where_values_of_its_kind_are():
    found = view().fill_null(0)
    assert values(found, "i", "unit `price`") == [(1, 1), (0, 2), (3, 0)]
    assert values(found, "m") == [Decimal("0.00"), Decimal("1.50"), Decimal("0.00")]
    assert str(values(found, "f")) == "[0.0, nan, 1.5]"
    assert values(found, "s", "b") == [("a", None), (None, True), (None, False)]
    assert [found.schema[name].type for name in TABLE.column_names] == [
        view().schema[name].type for name in TABLE.column_names
    ]
    assert not found.schema["i"].nullable
    assert found.schema["s"].nullable
    assert values(view().fill_null("?"), "s") == ["a", "?", "?"]
    assert values(view().fill_null(True), "b") == [True, True, False]
    assert values(view().fill_null(2.5), "f")[0] == 2.5
    assert values(view().fill_null(2.5), "i") == [1, None, 3]
    agree(found)


def test_named_columns_get_their_values():
    found = view().fill_null({"unit `price`": 7}, s="none", d="2026-02-03")
    assert values(found, "unit `price`", "s") == [(1, "a"), (2, "none"), (7, "none")]
    assert values(found, "d")[1] == dt.date(2026, 2, 3)
    assert values(view().fill_null(9, "i"), "i", "unit `price`") == [(1, 1), (9, 2), (3, None)]
    assert values(view().fill_null(9, i=8), "i", "unit `price`") == [(1, 1), (8, 2), (3, 9)]


def test_a_value_that_the_type_does_not_hold_is_refused_with_the_conversion():
    with pytest.raises(SchemaError, match=r"'i' is of type int32, which cannot hold 0.5") as caught:
        view().fill_null(i=0.5)
    assert 'with_columns(i="cast(`i` as float64)")' in caught.value.remedy
    converted = view().with_columns(i="cast(`i` as float64)").fill_null(i=0.5)
    assert values(converted, "i") == [1.0, 0.5, 3.0]
    with pytest.raises(SchemaError):
        view().fill_null(s=1)
    with pytest.raises(SchemaError, match="no column 'z'"):
        view().fill_null(z=1)


def test_a_call_without_a_value_is_refused():
    for call in (
        lambda: view().fill_null(),
        lambda: view().fill_null(None, "i"),
        lambda: view().fill_null(i=None),
        lambda: view().fill_null({"i": 1}, "f"),
    ):
        with pytest.raises(InputError):
            call()
    with pytest.raises(SchemaError, match="no column that may be null"):
        tl.View.from_rows([{"s": "a"}]).fill_null(0)
