"""What happened: events, blocks and their bytes, rules, index, store.

>>> import tempfile, pyarrow as pa, trueline as tl
>>> folder = tempfile.TemporaryDirectory()
>>> ws = tl.open(folder.name, create=True)
>>> sales = ws.create("sales")
>>> commit = sales.append(pa.table({"price": [9.5, 12.0]}), idempotency_key="monday")

A chain has a head and the state there:

>>> chain = sales.chain
>>> chain.head == commit.block, chain.position == Position(commit.block, 1)
(True, True)
>>> tail = chain.tail()
>>> isinstance(tail, Tail), tail == chain.tail_at(commit.block), tail.position == chain.position
(True, True, True)
>>> tail.last_offset, tail.next_offset, tail.watermark, tail.checkpoint, tail.taken
(1, 2, None, None, {})
>>> type(tail.merge).__name__, tail.replaces_rows
('MergeAppend', False)

Blocks are walked along their links, or found by the index:

>>> names = [name for name, _ in chain.walk()]
>>> chain.block(names[-1]).event.KIND, len(list(chain.between(names[-1]))), len(list(chain.entries()))
('Seed', 3, 4)
>>> from trueline.chain.events import AddData, SetDataSchema
>>> chain.newest(AddData).hash == commit.block, chain.newest(SetDataSchema).sequence_number
(True, 2)
>>> chain.entry(commit.block).sequence_number, chain.entry_number(0).hash == names[-1]
(3, True)
>>> [each.hash for each in chain.entries_like(end=commit.short)] == [commit.block]
True
>>> chain.sequence_of(commit.block), chain.last_offset_at(commit.block), len(chain.positions(-1, 9))
(3, 1, 4)
>>> chain.is_ancestor(names[-1], commit.block)
True
>>> [b.hash == commit.block for b in chain.slice_blocks(0, 1)], len(list(chain.slices(0, 1)))
([True], 1)
>>> chain.token("monday").hash == commit.block, chain.file_named("a.csv"), chain.file(commit.block)
(True, None, None)
>>> chain.at_time(int(Instant.now()) // 1000).hash == commit.block
True

The head can go back to an older block on purpose; one that somebody else has put back is seen:

>>> chain.reset(names[-1])
>>> chain.seen_heads()
[]
>>> chain.reset(commit.block)
>>> chain.forget_heads()
>>> chain.keep_times({commit.block: (None, None)})
>>> chain.rebuild_index()
4

A new chain is a store and the blocks that are appended to it:

>>> copy = Chain(MemoryStore())
>>> appended = copy.append(*(block for _, block in chain.between(None)))
>>> isinstance(appended, Appended), appended.head == commit.block, Folder.BLOCKS.value
(True, True, 'blocks')
>>> before = copy.tail_at(names[1])
>>> before.after(copy.block(names[0])) == copy.tail()
True
>>> copy.close()
>>> ws.close()
>>> folder.cleanup()
"""

from __future__ import annotations

from trueline.chain.block import Block
from trueline.chain.chain import Appended, Chain
from trueline.chain.head_state import Position, Tail
from trueline.chain.instant import Instant
from trueline.chain.store.memory import MemoryStore
from trueline.chain.store.store import Folder, Store

__all__ = ["Appended", "Block", "Chain", "Folder", "Instant", "MemoryStore", "Position", "Store", "Tail"]
