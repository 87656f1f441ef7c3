"""Writing a slice: rows and their system columns as one Parquet file, hashed on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trueline.chain.arrow_schema import to_arrow
from trueline.chain.datatypes import DataSchema
from trueline.chain.events import DataSlice, OffsetInterval, SetVocab
from trueline.chain.instant import Instant
from trueline.chain.store import Folder, Store
from trueline.errors import SchemaError
from trueline.identity.logical import LogicalHasher

ROWS_OF_A_GROUP: Final = 262_144
# The operations that bring a row: append and correct to.
NEW: Final = pa.array([0, 3], pa.int32())
# Arrow writes small pieces; gathered, a slice of 1,000 rows is one write instead of forty.
_GATHERED_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SliceLayout:
    """How the slices of a commit look: schema, names of the system columns, the one time they have.

    New rows whose event time is before `watermark` are late and counted.
    """

    schema: DataSchema
    vocab: SetVocab
    system_time: Instant
    watermark: Instant | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A slice that was staged, and how many of its rows were late."""

    slice: DataSlice
    late: int


def write_slice(store: Store, rows: Iterable[pa.Table], layout: SliceLayout, first: int) -> Written:
    """Stage rows (event time first, then data; `op` where it is not 0) as records from offset `first` on.

    Equal rows give equal bytes, however they are split into tables.
    """
    arrow = to_arrow(layout.schema)
    hasher = LogicalHasher(arrow)
    writer = store.writer(Folder.DATA)
    offset, late = first, 0
    try:
        with (
            pa.output_stream(writer, buffer_size=_GATHERED_BYTES) as sink,
            pq.ParquetWriter(sink, arrow, **_layout(arrow, layout.vocab)) as parquet,
        ):
            for group in _groups(rows):
                records = _records(group, arrow, layout, offset)
                hasher.update(records)
                parquet.write_table(records, row_group_size=ROWS_OF_A_GROUP)
                offset += group.num_rows
                late += _late(records, layout)
        stored = writer.finish()
    except pa.ArrowException as error:
        raise SchemaError(
            f"the table cannot be stored: {error}", remedy="cast the column it names"
        ) from error
    finally:
        writer.abandon()
    interval = OffsetInterval(first, offset - 1)
    return Written(DataSlice(hasher.finish(), stored.hash, interval, stored.size), late)


def _late(records: pa.Table, layout: SliceLayout) -> int:
    """Count the new rows that come after the watermark had passed their event time.

    A retraction, or the old half of a correction, repeats a row that was decided when it came.
    """
    if layout.watermark is None or layout.vocab.event_time_column is None:
        return 0
    # Event times are dates or whole milliseconds: rounding the watermark up keeps "before it" exact.
    limit = pa.scalar(-(-int(layout.watermark) // 1_000_000), pa.int64()).cast(pa.timestamp("ms", "UTC"))
    times = records[layout.vocab.event_time]
    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("ms")).cast(pa.timestamp("ms", "UTC"))
    is_new = pc.is_in(records[layout.vocab.op], value_set=NEW)
    late = pc.sum(pc.and_(pc.less(times, limit), is_new)).as_py()
    return int(late or 0)


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Gather rows into row groups of equal size."""
    waiting: list[pa.Table] = []
    count = 0
    for table in tables:
        waiting.append(table)
        count += table.num_rows
        while count >= ROWS_OF_A_GROUP:
            whole = pa.concat_tables(waiting)
            yield whole.slice(0, ROWS_OF_A_GROUP).combine_chunks()
            waiting, count = [whole.slice(ROWS_OF_A_GROUP)], count - ROWS_OF_A_GROUP
    if count:
        yield pa.concat_tables(waiting).combine_chunks()


def _records(rows: pa.Table, arrow: pa.Schema, layout: SliceLayout, first: int) -> pa.Table:
    count, vocab = rows.num_rows, layout.vocab
    system = {
        vocab.offset: np.arange(first, first + count, dtype=np.int64),
        vocab.op: np.zeros(count, dtype=np.int32),
        vocab.system_time: np.full(count, int(layout.system_time) // 1_000_000, dtype=np.int64),
    }
    if vocab.op in rows.column_names:
        del system[vocab.op]
    columns = [_column(rows, field, system, count) for field in arrow]
    return pa.Table.from_arrays(columns, schema=arrow)


def _column(
    rows: pa.Table, field: pa.Field, system: dict[str, Any], count: int
) -> pa.Array | pa.ChunkedArray:
    if field.name in system:
        return pa.array(system[field.name]).cast(field.type)
    if field.name in rows.column_names:
        column = rows[field.name]
        return column if column.type == field.type else column.cast(field.type)
    # A column that another writer added while these rows were on their way.
    return pa.nulls(count, field.type)


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
