"""A file system that forgets what was not synced: the states in which a power cut may leave a folder.

The work under test is done on real files. Beside them the model keeps what
would last: the bytes a file had, and the names a folder had, when it was last
synced. At every point (before each operation that changes a name or opens a
file for writing, and before each sync) what differs is a set of changes of
which any may have reached the disk and any may not:

- bytes written since the last sync are there, or half of them, or what was synced before;
- a name given, taken away or replaced since its folder was last synced is as it is, or as it was;
- a folder whose own name is lost is lost with all that is in it;
- a rename is one change: the file has its old name or its new one.

Operations are seen by audit hooks, so that it does not matter who does them;
syncs by taking the place of `os.fsync` and of the store's `syncfs`.
"""

from __future__ import annotations

import os
import random
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from trueline.chain.store import files as syncing

_EVENTS: Final = frozenset(
    {"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "sqlite3.connect"}
)
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
RANDOM_STATES: Final = 3


@dataclass(frozen=True, slots=True)
class Node:
    """A file or a folder in a state: its bytes (None for a folder), time and mode."""

    data: bytes | None
    modified: int
    mode: int


Tree = dict[str, Node]


@dataclass(frozen=True, slots=True)
class Change:
    """What may be lost: a name in a folder, or (without a name) the bytes of a file; by inode."""

    inode: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Crash:
    """One state after a power cut; `told` says where and what was lost, `done` whether all was over."""

    tree: Tree
    told: str
    done: bool

    def restore(self, folder: Path) -> Path:
        """Make the state real."""
        folder.mkdir()
        for path, node in sorted(self.tree.items()):
            place = folder / path
            if node.data is None:
                place.mkdir()
            else:
                place.write_bytes(node.data)
            place.chmod(node.mode)
        for path, node in sorted(self.tree.items(), reverse=True):
            os.utime(folder / path, ns=(node.modified, node.modified))
        return folder


@dataclass(slots=True)
class _Seen:
    """A folder as it is now, by inode."""

    names: dict[int, dict[str, int]]
    data: dict[int, bytes]
    paths: dict[int, str]


class ForgetfulFiles:
    """The folder of a disk; what is in it at first has been there for long."""

    def __init__(self, root: Path, seed: int = 0, passed_over: Callable[[str], bool] = lambda _path: False):
        self.root = root
        self.seed = seed
        self._passed_over = passed_over
        self._random = random.Random(seed)
        self._lock = threading.RLock()
        self._busy = threading.local()
        self._kept_open: dict[int, int] = {}
        self._meta: dict[int, tuple[int, int]] = {}
        self._last: dict[int, bytes] = {}
        self._bytes: dict[bytes, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._data: dict[int, bytes] = {}
        self._renames: list[tuple[Change, Change, int]] = []
        self._crashes: dict[Any, Crash] = {}
        self._points = 0
        self._now = self._look()
        self.settle()

    # --- the work ---------------------------------------------------------

    def crashes(self, work: Callable[[], object]) -> list[Crash]:
        """Do the work; return every state in which a cut at any point of it may leave the folder."""
        with self._watching():
            work()
            self._point("the end", done=True)
        for fd in self._kept_open.values():
            os.close(fd)
        self._kept_open.clear()
        return list(self._crashes.values())

    def settle(self) -> None:
        """Take everything as it is for synced."""
        self._names = {inode: dict(names) for inode, names in self._now.names.items()}
        self._data = dict(self._now.data)
        self._renames.clear()

    @contextmanager
    def _watching(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", self._fsync)
            patch.setattr(syncing, "syncfs", self._syncfs)
            _install()
            _active.append(self)
            try:
                yield
            finally:
                _active.clear()

    def _fsync(self, fd: int) -> None:
        with self._lock, self._unseen():
            self._point(f"fsync of {_path(fd)}")
            found = os.fstat(fd)
            if stat.S_ISDIR(found.st_mode) and found.st_ino in self._now.names:
                self._names[found.st_ino] = dict(self._now.names[found.st_ino])
            elif found.st_ino in self._kept_open:
                # Also one that has lost its name: what it holds lasts until it is closed.
                self._data[found.st_ino] = self._now.data.get(found.st_ino, self._last[found.st_ino])

    def _syncfs(self, fd: int) -> bool:
        with self._lock, self._unseen():
            self._point(f"syncfs of {_path(fd)}")
            self.settle()
        return True

    def seen(self, event: str, args: tuple[Any, ...]) -> None:
        """Take an operation that is about to be done for a point."""
        if getattr(self._busy, "yes", False) or (event == "open" and not _writes(args)):
            return
        with self._lock, self._unseen():
            self._point(f"{event} {args[0]}")
            if event == "os.rename":
                self._note_rename(*args)

    def _note_rename(self, source: Any, target: Any, source_fd: int, target_fd: int) -> None:
        places = [_place(source, source_fd), _place(target, target_fd)]
        if all(place.parent.is_relative_to(self.root) for place in places) and os.path.lexists(places[0]):
            old, new = (Change(place.parent.stat().st_ino, place.name) for place in places)
            self._renames.append((old, new, places[0].lstat().st_ino))

    @contextmanager
    def _unseen(self) -> Iterator[None]:
        before, self._busy.yes = getattr(self._busy, "yes", False), True
        try:
            yield
        finally:
            self._busy.yes = before

    # --- looking ----------------------------------------------------------

    def _look(self) -> _Seen:
        seen = _Seen({}, {}, {})
        waiting = [self.root]
        while waiting:
            folder = waiting.pop()
            found = folder.stat()
            seen.paths[found.st_ino] = "" if folder == self.root else str(folder.relative_to(self.root))
            names = seen.names[found.st_ino] = {}
            self._keep(folder, found)
            for path in folder.iterdir():
                name = path.name
                try:
                    below = path.lstat()
                    if stat.S_ISDIR(below.st_mode):
                        waiting.append(path)
                    elif stat.S_ISREG(below.st_mode):
                        data = path.read_bytes()
                        seen.data[below.st_ino] = self._last[below.st_ino] = self._bytes.setdefault(
                            data, data
                        )
                        seen.paths[below.st_ino] = str(path.relative_to(self.root))
                        self._keep(path, below)
                    names[name] = below.st_ino
                except FileNotFoundError:
                    continue  # another thread was faster
        return seen

    def _keep(self, path: Path, found: os.stat_result) -> None:
        """Note time and mode; while it is open here its number is not given to another."""
        self._meta[found.st_ino] = (found.st_mtime_ns, stat.S_IMODE(found.st_mode))
        if found.st_ino not in self._kept_open:
            self._kept_open[found.st_ino] = os.open(path, os.O_PATH | os.O_CLOEXEC)

    # --- states -----------------------------------------------------------

    def _point(self, event: str, *, done: bool = False) -> None:
        with self._lock, self._unseen():
            self._now = self._look()
            self._points += 1
            units = self._units()
            for lost, told in self._choices(units):
                tree = self._tree(lost)
                key = (done, tuple(sorted((path, node.data) for path, node in tree.items())))
                if key not in self._crashes:
                    where = f"seed {self.seed}, point {self._points}, before {event}: {told}"
                    self._crashes[key] = Crash(tree, where, done)

    def _units(self) -> list[frozenset[Change]]:
        """The changes that are not durable yet, each with those it goes together with."""
        changes: list[Change] = []
        for inode in self._names.keys() | self._now.names.keys():
            before, now = self._names.get(inode, {}), self._now.names.get(inode, {})
            changes += [Change(inode, n) for n in before.keys() | now.keys() if before.get(n) != now.get(n)]
        changes += [Change(i) for i, data in self._now.data.items() if self._data.get(i) != data]
        units = {change: frozenset({change}) for change in changes}
        for old, new, inode in self._renames:
            if (
                old in units
                and new in units
                and self._now.names.get(new.inode, {}).get(str(new.name)) == inode
            ):
                units[old] = units[new] = units[old] | units[new]
        return sorted(set(units.values()), key=lambda unit: sorted(map(self._told, unit)))

    def _told(self, change: Change) -> str:
        path = self._now.paths.get(change.inode, "?")
        return f"bytes of {path}" if change.name is None else f"name {path}/{change.name}"

    def _choices(self, units: list[frozenset[Change]]) -> Iterator[tuple[dict[Change, bool], str]]:
        """Yield what is lost: for each change, whether half of it is left (of bytes)."""

        def lost(chosen: list[frozenset[Change]], half: bool = False) -> dict[Change, bool]:
            return {change: half for unit in chosen for change in unit}

        yield lost([]), "nothing is lost"
        yield lost(units), "all is lost"
        yield lost(units, half=True), "all is lost, or torn"
        # What is private is not synced on purpose: it is lost with all, or at random.
        telling = [unit for unit in units if not all(self._passed_over(self._told(c)) for c in unit)]
        for unit in telling:
            told = " and ".join(sorted(map(self._told, unit)))
            yield lost([unit]), f"lost: {told}"
            yield lost([unit], half=True), f"torn: {told}"
            yield lost([other for other in units if other != unit]), f"all is lost but: {told}"
        for _ in range(RANDOM_STATES if telling else 0):
            chosen = [unit for unit in units if self._random.random() < 0.5]
            half = self._random.random() < 0.3
            yield (
                lost(chosen, half),
                f"lost at random: {sorted(self._told(c) for unit in chosen for c in unit)}",
            )

    def _tree(self, lost: dict[Change, bool]) -> Tree:
        tree: Tree = {}
        waiting = [(self.root.stat().st_ino, "")]
        while waiting:
            inode, path = waiting.pop()
            before, now = self._names.get(inode, {}), self._now.names.get(inode, {})
            for name in before.keys() | now.keys():
                below = (before if Change(inode, name) in lost else now).get(name)
                if below is None:
                    continue
                place = f"{path}/{name}" if path else name
                is_folder = below in self._names or below in self._now.names
                tree[place] = Node(None if is_folder else self._left(below, lost), *self._meta[below])
                if is_folder:
                    waiting.append((below, place))
        return tree

    def _left(self, inode: int, lost: dict[Change, bool]) -> bytes:
        now, before = self._last.get(inode, b""), self._data.get(inode, b"")
        if inode not in self._now.data:
            return self._data.get(inode, now)
        if Change(inode) not in lost:
            return now
        return now[: len(now) // 2] if lost[Change(inode)] else before


def _writes(args: tuple[Any, ...]) -> bool:
    path, _, flags = args
    return not isinstance(path, int) and bool(flags & _WRITING)


def _path(fd: int) -> str:
    return str(Path(f"/proc/self/fd/{fd}").readlink())


def _place(name: Any, within: int) -> Path:
    path = Path(os.fsdecode(name))
    return path.absolute() if within == -1 else Path(_path(within), path)


# A hook cannot be taken away again; it does nothing while no model is active.
_active: list[ForgetfulFiles] = []


@cache
def _install() -> None:
    sys.addaudithook(_hook)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _active and event in _EVENTS:
        _active[0].seen(event, args)
