"""Polars frames come in and go out as they are."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import polars as pl
import pytest

import trueline as tl


@pytest.fixture
def frame():
    noon = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)
    return pl.DataFrame(
        {
            "n": [1, None, 3],
            "text": ["Bern", None, "ü" * 30],
            "x": [1.5, None, float("nan")],
            "day": [dt.date(2026, 1, 1), None, dt.date(1, 1, 1)],
            "moment": [noon, None, noon],
            "price": [Decimal("1.50"), None, Decimal("2.25")],
            "raw": [b"x", None, b"y" * 40],
            "list": [[1, 2], None, []],
        }
    )


def test_a_frame_comes_back_equal(frame):
    assert tl.View.from_polars(frame).to_polars().equals(frame)
    assert pl.DataFrame(tl.View.from_arrow(frame).select("text", "n")).equals(frame.select("text", "n"))


def test_a_frame_is_appended_and_comes_back_equal(frame, tmp_path):
    with tl.open(tmp_path, create=True) as ws:
        ds = ws.create("towns")
        assert ds.append(frame).rows == 3
        assert ds.view().to_polars().equals(frame)


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["Bern", "Zug"])])
def test_categories_are_read_and_stored_as_their_text(kind, tmp_path):
    towns = ["Bern", None, "Zug", "Bern"]
    frame = pl.DataFrame({"town": pl.Series(towns, dtype=kind)})
    assert tl.View.from_polars(frame).to_arrow()["town"].to_pylist() == towns
    with tl.open(tmp_path, create=True) as ws:
        ds = ws.create("towns")
        ds.append(frame)
        assert ds.view().to_arrow()["town"].to_pylist() == towns
