"""Frames of pandas in and out: whole numbers stay whole, objects take the types they are to have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trueline.errors import SchemaError, check_memory
from trueline.view.schema import Schema
from trueline.view.sources.memory import owned

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]


def table_of(frame: pd.DataFrame) -> pa.Table:
    """Return the rows of a frame, without its index, in memory of their own."""
    try:
        return owned(pa.Table.from_pandas(frame, preserve_index=False))
    except pa.ArrowException as error:
        check_memory(error, "taking the frame")
        raise SchemaError(f"Arrow cannot hold the frame: {error}", remedy="cast the column") from None


def frame_of(table: pa.Table, schema: Schema, *, nullable: bool) -> pd.DataFrame:
    """Return rows as a frame; whole numbers that may be null have pandas' types for that."""
    if not nullable:
        return table.to_pandas()
    import pandas as pd

    kinds: dict[pa.DataType, Any] = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.uint8(): pd.UInt8Dtype(),
        pa.uint16(): pd.UInt16Dtype(),
        pa.uint32(): pd.UInt32Dtype(),
        pa.uint64(): pd.UInt64Dtype(),
    }
    # pandas is asked by type, and columns of one type may differ in whether they can be null.
    chosen = [field.name for field in table.schema if field.type in kinds and schema[field.name].nullable]
    if not chosen:
        return table.to_pandas()
    whole = table.select(chosen).to_pandas(types_mapper=kinds.get)
    others = table.drop_columns(chosen).to_pandas()
    return pd.concat([others, whole], axis=1)[table.column_names]


def with_types(frame: Any, table: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Give columns of Python objects the types that they are to have, where all of their values fit.

    pandas has no decimals, dates or times: it holds objects, of which Arrow guesses a type of its own.
    """
    for place, field in enumerate(table.schema):
        at = wanted.get_field_index(field.name)
        if at < 0 or wanted.field(at).type == field.type or str(frame.dtypes.get(field.name)) != "object":
            continue
        try:
            made = pa.array(frame[field.name], type=wanted.field(at).type, from_pandas=True)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            check_memory(error, f"taking column {field.name!r} of the frame")
            continue  # the type it has is refused with a better message
        table = table.set_column(place, field.with_type(made.type), made)
    return table
