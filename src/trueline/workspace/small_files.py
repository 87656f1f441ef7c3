"""Small files of a workspace, read and written without following links, so that none leads elsewhere."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 16 << 20


def _opened(root: Path, folders: tuple[str, ...], *, make: bool = False) -> int:
    """Open a folder below one that is trusted, component by component; a link raises."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    fd = os.open(root, flags)
    try:
        for folder in folders:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(folder, dir_fd=fd)
                    os.fsync(fd)
            inner = os.open(folder, flags | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_beneath(root: Path, *path: str) -> bytes | None:
    """Read a small file below a folder without following links; None if it is not there."""
    try:
        folder = _opened(root, path[:-1])
    except FileNotFoundError:
        return None
    try:
        fd = os.open(path[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    finally:
        os.close(folder)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise OSError(errno.EFBIG, "it is too large")
    return raw


def write_beneath(root: Path, *path: str, data: bytes | None) -> None:
    """Write a small file below a folder whole and durably, without following links; None removes it."""
    try:
        folder = _opened(root, path[:-1], make=data is not None)
    except FileNotFoundError:
        return
    staged = f".{path[-1]}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        if data is None:
            with suppress(FileNotFoundError):
                os.unlink(path[-1], dir_fd=folder)
        else:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(staged, flags, 0o644, dir_fd=folder), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(staged, path[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(staged, dir_fd=folder)
                raise
        os.fsync(folder)
    finally:
        os.close(folder)
