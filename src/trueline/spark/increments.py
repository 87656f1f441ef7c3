"""What increments ask of Spark: small tables of this process as frames and back, rows with a sign."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from trueline.spark.engines import engine_of
from trueline.spark.errors import translated
from trueline.spark.jobs import run
from trueline.spark.types import arrow_schema_of, to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


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
