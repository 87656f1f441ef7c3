"""A large file is read in parts side by side, and the commit is as if it had been read in one go."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.workspace.records import records
from trueline.chain.block import commit_record
from trueline.dataset.append import read_files as files
from trueline.errors import BrokenFile
from trueline.identity import logical_hash
from trueline.readers import CsvReader, ParquetReader

SCHEMA = pa.schema(
    {"event_time": pa.timestamp("us", "UTC"), "id": pa.int64(), "note": pa.string(), "price": pa.float64()}
)
NASTY = "".join(
    f'2026-01-01 00:{n % 60:02}:00.{n:06}Z,{n},"note ""{n}""\nin two lines",{n}.5\n'
    f"2026-01-02 00:00:00Z,x{n},short\n"
    f"not a time,{n},plain,{n},too many\n\n"
    f"2025-12-31 23:59:59.9999Z,,,1e400\n"
    for n in range(120)
)
HEADER = "event_time,id,note,price\n"


@pytest.fixture(params=[700])
def small_parts(request, monkeypatch):
    """Cut files every few hundred bytes; returns how many parts each read had."""
    cut: list[int] = []
    for kind in (CsvReader, ParquetReader):
        whole = kind.parts

        def parts(reader, source, whole=whole):
            found = whole(reader, source, size=request.param)
            cut.append(len(found))
            return found

        monkeypatch.setattr(kind, "parts", parts)
    monkeypatch.setattr("trueline.readers.parquet_reader.PART_ROWS", 20)
    return cut


def taken_in(ws, name, path, schema=SCHEMA, **options):
    """All that a commit says of a file's rows, apart from when it was made."""
    dataset = ws.create(name, schema=schema, event_time="event_time")
    commit = dataset.append(path, max_bad=1_000, **options)
    assert dataset.verify().ok
    notes = dict(commit_record(dataset.chain.block(commit.block)).notes)
    objects = notes.pop("objects", None)
    rows = records(dataset).drop_columns(["system_time"])
    cells = [] if objects is None else commit.bad_cells().to_arrow().to_pylist()
    assert commit.rounded == notes.get("rounded", 0)
    return rows, logical_hash(rows), notes, cells, objects, dataset.info.watermark


def test_parts_of_a_csv_file_make_the_commit_that_one_read_makes(ws, tmp_path, small_parts, monkeypatch):
    path = tmp_path / "nasty.csv"
    path.write_text(HEADER + NASTY)
    reader = CsvReader(block_bytes=256)
    parts = taken_in(ws, "parts", path, reader=reader)
    assert small_parts == [pytest.approx(path.stat().st_size // 700, abs=2)]
    with monkeypatch.context() as patch:
        patch.setattr(files.FileTask, "parts", lambda task, cut: [task])
        assert taken_in(ws, "one", path, reader=reader) == parts
    assert parts[0].num_rows == 480
    assert parts[2]["rounded"] == 120 + 119
    assert {cell["column"] for cell in parts[3]} == {"event_time", "id", "price", "(extra)"}


def test_a_file_that_was_cut_within_quotes_is_read_again_as_one(ws, tmp_path, small_parts, monkeypatch):
    read, tasks = files.read_file, []

    def noted(task):
        tasks.append(task)
        return read(task)

    monkeypatch.setattr(files, "read_file", noted)
    row = "2026-01-01 00:00:00Z,1,a,x\n"
    path = tmp_path / "inner.csv"
    path.write_text(HEADER + row * 60 + f'2026-01-01 00:00:00Z,1,"{row * 100}",2\n' + row * 60)
    rows, *_, cells, _, _ = taken_in(ws, "rows", path, reader=CsvReader(block_bytes=64))
    assert rows.num_rows == 121
    assert rows["note"][60].as_py() == row * 100
    assert [cell["line"] for cell in cells][58:62] == [60, 61, 163, 164]
    [parts] = small_parts
    assert parts > 5
    assert len(tasks) == parts + 1


@pytest.mark.parametrize("small_parts", [50_000], indirect=True)
def test_a_broken_file_is_told_by_the_line_of_the_file(ws, tmp_path, small_parts):
    path, sampled = tmp_path / "broken.csv", 10_000
    path.write_text(HEADER + "2026-01-01 00:00:00Z,1,a,1\n" * 2 * sampled + '2026-01-01 00:00:00Z,1,"a,1\n')
    with pytest.raises(BrokenFile) as told:
        ws.create("rows", schema=SCHEMA).append(path, reader=CsvReader(block_bytes=1_000))
    assert told.value.line == 2 * sampled + 2
    assert small_parts[0] > 5


@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["declared", "found"])
def test_parts_of_a_parquet_file_make_the_commit_that_one_read_makes(
    ws, tmp_path, small_parts, monkeypatch, schema
):
    path = tmp_path / "rows.parquet"
    times = pa.array([1_767_225_600_000_000 + n for n in range(100)], pa.timestamp("us", "UTC"))
    price = pa.array([str(n) if n % 3 else "x" for n in range(100)])
    table = pa.table({"event_time": times, "id": range(100), "note": ["n"] * 100, "price": price})
    pq.write_table(table, path, row_group_size=10)
    parts = taken_in(ws, "parts", path, schema)
    assert small_parts == [10]
    with monkeypatch.context() as patch:
        patch.setattr(files.FileTask, "parts", lambda task, cut: [task])
        assert taken_in(ws, "one", path, schema) == parts
    assert [cell["row"] for cell in parts[3]] == (list(range(0, 100, 3)) if schema else [])
    assert parts[2]["rounded"] == 99


@pytest.mark.parametrize("small_parts", [50_000], indirect=True)
def test_of_several_broken_files_the_first_is_named_even_if_it_was_cut(ws, tmp_path, small_parts):
    rows = "2026-01-01 00:00:00Z,1,a,1\n" * 20_000
    for name, text in (("a", rows), ("b", rows + '2026-01-01 00:00:00Z,1,"a,1\n'), ("c", '"')):
        (tmp_path / f"{name}.csv").write_text(HEADER + text)
    with pytest.raises(BrokenFile) as caught:
        ws.create("rows", schema=SCHEMA).append(str(tmp_path / "*.csv"), reader=CsvReader(block_bytes=1_000))
    assert caught.value.path == str(tmp_path / "b.csv")
    assert max(small_parts) > 5
