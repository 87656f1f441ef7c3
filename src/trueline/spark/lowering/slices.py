"""Slices of a dataset that Spark reads itself, where rows are moved next: offset as id and position.

Only what it reads as tasks would, bit for bit: values travel as they are stored (a time as its count, an
unsigned number by its bits), text that is not text is null, as are a time beyond its day and a code that is
none of its category. Everything else is read by tasks: other types, slices of other types than the dataset,
slices whose pages are too large for one batch, very many slices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from trueline import types as t
from trueline.dataset.read.events import Events
from trueline.spark.engines import engine_of
from trueline.spark.lowering.layout import Layout, OrderColumn, wire
from trueline.spark.lowering.lowered import EvenCuts, Lowered, types_of
from trueline.spark.types import to_spark_schema
from trueline.view.plan.node import DAY, Interval, Node, Want, step_of
from trueline.view.plan.select import Select
from trueline.view.plan.sources import SourceScan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Footers are looked at by this process when the plan is made.
MOST_SLICES: Final = 512
# With more paths than that, Spark lists them by a job of its own.
_LISTED_AT_ONCE: Final = 32
# Rows that Spark decodes together.
_ROWS_AT_ONCE: Final = 4_096
_OPTIONS: Final = {
    # A path is a path, and rows that are not there are an error, whatever the session says.
    "__globPaths__": "false",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}


def read_by_spark(session: SparkSession, node: Node, want: Want) -> Lowered | None:
    """Return rows of slices as Spark reads them; None where it would not read what tasks do."""
    layout = Layout(types_of(node.schema, want.columns), want.ids, ())
    scan, columns, bounds = source_of(node, want)
    if scan is None or engine_of(session).is_connect or not all(map(_is_as_stored, layout.types)):
        return None
    events: Events = scan.source  # type: ignore[assignment]
    fields = [events.schema.field(index) for index in columns]
    if any(kind.arrow != field.type for kind, field in zip(layout.types, fields, strict=True)):
        return None
    offset = events.standing.vocab.offset
    named = {field.name: field for field in (*fields, events.standing.schema.field(offset))}
    files = events.plain_files(pa.schema(named.values()), MOST_SLICES, _ROWS_AT_ONCE)
    if not files:
        return None
    stored = pa.schema([(name, _read_as(field.type)) for name, field in named.items()])
    rows = read_parquet(session, stored, files)
    for index, interval in bounds.items():
        rows = _within(rows, events.schema.field(index), interval)
    place = rows[quoted(offset)]
    # Offsets are dense, so that ranges of them need no sample.
    below = events.standing.last_offset + 1
    layout = replace(layout, order=(OrderColumn(pa.int64(), below=below),))
    values = [
        _as_wire(rows[quoted(field.name)], kind) for field, kind in zip(fields, layout.types, strict=True)
    ]
    found = Lowered(rows, layout, (), layout, cuts=EvenCuts(below), most=events.row_count)
    return replace(found.select([*values, *_ids(place, want), place], layout), ids_are_places=True)


def read_parquet(session: SparkSession, schema: pa.Schema, files: Sequence[str]) -> DataFrame:
    """Return the rows of files of this machine under a schema; no job is started to find them."""
    spark_schema = to_spark_schema(schema)
    parts = [files[start : start + _LISTED_AT_ONCE] for start in range(0, len(files), _LISTED_AT_ONCE)]
    frames = [
        session.read.schema(spark_schema).options(**_OPTIONS).parquet(*(f"file://{path}" for path in part))
        for part in parts
    ]
    return reduce(lambda one, other: one.union(other), frames)


def quoted(name: str) -> str:
    """Return a name as Spark takes it for that of a column, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def source_of(node: Node, want: Want) -> tuple[SourceScan | None, Sequence[int], Mapping[int, Interval]]:
    """Return the dataset whose columns a node is, with what is wanted of it; None if it is anything else."""
    columns, bounds = want.columns, want.bounds
    while isinstance(node, Select):
        places = node.places
        columns = tuple(places[index] for index in columns)
        bounds = {places[index]: each for index, each in bounds.items()}
        node = node.below
    is_dataset = isinstance(node, SourceScan) and isinstance(node.source, Events)
    return (node if is_dataset else None), columns, bounds  # type: ignore[return-value]


def _is_as_stored(kind: t.Type) -> bool:
    """Say whether what is stored is a value of the type as it is, or can be seen not to be one."""
    if isinstance(kind, t.Vector | t.RowIdentity):
        return False
    arrow, is_ = kind.arrow, pa.types
    return bool(
        is_.is_boolean(arrow)
        or is_.is_integer(arrow)
        or is_.is_float32(arrow)
        or is_.is_float64(arrow)
        or is_.is_string(arrow)
        or is_.is_binary(arrow)
        or is_.is_fixed_size_binary(arrow)
        or is_.is_date32(arrow)
        or is_.is_timestamp(arrow)
        or is_.is_time(arrow)
        or (is_.is_decimal128(arrow) and 0 <= arrow.scale <= arrow.precision)
    )


def _read_as(kind: pa.DataType) -> pa.DataType:
    """Return the type as which Spark reads a column: the one it travels as, where Spark does that."""
    return pa.decimal128(20, 0) if kind == pa.uint64() else wire(t.of(kind)).kind


def _as_wire(value: Column, of: t.Type) -> Column:
    """Return what Spark has read as it travels."""
    from pyspark.sql import functions as f

    kind = of.arrow
    if isinstance(of, t.Category):
        return f.when((value >= 0) & (value < f.lit(of.count)), value)
    if kind == pa.uint64():
        wide = f.lit(Decimal(1 << 64)).cast("decimal(20,0)")
        return f.when(value > f.lit((1 << 63) - 1), value - wide).otherwise(value).cast("bigint")
    if pa.types.is_time(kind):
        step = step_of(pa.timestamp(kind.unit))
        assert step is not None
        return f.when((value >= 0) & (value < f.lit(DAY // step)), value)
    return f.when(f.is_valid_utf8(value), value) if pa.types.is_string(kind) else value


def _ids(place: Column, want: Want) -> list[Column]:
    from pyspark.sql import functions as f

    return [place, f.lit(0).cast("bigint")] if want.ids else []


def _within(rows: DataFrame, field: pa.Field, interval: Interval) -> DataFrame:
    """Leave out rows outside of a range, which nobody will miss."""
    step: Any = None if pa.types.is_unsigned_integer(field.type) else step_of(field.type)
    if step is None or field.name not in rows.columns:
        return rows
    value = rows[quoted(field.name)]
    if interval.low is not None:
        rows = rows.where(value >= -(-interval.low // step))
    return rows if interval.high is None else rows.where(value <= interval.high // step)
