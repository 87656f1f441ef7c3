"""Stores that watch what is asked of them."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

from trueline.chain import Folder, MemoryStore, Store
from trueline.identity.multihash import Multihash


class CountingStore:
    """A store that counts objects read and written, by folder, and moves of the head."""

    def __init__(self, inner: Store | None = None) -> None:
        self.inner: Store = MemoryStore() if inner is None else inner
        self.location = self.inner.location
        self.gets: Counter[Folder] = Counter()
        self.puts: Counter[Folder] = Counter()
        self.moves = 0

    def reset(self) -> None:
        """Count from zero again."""
        self.gets.clear()
        self.puts.clear()
        self.moves = 0

    @property
    def block_reads(self) -> int:
        return self.gets[Folder.BLOCKS]

    def get(self, folder: Folder, name: Multihash, *, limit: int | None = None) -> bytes:
        self.gets[folder] += 1
        return self.inner.get(folder, name, limit=limit)

    def open(self, folder: Folder, name: Multihash) -> Any:
        self.gets[folder] += 1
        return self.inner.open(folder, name)

    def put(self, folder: Folder, data: bytes) -> Multihash:
        self.puts[folder] += 1
        return self.inner.put(folder, data)

    def writer(self, folder: Folder) -> Any:
        self.puts[folder] += 1
        return self.inner.writer(folder)

    def move_head(self, new: Multihash, **how: Any) -> None:
        self.moves += 1
        self.inner.move_head(new, **how)

    def lease(self) -> AbstractContextManager[None]:
        return self.inner.lease()

    def __getattr__(self, name: str) -> Any:
        """Everything that neither reads nor writes objects is the store's own."""
        return getattr(self.inner, name)
