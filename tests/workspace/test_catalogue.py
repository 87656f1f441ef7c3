"""The catalogue: names that change while folders stay, found without opening datasets."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections import Counter

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import trueline as tl
from tests.chain.store.small_s3 import serving
from tests.workspace.records import column
from trueline.chain.store.file import FileStore
from trueline.cli.app import application
from trueline.errors import (
    BadName,
    CatalogueDamaged,
    DatasetExists,
    DatasetNotFound,
    LinkRefused,
    StorageReadOnly,
    UnsupportedVersion,
)
from trueline.workspace.catalogue import CatalogueEntry, from_bytes, to_bytes
from trueline.workspace.locations import FolderPlace
from trueline.workspace.url_location import UrlPlace

DERIVED = """
kind: DatasetSnapshot
version: 1
content:
  name: daily
  kind: Derivative
  metadata:
    - kind: SetTransform
      inputs: [{datasetRef: sales}]
      transform: {kind: Sql, engine: spark, query: select * from sales}
"""
_numbers = itertools.count()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ws" / "datasets" / ".catalogue"


@pytest.fixture(params=["folder", "memory", "s3"])
def place(request, tmp_path, monkeypatch):
    """A new workspace's address and options: a folder, an object store in memory, one behind HTTP."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    if request.param == "folder":
        yield str(tmp_path / "lake"), {}
    elif request.param == "memory":
        yield f"memory://catalogue-{next(_numbers)}/lake", {}
    else:
        with serving() as server:
            yield "s3://bucket/lake", server.options


# --- the document --------------------------------------------------------------------


def test_the_document_is_canonical_and_read_as_it_was_written(ws, path):
    ds = ws.create("trades")
    ws.create("a")
    ds.rename("deals")
    raw = path.read_bytes()
    assert raw == to_bytes(from_bytes(raw, "x").values())
    assert json.loads(raw) == {
        "format": "trueline/catalogue",
        "version": 1,
        "datasets": [
            {"folder": "a", "id": str(ws["a"].id), "name": "a"},
            {"folder": "trades", "id": str(ds.id), "name": "deals"},
        ],
    }


def test_a_workspace_without_one_gets_it_from_its_folders(ws, path):
    ids = {name: str(ws.create(name).id) for name in ("a", "b")}
    path.unlink()
    with tl.open(ws.location) as again:
        assert list(again) == ["a", "b"]
    assert {entry.name: entry.id for entry in from_bytes(path.read_bytes(), "x").values()} == ids


def test_where_it_cannot_be_written_the_names_are_found_anew(ws, path, monkeypatch):
    ws.create("a")
    path.unlink()

    def refused(*_):
        raise StorageReadOnly("cannot write", remedy="give the right")

    monkeypatch.setattr(FolderPlace, "swap_catalogue", refused)
    assert (list(ws), "a" in ws, ws["a"].info.rows) == (["a"], True, 0)
    with pytest.raises(StorageReadOnly):
        ws["a"].rename("b")
    with pytest.raises(StorageReadOnly):
        ws.create("c")
    assert not path.exists()
    assert not (path.parent / "c").exists()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"{" * 100_000,
        b'{"format":"trueline/catalogue","version":1,"datasets":{}}',
        b'{"format":"other","version":1,"datasets":[]}',
        b'{"format":"trueline/catalogue","version":true,"datasets":[]}',
        b'{"format":"trueline/catalogue","version":1,"datasets":[7]}',
        b'{"format":"trueline/catalogue","version":1,"datasets":[{"folder":"../x","name":"a","id":null}]}',
        b'{"format":"trueline/catalogue","version":1,"datasets":[{"folder":"a","name":"../a","id":null}]}',
        b'{"format":"trueline/catalogue","version":1,"datasets":[{"folder":"/etc","name":"a","id":null}]}',
        b'{"format":"trueline/catalogue","version":1,"datasets":[{"folder":"a","name":"a","id":7}]}',
        b'{"format":"trueline/catalogue","version":1,"datasets":[{"folder":"a","name":"a","id":"\\ud800"}]}',
        b'{"format":"trueline/catalogue","version":1,"datasets":[{"folder":"a","name":"a","x":1}]}',
        b'{"format":"trueline/catalogue","version":1,"datasets":[{"folder":"a","name":"a","creating":1}]}',
        to_bytes([CatalogueEntry("a", "x"), CatalogueEntry("b", "x")]),
        to_bytes([CatalogueEntry("a", "x")]).replace(b"]", b',{"folder":"a","name":"y","id":null}]'),
    ],
)
def test_a_damaged_one_is_a_clear_error_and_names_are_not_guessed(ws, path, raw):
    ws.create("a")
    path.write_bytes(raw)
    for use in (list, len, lambda ws: ws["a"], lambda ws: "a" in ws, lambda ws: ws.create("b")):
        with pytest.raises(CatalogueDamaged, match=r"\.catalogue"):
            use(ws)
    assert path.read_bytes() == raw
    path.unlink()  # what the remedy says
    assert list(ws) == ["a"]


def test_one_that_is_too_large_or_a_folder_is_refused_before_it_is_read(ws, path):
    ws.create("a")
    with path.open("wb") as file:
        file.truncate(17 << 20)
    with pytest.raises(CatalogueDamaged):
        list(ws)
    path.unlink()
    path.mkdir()
    with pytest.raises(LinkRefused, match="is a folder"):
        list(ws)


def test_one_of_a_later_version_is_not_touched(ws, path):
    raw = b'{"datasets":[],"format":"trueline/catalogue","version":2}\n'
    path.write_bytes(raw)
    with pytest.raises(UnsupportedVersion):
        ws.create("a")
    assert path.read_bytes() == raw


@pytest.mark.parametrize("name", [".catalogue", ".catalogue.lock"])
def test_a_link_in_its_place_is_not_followed(ws, path, tmp_path, name):
    ws.create("a")
    outside = tmp_path / "outside"
    outside.write_bytes(path.read_bytes())
    path.with_name(name).unlink()
    path.with_name(name).symlink_to(outside)
    before = outside.read_bytes()
    with pytest.raises(LinkRefused):
        ws["a"].rename("b")
    assert outside.read_bytes() == before


def test_a_staged_file_that_was_left_behind_or_is_a_link_is_replaced(ws, path, tmp_path):
    ws.create("a")
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    (path.parent / ".catalogue.new").symlink_to(outside)
    ws["a"].rename("b")
    assert (list(ws), outside.read_bytes()) == (["b"], b"mine")
    assert not (path.parent / ".catalogue.new").exists()


# --- folders decide ------------------------------------------------------------------


def test_a_dataset_that_is_put_there_is_taken_up_and_one_that_is_removed_is_gone(ws, path, tmp_path):
    first = ws.create("a")
    shutil.copytree(path.parent / "a", path.parent / "copy")
    assert list(ws) == ["a", "copy"]
    assert ws["copy"].id == first.id
    first.rename("x")
    shutil.move(path.parent / "a", tmp_path / "aside")
    assert (list(ws), "x" in ws) == (["copy"], False)
    with pytest.raises(DatasetNotFound):
        first.rename("y")
    shutil.move(tmp_path / "aside", path.parent / "a")
    assert list(ws) == ["copy", "x"]


def test_a_folder_whose_name_another_dataset_has_by_now_gets_a_number(ws, path, tmp_path):
    ws.create("a").rename("b")
    ws.create("other")
    shutil.copytree(path.parent / "other", path.parent / "b")
    assert list(ws) == ["b", "b.2", "other"]
    assert (ws["b"]._folder, ws["b.2"]._folder) == ("a", "b")


def test_folders_that_are_no_datasets_are_passed_over(ws, path):
    ws.create("a")
    (path.parent / "notes").mkdir()
    (path.parent / "file").write_text("x")
    assert list(ws) == ["a"]
    assert [entry.folder for entry in from_bytes(path.read_bytes(), "x").values()] == ["a"]
    assert ws.create("notes").name == "notes"


def test_a_creation_that_was_not_confirmed_is_completed_by_the_next_reader(ws, path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("trueline.workspace.catalogue.Catalogue.confirm", lambda *_: None)
        made = ws.create("a")
    assert b"creating" in path.read_bytes()
    with tl.open(ws.location) as other:
        assert other["a"].id == made.id
    assert b"creating" not in path.read_bytes()


def test_a_creation_that_fails_gives_its_name_back(ws, path, monkeypatch):
    def full(*_, **__):
        raise StorageReadOnly("cannot write", remedy="give the right")

    with monkeypatch.context() as patch:
        patch.setattr(FileStore, "move_head", full)
        with pytest.raises(StorageReadOnly):
            ws.create("a")
    ws.create("b").rename("a")
    assert list(ws) == ["a"]


# --- renaming ------------------------------------------------------------------------


def test_a_rename_changes_the_name_and_nothing_else(place):
    url, options = place
    with tl.open(url, create=True, **options) as ws, tl.open(url, **options) as other:
        ds = ws.create("sales")
        ds.append(pa.table({"x": [1]}))
        held = other["sales"]
        daily = ws.create_from_manifest(DERIVED)
        before = (ds.id, ds.head, ds.chain.store.location)
        ds.rename("orders")
        assert (ds.id, ds.head, ds.chain.store.location) == before
        assert (ds.name, list(ws), list(other)) == ("orders", ["daily", "orders"], ["daily", "orders"])
        assert ws["orders"] is ds
        assert "sales" not in ws
        with pytest.raises(DatasetNotFound):
            _ = other["sales"]
        assert daily.inputs == ("orders",)
        # Who had it open goes on, and sees the new name once it asks for it.
        assert held.append(pa.table({"x": [2]})).offsets == range(1, 2)
        assert other["orders"] is held
        assert held.name == "orders"
        ds.rename("orders")
        assert ws.verify().ok
        assert ws.gc(older_than=0).objects == 0
    with tl.open(url, **options) as ws:
        assert column(ws["orders"], "x") == [1, 2]
        assert ws["orders"].info.name == "orders"


def test_a_name_that_became_free_can_be_used_again(place):
    url, options = place
    with tl.open(url, create=True, **options) as ws:
        first, second = ws.create("a"), ws.create("b")
        first.append(pa.table({"x": [1]}))
        first.rename("c")
        second.rename("a")
        first.rename("b")
        third = ws.create("c")
        fourth = ws.create("d")
        fourth.rename("e")
        fifth = ws.create("d")
        assert list(ws) == ["a", "b", "c", "d", "e"]
        assert {ds.name: ds._folder for ds in ws.datasets()} == {
            "a": "b", "b": "a", "c": "c", "d": "d.2", "e": "d",
        }  # fmt: skip
        assert len({ds.id for ds in (first, second, third, fourth, fifth)}) == 5
        assert column(ws["b"], "x") == [1]
        assert ws.create("d").id == fifth.id


def test_a_name_that_is_taken_or_cannot_be_one_is_refused(place):
    url, options = place
    with tl.open(url, create=True, **options) as ws:
        ds = ws.create("a")
        ws.create("Big")
        with pytest.raises(DatasetExists, match="'Big'"):
            ds.rename("Big")
        with pytest.raises(BadName, match="case"):
            ds.rename("big")
        for bad in ("../a", "", "a/b", ".catalogue", "con", 7):
            with pytest.raises(BadName):
                ds.rename(bad)
        assert list(ws) == ["Big", "a"]
        ds.rename("A")  # its own, in other letters
        assert list(ws) == ["A", "Big"]
        with pytest.raises(BadName, match="case"):
            ws.create("a")


def test_what_is_kept_of_a_clone_and_its_files_follows_a_rename(ws, tmp_path):
    ws.create("a").append(pa.table({"x": [1]}))
    with tl.open(tmp_path / "there", create=True) as there:
        clone = there.clone(ws._location.folder("a"))
        clone.rename("b")
        assert clone.origin is not None
        ws["a"].append(pa.table({"x": [2]}))
        there.pull("b")
        assert column(there["b"], "x") == [1, 2]
        (tmp_path / "inbox").mkdir()
        (tmp_path / "inbox" / "one.csv").write_text("x\n1\n")
        polled = there.create("p", source=str(tmp_path / "inbox" / "*.csv"))
        there.pull("p")
        polled.rename("q")
        there.pull("q")
        assert column(polled, "x") == [1]


def test_the_command_line_renames(ws):
    ws.create("sales")
    run = CliRunner()
    done = run.invoke(application(), ["-C", ws.location, "rename", "sales", "orders", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["dataset"] == "orders"
    assert list(ws) == ["orders"]


# --- several at once -----------------------------------------------------------------


@pytest.mark.parametrize("kind", [FolderPlace, UrlPlace])
def test_a_change_by_another_between_reading_and_writing_is_seen(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    url = str(tmp_path / "ws") if kind is FolderPlace else f"memory://catalogue-{next(_numbers)}/lake"
    with tl.open(url, create=True) as ws, tl.open(url) as other:
        ws.create("a")
        ws.create("b")
        swap, between = kind.swap_catalogue, [lambda: other["b"].rename("x")]

        def interrupted(place, kept, data):
            if between:
                between.pop()()
            return swap(place, kept, data)

        monkeypatch.setattr(kind, "swap_catalogue", interrupted)
        with pytest.raises(DatasetExists):
            ws["a"].rename("x")
        between.append(lambda: other["x"].rename("y"))
        ws["a"].rename("z")
        assert list(ws) == list(other) == ["y", "z"]


def racing(folder, *codes):
    """Run programs at the same time, each in a process; what they print."""
    start = "import sys, trueline as tl; ws = tl.open(sys.argv[1]); list(ws); sys.stdin.readline()\n"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", start + code, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        for code in codes
    ]
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()
    done = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0] * len(codes), done
    return [said.strip() for said, _ in done]


_RENAME = """
try:
    ws[{old!r}].rename({new!r})
    print("done")
except tl.errors.DatasetExists:
    print("refused")
"""


def test_of_processes_that_rename_to_one_name_one_succeeds(ws, tmp_path):
    for name in ("a", "b", "c"):
        ws.create(name)
    said = racing(ws.location, *(_RENAME.format(old=name, new="x") for name in ("a", "b", "c")))
    assert sorted(said) == ["done", "refused", "refused"]
    assert len(ws) == 3
    assert "x" in ws


def test_creations_of_one_name_whose_folder_is_taken_make_one_dataset(ws):
    ws.create("a").rename("b")
    said = racing(ws.location, *["print(ws.create('a').id)"] * 3)
    assert len(set(said)) == 1
    assert list(ws) == ["a", "b"]


def test_a_creation_and_a_rename_to_the_same_name_do_not_both_succeed(ws):
    ws.create("a")
    create = _RENAME.replace("ws[{old!r}].rename({new!r})", "ws.create('x', description='new')")
    said = racing(ws.location, create, _RENAME.format(old="a", new="x"))
    assert sorted(said) == ["done", "refused"]
    assert list(ws) == (["a", "x"] if said[0] == "done" else ["x"])


def test_renames_of_many_datasets_at_once_all_count(ws):
    for number in range(8):
        ws.create(f"d{number}")
    codes = [
        "".join(f"ws['d{number}'].rename('e{number}')\n" for number in range(first, 8, 2)) for first in (0, 1)
    ]
    racing(ws.location, *codes)
    assert list(ws) == [f"e{number}" for number in range(8)]


# --- many ----------------------------------------------------------------------------


@pytest.fixture
def many(tmp_path, monkeypatch):
    """A workspace of 500 datasets (copies of one, their ids by the catalogue), and a derived one."""
    with tl.open(tmp_path / "ws", create=True) as ws:
        sales = ws.create("sales")
        ws.create_from_manifest(DERIVED)
        folder = tmp_path / "ws" / "datasets"
        entries = from_bytes((folder / ".catalogue").read_bytes(), "x")
        for number in range(498):
            name = f"d{number:03}"
            shutil.copytree(folder / "sales", folder / name)
            entries[name] = CatalogueEntry(
                name, name, str(sales.id).replace("fed01", "fed02") + f"{number:03}"
            )
        (folder / ".catalogue").write_bytes(to_bytes(entries.values()))
    counts: Counter[str] = Counter()
    for kind, method in (
        (FolderPlace, "read_catalogue"),
        (FolderPlace, "swap_catalogue"),
        (FolderPlace, "names"),
        (FileStore, "head"),
        (FileStore, "get"),
        (FileStore, "list"),
    ):
        counted(kind, method, counts, monkeypatch)
    with tl.open(tmp_path / "ws") as ws:
        yield ws, counts


def counted(kind, method, counts, monkeypatch):
    original = getattr(kind, method)

    def call(self, *args, **kwargs):
        counts[method] += 1
        return original(self, *args, **kwargs)

    monkeypatch.setattr(kind, method, call)


def test_finding_among_500_opens_none(many):
    ws, counts = many
    for use in (iter, len, lambda ws: ws["d007"], lambda ws: "d008" in ws, lambda ws: ws.datasets()):
        counts.clear()
        use(ws)
        assert counts["read_catalogue"] == 1
        assert counts["names"] <= 1
        assert counts["head"] == counts["get"] == counts["list"] == counts["swap_catalogue"] == 0


def test_the_inputs_of_a_derived_dataset_are_found_by_the_catalogue(many):
    ws, counts = many
    daily = ws["daily"]
    _ = daily.head
    counts.clear()
    assert daily.inputs == ("sales",)
    assert (counts["read_catalogue"], counts["get"], counts["list"]) == (1, 0, 0)
    assert counts["head"] <= 1


def test_status_of_one_and_a_rename_open_that_one_only(many):
    ws, counts = many
    run = CliRunner()
    for command in (["status", "d001"], ["rename", "d001", "e001"]):
        counts.clear()
        done = run.invoke(application(), ["-C", ws.location, *command, "--json"])
        assert done.exit_code == 0, done.output
        assert counts["head"] < 20
        assert counts["read_catalogue"] <= 3
    assert "e001" in ws
