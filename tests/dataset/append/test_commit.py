"""Large commits: several slices, one move of the head, and writers that come in between."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from tests.workspace.records import records
from trueline.chain.block import commit_record
from trueline.dataset.append import append as committing
from trueline.dataset.append import pieces
from trueline.dataset.append.pieces import IncomingPiece, PieceWriter, cut


@pytest.fixture(autouse=True)
def small_slices(monkeypatch):
    monkeypatch.setattr(pieces, "ROWS_OF_A_SLICE", 100)
    monkeypatch.setattr(committing, "ROWS_OF_A_SLICE", 100)
    monkeypatch.setattr(cut, "__defaults__", (100,))


@pytest.fixture
def ds(ws):
    return ws.create("x")


def numbers(count, first=0):
    return pa.table({"x": range(first, first + count)})


def test_a_large_append_is_several_slices_and_one_commit(ds):
    commit = ds.append(numbers(250))
    assert (commit.rows, len(commit.blocks)) == (250, 4)
    parts = [commit_record(ds.chain.block(block)) for block in commit.blocks[1:]]
    assert [(part.part, part.parts) for part in parts] == [(1, 3), (2, 3), (3, 3)]
    assert records(ds)["x"].to_pylist() == list(range(250))
    assert records(ds)["offset"].to_pylist() == list(range(250))
    assert next(iter(ds.log())).rows == 250
    assert ds.verify().ok


def test_where_slices_end_depends_on_rows_not_on_pieces():
    table = numbers(250)
    whole = cut([IncomingPiece.of(table)], 100)
    split = cut(
        [
            IncomingPiece.of(table.slice(0, 30)),
            IncomingPiece.of(table.slice(30, 150)),
            IncomingPiece.of(table.slice(180)),
        ],
        100,
    )
    assert [sum(part.rows for part in parts) for parts in whole] == [100, 100, 50]
    assert [sum(part.rows for part in parts) for parts in split] == [100, 100, 50]


def test_a_piece_in_scratch_is_read_by_row_numbers(ws, monkeypatch):
    monkeypatch.setattr(pieces, "ROWS_OF_A_BATCH", 7)
    store = ws.create("y").chain.store
    with store.scratch() as scratch:
        writer = PieceWriter(scratch, "p", numbers(1).schema)
        for start in range(0, 100, 9):
            writer.write(numbers(min(9, 100 - start), start))
        piece = writer.finish()
        assert piece.rows == 100
        for start, stop in ((0, 100), (5, 6), (6, 8), (13, 21), (99, 100), (50, 50)):
            got = [row for table in piece.read(start, stop) for row in table["x"].to_pylist()]
            assert got == list(range(start, stop))


def test_a_piece_of_large_rows_in_scratch_is_read_by_row_numbers_too(ws, monkeypatch):
    monkeypatch.setattr(pieces, "ROWS_OF_A_BATCH", 7)
    monkeypatch.setattr(pieces, "BYTES_OF_A_BATCH", 1000)
    rows = pa.table({"x": range(60), "text": ["x" * (n * n % 700) for n in range(60)]})
    with ws.create("y").chain.store.scratch() as scratch:
        writer = PieceWriter(scratch, "p", rows.schema)
        for start in range(0, 60, 11):
            writer.write(rows.slice(start, 11))
            assert sum(table.nbytes for table in writer._waiting) <= 1000
        piece = writer.finish()
        assert len(piece.ends) > 60 // 7 + 2
        for start, stop in ((0, 60), (5, 6), (6, 8), (13, 21), (59, 60), (50, 50)):
            got = list(piece.read(start, stop))
            assert pa.concat_tables([rows.slice(0, 0), *got]).equals(rows.slice(start, stop - start))
            assert all(table.num_rows < 2 or table.nbytes <= 1100 for table in got)


def test_a_commit_of_many_slices_is_written_again_only_once_when_others_come_in_between(ds, ws, monkeypatch):
    ds.append(numbers(1))
    prepared = []
    prepare = committing.prepare

    def counted(chain, tail, order, *rest):
        made = prepare(chain, tail, order, *rest)
        if order.incoming.rows > 100:
            prepared.append(tail.head)
        return made

    import trueline as tl

    with tl.open(ws.location) as other:
        small = other["x"]
        done = threading.Event()

        def prepare_and_interrupt(chain, tail, order, *rest):
            made = counted(chain, tail, order, *rest)
            if order.incoming.rows > 100 and not done.is_set():
                done.set()
                small.append(numbers(2, 1000))
            return made

        monkeypatch.setattr(committing, "prepare", prepare_and_interrupt)
        commit = ds.append(numbers(250, 2000))
    assert len(prepared) == 2
    assert commit.offsets == range(3, 253)
    assert records(ds)["x"].to_pylist() == [0, 1000, 1001, *range(2000, 2250)]
    assert ds.verify().ok


def test_late_rows_are_counted_against_the_watermark_before_their_commit(ws):
    ds = ws.create("t", event_time="at")

    def at(*days):
        return pa.table({"at": pa.array([f"2026-01-{day:02}" for day in days]).cast(pa.date32())})

    assert ds.append(at(1, 5)).late == 0
    assert ds.append(at(3, 9, 4)).late == 2
    assert str(ds.info.watermark) == "2026-01-09T00:00:00Z"


def test_rows_typed_before_another_writer_added_a_column_are_stored_with_it_missing(ds, ws, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x\n1\n2\n")
    ds.append(numbers(1))
    import trueline as tl
    from trueline.dataset.append import read_files as files

    read = files.read_file

    def slow(task):
        with tl.open(ws.location) as other:
            other["x"].append(pa.table({"x": [7], "y": ["new"]}), new_columns="add")
        return read(task)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "read_file", slow)
        ds.append(path)
    assert ds.schema.names == ("x", "y")
    assert records(ds)["x"].to_pylist() == [0, 7, 1, 2]
