"""Turns and scratch, for every store."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from trueline.chain.store.file import FileStore
from trueline.chain.store.memory import MemoryStore
from trueline.chain.store.overlay import overlay
from trueline.chain.store.store import Folder, Store
from trueline.errors import BadName, RefCASFailed


def test_scratch_holds_files_until_the_work_ends(store: Store) -> None:
    with store.scratch() as scratch:
        with scratch.create("run-1") as file:
            file.write(b"abc")
            file.write(memoryview(b"def"))
        with scratch.open("run-1") as file:
            file.seek(2)
            assert file.read(3) == b"cde"
            assert file.read() == b"f"
        assert store.oldest_lease() is not None
    with pytest.raises(Exception, match=r"run-1|No such file"):
        scratch.open("run-1").read()
    assert store.oldest_lease() is None


def test_two_works_do_not_see_each_other(store: Store) -> None:
    with store.scratch() as one, store.scratch() as two:
        for scratch, text in ((one, b"1"), (two, b"2")):
            with scratch.create("same") as file:
                file.write(text)
        assert (one.open("same").read(), two.open("same").read()) == (b"1", b"2")


def test_what_is_written_beside_a_store_is_where_its_scratch_is_and_goes(store: Store) -> None:
    known = store.put(Folder.DATA, b"rows")
    store.sync()
    with overlay(store) as beside:
        new = beside.put(Folder.DATA, b"more")
        beside.sync()
        # Whoever opens it elsewhere sees the same: tasks do.
        for seen in (beside, pickle.loads(pickle.dumps(beside)) if _travels(store) else beside):
            assert seen.get(Folder.DATA, new) == b"more"
            assert seen.get(Folder.DATA, known) == b"rows"
        assert isinstance(beside.own, type(store)) or not _travels(store)
        assert beside.own.location.startswith(store.location) or not _travels(store)
        assert store.size(Folder.DATA, new) is None
        assert [each.hash for each in store.list(Folder.DATA)] == [known]
    assert list(beside.own.list(Folder.DATA)) == []
    assert store.get(Folder.DATA, known) == b"rows"


def _travels(store: Store) -> bool:
    """Whether other processes can open it."""
    return not isinstance(store, MemoryStore)


@pytest.mark.parametrize("name", ["", "..", "../up", "a/b", ".hidden", "x" * 300, "a\0b"])
def test_a_name_cannot_lead_elsewhere(store: Store, name: str) -> None:
    with store.scratch() as scratch, pytest.raises(BadName):
        scratch.create(name)


def test_scratch_of_a_writer_that_died_is_cleared(tmp_path: Path) -> None:
    dead = tmp_path / "private" / "scratch" / "host-1-2-3.abcd"
    dead.mkdir(parents=True)
    (dead / "run-1").write_bytes(b"x")
    store = FileStore(tmp_path)
    with store.scratch() as scratch:
        with scratch.create("mine") as file:
            file.write(b"y")
        store.fence()
        assert not dead.exists()
        assert scratch.open("mine").read() == b"y"


def test_turns_exclude_each_other(store: Store) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(5):
            with store.turn():
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 20
    assert max(most) == 1


def test_a_turn_ends_with_an_error(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.turn():
        _ = 1 / 0
    with store.turn():
        pass


def test_a_writer_that_takes_no_turns_waits_for_one_that_is_alone(store: Store) -> None:
    first, mine, theirs = (store.put(Folder.BLOCKS, name) for name in (b"first", b"mine", b"theirs"))
    store.move_head(first, expected=None)
    done: list[object] = []

    def other() -> None:
        begun.set()
        try:
            store.move_head(theirs, expected=first)
        except RefCASFailed as error:
            done.append(error)

    begun = threading.Event()
    writer = threading.Thread(target=other)
    with store.turn(alone=True):
        writer.start()
        assert begun.wait(10)
        writer.join(0.1)
        assert store.head() == first
        assert done == []
        store.move_head(mine, expected=first)
    writer.join(10)
    assert store.head() == mine
    assert [type(error) for error in done] == [RefCASFailed]
