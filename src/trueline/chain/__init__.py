"""What happened: events, blocks and their bytes, rules, index, store."""

from __future__ import annotations

from trueline.chain.block import Block
from trueline.chain.chain import Appended, Chain
from trueline.chain.head_state import Position, Tail
from trueline.chain.instant import Instant
from trueline.chain.store.memory import MemoryStore
from trueline.chain.store.store import Folder, Store

__all__ = ["Appended", "Block", "Chain", "Folder", "Instant", "MemoryStore", "Position", "Store", "Tail"]
