"""Kept rows: transparent, computed once, shared by all readers, let go with the view."""

from __future__ import annotations

import gc
import tempfile
import threading

import pyarrow as pa
import pytest

import trueline as tl
from tests.view.verbs.reading import Broken, Counting, agree, divided, memory, serial
from tests.view.watched import Watched, numbers
from trueline.kernel.read_ahead import THREADS
from trueline.view import execute
from trueline.view.execute import cache as caching
from trueline.view.plan.node import Want
from trueline.view.plan.sources import SourceScan

TABLE = pa.table({"a": range(95), "b": [str(n) for n in range(95)], "v": [[n] * (n % 3) for n in range(95)]})


@pytest.fixture(params=[1 << 30, 300])
def limit(request):
    with memory(request.param):
        yield request.param


@pytest.mark.contract("view:C104")
def test_what_is_kept_is_what_was_read(limit):
    for source in (Counting(TABLE), divided(TABLE, 5, 90)):
        plain, kept = tl.View(source), tl.View(source).cache()
        assert kept.schema is plain.schema or kept.schema == plain.schema
        for _ in range(2):
            assert serial(kept) == serial(plain)
        assert agree(kept, sets=(2, 7)) == serial(plain)


@pytest.mark.contract("kit:K19")
def test_each_column_of_each_row_is_computed_once(limit):
    source = Counting(TABLE)
    view = tl.View(source).cache()
    view.select("a").to_arrow()
    assert source.cells == {"a": 95, "b": 0, "v": 0}
    for _ in range(3):
        serial(view, ["a", "b"])
        view.select("b").filter("b > '3'").to_arrow()
    assert source.cells == {"a": 95, "b": 95, "v": 0}
    serial(view, seed=5)
    assert view.count() == 95
    assert source.cells == {"a": 95, "b": 95, "v": 95}


def test_many_readers_at_once_compute_each_cell_once(limit):
    source = Counting(TABLE)
    view = tl.View(source).cache()
    found, ready = [], threading.Barrier(6)

    def read(columns):
        ready.wait()
        found.append((columns, view.select(*columns).to_arrow()))

    asked = [("a",), ("a", "b"), ("b", "v"), ("v", "a"), ("a", "b", "v"), ("b",)]
    threads = [threading.Thread(target=read, args=(columns,)) for columns in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert source.cells == {"a": 95, "b": 95, "v": 95}
    assert len(found) == 6
    assert all(table.to_pylist() == TABLE.select(list(columns)).to_pylist() for columns, table in found)


@pytest.mark.contract("view:C29")
def test_the_number_of_rows_is_known_once_all_were_read():
    view = tl.View(Counting(TABLE)).cache()
    assert view.row_count is None
    view.limit(20).to_arrow()
    assert view.row_count is None
    assert execute.serial(view.node) is not None
    assert view.count() == 95
    assert view.row_count == 95
    assert tl.View(divided(TABLE, 95)).cache().row_count == 95


def test_what_is_kept_can_be_shuffled_and_divided():
    view = tl.View(Counting(TABLE)).window(0, 0, c="count(*)").cache()
    assert view.can_shuffle
    assert serial(view, seed=2) != serial(view)
    assert sorted(serial(view, ["a"], seed=2)) == sorted(serial(view, ["a"]))
    assert [piece.rows for piece in execute.pieces(view.node, Want((0,), parts=5))] == [19] * 5
    assert len(view.cursor_set(["a", "b"], 3)) == 3


def test_a_reader_that_leaves_early_leaves_nothing_open_and_the_next_goes_on():
    source = divided(TABLE, *[5] * 19)
    view = tl.View(source).cache()
    before = threading.active_count()
    with view.cursor(["a"]) as cursor:
        assert cursor.move_next()
    assert source.open == 0
    assert threading.active_count() == before
    assert serial(view, ["a"]) == serial(tl.View(divided(TABLE, 95)), ["a"])
    # What was kept of counted pieces is not read again, but for the piece that was left, and those after it.
    assert source.cells["a"] <= 95 + 5 * (THREADS + 1)
    again = source.cells["a"]
    serial(view, ["a"])
    assert source.cells["a"] == again


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("where", ["n >= 0", "n % 3 = 1"], ids=["all", "some"])
def test_pieces_that_were_read_are_not_read_again_when_a_reader_left(counted, where, monkeypatch):
    monkeypatch.setattr(caching, "THREADS", 1)
    source = Watched(numbers(100), rows_at_once=5, parts=5, counted=counted)
    plain = tl.View(SourceScan(source)).filter(where)
    view = plain.cache()
    batches = view.batches(["n"])
    while next(batches)["n"][-1].as_py() < 52:
        pass
    batches.close()
    # Up to the third piece, of which three chunks of five rows were read.
    assert (source.log.rows, source.log.opened, source.log.closed) == (55, 3, 3)
    assert next(view.batches(["n"]))["n"][0].as_py() < 3
    assert source.log.rows == 55
    found = view.select("n").to_arrow()
    # The third piece from its start, and the two after it.
    assert (source.log.rows, source.log.opened) == (55 + 60, 3 + 3)
    assert found.equals(plain.select("n").to_arrow())
    assert view.count() == found.num_rows


def test_reading_the_first_rows_reads_few():
    source = Counting(pa.table({"n": range(10_000)}))
    assert tl.View(source).cache().limit(3).to_arrow().num_rows == 3
    assert source.cells["n"] <= 100


def test_files_go_with_the_last_view(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with memory(300):
        view = tl.View(Counting(TABLE)).cache()
        view.to_arrow()
        (folder,) = tmp_path.iterdir()
        assert list(folder.iterdir())
        cursor = view.select("a").cursor()
        cursor.move_next()
        del view
        gc.collect()
        assert list(tmp_path.iterdir()) == [folder]
        cursor.close()
        del cursor
        gc.collect()
        assert list(tmp_path.iterdir()) == []


def test_an_error_is_not_kept():
    source = Broken(TABLE)
    view = tl.View(source).cache()
    for _ in range(2):
        with pytest.raises(OSError, match="the disk is gone"):
            view.to_arrow()
    assert source.open == 0
    source.batch = 1_000  # now all of it is in one batch, before the failure
    view = tl.View(Counting(TABLE)).cache()
    assert view.count() == 95


def test_no_columns_still_have_rows_and_ids():
    source = Counting(TABLE)
    view = tl.View(source).cache()
    assert view.count() == 95
    assert source.cells == {"a": 0, "b": 0, "v": 0}
    assert len(serial(view, [])) == 95
    assert serial(view, []) == serial(tl.View(source), [])


def test_an_empty_view_is_kept():
    view = tl.View(Counting(TABLE.slice(0, 0))).cache()
    assert view.to_arrow().num_rows == 0
    assert view.row_count == 0
    assert serial(view, seed=1) == []
