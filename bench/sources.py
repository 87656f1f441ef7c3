"""Rows to take in, as files and as a Spark frame: the same for everyone, the same every time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from bench.rows import CITIES, START

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHUNK: Final = 1_000_000
BYTES_PER_ROW: Final = 400  # three files, and what ours and Spark write beside them
SCHEMA: Final = pa.schema(
    [
        ("event_time", pa.timestamp("ms", tz="UTC")),
        ("id", pa.int64()),
        ("account", pa.string()),
        ("city", pa.string()),
        ("price", pa.float64()),
        ("quantity", pa.int32()),
    ]
)
SPARK_SCHEMA: Final = (
    "event_time timestamp, id bigint, account string, city string, price double, quantity int"
)


def chunks(rows: int) -> Iterator[pa.Table]:
    """Yield rows such as people have: a time, a number, two texts, a price in cents, a quantity."""
    for number, first in enumerate(range(0, rows, CHUNK)):
        count = min(CHUNK, rows - first)
        random = np.random.default_rng(number)
        start = np.datetime64(int(START.timestamp() * 1000), "ms")
        times = start + np.arange(first, first + count) * np.timedelta64(250, "ms")
        digits = pc.utf8_lpad(pa.array(random.integers(0, 20_000, count)).cast(pa.string()), 5, "0")
        columns = [
            pa.array(times).cast(SCHEMA.types[0]),
            pa.array(random.integers(0, 1 << 40, count)),
            pc.binary_join_element_wise("account", digits, "-"),
            pa.array(CITIES).take(pa.array(random.integers(0, len(CITIES), count))),
            pa.array(np.round(random.lognormal(3, 1, count), 2)),
            pa.array(random.integers(1, 100, count, dtype=np.int32)),
        ]
        yield pa.Table.from_arrays(columns, schema=SCHEMA)


def write_parquet(path: Path, rows: int) -> Path:
    """Write the rows as one Parquet file, a row group for each million."""
    with pq.ParquetWriter(path, SCHEMA) as writer:
        for table in chunks(rows):
            writer.write_table(table)
    return path


def write_csv(path: Path, rows: int, *, quoted: bool) -> Path:
    """Write the rows as one CSV file; texts in quotes or bare."""
    options = arrow_csv.WriteOptions(quoting_style="needed" if quoted else "none")
    with arrow_csv.CSVWriter(path, SCHEMA, write_options=options) as writer:
        for table in chunks(rows):
            writer.write_table(table)
    return path


def frame(session: SparkSession, rows: int) -> DataFrame:
    """Return a frame with as many rows of the same columns, made by expressions on a range."""
    cities = ", ".join(f"'{city}'" for city in CITIES)
    noise = "abs(xxhash64(id))"
    return session.range(0, rows).selectExpr(
        f"timestamp_millis({int(START.timestamp()) * 1000} + id * 250) as event_time",
        f"{noise} % {1 << 40} as id",
        f"concat('account-', lpad(cast({noise} % 20000 as string), 5, '0')) as account",
        f"element_at(array({cities}), cast({noise} % {len(CITIES)} as int) + 1) as city",
        f"round({noise} % 1000003 / 7000.0D, 2) as price",
        f"cast({noise} % 99 as int) + 1 as quantity",
    )
