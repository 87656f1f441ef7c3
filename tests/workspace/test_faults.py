"""What breaks around a workspace: clear errors, and nothing damaged."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from contextlib import suppress

import pyarrow as pa
import pytest

import trueline as tl
from tests.faults import CAN_BE_FULL, WatchedFiles, failing
from tests.workspace.records import column
from trueline.chain.store import file as file_store
from trueline.errors import (
    CorruptionError,
    HeadMissing,
    OutcomeUnknown,
    StorageFull,
    StorageReadOnly,
    StoreError,
)
from trueline.identity.multihash import Multihash


@pytest.fixture
def filled(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws:
        ds = ws.create("trades")
        for n in range(3):
            ds.append(pa.table({"x": [n]}))
        head = ds.head
    return tmp_path / "ws", head


def test_a_missing_head_is_a_clear_error_that_names_the_last_known(filled):
    path, head = filled
    (path / "datasets" / "trades" / "refs" / "head").unlink()
    files = sorted(path.rglob("*/f1620*"))
    for with_index in (True, False):
        if not with_index:
            (path / ".trueline" / "index" / "trades.sqlite").unlink()
        with tl.open(path) as ws:
            assert "trades" in ws
            ds = ws["trades"]
            for use in (
                lambda ds: ds.head,
                lambda ds: ds.info,
                lambda ds: ds.append(pa.table({"x": [9]})),
                lambda ds: list(ds.log()),
                lambda ds: ds._workspace.create("trades"),
            ):
                with pytest.raises(HeadMissing, match=head) as caught:
                    use(ds)
                assert caught.value.last_known == head
            report = ws.verify()
            assert not report.ok
            assert head in report.problems[0].message
    assert sorted(path.rglob("*/f1620*")) == files
    refs = path / "datasets" / "trades" / "refs"
    refs.mkdir(exist_ok=True)
    (refs / "head").write_text(head)
    with tl.open(path) as ws:
        assert ws.verify().ok
        assert ws["trades"].append(pa.table({"x": [9]})).offsets == range(3, 4)


@pytest.mark.parametrize("garbage", [b"", b"nonsense", b"\xff" * 10, b"x" * 10_000])
def test_a_garbled_head_is_a_clear_error(filled, garbage):
    path, _ = filled
    (path / "datasets" / "trades" / "refs" / "head").write_bytes(garbage)
    with tl.open(path) as ws:
        assert list(ws) == ["trades"]
        with pytest.raises(CorruptionError, match="head"):
            _ = ws["trades"].head
        assert not ws.verify().ok
        with pytest.raises(CorruptionError):
            ws.create("trades")


def test_a_changed_slice_is_found_with_its_block(filled):
    path, _ = filled
    with tl.open(path) as ws:
        ds = ws["trades"]
        commit = list(ds.log())[1]
        block = ds.chain.block(commit.block)
        name = block.data_event.new_data.physical_hash
        file = path / "datasets" / "trades" / "data" / name
        raw = bytearray(file.read_bytes())
        raw[50] ^= 1
        file.write_bytes(raw)
        (problem,) = ws.verify().problems
        assert (problem.block, problem.kind) == (commit.block, "corrupt")
        assert name in problem.message
        assert Multihash.of(raw) in problem.message
        file.unlink()
        (problem,) = ws.verify("trades").problems
        assert (problem.block, problem.kind) == (commit.block, "missing")


def test_a_changed_block_is_found(filled):
    path, head = filled
    file = path / "datasets" / "trades" / "blocks" / head
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    with tl.open(path) as ws:
        (problem,) = ws.verify().problems
    assert "trades" in problem.message
    assert head in problem.message


@pytest.mark.parametrize("junk", [b"", b"not a database" * 100])
def test_a_damaged_or_lost_index_is_made_anew(filled, junk):
    path, head = filled
    index = path / ".trueline" / "index" / "trades.sqlite"
    for beside in index.parent.iterdir():
        beside.unlink()
    index.write_bytes(junk)
    with tl.open(path) as ws:
        ds = ws["trades"]
        assert (ds.head, ds.info.rows, ds.info.commits) == (head, 3, 4)
        assert ds.append(pa.table({"x": [3]})).offsets == range(3, 4)


def test_foreign_things_in_the_folders_are_passed_over(filled):
    path, head = filled
    folder = path / "datasets"
    (folder / "readme.txt").write_text("hello")
    (folder / ".hidden").mkdir()
    (folder / "not a name").mkdir()
    (folder / "empty").mkdir()
    for within in ("blocks", "data", "refs", "private", "."):
        # A file among the refs with a name that a ref may have is one, and has to hold a block.
        name = "junk (1).txt" if within == "refs" else "junk.txt"
        (folder / "trades" / within / name).write_text("junk")
        (folder / "trades" / within / "junk").mkdir()
    with tl.open(path) as ws:
        assert list(ws) == ["trades"]
        assert ws["trades"].head == head
        assert ws.verify().ok
        assert ws.gc(older_than=0).objects == 0
        assert ws["trades"].append(pa.table({"x": [3]})).rows == 1
    assert (folder / "trades" / "data" / "junk.txt").read_text() == "junk"


def operations_of_an_append(tmp_path, monkeypatch) -> int:
    with tl.open(tmp_path / "count", create=True) as ws:
        ws.create("trades").append(pa.table({"x": [0]}))
    with monkeypatch.context() as patched:
        files = WatchedFiles()
        patched.setattr(file_store, "Files", lambda: files)
        with tl.open(tmp_path / "count") as ws:
            ds = ws["trades"]
            assert ds.head
            files.forget()
            ds.append(pa.table({"x": [1]}))
            return sum(files.counts[name] for name in CAN_BE_FULL)


def test_a_full_disk_at_any_moment_leaves_the_old_head_or_the_new_one(tmp_path, monkeypatch):
    count = operations_of_an_append(tmp_path, monkeypatch)
    assert count > 5
    with tl.open(tmp_path / "ws", create=True) as ws:
        ws.create("trades").append(pa.table({"x": [0]}))
    rows = 1
    for at in range(1, count + 1):
        with monkeypatch.context() as patched:
            files = WatchedFiles()
            patched.setattr(file_store, "Files", lambda files=files: files)
            with tl.open(tmp_path / "ws") as ws:
                ds = ws["trades"]
                before = ds.head
                files.forget()
                bad = failing(at, errno.ENOSPC, CAN_BE_FULL)
                files.before = bad.before
                with suppress(StorageFull, OutcomeUnknown):
                    ds.append(pa.table({"x": [rows]}))
                files.before = None
        with tl.open(tmp_path / "ws") as ws:
            ds = ws["trades"]
            moved = ds.head != before
            rows += moved
            assert ds.info.rows == rows, at
            assert ds.verify().ok
    with tl.open(tmp_path / "ws") as ws:
        assert ws["trades"].append(pa.table({"x": [rows]})).rows == 1
        assert column(ws["trades"], "x") == list(range(rows + 1))


def test_a_full_disk_during_an_append_leaves_the_dataset_usable(filled, monkeypatch):
    path, head = filled
    files = WatchedFiles()
    monkeypatch.setattr(file_store, "Files", lambda: files)
    with tl.open(path) as ws:
        ds = ws["trades"]
        assert ds.head == head

        def full(number, name, args):
            if name == "write":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        files.before = full
        with pytest.raises(StorageFull, match="No space left") as caught:
            ds.append(pa.table({"x": [9]}))
        assert "gc" in caught.value.remedy
        assert ds.head == head
        files.before = None
        assert ds.append(pa.table({"x": [3]})).offsets == range(3, 4)
        assert ds.verify().ok


AS_NOBODY = """
import json, os, sys
import pyarrow as pa, trueline as tl
# Everything is imported before: Python itself may be where nobody can read it.
with tl.open(sys.argv[2], create=True) as ws:
    ds = ws.create("trades")
    ds.append(pa.table({"x": [9]}))
    ws.config.set("gc.older_than", "2h")
    ws.verify(), ds.info, list(ds.log()), ds.health(), ws.gc()
os.setuid(65534)
said = {}
with tl.open(sys.argv[1]) as ws:
    ds = ws["trades"]
    said["rows"] = ds.info.rows
    said["ok"] = ws.verify().ok
    said["log"] = len(list(ds.log()))
    said["health"] = ds.health().index
    for name, use in (
        ("append", lambda: ds.append(pa.table({"x": [9]}))),
        ("create", lambda: ws.create("other")),
        ("config", lambda: ws.config.set("gc.older_than", "2h")),
        ("gc", lambda: ws.gc(older_than=0)),
    ):
        try:
            use()
            said[name] = "done"
        except tl.errors.TruelineError as error:
            said[name] = type(error).__name__
print(json.dumps(said))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
def test_a_folder_that_cannot_be_written_can_be_read_and_refuses_the_rest(filled):
    path, _ = filled
    for folder in (*path.parents, path):
        if folder.stat().st_uid == 0 and not folder.stat().st_mode & 0o005:
            folder.chmod(0o755)
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    command = [sys.executable, "-c", AS_NOBODY, str(path), str(path.parent / "other")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["rows"], said["ok"], said["log"]) == (3, True, 4)
    assert {said[name] for name in ("append", "create", "config", "gc")} == {"StorageReadOnly"}
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before


def test_errors_of_storage_are_of_the_kind_that_may_be_tried_again():
    assert issubclass(StorageReadOnly, StoreError)
    assert issubclass(StorageFull, tl.errors.RetryError)
