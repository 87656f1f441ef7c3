"""A store that shows what another holds and keeps what is written beside it: nothing there changes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import BinaryIO

from trueline.chain.store.file import FileStore
from trueline.chain.store.object import ObjectStore
from trueline.chain.store.scratch import ObjectScratch, Scratch
from trueline.chain.store.store import Folder, ObjectWriter, Store, Stored
from trueline.errors import StoreError
from trueline.identity.multihash import Multihash


class Overlay:
    """Reads of `base`, and of what was written here; the head is that of `base` and does not move.

    >>> from trueline.chain import MemoryStore
    >>> base = MemoryStore()
    >>> known = base.put(Folder.DATA, b"rows")
    >>> with overlay(base) as store:
    ...     new = store.put(Folder.DATA, b"more")
    ...     store.get(Folder.DATA, known), store.get(Folder.DATA, new), base.size(Folder.DATA, new)
    (b'rows', b'more', None)
    """

    def __init__(self, base: Store, own: Store) -> None:
        self.base = base
        self.own = own
        self.location = base.location

    def __reduce__(self) -> tuple[object, ...]:
        return Overlay, (self.base, self.own)

    def __repr__(self) -> str:
        return f"Overlay({self.base!r}, {self.own!r})"

    def _holder(self, folder: Folder, name: Multihash) -> Store:
        return self.own if self.own.size(folder, name) is not None else self.base

    # --- reading ----------------------------------------------------------

    def get(self, folder: Folder, name: Multihash, *, limit: int | None = None) -> bytes:
        return self._holder(folder, name).get(folder, name, limit=limit)

    def open(self, folder: Folder, name: Multihash) -> BinaryIO:
        return self._holder(folder, name).open(folder, name)

    def size(self, folder: Folder, name: Multihash) -> int | None:
        return self._holder(folder, name).size(folder, name)

    def list(self, folder: Folder) -> Iterator[Stored]:
        yield from self.own.list(folder)
        yield from self.base.list(folder)

    def head(self, ref: str = "head") -> Multihash | None:
        return self.base.head(ref)

    def refs(self) -> Iterator[str]:
        return self.base.refs()

    def oldest_lease(self) -> float | None:
        return self.base.oldest_lease()

    # --- writing, beside it -----------------------------------------------

    def put(self, folder: Folder, data: bytes) -> Multihash:
        return self.own.put(folder, data)

    def writer(self, folder: Folder) -> ObjectWriter:
        return self.own.writer(folder)

    def renew(self, folder: Folder, name: Multihash) -> bool:
        return self.own.renew(folder, name)

    def delete(self, folder: Folder, name: Multihash, *, unless_after: float | None = None) -> bool:
        return self.own.delete(folder, name, unless_after=unless_after)

    def sync(self) -> None:
        self.own.sync()

    def lease(self) -> AbstractContextManager[None]:
        return self.own.lease()

    def clock(self) -> float:
        return self.own.clock()

    def fence(self) -> float | None:
        return self.own.fence()

    def turn(self, *, alone: bool = False) -> AbstractContextManager[None]:
        return self.own.turn(alone=alone)

    def scratch(self) -> AbstractContextManager[Scratch]:
        return self.own.scratch()

    def move_head(
        self,
        new: Multihash,
        *,
        expected: Multihash | None,
        ref: str = "head",
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        del expected, meanwhile
        raise StoreError(
            f"refs/{ref} of {self.location} cannot be moved to {new.short} from a look at it",
            remedy="append to the dataset itself",
        )

    def close(self) -> None:
        self.own.close()


@contextmanager
def overlay(base: Store) -> Iterator[Overlay]:
    """Open an overlay whose files go when it is closed: where the scratch of the store is.

    So whoever sees the store sees them too, tasks on other machines among them. What is kept in the memory of
    this process has them in a local folder.
    """
    with base.scratch() as scratch, ExitStack() as stack:
        own: Store
        if isinstance(base, ObjectStore) and isinstance(scratch, ObjectScratch):
            own = base.scratch_store(scratch)
        elif scratch.folder is not None:
            own = FileStore(scratch.folder / "beside", durable=False)
        else:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="trueline-"))
            own = FileStore(place, durable=False)
        stack.callback(own.close)
        yield Overlay(base, own)
