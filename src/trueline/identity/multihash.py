"""The name of an object: a hash that says which function made it."""

from __future__ import annotations

import re
from hashlib import sha3_256
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, Self

from trueline.errors import InputError, StoreError
from trueline.identity import multibase

if TYPE_CHECKING:
    import builtins


SHA2_256: Final = 0x12
SHA3_256: Final = 0x16
ARROW0_SHA3_256: Final = 0x300016

_NAMES: Final = {SHA2_256: "sha2-256", SHA3_256: "sha3-256", ARROW0_SHA3_256: "arrow0-sha3-256"}
_PREFIXES: Final = {SHA2_256: "f1220", SHA3_256: "f1620", ARROW0_SHA3_256: "f9680c00120"}
_CODES: Final = {prefix: code for code, prefix in _PREFIXES.items()}
_DIGEST_BYTES: Final = 32
_CANONICAL: Final = re.compile("(?:" + "|".join(_CODES) + ")[0-9a-f]{64}")


class Multihash(str):
    """A multihash whose text is always its canonical base16 form.

    It is a `str`, so it serves as a file name, a JSON value and a key as it is.

    >>> name = Multihash.of(b"multihash")
    >>> name
    'f162008c3792b2a4deed1bd7ea2328fb5de5531eccf0fbfa04a7d800cdc267137c635'
    >>> name == Multihash("zW1a3CNT52HXiJNniLkWMeev3CPRy9QiNRMWGyTrVNg4hY8"), name.short
    (True, '7137c635')

    >>> Multihash.parse(str(name)) == Multihash.from_bytes(name.bytes) == Multihash.sha3_256(name.digest)
    True
    >>> hex(name.code), Multihash.arrow0_sha3_256(name.digest)[:11]
    ('0x16', 'f9680c00120')
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Check and canonicalise text, as `parse` does."""
        if type(text) is cls:
            return text
        if not isinstance(text, str):
            raise _refused(f"a multihash is text, not {type(text).__name__}")
        if _CANONICAL.fullmatch(text):
            return str.__new__(cls, text)
        return cls.from_bytes(multibase.decode(text))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a multihash in any of the bases `f F u z`; anything else raises `InputError`."""
        return cls(text)

    @classmethod
    def from_bytes(cls, raw: builtins.bytes) -> Self:
        """Read the binary form: code, length, digest."""
        code, start = _uvarint(raw, 0)
        if code not in _NAMES:
            raise _refused(f"hash function {code:#x} is not known", "UnknownHashFunction")
        length, start = _uvarint(raw, start)
        if length != _DIGEST_BYTES or len(raw) - start != _DIGEST_BYTES:
            held = len(raw) - start
            raise _refused(f"a {_NAMES[code]} digest has 32 bytes, this one says {length} and has {held}")
        return cls._from_digest(code, raw[start:])

    @classmethod
    def sha3_256(cls, digest: builtins.bytes) -> Self:
        """Name a sha3-256 digest made elsewhere (0.3 µs: only its length is checked)."""
        if len(digest) != _DIGEST_BYTES:
            raise _refused(f"a sha3-256 digest has 32 bytes, not {len(digest)}")
        return str.__new__(cls, "f1620" + digest.hex())

    @classmethod
    def arrow0_sha3_256(cls, digest: builtins.bytes) -> Self:
        """Name the digest of a logical hash."""
        if len(digest) != _DIGEST_BYTES:
            raise _refused(f"an arrow0-sha3-256 digest has 32 bytes, not {len(digest)}")
        return str.__new__(cls, "f9680c00120" + digest.hex())

    @classmethod
    def of(cls, data: builtins.bytes | bytearray | memoryview) -> Self:
        """Hash bytes with sha3-256, the function that names blocks, slices and checkpoints."""
        return str.__new__(cls, "f1620" + sha3_256(data).hexdigest())

    @classmethod
    def _from_digest(cls, code: int, digest: builtins.bytes) -> Self:
        return str.__new__(cls, _PREFIXES[code] + digest.hex())

    @property
    def bytes(self) -> builtins.bytes:
        """The binary form, as stored inside blocks."""
        return bytes.fromhex(self[1:])

    @property
    def code(self) -> int:
        """The number of the hash function in the multicodec table."""
        return _CODES[self[:-64]]

    @property
    def digest(self) -> builtins.bytes:
        """The digest alone."""
        return bytes.fromhex(self[-64:])

    @property
    def short(self) -> str:
        """The last eight characters, enough for people to tell hashes apart."""
        return self[-8:]


def _uvarint(raw: bytes, start: int) -> tuple[int, int]:
    """Read an unsigned varint of at most nine bytes; return it and where it ends."""
    value = 0
    for index in range(start, min(start + 9, len(raw))):
        byte = raw[index]
        value |= (byte & 0x7F) << (7 * (index - start))
        if byte < 0x80:
            if byte == 0 and index > start:
                raise _refused("a multihash number is written with more bytes than it needs")
            return value, index + 1
    raise _refused("a multihash ends inside its header")


def _refused(problem: str, code: str = "BadMultihash") -> InputError:
    known = ", ".join(f"{name} ({code:#x})" for code, name in _NAMES.items())
    return InputError(problem, remedy=f"give the whole hash; known functions are {known}", code=code)


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
