"""A dataset in the memory of one process: for tests, and for chains that need not last."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import BinaryIO

from trueline.chain.store.scratch import MemoryScratch
from trueline.chain.store.store import Folder, NamingWriter, Stored, check_ref, head_moved, object_missing
from trueline.errors import CorruptionError
from trueline.identity.multihash import Multihash


class MemoryStore:
    """Objects and head in dictionaries; what the other stores do, without the storage.

    >>> store = MemoryStore()
    >>> block = store.put(Folder.BLOCKS, b"first")
    >>> store.move_head(block, expected=None)
    >>> store.get(Folder.BLOCKS, store.head())
    b'first'
    """

    def __init__(self) -> None:
        self.location = f"memory store {id(self):#x}"
        self._mutex = threading.RLock()
        self._turn = threading.Lock()
        self._moving = threading.RLock()
        self._objects: dict[Folder, dict[Multihash, tuple[bytes, float]]] = {f: {} for f in Folder}
        self._staged: dict[tuple[Folder, Multihash], bytes] = {}
        self._heads: dict[str, Multihash] = {}
        self._leases: list[float] = []
        self._implicit: float | None = None
        self._latest = 0.0

    def __repr__(self) -> str:
        return f"MemoryStore({sum(map(len, self._objects.values()))} objects)"

    # --- reading ----------------------------------------------------------

    def get(self, folder: Folder, name: Multihash, *, limit: int | None = None) -> bytes:
        data = self._find(folder, name)
        if data is None:
            raise object_missing(folder, name, self.location)
        if limit is not None and len(data) > limit:
            raise CorruptionError(
                f"{folder}/{name} is not the object its name says: "
                f"{len(data):,} bytes, at most {limit:,} expected",
                remedy="restore the object from a copy of the dataset",
                path=f"{folder}/{name}",
            )
        return data

    def open(self, folder: Folder, name: Multihash) -> BinaryIO:
        return io.BytesIO(self.get(folder, name))

    def size(self, folder: Folder, name: Multihash) -> int | None:
        data = self._find(folder, name)
        return None if data is None else len(data)

    def list(self, folder: Folder) -> Iterator[Stored]:
        with self._mutex:
            found = list(self._objects[folder].items())
        for name, (data, modified) in found:
            yield Stored(name, len(data), modified)

    def _find(self, folder: Folder, name: Multihash) -> bytes | None:
        staged = self._staged.get((folder, name))
        if staged is not None:
            return staged
        found = self._objects[folder].get(name)
        return None if found is None else found[0]

    # --- writing ----------------------------------------------------------

    def put(self, folder: Folder, data: bytes) -> Multihash:
        name = Multihash.of(data)
        with self._mutex:
            self._staged[folder, name] = bytes(data)
            if not self._leases and self._implicit is None:
                self._implicit = self.clock()
        return name

    def writer(self, folder: Folder) -> NamingWriter:
        buffer = io.BytesIO()

        def keep(name: Multihash, size: int) -> Stored:
            self.put(folder, buffer.getvalue())
            return Stored(name, size, self.clock())

        return NamingWriter(buffer, keep, buffer.close)

    def renew(self, folder: Folder, name: Multihash) -> bool:
        with self._mutex:
            data = self._find(folder, name)
            if data is not None:
                self._objects[folder][name] = (data, self.clock())
            return data is not None

    def sync(self) -> None:
        with self._mutex:
            now = self.clock()
            for (folder, name), data in self._staged.items():
                self._objects[folder][name] = (data, now)
            self._staged.clear()

    def delete(self, folder: Folder, name: Multihash, *, unless_after: float | None = None) -> bool:
        with self._mutex:
            found = self._objects[folder].get(name)
            if found is None or (unless_after is not None and found[1] >= unless_after):
                return False
            del self._objects[folder][name]
            return True

    # --- the head ---------------------------------------------------------

    def head(self, ref: str = "head") -> Multihash | None:
        check_ref(ref)
        return self._heads.get(ref)

    def refs(self) -> Iterator[str]:
        yield from list(self._heads)

    def move_head(
        self,
        new: Multihash,
        *,
        expected: Multihash | None,
        ref: str = "head",
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        check_ref(ref)
        with self._moving, self._mutex:
            self.sync()
            if new not in self._objects[Folder.BLOCKS]:
                raise object_missing(Folder.BLOCKS, new, self.location)
            found = self._heads.get(ref)
            if found != expected:
                raise head_moved(ref, expected, found, self.location)
            self._heads[ref] = new
            self._implicit = None
        if meanwhile is not None:
            meanwhile()

    # --- leases -----------------------------------------------------------

    @contextmanager
    def lease(self) -> Iterator[None]:
        with self._mutex:
            started = self.clock()
            self._leases.append(started)
        try:
            yield
        finally:
            with self._mutex:
                self._leases.remove(started)
                if self._staged and self._implicit is None:
                    self._implicit = started

    def oldest_lease(self) -> float | None:
        with self._mutex:
            held = [*self._leases, *([] if self._implicit is None else [self._implicit])]
        return min(held, default=None)

    def clock(self) -> float:
        """Return the time; it does not go back, even if the machine's clock is set back."""
        with self._mutex:
            self._latest = max(self._latest, time.time())
            return self._latest

    def fence(self) -> float | None:
        # Who holds a lease is in this process, and is found in the list for as long.
        return self.oldest_lease()

    @contextmanager
    def turn(self, *, alone: bool = False) -> Iterator[None]:
        with self._turn, self._moving if alone else nullcontext():
            yield

    @contextmanager
    def scratch(self) -> Iterator[MemoryScratch]:
        with self.lease():
            place = MemoryScratch()
            try:
                yield place
            finally:
                place.clear()

    def close(self) -> None:
        with self._mutex:
            self._staged.clear()
            self._implicit = None
