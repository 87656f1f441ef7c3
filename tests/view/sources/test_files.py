"""Files as views: columns that are read, cells that are bad, rows that are counted, files that change."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from trueline import console, readers
from trueline.errors import BrokenFile, InputError, SchemaError
from trueline.readers import CsvReader
from trueline.view import execute
from trueline.view.plan.node import Want

SCHEMA = pa.schema({"n": pa.int64(), "city": pa.string(), "day": pa.date32()})


def write_csv(folder, files=3, rows=5):
    for number in range(files):
        lines = [f"{number * rows + row},city {row},2026-11-{row + 1:02}" for row in range(rows)]
        (folder / f"part-{number}.csv").write_text("n,city,day\n" + "\n".join(lines) + "\n")
    return str(folder / "*.csv")


@pytest.fixture
def paths(tmp_path):
    return write_csv(tmp_path)


def ids(view, columns=None, n=0):
    cursors = view.cursor_set(columns, n) if n else [view.cursor(columns)]
    found = {}
    for cursor in cursors:
        with cursor:
            while cursor.move_next():
                found[cursor.id.low] = cursor.batch
    return found


def test_files_are_read_in_the_order_given_and_globs_by_name(paths, tmp_path):
    assert tl.View.read_csv(paths).to_arrow()["n"].to_pylist() == list(range(15))
    given = [tmp_path / "part-2.csv", tmp_path / "part-0.csv"]
    assert tl.View.read_csv(given).to_arrow()["n"].to_pylist() == [*range(10, 15), *range(5)]


@pytest.mark.contract("view:C73")
def test_a_row_is_known_by_its_number_over_all_files_whoever_reads_it(paths):
    view = tl.View.read_csv(paths)
    assert list(ids(view)) == list(range(15))
    assert sorted(ids(tl.View.read_csv(paths), "n", n=3)) == list(range(15))
    assert list(ids(view.filter("n % 2 = 0"), ())) == list(range(0, 15, 2))


@pytest.mark.contract("view:C29")
def test_rows_are_counted_once_they_were_read(paths):
    view = tl.View.read_csv(paths)
    assert view.row_count is None
    assert view.count() == 15
    assert view.row_count == 15


@pytest.mark.contract("view:C35")
def test_only_cells_of_the_columns_asked_for_are_typed(paths, monkeypatch):
    asked = []
    read = CsvReader.read

    def watched(self, source, schema, *, columns=None, **options):
        asked.append(tuple(columns))
        return read(self, source, schema, columns=columns, **options)

    monkeypatch.setattr(CsvReader, "read", watched)
    view = tl.View.read_csv(paths, schema=SCHEMA)
    assert asked == []
    view.select("city").to_arrow()
    assert set(asked) == {("city",)}


@pytest.mark.contract("view:C34")
@pytest.mark.contract("view:C37")
def test_a_bad_cell_is_missing_counted_and_costs_no_row(tmp_path):
    (tmp_path / "x.csv").write_text("n,city,day\n1,a,2026-11-01\nmany,b,never\n3\n4,d,2026-11-04,extra\n")
    for columns in (["n"], ["city"], ["n", "day"], []):
        view = tl.View.read_csv(tmp_path / "x.csv", schema=SCHEMA)
        assert sum(batch.num_rows for batch in view.batches(columns)) == 4
    with console.use(console.CapturedConsole()) as said:
        view = tl.View.read_csv(tmp_path / "x.csv", schema=SCHEMA)
        assert view.to_arrow()["n"].to_pylist() == [1, None, 3, 4]
        view.to_arrow()
    assert view.bad["n"] == 1
    assert view.bad["day"] == 2  # the short row lacks it
    assert str(said.text).count("cells of 'n'") == 1


def test_a_file_that_changed_is_an_error(paths, tmp_path):
    view = tl.View.read_csv(paths)
    (tmp_path / "part-1.csv").write_text("n,city,day\n1,a,2026-11-01\n")
    with pytest.raises(InputError, match="changed since it was listed") as changed:
        view.to_arrow()
    assert changed.value.code == "FileChanged"


def test_no_files_have_the_columns_that_are_declared(tmp_path):
    assert tl.View.read_csv([], schema=SCHEMA).to_arrow().schema.names == SCHEMA.names
    with pytest.raises(SchemaError, match="no files"):
        tl.View.read_csv([])
    with pytest.raises(InputError, match="no file matches"):
        tl.View.read_csv(str(tmp_path / "*.csv"))


def test_pieces_of_files_can_be_read_elsewhere(paths):
    view = tl.View.read_csv(paths)
    pieces = [pickle.loads(pickle.dumps(piece)) for piece in execute.pieces(view.node, Want((0,), ids=True))]
    assert [piece.rows for piece in pieces] == [None] * 3
    numbers = [chunk.ids.low.tolist() for piece in pieces for chunk in piece.chunks()]
    assert [each for some in numbers for each in some] == list(range(15))


def test_text_and_json_lines_are_views_too(tmp_path):
    (tmp_path / "x.txt").write_text("one\ntwo\n")
    assert tl.View.read_text(tmp_path / "x.txt").count() == 2
    (tmp_path / "x.jsonl").write_text('{"x": 1}\n{"x": null}\n')
    assert tl.View.read_json(tmp_path / "x.jsonl").to_arrow().to_pydict() == {"x": [1, None]}


# --- Parquet ----------------------------------------------------------------------------------


@pytest.fixture
def parquet(tmp_path):
    for number in range(2):
        table = pa.table(
            {"n": range(number * 100, number * 100 + 100), "text": [f"{n:03}" for n in range(100)]}
        )
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=30)
    return str(tmp_path / "*.parquet")


def test_groups_of_rows_are_pieces_whose_rows_are_known(parquet):
    view = tl.View.read_parquet(parquet)
    assert view.row_count == 200
    assert [piece.rows for piece in execute.pieces(view.node, Want((0,)))] == [30, 30, 30, 10] * 2
    assert view.to_arrow()["n"].to_pylist() == list(range(200))
    assert sorted(ids(view, "n", n=4)) == list(range(200))
    assert len(set(ids(view, "n", n=4).values())) == 8


@pytest.mark.contract("view:C36")
def test_groups_that_a_filter_rules_out_are_not_opened_and_ids_stay(parquet):
    view = tl.View.read_parquet(parquet).filter("n >= 150")
    pieces = execute.pieces(view.node, Want((0,), ids=True))
    assert len(pieces) == 3
    assert list(ids(view)) == list(range(150, 200))


def test_a_limit_reads_the_groups_it_needs(parquet):
    view = tl.View.read_parquet(parquet).skip(35).limit(10)
    assert len(execute.pieces(view.node, Want((0,)))) == 1
    assert view.to_arrow()["n"].to_pylist() == list(range(35, 45))


def test_other_columns_in_another_file_are_refused_with_the_difference(parquet, tmp_path):
    pq.write_table(pa.table({"n": [1.5], "more": [1]}), tmp_path / "2.parquet")
    with pytest.raises(SchemaError, match="text is missing; more is new; n is double, was int64"):
        tl.View.read_parquet(parquet)


def test_what_is_no_parquet_is_refused_when_it_is_viewed(tmp_path):
    (tmp_path / "x.parquet").write_bytes(os.urandom(100))
    with pytest.raises(BrokenFile, match=r"x\.parquet"):
        tl.View.read_parquet(tmp_path / "x.parquet")


def test_a_torn_group_of_rows_is_an_error_when_it_is_read(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"n": range(1000)}), path, compression="none", use_dictionary=False)
    raw = bytearray(path.read_bytes())
    raw[4:40] = bytes(36)
    stat = path.stat()
    path.write_bytes(raw)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(BrokenFile):
        tl.View.read_parquet(path).to_arrow()


def bytes_read():
    """How many bytes this process has read so far, from wherever."""
    return int(dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())["rchar"])


@pytest.mark.contract("view:C35")
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux counts the bytes of a process")
def test_the_bytes_of_other_columns_are_not_read(tmp_path):
    path, random = tmp_path / "wide.parquet", np.random.default_rng(1)
    table = pa.table({f"c{n}": random.random(4_000) for n in range(50)})
    pq.write_table(table, path, row_group_size=1_000)
    view = tl.View.read_parquet(path)
    found = []
    for each in (view.select("c7"), view.with_columns(y="c3 + 1").filter("c4 < 2").select("y"), view):
        before = bytes_read()
        each.to_arrow()
        found.append((bytes_read() - before) / path.stat().st_size)
    one, two, everything = found
    assert one < 0.1
    assert two < 0.1
    assert everything > 0.9


def overwritten(path):
    """Write other bytes of the same length into the file itself."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(b"x" * size)
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize(
    ("read", "line"),
    [
        (tl.View.read_csv, "1,2\n"),
        (tl.View.read_json, '{"a": 1, "b": 2}\n'),
        (tl.View.read_text, "some text\n"),
    ],
)
def test_a_file_overwritten_while_it_is_read_never_gives_old_and_new_rows(tmp_path, read, line):
    path = tmp_path / "growing"
    path.write_text(("a,b\n" if line[0] == "1" else "") + line * 50_000)
    # More blocks than are read ahead.
    with read(path, block_bytes=1 << 10).cursor() as cursor:
        assert cursor.move_next()
        overwritten(path)
        with pytest.raises(InputError, match="growing changed") as changed:
            while cursor.move_next():
                pass
    assert changed.value.code == "FileChanged"


def test_a_file_overwritten_behind_its_last_block_is_refused_at_its_end(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a\n" + "1\n" * 50)
    reading = readers.csv().read(readers.Source.file(path), pa.schema({"a": pa.int64()}), batch_rows=1)
    next(reading)
    overwritten(path)
    with pytest.raises(InputError) as changed:
        list(reading)
    assert changed.value.code == "FileChanged"


def test_a_parquet_file_overwritten_while_it_is_read_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(5000)}), path, row_group_size=100)
    reading = readers.parquet().read(readers.Source.file(path), pa.schema({"a": pa.int64()}))
    next(reading)
    overwritten(path)
    with pytest.raises(InputError) as changed:
        list(reading)
    assert changed.value.code == "FileChanged"
