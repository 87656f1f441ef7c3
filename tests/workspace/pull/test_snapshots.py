"""Snapshots that are pulled or appended: empty ones, late ones, and files with the bytes of others."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from trueline.dataset.definition import addendum_of
from trueline.errors import InputError, PullError


def write(inbox, name, *ids):
    (inbox / name).write_text("id,n\n" + "".join(f"{i},1\n" for i in ids))


def ids(ds):
    return ds.view().to_arrow()["id"].to_pylist()


@pytest.fixture
def stock(ws, inbox):
    return ws.create("stock", merge=tl.merge.snapshot("id"), source=inbox / "*.csv")


def refusal(ws, **how):
    with pytest.raises(PullError) as raised:
        ws.pull("stock", **how)
    return raised.value.report.errors["stock"]


# --- empty ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["table", "frame", "stream", "header", "bytes"])
def test_an_empty_frame_or_file_never_retracts_a_whole_snapshot(ws, tmp_path, kind):
    ds = ws.create("x", merge=tl.merge.snapshot("id"))
    ds.append(pa.table({"id": [1, 2], "n": [1, 1]}))
    empty = pa.schema({"id": pa.int64(), "n": pa.int64()}).empty_table()
    file = tmp_path / "dump.csv"
    file.write_text("" if kind == "bytes" else "id,n\n")
    give = {"table": empty, "frame": empty.to_pandas(), "stream": None}.get(kind, file)

    def data():
        return empty.to_reader() if kind == "stream" else give

    with pytest.raises(InputError, match="retract every row") as raised:
        ds.append(data())
    assert raised.value.code == "EmptySnapshot"
    assert ids(ds) == [1, 2]
    # The remedy.
    commit = ds.append(data(), allow_empty=True)
    assert (ids(ds), commit.changes, commit.current_rows) == ([], "-2 rows", 0)
    assert ds.verify().ok


def test_an_empty_list_says_it_only_if_it_is_allowed(ws):
    ds = ws.create("x", merge=tl.merge.snapshot("id"))
    ds.append([{"id": 1}])
    assert not ds.append([]).blocks
    assert ids(ds) == [1]
    assert ds.append([], allow_empty=True).changes == "-1 row"
    assert ids(ds) == []


def test_an_empty_snapshot_of_nothing_is_no_news(ws):
    ds = ws.create("x", merge=tl.merge.snapshot("id"))
    ds.append([{"id": 1}])
    ds.append([], allow_empty=True)
    assert not ds.append(pa.table({"id": pa.array([], pa.int64())})).blocks


def test_an_empty_file_of_a_source_is_taken_if_that_is_declared_or_said(ws, inbox):
    stock = ws.create("stock", merge=tl.merge.snapshot("id"), source=inbox / "*.csv")
    write(inbox, "a.csv", 1, 2)
    ws.pull()
    write(inbox, "b.csv")
    refused = refusal(ws)
    assert refused.code == "EmptySnapshot"
    assert "b.csv" in refused.problem
    ws.pull("stock", allow_empty=True)
    assert ids(stock) == []
    other = tl.source(inbox / "*.csv", allow_empty=True)
    declared = ws.create("declared", merge=tl.merge.snapshot("id"), source=other)
    assert addendum_of(declared.chain).allow_empty
    ws.pull("declared")
    assert [commit.changes for commit in declared.log() if commit.rows] == ["-2 rows", "+2 rows"]
    with pytest.raises(InputError, match="allow_empty of the source"):
        ws.create("declared", merge=tl.merge.snapshot("id"), source=inbox / "*.csv")


def test_a_dataset_with_a_source_is_not_emptied_by_hand(ws, stock):
    with pytest.raises(InputError, match="filled from its source"):
        stock.append([], allow_empty=True)


# --- late -------------------------------------------------------------------------------


def test_snapshots_are_taken_in_natural_order(ws, inbox, stock):
    write(inbox, "day-10.csv", 10)
    write(inbox, "day-9.csv", 9)
    report = ws.pull()
    taken = [commit.files[0].rsplit("/")[-1] for commit in report["stock"].commits]
    assert taken == ["day-9.csv", "day-10.csv"]
    assert ids(stock) == [10]


def test_a_snapshot_that_sorts_before_one_already_taken_is_refused_by_name(ws, inbox, stock):
    write(inbox, "day-10.csv", 10)
    ws.pull()
    write(inbox, "day-9.csv", 9)
    write(inbox, "day-11.csv", 11)
    refused = refusal(ws)
    assert refused.code == "LateSnapshot"
    assert "day-9.csv sorts before" in refused.problem
    assert "day-11.csv, which was taken" in refused.problem
    assert ids(stock) == [11], "what is in order was taken"
    assert refusal(ws).code == "LateSnapshot", "it is said until it is settled"
    # The remedy.
    ws.pull("stock", resend=True)
    assert ids(stock) == [9]
    assert ws.pull("stock")["stock"].told == "nothing new"
    write(inbox, "day-12.csv", 12)
    ws.pull("stock")
    assert ids(stock) == [12]


def test_the_other_remedy_is_to_remove_the_file(ws, inbox, stock):
    write(inbox, "day-10.csv", 10)
    ws.pull()
    write(inbox, "day-9.csv", 9)
    refusal(ws)
    (inbox / "day-9.csv").unlink()
    assert ws.pull("stock")["stock"].told == "nothing new"


def test_files_of_other_merges_may_come_in_any_order(ws, inbox):
    ds = ws.create("sales", source=inbox / "*.csv")
    write(inbox, "day-10.csv", 10)
    ws.pull()
    write(inbox, "day-9.csv", 9)
    ws.pull()
    assert ids(ds) == [10, 9]


# --- equal bytes ------------------------------------------------------------------------


@pytest.mark.parametrize("merge", [tl.merge.append(), tl.merge.snapshot("id")])
def test_files_with_equal_bytes_inside_one_pull_are_said(ws, inbox, merge):
    ds = ws.create("x", merge=merge, source=inbox / "*.csv")
    write(inbox, "a.csv", 1)
    write(inbox, "b.csv", 1)
    done = ws.pull()["x"]
    folder = inbox.as_posix()
    assert dict(done.duplicates) == {f"{folder}/b.csv": f"{folder}/a.csv"}
    assert f"same bytes as another: {folder}/b.csv = {folder}/a.csv" in done.told
    assert done.told.count("same bytes") == 1
    assert done.to_dict()["duplicates"]
    assert ids(ds) == [1]
    again = ws.pull()["x"]
    assert (again.told, again.duplicates) == ("nothing new", {}), "said once"


def test_files_with_equal_bytes_in_one_append_are_said(ws, inbox):
    ds = ws.create("x")
    write(inbox, "a.csv", 1)
    write(inbox, "b.csv", 1)
    commit = ds.append(inbox / "*.csv")
    assert list(commit.duplicates) == [str(inbox / "b.csv")]
    assert "same bytes as another" in commit.told
    assert "known already" not in commit.told
