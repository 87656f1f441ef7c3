"""Processes that die or race: the head is the old one or the new one, and has all it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chain.store.actors import CONTENTS, NOTE
from tests.chain.store.ledger import commit, reachable, walk
from tests.faults import killed
from trueline.chain.store.file import FileStore
from trueline.chain.store.gc import collect
from trueline.chain.store.store import Folder
from trueline.identity.multihash import Multihash

ROOT = Path(__file__).parents[3]


def start(*args: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    command = [sys.executable, "-m", "tests.chain.store.actors", *map(str, args)]
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def leftovers(path: Path) -> list[str]:
    private = path / "private"
    return [str(p) for name in ("leases", "staging") for p in (private / name).glob("*")]


def check(path: Path, before: list[str], at: int) -> bool:
    """What must hold after a death, whenever it came; returns whether the commit is there."""
    store = FileStore(path, durable=False)
    found = [note for _, note, _ in walk(store)]
    assert found in (before, [NOTE, *before]), f"killed at operation {at}: {found}"
    for folder in Folder:
        for stored in store.list(folder):
            assert Multihash.of(store.get(folder, stored.hash)) == stored.hash
    assert store.fence() is None
    assert leftovers(path) == [], f"killed at operation {at}"
    commit(store, *CONTENTS, note="afterwards")
    assert [note for _, note, _ in walk(store)] == ["afterwards", *found]
    kept = reachable(store)
    for folder in Folder:
        for stored in store.list(folder):
            os.utime(path / folder / stored.hash, (1, 1))
    collect(store, lambda: reachable(store), older_than=0)
    assert {folder: {s.hash for s in store.list(folder)} for folder in Folder} == kept
    store.close()
    return NOTE in found


@pytest.mark.parametrize("torn", ["whole", "torn"])
@pytest.mark.parametrize("first", ["first", "later"])
def test_a_commit_killed_at_any_operation_is_there_or_is_not(tmp_path: Path, first: str, torn: str) -> None:
    template = tmp_path / "template"
    template.mkdir()
    before = ["before"] if first == "later" else []
    if before:
        store = FileStore(template, durable=False)
        commit(store, b"earlier", note="before")
        store.close()
    copies = killed("tests.chain.store.actors:deed", template, tmp_path / "copies", "commit", torn)
    there = [check(copy, before, at) for at, copy in enumerate(copies, 1)]
    assert len(copies) > 20
    # Not there up to the operation that moves the head, there from the next one on.
    assert there == sorted(there)
    assert set(there) == {False, True}


def test_two_processes_that_race_lose_no_commit(tmp_path: Path) -> None:
    times = 200
    processes = [start("append", tmp_path / "ds", who, times) for who in "ab"]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    notes = [note for _, note, _ in walk(FileStore(tmp_path / "ds"))]
    assert len(notes) == 2 * times
    for who in "ab":
        assert [n for n in reversed(notes) if n[0] == who] == [f"{who}.{i}" for i in range(times)]


def test_collecting_beside_commits_never_takes_what_they_rely_on(tmp_path: Path) -> None:
    times = 200
    path = tmp_path / "ds"
    store = FileStore(path, durable=False)
    commit(store, b"", note="first")
    sweeping = start("sweep", path, tmp_path / "stop")
    committing = start("rely", path, times)
    committing.communicate()
    (tmp_path / "stop").touch()
    rounds, removed = map(int, sweeping.communicate()[0].split())
    assert committing.returncode == 0
    assert rounds > 0
    # Walking reads every object of every commit and checks its bytes.
    assert [note for _, note, _ in walk(store)] == [*map(str, reversed(range(times))), "first"]
    assert removed + sum(1 for _ in store.list(Folder.DATA)) >= 8 * times
    store.close()
