"""In which order a file store does things, and how many it needs."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.chain.store.ledger import commit, walk
from tests.faults import WatchedFiles
from trueline.chain.store import staging
from trueline.chain.store.file import FileStore
from trueline.chain.store.files import Files, syncfs
from trueline.chain.store.store import Folder
from trueline.errors import ObjectMissing, StoreError
from trueline.identity.multihash import Multihash


def opened(tmp_path: Path, **options: Any) -> tuple[FileStore, WatchedFiles]:
    """A store with one commit behind it, and its operations from here on."""
    files = WatchedFiles()
    store = FileStore(tmp_path / "ds", files=files, **options)
    commit(store, b"first")
    files.forget()
    return store, files


def path_of(fd: int) -> str:
    return str(Path(f"/proc/self/fd/{fd}").readlink())


def is_free(path: Path, how: int) -> bool:
    """Whether a lock could be had."""
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def test_a_commit_of_a_slice_and_a_block_costs_six_fsyncs(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    commit(store, b"slice")
    assert files.counts["fsync"] == 6
    assert files.counts["syncfs"] == 0
    assert files.counts["create"] == 3
    assert files.counts["make_folder"] == files.counts["open_folder"] == 0


def test_slice_block_and_head_are_synced_at_the_same_time_and_then_their_folders(tmp_path: Path) -> None:
    """Counted by threads that meet: were they synced one after another, the first would wait in vain."""
    store, files = opened(tmp_path)
    meeting = {"files": threading.Barrier(3, timeout=30), "folders": threading.Barrier(2, timeout=30)}

    class Meeting(WatchedFiles):
        def fsync(self, fd: int) -> None:
            path = path_of(fd)
            if "staging" in path:
                meeting["files"].wait()
            elif not path.endswith("refs"):
                meeting["folders"].wait()
            super().fsync(fd)

    files.__class__ = Meeting
    commit(store, b"slice " * 1000)
    assert len(list(walk(store))) == 2
    assert files.counts["fsync"] == 6


def test_a_store_that_need_not_last_syncs_nothing(tmp_path: Path) -> None:
    store, files = opened(tmp_path, durable=False)
    for number in range(40):
        store.put(Folder.DATA, b"%d" % number)
    commit(store, b"slice")
    assert files.counts["fsync"] == files.counts["syncfs"] == 0
    assert len(list(walk(store))) == 2


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system whose syncfs is trusted, whatever the tests run on."""
    monkeypatch.setattr(Files, "syncfs", lambda _files, fd: syncfs(fd) or True)


def test_a_file_system_can_be_synced_as_a_whole_or_says_that_it_cannot(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    assert syncfs(fd) in (True, False)
    os.close(fd)
    # A closed descriptor has no file system to be trusted.
    assert syncfs(fd) is False


@pytest.mark.usefixtures("trusted")
def test_thousands_of_objects_cost_one_sync(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    head = store.head()
    blocks = [store.put(Folder.BLOCKS, b"block %d" % number) for number in range(3000)]
    assert files.counts["fsync"] == files.counts["syncfs"] == 0
    store.move_head(blocks[-1], expected=head)
    assert files.counts["syncfs"] == 1
    # The folder of blocks, the head and its folder.
    assert files.counts["fsync"] == 3
    assert all(store.get(Folder.BLOCKS, block) for block in blocks)


def test_where_syncfs_is_not_to_be_had_every_file_is_synced(tmp_path: Path) -> None:
    class NoSyncfs(WatchedFiles):
        def syncfs(self, fd: int) -> bool:
            return False

    files = NoSyncfs()
    store = FileStore(tmp_path / "ds", files=files)
    commit(store, b"first")
    files.forget()
    for number in range(40):
        store.put(Folder.DATA, b"%d" % number)
    store.sync()
    assert files.counts["fsync"] == 41


@pytest.mark.usefixtures("trusted")
def test_what_is_staged_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "STAGED_AT_MOST", 50)
    store, files = opened(tmp_path)
    for number in range(120):
        store.put(Folder.DATA, b"%d" % number)
        assert len(store._staging._staged) <= 50
    assert files.counts["syncfs"] == 2
    commit(store, b"last")
    assert sum(1 for _ in store.list(Folder.DATA)) == 122


@pytest.mark.parametrize("first", [True, False], ids=["first commit", "later commit"])
@pytest.mark.parametrize("objects", [2, 40])
@pytest.mark.parametrize("size", [10, 10_000])
def test_nothing_is_named_before_it_is_durable(tmp_path: Path, objects: int, size: int, first: bool) -> None:
    """Replays the log: a name may be given only to synced bytes, the head only when all names are synced."""
    files = WatchedFiles()
    store = FileStore(tmp_path / "ds", files=files)
    if not first:
        commit(store, b"first")
        files.forget()
    unsynced_bytes: set[str] = set()
    unsynced_names: set[str] = set()
    heads = 0

    def before(_number: int, name: str, args: tuple[Any, ...]) -> None:
        nonlocal heads
        if name == "write":
            unsynced_bytes.add(path_of(args[0]))
        elif name in ("link", "rename"):
            assert f"{path_of(args[1])}/{args[0]}" not in unsynced_bytes
            if path_of(args[3]).endswith("refs"):
                assert unsynced_names == set()
                heads += 1
            unsynced_names.add(path_of(args[3]))
        elif name == "make_folder":
            above = path_of(args[1]) if len(args) > 1 else str(Path(args[0]).parent)
            if "private" not in f"{above}/{args[0]}":
                unsynced_names.add(above)

    def after(name: str, args: tuple[Any, ...]) -> None:
        # Files are synced at the same time: one is durable when its sync has ended, not when it begins.
        if name == "fsync":
            unsynced_bytes.discard(path_of(args[0]))
            unsynced_names.discard(path_of(args[0]))
        elif name == "syncfs":
            unsynced_bytes.clear()

    files.before, files.after = before, after
    commit(store, *((b"%d" % number).rjust(size) for number in range(objects)))
    assert heads == 1
    assert unsynced_names == set()


def test_an_object_relied_on_is_renewed_while_nobody_can_remove_it(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    lock = tmp_path / "ds" / "private" / "gc.lock"
    free: dict[str, bool] = {}

    def before(_number: int, name: str, args: tuple[Any, ...]) -> None:
        if name == "touch" and args[0].startswith("f1620"):
            free["touch"] = is_free(lock, fcntl.LOCK_EX)
        if name == "unlink" and args[0].startswith("f1620"):
            free["unlink"] = is_free(lock, fcntl.LOCK_SH)

    files.before = before
    commit(store, b"first")
    store.delete(Folder.DATA, Multihash.of(b"first"))
    assert free == {"touch": False, "unlink": False}


def test_a_lease_is_not_taken_for_dead_before_it_is_locked(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    private = tmp_path / "ds" / "private"
    store.close()
    free: dict[str, bool] = {}

    def before(_number: int, name: str, args: tuple[Any, ...]) -> None:
        if name == "lock" and path_of(args[0]).startswith(str(private / "leases")):
            free["taking"] = is_free(private / "gc.lock", fcntl.LOCK_EX)
        if name == "unlink" and args[0] == "host-1-2-dead":
            free["clearing"] = is_free(private / "gc.lock", fcntl.LOCK_SH)

    files.before = before
    with store.lease():
        taking = dict(free)
        (private / "leases" / "host-1-2-dead").touch()
        assert store.fence() is not None
    assert taking == {"taking": False}
    assert free["clearing"] is False
    assert not (private / "leases" / "dead").exists()


def test_the_head_is_compared_and_replaced_under_one_lock(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    lock = tmp_path / "ds" / "private" / "head.lock"
    free = []

    def before(_number: int, name: str, args: tuple[Any, ...]) -> None:
        if (name == "read" and args[0] == "head") or name == "rename":
            free.append(is_free(lock, fcntl.LOCK_SH))

    block = store.put(Folder.BLOCKS, b"next")
    head = store.head()
    files.before = before
    store.move_head(block, expected=head)
    assert free == [False, False]


def test_an_object_removed_while_it_is_being_relied_on_is_put_again(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    path = tmp_path / "ds" / "data" / Multihash.of(b"first")

    def before(_number: int, name: str, args: tuple[Any, ...]) -> None:
        if name == "size" and args[0] == path.name:
            path.unlink()

    files.before = before
    commit(store, b"first")
    assert path.read_bytes() == b"first"


def test_a_forked_child_leaves_its_parents_staging_alone(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    head = store.head()
    with store.lease():
        block = store.put(Folder.BLOCKS, b"of the parent")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                commit(store, b"of the child")
                store.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert store.oldest_lease() is not None
        assert store.get(Folder.BLOCKS, block) == b"of the parent"
        assert store.head() != head
        store.move_head(block, expected=store.head())
    assert store.get(Folder.BLOCKS, block) == b"of the parent"
    assert store.oldest_lease() is None


def test_a_writer_outlived_by_its_store_cannot_finish(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    writer = store.writer(Folder.DATA)
    writer.write(b"late")
    store.close()
    commit(store, b"other")
    with pytest.raises(StoreError, match="closed"):
        writer.finish()
    with pytest.raises(ObjectMissing):
        store.get(Folder.DATA, Multihash.of(b"late"))
    assert store.oldest_lease() is None


def test_readers_in_threads_find_objects_while_they_get_their_names(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "ds", durable=False)
    names = [store.put(Folder.DATA, b"object %d" % number) for number in range(2000)]
    lost: list[Exception] = []

    def read() -> None:
        try:
            for number, name in enumerate(names):
                assert store.get(Folder.DATA, name) == b"object %d" % number
        except Exception as error:  # noqa: BLE001
            lost.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    store.sync()
    for thread in threads:
        thread.join()
    assert lost == []


def test_a_closed_store_holds_no_descriptors(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    store = FileStore(tmp_path / "ds")
    commit(store, b"data")
    store.put(Folder.DATA, b"staged")
    store.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    left = {p.name for p in (tmp_path / "ds" / "private").rglob("*") if p.is_file()}
    assert left == {"head.lock", "gc.lock"}
