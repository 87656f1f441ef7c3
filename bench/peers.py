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
from bench.timing import Samples, sample, settle, timed

TRY_AGAIN = 100  # commits after which a peer that can be called in several ways is tried in all of them
TRIALS = 5


@dataclass(frozen=True)
class Way:
    """One way to append, and what must be done, untimed, when it is taken up again."""

    append: Callable[[pa.Table], object]
    resume: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Table:
    """A peer's table: the ways to append to it, and how many commits it holds when it is opened anew."""

    ways: tuple[Way, ...]
    commits: Callable[[], int]


@dataclass(frozen=True)
class Appended:
    """How far a peer came, and how long each commit took in the way that was the faster then."""

    commits: int
    samples: Samples


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


def append_for(peer: Peer, folder: Path, seconds: float) -> Appended:
    """Append until the time is used up, in the way that is the fastest at that length."""
    # Microseconds are what both formats store, so that no peer pays for a conversion.
    data = _in_microseconds(rows.table())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = peer.begin(folder, data.schema)
        settle()
        taken: list[float] = []
        way, commits = table.ways[0], 0
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            if len(table.ways) > 1 and len(taken) % TRY_AGAIN == TRY_AGAIN - 1:
                way = min(table.ways, key=lambda each: _trial(each, data))
                commits += TRIALS * len(table.ways)
                way.resume()
            taken.append(timed(lambda way=way: way.append(data)))  # type: ignore[misc]
            commits += 1
        assert table.commits() == commits, f"{peer.name} lost a commit"
    return Appended(commits, Samples(tuple(taken)))


def _trial(way: Way, data: pa.Table) -> float:
    way.resume()
    return sample(lambda: way.append(data), TRIALS).median


def _in_microseconds(data: pa.Table) -> pa.Table:
    fields = [
        field.with_type(pa.timestamp("us", tz="UTC")) if pa.types.is_timestamp(field.type) else field
        for field in data.schema
    ]
    return data.cast(pa.schema(fields))


def _delta(folder: Path, schema: pa.Schema) -> Table:
    from deltalake import DeltaTable, write_deltalake

    # Up to some 200 commits it is faster to keep one table object, later to open it by path each time.
    table = DeltaTable.create(str(folder), schema=schema)
    kept = Way(lambda data: write_deltalake(table, data, mode="append"), table.update_incremental)
    by_path = Way(lambda data: write_deltalake(str(folder), data, mode="append"))
    return Table((kept, by_path), lambda: len(DeltaTable(str(folder)).file_uris()))


def _iceberg(folder: Path, schema: pa.Schema) -> Table:
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir(parents=True)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.rows", schema=schema)
    return Table((Way(table.append),), lambda: len(catalog.load_table("bench.rows").metadata.snapshots))


PEERS = (
    Peer(
        "delta-rs",
        "deltalake",
        _delta,
        "delta-rs issues no fsync; ours does unless it says unsynced. It is called with one table object "
        "or by path, whichever is faster, tried anew every 100 commits.",
    ),
    Peer(
        "pyiceberg",
        "pyiceberg",
        _iceberg,
        "pyiceberg syncs its SQLite catalogue, not its data and metadata files.",
    ),
)
