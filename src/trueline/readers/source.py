"""Where bytes come from: files, globs, memory."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from glob import glob, has_magic
from pathlib import Path
from typing import Any, BinaryIO, cast

from trueline.errors import InputError, StoreError


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Source:
    """One file to read: its name, a way to open it, and its size where it is known.

    `open` may be called more than once and gives the bytes from the start each time. `place` is its whole
    path, where it is a file: other processes may have another current folder.

    >>> Source.memory(b"a,b").size
    3
    """

    path: str
    open: Callable[[], BinaryIO]
    size: int | None = None
    place: str | None = None

    @property
    def is_in_memory(self) -> bool:
        """Whether its bytes are held by this process.

        >>> Source.memory(b"x").is_in_memory
        True
        """
        return getattr(self.open, "func", None) is _open_memory

    @classmethod
    def memory(cls, data: bytes | bytearray | memoryview, path: str = "(memory)") -> Source:
        """Read bytes that are already here."""
        held = bytes(data)
        return cls(path, partial(_open_memory, held), len(held))

    @classmethod
    def file(cls, path: str | os.PathLike[str]) -> Source:
        """Pin a file by size and time: reading it after it changed is an error (decision 3)."""
        name = os.fspath(path)
        try:
            stat = Path(name).stat()
        except OSError as error:
            raise _no_file(name, error) from None
        if not Path(name).is_file():
            raise InputError(
                f"{name} is not a file", remedy=f"give a file, or a pattern such as {name}/*", path=name
            )
        place = os.path.abspath(name)  # noqa: PTH100 (keeps links)
        opened = partial(_open_file, place, name, stat.st_size, stat.st_mtime_ns)
        return cls(name, opened, stat.st_size, place)

    def counted(self, read: Callable[[int], None]) -> Source:
        """Return the same file; `read` is called with how many bytes were read, each time some are.

        >>> sizes: list[int] = []
        >>> Source.memory(b"a,b").counted(sizes.append).open().read(), sizes
        (b'a,b', [3])
        """
        return replace(self, open=lambda: cast("BinaryIO", _CountedFile(self.open(), read)))


class _CountedFile:
    """An open file that says how many of its bytes were read."""

    def __init__(self, file: BinaryIO, read: Callable[[int], None]) -> None:
        self._file = file
        self._read = read

    def read(self, size: int = -1, /) -> bytes:
        """Give at most `size` bytes more; nothing at the end."""
        data = self._file.read(size)
        self._read(len(data))
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def find(given: object) -> list[Source]:
    """List the sources behind a path, a pattern, bytes, a source, or several of them, in order.

    Several things are read in the order given; the files of a pattern in the
    order of their names.

    >>> [source.path for source in find([b"1", b"2"])]
    ['(memory)', '(memory)']
    """
    if isinstance(given, Source):
        return [given]
    if isinstance(given, bytes | bytearray | memoryview):
        return [Source.memory(given)]
    if isinstance(given, str | os.PathLike):
        return _matching(os.fspath(given))
    if isinstance(given, Sequence):
        return [source for each in given for source in find(each)]
    raise InputError(
        f"a {type(given).__name__} is not a source", remedy="give a path, a pattern, bytes, or a list of them"
    )


def _matching(path: str) -> list[Source]:
    if has_magic(path) and not Path(path).exists():
        found = sorted(name for name in glob(path, recursive=True) if Path(name).is_file())  # noqa: PTH207 - absolute or not
        if not found:
            raise InputError(
                f"no file matches {path}", remedy="check the pattern", code="NoSuchFile", path=path
            )
        return [Source.file(name) for name in found]
    return [Source.file(path)]


def _open_memory(data: bytes) -> BinaryIO:
    return io.BytesIO(data)


class PinnedFile(io.BufferedReader):
    """A file as it was when it was listed: checked with every read, so that none mixes old and new.

    Errors call it by its `name`, as it was given.
    """

    def __init__(self, place: str, name: str, size: int, modified: int) -> None:
        raw = io.FileIO(place)
        super().__init__(raw, max(os.fstat(raw.fileno()).st_blksize, 512))
        self._listed = (name, size, modified)
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def read(self, size: int | None = -1, /) -> bytes:
        """Give at most `size` bytes more; nothing at the end."""
        data = super().read(-1 if size is None else size)
        self._check()
        return data

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer, as far as there are bytes."""
        count = super().readinto(buffer)
        self._check()
        return count

    def _check(self) -> None:
        path, *listed = self._listed
        stat = os.fstat(self.fileno())
        if [stat.st_size, stat.st_mtime_ns] != listed:
            raise InputError(
                f"{path} changed since it was listed",
                remedy="wait until nobody writes to it, and read it again",
                code="FileChanged",
                path=path,
            )


def _open_file(place: str, name: str, size: int, modified: int) -> BinaryIO:
    try:
        return cast("BinaryIO", PinnedFile(place, name, size, modified))
    except InputError:
        raise
    except OSError as error:
        raise _no_file(name, error) from None


def _no_file(path: str, error: OSError) -> InputError | StoreError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"there is no file {path}", remedy="check the path", code="NoSuchFile", path=path)
    return StoreError(
        f"{path} cannot be opened: {error.strerror or error}", remedy="check its permissions", path=path
    )
