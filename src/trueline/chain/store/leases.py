"""Leases on disk: who is writing to a dataset now, and what they have staged."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from trueline.chain.store.files import Files
from trueline.chain.store.folders import PRIVATE, Folders, remove_tree
from trueline.errors import StoreError

LEASES: Final = f"{PRIVATE}/leases"
STAGING: Final = f"{PRIVATE}/staging"
GC_LOCK: Final = "gc.lock"
HEAD_LOCK: Final = "head.lock"
TURN_LOCK: Final = "turn.lock"
SCRATCH: Final = f"{PRIVATE}/scratch"
# The names we give; what else somebody keeps in these folders is left alone.
_LEASE: Final = r"[A-Za-z0-9._]*-[0-9]+-[0-9]+-[0-9a-f]+"
_LEASE_NAME: Final = re.compile(_LEASE)
_STAGED_NAME: Final = re.compile(rf"{_LEASE}\.[0-9]+")
_SCRATCH_NAME: Final = re.compile(rf"{_LEASE}\.[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Lease:
    """One writer's claim: a locked file whose name begins the names of what it stages."""

    name: str
    lock: int
    staging: int  # the folder, shared by all: making one for each lease costs 2 to 3 ms on ext4
    pid: int


class Leases:
    """The leases of one dataset.

    A lease is a file that its writer keeps locked while a commit is in flight;
    the lock goes with the process, so a lease that is not held is one whose writer
    has finished or died. Its time is when the commit began. Taking a lease and
    clearing dead ones exclude each other by `private/gc.lock`: without it a
    lease just made but not yet locked would look dead.
    """

    def __init__(self, folders: Folders, files: Files) -> None:
        self._folders = folders
        self._files = files
        self._idle: Lease | None = None

    @contextmanager
    def locked(self, name: str, *, exclusive: bool) -> Iterator[None]:
        """Hold one of the locks in `private/`.

        The file is opened again each time: a lock belongs to the open file, so
        a descriptor kept for reuse would not exclude another thread, nor a forked child.
        """
        fd = self._files.open_lock(name, self._folders.make(PRIVATE))
        try:
            self._files.lock(fd, exclusive=exclusive)
            yield
        finally:
            self._files.close(fd)

    def begin(self) -> Lease:
        """Take a lease.

        Its file is kept for the next one: ext4 makes a new file slowly where
        one was removed within the last seconds (0.3 ms after 200 commits).
        """
        leases, staging = self._folders.make(LEASES), self._folders.make(STAGING)
        idle, self._idle = self._idle, None
        with self.locked(GC_LOCK, exclusive=False):
            if idle is not None and idle.pid == os.getpid():
                if self._revive(idle, leases):
                    return idle
                self._files.close(idle.lock)
            host = re.sub(r"[^A-Za-z0-9.]", "_", os.uname().nodename)[:60]
            name = f"{host}-{os.getpid()}-{time.time_ns()}-{os.urandom(4).hex()}"
            lock = self._files.open_lock(name, leases)
            try:
                self._files.lock(lock, exclusive=True)
            except BaseException:
                with suppress(OSError):
                    self._files.unlink(name, leases)
                self._files.close(lock)
                raise
        return Lease(name, lock, staging, os.getpid())

    def _revive(self, idle: Lease, leases: int) -> bool:
        """Lock an idle lease's file again; False if it was cleared meanwhile."""
        try:
            self._files.lock(idle.lock, exclusive=True)
            self._files.touch(idle.name, leases)
        except OSError:
            return False
        return True

    def confirm(self, lease: Lease, since: float) -> None:
        """Check that a lease was there for any process that looked since it began; `since` is the time now.

        A file that was removed never gets a name again, so one look is enough. A clock that
        was set back has stamped objects as if they were older than the lease that spares them.
        """
        found = os.fstat(lease.lock)
        if found.st_nlink and found.st_mtime <= since:
            return
        raise StoreError(
            f"the lease of this commit in {self._folders.shown(LEASES)} was removed, "
            "or the clock was set back: its objects may be gone too",
            remedy="nothing was changed; do the commit again",
            code="LeaseLost",
            path=self._folders.shown(LEASES, lease.name),
        )

    def clock(self) -> float:
        """Return the time by the file system's clock."""
        private = self._folders.make(PRIVATE)
        self._files.close(self._files.open_lock(GC_LOCK, private))
        self._files.touch(GC_LOCK, private)
        return self._files.modified(GC_LOCK, private)

    def end(self, lease: Lease) -> None:
        """Give a lease back.

        Nothing here may fail what went before: a lease without its lock counts as dead.
        """
        try:
            self._files.unlock(lease.lock)
            self._idle = lease
        except OSError:
            with suppress(OSError):
                self._files.close(lease.lock)

    def close(self) -> None:
        """Remove the file that was kept for the next lease."""
        idle, self._idle = self._idle, None
        if idle is not None:
            with suppress(OSError):
                leases = self._folders.find(LEASES) if idle.pid == os.getpid() else None
                if leases is not None:
                    self._files.unlink(idle.name, leases)
            with suppress(OSError):
                self._files.close(idle.lock)

    def oldest(self, *, clear: bool = False) -> float | None:
        """Return when the oldest lease alive began; `clear` removes the dead ones and what they staged."""
        leases, staging = self._folders.find(LEASES), self._folders.find(STAGING)
        if leases is None or staging is None:
            return None
        alive: dict[str, float] = {}
        with self.locked(GC_LOCK, exclusive=True):
            for name in self._file_names(leases, _LEASE_NAME):
                started = self._started_if_alive(name, leases)
                if started is not None:
                    alive[name] = started
                elif clear:
                    self._remove(name, leases)
            if clear:
                for name in self._file_names(staging, _STAGED_NAME):
                    if name.rpartition(".")[0] not in alive:
                        self._remove(name, staging)
                self._clear_scratch(alive)
        return min(alive.values(), default=None)

    def _remove(self, name: str, folder: int) -> None:
        # What cannot be removed is only untidy.
        with suppress(OSError):
            self._files.unlink(name, folder)

    def _clear_scratch(self, alive: dict[str, float]) -> None:
        """Remove the scratch folders, named after their leases, of writers that are gone."""
        scratch = self._folders.find(SCRATCH)
        for entry in list(self._files.entries(scratch)) if scratch is not None else ():
            if _SCRATCH_NAME.fullmatch(entry.name) and entry.name.rpartition(".")[0] not in alive:
                assert scratch is not None
                remove_tree(entry.name, scratch)

    def _file_names(self, folder: int, pattern: re.Pattern[str]) -> list[str]:
        entries = self._files.entries(folder)
        return [e.name for e in entries if pattern.fullmatch(e.name) and e.is_file(follow_symlinks=False)]

    def _started_if_alive(self, name: str, leases: int) -> float | None:
        """Return when a lease began, by the clock that also stamps the objects; None if it is dead."""
        try:
            fd = self._files.open_lock(name, leases, make=False)
        except FileNotFoundError:
            return None
        except PermissionError:
            # Another user's: it cannot be known to be dead.
            return self._files.modified(name, leases)
        try:
            if self._files.lock(fd, exclusive=True, wait=False):
                return None
            return os.fstat(fd).st_mtime
        finally:
            self._files.close(fd)


def is_private(path: str) -> bool:
    """Say whether a path below `private/` is one that we give.

    >>> is_private("gc.lock"), is_private("staging/host-1-2-3a.0"), is_private("notes.txt")
    (True, True, False)
    """
    folder, _, rest = path.partition("/")
    if not rest:
        return path in (GC_LOCK, HEAD_LOCK, TURN_LOCK)
    if f"{PRIVATE}/{folder}" == SCRATCH:
        return _SCRATCH_NAME.fullmatch(rest.partition("/")[0]) is not None
    patterns = {LEASES: _LEASE_NAME, STAGING: _STAGED_NAME}
    pattern = patterns.get(f"{PRIVATE}/{folder}")
    return pattern is not None and pattern.fullmatch(rest) is not None
