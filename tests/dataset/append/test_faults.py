"""An ingest that is killed, or finds the disk full, at any operation: then sent again, each record once."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.architecture import ROOT
from tests.dataset.append import dying
from tests.examples import some
from tests.faults import CAN_BE_FULL, WatchedFiles, failing, killed
from tests.workspace.records import records
from trueline.chain.block import commit_record
from trueline.chain.chain import Chain
from trueline.chain.store import file as file_store
from trueline.chain.store.open import open_store
from trueline.chain.store.scratch import FolderScratch
from trueline.dataset.append import files, pieces
from trueline.dataset.append.merge import open_state
from trueline.errors import InputError, OutcomeUnknown, SchemaError, StorageFull


def fold(ds, key="id"):
    """The current rows by folding every event, each with the offset that set it."""
    found = {}
    for row in records(ds).to_pylist():
        op, offset = row.pop("op"), row.pop("offset")
        del row["system_time"]
        if op == 1:
            found.pop(row[key], None)
        elif op in (0, 3):
            found[row[key]] = {**row, "_offset": offset}
    return found


def state(ds, key="id"):
    """What the state says, by key."""
    rows = [row for batch in open_state(ds.chain.store, ds.chain.tail()).scan() for row in batch.to_pylist()]
    return {row.get(key, row["_offset"]): {n: v for n, v in row.items() if n != "_key"} for row in rows}


def check_state(ds):
    """The state is what all events say."""
    folded = fold(ds)
    if "ledger" in ds.name:
        assert sorted(state(ds)) == sorted(row["_offset"] for row in folded.values())
    else:
        assert state(ds) == folded


def check_index(ds, path):
    """The index is what a new one would be."""
    fresh = Chain(open_store(path / "datasets" / ds.name))
    assert list(ds.chain.entries()) == list(fresh.entries())
    assert (ds.chain.token("k") is None) == (fresh.token("k") is None)
    for _, block in fresh.between(None):
        for name, content in commit_record(block).files:
            assert ds.chain.file(content) == fresh.file(content)
            assert ds.chain.file_named(name) == fresh.file_named(name)
    fresh.close()


def leftovers(path, name):
    private = path / "datasets" / name / "private"
    return [file for folder in ("staging", "scratch") for file in (private / folder).rglob("*")]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("what", "torn"), [("append", "whole"), ("upsert", "torn"), ("ledger", "whole"), ("files", "torn")]
)
def test_an_ingest_killed_at_any_operation_and_sent_again_is_there_once(tmp_path, small, what, torn):
    dying.prepare(tmp_path / "ws", tmp_path / "inbox", what)
    with tl.open(tmp_path / "ws") as ws:
        old = ws[what].head
    shutil.copytree(tmp_path / "ws", tmp_path / "whole" / "ws")
    shutil.copytree(tmp_path / "inbox", tmp_path / "whole" / "inbox")
    with tl.open(tmp_path / "whole" / "ws") as ws:
        dying.ingest(ws, what)
        wanted = records(ws[what]).drop_columns(["system_time"])
    deed, inbox = "tests.dataset.append.dying:deed", tmp_path / "inbox"
    asked = (deed, tmp_path / "ws", tmp_path / "copies", what, torn)
    copies = killed(*asked, beside=[inbox], most=8, at_least=26)
    assert len(copies) > 6
    outcomes, left = set(), 0
    for copy in copies:
        with tl.open(copy) as ws:
            ds = ws[what]
            outcomes.add(ds.head != old)
            assert ds.info.events in (20, wanted.num_rows), "nothing is there in part"
            left += len(leftovers(copy, what))
            again = dying.ingest(ws, what)
            assert records(ds).drop_columns(["system_time"]).equals(wanted)
            assert what == "files" or again.rows == wanted.num_rows - 20
            check_index(ds, copy)
            if what in ("upsert", "ledger"):
                check_state(ds)
            ds.append(pa.table({"id": [999], "city": ["Sion"]}))
            ws.gc(older_than=0)
            assert leftovers(copy, what) == []
            assert ds.verify().ok
    assert outcomes == {False, True}
    assert left, "some were killed while they had staged something"


# --- a full disk --------------------------------------------------------------------


def count_operations(tmp_path, monkeypatch):
    """How many operations of a keyed append of several slices can find the disk full."""
    with monkeypatch.context() as patched:
        watched = WatchedFiles()
        patched.setattr(file_store, "Files", lambda: watched)
        shutil.copytree(tmp_path / "ws", tmp_path / "count")
        with tl.open(tmp_path / "count") as ws:
            assert ws["upsert"].head
            watched.forget()
            ws["upsert"].append(dying.NEW)
            return sum(watched.counts[name] for name in CAN_BE_FULL)


@pytest.mark.sampled
def test_a_full_disk_at_any_operation_of_a_keyed_append_leaves_the_old_head(tmp_path, monkeypatch, small):
    dying.prepare(tmp_path / "ws", tmp_path / "inbox", "upsert", durable=True)
    count = count_operations(tmp_path, monkeypatch)
    assert count > 20
    for at in some(range(1, count + 1), 10):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "ws", copy)
        watched = WatchedFiles()
        with monkeypatch.context() as patched:
            patched.setattr(file_store, "Files", lambda watched=watched: watched)
            with tl.open(copy) as ws:
                ds = ws["upsert"]
                old = ds.head
                watched.forget()
                watched.before = failing(at, errno.ENOSPC, CAN_BE_FULL).before
                refused = None
                try:
                    ds.append(dying.NEW)
                except (StorageFull, OutcomeUnknown) as error:
                    refused = error
                watched.before = None
                if isinstance(refused, StorageFull):
                    assert ds.head == old
                ds.append(dying.NEW)
                assert fold(ds) == {
                    row["id"]: {**row, "event_time": None, "_offset": fold(ds)[row["id"]]["_offset"]}
                    for row in dying.NEW.to_pylist()
                }
                check_state(ds)
                assert ds.verify().ok
        shutil.rmtree(copy)


@pytest.mark.parametrize("merge", ["append", "upsert", "ledger"])
def test_a_full_disk_under_scratch_files_is_the_same_error(ws, tmp_path, monkeypatch, small, merge):
    key = () if merge == "append" else ("id",)
    ds = ws.create(merge, merge=getattr(tl.merge, merge)(*key))
    ds.append(dying.OLD)
    head, (name, text) = ds.head, next(iter(dying.FILES.items()))
    (tmp_path / name).write_text(text + text.partition("\n")[2])
    real = FolderScratch.create

    class Full:
        def __init__(self, file):
            self.file, self.closed = file, False

        def write(self, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self):
            self.file.close()
            self.closed = True

        def __getattr__(self, name):
            return getattr(self.file, name)

    with monkeypatch.context() as patched:
        patched.setattr(FolderScratch, "create", lambda *args: Full(real(*args)))
        with pytest.raises(StorageFull, match="No space left"):
            ds.append([tmp_path / name, tmp_path / name])
        with suppress(StorageFull):
            ds.append(dying.NEW)
        assert merge == "append" or ds.head == head
    assert leftovers(Path(ws.location), merge) == []
    ds.append(tmp_path / name)
    assert ds.verify().ok


FULL = """
import errno, os, sys
from trueline.chain.store import file as file_store
from trueline.chain.store.files import Files
from trueline.cli import main
class Full(Files):
    def write(self, fd, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
file_store.Files = Full
sys.argv = ["trueline", *sys.argv[1:]]
sys.exit(main())
"""


def test_a_full_disk_is_exit_code_4_of_the_command_line(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws:
        ds = ws.create("sales", merge=tl.merge.upsert("id"))
        ds.append(dying.OLD)
        head = ds.head
    (tmp_path / "a.csv").write_text(dying.FILES["a.csv"])
    command = [sys.executable, "-c", FULL, "-C", str(tmp_path / "ws")]
    command += ["ingest", "sales", str(tmp_path / "a.csv"), "--json"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 4, done.stderr
    assert json.loads(done.stderr)["error"]["code"] == "StorageFull"
    with tl.open(tmp_path / "ws") as ws:
        assert ws["sales"].head == head
        assert ws["sales"].append(tmp_path / "a.csv").rows == 15


# --- state that is gone -------------------------------------------------------------


@pytest.mark.parametrize("merge", ["upsert", "ledger", "snapshot", "changelog"])
@pytest.mark.parametrize("lost", ["checkpoint", "segment", "all"])
def test_a_state_that_is_gone_is_made_again_from_the_events(ws, merge, lost):
    ds = ws.create(merge, merge=getattr(tl.merge, merge)("id"))
    old = dying.OLD.append_column("op", pa.array([0] * 20)) if merge == "changelog" else dying.OLD
    new = dying.NEW.append_column("op", pa.array([0] * 30)) if merge == "changelog" else dying.NEW
    ds.append(old)
    if merge == "upsert":
        ds.append(pa.table({"id": [3, 4], "city": [None, "Zug"], "op": [1, 0]}))
    folder = Path(ws.location) / "datasets" / merge / "checkpoints"
    checkpoint = ds.chain.tail().checkpoint
    for file in list(folder.iterdir()):
        if lost == "all" or (file.name == checkpoint) == (lost == "checkpoint"):
            file.unlink()
    assert ds.append(new).rows
    check_state(ds)
    again = ds.append(new) if merge != "changelog" else None
    assert again is None or again.rows == 0


# --- hostile files and columns --------------------------------------------------------


def write(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["two\nlines.csv", "中文 é.csv", "a" * 250 + ".csv", "[x]*.csv", "-rf.csv"])
def test_odd_names_of_files_are_names(ws, tmp_path, name):
    ds = ws.create("x")
    path = write(tmp_path / name, "x\n1\n")
    assert ds.append(path).files == (str(path),)
    assert ds.append(path).skipped == (str(path),)
    assert next(iter(ds.log())).files == (str(path),)
    assert ds.verify().ok


def test_a_name_that_is_not_text_is_refused(ws, tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv")
    Path(path).write_text("x\n1\n")
    with pytest.raises(InputError) as refused:
        ws.create("x").append(path)
    assert refused.value.code == "BadFileName"


@pytest.mark.parametrize("key", ["\ud800", "", "x" * 513, 7])
def test_what_cannot_be_a_key_is_refused(ds, key):
    with pytest.raises(InputError) as refused:
        ds.append([{"x": 1}], idempotency_key=key)
    assert refused.value.code == "BadKey"


def test_what_is_no_file_is_refused(ws, tmp_path):
    ds = ws.create("x")
    os.mkfifo(tmp_path / "fifo.csv")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    for name in ("fifo.csv", "folder.csv", "loop.csv", "none.csv"):
        with pytest.raises(tl.errors.TruelineError, match=name):
            ds.append(tmp_path / name)


def test_a_file_that_is_written_to_while_it_is_read_is_refused(ws, tmp_path, monkeypatch):
    ds = ws.create("x", schema=pa.schema({"x": pa.int64()}))
    path = write(tmp_path / "a.csv", "x\n" + "1\n" * 100_000)
    write_piece = pieces.PieceWriter.write

    def growing(self, rows):
        with path.open("a") as file:
            file.write("2\n")
        write_piece(self, rows)

    head = ds.head
    with monkeypatch.context() as patched:
        patched.setattr(pieces.PieceWriter, "write", growing)
        with pytest.raises(InputError) as refused:
            ds.append(path)
    assert refused.value.code == "FileChanged"
    assert ds.head == head
    assert ds.append(path).rows > 100_000


def test_a_file_that_changes_between_hashing_and_reading_is_refused(ws, tmp_path, monkeypatch):
    ds = ws.create("x")
    path = write(tmp_path / "a.csv", "x\n1\n")
    identify = files.identify

    def changed(file):
        found = identify(file)
        path.write_text("x\n1\n2\n")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(files, "identify", changed)
        with pytest.raises(InputError) as refused:
            ds.append(path)
    assert refused.value.code == "FileChanged"


@pytest.mark.parametrize("name", ["_key", "_gone", "_rank", "_offset", "_order"])
def test_columns_that_merging_needs_for_itself_are_refused_with_a_key_and_fine_without(ws, name):
    table = pa.table({"id": [1, 2], name: ["a", "b"]})
    with pytest.raises(SchemaError) as refused:
        ws.create("keyed", merge=tl.merge.upsert("id")).append(table)
    assert refused.value.code == "ReservedColumn"
    ds = ws.create("plain")
    ds.append(table)
    assert records(ds)[name].to_pylist() == ["a", "b"]


@pytest.mark.parametrize("ops", [["a"], [1 << 40], [1.5]])
def test_operations_that_are_none_are_refused(ws, ops):
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    for data in (pa.table({"id": [1], "op": ops}), [{"id": 1, "op": ops[0]}]):
        with pytest.raises(SchemaError) as refused:
            ds.append(data)
        assert refused.value.code == "BadOp"


def test_operations_come_from_files_too(ws, tmp_path):
    ds = ws.create("log", merge=tl.merge.changelog("id"))
    ds.append(write(tmp_path / "a.csv", "op,id,city\n0,1,Bern\n0,2,Zug\n2,1,Bern\n3,1,Thun\n1,2,Zug\n"))
    assert state(ds) == {1: {"event_time": None, "id": 1, "city": "Thun", "_offset": 2}}
    upsert = ws.create("up", merge=tl.merge.upsert("id"))
    upsert.append(write(tmp_path / "b.csv", "id,city\n1,Bern\n2,Zug\n"))
    upsert.append(write(tmp_path / "c.csv", "id,op\n1,1\n"))
    assert list(state(upsert)) == [2]
    with pytest.raises(InputError) as refused:
        upsert.append(write(tmp_path / "d.csv", "id,op\n2,one\n"))
    assert refused.value.code == "BadOp"
    assert list(state(upsert)) == [2]


def test_a_snapshot_of_several_files_counts_all_of_them_also_those_that_are_known(ws, tmp_path):
    ds = ws.create("x", merge=tl.merge.snapshot("id"))
    a, b = write(tmp_path / "a.csv", "id\n1\n2\n"), write(tmp_path / "b.csv", "id\n3\n")
    ds.append([a, b])
    assert ds.append([a, b]).rows == 0
    ds.append([a, write(tmp_path / "c.csv", "id\n4\n")])
    assert sorted(state(ds)) == [1, 2, 4]


def test_nothing_at_all_is_not_a_snapshot_of_nothing(ws):
    ds = ws.create("x", merge=tl.merge.snapshot("id"))
    ds.append(dying.OLD)
    assert ds.append([], watermark="2026-01-01").rows == 0
    assert len(state(ds)) == 20
    ds.append(dying.OLD.slice(0, 0), allow_empty=True)
    assert state(ds) == {}


@pytest.mark.parametrize("merge", ["append", "upsert", "ledger", "snapshot"])
def test_files_without_rows_and_files_that_are_known_change_nothing(ws, tmp_path, merge):
    key = () if merge == "append" else ("id",)
    ds = ws.create(merge, merge=getattr(tl.merge, merge)(*key))
    full = write(tmp_path / "a.csv", dying.FILES["a.csv"])
    empty = write(tmp_path / "empty.csv", "id,city\n")
    ds.append(full)
    assert ds.append(full).rows == 0
    if merge != "snapshot":
        assert ds.append([full, empty]).rows == 0
        assert ds.append(empty).skipped == (str(empty),)
    assert ds.info.rows == 15
    assert ds.verify().ok


def test_more_files_than_a_commit_can_list_are_refused_before_any_is_read(ws, tmp_path, monkeypatch):
    ds = ws.create("x", schema=pa.schema({"x": pa.int64()}))
    paths = [write(tmp_path / f"{n}.csv", f"x\n{n}\n") for n in range(30)]
    monkeypatch.setattr(files, "BYTES_OF_ALL_NOTES", 6_000)
    with monkeypatch.context() as patched:
        patched.setattr(files, "read_files", None)
        with pytest.raises(InputError) as refused:
            ds.append(paths)
    assert refused.value.code == "TooManyFiles"
    assert ds.info.rows == 0
    assert ds.append(paths[:10]).rows == 10


def test_an_ingest_that_fails_in_one_of_its_threads_leaves_nothing_behind(ws, small, monkeypatch):
    ds = ws.create("x")
    ds.append(dying.OLD)
    from trueline.dataset.append import slices as writing

    write_slice, seen, lock = writing.write_slice, [], threading.Lock()

    def torn(*args):
        with lock:
            seen.append(args)
            if len(seen) == 3:
                raise RuntimeError
        return write_slice(*args)

    with monkeypatch.context() as patched:
        patched.setattr(writing, "write_slice", torn)
        with pytest.raises(tl.errors.TaskFailed):
            ds.append(dying.NEW)
    assert ds.info.rows == 20
    ws.gc(older_than=0)
    assert leftovers(Path(ws.location), "x") == []
    assert ds.append(dying.NEW).offsets == range(20, 50)
    assert ds.verify().ok
