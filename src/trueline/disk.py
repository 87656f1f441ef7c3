"""Files on a local disk: bytes and names that survive a power cut, and a disk's refusals as typed errors."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from pathlib import Path
from typing import Final

from trueline.errors import StorageFull, StorageReadOnly, StoreError

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_READ_ONLY: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


def fsync(fd: int) -> None:
    """Make one file, or the names in one folder, survive a power cut."""
    # macOS: fsync leaves the bytes in the drive's cache.
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power cut: given, replaced and removed."""
    fd = os.open(path, FOLDER)
    try:
        fsync(fd)
    finally:
        os.close(fd)


def is_full(error: OSError) -> bool:
    """Say whether an error means that there is no space left."""
    return error.errno in _FULL


def storage_error(
    error: OSError, doing: str, path: str, *, remedy: str, if_full: str, if_read_only: str
) -> StoreError:
    """Turn an error of the operating system into one of ours, with the remedy for its kind.

    >>> error = OSError(errno.ENOSPC, "No space left on device")
    >>> print(storage_error(error, "write", "/d/x", remedy="", if_full="free some space", if_read_only=""))
    cannot write /d/x: No space left on device
      → free some space
    """
    kind: type[StoreError] = StoreError
    if is_full(error):
        kind, remedy = StorageFull, if_full
    elif error.errno in _READ_ONLY:
        kind, remedy = StorageReadOnly, if_read_only
    refused = kind(f"cannot {doing} {path}: {error.strerror or error}", remedy=remedy, path=path)
    refused.errno = error.errno
    return refused
