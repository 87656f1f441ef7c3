"""Pulling: what is new is read once, whatever happens to the other datasets."""

from __future__ import annotations

import gzip
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.workspace.records import column
from trueline.chain.events import DisablePollingSource, SetPollingSource
from trueline.chain.head_state import linked
from trueline.chain.instant import Instant
from trueline.chain.sources import (
    CacheForever,
    FetchContainer,
    FetchFilesGlob,
    FetchUrl,
    FromMetadata,
    MergeAppend,
    Pipe,
    ReadCsv,
    ReadGeoJson,
    SqlQueryStep,
    TransformSql,
)
from trueline.dataset.append import append as appending
from trueline.errors import BrokenFile, DatasetNotFound, InputError, PullError, StoreError
from trueline.readers import Source
from trueline.workspace.pull import pull as pulling
from trueline.workspace.pull import seen


def write(inbox, name, *ids):
    (inbox / name).write_text("id,price\n" + "".join(f"{i},1.5\n" for i in ids))


def failed(ws, *names, **how):
    with pytest.raises(PullError) as refused:
        ws.pull(*names, **how)
    return refused.value


def redeclare(dataset, source):
    """Give a dataset another polling source."""
    tail = dataset.chain.tail()
    dataset.chain.append(*linked(tail, (DisablePollingSource(), source), Instant.now()))


# --- files -----------------------------------------------------------------------------


def test_new_files_are_taken_in_once_in_the_order_of_their_names(ws, inbox):
    ds = ws.create("sales", source=inbox / "*.csv")
    assert ws.pull()["sales"].told == "nothing new"
    write(inbox, "b.csv", 3)
    write(inbox, "a.csv", 1, 2)
    report = ws.pull()
    assert (report.ok, report.rows, report["sales"].rows) == (True, 3, 3)
    assert report["sales"].commit.files == (f"{inbox}/a.csv", f"{inbox}/b.csv")
    head = ds.head
    again = ws.pull()["sales"]
    assert (again.rows, again.commit, again.skipped) == (0, None, (f"{inbox}/a.csv", f"{inbox}/b.csv"))
    assert ds.head == head
    write(inbox, "c.csv", 4)
    assert ws.pull("sales").rows == 1
    assert column(ds, "id") == [1, 2, 3, 4]
    assert ds.verify().ok


def test_the_same_bytes_under_another_name_are_known(ws, inbox):
    write(inbox, "a.csv", 1)
    ws.create("sales", source=inbox)
    ws.pull()
    write(inbox, "b.csv", 1)
    assert ws.pull()["sales"].rows == 0


def test_a_known_name_with_other_bytes_is_refused_unless_it_is_to_be_sent_again(ws, inbox):
    write(inbox, "a.csv", 1)
    ds = ws.create("sales", source=inbox)
    ws.pull()
    write(inbox, "a.csv", 1, 2)
    error = failed(ws)
    assert error.report.errors["sales"].code == "FileChanged"
    assert ds.info.rows == 1
    assert ws.pull(resend=True).rows == 2


@pytest.mark.parametrize("settled", [-(10**18), 10**18])
def test_known_files_are_not_opened_again_once_they_are_settled(ws, inbox, monkeypatch, settled):
    monkeypatch.setattr(seen, "SETTLED_NS", settled)
    for number in range(5):
        write(inbox, f"{number}.csv", number)
    ws.create("sales", source=inbox)
    ws.pull()
    opened = []
    find = Source.file
    monkeypatch.setattr(Source, "file", lambda path: _watched(find(path), opened))
    write(inbox, "new.csv", 7)
    report = ws.pull()["sales"]
    assert (report.rows, len(report.skipped)) == (1, 5)
    assert set(opened) >= {f"{inbox}/new.csv"}
    assert (set(opened) == {f"{inbox}/new.csv"}) == (settled < 0)


def _watched(source, opened):
    def open_():
        opened.append(source.path)
        return source.open()

    return Source(source.path, open_, source.size)


def test_what_is_remembered_of_files_is_not_believed_against_the_files_or_the_chain(ws, inbox, monkeypatch):
    monkeypatch.setattr(seen, "SETTLED_NS", -(10**18))
    write(inbox, "a.csv", 1)
    ds = ws.create("sales", source=inbox)
    born = ds.head
    ws.pull()
    stat = (inbox / "a.csv").stat()
    other = inbox.parent / "other"
    other.write_text("id,price\n9,1.5\n")
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(inbox / "a.csv")  # same size, same time, other bytes
    assert failed(ws).report.errors["sales"].code == "FileChanged"
    write(inbox, "a.csv", 1)
    ws.pull()
    ds.chain.reset(born)
    assert ws.pull().rows == 1


@pytest.mark.parametrize("junk", ["", "{", "[]", '{"version": 1, "files": {"a": 1}}', '{"version": 9}'])
def test_damage_to_what_is_remembered_of_files_does_no_harm(ws, inbox, junk):
    write(inbox, "a.csv", 1)
    ws.create("sales", source=inbox)
    ws.pull()
    path = seen.seen_path(ws._location.private, "sales")
    path.parent.mkdir(exist_ok=True)
    path.write_text(junk)
    assert ws.pull()["sales"].skipped == (f"{inbox}/a.csv",)


def test_many_files_are_several_commits_and_those_before_a_broken_one_stay(ws, inbox, monkeypatch):
    monkeypatch.setattr(pulling, "FILES_OF_A_COMMIT", 2)
    monkeypatch.setattr(seen, "SETTLED_NS", -(10**18))
    for number in range(5):
        write(inbox, f"{number}.csv", number)
    ds = ws.create("sales", source=inbox)
    assert [commit.rows for commit in ws.pull()["sales"].commits] == [2, 2, 1]
    for number in range(5, 8):
        write(inbox, f"{number}.csv", number)
    (inbox / "8.csv").write_bytes(gzip.compress(b"id,price\n8,1.5\n" * 1000)[:-20])
    report = failed(ws).report["sales"]
    assert (report.rows, len(report.commits)) == (2, 1)
    assert isinstance(report.error, BrokenFile)
    write(inbox, "8.csv", 8)
    assert ws.pull().rows == 2
    assert sorted(column(ds, "id")) == list(range(9))


def test_each_file_of_a_snapshot_is_everything_there_is(ws, inbox):
    write(inbox, "1.csv", 1, 2)
    write(inbox, "2.csv", 2, 3)
    ds = ws.create("stock", source=inbox, merge=tl.merge.snapshot("id"))
    assert len(ws.pull()["stock"].commits) == 2
    assert ds.view().to_arrow()["id"].to_pylist() == [2, 3]
    assert ws.pull()["stock"].commit is None


def test_a_single_file_is_read_whenever_its_content_changed_even_back(ws, inbox):
    ds = ws.create("stock", source=inbox / "now.csv", merge=tl.merge.snapshot("id"))
    assert failed(ws).report.errors["stock"].code == "NoSuchFile"
    for ids in ([1, 2], [2, 3], [1, 2]):
        write(inbox, "now.csv", *ids)
        assert len(ws.pull()["stock"].commits) == 1
        assert ds.view().to_arrow()["id"].to_pylist() == ids
        assert ws.pull()["stock"].skipped == (f"{inbox}/now.csv",)
    assert ds.verify().ok


def test_a_file_address_is_a_single_file(ws, inbox):
    write(inbox, "now file.csv", 1)
    url = (inbox / "now file.csv").as_uri()
    ds = ws.create("stock", source=url)
    assert ws.pull()["stock"].commit.files == (url,)
    write(inbox, "now file.csv", 2)
    ws.pull()
    assert column(ds, "id") == [1, 2]


def test_the_reader_of_the_source_reads_with_all_its_options(ws, inbox):
    (inbox / "a.dat").write_text("made by hand\nid;price\n1;9,5\n2;n.v.\n")
    reader = tl.csv(separator=";", decimal=",", nulls=("n.v.",), skip_lines=1)
    ds = ws.create("sales", source=tl.source(inbox, reader))
    ws.pull()
    assert column(ds, "price") == [9.5, None]


def test_other_formats_come_by_their_ending(ws, inbox):
    pq.write_table(pa.table({"id": [1]}), inbox / "a.parquet")
    (inbox / "b.jsonl.gz").write_bytes(gzip.compress(b'{"id": 2}\n'))
    one, two = ws.create("p", source=inbox / "*.parquet"), ws.create("j", source=inbox / "*.jsonl.gz")
    assert [each.dataset for each in ws.pull()] == ["j", "p"]
    assert (column(one, "id"), column(two, "id")) == ([1], [2])


def test_bad_cells_are_counted_and_too_many_refused(ws, inbox):
    columns = pa.schema({"id": pa.int64(), "price": pa.float64()})
    strict = ws.create("strict", columns, source=tl.source(inbox / "*.csv", max_bad=0))
    ws.create("lax", columns, source=inbox / "*.csv")
    (inbox / "a.csv").write_text("id,price\n1,ten\n2,1\n")
    report = failed(ws).report
    assert report.errors["strict"].code == "TooManyBadCells"
    assert report["lax"].commit.bad == {"price": 1}
    assert strict.info.rows == 0


# --- addresses -------------------------------------------------------------------------


def test_an_address_is_asked_for_what_changed_only(ws, server):
    url = server.serve("/a.csv", b"id,price\n1,2\n", etag='"v1"')
    ds = ws.create("sales", source=url)
    assert ws.pull().rows == 1
    assert "if-none-match" not in server.asked[-1][1]
    assert ws.pull()["sales"].skipped == (url,)
    assert server.asked[-1][1]["if-none-match"] == '"v1"'
    server.serve("/a.csv", b"id,price\n2,2\n", etag='"v2"')
    assert ws.pull().rows == 1
    state = ds.chain.tail().data.new_source_state
    assert (state.source_name, state.kind, state.value) == ("default", "odf/etag", '"v2"')
    assert column(ds, "id") == [1, 2]


def test_the_same_bytes_under_a_new_tag_are_no_commit(ws, server):
    url = server.serve("/a.csv", b"id\n1\n", etag='"v1"')
    ds = ws.create("sales", source=url)
    ws.pull()
    head = ds.head
    server.serve("/a.csv", b"id\n1\n", etag='"v2"')
    assert ws.pull()["sales"].skipped == (url,)
    assert ds.head == head


def test_a_download_that_breaks_off_leaves_the_dataset_as_it_was(ws, server):
    def half(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nid,price\n1,2\n")

    url = server.serve("/a.csv", send=half)
    ds = ws.create("sales", source=url)
    head = ds.head
    assert isinstance(failed(ws).report.errors["sales"], StoreError)
    assert ds.head == head
    server.serve("/a.csv", b"id,price\n1,2\n")
    assert ws.pull().rows == 1


def test_a_download_is_bounded_by_the_source(ws, server):
    url = server.serve("/a.csv", b"id\n" + b"1\n" * 1000)
    ws.create("sales", source=tl.source(url, max_bytes=100))
    assert failed(ws).report.errors["sales"].code == "TooLarge"


def test_the_state_of_another_address_is_not_sent(ws, server):
    old = server.serve("/a.csv", b"id\n1\n", etag='"same"')
    new = server.serve("/b.csv", b"id\n2\n", etag='"same"')
    ds = ws.create("sales", source=old)
    ws.pull()
    polling = ds.chain.tail().polling
    redeclare(ds, SetPollingSource(fetch=FetchUrl(new), read=polling.read, merge=polling.merge))
    assert ws.pull().rows == 1


def test_what_a_source_keeps_for_ever_is_read_once(ws, server, inbox):
    url = server.serve("/a.csv", b"id\n1\n")
    ds, files = ws.create("sales", source=url), ws.create("files", source=inbox / "*.csv")
    for dataset, fetch in (
        (ds, FetchUrl(url, cache=CacheForever())),
        (files, FetchFilesGlob(f"{inbox}/*.csv", cache=CacheForever())),
    ):
        polling = dataset.chain.tail().polling
        redeclare(dataset, SetPollingSource(fetch=fetch, read=polling.read, merge=polling.merge))
    write(inbox, "a.csv", 1)
    assert ws.pull().rows == 2
    server.serve("/a.csv", b"id\n2\n")
    write(inbox, "a.csv", 2)
    assert ws.pull().rows == 0
    assert len(server.asked) == 1


def test_a_workspace_below_a_url_pulls_too(server, inbox, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    url = server.serve("/a.csv", b"id,price\n1,2\n", etag='"v1"')
    write(inbox, "b.csv", 2)
    with tl.open("memory://pulling/lake", create=True) as lake:
        ds, files = lake.create("sales", source=url), lake.create("files", source="inbox/*.csv")
        assert lake.pull().rows == 2
        assert (lake.pull().rows, column(ds, "id"), column(files, "id")) == (0, [1], [2])
        polling = files.chain.tail().polling
        redeclare(
            files,
            SetPollingSource(fetch=FetchFilesGlob("inbox/*"), read=polling.read, merge=polling.merge),
        )
        assert failed(lake, "files").report.errors["files"].code == "UnknownSource"


# --- several datasets ------------------------------------------------------------------


def test_a_dataset_that_fails_does_not_stop_the_others(ws, inbox, server):
    write(inbox, "a.csv", 1)
    ws.create("a", source=server.url + "/none.csv")
    ws.create("b", source=inbox)
    ws.create("c", source=inbox.parent / "nowhere" / "*.csv")
    ws.create("d", source=inbox)
    error = failed(ws)
    assert [each.dataset for each in error.report] == ["a", "b", "c", "d"]
    assert list(error.report.errors) == ["a", "c"]
    assert (error.report.rows, error.report.ok) == (2, False)
    assert "2 of 4 datasets" in error.problem
    assert "404" in error.problem
    assert error.report.to_dict()["datasets"][0]["error"]["code"] == "NotAllowed"
    assert "404" in error.report._repr_html_()


def test_something_unexpected_in_one_dataset_is_told_too(ws, inbox, monkeypatch):
    write(inbox, "a.csv", 1)
    ws.create("a", source=inbox)
    ws.create("b", source=inbox)
    find = pulling.addendum_of
    calls = []

    def once(chain):
        calls.append(chain)
        if len(calls) == 1:
            raise ZeroDivisionError("oops")
        return find(chain)

    monkeypatch.setattr(pulling, "addendum_of", once)
    report = failed(ws).report
    ((broken, error),) = report.errors.items()  # whichever of the two was first
    (whole,) = {"a", "b"} - {broken}
    assert (report[whole].rows, error.code) == (1, "TaskFailed")


def test_a_pull_error_crosses_processes(ws, inbox):
    ws.create("a", source=inbox.parent / "nowhere" / "*.csv")
    error = pickle.loads(pickle.dumps(failed(ws)))
    assert error.report.errors["a"].code == "NoSuchFile"


def test_only_datasets_with_a_source_are_pulled_unless_they_are_named(ws, inbox):
    write(inbox, "a.csv", 1)
    ws.create("plain")
    ws.create("sales", source=inbox)
    assert [each.dataset for each in ws.pull()] == ["sales"]
    report = ws.pull("plain", "sales", "plain")
    assert [(each.dataset, each.told) for each in report] == [
        ("plain", "no source"),
        ("sales", "nothing new"),
    ]
    with pytest.raises(KeyError):
        report["other"]
    with pytest.raises(DatasetNotFound):
        ws.pull("sals")


def test_an_empty_workspace_has_nothing_to_pull(ws):
    assert (len(ws.pull()), ws.pull().ok) == (0, True)


def test_clones_are_brought_up_to_what_they_are_copies_of_and_do_not_poll(ws, inbox, tmp_path):
    write(inbox, "a.csv", 1)
    ds = ws.create("sales", source=inbox)
    ws.pull()
    with tl.open(tmp_path / "other", create=True) as other:
        copy = other.clone(Path(ws.location) / "datasets" / "sales")
        assert other.pull()["sales"].told == "nothing new"
        write(inbox, "b.csv", 2)
        assert other.pull().rows == 0
        assert copy.head == ds.head
        ws.pull()
        report = other.pull()["sales"]
        assert (report.blocks, "from" in report.told) == (1, True)
        assert copy.head == ds.head
        (Path(ws.location) / "datasets" / "sales" / "refs" / "head").rename(tmp_path / "head")
        assert "sales" in failed(other).report.errors


# --- pushing and polling ---------------------------------------------------------------


def test_rows_are_not_pushed_to_a_dataset_that_is_filled_from_a_source(ws, inbox):
    write(inbox, "a.csv", 1)
    ds = ws.create("sales", source=inbox)
    for data in (
        [{"id": 1}],
        inbox / "a.csv",
        pa.table({"id": [1]}),
        pa.table({"id": pa.array([], pa.int64())}),
    ):
        with pytest.raises(InputError) as refused:
            ds.append(data)
        assert refused.value.code == "HasSource"
        assert "ws.pull('sales')" in refused.value.remedy
    assert ds.info.rows == 0


@pytest.mark.parametrize(
    "asked",
    [
        {"fetch": FetchContainer("image")},
        {"fetch": FetchUrl("http://127.0.0.1:9/a.csv", event_time=FromMetadata())},
        {"prepare": (Pipe(("rm", "-rf", "x")),)},
        {"preprocess": TransformSql("spark", queries=(SqlQueryStep(query="select 1"),))},
        {"read": ReadGeoJson()},
        {"read": ReadCsv(ddl_schema=("id INT",))},
        {"fetch": FetchUrl("gopher://127.0.0.1/a.csv")},
    ],
)
def test_a_source_of_others_that_asks_for_more_is_refused_not_half_done(ws, inbox, asked):
    write(inbox, "a.csv", 1)
    ds = ws.create("sales", source=inbox)
    usual = {"fetch": FetchFilesGlob(f"{inbox}/*"), "read": ReadCsv(header=True), "merge": MergeAppend()}
    redeclare(ds, SetPollingSource(**usual | asked))
    error = failed(ws).report.errors["sales"]
    assert isinstance(error, InputError)
    assert ds.info.rows == 0


def test_a_read_step_of_others_is_followed(ws, inbox):
    (inbox / "a.csv").write_text("id|price\n1|2\n")
    ds = ws.create("sales", source=inbox)
    fetch = FetchFilesGlob(f"{inbox}/*")
    redeclare(
        ds, SetPollingSource(fetch=fetch, read=ReadCsv(header=True, separator="|"), merge=MergeAppend())
    )
    ws.pull()
    assert column(ds, "price") == [2]


# --- side by side ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["folder", "file", "address"])
def test_two_pulls_at_once_take_each_content_once(ws, inbox, server, monkeypatch, kind):
    write(inbox, "a.csv", 1, 2)
    url = server.serve("/a.csv", (inbox / "a.csv").read_bytes(), etag='"v1"')
    ds = ws.create("sales", source={"folder": inbox, "file": inbox / "a.csv", "address": url}[kind])
    commit = appending.commit
    others = []

    def overtaken(*order):
        if not others:
            others.append(None)
            with tl.open(ws.location) as other:
                others[0] = other.pull()["sales"]
        return commit(*order)

    monkeypatch.setattr(appending, "commit", overtaken)
    mine = ws.pull()["sales"]
    assert (others[0].rows, mine.rows, len(mine.skipped)) == (2, 0, 1)
    assert column(ds, "id") == [1, 2]
    assert ds.verify().ok


# --- empty files -----------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "parquet"])
@pytest.mark.parametrize("schema", [None, pa.schema({"id": pa.int64(), "price": pa.float64()})])
def test_an_empty_file_is_recorded_as_read_with_no_rows(ws, inbox, ending, schema):
    ds = ws.create("sales", schema=schema, source=inbox / f"*.{ending}")
    (inbox / f"a.{ending}").write_bytes(b"")
    (inbox / f"b.{ending}").write_bytes(b"")
    report = ws.pull()["sales"]
    assert (report.rows, [Path(name).name for name in report.commit.files]) == (0, [f"a.{ending}"])
    assert [Path(name).name for name in report.skipped] == [f"b.{ending}"], "it has the same bytes"
    assert ws.pull()["sales"].told == "nothing new"
    assert ds.verify().ok


def test_a_blank_file_is_read_too_and_full_ones_beside_empty_ones(ws, inbox):
    ds = ws.create("sales", source=inbox / "*.csv")
    (inbox / "a.csv").write_text("\n\n")
    assert ws.pull()["sales"].told == "no rows, 1 file"
    (inbox / "b.csv").write_bytes(b"")
    write(inbox, "c.csv", 1, 2)
    told = ws.pull()["sales"].commit.told
    assert told.startswith("+2 rows, offsets 0 to 1, 2 files, known already")
    assert column(ds, "id") == [1, 2]


def test_a_file_that_was_empty_is_read_when_it_has_content(ws, inbox):
    ds = ws.create("sales", source=inbox / "*.csv")
    (inbox / "a.csv").write_bytes(b"")
    ws.pull()
    write(inbox, "a.csv", 7)
    assert ws.pull()["sales"].rows == 1
    write(inbox, "a.csv", 8)
    assert failed(ws).report.errors["sales"].code == "FileChanged"
    assert column(ds, "id") == [7]


def test_an_empty_file_is_no_snapshot(ws, inbox):
    ds = ws.create("stock", merge=tl.merge.snapshot("id"), source=inbox / "*.csv")
    write(inbox, "a.csv", 1, 2)
    ws.pull()
    (inbox / "b.csv").write_bytes(b"")
    refused = failed(ws).report.errors["stock"]
    assert (refused.code, "retract every row" in refused.problem) == ("EmptySnapshot", True)
    assert ds.view().count() == 2
