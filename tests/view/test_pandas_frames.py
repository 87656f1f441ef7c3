"""pandas and numpy beside views: memory is nobody else's, whole numbers stay whole, frames go back in."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import trueline as tl

# --- memory ---------------------------------------------------------------------------------


def numbers():
    return np.arange(100)


FORMS = {
    "table": lambda n: pa.table({"x": n}),
    "slice": lambda n: pa.table({"x": np.concatenate([n, n])[:100]}),
    "batch": lambda n: pa.record_batch({"x": n}),
    "chunks": lambda n: pa.table({"x": pa.chunked_array([n[:50], n[50:]])}),
    "stream": lambda n: pa.table({"x": n}).to_reader(),
    "lists": lambda n: pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(n), 1)}),
    "struct": lambda n: pa.table({"x": pa.StructArray.from_arrays([pa.array(n)], ["y"])}),
    "dictionary": lambda n: pa.table({"x": pa.DictionaryArray.from_arrays(pa.array(n), pa.array(n))}),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_happens_to_memory_later_does_not_show_in_a_view(form):
    mine = numbers()
    view = tl.View.from_arrow(FORMS[form](mine))
    before = view.to_arrow().to_pylist()
    mine[:] = -1
    if form == "slice":
        assert before[0] == {"x": 0}
    assert view.to_arrow().to_pylist() == before


@pytest.mark.parametrize("kind", ["int64", "float64", "bool", "datetime64[us]", "Int64"])
def test_what_happens_to_a_frame_later_does_not_show_in_a_view(kind):
    frame = pd.DataFrame({"x": np.arange(100).astype("bool" if kind == "bool" else "int64")}).astype(kind)
    view = tl.View.from_pandas(frame)
    before = view.to_arrow()
    if kind == "Int64":
        frame["x"].array._data[:] = 7
    else:
        frame["x"].to_numpy()[:] = frame["x"].to_numpy()[5]
    assert view.to_arrow().equals(before)


def buffers(array):
    return {buffer.address for buffer in array.buffers() if buffer is not None and buffer.size}


VALUES = {
    "text": pa.array(["a", None]),
    "bytes": pa.array([b"a", None], pa.large_binary()),
    "lists": pa.array([["a"], None], pa.list_(pa.string())),
    "decimals": pa.array([Decimal(1), None], pa.decimal128(9, 2)),
    "booleans": pa.array([True, None]),
}


@pytest.mark.parametrize("kind", VALUES)
def test_no_buffer_is_shared_whatever_the_type(kind):
    view = tl.View.from_arrow(pa.table({"x": VALUES[kind]}))
    [held] = view.node.table["x"].chunks
    assert not buffers(VALUES[kind]) & buffers(held)
    assert held.equals(VALUES[kind])


def test_frames_of_polars_are_taken():
    assert tl.View.from_polars(pl.DataFrame({"x": [1, None]})).to_arrow()["x"].to_pylist() == [1, None]


def test_rows_without_columns_are_still_counted():
    assert tl.View.from_arrow(pa.table({"x": [1, 2]}).select([])).count() == 2


# --- whole numbers --------------------------------------------------------------------------


def test_whole_numbers_that_may_be_null_stay_whole():
    kinds = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    big = {"int64": 2**63 - 1, "uint64": 2**64 - 1}
    table = pa.table({kind: pa.array([big.get(kind, 1), None], kind) for kind in kinds})
    frame = tl.View.from_arrow(table).to_pandas()
    assert [str(kind) for kind in frame.dtypes] == [
        kind.replace("u", "U").replace("i", "I") for kind in kinds
    ]
    assert frame["int64"][0] == 2**63 - 1
    old = tl.View.from_arrow(table).to_pandas(nullable=False)
    assert set(map(str, old.dtypes)) == {"float64"}


def test_columns_that_cannot_be_null_are_plain():
    fields = [
        pa.field("a", pa.int64(), nullable=False),
        pa.field("b", pa.int64()),
        pa.field("c", pa.string()),
    ]
    frame = tl.View.from_arrow(pa.table([[1], [2], ["x"]], schema=pa.schema(fields))).to_pandas()
    assert [str(kind) for kind in frame.dtypes] == ["int64", "Int64", "object"]
    assert list(frame.columns) == ["a", "b", "c"]
    assert str(tl.View.range(3).to_pandas()["n"].dtype) == "int64"


def test_what_to_pandas_gave_can_be_appended_again(ws):
    at = dt.datetime(2026, 11, 13, 12, 30, 1, 5000)
    rows = pa.table(
        {
            "int": pa.array([1, None, 2**60 + 1]),
            "small": pa.array([1, None, 3], pa.int8()),
            "unsigned": pa.array([2**64 - 1, None, 3], pa.uint64()),
            "float": pa.array([1.5, None, 3.0]),
            "text": pa.array(["a", None, ""]),
            "flag": pa.array([True, None, False]),
            "price": pa.array([Decimal("1.50"), None, Decimal(3)], pa.decimal128(12, 2)),
            "day": pa.array([at.date(), None, at.date()]),
            "at": pa.array([at, None, at], pa.timestamp("ms")),
            "zoned": pa.array([at, None, at], pa.timestamp("us", "UTC")),
            "clock": pa.array([at.time(), None, at.time()], pa.time32("ms")),
            "bytes": pa.array([b"a", None, b""]),
            "four": pa.array([b"abcd", None, b"1234"], pa.binary(4)),
            "list": pa.array([[1.5], None, []], pa.list_(pa.float64())),
            "struct": pa.array([{"x": 1}, {"x": None}, {"x": 2}], pa.struct({"x": pa.int64()})),
            "nothing": pa.nulls(3, pa.int32()),
        }
    )
    ds = ws.create("all")
    ds.append(rows)
    schema = ds.schema
    commit = ds.append(ds.view().to_pandas())
    assert (commit.events, ds.schema) == (("AddData",), schema), "no new schema"
    found = ds.view().to_arrow()
    assert found.slice(3).equals(found.slice(0, 3))
    assert ds.verify().ok


def test_an_empty_frame_goes_back_too(ws):
    ds = ws.create("x", schema=pa.schema({"n": pa.int64(), "price": pa.decimal128(9, 2), "t": pa.string()}))
    assert ds.append(ds.view().to_pandas()).rows == 0
