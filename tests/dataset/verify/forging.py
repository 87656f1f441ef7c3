"""Slices whose bytes are what their blocks say, and whose rows are not."""

from __future__ import annotations

import io
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from trueline.chain.block import CommitRecord
from trueline.chain.datatypes import DataSchema
from trueline.chain.events import DataSlice, OffsetInterval
from trueline.chain.head_state import next_add_data, next_block
from trueline.chain.instant import Instant
from trueline.chain.schema import fields_of, to_arrow
from trueline.chain.store.store import Folder
from trueline.identity.logical import logical_hash
from trueline.identity.multihash import Multihash


def honest(dataset, rows: int, time: Instant, ops=None, **columns) -> pa.Table:
    """The rows a writer would make of columns, as the slice that comes next."""
    tail = dataset.chain.tail()
    schema = to_arrow(DataSchema(fields_of(tail.schema)))
    first = tail.next_offset
    given = {
        "offset": list(range(first, first + rows)),
        "op": ops or [0] * rows,
        "system_time": [int(time) // 1_000_000] * rows,
        "event_time": [None] * rows,
        **columns,
    }
    arrays = []
    for field in schema:
        whole = pa.types.is_timestamp(field.type)
        array = pa.array(given[field.name], pa.int64() if whole else field.type)
        arrays.append(array.cast(field.type) if whole else array)
    return pa.Table.from_arrays(arrays, schema=schema)


def file_of(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def moment(dataset) -> Instant:
    """A time for the next block, in whole milliseconds."""
    tail = dataset.chain.tail()
    return Instant((int(tail.system_time) // 1_000_000 + 1) * 1_000_000)


def add(dataset, table: pa.Table, time: Instant, *, record=None, logical=None, rows=None) -> Multihash:
    """Append a slice with these rows, and a block that tells the truth about its bytes."""
    chain = dataset.chain
    tail = chain.tail()
    raw = file_of(table)
    count = table.num_rows if rows is None else rows
    data = DataSlice(
        logical or logical_hash(table),
        chain.store.put(Folder.DATA, raw),
        OffsetInterval(tail.next_offset, tail.next_offset + count - 1),
        len(raw),
    )
    extra = (record or CommitRecord()).to_extra()
    block = next_block(tail, next_add_data(tail, new_data=data, extra=extra), time)
    chain.append(block)
    return block.hash


def with_column(table: pa.Table, name: str, values: list) -> pa.Table:
    """The same table with other values in a column."""
    place = table.column_names.index(name)
    field = table.schema.field(name)
    kind = pa.int64() if pa.types.is_timestamp(field.type) else field.type
    return table.set_column(place, field, pa.array(values, kind).cast(field.type))


def part(number: int, of: int) -> CommitRecord:
    return replace(CommitRecord(), part=number, parts=of)
