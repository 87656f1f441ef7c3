"""Open snapshots hold what they read against `gc`, for as long as their process lives."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from obstore.exceptions import PermissionDeniedError

import trueline as tl
from tests.architecture import ROOT
from trueline.chain.instant import Instant
from trueline.chain.store.store import Folder
from trueline.errors import CutGone, StoreError
from trueline.workspace import small_objects
from trueline.workspace.small_objects import FolderObjects
from trueline.workspace.snapshot import lease


@pytest.mark.contract("cut:P17")
def test_an_open_snapshot_is_spared_by_gc_and_a_closed_one_is_not(bank):
    ws = bank.workspace
    first = bank.transfer(3)
    second = bank.transfer(3)
    store = ws["transfers"].chain.store
    with ws.snapshot("transfers") as snap:
        assert snap.at["transfers"] == second
        ws["transfers"].chain.reset(first.block)
        with tl.open(ws.location) as other:
            other.gc(older_than=0)
        assert store.size(Folder.BLOCKS, second.block) is not None
        assert snap["transfers"].count() == 6, "what a reset cut off is still read"
        assert ws["transfers"].view().count() == 3
    ws.gc(older_than=0)
    assert store.size(Folder.BLOCKS, second.block) is None
    other = ws.snapshot("transfers", at="head")
    with pytest.raises(CutGone, match="a reset has cut it off"):
        replace(other, positions=snap.positions)["transfers"]


@pytest.mark.contract("cut:P17")
def test_what_was_removed_on_purpose_is_held_by_nothing(bank):
    """Neither an open snapshot nor a tag nor a cut shows it; what was computed from it stays."""
    ws, transfers = bank.workspace, bank.workspace["transfers"]
    first = bank.transfer(2)
    bank.pull("credits")
    bank.transfer(2)
    bank.pull("credits")
    earlier, newest = ws.snapshot("transfers", "credits", cut=1), ws.snapshot("transfers", "credits")
    ws.tag("q3", earlier)

    def shown():
        again = (ws.snapshot("transfers", "credits", cut=1), ws.snapshot("transfers", "credits", at="q3"))
        for snap in (earlier, *again):
            assert snap.cut == {"transfers": 1}
            assert snap["credits"].to_arrow().to_pylist() == bank.expected(1)["credits"]
        assert newest["credits"].to_arrow().to_pylist() == bank.expected(3)["credits"]
        counts = {snap["transfers"].count() for snap in (earlier, *again)}
        return (*counts, newest["transfers"].count())

    assert shown() == (2, 4)
    transfers.drop_data(where="sender = 0", reason="a request")
    assert shown() == (1, 3)
    transfers.drop_data(upto=first, reason="a limit")
    assert shown() == (0, 2)


def test_leases_of_processes_that_died_expire(bank, monkeypatch):
    ws = bank.workspace
    first = bank.transfer(3)
    second = bank.transfer(3)
    snap = ws.snapshot("transfers")
    ws["transfers"].chain.reset(first.block)
    now = Instant.now()
    monkeypatch.setattr(lease, "Instant", Later)
    Later.time = Instant(now + 50 * 60 * 10**9)
    assert snap["transfers"].count() == 6, "reading renews it"
    Later.time = Instant(now + 100 * 60 * 10**9)
    ws.gc(older_than=0)
    assert snap["transfers"].count() == 6
    Later.time = Instant(now + 200 * 60 * 10**9)
    ws.gc(older_than=0)
    assert ws["transfers"].chain.store.size(Folder.BLOCKS, second.block) is None


def test_an_open_snapshot_that_nobody_asks_for_anything_is_held(bank, monkeypatch):
    ws, now = bank.workspace, Instant.now()
    keeper = lease.LeaseKeeper(pause=0.001)
    Later.time = now
    monkeypatch.setattr(lease, "Instant", Later)
    monkeypatch.setattr(lease, "KEEPER", keeper)
    first, second = bank.transfer(3), bank.transfer(3)
    snap = ws.snapshot("transfers")
    ws["transfers"].chain.reset(first.block)
    renewed = threading.Event()
    snap.lease.objects = Telling(snap.lease.objects, renewed)
    Later.time = Instant(now + 50 * 60 * 10**9)
    assert renewed.wait(60)
    Later.time = Instant(now + 100 * 60 * 10**9)
    ws.gc(older_than=0)
    assert ws["transfers"].chain.store.size(Folder.BLOCKS, second.block) is not None
    thread = keeper._thread
    snap.close()
    thread.join(60)
    assert keeper._thread is None, "it ends with the last of them"
    ws.gc(older_than=0)
    assert ws["transfers"].chain.store.size(Folder.BLOCKS, second.block) is None


@pytest.mark.contract("cut:P17")
def test_a_snapshot_that_cannot_be_held_is_not_given(bank, monkeypatch):
    """A store that fails once may serve `gc` the next moment; later it has half of an hour to come back."""
    ws, now = bank.workspace, Instant.now()
    monkeypatch.setattr(lease, "Instant", Later)
    Later.time = now
    first, second = bank.transfer(3), bank.transfer(3)
    failing = StoreError("no answer", remedy="try again")
    with monkeypatch.context() as patch:
        patch.setattr(FolderObjects, "put", raising(failing))
        with pytest.raises(StoreError, match="no answer"):
            ws.snapshot("transfers")
    snap = ws.snapshot("transfers")  # as the remedy says
    ws["transfers"].chain.reset(first.block)
    Later.time = Instant(now + 50 * 60 * 10**9)
    with monkeypatch.context() as patch:
        patch.setattr(FolderObjects, "put", raising(failing))
        assert snap["transfers"].count() == 6
    assert snap["transfers"].count() == 6, "and it is renewed"
    Later.time = Instant(now + 100 * 60 * 10**9)
    ws.gc(older_than=0)
    assert ws["transfers"].chain.store.size(Folder.BLOCKS, second.block) is not None


@pytest.mark.parametrize("place", ["folder", "objects"])
def test_a_place_that_nobody_can_write_to_gives_snapshots(place, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    where = tmp_path / "ws" if place == "folder" else "memory://read-only/ws"
    with tl.open(where, create=True) as ws:
        ws.create("sales").append([{"x": 1}])
        if place == "folder":
            monkeypatch.setattr(small_objects, "_write", raising(OSError(errno.EROFS, "read-only")))
        else:
            monkeypatch.setattr("obstore.put", raising(PermissionDeniedError("no")))
        with ws.snapshot("sales") as snap:
            assert snap["sales"].count() == 1
        assert ws._location.cuts().names("pinned") == []


def raising(error):
    def refuse(*_args, **_kwargs):
        raise error

    return refuse


FORKING = """
import os, sys, trueline as tl
with tl.open(sys.argv[1]) as ws:
    snap = ws.snapshot("transfers")
    if not (child := os.fork()):
        sys.exit(0)
    os.waitpid(child, 0)
    print(*ws._location.cuts().names("pinned"))
    os._exit(0)
"""


@pytest.mark.parametrize("ending", ["forgets", "closes"])
def test_a_forked_child_that_is_done_with_a_snapshot_leaves_it_to_its_parent(bank, ending):
    ws = bank.workspace
    first, second = bank.transfer(3), bank.transfer(3)
    snap = ws.snapshot("transfers")
    if not (child := os.fork()):
        signal.alarm(20)  # it would hang
        if ending == "closes":
            snap.close()
        else:
            del snap
            gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    ws["transfers"].chain.reset(first.block)
    assert ws.gc(older_than=0).objects == 0
    assert snap["transfers"].count() == 6
    snap.close()
    ws.gc(older_than=0)
    assert ws["transfers"].chain.store.size(Folder.BLOCKS, second.block) is None


def test_a_forked_child_that_ends_leaves_the_snapshots_of_its_parent(bank):
    bank.transfer(3)
    command = [sys.executable, "-c", FORKING, bank.workspace.location]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) == 1, done.stderr


class Telling:
    """Small objects that tell when one was put."""

    def __init__(self, objects, told):
        self._objects, self._told = objects, told

    def put(self, name, data):
        self._objects.put(name, data)
        self._told.set()

    def __getattr__(self, name):
        return getattr(self._objects, name)


class Later(Instant):
    time = Instant(0)

    @classmethod
    def now(cls):
        return cls.time
