"""What a declared source does with a file that cannot be read: it stops, or leaves it out and says so."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

import trueline as tl
from trueline.dataset.append import files
from trueline.errors import DatasetExists, InputError, PullError
from trueline.workspace.pull import bad_files


@pytest.fixture
def looked_at(monkeypatch):
    """The files that were read to append them, and those whose bytes were hashed to compare them."""
    read, hashed = [], []
    take, compare = files.take_files, bad_files.hash_file

    def taking(chain, tail, request, *rest):
        read.append([source.path.rsplit("/")[-1] for source in request.data])
        return take(chain, tail, request, *rest)

    def hashing(source):
        hashed.append(source.path.rsplit("/")[-1])
        return compare(source)

    monkeypatch.setattr(files, "take_files", taking)
    monkeypatch.setattr(bad_files, "hash_file", hashing)
    return read, hashed


def write(inbox, name, text):
    (inbox / name).write_text(text)


GOOD = '{"id": 1, "city": "Bern"}\n'
BAD = "<html>\n"


def tried(read):
    """The bad ones of the files that were read."""
    return {name for names in read for name in names} & {"b.json", "d.json"}


def ids(ds):
    return sorted(ds.view().to_arrow()["id"].to_pylist())


def test_a_bad_file_stops_the_pull_by_default_and_is_named(ws, inbox):
    write(inbox, "a.json", GOOD)
    write(inbox, "b.json", BAD)
    ds = ws.create("sales", source=tl.source(inbox / "*.json"))
    with pytest.raises(PullError) as failed:
        ws.pull()
    assert failed.value.report.errors["sales"].path.endswith("b.json")
    assert ds.info.rows == 0


def test_a_bad_file_is_left_out_reported_and_tried_again_when_its_bytes_change(ws, inbox, looked_at):
    read, hashed = looked_at
    for name, text in (
        ("a.json", GOOD),
        ("b.json", BAD),
        ("c.json", GOOD.replace("1", "3")),
        ("d.json", "[1]"),
    ):
        write(inbox, name, text)
        os.utime(inbox / name, (1, 1))
    ds = ws.create("sales", source=tl.source(inbox / "*.json", on_bad_file="skip"))
    pulled = ws.pull()["sales"]
    assert ids(ds) == [1, 3]
    assert [path.rsplit("/")[-1] for path in pulled.bad_files] == ["b.json", "d.json"]
    assert all("is not JSON" in reason for reason in pulled.bad_files.values())
    assert "2 bad files left out" in pulled.told
    assert pulled.to_dict()["bad_files"] == pulled.bad_files
    assert len(pulled.commits) == 1

    read.clear()
    again = ws.pull()["sales"]
    assert again.bad_files == pulled.bad_files, "they are still bad, and still reported"
    assert (again.rows, tried(read)) == (0, set()), "and not read again"

    os.utime(inbox / "b.json", (2, 2))
    assert ws.pull()["sales"].bad_files == pulled.bad_files
    assert "b.json" in hashed
    assert tried(read) == set(), "the same bytes at another time are the same bad file"

    write(inbox, "b.json", GOOD.replace("1", "2"))
    fixed = ws.pull()["sales"]
    assert list(fixed.bad_files) == [path for path in pulled.bad_files if path.endswith("d.json")]
    assert ids(ds) == [1, 2, 3]


def test_resend_tries_bad_files_again(ws, inbox, looked_at):
    write(inbox, "b.json", BAD)
    ws.create("sales", source=tl.source(inbox / "*.json", on_bad_file="skip"))
    ws.pull()
    looked_at[0].clear()
    assert ws.pull(resend=True)["sales"].bad_files
    assert looked_at[0] == [["b.json"]]


def test_what_is_remembered_may_be_lost_or_damaged(ws, inbox):
    write(inbox, "b.json", BAD)
    ws.create("sales", source=tl.source(inbox / "*.json", on_bad_file="skip"))
    before = ws.pull()["sales"].bad_files
    [kept] = (ws._location.private / "bad").iterdir()
    for damage in ("", "{}", '{"version": 1, "terms": "", "files": {"b.json": 3}}'):
        kept.write_text(damage)
        assert ws.pull()["sales"].bad_files == before


@pytest.mark.parametrize(
    ("text", "reader", "max_bad"),
    [
        ("id,city\n" + "x,Bern\n" * 20, tl.csv(), None),
        ("id,city\nx,Bern\n", tl.csv(), 0),
        ('id,city\n1,"Bern\n', tl.csv(), None),
        ("id,city\n1," + "x" * 5000 + "\n", tl.csv(max_record_bytes=1000), None),
    ],
)
def test_every_way_to_be_bad_names_the_file(ws, inbox, text, reader, max_bad):
    write(inbox, "a.csv", "id,city\n" + "1,Bern\n" * 20)
    write(inbox, "b.csv", text)
    source = tl.source(inbox / "*.csv", reader, max_bad=max_bad, on_bad_file="skip")
    ds = ws.create("sales", schema=pa.schema({"id": pa.int64(), "city": pa.string()}), source=source)
    pulled = ws.pull()["sales"]
    assert [path.rsplit("/")[-1] for path in pulled.bad_files] == ["b.csv"]
    assert "b.csv" in next(iter(pulled.bad_files.values()))
    assert ds.info.rows == 20


def test_a_row_without_a_key_names_its_file(ws, inbox):
    write(inbox, "a.csv", "id,city\n1,Bern\n2,Basel\n")
    write(inbox, "b.csv", "id,city\n3,Bern\n,Genf\n")
    ds = ws.create("cities", merge=tl.merge.upsert("id"))
    with pytest.raises(
        InputError, match=r"b\.csv: 1 rows have a null in the key \(id\): rows \[1\]"
    ) as refused:
        ds.append([inbox / "a.csv", inbox / "b.csv"])
    assert (refused.value.code, refused.value.path) == ("NullKey", str(inbox / "b.csv"))


def test_a_known_name_with_other_bytes_is_not_a_bad_file(ws, inbox):
    write(inbox, "a.json", GOOD)
    ws.create("sales", source=tl.source(inbox / "*.json", on_bad_file="skip"))
    ws.pull()
    write(inbox, "a.json", GOOD.replace("1", "7"))
    with pytest.raises(PullError) as failed:
        ws.pull()
    assert failed.value.report.errors["sales"].code == "FileChanged"


def test_a_snapshot_is_never_taken_in_part(ws, inbox):
    """Each file is one snapshot: a bad one is left out as a whole, and the rows there are stay."""
    write(inbox, "1.json", GOOD + GOOD.replace("1", "2"))
    ds = ws.create(
        "state", merge=tl.merge.snapshot("id"), source=tl.source(inbox / "*.json", on_bad_file="skip")
    )
    ws.pull()
    write(inbox, "2.json", GOOD[:-5])
    pulled = ws.pull()["state"]
    assert list(pulled.bad_files) != []
    assert ids(ds) == [1, 2]


def test_one_file_whose_content_changes(ws, inbox):
    now = inbox / "now.json"
    now.write_text(GOOD)
    ds = ws.create("sales", source=tl.source(now, on_bad_file="skip"))
    ws.pull()
    now.write_text(BAD)
    assert len(ws.pull()["sales"].bad_files) == 1
    assert len(ws.pull()["sales"].bad_files) == 1
    now.write_text(GOOD.replace("1", "2"))
    assert ws.pull()["sales"].bad_files == {}
    assert ids(ds) == [1, 2]


def test_a_file_on_a_web_server(ws, server):
    ds = ws.create("sales", source=tl.source(server.serve("/now.json", b"nothing"), on_bad_file="skip"))
    assert len(ws.pull()["sales"].bad_files) == 1
    server.serve("/now.json", GOOD.encode())
    assert ws.pull()["sales"].rows == 1
    assert ids(ds) == [1]


def test_it_is_part_of_the_definition(ws, inbox):
    write(inbox, "a.json", GOOD)
    skip = tl.source(inbox / "*.json", on_bad_file="skip")
    assert ws.create("sales", source=skip).head == ws.create("sales", source=skip).head
    with pytest.raises(DatasetExists, match="on_bad_file of the source: it is skip, asked for is stop"):
        ws.create("sales", source=tl.source(inbox / "*.json"))
    with pytest.raises(InputError, match="on_bad_file"):
        tl.source("inbox/", on_bad_file="ignore")
