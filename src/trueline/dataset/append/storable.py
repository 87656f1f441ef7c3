"""Types and columns as slices store them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain import datatypes as t
from trueline.errors import SchemaError, check_memory
from trueline.kernel.nan import canonical

_STEPS: Final = {"us": 1_000, "ns": 1_000_000}
# Casting a chunk at a time keeps large text within the 2 GiB that plain text can address.
_CAST_ROWS: Final = 65_536


def storable(kind: Any) -> Any:
    """Parquet has no seconds: they become milliseconds, so that files read back as they were hashed."""
    match kind:
        case t.Timestamp(t.TimeUnit.Second, zone):
            return t.Timestamp(t.TimeUnit.Millisecond, zone)
        case t.Time(t.TimeUnit.Second):
            return t.Time(t.TimeUnit.Millisecond)
        case t.Option(inner):
            return t.Option(storable(inner))
        case t.List(item, length):
            return t.List(storable(item), length)
        case t.Struct(fields):
            return t.Struct(tuple(replace(field, type=storable(field.type)) for field in fields))
        case t.Map(key, value, keys_sorted):
            return t.Map(storable(key), storable(value), keys_sorted)
    return kind


def stored_column(
    column: pa.ChunkedArray, field: pa.Field, *, is_event_time: bool
) -> tuple[pa.ChunkedArray, int]:
    """Return a column with the type it is stored with, and how many values lost precision."""
    rounded = 0
    if is_event_time and pa.types.is_timestamp(column.type) and pa.types.is_timestamp(field.type):
        column, rounded = _milliseconds(column)
    if column.type != field.type:
        column = _cast(column, field)
    return canonical(column), rounded


def _milliseconds(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, int]:
    """Cut times to the millisecond they are in, and count those that were between two.

    A time without a zone is taken as UTC.
    """
    step = _STEPS.get(column.type.unit)
    if step is None:
        return column.cast(pa.timestamp(column.type.unit, "UTC")), 0
    numbers = column.cast(pa.int64())
    cut = pc.divide(numbers, step)
    rest = pc.subtract(numbers, pc.multiply(cut, step))
    # Division cuts towards zero; before 1970 that is the wrong way.
    cut = pc.subtract(cut, pc.less(rest, 0).cast(pa.int64()))
    rounded = pc.sum(pc.not_equal(rest, 0)).as_py() or 0
    return cut.cast(pa.timestamp("ms", "UTC")), rounded


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    from trueline.view.source_cells import castable

    pieces = []
    try:
        for chunk in map(castable, column.chunks):
            starts = range(0, len(chunk), _CAST_ROWS)
            pieces += [chunk.slice(start, _CAST_ROWS).cast(field.type) for start in starts]
    except pa.ArrowException as error:
        check_memory(error, f"making column {field.name!r} {field.type}")
        raise SchemaError(
            f"column {field.name!r} cannot be stored as {field.type}: {error}",
            remedy="cast it before",
            column=field.name,
        ) from None
    return pa.chunked_array(pieces, type=field.type)
