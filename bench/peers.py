"""The peers' appends: the same rows, each peer the way its documentation says is fast."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pyarrow as pa

from bench import rows
from bench.timing import Samples, settle, timed


@dataclass(frozen=True)
class Table:
    """A peer's table: how to append to it, and how many commits it holds when it is opened anew."""

    append: Callable[[pa.Table], object]
    commits: Callable[[], int]


@dataclass(frozen=True)
class Peer:
    """How to begin a table, and what is known of its durability."""

    name: str
    package: str
    begin: Callable[[Path, pa.Schema], Table]
    note: str

    @property
    def version(self) -> str | None:
        """The installed version, None if there is none."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None


def append_for(peer: Peer, folder: Path, seconds: float) -> Samples:
    """Append until the time is used up; every commit is a sample, the first included."""
    # Microseconds are what both formats store, so that no peer pays for a conversion.
    data = _in_microseconds(rows.table())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = peer.begin(folder, data.schema)
        settle()
        taken: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            taken.append(timed(lambda: table.append(data)))
        assert table.commits() == len(taken), f"{peer.name} lost a commit"
    return Samples(tuple(taken))


def _in_microseconds(data: pa.Table) -> pa.Table:
    fields = [
        field.with_type(pa.timestamp("us", tz="UTC")) if pa.types.is_timestamp(field.type) else field
        for field in data.schema
    ]
    return data.cast(pa.schema(fields))


def _delta(folder: Path, schema: pa.Schema) -> Table:
    from deltalake import DeltaTable, write_deltalake

    # One table object for all appends: opening it each time costs more the longer the log is.
    table = DeltaTable.create(str(folder), schema=schema)
    return Table(
        lambda data: write_deltalake(table, data, mode="append"),
        lambda: len(DeltaTable(str(folder)).file_uris()),
    )


def _iceberg(folder: Path, schema: pa.Schema) -> Table:
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir(parents=True)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.rows", schema=schema)
    return Table(table.append, lambda: len(catalog.load_table("bench.rows").metadata.snapshots))


PEERS = (
    Peer("delta-rs", "deltalake", _delta, "delta-rs issues no fsync; ours does unless it says unsynced."),
    Peer(
        "pyiceberg",
        "pyiceberg",
        _iceberg,
        "pyiceberg syncs its SQLite catalogue, not its data and metadata files.",
    ),
)
