"""Rows in memory: what is only placed is handed on without a copy, once its cells are known to be values."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from trueline import types as t
from trueline.view.execute.dispatch import batches
from trueline.view.schema import Field, Schema

TABLE = pa.table(
    {
        "n": pa.array(range(100), pa.int64()),
        "name": [None if n % 7 == 0 else f"row {n}" for n in range(100)],
        "v": [[float(n)] * (n % 3) for n in range(100)],
    }
)

PLACED = {
    "select": lambda view: view.select("v", "n"),
    "limit": lambda view: view.skip(10).limit(50).skip(45),
    "beyond": lambda view: view.skip(90).limit(50),
    "tail": lambda view: view.tail(30).limit(3),
    "none": lambda view: view.limit(0),
    "concat": lambda view: view.tail(5).concat(view.limit(20), view.skip(100)),
    "across": lambda view: view.concat(view, view).skip(95).limit(110),
    "zip": lambda view: view.zip(view.skip(3).select("n").rename(other="n")),
}


def batched(view):
    """The rows as they come when they are read a chunk at a time."""
    return pa.Table.from_batches(batches(view.node, view.schema.visible), view.schema.to_arrow())


@pytest.mark.parametrize("place", PLACED.values(), ids=PLACED)
@pytest.mark.parametrize("chunks", [1, 3])
def test_rows_that_are_placed_are_those_that_are_read(place, chunks):
    table = TABLE if chunks == 1 else pa.concat_tables([TABLE[:30], TABLE[30:31], TABLE[31:]])
    view = tl.View.from_arrow(table)
    placed = place(view)
    before = placed.to_arrow()
    view.to_arrow()  # now all cells are known
    found = placed.to_arrow()
    assert found.schema == before.schema == placed.schema.to_arrow()
    assert found.equals(before)
    assert found.equals(batched(placed))
    found.validate(full=True)


def test_what_is_placed_is_not_copied():
    view = tl.View.from_arrow(TABLE)
    whole = view.to_arrow()
    found = view.concat(view).skip(10).select("n").zip(view.select("v")).to_arrow()
    for name in ("n", "v"):
        for chunk in found[name].chunks:
            assert chunk.buffers()[-1].address == whole[name].chunk(0).buffers()[-1].address


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([b"a", b"\xff", b"c"]).view(pa.string()), ["a", None, "c"]),
        (pa.array([0, 1, 86_400_000]).view(pa.date64()), ["1970-01-01", None, "1970-01-02"]),
    ],
    ids=["text", "date64"],
)
def test_cells_that_are_no_values_are_null_however_often_they_are_read(array, expected):
    view = tl.View.from_arrow(pa.table({"x": array}))
    for _ in range(3):
        found = view.limit(3).to_arrow()["x"].to_pylist()
        assert [None if each is None else str(each) for each in found] == expected
    assert view.bad == {"x": 1}


def test_codes_beyond_a_category_are_null_inside_of_vectors_too():
    kinds = {"c": t.category(3), "v": t.vector(t.category(3))}
    schema = Schema([Field(name, kind) for name, kind in kinds.items()]).to_arrow()
    view = tl.View.from_arrow(pa.Table.from_pylist([{"c": 7, "v": [0, 7]}, {"c": 2, "v": [1]}], schema))
    for _ in range(3):
        assert view.limit(2).to_arrow().to_pylist() == [{"c": None, "v": [0, None]}, {"c": 2, "v": [1]}]
