"""Cells that are no values of their columns: missing, and counted once, whatever holds them."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.view.watched import Watched
from trueline import console
from trueline import types as t
from trueline.view import execute
from trueline.view.plan.node import Want
from trueline.view.plan.sources import SourceScan
from trueline.view.schema import Field, Schema

KIND = t.vector(t.int8, 3)
# Vectors may come sparse, so that one of them can be malformed.
SCHEMA = pa.schema(
    [
        pa.field("v", KIND.sparse, metadata={"trueline/type": '"vector(int8, 3)"'}),
        Schema([Field("c", t.category(3))]).to_arrow().field("c"),
    ]
)
GOOD = {"size": 3, "indices": [0, 2], "values": [1, 2]}
SHORT = {"size": 3, "indices": [0, 1], "values": [1]}
LONG = {"size": 4, "indices": None, "values": [1, 2, 3, 4]}
ROWS = [{"v": each, "c": code} for each, code in [(GOOD, 0), (SHORT, 7), (None, None), (LONG, 2)] * 25]
BAD = {"v": 50, "c": 25}


def in_memory(_):
    return tl.View.from_arrow(pa.Table.from_pylist(ROWS, SCHEMA))


def in_parquet(folder):
    pq.write_table(pa.Table.from_pylist(ROWS, SCHEMA), folder / "x.parquet", row_group_size=30)
    return tl.View.read_parquet(folder / "x.parquet")


def in_json(folder):
    (folder / "x.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tl.View.read_json(folder / "x.json", schema=SCHEMA)


def given(_):
    return tl.View(SourceScan(Watched(pa.Table.from_pylist(ROWS, SCHEMA))))


def given_in_parts(_):
    return tl.View(SourceScan(Watched(pa.Table.from_pylist(ROWS, SCHEMA), parts=4)))


@pytest.fixture(
    params=[in_memory, in_parquet, in_json, given, given_in_parts], ids=lambda make: make.__name__
)
def view(request, tmp_path):
    with console.use(console.CapturedConsole()):
        yield request.param(tmp_path)


@pytest.mark.contract("view:C37")
def test_a_cell_that_is_no_value_is_missing_and_counted_once(view):
    assert view.bad == {}
    read = view.to_arrow()
    assert [read[name].null_count for name in ("v", "c")] == [75, 50]
    assert view.bad == BAD
    view.to_arrow()
    for n in (1, 3, 8):
        for cursor in view.cursor_set(None, n):
            while cursor.move_next():
                pass
    view.shuffle(1).to_arrow()
    assert view.bad == BAD


@pytest.mark.contract("view:C37")
def test_only_cells_that_were_read_are_counted(view):
    view.select("c").to_arrow()
    assert view.bad == {"c": 25}
    view.with_columns(d="c is null").filter("c is not null").select("c", "d").to_arrow()
    assert view.bad == {"c": 25}


def test_views_over_a_source_share_what_is_known_of_its_cells(view):
    narrow = view.select("v").filter("v is not null")
    assert narrow.count() == 25
    assert view.bad == narrow.bad == {"v": 50}


def test_what_was_counted_does_not_travel(view):
    view.to_arrow()
    for piece in execute.pieces(view.node, Want((0, 1))):
        if not isinstance(view.node, SourceScan):
            rows = sum(chunk.rows for chunk in pickle.loads(pickle.dumps(piece)).chunks())
            assert rows == piece.rows
    assert view.bad == BAD
