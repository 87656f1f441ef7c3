"""What increments ask of Spark: small tables of this process as frames and back, files that tasks read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from trueline.spark.engines import engine_of
from trueline.spark.errors import carrying, lasting_nonce, translated
from trueline.spark.jobs import run
from trueline.spark.packing import pack, unpack
from trueline.spark.types import arrow_schema_of, to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ROWS_OF_A_BATCH: Final = 1 << 14


def local_frame(session: SparkSession, table: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Return rows of this process as a frame of one partition, so that grouping them needs no shuffle."""
    from pyspark.sql.pandas.types import to_arrow_schema

    with translated():
        kind = to_spark_schema(table.schema) if schema is None else schema
        # Of a table whose first chunk is empty Spark takes nothing.
        taken = table.cast(to_arrow_schema(kind, timezone="UTC")).combine_chunks()
        return session.createDataFrame(taken, kind).coalesce(1)


def local_table(frame: DataFrame, *, label: str) -> pa.Table:
    """Bring the rows of a frame that are known to be few to this process."""
    with translated():
        schema = arrow_schema_of(frame.schema)
        found: pa.Table = run(engine_of(frame.sparkSession), frame.toArrow, label=label)
    return found.cast(schema)


def resolves_late(session: SparkSession) -> bool:
    """Say whether the tables of a query are looked up whenever its frame is used: behind Connect they are."""
    return engine_of(session).is_connect


def one_after_another(frames: Sequence[tuple[int, DataFrame]], name: str) -> DataFrame:
    """Return the rows of frames with the number of each in a column."""
    from pyspark.sql import functions as f

    numbered = [frame.withColumn(name, f.lit(number)) for number, frame in frames]
    return reduce(lambda one, other: one.unionAll(other), numbered)


def with_whole_numbers(schema: StructType, *names: str) -> StructType:
    """Return a schema with columns of whole numbers added."""
    from pyspark.sql.types import IntegerType, StructField, StructType

    return StructType([*schema.fields, *(StructField(name, IntegerType(), False) for name in names)])


def columns_of(schema: StructType, names: Sequence[str]) -> StructType:
    """Return some columns of a schema."""
    from pyspark.sql.types import StructType

    return StructType([schema[name] for name in names])


class Parts(Protocol):
    """Rows that tasks read, a part at a time."""

    def tables(self, number: int) -> Iterator[pa.Table]:
        """Yield the rows of a part."""


def frame_of_parts(
    session: SparkSession, parts: Parts, count: int, schema: StructType, *, label: str
) -> DataFrame:
    """Return the rows of parts as a frame, each read by a task whenever the frame is used."""
    from pyspark.sql.pandas.types import to_arrow_schema

    with translated():
        work = _ReadParts(pack(parts), to_arrow_schema(schema, timezone="UTC"), label, lasting_nonce())
        return session.range(0, count, 1, max(1, count)).mapInArrow(work, schema)


class _ReadParts:
    """What one task does: reads the parts whose numbers it is given."""

    def __init__(self, parts: bytes, schema: pa.Schema, label: str, nonce: str) -> None:
        self.parts, self.schema, self.label, self.nonce = parts, schema, label, nonce

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying(self.nonce, self.label):
            parts: Parts = unpack(self.parts)
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    for table in parts.tables(number):
                        yield from table.cast(self.schema).to_batches(max_chunksize=_ROWS_OF_A_BATCH)
