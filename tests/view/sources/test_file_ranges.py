"""One large file, several members: the same rows, ids and order, whatever the format."""

from __future__ import annotations

import gzip
import json
import pickle
import threading

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.examples import examples
from tests.readers.reading import everything
from trueline import readers
from trueline.errors import BrokenFile
from trueline.view import consolidate
from trueline.view.execute.dispatch import pieces
from trueline.view.plan.node import Want

ROWS = [{"n": n, "s": f'te"xt, {n}\nmore' if n % 7 == 0 else f"t{n}"} for n in range(500)]


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


def csv_text(rows):
    return "n,s\n" + "".join(f"{row['n'] if row['n'] % 50 else 'bad'},{quoted(row['s'])}\n" for row in rows)


FORMS = {
    "a.csv": csv_text(ROWS),
    "bom.csv": "\ufeff" + csv_text(ROWS),
    "lines.json": "\n".join(json.dumps(row) for row in ROWS),
    "array.json": json.dumps(ROWS),
    "pretty.json": json.dumps(ROWS, indent=1),
    "beside.json": "".join(json.dumps(row) for row in ROWS),
    "a.txt": "".join(f"line {n}\r\n" for n in range(500)),
}


def view_of(folder, name, **options):
    path = folder / name
    path.write_text(FORMS[name], newline="")
    read = {"csv": tl.View.read_csv, "json": tl.View.read_json, "txt": tl.View.read_text}[name.split(".")[1]]
    schema = None if name == "a.txt" else pa.schema({"n": pa.int64(), "s": pa.string()})
    return read(path, schema=schema, block_bytes=256, **options)


def rows_of(cursor):
    found = []
    with cursor:
        getters = [cursor.getter(column) for column in cursor.schema]
        while cursor.move_next():
            found.append((cursor.id.hex, *(get() for get in getters)))
    return found


@pytest.mark.parametrize("name", sorted(FORMS))
@pytest.mark.parametrize("n", [2, 3, 8, 200])
def test_the_members_of_one_file_give_its_rows_ids_and_order(tmp_path, name, n):
    view = view_of(tmp_path, name)
    expected = rows_of(view.cursor())
    assert len(expected) == 500
    assert rows_of(consolidate(view.cursor_set(n=n))) == expected
    members = [rows_of(member) for member in view_of(tmp_path, name).cursor_set(n=n)]
    assert len(members) == min(n, len(members)) > 1
    assert sum(1 for rows in members if rows) >= min(n, 8), "members without rows are of no use"
    assert sorted(row for rows in members for row in rows) == sorted(expected)


@pytest.mark.parametrize("name", ["a.csv", "array.json"])
def test_members_may_be_read_by_threads_and_the_file_is_passed_over_once(tmp_path, name, monkeypatch):
    view = view_of(tmp_path, name)
    kind = readers.CsvReader if name == "a.csv" else readers.JsonReader
    passes, counted = [], kind.counted
    monkeypatch.setattr(kind, "counted", lambda *args, **how: passes.append(1) or counted(*args, **how))
    members, found = view.cursor_set(n=4), {}
    assert passes == [], "opening reads nothing"

    def read(number):
        found[number] = rows_of(members[number])

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(map(len, found.values())) == 500
    assert passes == [1]
    rows_of(consolidate(view.cursor_set(n=3)))
    assert passes == [1]


def test_bad_cells_are_counted_once_however_the_file_is_read(tmp_path):
    view = view_of(tmp_path, "a.csv")
    rows_of(consolidate(view.cursor_set(n=4)))
    assert view.bad == {"n": 10}
    rows_of(consolidate(view.cursor_set(n=3)))
    assert view.bad == {"n": 10}
    view.to_arrow()
    assert view.bad == {"n": 10}


@pytest.mark.parametrize("name", ["a.csv", "array.json"])
def test_caches_keep_ids(tmp_path, name):
    view = view_of(tmp_path, name)
    expected = rows_of(view.cursor())
    cached = view.cache()
    for _ in range(2):
        assert rows_of(consolidate(cached.cursor_set(n=4))) == expected
    assert len([rows for rows in map(rows_of, cached.cursor_set(n=4)) if rows]) == 4


def test_several_files_count_rows_over_all_of_them(tmp_path):
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_text(FORMS["a.csv"])
    view = tl.View.read_csv(tmp_path / "*.csv", block_bytes=256)
    assert rows_of(consolidate(view.cursor_set(n=8))) == rows_of(view.cursor())


def test_filters_and_other_columns_change_nothing(tmp_path):
    view = view_of(tmp_path, "a.csv").filter("n > 100").select("s")
    assert rows_of(consolidate(view.cursor_set(n=4))) == rows_of(view.cursor())


def test_a_file_that_cannot_be_read_from_the_middle_is_one_member(tmp_path):
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(FORMS["array.json"].encode()))
    view = tl.View.read_json(tmp_path / "a.json.gz", block_bytes=64)
    members = [rows_of(member) for member in view.cursor_set(n=4)]
    assert [len(rows) for rows in members if rows] == [500]
    assert rows_of(consolidate(view.cursor_set(n=4))) == rows_of(view.cursor())


def test_pieces_travel_with_where_they_begin(tmp_path):
    view = view_of(tmp_path, "a.csv")
    sent = pickle.loads(pickle.dumps(list(pieces(view._node, Want((0,), ids=True, parts=4)))))
    assert len(sent) > 4
    assert sum(chunk.rows for piece in sent for chunk in piece.chunks()) == 500


def test_a_broken_file_is_the_same_error_for_every_member(tmp_path):
    (tmp_path / "a.csv").write_text(FORMS["a.csv"] + '1,"never closed\n')
    view = tl.View.read_csv(tmp_path / "a.csv", block_bytes=256, schema=pa.schema({"n": pa.int64()}))
    for member in view.cursor_set(n=2):
        with pytest.raises(BrokenFile, match="does not end"):
            rows_of(member)
    (tmp_path / "a.json").write_text("<p>\n" * 500)
    view = tl.View.read_json(tmp_path / "a.json", block_bytes=256, schema=pa.schema({"n": pa.int64()}))
    with pytest.raises(BrokenFile, match="is not JSON"):
        rows_of(consolidate(view.cursor_set(n=2)))


@settings(max_examples=examples(66), deadline=None)
@given(
    st.lists(st.sampled_from(["1", "2,x", "", '"a', 'b"', "3,y,z", ",", '"'])),
    st.booleans(),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_rows_are_counted_as_they_are_read(lines, wide, end):
    data = end.join(["a,b" if wide else "a", *lines]).encode()
    reader, schema = readers.csv(block_bytes=3), pa.schema({"a": pa.string()})
    file = readers.Source.memory(data)
    try:
        rows = everything(reader, file, schema)["rows"]
    except BrokenFile:
        return
    parts = reader.counted(file, schema, count=99)
    assert sum(everything(reader, file, schema, part=part)["rows"] for part in parts) == rows
    ends = [part.row for part in parts[1:]] + [rows]
    for part, stop in zip(parts, ends, strict=True):
        assert everything(reader, file, schema, part=part)["rows"] == stop - (part.row or 0)


@pytest.mark.parametrize("name", sorted(FORMS))
def test_counted_parts_say_their_first_row(name):
    reader = {"csv": readers.csv, "json": readers.json, "txt": readers.text}[name.split(".")[1]](
        block_bytes=99
    )
    schema = pa.schema({"text": pa.string()} if name == "a.txt" else {"n": pa.int64()})
    file = readers.Source.memory(FORMS[name].encode())
    row = 0
    parts = reader.counted(file, schema, count=7)
    assert 2 <= len(parts) <= 7
    for part in parts:
        assert part.row == row
        row += everything(reader, file, schema, part=part)["rows"]
    assert row == 500
