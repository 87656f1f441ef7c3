"""Folders for rows that do not fit in memory: each goes with its owner, also one that was killed.

A folder holds a file that its owner keeps locked for as long as it lives, and the system lets go of the lock
however the owner ends. So who can lock it knows that the owner is gone, and removes the folder: each
process looks once, when it makes its first. A folder whose lock file is not there is left alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "trueline-"
_LOCK: Final = "owner.lock"
# Between its making and its locking, a folder may be taken for one whose owner is gone.
_TRIES: Final = 3

_looked: set[str] = set()
_guard = threading.Lock()


class Temporary:
    """A folder of this process where the system has such folders; `remove` removes it."""

    def __init__(self, kind: str) -> None:
        place = tempfile.gettempdir()
        with _guard:
            first = place not in _looked
            _looked.add(place)
        if first:
            remove_leftovers(place)
        for _ in range(_TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-", dir=place))
            self._lock = _locked(self.path / _LOCK, make=True)
            if self._lock is not None:
                return
            shutil.rmtree(self.path, ignore_errors=True)
        # There are no locks in this place: without its file, the folder is left alone.
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-", dir=place))

    def remove(self) -> None:
        """Remove it and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def remove_leftovers(place: str) -> list[Path]:
    """Remove the folders whose owners are gone, and return them; those of other users are left alone."""
    gone = []
    with suppress(OSError):
        for found in sorted(Path(place).glob(f"{_PREFIX}*-*/{_LOCK}")):
            lock = None if found.parent.is_symlink() else _locked(found, make=False)
            if lock is not None:
                shutil.rmtree(found.parent, ignore_errors=True)
                os.close(lock)
                gone.append(found.parent)
    return gone


def _locked(path: Path, *, make: bool) -> int | None:
    """Lock a file and return its number; None if someone else has, or has removed it."""
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if make else 0), 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked = os.fstat(file)
        if locked.st_nlink and locked.st_uid == os.geteuid():
            return file
    except OSError:
        pass
    os.close(file)
    return None
