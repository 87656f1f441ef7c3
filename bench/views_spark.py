"""Views on a Spark cluster of this machine: sort, join and group beside plain frames; the driver's memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

import trueline
from bench.cluster_once import FIRST, Answer, Question, asked
from bench.machine import lacks_bytes
from bench.run import Run
from bench.table import Row, Value, duration
from bench.timing import Samples, settle

CLUSTER: Final = "local-cluster[2,1,1536]"
GOALS: Final = {"sort": 1.5, "join": 1.5, "group": 2.0}
WITHOUT: Final = 1.2
FLAT: Final = 1.2
PAST: Final = 300 << 20
GROUPS: Final = 100_000
ROUNDS: Final = 2
BYTES_OF_A_ROW: Final = 400
CHUNK: Final = 1 << 20
NOTE: Final = (
    "views-spark: a dataset of slices of a million rows, two executors of one core, a driver of 1 GB. Ours "
    "gives all rows in order with their ids, in files; plain is the same verb on a frame of the same files, "
    "written as Parquet, in no order and without ids (sort excepted)."
)
ORDERED: Final = (
    "in order: the plain frame with a number for each row, and a sort by these numbers at the end."
)
FRAME: Final = "as a frame: view.to_spark(), which promises no order and has no ids, written as Parquet."
MEMORY: Final = "driver: the peak of its Python process and of its JVM after one run of each of ours."


def run(run: Run) -> Iterator[Row]:
    rows = run.scale.clustered
    if missing := lacks_bytes(run.folder, 2 * rows * BYTES_OF_A_ROW):
        yield Row("views-spark", f"{rows:,} rows on Spark", note=f"views-spark was not measured: {missing}")
        return
    with run.doing(f"writing {rows:,} rows"):
        large = write(run.folder / "large", rows)
    settle()
    if rows < CHUNK:
        # Too few to say more than that it runs.
        found = asked(Question(list(GOALS), str(large), 0, "local[2]", "1g", peers=False))
        for case in GOALS:
            yield from _beside(case, rows, found)
        return
    question = Question(list(GOALS), str(large), ROUNDS, CLUSTER, "1g", peers=run.peers)
    with run.doing(f"{', '.join(GOALS)} of {rows:,} rows"):
        found = asked(question)
    for case in GOALS:
        yield from _beside(case, rows, found)
    with run.doing(f"{', '.join(GOALS)} of {rows // 10:,} rows"):
        small = write(run.folder / "small", rows // 10)
        yield _memory(rows, asked(replace(question, place=str(small), rounds=0)), found)
    yield _past(run, rows, large)


def write(place: Path, rows: int) -> Path:
    """Write the datasets: rows to sort and group, and a fifth as many, of which each finds one partner."""
    random = np.random.default_rng(11)
    partners = max(1, rows // 5)
    with trueline.open(place, create=True) as workspace:
        left, right = workspace.create("left"), workspace.create("right")
        for start in range(0, rows, CHUNK):
            count = min(CHUNK, rows - start)
            left.append(
                pa.table(
                    {
                        "n": np.arange(start, start + count),
                        "k": random.integers(0, partners, count),
                        "g": random.integers(0, GROUPS, count),
                        "price": random.lognormal(3, 2, count),
                        "weight": random.random(count, dtype=np.float32),
                        "city": pa.array([f"city {n}" for n in random.integers(0, 500, count).tolist()]),
                    }
                )
            )
        for start in range(0, partners, CHUNK):
            count = min(CHUNK, partners - start)
            names = pa.array([f"name {n}" for n in range(start, start + count)])
            numbers = np.arange(start, start + count)
            right.append(pa.table({"k": numbers, "rate": random.normal(size=count), "name": names}))
    return place


def _beside(case: str, rows: int, found: Answer | None) -> Iterator[Row]:
    what = f"{case} of {rows:,} rows on Spark"
    if found is None:
        yield Row("views-spark", what, Value("did not end", {}), met=False, note=NOTE)
        return
    ours = duration(found.samples(case, FIRST))
    if "plain" not in found.seconds[case]:
        yield Row("views-spark", what, ours, note=NOTE)
        return
    taken = {action: found.samples(case, action) for action in found.seconds[case]}
    yield _ratio(taken, (FIRST, "plain"), f"{what}, in order, with ids", GOALS[case], NOTE)
    if "ordered" in taken:
        yield _ratio(taken, (FIRST, "ordered"), f"{what}, both in order", None, ORDERED)
        yield _ratio(taken, ("frame", "plain"), f"{what}, as a frame", WITHOUT, FRAME)


def _ratio(
    taken: Mapping[str, Samples], sides: tuple[str, str], what: str, goal: float | None, note: str
) -> Row:
    mine, theirs = (taken[side] for side in sides)
    ratio = mine.median / theirs.median
    return Row(
        "views-spark",
        what,
        duration(mine),
        duration(theirs, f"{sides[1]}: "),
        ratio,
        "" if goal is None else f"≤ {goal} × the time",
        None if goal is None else ratio <= goal,
        note,
    )


def _memory(rows: int, few: Answer | None, many: Answer | None) -> Row:
    """Say how the driver's memory grows with ten times the rows."""
    what = f"the driver of {', '.join(GOALS)}, {rows:,} rows beside {rows // 10:,}"
    if few is None or many is None:
        return Row("views-spark", what, Value("did not end", {}), met=False, note=MEMORY)
    ratio = max(many.python / few.python, many.jvm / few.jvm)
    return Row(
        "views-spark", what, _peaks(many), _peaks(few), ratio, f"flat (≤ {FLAT})", ratio <= FLAT, MEMORY
    )


def _peaks(found: Answer) -> Value:
    text = f"Python {found.python >> 20} MiB, JVM {found.jvm >> 20} MiB"
    return Value(text, {"python": found.python, "jvm": found.jvm})


def _past(run: Run, rows: int, place: Path) -> Row:
    """Join and group rows that do not fit a driver of 600 MB."""
    question = Question(["join and group"], str(place), 0, CLUSTER, "600m", peers=False)
    with run.doing(f"join and group of {rows:,} rows"):
        found = asked(question)
    what = f"join and group of {rows:,} rows past a driver of 600 MB"
    goal = f"≤ {PAST >> 20} MiB of Python"
    if found is None:
        return Row("views-spark", what, Value("did not end", {}), goal=goal, met=False, note=MEMORY)
    peaks = _peaks(found)
    seconds = found.seconds["join and group"][FIRST][0]
    text = f"{seconds:.1f} s, {peaks.text}"
    return Row(
        "views-spark",
        what,
        Value(text, peaks.data | {"seconds": seconds}),
        goal=goal,
        met=found.python <= PAST,
        note=MEMORY,
    )
