"""Files in: bad cells are counted, known files passed over, garbage refused, nothing half done."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.workspace.records import records
from trueline import readers
from trueline.chain import Folder
from trueline.chain.block import commit_record
from trueline.errors import BrokenFile, InputError, SchemaError

GOOD = "id,price,day\n1,9.5,2026-11-13\n2,7.25,2026-11-14\n"
BAD = "id,price,day\n3,ten,2026-11-15\n4,8,2026-02-30\n5,x,2026-11-16\n"


@pytest.fixture
def inbox(tmp_path):
    folder = tmp_path / "inbox"
    folder.mkdir()
    (folder / "a.csv").write_text(GOOD)
    (folder / "b.csv").write_text(BAD)
    return folder


@pytest.fixture
def ds(ws):
    return ws.create("sales")


@pytest.fixture
def typed(ws):
    """A dataset that knows its types, so that cells can be bad."""
    columns = [("id", pa.int64()), ("price", pa.float64()), ("day", pa.date32())]
    return ws.create("typed", schema=pa.schema(columns))


def test_a_file_becomes_rows_in_its_order(ds, inbox):
    commit = ds.append(inbox / "a.csv")
    assert (commit.rows, commit.bad, commit.skipped) == (2, {}, ())
    assert commit.files == (str(inbox / "a.csv"),)
    rows = records(ds).select(["offset", "id", "price"]).to_pylist()
    assert rows == [{"offset": 0, "id": 1, "price": 9.5}, {"offset": 1, "id": 2, "price": 7.25}]
    assert ds.verify().ok


def test_a_glob_takes_its_files_sorted_and_counts_bad_cells_by_column(typed, inbox):
    ds = typed
    commit = ds.append(str(inbox / "*.csv"), max_bad=3)
    assert commit.rows == 5
    assert commit.bad == {"price": 2, "day": 1}
    assert records(ds)["price"].to_pylist() == [9.5, 7.25, None, 8.0, None]
    cells = ds.commit(commit.block).bad_cells().to_arrow().to_pylist()
    assert commit.bad_cells().to_arrow().to_pylist() == cells
    assert [(cell["line"], cell["column"], cell["text"]) for cell in cells] == [
        (2, "price", "ten"),
        (3, "day", "2026-02-30"),
        (4, "price", "x"),
    ]
    assert {cell["file"] for cell in cells} == {str(inbox / "b.csv")}


def test_the_record_of_a_commit_says_which_offsets_a_file_became(ds, inbox):
    commit = ds.append([inbox / "b.csv", inbox / "a.csv"])
    files = commit_record(ds.chain.block(commit.block)).notes["files"]
    assert [(file["offsets"], file["rows"]) for file in files] == [([0, 2], 3), ([3, 4], 2)]


def test_a_file_whose_bytes_are_known_is_passed_over(ds, inbox):
    ds.append(inbox / "a.csv")
    head = ds.head
    again = ds.append(inbox / "a.csv")
    assert (again.rows, again.skipped, ds.head) == (0, (str(inbox / "a.csv"),), head)
    (inbox / "c.csv").write_text(GOOD)
    both = ds.append(str(inbox / "*.csv"), max_bad=3)
    assert both.rows == 3
    assert both.skipped == (str(inbox / "a.csv"), str(inbox / "c.csv"))


def test_the_same_bytes_twice_in_one_append_count_once(ds, inbox):
    (inbox / "copy.csv").write_text(GOOD)
    assert ds.append([inbox / "a.csv", inbox / "copy.csv"]).rows == 2


def test_a_known_name_with_other_bytes_is_refused_unless_sent_again_on_purpose(ds, inbox):
    ds.append(inbox / "a.csv")
    (inbox / "a.csv").write_text(GOOD + "9,1,2026-12-01\n")
    with pytest.raises(InputError) as refused:
        ds.append(inbox / "a.csv")
    assert refused.value.code == "FileChanged"
    assert ds.append(inbox / "a.csv", resend=True).rows == 3


def test_what_looks_like_a_wrong_separator_is_refused(ds, inbox):
    ds.append(inbox / "a.csv")
    (inbox / "wrong.csv").write_text("id;price;day\n" + "6;1;2026-01-01\n" * 50)
    head = ds.head
    with pytest.raises(InputError) as refused:
        ds.append(inbox / "wrong.csv")
    assert ds.head == head
    assert "separator" in refused.value.remedy


def test_a_column_that_is_mostly_unreadable_is_refused(typed, inbox):
    (inbox / "garbage.csv").write_text("id,price,day\n" + "1,n.v.,2026-01-01\n" * 50)
    with pytest.raises(InputError) as refused:
        typed.append(inbox / "garbage.csv")
    assert refused.value.code == "TooManyBadCells"
    assert typed.append(inbox / "garbage.csv", max_bad=50).bad == {"price": 50}


@pytest.mark.parametrize(("max_bad", "fine"), [(0, False), (2, False), (3, True), (0.5, False), (0.7, True)])
def test_more_bad_cells_than_allowed_refuse_the_whole(ds, inbox, max_bad, fine):
    ds.append(inbox / "a.csv")
    if fine:
        assert ds.append(inbox / "b.csv", max_bad=max_bad).rows == 3
    else:
        with pytest.raises(InputError) as refused:
            ds.append(inbox / "b.csv", max_bad=max_bad)
        assert refused.value.code == "TooManyBadCells"
        assert ds.info.rows == 2


def test_a_broken_file_refuses_all_before_anything_is_committed(ds, inbox):
    whole = gzip.compress(GOOD.encode() * 1000)
    (inbox / "c.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BrokenFile, match=r"c\.csv\.gz"):
        ds.append([inbox / "a.csv", inbox / "c.csv.gz"])
    assert ds.info.rows == 0
    assert not list(ds.chain.store.list(Folder.DATA))


def test_other_formats_and_a_reader_of_ones_own(ds, inbox):
    pq.write_table(pa.table({"id": [1, 2], "price": [1.5, 2.5]}), inbox / "p.parquet")
    (inbox / "l.jsonl").write_text('{"id": 3, "price": 3.5}\n{"id": "x"}\n')
    (inbox / "semi.dat").write_text("id;price\n4;4.5\n")
    ds.append(inbox / "p.parquet")
    lines = ds.append(inbox / "l.jsonl")
    ds.append(inbox / "semi.dat", readers.csv(separator=";"))
    assert records(ds)["id"].to_pylist() == [1, 2, 3, None, 4]
    assert lines.bad == {"id": 1}
    with pytest.raises(InputError, match=r"\.dat"):
        ds.append(inbox / "semi.dat")


def test_a_new_optional_column_extends_the_schema_and_a_changed_type_does_not(ds, inbox):
    ds.append(inbox / "a.csv")
    (inbox / "more.csv").write_text("id,price,day,city\n7,1,2026-01-01,Bern\n")
    ds.append(inbox / "more.csv", new_columns="add")
    assert ds.schema.names == ("id", "price", "day", "city")
    assert records(ds)["id"].to_pylist() == [1, 2, 7]
    pq.write_table(pa.table({"id": ["text"], "price": [1.0]}), inbox / "p.parquet")
    commit = ds.append(inbox / "p.parquet", max_bad=1.0)
    assert commit.bad == {"id": 1}
    with pytest.raises(SchemaError):
        ds.append(pa.table({"id": ["text"]}))


def test_an_idempotency_key_covers_files(ds, inbox):
    first = ds.append(inbox / "a.csv", idempotency_key="k")
    assert ds.append(inbox / "a.csv", idempotency_key="other").rows == 0
    assert ds.info.rows == 2
    assert first.idempotency_key == "k"


def test_the_list_of_bad_cells_is_kept_with_the_dataset(typed, inbox, ws):
    commit = typed.append(inbox / "b.csv", max_bad=3)
    name = commit_record(typed.chain.block(commit.block)).notes["objects"]["bad_cells"]["hash"]
    ws.gc(older_than=0)
    assert typed.chain.store.size(Folder.DATA, name) is not None
    assert typed.verify().objects == 2


@pytest.mark.parametrize("event_time", [None, "event_time"])
def test_event_times_in_files_are_cut_to_milliseconds_and_counted_and_bad_ones_are_missing(
    ws, tmp_path, event_time
):
    schema = pa.schema({"event_time": pa.timestamp("us", "UTC"), "id": pa.int64()})
    ds = ws.create("times", schema=schema, event_time=event_time)
    path = tmp_path / "times.csv"
    path.write_text("event_time,id\n2026-01-01 00:00:00.123456Z,1\nsoon,2\n2026-01-01 00:00:01Z,3\n")
    commit = ds.append(path)
    assert (commit.rounded, commit.bad) == (1, {"event_time": 1})
    assert [time and time.microsecond for time in records(ds)["event_time"].to_pylist()] == [123_000, None, 0]
