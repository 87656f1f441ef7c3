"""Upserting 1 % of the keys of a large dataset, beside delta-rs MERGE."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import trueline as tl
from bench.rows import CITIES
from bench.run import Run
from bench.table import Row, duration
from bench.timing import Samples, alternate, settle

KEYS = {"tiny": 20_000, "quick": 1_000_000, "normal": 5_000_000, "full": 5_000_000}
ROUNDS = {"tiny": 1, "quick": 3, "normal": 5, "full": 7}
WARMUP = 1
BYTES_PER_KEY = 400  # both tables, and the two rewrites of state that may fall into the run
FASTER = 1.0
NOTE = (
    "Of the keys 1 % are chosen at random, so every file and every group of rows holds some. Ours records "
    "the row before and the row after, both hashes, and is durable; delta-rs rewrites the files the keys "
    "are in, without fsync."
)


def keyed(keys: np.ndarray[Any, np.dtype[np.int64]], seed: int) -> pa.Table:
    """Return a row of six columns for each key."""
    random = np.random.default_rng(seed)
    count = len(keys)
    accounts = pc.binary_join_element_wise(
        "account-", pc.cast(pa.array(random.integers(0, 20_000, count)), pa.string()), ""
    )
    times = np.datetime64("2026-01-01", "us") + random.integers(0, 10**12, count).astype("timedelta64[us]")
    return pa.table(
        {
            "id": pa.array(keys),
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "account": accounts,
            "city": pa.array(CITIES).take(pa.array(random.integers(0, len(CITIES), count))),
            "price": random.lognormal(3, 1, count),
            "quantity": random.integers(1, 100, count, dtype=np.int32),
        }
    )


def some(keys: int, seed: int) -> pa.Table:
    """Return new rows for 1 % of the keys."""
    chosen = np.random.default_rng(seed).choice(keys, max(keys // 100, 1), replace=False)
    return keyed(chosen.astype(np.int64), seed)


class Ours:
    """A dataset that upserts by its key."""

    def __init__(self, folder: Path, base: pa.Table, *, durable: bool) -> None:
        self.workspace = tl.open(folder, create=True)
        self.workspace.config.set("storage.durable", durable)
        self.workspace.close()
        self.workspace = tl.open(folder)
        self.dataset = self.workspace.create("rows", merge=tl.merge.upsert("id"))
        self.dataset.append(base)

    def upsert(self, rows: pa.Table) -> None:
        commit = self.dataset.append(rows)
        assert commit.rows == 2 * rows.num_rows, "each key is corrected: the row before, the row after"


class Delta:
    """A delta-rs table."""

    def __init__(self, folder: Path, base: pa.Table) -> None:
        from deltalake import DeltaTable, write_deltalake

        write_deltalake(str(folder), base)
        self.table = DeltaTable(str(folder))

    def upsert(self, rows: pa.Table) -> None:
        merging = self.table.merge(rows, "old.id = new.id", source_alias="new", target_alias="old")
        done = merging.when_matched_update_all().when_not_matched_insert_all().execute()
        assert done["num_target_rows_updated"] == rows.num_rows


def _version() -> str | None:
    try:
        return version("deltalake")
    except PackageNotFoundError:
        return None


def run(run: Run) -> Iterator[Row]:
    keys, rounds = KEYS[run.scale.name], ROUNDS[run.scale.name]
    what = f"upsert of {max(keys // 100, 1):,} of {keys:,} keys"
    needed, free = 3 * keys * BYTES_PER_KEY, shutil.disk_usage(run.folder).free
    if needed > free:
        note = f"it needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free (set TMPDIR)"
        yield Row("upsert", what, note=f"upsert was not measured: {note}")
        return
    base = keyed(np.arange(keys), seed=1)
    writers: dict[str, Ours | Delta] = {}
    with run.doing(f"loading {keys:,} keys"):
        writers["durable"] = Ours(run.folder / "upsert", base, durable=True)
    with run.doing(f"loading {keys:,} keys, unsynced"):
        writers["unsynced"] = Ours(run.folder / "upsert-unsynced", base, durable=False)
    if run.peers and _version() is not None:
        with run.doing(f"delta-rs: loading {keys:,} keys"):
            writers["delta-rs"] = Delta(run.folder / "upsert-delta", base)
    updates = [some(keys, seed) for seed in range(2, 2 + WARMUP + rounds)]
    settle()
    turns = {name: iter(updates) for name in writers}
    taken = alternate(
        {name: lambda n=name, w=writer: w.upsert(next(turns[n])) for name, writer in writers.items()},  # type: ignore[misc]
        rounds,
        warmup=WARMUP,
    )
    yield _row(what, taken, peers=run.peers)


def _row(what: str, taken: dict[str, Samples], *, peers: bool) -> Row:
    ours, unsynced, theirs = taken["durable"], taken["unsynced"], taken.get("delta-rs")
    if theirs is None:
        note = "delta-rs was not measured: it is not installed (make bench does that)" if peers else NOTE
        return Row("upsert", what, duration(ours), note=note, aside=f"unsynced {unsynced.median:.3f} s")
    ratio = theirs.median / ours.median
    return Row(
        "upsert",
        what,
        duration(ours),
        duration(theirs, f"delta-rs {_version()} MERGE: "),
        ratio,
        f"≥ {FASTER:g} × as fast",
        ratio >= FASTER,
        NOTE,
        aside=f"unsynced {theirs.median / unsynced.median:.2f}",
    )
