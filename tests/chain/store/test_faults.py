"""Full disks, folders that cannot be written, files that are not what they should be."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chain.store.ledger import commit, walk
from tests.faults import OPERATIONS, WatchedFiles, failing
from trueline.chain.store.file import FileStore
from trueline.chain.store.files import Files, refusal
from trueline.chain.store.store import Folder
from trueline.errors import (
    CorruptionError,
    ObjectMissing,
    OutcomeUnknown,
    StorageFull,
    StorageReadOnly,
    StoreError,
    TruelineError,
)
from trueline.identity.multihash import Multihash

ROOT = Path(__file__).parents[3]
# Operations that may need room on the disk, or may be forbidden.
CHANGING = frozenset(
    {"make_folder", "create", "write", "fsync", "link", "rename", "touch", "open_lock", "unlink"}
)


def staged(path: Path) -> list[str]:
    return sorted(p.name for p in (path / "private" / "staging").glob("*"))


def attempt(store: FileStore) -> TruelineError | None:
    try:
        commit(store, b"data", note="full")
    except TruelineError as error:
        return error
    return None


# --- a full disk ---------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False], ids=["first commit", "later commit"])
def test_a_disk_that_is_full_at_any_operation_damages_nothing(tmp_path: Path, first: bool) -> None:
    kinds = set()
    for at in itertools.count(1):
        path = tmp_path / str(at)
        if not first:
            commit(FileStore(path, durable=False), b"earlier", note="before")
        before = [note for _, note, _ in walk(FileStore(path))]
        files = failing(at, errno.ENOSPC, CHANGING)
        store = FileStore(path, files=files)
        error = attempt(store)
        kind = type(error) if error else None
        assert error is None or (str(path) in str(error) and error.remedy)
        found = [note for _, note, _ in walk(FileStore(path))]
        expected = {
            None: [["full", *before]],
            StorageFull: [before],
            OutcomeUnknown: [before, ["full", *before]],
        }
        assert found in expected[kind], f"operation {at}"
        if not files.failed:
            break
        kinds.add(kind)
        # The same instance goes on.
        commit(store, b"data", note="again")
        assert [note for _, note, _ in walk(store)] == ["again", *found]
        assert store.fence() is None
        assert staged(path) == [], f"operation {at}"
    # None: what fails after the work is done, such as tidying up, fails nothing.
    assert kinds == {StorageFull, OutcomeUnknown, None}


def test_a_put_that_fails_leaves_no_file_behind(tmp_path: Path) -> None:
    store = FileStore(tmp_path, files=failing(1, errno.ENOSPC, frozenset({"write"})))
    with store.lease():
        with pytest.raises(StorageFull):
            store.put(Folder.DATA, b"data")
        assert staged(tmp_path) == []
    writer_store = FileStore(tmp_path, files=failing(2, errno.EDQUOT, frozenset({"write"})))
    writer = writer_store.writer(Folder.DATA)
    writer.write(b"taken")
    with pytest.raises(StorageFull):
        writer.write(b"refused")
    assert staged(tmp_path) == []
    # Part of the second write may be in the file: it can never be finished.
    with pytest.raises(TruelineError):
        writer.finish()
    assert writer_store.oldest_lease() is None


@pytest.mark.parametrize("times", [1, 2000], ids=["synced with the head", "synced while it is hashed"])
def test_bytes_that_could_not_be_synced_are_given_up(tmp_path: Path, times: int) -> None:
    """A second fsync after a failed one would succeed without the bytes being on the disk."""
    store = FileStore(tmp_path, files=failing(1, errno.EIO, frozenset({"fsync"})))
    (tmp_path / "blocks").mkdir()
    block = store.put(Folder.BLOCKS, b"block" * times)
    with pytest.raises(StoreError) as caught:
        store.move_head(block, expected=None)
    assert caught.value.errno == errno.EIO
    with pytest.raises(ObjectMissing):
        store.move_head(block, expected=None)
    assert store.head() is None
    store.put(Folder.BLOCKS, b"block" * times)
    store.move_head(block, expected=None)
    assert store.head() == block


@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, StoreError), (errno.ENOSPC, StorageFull)])
def test_a_sync_that_fails_for_one_thread_fails_the_commits_of_all_that_staged_with_it(
    tmp_path: Path, number: int, kind: type[StoreError]
) -> None:
    """One store, two threads: the first one's failed fsync throws away the second one's slice too."""
    store = FileStore(tmp_path, files=failing(1, number, frozenset({"fsync"})))
    staged_it, failed, outcome = threading.Event(), threading.Event(), []

    def second() -> None:
        with store.lease():
            store.put(Folder.DATA, b"slice of the second")
            staged_it.set()
            failed.wait(10)
            block = store.put(Folder.BLOCKS, b"block of the second, put after the failure")
            try:
                store.move_head(block, expected=None)
            except StoreError as error:
                outcome.append(error)

    thread = threading.Thread(target=second)
    thread.start()
    staged_it.wait(10)
    with store.lease():
        store.put(Folder.BLOCKS, b"block of the first")
        with pytest.raises(StoreError):
            store.sync()
    failed.set()
    thread.join()
    assert [type(error) for error in outcome] == [kind]
    assert store.head() is None
    commit(store, b"data", note="later")
    assert [note for _, note, _ in walk(store)] == ["later"]


@pytest.mark.parametrize("busy", [True, False], ids=["with work meanwhile", "alone"])
def test_a_head_that_moved_without_the_disk_confirming_is_unknown(tmp_path: Path, busy: bool) -> None:
    commit(FileStore(tmp_path), b"data")
    files = WatchedFiles()
    store = FileStore(tmp_path, files=files)

    def before(_number: int, name: str, _args: tuple[object, ...]) -> None:
        if name == "fsync" and files.counts["rename"]:
            raise OSError(errno.EIO, "Input/output error")

    files.before = before
    done: list[bool] = []
    block = store.put(Folder.BLOCKS, b"unconfirmed")
    with pytest.raises(OutcomeUnknown) as caught:
        store.move_head(block, expected=store.head(), meanwhile=(lambda: done.append(True)) if busy else None)
    assert done == [True] * busy
    assert caught.value.new == FileStore(tmp_path).head()
    assert "refs/head" in str(caught.value)


def test_a_really_full_disk_is_told_and_survived(tmp_path: Path) -> None:
    mounted = tmp_path / "small"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mounted)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a small file system")
    try:
        store = FileStore(mounted / "ds")
        first = commit(store, b"small")
        with pytest.raises(StorageFull, match="No space left"):
            commit(store, os.urandom(1 << 20))
        assert store.head() == first
        assert staged(mounted / "ds") == []
        commit(store, b"small again")
        assert len(list(walk(store))) == 2
        store.close()
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


# --- a folder that cannot be written ---------------------------------------------

AS_ANOTHER_USER = """
import os, sys
from trueline.chain.store.file import FileStore
from trueline.chain.store.store import Folder
from trueline.errors import StorageReadOnly
from tests.chain.store.ledger import commit, walk
# Only now: the other user may not be able to read the code.
os.setgroups([]); os.setgid(65534); os.setuid(65534)
store = FileStore(sys.argv[1])
print([note for _, note, _ in walk(store)])
for act in (
    lambda: commit(store, b"x"),
    lambda: store.put(Folder.DATA, b"x"),
    lambda: store.writer(Folder.DATA),
    lambda: store.move_head(store.head(), expected=store.head()),
    lambda: store.delete(Folder.BLOCKS, store.head()),
):
    try:
        act()
    except StorageReadOnly as error:
        print(type(error).__name__, sys.argv[1] in str(error), bool(error.remedy))
print([note for _, note, _ in walk(store)])
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach, which pytest's own is not."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
@pytest.mark.parametrize("private", [True, False], ids=["written before", "copied without private"])
def test_a_folder_of_another_user_can_be_read_and_refuses_writes(open_folder: Path, private: bool) -> None:
    path = open_folder / "ds"
    store = FileStore(path)
    commit(store, b"data", note="readable")
    store.close()
    if not private:
        shutil.rmtree(path / "private")
    before = sorted(str(p) for p in path.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER_USER, str(path)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["['readable']", *["StorageReadOnly True True"] * 5, "['readable']"]
    assert sorted(str(p) for p in path.rglob("*")) == before


def test_reading_makes_nothing(tmp_path: Path) -> None:
    files = WatchedFiles()
    store = FileStore(tmp_path / "absent", files=files)
    assert store.head() is None
    assert store.oldest_lease() is None
    assert list(store.list(Folder.DATA)) == []
    assert store.size(Folder.DATA, Multihash.of(b"")) is None
    store.close()
    assert list(tmp_path.iterdir()) == []
    assert not CHANGING & set(files.counts)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EROFS, StorageReadOnly),
        (errno.EACCES, StorageReadOnly),
        (errno.EPERM, StorageReadOnly),
        (errno.EIO, StoreError),
        (errno.EXDEV, StoreError),
        (errno.ENOLCK, StoreError),
        (errno.EMFILE, StoreError),
    ],
)
def test_errors_of_the_system_name_the_place_and_the_remedy(code: int, kind: type[StoreError]) -> None:
    error = refusal(OSError(code, os.strerror(code)), "write to", "/lake/ds/data")
    assert type(error) is kind
    assert (error.errno, error.path) == (code, "/lake/ds/data")
    assert error.remedy
    assert os.strerror(code) in str(error)


# --- files that are not what they should be --------------------------------------


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\n", b"garbage", b"\xff\xfe\x00", b"f1620" + b"0" * 63, b"f1620" + b"g" * 64, b"x" * 5000],
)
def test_a_head_with_garbage_is_corruption_that_names_the_file(tmp_path: Path, garbage: bytes) -> None:
    store = FileStore(tmp_path)
    commit(store, b"data")
    (tmp_path / "refs" / "head").write_bytes(garbage)
    with pytest.raises(CorruptionError) as caught:
        store.head()
    assert caught.value.path == str(tmp_path / "refs" / "head")
    assert caught.value.remedy
    block = store.put(Folder.BLOCKS, b"next")
    with pytest.raises(CorruptionError):
        store.move_head(block, expected=None)
    assert (tmp_path / "refs" / "head").read_bytes() == garbage


@pytest.mark.parametrize("ending", ["", "\n", "\r\n", " \n"])
def test_a_head_may_end_in_a_line_end(tmp_path: Path, ending: str) -> None:
    store = FileStore(tmp_path)
    block = commit(store, b"data")
    assert (tmp_path / "refs" / "head").read_text() == block
    (tmp_path / "refs" / "head").write_text(block + ending)
    assert store.head() == block


def test_foreign_files_are_passed_over(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    block = commit(store, b"data")
    for name in (
        "README",
        ".hidden",
        "f1620",
        block + ".tmp",
        block.upper(),
        "f1620" + "z" * 64,
        "u" + "A" * 46,
    ):
        (tmp_path / "blocks" / name).write_bytes(b"foreign")
    (tmp_path / "blocks" / Multihash.of(b"folder")).mkdir()
    (tmp_path / "blocks" / Multihash.of(b"link")).symlink_to(tmp_path / "blocks" / block)
    (tmp_path / "private" / "staging" / "foreign").mkdir()
    (tmp_path / "private" / "leases" / "foreign").mkdir()
    assert [stored.hash for stored in store.list(Folder.BLOCKS)] == [block]
    assert store.oldest_lease() is None
    commit(store, b"more")
    assert len(list(walk(store))) == 2


@pytest.mark.parametrize("folder", list(Folder))
def test_a_folder_where_an_object_should_be_is_corruption(tmp_path: Path, folder: Folder) -> None:
    store = FileStore(tmp_path)
    commit(store, b"data")
    name = Multihash.of(b"object")
    (tmp_path / folder / name).mkdir(parents=True)
    for read in (store.get, store.open, store.size):
        with pytest.raises(CorruptionError, match=name):
            read(folder, name)
    store.put(folder, b"object")
    with pytest.raises(CorruptionError, match=name) as caught:
        store.sync()
    assert "move it away" in caught.value.remedy
    (tmp_path / folder / name).rmdir()
    store.sync()
    assert store.get(folder, name) == b"object"


def test_a_pipe_where_an_object_should_be_does_not_stop_the_reader(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    commit(store, b"data")
    name = Multihash.of(b"pipe")
    os.mkfifo(tmp_path / "blocks" / name)
    with pytest.raises(CorruptionError):
        store.get(Folder.BLOCKS, name)


def test_a_file_where_a_folder_should_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        store = FileStore(path)
        with pytest.raises(StoreError, match="file"):
            store.head()
        with pytest.raises(StoreError, match="file"):
            commit(store, b"data", expected=None)


@pytest.mark.parametrize("folder", list(Folder))
@pytest.mark.parametrize("damage", [b"", b"objec", b"object and more"])
def test_putting_an_object_mends_a_damaged_one(tmp_path: Path, folder: Folder, damage: bytes) -> None:
    store = FileStore(tmp_path)
    name = store.put(folder, b"object")
    store.sync()
    (tmp_path / folder / name).write_bytes(damage)
    store.put(folder, b"object")
    store.sync()
    assert store.get(folder, name) == b"object"
    assert staged(tmp_path) == []


def test_putting_a_block_mends_one_with_other_bytes_of_the_same_size(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    name = store.put(Folder.BLOCKS, b"object")
    store.sync()
    (tmp_path / "blocks" / name).write_bytes(b"damage")
    store.put(Folder.BLOCKS, b"object")
    store.sync()
    assert store.get(Folder.BLOCKS, name) == b"object"


def test_a_file_system_without_links_is_served_by_renames(tmp_path: Path) -> None:
    class NoLinks(Files):
        def link(self, *_args: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

    store = FileStore(tmp_path, files=NoLinks())
    commit(store, b"data")
    commit(store, b"data")
    assert len(list(walk(store))) == 2
    assert staged(tmp_path) == []


def test_every_operation_is_watched() -> None:
    assert {"create", "write", "fsync", "syncfs", "link", "rename", "unlink", "lock"} <= OPERATIONS
