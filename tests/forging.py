"""A history rewritten by somebody thorough: rows are changed, and every hash after them made to fit again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from trueline.chain.block import Block
from trueline.chain.chain import Chain
from trueline.chain.events import ExecuteTransform
from trueline.chain.schema import to_arrow
from trueline.chain.store.store import Folder
from trueline.identity.logical import LogicalHasher
from trueline.identity.multihash import Multihash


def forge(chain: Chain, commit: Multihash, change: Callable[[pa.Table], pa.Table]) -> Multihash:
    """Change the records of a commit; hashes, blocks and head are consistent again. Returns the new head."""
    old = chain.head
    previous: Multihash | None = None
    for name, block in list(chain.between(None)):
        event = block.event
        if name == commit:
            event = _changed(chain, block, change)
        made = replace(block, prev_block_hash=previous, event=event)
        previous = chain.store.put(Folder.BLOCKS, made.to_bytes())
    assert previous is not None
    chain.store.move_head(previous, expected=old)
    forget(chain)
    return previous


def forget(chain: Chain) -> None:
    """Let the place know nothing of an earlier head: whoever rewrites a chain can see to that, too."""
    chain.rebuild_index()
    chain.forget_heads()


def _changed(chain: Chain, block: Block, change: Callable[[pa.Table], pa.Table]) -> ExecuteTransform:
    event = block.event
    assert isinstance(event, ExecuteTransform)
    assert event.new_data is not None
    schema = to_arrow(chain.tail_at(block.hash).schema.schema)
    with chain.store.open(Folder.DATA, event.new_data.physical_hash) as file:
        rows = change(pq.read_table(file)).cast(schema)
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="snappy")
    raw = sink.getvalue().to_pybytes()
    hasher = LogicalHasher(schema)
    hasher.update(rows)
    data = replace(
        event.new_data,
        logical_hash=hasher.finish(),
        physical_hash=chain.store.put(Folder.DATA, raw),
        size=len(raw),
    )
    return replace(event, new_data=data)


def with_value(column: str, row: int, value: object) -> Callable[[pa.Table], pa.Table]:
    """Return a change of one value."""

    def change(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index(column)
        values = rows[column].to_pylist()
        values[row] = value
        return rows.set_column(
            place, rows.schema.field(place), pa.array(values, rows.schema.field(place).type)
        )

    return change
