"""What happened: events, blocks and their bytes, rules, index, store."""

from __future__ import annotations

from trueline.chain.block import Block
from trueline.chain.chain import Appended, Chain
from trueline.chain.instant import Instant
from trueline.chain.memory_store import MemoryStore
from trueline.chain.store import Folder, Store
from trueline.chain.tail import Position, Tail

__all__ = ["Appended", "Block", "Chain", "Folder", "Instant", "MemoryStore", "Position", "Store", "Tail"]
