"""Reading views: in order, by column, row by row, shared by two, shuffled; beside Arrow and Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import trueline
from bench.run import Run
from bench.table import Row, duration, rate
from bench.timing import alternate, sample, settle
from trueline.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCAN = 1.2
ROUNDS = 3
SCANS = 15  # of a few dozen milliseconds each
WIDE = 50
NOTE = (
    "views: one Parquet file or dataset, groups of 262,144 rows, warm page cache; all give the rows in order."
)
ROWWISE = "row by row: one getter called for each row, in Python."
SHUFFLE = (
    "shuffled: every row once, with its id, the same order for the same seed; Spark's rand() gives no ids."
)


def run(run: Run) -> Iterator[Row]:
    rows = 2 * run.scale.hashed_rows
    folder = run.folder / "views"
    folder.mkdir()
    with run.doing(f"writing {rows:,} rows"):
        path = _write(folder / "rows.parquet", rows)
        dataset = _dataset(folder / "ws", path)
    session = _session(run) if run.peers else None
    settle()
    yield from _scans(path, dataset, session, rows)
    yield from _wide(folder / "wide.parquet", max(1_000, rows // 20))
    yield from _by_row(path, min(rows, 2_000_000))
    yield from _by_two(path, rows)
    yield from _ordered(path, session, rows)
    yield from _shuffled(path, session, rows)


def _write(path: Path, rows: int) -> Path:
    random = np.random.default_rng(7)
    schema = pa.schema(
        {
            "n": pa.int64(),
            "key": pa.int32(),
            "price": pa.float64(),
            "weight": pa.float32(),
            "city": pa.string(),
        }
    )
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, 1 << 20):
            count = min(1 << 20, rows - start)
            columns = [
                pa.array(np.arange(start, start + count)),
                pa.array(random.integers(0, 100_000, count, dtype=np.int32)),
                pa.array(random.random(count)),
                pa.array(random.random(count, dtype=np.float32)),
                pa.array([f"city {n}" for n in random.integers(0, 500, count).tolist()]),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=1 << 18)
    return path


def _dataset(place: Path, path: Path) -> View:
    with trueline.open(place, create=True) as workspace:
        workspace.create("rows").append(path, reader=trueline.parquet())
    view: View = trueline.open(place)["rows"].view()
    return view


def _session(run: Run) -> SparkSession:
    from trueline.spark.session import start
    from trueline.spark.settings import Settings

    with run.doing("starting Spark"):
        return start(Settings(master="local[2]", memory="2g")).given


# --- in order ---------------------------------------------------------------------------------


def _scans(path: Path, dataset: View, session: SparkSession | None, rows: int) -> Iterator[Row]:
    view = View.read_parquet(path)
    actions: dict[str, Callable[[], object]] = {
        "ours": lambda: sum(batch.num_rows for batch in view.batches("price")),
        "dataset": lambda: sum(batch.num_rows for batch in dataset.batches("price")),
        "arrow": lambda: sum(b.num_rows for b in ds.dataset(path).to_batches(columns=["price"])),
    }
    if session is not None:
        frame = session.read.parquet(path.as_uri()).select("price")
        actions["spark"] = lambda: frame.toArrow().num_rows
    taken = alternate(actions, SCANS, warmup=2)
    peers = {"arrow": f"pyarrow.dataset {pa.__version__}: "}
    if session is not None:
        peers["spark"] = f"toArrow of Spark {session.version}: "
    for ours, what in (("ours", "a Parquet file"), ("dataset", "a dataset")):
        for peer, label in peers.items():
            ratio = taken[ours].median / taken[peer].median
            yield Row(
                "views",
                f"scan one column of {rows:,} rows of {what}, in order",
                duration(taken[ours]),
                duration(taken[peer], label),
                ratio,
                f"≤ {SCAN} × the time",
                ratio <= SCAN,
                NOTE,
            )


def _wide(path: Path, rows: int) -> Iterator[Row]:
    random = np.random.default_rng(8)
    pq.write_table(
        pa.table({f"c{n}": random.random(rows) for n in range(WIDE)}), path, row_group_size=1 << 18
    )
    view = View.read_parquet(path)
    taken = alternate(
        {"one": lambda: list(view.batches("c17")), "all": lambda: list(view.batches())}, ROUNDS, warmup=1
    )
    ratio = taken["one"].median / taken["all"].median
    goal = 2 / WIDE
    yield Row(
        "views",
        f"read 1 of {WIDE} columns of {rows:,} rows",
        duration(taken["one"]),
        duration(taken["all"], f"all {WIDE}: "),
        ratio,
        f"~1/{WIDE} (≤ {goal:g})",
        ratio <= goal,
        NOTE,
    )


def _ordered(path: Path, session: SparkSession | None, rows: int) -> Iterator[Row]:
    if session is None:
        return
    view = View.read_parquet(path)
    frame = session.read.parquet(path.as_uri()).orderBy("n")
    taken = alternate(
        {"ours": lambda: view.to_arrow().num_rows, "spark": lambda: frame.toArrow().num_rows},
        ROUNDS,
        warmup=1,
    )
    yield Row(
        "views",
        f"read {rows:,} rows by pieces, in order",
        duration(taken["ours"]),
        duration(taken["spark"], "orderBy().toArrow(): "),
        taken["ours"].median / taken["spark"].median,
        note=NOTE,
    )


# --- row by row -------------------------------------------------------------------------------


def _by_row(path: Path, rows: int) -> Iterator[Row]:
    view = View.read_parquet(path).limit(rows)
    for columns in (["key"], ["n", "key", "price", "weight", "city"]):
        taken = sample(lambda columns=columns: _drained([view.cursor(columns)], columns), ROUNDS, warmup=1)  # type: ignore[misc]
        yield Row(
            "views",
            f"cursor over {rows:,} rows, {len(columns)} columns",
            rate(rows / taken.median, "rows", taken),
            note=ROWWISE,
        )


def _by_two(path: Path, rows: int) -> Iterator[Row]:
    view = View.read_parquet(path)
    taken = alternate(
        {
            "one": lambda: _drained([view.cursor(["key"])], ["key"]),
            "two": lambda: _drained(view.cursor_set(["key"], 2), ["key"]),
        },
        ROUNDS,
        warmup=1,
    )
    yield Row(
        "views",
        f"a set of two over {rows:,} rows, a thread each",
        duration(taken["two"]),
        duration(taken["one"], "one cursor: "),
        taken["two"].median / taken["one"].median,
        note="a set of two: Python runs one thread at a time, so two gain what Arrow does.",
    )


def _drained(cursors: list[trueline.view.cursor.cursor.ChunkCursor], columns: list[str]) -> None:
    def drain(cursor: trueline.view.cursor.cursor.ChunkCursor) -> None:
        with cursor:
            get = [cursor.getter(name) for name in columns]
            if len(get) == 1:
                only = get[0]
                while cursor.move_next():
                    only()
            else:
                while cursor.move_next():
                    for each in get:
                        each()

    threads = [threading.Thread(target=drain, args=(cursor,)) for cursor in cursors[1:]]
    for thread in threads:
        thread.start()
    drain(cursors[0])
    for thread in threads:
        thread.join()


def _shuffled(path: Path, session: SparkSession | None, rows: int) -> Iterator[Row]:
    view = View.read_parquet(path).select("key", "price")
    actions: dict[str, Callable[[], object]] = {
        "ours": lambda: view.shuffle(3).with_row_id("id").to_arrow().num_rows
    }
    if session is not None:
        from pyspark.sql import functions as f

        frame = session.read.parquet(path.as_uri()).select("key", "price").orderBy(f.rand(3))
        actions["spark"] = lambda: frame.toArrow().num_rows
    taken = alternate(actions, ROUNDS, warmup=1)
    peer = duration(taken["spark"], "orderBy(rand()).toArrow(): ") if session is not None else None
    ratio = taken["ours"].median / taken["spark"].median if session is not None else None
    yield Row("views", f"shuffle {rows:,} rows, with ids", duration(taken["ours"]), peer, ratio, note=SHUFFLE)
