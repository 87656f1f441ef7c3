"""Reading a source to its end, in a form that can be compared."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from trueline.readers import Reader, ReadStats, Source


def everything(reader: Reader, data: bytes | Source, schema: pa.Schema, **options: Any) -> dict[str, Any]:
    """All that a reader says about a source."""
    source = data if isinstance(data, Source) else Source.memory(data)
    reading = reader.read(source, schema, **options)
    batches = list(reading)
    wanted = pa.schema([schema.field(name) for name in options.get("columns") or schema.names])
    if options.get("columns") == []:
        wanted = pa.schema([])
    at = options.get("start", 0)
    for batch in batches:
        assert batch.start == at
        assert batch.table.schema.equals(wanted)
        batch.table.validate(full=True)
        rows = batch.bad["row"].to_pylist()
        assert rows == sorted(rows)
        assert all(at <= row < at + batch.table.num_rows for row in rows)
        at += batch.table.num_rows
    assert reading.stats.rows == at - options.get("start", 0)
    bad = [tuple(cell.values()) for batch in batches for cell in batch.bad.to_pylist()]
    assert reading.stats.listed == len(bad)
    return {
        "rows": reading.stats.rows,
        "columns": {
            name: [value for batch in batches for value in plain(batch.table.column(name))]
            for name in wanted.names
        },
        "bad": bad,
        "counts": {name: count for name, count in reading.stats.bad.items() if count},
        "rounded": {name: count for name, count in reading.stats.rounded.items() if count},
        "short": reading.stats.short,
        "undecodable": reading.stats.undecodable,
    }


def plain(array: pa.Array) -> list[Any]:
    """Values that are equal when they are the same, NaN too; times as numbers."""
    if pa.types.is_temporal(array.type):
        wide = array.type.bit_width
        array = array.view(pa.int32() if wide == 32 else pa.int64())
    return ["NaN" if isinstance(v, float) and math.isnan(v) else v for v in array.to_pylist()]


def totals(reader: Reader, data: bytes, schema: pa.Schema) -> ReadStats:
    """The stats after a source was read to its end."""
    reading = reader.read(Source.memory(data), schema)
    for _ in reading:
        pass
    return reading.stats
