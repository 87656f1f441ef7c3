"""A place for the files of work in flight: rows read but not yet committed, sorted runs, spooled frames.

Nothing here is named by its content or made durable, and all of it goes when
the work ends. It can be handed to other processes.
"""

from __future__ import annotations

import io
import re
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, ClassVar, Protocol, cast
from weakref import WeakValueDictionary

from trueline.chain.store.folders import Inside, inside
from trueline.chain.store.object_client import RangeReader
from trueline.errors import BadName

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_IN_MEMORY = 8 << 20


class Scratch(Protocol):
    """Files by name; a file appears when it is closed."""

    @property
    def folder(self) -> Inside | None:
        """Where it is on a file system, None if it is not on one."""

    def create(self, name: str) -> BinaryIO: ...

    def open(self, name: str) -> BinaryIO: ...

    def write(self, name: str, data: bytes) -> None:
        """Write a small file whole, or not at all."""

    def names(self, beginning: str) -> list[str]:
        """Return the names of the files that begin so, in order."""

    def clear(self) -> None: ...


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadName(
            f"{name!r} is not a valid file name", remedy="use letters, digits, dots and dashes", name=name
        )
    return name


class KnownByKey:
    """What knows its own key: other processes are sent copies and name it by the key when they answer.

    So an answer means a place that this process made, whatever the answer says.
    """

    _by_key: ClassVar[WeakValueDictionary[str, KnownByKey]] = WeakValueDictionary()

    def __init__(self) -> None:
        self.key = secrets.token_hex(16)
        self._by_key[self.key] = self

    @classmethod
    def of(cls, key: str) -> KnownByKey:
        """Return what was made in this process under a key; KeyError if there is none."""
        return cls._by_key[key]


class FolderScratch(KnownByKey):
    """Scratch in a folder, made when it is first written to."""

    def __init__(self, folder: Path | Inside) -> None:
        super().__init__()
        self._place = inside(folder)
        self._used = False

    @property
    def folder(self) -> Inside:
        self._used = True
        return self._place

    def __getstate__(self) -> dict[str, object]:
        # Other processes may write to it.
        self._used = True
        return self.__dict__

    def create(self, name: str) -> BinaryIO:
        self._used = True
        return (self._place / _checked(name)).create()

    def open(self, name: str) -> BinaryIO:
        return (self._place / _checked(name)).open()

    def write(self, name: str, data: bytes) -> None:
        self._used = True
        (self._place / _checked(name)).write(data, replace=False)

    def names(self, beginning: str) -> list[str]:
        return [name for name, _ in self._place.listing() if name.startswith(beginning)]

    def clear(self) -> None:
        # Most commits need none; looking for it takes 25 µs.
        if self._used:
            self._place.remove_tree()


class MemoryScratch(KnownByKey):
    """Scratch in the memory of one process."""

    folder: Inside | None = None

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[str, bytes] = {}

    def create(self, name: str) -> BinaryIO:
        files, checked = self._files, _checked(name)

        class MemoryFile(io.BytesIO):
            def close(self) -> None:
                if not self.closed:
                    files[checked] = self.getvalue()
                super().close()

        return MemoryFile()

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(self._files[_checked(name)])

    def write(self, name: str, data: bytes) -> None:
        self._files[_checked(name)] = data

    def names(self, beginning: str) -> list[str]:
        return sorted(name for name in self._files if name.startswith(beginning))

    def clear(self) -> None:
        self._files.clear()


class ObjectScratch(KnownByKey):
    """Scratch in an object store, by the few requests it needs."""

    folder: Inside | None = None

    def __init__(self, store: ScratchObjects, prefix: str) -> None:
        super().__init__()
        self._store = store
        self.prefix = prefix

    def create(self, name: str) -> BinaryIO:
        put, key = self._store.put_scratch, f"{self.prefix}/{_checked(name)}"
        return cast("BinaryIO", _Spooled(lambda file: put(key, file)))

    def open(self, name: str) -> BinaryIO:
        key = f"{self.prefix}/{_checked(name)}"
        size = self._store.scratch_size(key)
        reader = RangeReader(lambda start, length: self._store.get_scratch(key, start, length), size)
        return io.BufferedReader(reader, 1 << 20)

    def write(self, name: str, data: bytes) -> None:
        self._store.put_scratch(f"{self.prefix}/{_checked(name)}", io.BytesIO(data))

    def names(self, beginning: str) -> list[str]:
        return [name for name in self._store.scratch_names(self.prefix) if name.startswith(beginning)]

    def clear(self) -> None:
        self._store.clear_scratch(self.prefix)


class ScratchObjects(Protocol):
    """What an object store offers to its scratch."""

    def put_scratch(self, key: str, file: BinaryIO) -> None: ...

    def get_scratch(self, key: str, start: int, length: int) -> bytes: ...

    def scratch_size(self, key: str) -> int: ...

    def scratch_names(self, prefix: str) -> tuple[str, ...]: ...

    def clear_scratch(self, prefix: str) -> None: ...


class _Spooled(io.RawIOBase):
    """Bytes gathered on this machine and sent as one object when closed."""

    def __init__(self, send: Callable[[BinaryIO], None]) -> None:
        self._send = send
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 (closed with this)

    def writable(self) -> bool:
        return True

    def write(self, data: bytes | memoryview) -> int:  # type: ignore[override]
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        if not self.closed:
            try:
                self._file.seek(0)
                self._send(cast("BinaryIO", self._file))
            finally:
                self._file.close()
                super().close()
