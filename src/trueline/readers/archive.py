"""Zip archives: one member of an archive is read as if it were the file.

A member is chosen by its name in the archive's directory, which is compared and shown, and never used as a
path. Members are unpacked while they are read; a directory of more than a few megabytes is refused.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final, cast

from trueline.errors import BrokenFile, InputError, LimitExceeded
from trueline.limits import Limits
from trueline.readers.source import Source

MAGIC: Final = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
# An entry has 46 bytes and its name, and takes ten times as much in memory.
_DIRECTORY: Final = 4 << 20
_READ: Final = 1 << 18
_LISTED: Final = 8
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN: Final = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError)


def is_archive(raw: BinaryIO) -> bool:
    """Whether a file is a zip archive, by its first four bytes; it is at its start again afterwards."""
    if not raw.seekable():
        return False
    head = raw.read(4)
    raw.seek(0)
    return head in MAGIC


def open_unpacked(source: Source, member: str | None = None) -> BinaryIO:
    """Open a file; of a zip archive its one member, or the one that is named."""
    raw = source.open()
    try:
        return _unpacked(source, raw, member)
    except BaseException:
        raw.close()
        raise


def _unpacked(source: Source, raw: BinaryIO, member: str | None) -> BinaryIO:
    if is_archive(raw):
        return cast("BinaryIO", Member(source, raw, member))
    if member is not None:
        raise InputError(
            f"{source.path} is not a zip archive, so it has no member {member!r}",
            remedy="leave member out",
            code="NoSuchMember",
            path=source.path,
        )
    return raw


def in_memory(source: Source, member: str | None, limits: Limits) -> Source:
    """Return a source that can be read at any place; a member of an archive is unpacked into memory.

    >>> in_memory(Source.memory(b"a"), None, Limits()).size
    1
    """
    with closing(open_unpacked(source, member)) as raw:
        if not isinstance(raw, Member):
            return source
        return replace(source, open=partial(open_in_memory, source, member, limits), size=raw.size)


def open_in_memory(source: Source, member: str | None, limits: Limits) -> BinaryIO:
    """Open a file that can be read at any place; a member of an archive is unpacked into memory."""
    raw = open_unpacked(source, member)
    if not isinstance(raw, Member):
        return raw
    with closing(raw):
        if raw.size > limits.batch_bytes:
            raise limits.too_large(source.path, f"its member {raw.name!r}, unpacked,", raw.size)
        return io.BytesIO(raw.read(-1))


def member_name(source: Source) -> str | None:
    """The name of the one member of an archive; None if it is not one."""
    with closing(open_unpacked(source)) as raw:
        return raw.name if isinstance(raw, Member) else None


class Member(io.RawIOBase):
    """The bytes of one member, unpacked while they are read; they have the checksum the archive says."""

    def __init__(self, source: Source, raw: BinaryIO, member: str | None) -> None:
        self._source = source
        self._raw = raw
        self._archive: zipfile.ZipFile = self._safely(
            lambda: zipfile.ZipFile(cast("Any", _Careful(source, raw)))
        )
        entry = self._chosen(member)
        self.name, self.size = entry.filename, entry.file_size
        self._left = entry.file_size
        self._file = self._safely(lambda: self._archive.open(entry))

    def _chosen(self, member: str | None) -> zipfile.ZipInfo:
        entries = [each for each in self._archive.infolist() if not each.is_dir()]
        # What the archiver of macOS adds is not data.
        named = [each for each in entries if not each.filename.startswith("__MACOSX/")]
        found = named if member is None else [each for each in entries if each.filename == member]
        if len(found) != 1:
            raise self._not_one(member, [each.filename for each in named], len(found))
        entry = found[0]
        if entry.flag_bits & 1 or entry.compress_type not in _METHODS:
            how = "encrypted" if entry.flag_bits & 1 else "compressed in a way that is not read here"
            raise InputError(
                f"{self._source.path}: its member {entry.filename!r} is {how}",
                remedy="unpack it by other means, or pack it again without a password, with deflate",
                code="NotReadableMember",
                path=self._source.path,
            )
        return entry

    def _not_one(self, member: str | None, names: list[str], found: int) -> InputError:
        shown = ", ".join(map(repr, names[:_LISTED])) + (", …" if len(names) > _LISTED else "")
        path = self._source.path
        if not names:
            return InputError(
                f"{path} has no members", remedy="pack it again", code="NoSuchMember", path=path
            )
        first = names[0]
        remedy = f"name one: reader=trueline.{_reader_of(first)}(member={first!r}), or --member {first!r}"
        if member is None:
            problem = f"{path} has {len(names):,} members: {shown}"
            return InputError(problem, remedy=remedy, code="SeveralMembers", path=path)
        problem = f"{path} has {found or 'no'} member{'s' * (found > 1)} {member!r}: {shown}"
        return InputError(problem, remedy=remedy, code="NoSuchMember", path=path)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Give at most `size` bytes more; nothing at the end."""
        if not size:
            return self._raw.read(0)  # which looks whether the file is still the one that was listed
        parts: list[bytes] = []
        left = size if size > 0 else self.size
        while left > 0 and (part := self._safely(partial(self._file.read, min(left, _READ)))):
            left, self._left = left - len(part), self._left - len(part)
            parts.append(part)
        if not parts and self._left > 0:
            raise self._broken(f"its member {self.name!r} is truncated")
        return b"".join(parts)

    def _safely(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except (InputError, OSError):
            raise
        except _BROKEN as error:
            raise self._broken(str(error).splitlines()[0][:200] if str(error) else "") from None

    def _broken(self, what: str) -> BrokenFile:
        path = self._source.path
        return BrokenFile(f"{path} is broken: {what}", remedy="fetch the file again", path=path)

    def close(self) -> None:
        """Close the archive and the file it is in."""
        if not self.closed:
            for each in ("_file", "_archive"):
                if hasattr(self, each):
                    getattr(self, each).close()
            self._raw.close()
        super().close()


class _Careful:
    """A file of which no more is read at once than the directory of an archive may have."""

    def __init__(self, source: Source, raw: BinaryIO) -> None:
        self._source = source
        self._raw = raw
        self.seek, self.tell, self.seekable = raw.seek, raw.tell, raw.seekable

    def read(self, size: int = -1, /) -> bytes:
        if size > _DIRECTORY:
            raise LimitExceeded(
                f"{self._source.path}: the directory of the archive has {size:,} bytes, "
                f"more than {_DIRECTORY:,}",
                remedy="unpack it by other means, or pack fewer files together",
                path=self._source.path,
                limit="directory",
                allowed=_DIRECTORY,
                found=size,
            )
        return self._raw.read(size)


def _reader_of(name: str) -> str:
    ending = PurePosixPath(name.removesuffix(".gz")).suffix.lower()
    kinds = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet", ".txt": "text"}
    return kinds.get(ending, "arrow" if ending in (".arrow", ".feather", ".ipc") else "csv")
