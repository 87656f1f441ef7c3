"""A power cut at any point of the work: what was promised before holds, whatever was not synced is lost."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.attacks.forgetful_files import Crash, ForgetfulFiles
from tests.chain.store.ledger import commit, reachable, walk
from tests.examples import some
from trueline.chain import index
from trueline.chain.store.file import FileStore
from trueline.chain.store.files import Files
from trueline.chain.store.gc import collect
from trueline.chain.store.store import Folder
from trueline.errors import TruelineError
from trueline.view import View
from trueline.workspace import Dataset, Workspace

pytestmark = [pytest.mark.contract("guard:G12"), pytest.mark.sampled]

SEED = int(os.environ.get("TRUELINE_SEED", "20261116"))
# States of one work that are looked at, from its beginning to its end.
MOST = 14
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
Rows = list[tuple[int, str]]
_boots = itertools.count()


def is_private(told: str) -> bool:
    """What is not synced by design: it is lost with everything, and at random, but not one by one."""
    return "/private" in told or "/incoming" in told


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    made = tmp_path / "disk"
    made.mkdir()
    return made


@pytest.fixture
def after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Iterator[tuple[Crash, Path]]]:
    """Does work on the disk; then gives every state a power cut may leave, one at a time, on a machine that
    was started anew.
    """

    # Nobody cuts the power of the machine that looks at what is left.
    monkeypatch.setattr(os, "fsync", lambda _fd: None)

    def states(disk: Path, work: Callable[[], object], **how: Any) -> Iterator[tuple[Crash, Path]]:
        crashes = ForgetfulFiles(disk, SEED, how.get("passed_over", is_private)).crashes(work)
        assert any(crash.done for crash in crashes)
        assert len(crashes) > 3
        for number, crash in enumerate(some(crashes, MOST)):
            monkeypatch.setattr(index, "_boot", lambda: f"boot {next(_boots)}")
            folder = crash.restore(tmp_path / f"crash-{number}")
            try:
                yield crash, folder
            except Exception as error:
                raise AssertionError(f"after a power cut ({crash.told})") from error
            shutil.rmtree(folder)

    return states


After = Callable[..., Iterator[tuple[Crash, Path]]]


def prepared(disk: Path, **definition: Any) -> Workspace:
    """A workspace with a dataset `t` of two commits."""
    workspace = tl.open(disk / "ws", create=True)
    dataset = workspace.create("t", SCHEMA, **definition)
    dataset.append([{"id": 1, "text": "one"}])
    dataset.append([{"id": 2, "text": "two"}])
    return workspace


def rows(dataset: Dataset) -> Rows:
    return sorted((row["id"], row["text"]) for row in dataset.view().to_arrow().to_pylist())


def is_whole(workspace: Workspace) -> None:
    """Everything verifies after the next commit and a collection of all that is left over."""
    for name in workspace:
        dataset = workspace[name]
        before = rows(dataset) if dataset.schema is not None else []
        dataset.append([{"id": 77, "text": "after the crash"}])
        assert rows(dataset) == [*before, (77, "after the crash")]
    workspace.gc(0)
    report = workspace.verify()
    assert report.ok, report


def old_or_new(crash: Crash, found: Any, old: Any, new: Any) -> None:
    """What was in flight is as before or done; what was done is done."""
    assert found == new if crash.done else found in (old, new)


def test_a_new_workspace_is_there_with_its_parents(disk: Path, after: After) -> None:
    def work() -> None:
        tl.open(disk / "deep" / "er" / "ws", create=True).close()

    for crash, folder in after(disk, work):
        place = folder / "deep" / "er" / "ws"
        with tl.open(place, create=not crash.done) as workspace:
            assert list(workspace) == []


def test_a_dataset_has_its_old_name_or_the_new_one(disk: Path, after: After) -> None:
    with prepared(disk) as workspace:
        for crash, folder in after(disk, lambda: workspace["t"].rename("u")):
            with tl.open(folder / "ws") as again:
                old_or_new(crash, list(again), ["t"], ["u"])
                assert rows(again[next(iter(again))]) == [(1, "one"), (2, "two")]
                is_whole(again)


@pytest.mark.parametrize("merge", [None, tl.merge.upsert("id")], ids=["plain", "keyed"])
def test_a_new_dataset_is_there_or_not(disk: Path, after: After, merge: Any) -> None:
    with tl.open(disk / "ws", create=True) as workspace:
        for crash, folder in after(disk, lambda: workspace.create("t", SCHEMA, merge=merge)):
            with tl.open(folder / "ws") as again:
                old_or_new(crash, list(again), [], ["t"])
                again.create("t", SCHEMA, merge=merge)
                assert list((folder / "ws" / ".trueline" / "keys").iterdir())
                is_whole(again)


def test_a_new_dataset_and_its_first_rows(disk: Path, after: After) -> None:
    def work() -> None:
        with tl.open(disk / "ws", create=True) as workspace:
            workspace.create("t", SCHEMA).append([{"id": 1, "text": "one"}])

    for crash, folder in after(disk, work):
        with tl.open(folder / "ws", create=not crash.done) as again:
            dataset = again.create("t", SCHEMA)
            old_or_new(crash, rows(dataset), [], [(1, "one")])
            is_whole(again)


@pytest.mark.parametrize("merge", [None, tl.merge.upsert("id")], ids=["plain", "keyed"])
@pytest.mark.parametrize("source", ["rows", "file"])
def test_an_append_is_there_or_not(disk: Path, tmp_path: Path, after: After, merge: Any, source: str) -> None:
    data: Any = [{"id": 3, "text": "three"}]
    if source == "file":
        data = tmp_path / "three.csv"
        data.write_text("id,text\n3,three\n")
    with prepared(disk, merge=merge) as workspace:
        for crash, folder in after(disk, lambda: workspace["t"].append(data)):
            with tl.open(folder / "ws") as again:
                old = [(1, "one"), (2, "two")]
                old_or_new(crash, rows(again["t"]), old, [*old, (3, "three")])
                again["t"].append(data)
                assert (3, "three") in rows(again["t"])
                is_whole(again)


def test_an_append_with_a_key_is_there_once(disk: Path, after: After) -> None:
    with prepared(disk) as workspace:

        def append(to: Workspace) -> None:
            to["t"].append([{"id": 3, "text": "three"}], idempotency_key="the third")

        for _, folder in after(disk, lambda: append(workspace)):
            with tl.open(folder / "ws") as again:
                append(again)
                assert rows(again["t"]) == [(1, "one"), (2, "two"), (3, "three")]
                is_whole(again)


def test_many_objects_are_there_or_not(disk: Path, after: After) -> None:
    """More than are synced one by one: the file system is synced as a whole."""
    store = FileStore(disk / "ds")
    commit(store, b"first", note="old")
    contents = [b"%d" % number for number in range(40)]
    for crash, folder in after(disk, lambda: commit(store, *contents, note="new")):
        old_or_new(crash, [note for _, note, _ in walk(FileStore(folder / "ds"))], ["old"], ["new", "old"])


def objects(folder: Path) -> dict[str, bytes]:
    """What the slices and the state are made of, by where they are."""
    found = (
        path for path in folder.rglob("*") if path.is_file() and path.parent.name in ("data", "checkpoints")
    )
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.parametrize("merge", [None, tl.merge.upsert("id")], ids=["plain", "keyed"])
@pytest.mark.parametrize("how", [{"where": "id = 1"}, {"upto": 0}], ids=["where", "upto"])
def test_what_was_removed_does_not_come_back(disk: Path, after: After, merge: Any, how: Any) -> None:
    with prepared(disk, merge=merge) as workspace:
        before = objects(disk)
        states = after(disk, lambda: workspace["t"].drop_data(reason="asked to", **how))
        for crash, folder in states:
            gone = {data for path, data in before.items() if path not in objects(disk)}
            assert gone
            if crash.done:
                left = [
                    str(path) for path in folder.rglob("*") if path.is_file() and path.read_bytes() in gone
                ]
                assert left == []
            with tl.open(folder / "ws") as again:
                old_or_new(crash, rows(again["t"]), [(1, "one"), (2, "two")], [(2, "two")])
                if not crash.done:
                    again["t"].drop_data(reason="asked to", **how)
                again.gc(0)
                assert not {*objects(folder).values()} & gone
                assert {str(problem.kind) for problem in again.verify().problems} <= {"removed"}


def test_what_a_dead_writer_left_does_not_come_back_after_a_removal(disk: Path, after: After) -> None:
    with prepared(disk) as workspace:
        staging = disk / "ws" / "datasets" / "t" / "private" / "staging"
        staging.mkdir(parents=True, exist_ok=True)
        (staging / "host-1-1-aaaaaaaa.0").write_bytes(b"rows of one who died")
        done = after(disk, lambda: workspace["t"].drop_data(where="id = 1", reason="asked to"))
        for crash, folder in done:
            left = [path for path in folder.rglob("*") if path.is_file() and b"who died" in path.read_bytes()]
            assert not (crash.done and left)


def test_a_collection_harms_nothing_at_any_point(disk: Path, after: After) -> None:
    with prepared(disk) as workspace:
        store = workspace["t"].chain.store
        with store.lease():
            litter = store.put(Folder.DATA, b"left over")
            store.sync()
        os.utime(disk / "ws" / "datasets" / "t" / "data" / litter, (1, 1))
        for crash, folder in after(disk, lambda: workspace.gc(0)):
            there = (folder / "ws" / "datasets" / "t" / "data" / litter).exists()
            assert not (crash.done and there)
            with tl.open(folder / "ws") as again:
                assert rows(again["t"]) == [(1, "one"), (2, "two")]
                is_whole(again)


def test_a_clone_is_there_or_not(disk: Path, tmp_path: Path, after: After) -> None:
    with prepared(tmp_path / "there") as source, tl.open(disk / "ws", create=True) as workspace:
        url = source["t"].chain.store.location

        def clone(to: Workspace) -> Dataset:
            return to.clone(url, "copy")

        for crash, folder in after(disk, lambda: clone(workspace)):
            with tl.open(folder / "ws") as again:
                old_or_new(crash, list(again), [], ["copy"])
                assert rows(clone(again)) == [(1, "one"), (2, "two")]
                assert again["copy"].origin is not None
                assert again.verify().ok
                again.gc(0)
                assert again.verify().ok


def test_an_update_of_a_clone_is_there_or_not(disk: Path, tmp_path: Path, after: After) -> None:
    with prepared(tmp_path / "there") as source, tl.open(disk / "ws", create=True) as workspace:
        url = source["t"].chain.store.location
        workspace.clone(url, "copy")
        source["t"].append([{"id": 3, "text": "three"}])
        for crash, folder in after(disk, lambda: workspace.clone(url, "copy")):
            with tl.open(folder / "ws") as again:
                old = [(1, "one"), (2, "two")]
                old_or_new(crash, rows(again["copy"]), old, [*old, (3, "three")])
                assert again.verify().ok
                assert len(rows(again.clone(url, "copy"))) == 3


def test_a_push_into_a_folder_is_there_or_not(disk: Path, tmp_path: Path, after: After) -> None:
    with prepared(tmp_path / "here") as workspace:
        for crash, folder in after(disk, lambda: workspace["t"].push(disk / "deep" / "copy")):
            target = folder / "deep" / "copy"
            store = FileStore(target)
            old_or_new(crash, store.head(), None, workspace["t"].head)
            store.close()
            workspace["t"].push(target)
            with tl.open(folder / "reader", create=True) as reader:
                assert rows(reader.clone(target, "t")) == [(1, "one"), (2, "two")]
                assert reader.verify().ok


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
@pytest.mark.parametrize("overwrite", [True, False])
def test_an_export_is_there_whole_or_not(
    disk: Path, tmp_path: Path, after: After, ending: str, overwrite: bool
) -> None:
    with prepared(tmp_path / "here") as workspace:
        target = disk / f"out{ending}"
        if overwrite:
            target.write_bytes(b"what was there")
        done: list[bytes] = []

        def work() -> None:
            workspace["t"].export(target, overwrite=overwrite)
            done.append(target.read_bytes())

        for crash, folder in after(disk, work):
            found = folder / target.name
            data = found.read_bytes() if found.exists() else None
            old_or_new(crash, data, b"what was there" if overwrite else None, done[0])


@pytest.mark.parametrize("write", ["write_parquet", "write_csv"])
def test_a_view_that_is_written_is_there_whole_or_not(disk: Path, after: After, write: str) -> None:
    view = View.from_rows([{"x": 1}, {"x": 2}])
    target = disk / "out"
    for crash, folder in after(disk, lambda: getattr(view, write)(target)):
        found = folder / "out"
        data = found.read_bytes() if found.exists() else None
        old_or_new(crash, data, None, target.read_bytes())
    if write == "write_parquet":
        assert pq.read_table(target).num_rows == 2


def test_a_setting_is_the_old_or_the_new(disk: Path, after: After) -> None:
    with tl.open(disk / "ws", create=True) as workspace:

        def work() -> None:
            workspace.config.set("gc.older_than", "3d")

        for crash, folder in after(disk, work):
            with tl.open(folder / "ws") as again:
                old_or_new(crash, again.config["gc.older_than"] == "3d", False, True)


def test_the_index_is_trusted_by_no_state_it_may_be_in(disk: Path, after: After) -> None:
    """It is not synced on purpose: any mixture of its files, old and new, whole and torn, is seen through."""
    with prepared(disk) as workspace:

        def work() -> None:
            for number in range(3, 5):
                workspace["t"].append([{"id": number, "text": "more"}], idempotency_key=str(number))

        for _, folder in after(disk, work):
            with tl.open(folder / "ws") as again:
                known = len(rows(again["t"]))
                assert 2 <= known <= 4
                assert again["t"].info.rows == known
                assert len(list(again["t"].log())) == len(list(again["t"].chain.walk())) - blocks_of_creation(
                    again
                )
                for number in range(3, 5):
                    again["t"].append([{"id": number, "text": "more"}], idempotency_key=str(number))
                assert [id_ for id_, _ in rows(again["t"])] == list(range(1, 5))
                is_whole(again)


def blocks_of_creation(workspace: Workspace) -> int:
    """How many blocks the first commit has beyond one."""
    blocks = [block for _, block in workspace["t"].chain.walk()]
    return sum(1 for block in blocks if block.data_event is None) - 1


# --- the model itself -----------------------------------------------------------


def test_a_store_that_names_before_it_syncs_is_found_out(disk: Path) -> None:
    """The model tells: without any sync, a state is left in which an acknowledged commit is gone or torn."""
    store = FileStore(disk / "ds", durable=False)
    crashes = ForgetfulFiles(disk, SEED).crashes(lambda: commit(store, b"slice"))
    lost = [crash for crash in crashes if crash.done and "ds/refs/head" not in crash.tree]
    torn = [crash for crash in crashes if crash.tree.get("ds/refs/head", None) is not None]
    assert lost
    assert any(crash.tree["ds/refs/head"].data == b"" for crash in torn)


@pytest.mark.parametrize("left_out", ["data", "blocks", "refs", "staging"])
def test_every_sync_of_a_commit_is_needed(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: str
) -> None:
    """Without those of one folder the model finds a state that breaks the promise: it sees each of them."""

    class Careless(Files):
        def fsync(self, fd: int) -> None:
            if not Path(f"/proc/self/fd/{fd}").readlink().match(f"*/{left_out}*") and not (
                left_out == "staging" and "staging" in str(Path(f"/proc/self/fd/{fd}").readlink())
            ):
                super().fsync(fd)

    store = FileStore(disk / "ds", files=Careless())
    commit(store, b"first")
    broken = 0
    for number, crash in enumerate(ForgetfulFiles(disk, SEED).crashes(lambda: commit(store, b"second"))):
        folder = crash.restore(tmp_path / str(number))
        try:
            broken += len(list(walk(FileStore(folder / "ds")))) < 1 + crash.done
        except (TruelineError, AssertionError):
            broken += 1
    assert broken


def test_what_was_collected_and_is_put_again_is_there(disk: Path, after: After) -> None:
    """A removed name that is not synced comes back; one that is given again is synced with its new bytes."""
    store = FileStore(disk / "ds")
    commit(store, b"first")
    with store.lease():
        store.put(Folder.DATA, b"slice")
        store.sync()

    def work() -> None:
        collect(store, lambda: reachable(store), older_than=0, now=4e9)
        commit(store, b"slice", note="again")

    for crash, folder in after(disk, work):
        notes = [note for _, note, _ in walk(FileStore(folder / "ds"))]
        old_or_new(crash, notes, [""], ["again", ""])
