"""A dataset to read from, in any location: the protocol, and any store as one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from typing import Any, Final, Protocol

from trueline.chain.encode import MAX_BLOCK_BYTES
from trueline.chain.store.object import ObjectStore
from trueline.chain.store.open import open_store
from trueline.chain.store.store import Folder, Store
from trueline.errors import CorruptionError, HashMismatch, InputError
from trueline.identity.multihash import Multihash
from trueline.workspace.names import is_tag_name

# An object store answers one request for as much as is asked.
_CHUNK: Final = 4 << 20
# Tags that a source may name; it may list what it likes.
MOST_BROUGHT: Final = 10_000
_HTTP: Final = re.compile(r"https?://", re.IGNORECASE)


class Remote(Protocol):
    """Objects of one dataset, to be read only. It may be used from several threads.

    Nothing it gives is trusted: the caller bounds sizes and checks hashes.
    """

    location: str

    def head(self) -> Multihash | None:
        """Return the newest block, None if there is no dataset."""

    def get(self, folder: Folder, name: Multihash, limit: int) -> bytes:
        """Return a small object; `ObjectMissing`, or `CorruptionError` if it has more than `limit` bytes."""

    def chunks(self, folder: Folder, name: Multihash) -> AbstractContextManager[Iterator[bytes]]:
        """Open an object, to be read in pieces."""

    def names(self) -> Iterator[Multihash] | None:
        """Iterate over the blocks there are; None where that cannot be asked."""

    def tags(self) -> dict[str, Multihash]:
        """Return the refs beside the head, at most `MOST_BROUGHT`; none where that cannot be asked."""

    def close(self) -> None:
        """Release what is open."""


def open_remote(location: str | os.PathLike[str], **options: Any) -> Remote:
    """Return the dataset at a folder, an object-store URL, or an address of a static file server."""
    text = os.fspath(location)
    if not text or "\0" in text:
        raise InputError(f"{location!r} is not a location", remedy="give a folder or a URL")
    if _HTTP.match(text):
        from trueline.workspace.transfer.http_remote import HttpRemote

        return HttpRemote(text, **options)
    return StoreRemote(open_store(text, **options))


class StoreRemote:
    """A store as something to read from."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.location = store.location

    def head(self) -> Multihash | None:
        return self.store.head()

    def get(self, folder: Folder, name: Multihash, limit: int) -> bytes:
        return self.store.get(folder, name, limit=limit)

    @contextmanager
    def chunks(self, folder: Folder, name: Multihash) -> Iterator[Iterator[bytes]]:
        with self.store.open(folder, name) as file:
            yield iter(lambda: file.read(_CHUNK), b"")

    def names(self) -> Iterator[Multihash] | None:
        # Reading a folder file by file is faster than listing it.
        if not isinstance(self.store, ObjectStore):
            return None
        return (stored.hash for stored in self.store.list(Folder.BLOCKS))

    def tags(self) -> dict[str, Multihash]:
        found: dict[str, Multihash] = {}
        for name in islice((each for each in self.store.refs() if is_tag_name(each)), MOST_BROUGHT):
            with suppress(CorruptionError):  # not a ref of ours
                block = self.store.head(name)
                if block is not None:
                    found[name] = block
        return found

    def close(self) -> None:
        self.store.close()


def block_bytes(remote: Remote, name: Multihash) -> bytes:
    """Return the bytes of a block, proven by its name (rule chain:C7)."""
    raw = remote.get(Folder.BLOCKS, name, MAX_BLOCK_BYTES)
    actual = Multihash.of(raw)
    if actual != name:
        raise HashMismatch(
            f"block {name} of {remote.location} hashes to {actual}",
            remedy="the source is damaged: verify it there, or take another copy",
            expected=name,
            actual=actual,
        )
    return raw


def required_head(remote: Remote) -> Multihash:
    """Return the head of a dataset, or say that there is none."""
    found = remote.head()
    if found is None:
        raise InputError(
            f"there is no dataset at {remote.location}: it has no refs/head",
            remedy="give the location of one dataset (in a workspace: .../datasets/NAME)",
            code="NotADataset",
            location=remote.location,
        )
    return found
