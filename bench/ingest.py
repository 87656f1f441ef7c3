"""Taking in millions of rows, from files and from a Spark frame, beside plain Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trueline
from bench import sources
from bench.machine import lacks_bytes
from bench.run import Run
from bench.table import Row, duration
from bench.timing import Samples, settle, timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FROM_FILES = 1.0
FROM_FRAMES = 1.8
NOTE = (
    "ingest: beside Spark reading the same file, schema declared on both sides, page cache warm, "
    "and writing it with df.write.parquet. Ours hashes the file, the rows and the slices, and syncs them; "
    "Spark does none of that."
)
FRAME_NOTE = (
    "ingest from a frame: columns made by expressions on a range, evaluated by both sides; "
    "the peer is df.write.parquet."
)


@dataclass(frozen=True)
class Case:
    """Something to take in: what ours is given, and the frame that plain Spark writes."""

    what: str
    given: Callable[[], object]
    frame: Callable[[SparkSession], DataFrame]
    goal: float
    note: str = NOTE


def run(run: Run) -> Iterator[Row]:
    rows = run.scale.ingested
    if missing := lacks_bytes(run.folder, rows * sources.BYTES_PER_ROW):
        yield Row("ingest", f"ingest {rows:,} rows", note=f"ingest was not measured: {missing}")
        return
    session = _session(run) if run.peers else None
    for case in _files(run, rows):
        yield _measured(run, case, session, rows)
    if session is not None:
        made = partial(sources.frame, rows=rows)
        case = Case("a Spark frame", partial(made, session), made, FROM_FRAMES, FRAME_NOTE)
        yield _measured(run, case, session, rows)


def _session(run: Run) -> SparkSession:
    """Start Spark on two cores, or take the one that runs, as plain as a user has it."""
    from trueline.spark.session import start
    from trueline.spark.settings import Settings

    with run.doing("starting Spark"):
        return start(Settings(master="local[2]", memory="2g")).given


def _files(run: Run, rows: int) -> Iterator[Case]:
    folder = run.folder / "ingest"
    folder.mkdir(exist_ok=True)
    kinds: dict[str, Callable[[Path, int], Path]] = {
        "one CSV file": partial(sources.write_csv, quoted=False),
        "one CSV file, texts in quotes": partial(sources.write_csv, quoted=True),
        "one Parquet file": sources.write_parquet,
    }
    for what, write in kinds.items():
        path = folder / f"rows.{'parquet' if 'Parquet' in what else 'csv'}"
        with run.doing(f"writing {rows:,} rows as {what}"):
            write(path, rows)
        yield Case(what, partial(Path, path), partial(_read, path), FROM_FILES)
        path.unlink()


def _read(path: Path, session: SparkSession) -> DataFrame:
    if path.suffix == ".parquet":
        return session.read.parquet(path.as_uri())
    return session.read.schema(sources.SPARK_SCHEMA).csv(path.as_uri(), header=True)


def _measured(run: Run, case: Case, session: SparkSession | None, rows: int) -> Row:
    """Take it in and write it plainly, in turn; the first round is not counted."""
    ours: list[float] = []
    plain: list[float] = []
    with run.doing(f"taking in {case.what}"):
        for number in range(run.scale.ingest_rounds + 1):
            place = run.folder / f"ingest-{number}"
            seconds = _taken_in(case.given(), place, rows)
            theirs = _written(case.frame(session), place) if session is not None else 0.0
            if number:
                ours.append(seconds)
                plain.append(theirs)
    what = f"ingest {rows:,} rows from {case.what}"
    mine = duration(Samples(tuple(ours)))
    if session is None:
        return Row("ingest", what, mine, note=case.note)
    spark = Samples(tuple(plain))
    ratio = Samples(tuple(ours)).median / spark.median
    return Row(
        "ingest",
        what,
        mine,
        duration(spark, f"Spark {session.version}: "),
        ratio,
        f"≤ {case.goal} × the time",
        ratio <= case.goal,
        case.note,
    )


def _taken_in(data: object, place: Path, rows: int) -> float:
    """Append to a new dataset, removed afterwards; returns the seconds the append took."""
    with trueline.open(place, create=True) as workspace:
        dataset: Any = workspace.create("rows", schema=sources.SCHEMA)
        settle()
        seconds = timed(lambda: dataset.append(data))
        assert dataset.info.rows == rows
    shutil.rmtree(place)
    return seconds


def _written(frame: DataFrame, place: Path) -> float:
    settle()
    seconds = timed(lambda: frame.write.parquet(place.as_uri()))
    shutil.rmtree(place)
    return seconds
