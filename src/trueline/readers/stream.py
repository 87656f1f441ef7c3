"""From stored bytes to UTF-8 text: unpacked, decoded, in chunks of bounded size."""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Protocol

from trueline.errors import BrokenFile, InputError, StoreError
from trueline.readers.archive import is_archive, open_unpacked
from trueline.readers.parts import WHOLE, Part, Stretch
from trueline.readers.source import Source

BOM = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b"
# Never part of UTF-8, so a cell that holds it is always a bad cell.
_BAD_BYTE = "\udcff"
_READ = 1 << 18
_REFUSED = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "utf-7", "undefined"})


def _undecodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _BAD_BYTE, error.end


codecs.register_error("trueline.undecodable", _undecodable)


def encoding_name(encoding: str) -> str:
    """Return the one spelling of an encoding; refuse what is not one.

    >>> encoding_name("UTF8"), encoding_name("utf-8-sig"), encoding_name("latin1")
    ('utf-8', 'utf-8', 'iso8859-1')
    """
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)
    except (LookupError, TypeError, ValueError):
        name = ""
    if not name or name.replace("_", "-") in _REFUSED:
        raise InputError(
            f"{encoding!r} is not an encoding of text", remedy="give 'utf-8', 'cp1252', 'latin-1' or 'utf-16'"
        )
    return "utf-8" if name in {"utf-8-sig", "ascii"} else name


class Readable(Protocol):
    """Anything bytes can be read from."""

    def read(self, size: int, /) -> bytes:
        """Give at most `size` bytes more; nothing at the end."""
        ...


class TextStream:
    """Text of one source as UTF-8, read in chunks.

    What is not valid in the encoding stays invalid in the result, so that it
    is found again in the cell it belongs to and in no other.
    """

    def __init__(self, source: Source, raw: Readable, encoding: str, *, inside: bool = False) -> None:
        self._source = source
        self._raw = _Raw(source, raw)
        # What marks the start of a file is data in the middle of one.
        packed = self._raw.head.startswith(GZIP) and not inside
        self._packed = _Inflate(self._raw) if packed else None
        self._encoding = encoding
        self._decoder: codecs.IncrementalDecoder | None = None
        self._started = inside
        self._ended = False

    @property
    def taken(self) -> int:
        """How many stored bytes were read so far."""
        return self._raw.taken

    def read(self, size: int) -> bytes:
        """Give some more text, about `size` bytes of it; nothing at the end."""
        while not self._ended:
            data = self._stored(size)
            self._ended = not data
            text = self._text(data)
            if text:
                return text
        return b""

    def _stored(self, size: int) -> bytes:
        return self._packed.read(size) if self._packed else self._raw.read(size)

    def _text(self, data: bytes) -> bytes:
        if not self._started:
            # Four bytes are enough for every byte order mark.
            while len(data) < 4 and not self._ended and (more := self._stored(4)):
                data += more
            self._start(data)
        if self._decoder is None:
            text = data
        else:
            text = self._decoder.decode(data, final=self._ended).encode("utf-8", "surrogateescape")
        if not self._started and text:
            self._started = True
            text = text.removeprefix(BOM)
        return text

    def _start(self, head: bytes) -> None:
        name = self._encoding
        if name == "utf-8":
            return
        # Without a mark it is little-endian, on every machine.
        if name == "utf-16":
            name = "utf-16-be" if head.startswith(codecs.BOM_UTF16_BE) else "utf-16-le"
        if name == "utf-32":
            name = "utf-32-be" if head.startswith(codecs.BOM_UTF32_BE) else "utf-32-le"
        if self._decoder is None:
            self._decoder = codecs.getincrementaldecoder(name)("trueline.undecodable")


class _Raw:
    """The stored bytes, the first two known beforehand; errors of the device are raised as ours."""

    def __init__(self, source: Source, raw: Readable) -> None:
        self.source = source
        self._file = raw
        self.taken = 0
        self.head = b""
        while len(self.head) < 2 and (more := self._read(2 - len(self.head))):
            self.head += more
        self._front = self.head

    def read(self, size: int) -> bytes:
        if self._front:
            front, self._front = self._front, b""
            return front + self._read(max(size - len(front), 1))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        try:
            data = self._file.read(size) or b""
        except OSError as error:
            raise StoreError(
                f"{self.source.path} cannot be read: {error.strerror or error}",
                remedy="try again",
                path=self.source.path,
            ) from error
        self.taken += len(data)
        return data


class _Inflate:
    """Unpacked gzip, any number of members, never more at once than was asked for."""

    def __init__(self, raw: _Raw) -> None:
        self._raw = raw
        self._member = zlib.decompressobj(31)
        self._left = b""

    def read(self, size: int) -> bytes:
        while True:
            if self._member.eof and not self._next():
                return b""
            data = self._left or self._raw.read(_READ)
            if not data:
                raise self._broken("its gzip data is truncated")
            try:
                text = self._member.decompress(data, size)
            except zlib.error as error:
                raise self._broken(f"its gzip data is damaged ({error})") from None
            self._left = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if text:
                return text

    def _next(self) -> bool:
        """Begin the next member; zero bytes after the last one are padding."""
        data = self._left
        while not (data := data.lstrip(b"\0")):
            data = self._raw.read(_READ)
            if not data:
                return False
        self._left = data
        self._member = zlib.decompressobj(31)
        return True

    def _broken(self, what: str) -> BrokenFile:
        path = self._raw.source.path
        return BrokenFile(f"{path} is broken: {what}", remedy="fetch the file again", path=path)


@contextmanager
def opened(
    source: Source, encoding: str = "utf-8", part: Part = WHOLE, *, member: str | None = None
) -> Iterator[TextStream]:
    """Open the text of a source, or of a part of it; `member` names one of an archive."""
    with closing(open_unpacked(source, member)) as raw:
        if part == WHOLE:
            yield TextStream(source, raw, encoding)
        else:
            yield TextStream(source, Stretch(raw, part), encoding, inside=part.start > 0)
        raw.read(0)  # what was read is refused if the file was written to meanwhile


def can_be_cut(source: Source, encoding: str, size: int) -> bool:
    """Whether a file is large enough for two parts, and any byte of it is a byte of its text."""
    if encoding != "utf-8" or source.size is None or source.size < 2 * size:
        return False
    with closing(source.open()) as raw:
        return raw.seekable() and not is_archive(raw) and _Raw(source, raw).head != GZIP
