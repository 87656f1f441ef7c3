"""Where the objects and the head of one dataset are kept: the protocol."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO, Final, Protocol

from trueline.chain.store.scratch import Scratch
from trueline.errors import InputError, ObjectMissing, RefCASFailed
from trueline.identity.multihash import HashingWriter, Multihash, Sink

_REF: Final = re.compile(r"(?!.*\.(?:\.|$))[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Folder(StrEnum):
    """The three kinds of objects of an Open Data Fabric dataset."""

    BLOCKS = "blocks"
    DATA = "data"
    CHECKPOINTS = "checkpoints"


@dataclass(frozen=True, slots=True)
class Stored:
    """An object in a store: its name, its size in bytes and when it was last written (epoch seconds)."""

    hash: Multihash
    size: int
    modified: float


class ObjectWriter(Protocol):
    """A binary sink for one object; its name is known when all bytes are in."""

    def write(self, data: bytes | memoryview) -> int: ...

    def finish(self) -> Stored:
        """Name the object by the sha3-256 of its bytes; it is durable after the next `sync`."""

    def abandon(self) -> None:
        """Throw away what was written; harmless after `finish`."""


class Store(Protocol):
    """Objects that are written once, and a head that moves by compare-and-set.

    An object appears under its name only when its bytes are durable: `put` and
    `finish` stage it, `sync` (which `move_head` calls first) makes everything
    staged durable and visible. The instance that staged an object can read it
    before that. Putting an object that exists changes nothing but its time.

    If `sync` fails because bytes could not be made durable, what was staged is
    given up: put the objects of the commit again.

    `location` is what `open_store` takes to reach the same place from another process.

    >>> from trueline.chain import MemoryStore
    >>> store = MemoryStore()
    >>> with store.lease(), store.turn():
    ...     name = store.put(Folder.DATA, b"rows")
    ...     started = store.oldest_lease() is not None
    >>> store.sync()
    >>> store.get(Folder.DATA, name), store.size(Folder.DATA, name), store.open(Folder.DATA, name).read(2)
    (b'rows', 4, b'ro')
    >>> writer = store.writer(Folder.BLOCKS)
    >>> _ = writer.write(b"block")
    >>> block = writer.finish().hash
    >>> store.move_head(block, expected=None)
    >>> store.head() == block, [each.hash == name for each in store.list(Folder.DATA)], list(store.refs())
    (True, [True], ['head'])
    >>> store.renew(Folder.DATA, name), store.delete(Folder.DATA, name, unless_after=store.clock() - 60)
    (True, False)
    >>> store.fence() is None
    True
    >>> with store.scratch() as scratch:
    ...     scratch.create("part").close()
    >>> store.close()
    """

    location: str

    def get(self, folder: Folder, name: Multihash, *, limit: int | None = None) -> bytes:
        """Return the bytes of an object (not verified: the caller hashes).

        Raises `ObjectMissing`; `CorruptionError` if it is larger than `limit`.
        """

    def open(self, folder: Folder, name: Multihash) -> BinaryIO:
        """Open an object for seekable reading."""

    def size(self, folder: Folder, name: Multihash) -> int | None:
        """Return an object's size in bytes, None if it is absent."""

    def put(self, folder: Folder, data: bytes) -> Multihash:
        """Stage an object and return its name."""

    def writer(self, folder: Folder) -> ObjectWriter:
        """Start an object of unknown length; `finish` or `abandon` it."""

    def renew(self, folder: Folder, name: Multihash) -> bool:
        """Put an object again that is there, without its bytes; False if it is not there.

        A commit may rely on it from then on, as on one that it has put itself.
        """

    def list(self, folder: Folder) -> Iterator[Stored]:
        """Iterate over the visible objects, in no order; foreign files are passed over."""

    def delete(self, folder: Folder, name: Multihash, *, unless_after: float | None = None) -> bool:
        """Remove an object; keep it if it was written (or put again) at `unless_after` or later.

        It may come back after a power cut until the next `sync`.
        """

    def sync(self) -> None:
        """Make everything staged durable and visible, and what was removed gone for good."""

    def head(self, ref: str = "head") -> Multihash | None:
        """Return where the ref points, None if it was never set."""

    def refs(self) -> Iterator[str]:
        """Iterate over the names of the refs, `head` among them, in no order; foreign files are left out."""

    def move_head(
        self,
        new: Multihash,
        *,
        expected: Multihash | None,
        ref: str = "head",
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Make everything durable, then point the ref at `new` if it is still at `expected`.

        `meanwhile` is called once the ref points there, while the storage confirms it.
        Raises `RefCASFailed` if it is not (rule chain:C8); `ObjectMissing` if `new` is not a
        block of this store; `StoreError` if the lease of the commit was lost, since `gc` may
        have removed its objects (rule guard:G5); `OutcomeUnknown` if the storage did not say
        whether the move happened.
        """

    def lease(self) -> AbstractContextManager[None]:
        """Say that a commit is in flight: `gc` spares what is put from now on.

        Leases nest. A `put` outside one takes a lease of its own, which ends
        when `move_head` next succeeds, or at `close`.
        """

    def oldest_lease(self) -> float | None:
        """Return when the oldest commit still in flight began, None if there is none; clears nothing."""

    def clock(self) -> float:
        """Return the time, in epoch seconds, by the clock that stamps objects and leases."""

    def fence(self) -> float | None:
        """Return when the oldest commit still in flight began, and stop all that are not.

        A collection asks this before it asks what is reached. A commit whose
        lease was gone, or was given up here, cannot move a head after it. The
        leases of dead processes are removed, with what they had staged.
        """

    def turn(self, *, alone: bool = False) -> AbstractContextManager[None]:
        """Wait for one's turn to commit.

        Writers that take turns lose no race to each other. It is a courtesy,
        not a lock: the head still moves by compare-and-set. `alone`, writers
        that take no turns wait too: their `move_head` goes on when it ends.
        """

    def scratch(self) -> AbstractContextManager[Scratch]:
        """Open a place for files of work in flight, under a lease; it is cleared at the end."""

    def close(self) -> None:
        """Give up what is staged, end the leases, release what is open."""


class NamingWriter(HashingWriter):
    """A writer that hands what it has written to its store when it is finished.

    A write that fails abandons the object: part of it may be in the sink, so
    it could never be what its hash says.
    """

    def __init__(
        self, sink: Sink, keep: Callable[[Multihash, int], Stored], drop: Callable[[], None]
    ) -> None:
        super().__init__(sink)
        self._keep = keep
        self._drop = drop
        self._stored: Stored | None = None
        self._settled = False

    def write(self, data: bytes | memoryview) -> int:
        try:
            return super().write(data)
        except BaseException:
            self.abandon()
            raise

    def finish(self) -> Stored:
        if self._stored is None:
            if self._settled:
                raise InputError(
                    "this object was abandoned",
                    remedy="write it again with a new writer",
                    code="WriterClosed",
                )
            self.close()
            try:
                self._stored = self._keep(self.hash(), self.size)
            except BaseException:
                self.abandon()
                raise
            self._settled = True
        return self._stored

    def abandon(self) -> None:
        self.close()
        if not self._settled:
            self._settled = True
            self._drop()


def is_ref(name: str) -> bool:
    """Say whether a name can be that of a ref."""
    return _REF.fullmatch(name) is not None


def check_ref(ref: str) -> None:
    """Refuse a ref whose name could lead out of the folder of refs."""
    if not _REF.fullmatch(ref):
        raise InputError(
            f"{ref!r} is not a ref name", remedy="use letters, digits, ., - and _", code="BadRef", ref=ref
        )


def head_moved(ref: str, expected: Multihash | None, found: Multihash | None, location: str) -> RefCASFailed:
    """The error of a compare-and-set that came too late."""
    was, now = (value.short if value else "unset" for value in (expected, found))
    return RefCASFailed(
        f"refs/{ref} of {location} is {now}, not {was}: another commit came first",
        remedy="read the head again, build the commit on it and try again",
        ref=ref,
        expected=expected,
        actual=found,
        location=location,
    )


def object_missing(folder: Folder, name: Multihash, location: str) -> ObjectMissing:
    """The error of a reference to an object that is not there."""
    return ObjectMissing(
        f"{folder}/{name} is not in {location}",
        remedy="restore it from a copy of the dataset; if it was just written, put it again",
        folder=folder,
        hash=name,
        location=location,
    )
