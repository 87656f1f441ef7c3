"""Values as cursors hand them out: Python's own where Python has a class that holds them, else numpy's."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import trueline as tl
from trueline import types as t
from trueline.identity import RowId
from trueline.kernel.values import reader
from trueline.view.schema import Field, Schema

UTC = dt.UTC
LEAST, MOST = 1 - (1 << 63), (1 << 63) - 1  # one more is numpy's word for no time


def stored(kind, ticks):
    width = pa.int32() if kind.arrow.bit_width == 32 else pa.int64()
    return pa.array(ticks, width).view(kind.arrow)


@pytest.mark.parametrize(
    ("kind", "ticks", "expected"),
    [
        (t.timestamp("us"), [0, None], [dt.datetime(1970, 1, 1, tzinfo=UTC), None]),
        (t.timestamp("us", None), [1], [dt.datetime(1970, 1, 1, 0, 0, 0, 1)]),
        (t.timestamp("us"), [MOST, 0], [np.datetime64(MOST, "us"), dt.datetime(1970, 1, 1, tzinfo=UTC)]),
        (t.timestamp("s"), [LEAST], [np.datetime64(LEAST, "s")]),
        (t.timestamp("ms"), [-62_135_596_800_000], [dt.datetime(1, 1, 1, tzinfo=UTC)]),
        (t.timestamp("ms"), [-62_135_596_800_001], [np.datetime64(-62_135_596_800_001, "ms")]),
        (t.timestamp("ns"), [1_000, 1], [dt.datetime(1970, 1, 1, 0, 0, 0, 1, UTC), np.datetime64(1, "ns")]),
        (
            t.timestamp("us", "Asia/Tokyo"),
            [253_402_300_799_999_999],
            [np.datetime64(253_402_300_799_999_999, "us")],
        ),
        (t.date, [-719_162, 2_932_896], [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        (t.date, [2_932_897, -(1 << 31)], [np.datetime64(2_932_897, "D"), np.datetime64(-(1 << 31), "D")]),
        (t.duration("s"), [1, MOST], [dt.timedelta(seconds=1), np.timedelta64(MOST, "s")]),
        (t.duration("ns"), [1_000, 1], [dt.timedelta(microseconds=1), np.timedelta64(1, "ns")]),
        (t.time("s"), [1], [dt.time(0, 0, 1)]),
        (t.time("ns"), [1_000, 1], [dt.time(0, 0, 0, 1), np.timedelta64(1, "ns")]),
    ],
    ids=str,
)
def test_moments_that_python_cannot_hold_are_numpys_and_no_error(kind, ticks, expected):
    at = reader(kind)(stored(kind, ticks))
    found = [at(row) for row in range(len(ticks))]
    assert found == expected
    assert [type(each) for each in found] == [type(each) for each in expected]


def test_each_type_has_its_class():
    fields = [
        Field("b", t.boolean),
        Field("i", t.uint64),
        Field("f", t.float32),
        Field("m", t.decimal(4, 2)),
        Field("s", t.text),
        Field("y", t.binary),
        Field("c", t.category(2)),
        Field("id", t.rowid),
        Field("n", t.Nested(pa.struct([("x", pa.int8())]))),
    ]
    values = [True, (1 << 64) - 1, 0.5, Decimal("1.50"), "a", b"\x00", 1, RowId(1, 2), {"x": 3}]
    columns = [[value.bytes if isinstance(value, RowId) else value, None] for value in values]
    view = tl.View.from_arrow(pa.table(columns, schema=Schema(fields).to_arrow()))
    with view.cursor() as cursor:
        getters = [cursor.getter(field.name, field.type) for field in fields]
        assert cursor.move_next()
        assert [get() for get in getters] == values
        assert cursor.move_next()
        assert [get() for get in getters] == [None] * len(values)
