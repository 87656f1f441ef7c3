"""Writing a slice: rows and their system columns as one Parquet file, hashed on the way."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trueline.chain.arrow_schema import to_arrow
from trueline.chain.datatypes import DataSchema
from trueline.chain.events import DataSlice, OffsetInterval, SetVocab
from trueline.chain.instant import Instant
from trueline.chain.store import Folder, Store
from trueline.errors import SchemaError
from trueline.identity.logical import LogicalHasher

ROWS_OF_A_GROUP: Final = 262_144
# Arrow writes small pieces; gathered, a slice of 1,000 rows is one write instead of forty.
_GATHERED_BYTES: Final = 1 << 20


def write_slice(
    store: Store, table: pa.Table, schema: DataSchema, vocab: SetVocab, *, first: int, system_time: Instant
) -> DataSlice:
    """Stage rows (event time first, then data) as records from offset `first` on.

    Equal rows give equal bytes, however the table is split into chunks.
    """
    arrow = to_arrow(schema)
    hasher = LogicalHasher(arrow)
    writer = store.writer(Folder.DATA)
    try:
        with (
            pa.output_stream(writer, buffer_size=_GATHERED_BYTES) as sink,
            pq.ParquetWriter(sink, arrow, **_layout(arrow, vocab)) as parquet,
        ):
            for start in range(0, table.num_rows, ROWS_OF_A_GROUP):
                rows = table.slice(start, ROWS_OF_A_GROUP).combine_chunks()
                group = _records(rows, arrow, vocab, first + start, system_time)
                hasher.update(group)
                parquet.write_table(group, row_group_size=ROWS_OF_A_GROUP)
        stored = writer.finish()
    except pa.ArrowException as error:
        raise SchemaError(
            f"the table cannot be stored: {error}", remedy="cast the column it names"
        ) from error
    finally:
        writer.abandon()
    interval = OffsetInterval(first, first + table.num_rows - 1)
    return DataSlice(hasher.finish(), stored.hash, interval, stored.size)


def _records(rows: pa.Table, arrow: pa.Schema, vocab: SetVocab, first: int, system_time: Instant) -> pa.Table:
    count = rows.num_rows
    system = {
        vocab.offset: np.arange(first, first + count, dtype=np.int64),
        vocab.op: np.zeros(count, dtype=np.int32),
        vocab.system_time: np.full(count, int(system_time) // 1_000_000, dtype=np.int64),
    }
    columns = [
        pa.array(system[field.name]).cast(field.type) if field.name in system else rows[field.name]
        for field in arrow
    ]
    return pa.Table.from_arrays(columns, schema=arrow)


def _layout(arrow: pa.Schema, vocab: SetVocab) -> dict[str, Any]:
    """How other readers of the format expect slices: pages of version 1, snappy, two dictionaries."""
    return {
        "version": "2.6" if any(_needs_new_types(field.type) for field in arrow) else "1.0",
        "data_page_version": "1.0",
        "compression": "snappy",
        "use_dictionary": [vocab.op, vocab.system_time],
    }


def _needs_new_types(kind: pa.DataType) -> bool:
    """Version 1.0 turns nanoseconds into microseconds and uint32 into int64."""
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return bool(kind.unit == "ns")
    if pa.types.is_uint32(kind):
        return True
    return any(_needs_new_types(kind.field(index).type) for index in range(kind.num_fields))
