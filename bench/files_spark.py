"""Files to a dataset through Spark's tasks, beside threads of this process and beside plain Spark."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

import trueline
from bench import sources
from bench.machine import lacks_bytes
from bench.run import Run
from bench.table import Row, duration
from bench.timing import Samples, settle, timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "files-spark"
FILES = 8
PLAIN = 1.5
NOTE = (
    f"files-spark: {FILES} files, schema declared on all sides, page cache warm, two cores each: tasks of "
    "local[2], two threads, df.write.parquet of local[2]. Ours hashes the files, the rows and the slices, "
    "and syncs them; Spark does none of that."
)
DRIVER = "files-spark, driver: processor time of the Python process that calls append; its tasks are others."


def run(run: Run) -> Iterator[Row]:
    rows = run.scale.ingested
    if missing := lacks_bytes(run.folder, rows * sources.BYTES_PER_ROW):
        yield Row(NAME, f"{rows:,} rows from files", note=f"{NAME} was not measured: {missing}")
        return
    session = _session(run) if run.peers else None
    for ending in ("csv", "parquet"):
        folder = run.folder / f"files-{ending}"
        with run.doing(f"writing {rows:,} rows as {FILES} {ending} files"):
            _write(folder, rows, ending)
        yield from _measured(run, folder, session, rows, ending)
        shutil.rmtree(folder)


def _session(run: Run) -> SparkSession:
    from trueline.spark.session import start
    from trueline.spark.settings import Settings

    with run.doing("starting Spark"):
        return start(Settings(master="local[2]", memory="2g")).given


def _write(folder: Path, rows: int, ending: str) -> None:
    folder.mkdir()
    size = -(-rows // FILES)
    table = pa.concat_tables(sources.chunks(rows))
    for number in range(FILES):
        part = table.slice(number * size, size)
        path = folder / f"{number}.{ending}"
        if ending == "csv":
            arrow_csv.write_csv(part, path)
        else:
            pq.write_table(part, path)


def _measured(run: Run, folder: Path, session: SparkSession | None, rows: int, ending: str) -> Iterator[Row]:
    """Take the files in each way, in turn; the first round is not counted."""
    ways: dict[str, Any] = {"threads": partial(_appended, None, folder, ending)}
    if session is not None:
        ways["tasks"] = partial(_appended, session, folder, ending)
        ways["plain"] = partial(_written, session, folder, ending)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    with run.doing(f"taking in {FILES} {ending} files"):
        for number in range(run.scale.ingest_rounds + 1):
            for name, way in ways.items():
                measured = way(run.folder / f"files-{name}-{number}", rows)
                if number:
                    taken[name].append(measured)
    seconds = {name: Samples(tuple(wall for wall, _ in found)) for name, found in taken.items()}
    what = f"{rows:,} rows from {FILES} {ending} files"
    if session is None:
        yield Row(NAME, f"{what}, by threads", duration(seconds["threads"]), note=NOTE)
        return
    for peer, label, goal in (
        ("plain", f"Spark {session.version}: ", PLAIN),
        ("threads", "threads: ", None),
    ):
        ratio = seconds["tasks"].median / seconds[peer].median
        yield Row(
            NAME,
            f"{what}, by tasks",
            duration(seconds["tasks"]),
            duration(seconds[peer], label),
            ratio,
            f"≤ {goal} × the time" if goal else "",
            ratio <= goal if goal else None,
            NOTE,
        )
    busy = {name: Samples(tuple(cpu for _, cpu in found)) for name, found in taken.items()}
    yield Row(
        NAME,
        f"{what}: processor time of the driver",
        duration(busy["tasks"]),
        duration(busy["threads"], "threads: "),
        busy["tasks"].median / busy["threads"].median,
        note=DRIVER,
    )


def _appended(
    session: SparkSession | None, folder: Path, ending: str, place: Path, rows: int
) -> tuple[float, float]:
    """Append to a new dataset, removed afterwards; return the seconds it took, and this process was busy."""
    with trueline.open(place, create=True, spark=session) as workspace:
        workspace.config.set("spark.tasks", "never" if session is None else "always")
        dataset: Any = workspace.create("rows", schema=sources.SCHEMA)
        settle()
        busy = time.process_time()
        seconds = timed(lambda: dataset.append(f"{folder}/*.{ending}"))
        busy = time.process_time() - busy
        assert dataset.info.rows == rows
    shutil.rmtree(place)
    return seconds, busy


def _written(session: SparkSession, folder: Path, ending: str, place: Path, rows: int) -> tuple[float, float]:
    del rows
    read = session.read.schema(sources.SPARK_SCHEMA)
    place_of = folder.as_uri()
    frame: DataFrame = read.csv(place_of, header=True) if ending == "csv" else read.parquet(place_of)
    settle()
    seconds = timed(lambda: frame.write.parquet(place.as_uri()))
    shutil.rmtree(place)
    return seconds, 0.0
