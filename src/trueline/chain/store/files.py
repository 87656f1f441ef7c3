"""The operations of the operating system that a file store needs, one method each."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from trueline import disk
from trueline.errors import LinkRefused, StoreError

# O_NONBLOCK: a named pipe in the place of a file must not stop the reader.
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# Locks are opened for writing: NFS carries an exclusive flock as a write lock.
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW


class Files:
    """Operations on files, by name inside an open folder.

    A store does everything that changes the disk through one of these
    methods, so a test can count them, or fail or kill the process at the n-th.
    Errors are plain `OSError`s; `refusal` turns them into ours. A link in the
    place of a file, or of a folder inside another, is not followed: ELOOP.
    """

    def open_folder(self, name: str, within: int | None = None) -> int:
        """Open a folder by its path, or by its one name inside an open folder."""
        if within is None:
            return os.open(name, disk.FOLDER)
        try:
            return os.open(name, disk.FOLDER | os.O_NOFOLLOW, dir_fd=within)
        except NotADirectoryError:
            # With O_DIRECTORY a link is reported as something that is not a folder.
            if stat.S_ISLNK(os.stat(name, dir_fd=within, follow_symlinks=False).st_mode):
                raise OSError(errno.ELOOP, "a symbolic link", name) from None
            raise

    def make_folder(self, name: str, within: int | None = None, mode: int = 0o777) -> None:
        os.mkdir(name, mode, dir_fd=within)

    def create(self, name: str, within: int, mode: int = 0o666) -> int:
        """Open a new file for writing; it must not exist."""
        return os.open(name, _CREATE, mode, dir_fd=within)

    def open(self, name: str, within: int) -> int:
        """Open a regular file for reading."""
        fd = os.open(name, _READ, dir_fd=within)
        try:
            _regular(os.fstat(fd), name)
        except OSError:
            os.close(fd)
            raise
        return fd

    def read(self, name: str, within: int, limit: int | None = None) -> bytes:
        """Return a file's bytes; EFBIG if there are more than `limit`, before any is read."""
        fd = os.open(name, _READ, dir_fd=within)
        try:
            found = os.fstat(fd)
            _regular(found, name)
            size = found.st_size
            if limit is not None and size > limit:
                raise OSError(errno.EFBIG, f"{size:,} bytes, at most {limit:,} expected", name)
            data = os.read(fd, size)
            # One read gives at most 2 GiB; a file that was cut short meanwhile ends early.
            while len(data) < size and (more := os.read(fd, size - len(data))):
                data += more
            return data
        finally:
            os.close(fd)

    def write(self, fd: int, data: bytes | memoryview) -> None:
        """Write all of `data`."""
        written = os.write(fd, data)
        if written < len(data):
            view = memoryview(data)
            while written < len(view):
                written += os.write(fd, view[written:])

    def fsync(self, fd: int) -> None:
        """Make one file, or the names in one folder, survive a power cut."""
        disk.fsync(fd)

    def syncfs(self, fd: int) -> bool:
        """Do the same for everything on the file system of `fd`; False where that is not supported."""
        # Only bulk loads come here; ctypes is not imported for the others.

        return syncfs(fd)

    def link(self, name: str, within: int, to: str, to_within: int) -> None:
        """Give a file a second name; EEXIST if that is taken."""
        os.link(name, to, src_dir_fd=within, dst_dir_fd=to_within, follow_symlinks=False)

    def rename(self, name: str, within: int, to: str, to_within: int) -> None:
        os.rename(name, to, src_dir_fd=within, dst_dir_fd=to_within)

    def unlink(self, name: str, within: int) -> None:
        os.unlink(name, dir_fd=within)

    def remove_folder(self, name: str, within: int) -> None:
        os.rmdir(name, dir_fd=within)

    def touch(self, name: str, within: int) -> None:
        """Set a file's time to now, by the file system's clock."""
        os.utime(name, dir_fd=within, follow_symlinks=False)

    def size(self, name: str, within: int) -> int:
        """Return a regular file's size in bytes."""
        found = os.stat(name, dir_fd=within, follow_symlinks=False)
        _regular(found, name)
        return found.st_size

    def modified(self, name: str, within: int) -> float:
        """Return when a file was last written, in epoch seconds by the file system's clock."""
        return os.stat(name, dir_fd=within, follow_symlinks=False).st_mtime

    def entries(self, within: int) -> Iterator[os.DirEntry[str]]:
        """Iterate over what is in a folder."""
        # A descriptor of its own: copies of one share their place in the folder.
        fd = os.open(".", disk.FOLDER, dir_fd=within)
        try:
            with os.scandir(fd) as entries:
                yield from entries
        finally:
            os.close(fd)

    def open_lock(self, name: str, within: int, *, make: bool = True) -> int:
        return os.open(name, _LOCK if make else _LOCK & ~os.O_CREAT, 0o666, dir_fd=within)

    def lock(self, fd: int, *, exclusive: bool, wait: bool = True) -> bool:
        """Lock an open file until it is closed; False if others hold it and `wait` is not set."""
        how = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB)
        try:
            fcntl.flock(fd, how)
        except BlockingIOError:
            return False
        return True

    def unlock(self, fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)

    def close(self, fd: int) -> None:
        os.close(fd)


def make_folders(path: Path, mode: int = 0o777) -> None:
    """Make a folder and those above it where missing, each durable in the one above."""
    missing = [path, *path.parents]
    while missing and missing[-1].exists():
        missing.pop()
    for folder in reversed(missing):
        folder.mkdir(mode=mode if folder == path else 0o777, exist_ok=True)
        disk.sync_folder(folder.parent)


def _regular(found: os.stat_result, name: str) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "a symbolic link", name)
    if not stat.S_ISREG(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "not a regular file", name)


_KINDS: Final = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "a file",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}
_REMEDIES: Final = {
    errno.EXDEV: "keep all folders of a dataset on one file system",
    errno.ENOTDIR: "a file is in the place of a folder: move it away",
    errno.ENOLCK: "use a file system that supports locks",
    errno.EMFILE: "close some datasets, or raise the limit of open files (ulimit -n)",
    errno.EIO: "check the disk, then try again",
}


def link_refused(path: str, found: os.stat_result | None = None) -> LinkRefused:
    """The error of a link, or of what else cannot be there, in the place of a file or folder of ours."""
    kind = "a symbolic link" if found is None else _KINDS.get(stat.S_IFMT(found.st_mode), "a special file")
    return LinkRefused(
        f"{path} is {kind}, which is not followed inside a workspace or dataset",
        remedy="look at it with `ls -l`; replace it with what it points to, or remove it",
        path=path,
    )


def refusal(error: OSError, doing: str, path: str) -> StoreError | LinkRefused:
    """Turn an error of the operating system into one that names the place and the remedy.

    >>> print(refusal(OSError(errno.ENOSPC, "No space left on device"), "write to", "/d/blocks"))
    cannot write to /d/blocks: No space left on device
      → free some space there (`trueline gc` removes what nothing refers to), then try again
    """
    if error.errno == errno.ELOOP:
        return link_refused(path)
    return disk.storage_error(
        error,
        doing,
        path,
        remedy=_REMEDIES.get(error.errno or 0, "nothing was changed; fix the cause, then try again"),
        if_full="free some space there (`trueline gc` removes what nothing refers to), then try again",
        if_read_only="give this user the right to write there, or work on a copy",
    )


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
    """Sync the file system that holds `fd`; False, with nothing done, where that is not supported.

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
