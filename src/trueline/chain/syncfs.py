"""Making a whole file system durable with one call, where that can be trusted."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any, Final

# File systems, by their number in statfs, whose syncfs writes everything through: ext, xfs, btrfs,
# tmpfs, overlay, f2fs, zfs, bcachefs. Not FUSE: the kernel does not pass syncfs on to its servers.
_TRUSTED: Final = {
    0xEF53,
    0x58465342,
    0x9123683E,
    0x01021994,
    0x794C7630,
    0xF2F52010,
    0x2FC12FC1,
    0xCA451A4E,
}


def syncfs(fd: int) -> bool:
    """Sync the file system that holds `fd`; False, with nothing done, where that is not to be had.

    A write that failed since `fd` was opened is reported (Linux 5.8 and later).
    """
    library = _library()
    if library is None or _type(library, fd) not in _TRUSTED:
        return False
    if library.syncfs(ctypes.c_int(fd)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return True


@cache
def _library() -> Any:
    """The C library, if it is one with these calls (Linux)."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
    except OSError:
        return None
    return library if hasattr(library, "syncfs") and hasattr(library, "fstatfs") else None


def _type(library: Any, fd: int) -> int | None:
    # struct statfs begins with the type, a long, and has 120 bytes on 64-bit Linux.
    answer = (ctypes.c_ulong * 64)()
    failed = library.fstatfs(ctypes.c_int(fd), ctypes.byref(answer))
    return None if failed else int(answer[0]) & 0xFFFFFFFF
