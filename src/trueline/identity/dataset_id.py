"""Who a dataset is: the public half of an ed25519 key, as a decentralised identifier."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from trueline.errors import EnvironmentMissing, InputError
from trueline.identity import multibase

if TYPE_CHECKING:
    import builtins

_ED25519: Final = b"\xed\x01"
_KEY_BYTES: Final = 32
_CANONICAL: Final = re.compile("did:odf:fed01[0-9a-f]{64}")


class DatasetId(str):
    """A dataset's identifier; its text is always the canonical `did:odf:fed01…`.

    >>> id = DatasetId("did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK")
    >>> id
    'did:odf:fed012e6fcce36701dc791488e0d0b1745cc1e33a4c1c9fcc41c63bd343dbbe0970e6'
    >>> id.did_key, id.short
    ('did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK', 'be0970e6')

    >>> DatasetId.parse(id.did_key) == DatasetId.from_bytes(id.bytes) == id
    True
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Check and canonicalise text, as `parse` does."""
        if type(text) is cls:
            return text
        if not isinstance(text, str):
            raise _refused(f"a dataset id is text, not {type(text).__name__}")
        if _CANONICAL.fullmatch(text):
            return str.__new__(cls, text)
        for method in ("did:odf:", "did:key:"):
            if text.startswith(method):
                return cls.from_bytes(multibase.decode(text[len(method) :]))
        raise _refused(f"{text[:80]!r} is not a dataset id")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `did:odf:` or `did:key:` in any of the bases `f F u z`; else `InputError`."""
        return cls(text)

    @classmethod
    def from_bytes(cls, raw: builtins.bytes) -> Self:
        """Read the 34 bytes a Seed block stores: the ed25519 mark and the public key."""
        if len(raw) != len(_ED25519) + _KEY_BYTES or raw[:2] != _ED25519:
            raise _refused(f"a dataset id is ed 01 and 32 bytes of an ed25519 key, not {raw[:40].hex(' ')!r}")
        return str.__new__(cls, "did:odf:f" + raw.hex())

    @property
    def bytes(self) -> builtins.bytes:
        """The 34 bytes as stored inside blocks."""
        return bytes.fromhex(self[9:])

    @property
    def did_key(self) -> str:
        """The same key in the `did:key` method."""
        return "did:key:" + multibase.encode_base58(self.bytes)

    @property
    def short(self) -> str:
        """The last eight characters, enough for people to tell datasets apart."""
        return self[-8:]


@dataclass(frozen=True, slots=True)
class DatasetKey:
    """The key pair a dataset's id comes from; its `repr` does not show the private half.

    >>> key = DatasetKey.from_private_bytes(bytes(32))
    >>> key.id.short, DatasetKey.generate().id == key.id
    ('8b59da29', False)

    >>> DatasetKey.from_private_bytes(key.private_bytes()).id == key.id
    True
    """

    id: DatasetId
    _private: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> Self:
        """Make a new key pair from the system's randomness."""
        import secrets

        return cls.from_private_bytes(secrets.token_bytes(_KEY_BYTES))

    @classmethod
    def from_private_bytes(cls, private: bytes) -> Self:
        """Restore a key pair from its 32 private bytes."""
        if len(private) != _KEY_BYTES:
            raise _refused(f"an ed25519 private key has 32 bytes, not {len(private)}")
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        except ImportError as error:
            raise EnvironmentMissing(
                "making a dataset id needs the package cryptography",
                remedy="pip install cryptography",
            ) from error
        public = Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
        return cls(DatasetId.from_bytes(_ED25519 + public), bytes(private))

    def private_bytes(self) -> bytes:
        """The 32 private bytes; who holds them can sign for the dataset."""
        return self._private


def _refused(problem: str) -> InputError:
    return InputError(
        problem,
        remedy="give did:odf:fed01 followed by 64 hex digits, or did:key:z6Mk…",
        code="BadDatasetId",
    )
