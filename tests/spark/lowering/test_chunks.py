"""What tasks do to rows does not depend on how they are cut into chunks; of wide ones few are held."""

from __future__ import annotations

import mmap
import weakref
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import trueline as tl
from trueline import types as t
from trueline.identity import RowIds
from trueline.kernel.chunk import Chunk, together
from trueline.spark.lowering import layout, ordered_join, window
from trueline.spark.lowering.exchange import NumberedRows, SpreadRows
from trueline.spark.lowering.group_by import PartsTogether, PartsWork
from trueline.spark.lowering.layout import Layout
from trueline.spark.lowering.lowered import CountedPiece
from trueline.spark.lowering.ordered_join import RowsAtPlaces, WithLeftRows
from trueline.spark.lowering.window import BlockWindow
from trueline.view.execute.window import WindowPiece, WindowWork

ROWS = 60
SIZES = [1, 7, 1000]


class Rows:
    """Rows in chunks of so many."""

    def __init__(self, whole: Chunk, size: int) -> None:
        self.whole, self.size, self.rows = whole, size, whole.rows

    def chunks(self):
        """Yield them."""
        for start in range(0, self.whole.rows, self.size):
            yield self.whole.slice(start, self.size)


def chunk(*columns, ids=False) -> Chunk:
    arrays = tuple(map(pa.array, columns))
    rows = len(arrays[0])
    words = np.arange(rows, dtype=np.uint64)
    return Chunk(rows, arrays, RowIds(words, words * np.uint64(3)) if ids else None)


def all_of(piece) -> Chunk:
    return together([each for each in piece.chunks() if each.rows])


def lists(found: Chunk) -> list[list[object]]:
    ids = [] if found.ids is None else [found.ids.low.tolist(), found.ids.high.tolist()]
    return [*(array.to_pylist() for array in found.arrays), *ids]


# --- however they are cut -------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_rows_of_ranges_are_numbered_on_over_chunks(size):
    ranges = [0] * 20 + [2] * 5 + [3] * 35
    below = Rows(chunk(list(range(ROWS)), ["x"] * ROWS, ranges, ids=True), size)
    found = all_of(NumberedRows(below, (0, 20, 20, 25, 60), keep=1))
    assert found.arrays[1].to_pylist() == list(range(ROWS))
    assert found.arrays[0].to_pylist() == list(range(ROWS))
    # A task may have ranges that others have rows before.
    later = Rows(chunk(list(range(ROWS)), ranges), size)
    starts = (100, 200, 300, 400)
    expected = [*range(100, 120), *range(300, 305), *range(400, 435)]
    assert all_of(NumberedRows(later, starts, keep=1)).arrays[1].to_pylist() == expected


@pytest.mark.parametrize("size", SIZES)
def test_what_one_row_became_is_numbered_as_it_comes(size):
    found = all_of(CountedPiece(Rows(chunk(["a"] * ROWS, ids=True), size)))
    assert lists(found) == [["a"] * ROWS, list(range(ROWS)), list(range(ROWS)), list(range(0, 3 * ROWS, 3))]


def blocks_of(rows: Chunk, size: int, work: WindowWork) -> Chunk:
    """Return the rows of each block with their neighbours, their numbers and that of the block last."""
    parts = []
    for block in range(-(-rows.rows // size)):
        first, last = max(0, block * size - work.behind), min(rows.rows, (block + 1) * size + work.ahead)
        part = rows.slice(first, last - first)
        more = pa.array(np.arange(first, last)), pa.array(np.full(last - first, block))
        parts.append(Chunk(part.rows, (*part.arrays, *more), part.ids))
    return together(parts)


@pytest.mark.parametrize("most", [1, 200, 64 << 20])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("before", "after"), [(0, 0), (2, 3), (9, 0), (0, 7)])
def test_windows_of_blocks_are_those_of_all_rows(before, after, size, most, monkeypatch):
    monkeypatch.setattr(window, "BYTES_OF_A_CHUNK", most)
    node = tl.View.range(ROWS).window(before, after, s="sum(n)", r="row_number()", g="lag(n, 4)").node
    calls = [(node.calls[place], None if node.calls[place].column is None else 0) for place in range(3)]
    rows = chunk(np.random.default_rng(2).integers(0, 99, ROWS), ids=True)
    work = WindowWork(before, after, (), (0, *calls, 1))
    numbered = Chunk(ROWS, (*rows.arrays, pa.array(np.arange(ROWS))), rows.ids)
    expected = all_of(WindowPiece(Rows(numbered, ROWS), work))
    below = Rows(blocks_of(rows, 16, work), size)
    found = list(BlockWindow(below, work, 16).chunks())
    assert lists(together(found)) == lists(expected)
    # Few bytes are held of a block, if they are many.
    assert len(found) == -(-ROWS // 16) if most > 1000 else len(found) > 4 or size > ROWS


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_alone", [False, True])
def test_parts_of_a_group_come_together_over_chunks(size, is_alone):
    keys = [3] * 20 + [None] * 9 + [1] * 1 + [7] * 30 if not is_alone else list(range(ROWS))
    values, places = list(range(ROWS)), list(range(100, 100 + ROWS))

    def added(arrays, spans, call):
        value = np.asarray(arrays[0])
        return pa.array([int(value[low:high].sum()) for low, high in zip(spans.low, spans.high, strict=True)])

    work = PartsWork(1, (0, (None, added, (1,))), is_alone=is_alone)
    found = all_of(PartsTogether(Rows(chunk(keys, values, places, ids=True), size), work))
    if is_alone:
        assert lists(found)[:3] == [keys, values, places]
        return
    edges = [0, 20, 29, 30, 60]
    sums = [sum(range(low, high)) for low, high in pairwise(edges)]
    assert lists(found) == [
        [3, None, 1, 7],
        sums,
        [100, 120, 129, 130],
        edges[:-1],
        [3 * n for n in edges[:-1]],
    ]


# --- rows of the left of a join -------------------------------------------------------------


class Left:
    """Rows of a left side, whose ids are their offsets, in chunks of so many; says how many of these live."""

    def __init__(self, rows: int, size: int) -> None:
        self.rows, self.size = rows, size
        self.made: list[weakref.ref[np.ndarray]] = []
        self.most = 0

    def chunks(self, _, start):
        """Yield those from an offset on."""
        for first in range(start, self.rows, self.size):
            offsets = np.arange(first, min(first + self.size, self.rows), dtype=np.uint64)
            self.made.append(weakref.ref(offsets))
            numbers = pa.array(offsets)
            ids = RowIds(offsets.copy(), np.zeros(len(offsets), np.uint64))
            del offsets
            self.most = max(self.most, sum(each() is not None for each in self.made))
            yield Chunk(len(numbers), (numbers,), ids)


@pytest.mark.parametrize("most", [1, 64 << 20])
@pytest.mark.parametrize("size", SIZES)
def test_matches_get_their_rows_over_chunks_of_either_side(size, most, monkeypatch):
    left = Left(ROWS, 9)
    monkeypatch.setattr(ordered_join, "_from", left.chunks)
    monkeypatch.setattr(ordered_join, "BYTES_OF_A_CHUNK", most)
    places = np.sort(np.random.default_rng(4).integers(3, ROWS, 100))
    below = Rows(chunk([f"right {n}" for n in range(100)], places, list(range(100))), size)
    found = list(WithLeftRows(below, (), (0, None)).chunks())
    assert lists(together(found))[:3] == [
        places.tolist(),
        [f"right {n}" for n in range(100)],
        places.tolist(),
    ]
    if most == 1:
        assert max(each.rows for each in found) == 1


def test_of_the_left_no_more_than_a_chunk_is_held(monkeypatch):
    left = Left(1_000, 10)
    monkeypatch.setattr(ordered_join, "_from", left.chunks)
    reader = RowsAtPlaces((), 5)
    places = np.arange(5, 1_000, 10, dtype=np.uint64)
    assert all_of_chunks(reader.take(places)).arrays[0].to_pylist() == places.tolist()
    # The one that is read next, and what the loop above it still names.
    assert left.most <= 2


def all_of_chunks(found) -> Chunk:
    return together(list(found))


# --- wide rows ------------------------------------------------------------------------------


def test_wide_rows_are_not_put_together_beyond_what_an_array_has_room_for():
    """Two texts of 1.2 GB over one buffer whose pages nobody touches."""
    size = 1_200 << 20
    text = pa.py_buffer(mmap.mmap(-1, size))
    array = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, size], np.int32)), text])
    batch = pa.RecordBatch.from_arrays([array], names=["c0"])
    found = list(Layout((t.text,), False, ()).chunks(iter([batch, batch])))
    assert [each.rows for each in found] == [1, 1]


def test_batches_are_put_together_up_to_rows_and_bytes(monkeypatch):
    batches = [pa.record_batch({"c0": pa.array(np.arange(10))}) for _ in range(10)]
    plan = Layout((t.int64,), False, ())

    def sizes():
        return [each.rows for each in plan.chunks(iter(batches))]

    assert sizes() == [100]
    monkeypatch.setattr(layout, "BYTES_OF_A_CHUNK", 250)
    assert sizes() == [30, 30, 30, 10]
    monkeypatch.setattr(layout, "ROWS_OF_A_CHUNK", 20)
    assert sizes() == [20] * 5


def test_a_sample_holds_few_bytes_of_wide_keys(monkeypatch):
    monkeypatch.setattr("trueline.spark.lowering.exchange._BYTES_OF_SAMPLES", 1_000)
    found = all_of(SpreadRows(Rows(chunk(["x" * 90] * ROWS), 7)))
    assert 1 <= found.rows <= 11
