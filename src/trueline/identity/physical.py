"""The physical hash: sha3-256 of the bytes of a file, taken while they pass."""

from __future__ import annotations

from hashlib import sha3_256
from typing import BinaryIO, Final, Protocol

from trueline.errors import InputError, StoreError
from trueline.identity.multihash import Multihash

_CHUNK: Final = 1 << 18


class Sink(Protocol):
    """Anything bytes can be written to."""

    def write(self, data: bytes | memoryview, /) -> int | None:
        """Take bytes; return how many were taken, or None for all of them."""


def physical_hash(data: bytes | bytearray | memoryview | BinaryIO) -> Multihash:
    """Hash bytes, or what is left to read of a binary stream, in constant memory.

    >>> import io
    >>> physical_hash(b"foo") == physical_hash(io.BytesIO(b"foo"))
    True
    """
    if isinstance(data, bytes | bytearray | memoryview):
        return Multihash.of(data)
    hasher = sha3_256()
    try:
        while chunk := data.read(_CHUNK):
            hasher.update(chunk)
    except (AttributeError, TypeError):
        raise InputError(
            f"cannot hash a {type(data).__name__}",
            remedy="give bytes, or a file opened in binary mode",
            code="NotBytes",
        ) from None
    return Multihash.sha3_256(hasher.digest())


class HashingWriter:
    """A binary sink that counts and hashes what passes through it to another sink.

    It has what `pyarrow.PythonFile(writer, mode="w")` asks for, so a Parquet
    file is named as it is written. Closing it does not close the sink beneath.

    >>> import io
    >>> writer = HashingWriter(io.BytesIO())
    >>> writer.write(b"fo") + writer.write(b"o"), writer.size, writer.hash() == Multihash.of(b"foo")
    (3, 3, True)
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._hasher = sha3_256()
        self.size = 0
        self.closed = False

    def write(self, data: bytes | memoryview) -> int:
        """Hand all of `data` on; what is hashed is exactly what the sink took."""
        if self.closed:
            raise InputError("writing after close", remedy="open a new writer", code="WriterClosed")
        view = memoryview(data).cast("B")
        total = len(view)
        while True:
            taken = self._sink.write(view)
            # A buffered sink takes everything and may return nothing; a raw one may take a part.
            count = len(view) if taken is None else taken
            self._hasher.update(view[:count])
            self.size += count
            if count >= len(view):
                return total
            if not count:
                raise StoreError(
                    f"the sink stopped taking bytes after {self.size}",
                    remedy="see whether its storage is full, then write again",
                )
            view = view[count:]

    def hash(self) -> Multihash:
        """Name what was written so far."""
        return Multihash.sha3_256(self._hasher.digest())

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self.size

    def flush(self) -> None:
        """Flush the sink beneath, where it can be."""
        flush = getattr(self._sink, "flush", None)
        if flush is not None:
            flush()

    def writable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return False."""
        return False

    def close(self) -> None:
        """Take no more; the sink stays open for its owner."""
        self.closed = True
