"""The name of an object: a hash that says which function made it."""

from __future__ import annotations

import re
from hashlib import sha3_256
from typing import TYPE_CHECKING, Final, Self

from trueline.errors import InputError
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
