"""A commit without its data, in folders and in memory: leases that strangers remove, clocks set back."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.test_object_leases import DAY, block_text, clock_ahead, collected, whole
from tests.chain.store.ledger import commit
from tests.faults import WatchedFiles
from trueline.chain.store.file import FileStore
from trueline.chain.store.memory import MemoryStore
from trueline.chain.store.store import Folder, Store
from trueline.errors import RetryError
from trueline.identity.multihash import Multihash

pytestmark = pytest.mark.contract("guard:G5")


def in_flight(store: Store, first: Multihash) -> Multihash:
    """Data that has its name already, and a block that refers to it."""
    data = store.put(Folder.DATA, b"slice")
    store.sync()
    return store.put(Folder.BLOCKS, block_text(first, "late", data))


def test_a_lease_file_that_a_stranger_removed_stops_the_commit(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "ds")
    first = commit(store, b"first")
    with store.lease():
        block = in_flight(store, first)
        store.sync()
        for name in (f"data/{Multihash.of(b'slice')}", f"blocks/{block}"):
            # A file system's clock stands still within a tick.
            os.utime(tmp_path / "ds" / name, (1, 1))
        shutil.rmtree(tmp_path / "ds" / "private" / "leases")
        (tmp_path / "ds" / "private" / "leases").mkdir()
        assert len(collected(FileStore(tmp_path / "ds")).removed) == 2
        with pytest.raises(RetryError) as caught:
            store.move_head(block, expected=first)
    assert caught.value.code == "LeaseLost"
    assert store.head() == first
    again = FileStore(tmp_path / "ds")
    commit(again, b"slice", note="again")
    assert whole(again) == ["again", ""]


@pytest.mark.parametrize("implicit", [True, False])
def test_a_lost_lease_does_not_stop_later_commits_of_the_same_store(tmp_path: Path, implicit: bool) -> None:
    store = FileStore(tmp_path / "ds")
    first = commit(store, b"first")
    if implicit:
        block = in_flight(store, first)
        lost(tmp_path)
        with pytest.raises(RetryError, match="lease"):
            store.move_head(block, expected=first)
    else:
        with store.lease():
            block = in_flight(store, first)
            lost(tmp_path)
            with pytest.raises(RetryError, match="lease"):
                store.move_head(block, expected=first)
    commit(store, b"slice", note="again")
    assert whole(store) == ["again", ""]


def lost(tmp_path: Path) -> None:
    for lease in (tmp_path / "ds" / "private" / "leases").iterdir():
        lease.unlink()


def test_a_clock_that_was_set_back_during_a_commit_stops_it(tmp_path: Path) -> None:
    """Its objects have times from before its lease: a collection would take them for left over."""
    store = FileStore(tmp_path / "ds")
    first = commit(store, b"first")
    with store.lease():
        (lease,) = (tmp_path / "ds" / "private" / "leases").iterdir()
        later = time.time() + 3600
        os.utime(lease, (later, later))
        block = in_flight(store, first)
        with pytest.raises(RetryError, match="clock"):
            store.move_head(block, expected=first)
    assert store.head() == first
    commit(store, b"slice")


def test_a_collection_asks_for_leases_while_no_head_moves(tmp_path: Path) -> None:
    """A commit looks at its lease and moves the head under one lock, which the collection waits for."""
    lock = tmp_path / "ds" / "private" / "head.lock"
    held: dict[str, bool] = {}

    def is_held() -> bool:
        fd = os.open(lock, os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def before(_number: int, name: str, args: tuple[Any, ...]) -> None:
        if name == "entries" and "leases" in str(Path(f"/proc/self/fd/{args[0]}").readlink()):
            held["leases"] = is_held()
        if name == "rename":
            held["head"] = is_held()

    files = WatchedFiles()
    store = FileStore(tmp_path / "ds", files=files)
    commit(store, b"first")
    files.before = before
    commit(store, b"second")
    collected(store)
    assert held == {"head": True, "leases": True}


def test_the_time_of_a_memory_store_does_not_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    first = commit(store, b"first")
    with store.lease():
        with clock_ahead(monkeypatch, -DAY):
            block = in_flight(store, first)
            store.sync()
        assert collected(store).removed == []
        store.move_head(block, expected=first)
    assert len(whole(store)) == 2
