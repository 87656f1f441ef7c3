"""The 1,000 rows of six columns that everyone appends, and slices of them that are ready to commit."""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trueline.chain.events import DataSlice, OffsetInterval
from trueline.identity import Multihash, logical_hash

ROWS = 1_000
START = datetime(2026, 1, 1, tzinfo=UTC)
CITIES = np.array(["Amsterdam", "Bern", "Cork", "Dresden", "Evora", "Fez", "Genoa", "Hull"])


def table(rows: int = ROWS, seed: int = 1) -> pa.Table:
    """Return rows as a user has them in memory: a time, two texts, three numbers."""
    random = np.random.default_rng(seed)
    times = np.datetime64(int(START.timestamp() * 1000), "ms") + np.arange(rows) * np.timedelta64(250, "ms")
    return pa.table(
        {
            "event_time": pa.array(times, pa.timestamp("ms", tz="UTC")),
            "id": random.integers(0, 1 << 40, rows),
            "account": pa.array([f"account-{number:05d}" for number in random.integers(0, 20_000, rows)]),
            "city": pa.array(CITIES[random.integers(0, len(CITIES), rows)]),
            "price": random.lognormal(3, 1, rows),
            "quantity": random.integers(1, 100, rows, dtype=np.int32),
        }
    )


def with_system_columns(data: pa.Table, first: int, system_time: datetime) -> pa.Table:
    """Put the columns of a slice before the user's."""
    rows = data.num_rows
    columns = {
        "offset": pa.array(np.arange(first, first + rows, dtype=np.int64)),
        "op": pa.array(np.zeros(rows, dtype=np.int32)),
        "system_time": pa.array([system_time] * rows, pa.timestamp("ms", tz="UTC")),
        **{name: data[name] for name in data.column_names},
    }
    required = {"offset", "op", "system_time"}
    fields = [pa.field(name, column.type, nullable=name not in required) for name, column in columns.items()]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


@dataclass(frozen=True)
class Ready:
    """A slice whose bytes and hashes are prepared."""

    raw: bytes
    slice: DataSlice

    @classmethod
    def make(cls, data: pa.Table, first: int) -> Ready:
        """Write the slice that begins at an offset."""
        whole = with_system_columns(data, first, START + timedelta(seconds=first))
        buffer = io.BytesIO()
        pq.write_table(whole, buffer, version="1.0", compression="snappy")
        raw = buffer.getvalue()
        interval = OffsetInterval(first, first + data.num_rows - 1)
        return cls(raw, DataSlice(logical_hash(whole), Multihash.of(raw), interval, len(raw)))
