"""Derived datasets that follow by the increment, beside computing them again and beside plain Spark."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
import pyarrow as pa

import trueline as tl
from bench.machine import lacks_bytes
from bench.pull_once import peak_of_pull
from bench.run import Run
from bench.table import Row, Value, duration, rate
from bench.timing import Samples, alternate, settle, timed
from trueline.dataset.derivation import derivation_at
from trueline.workspace.derive.define import DerivationRequest, derive
from trueline.workspace.derive.evaluate import query_session

# Rows of history; a delta of so many rows; keys in all, of which 5 % or all are touched.
HISTORY: Final = {
    "tiny": (2_000, 6_000),
    "quick": (500_000, 2_000_000),
    "normal": (500_000, 5_000_000),
    "full": (500_000, 5_000_000, 50_000_000),
}
DELTA: Final = {"tiny": 500, "quick": 100_000, "normal": 500_000, "full": 500_000}
KEYS: Final = {"tiny": 1_000, "quick": 100_000, "normal": 100_000, "full": 100_000}
ROUNDS: Final = {"tiny": 1, "quick": 2, "normal": 3, "full": 3}
INCREMENTS: Final = {"tiny": 2, "quick": 60, "normal": 1_000, "full": 1_000}
EMPTY: Final = {"tiny": 5, "quick": 1_000, "normal": 10_000, "full": 100_000}
WITH_ROWS: Final = 12
# Updates between which the state is written anew now and then; commits that are replayed.
UPDATES: Final = {"tiny": 2, "quick": 40, "normal": 100, "full": 100}
UPDATE_ROWS: Final = {"tiny": 100, "quick": 10_000, "normal": 10_000, "full": 10_000}
REPLAYED: Final = {"tiny": 2, "quick": 6, "normal": 12, "full": 24}
REPLAYED_ROWS: Final = {"tiny": 300, "quick": 50_000, "normal": 200_000, "full": 1_000_000}
STATELESS: Final = {"tiny": 3_000, "quick": 1_000_000, "normal": 4_000_000, "full": 10_000_000}
CHUNK: Final = 1 << 20
BYTES_OF_A_ROW: Final = 60
FLAT, OWN, PLAIN, LAST, JOBS, SUMS, DRIVER = 1.3, 10.0, 7.0, 1.2, 2, 1.5, 1.2
TOTALS: Final = "select k, sum(x) as total, avg(x) as mean, count(*) as n from rows group by k"
# The same rows by a query that can only be recomputed.
AGAIN: Final = f"select q.k, q.total, q.mean, q.n from ({TOTALS}) as q"
SOME: Final = "select k, x * 2 as y from rows where x > 1"


def rows(count: int, keys: int, seed: int) -> pa.Table:
    """Return rows of some keys."""
    random = np.random.default_rng(seed)
    return pa.table({"k": random.integers(0, keys, count), "x": random.lognormal(0, 2, count)})


def history(workspace: tl.Workspace, count: int, keys: int) -> tl.Dataset:
    """Make the input, in commits of a million rows."""
    dataset = workspace.create("rows")
    for start in range(0, count, CHUNK):
        dataset.append(rows(min(CHUNK, count - start), keys, start))
    return dataset


def follow(workspace: tl.Workspace, name: str) -> float:
    """Return how long it takes to bring a dataset to the newest cut."""
    return timed(lambda: workspace.pull(name))


def one(what: str, seconds: float) -> Value:
    return Value(what or f"{seconds:.2f} s", {"seconds": seconds})


# --- keyed state ----------------------------------------------------------------------------------


def keyed(run: Run) -> Iterator[Row]:
    name, sizes, delta = run.scale.name, HISTORY[run.scale.name], DELTA[run.scale.name]
    keys = KEYS[name]
    first: float | None = None
    peaks: dict[int, int] = {}
    for size in sizes:
        if missing := lacks_bytes(run.folder, 4 * size * BYTES_OF_A_ROW):
            yield Row("derive-keyed", f"{size:,} rows", note=f"derive-keyed was not measured: {missing}")
            return
        place = run.folder / f"derive-keyed-{size}"
        with tl.open(place, create=True) as workspace:
            with run.doing(f"writing {size:,} rows and their groups"):
                dataset = history(workspace, size, keys)
                for target, text in (("totals", TOTALS), ("again", AGAIN)):
                    derive(workspace, DerivationRequest(target, text, key="k"))
                    follow(workspace, target)
            some, _ = _rounds(run, workspace, dataset, delta, max(keys // 20, 1))
            ratio = None if first is None else some / first
            first = first if first is not None else some
            yield Row(
                "derive-keyed",
                f"{delta:,} rows touch 5 % of {keys:,} keys of {size:,} rows",
                one("", some),
                ratio=ratio,
                goal=f"≤ {FLAT}× of the first" if ratio is not None else "",
                met=None if ratio is None else ratio <= FLAT,
            )
            every, whole = _rounds(run, workspace, dataset, delta, keys)
            yield _beside("our own, all computed", size, every, whole, OWN)
            if run.peers:
                yield _beside("plain Spark", size, every, plain(dataset, place), PLAIN)
            dataset.append(rows(delta, keys, 2_000_000))
        if size in sizes[-2:]:
            with run.doing(f"a pull over {size:,} rows in a process of its own"):
                peaks[size] = peak_of_pull(place, "totals", "again")
    yield _driver(peaks)


def _rounds(
    run: Run, workspace: tl.Workspace, dataset: tl.Dataset, delta: int, keys: int
) -> tuple[float, float]:
    """Return how long an increment takes, and computing the same again, in turn and both warm."""
    found, again = [], []
    for number in range(ROUNDS[run.scale.name] + 1):
        dataset.append(rows(delta, keys, 1_000_000 + number))
        settle()
        found.append(follow(workspace, "totals"))
        again.append(follow(workspace, "again"))
    # The first has to compile its code.
    return Samples(tuple(found[1:])).median, Samples(tuple(again[1:])).median


def _beside(what: str, size: int, ours: float, other: float, goal: float) -> Row:
    ratio = other / ours
    return Row(
        "derive-keyed",
        f"all keys touched at {size:,} rows, beside {what}",
        one("", ours),
        one("", other),
        ratio,
        f"≥ {goal:g}×" if size >= 50_000_000 else "",
        ratio >= goal if size >= 50_000_000 else None,
    )


def _driver(peaks: dict[int, int]) -> Row:
    """Hold the memory of a pull over the longest history beside that over the one before."""
    (less, few), (more, many) = peaks.items()
    ours, theirs = (Value(f"{each >> 20} MiB", {"python": each}) for each in (many, few))
    ratio, goal = many / few, f"flat (≤ {DRIVER})"
    what = f"the driver's Python, by increment and all computed, {more:,} rows beside {less:,}"
    return Row("derive-keyed", what, ours, theirs, ratio, goal, ratio <= DRIVER)


def plain(dataset: tl.Dataset, place: Path) -> float:
    """Return how long Spark takes for the same aggregate with its own sums, written as Parquet."""
    frame = dataset.view().to_spark()
    frame.createOrReplaceTempView("rows")
    target = str(place / "plain.parquet")
    made = frame.sparkSession.sql(TOTALS)
    return min(timed(lambda: made.write.mode("overwrite").parquet(target)) for _ in range(2))


# --- exact sums -----------------------------------------------------------------------------------


def sums(run: Run) -> Iterator[Row]:
    """What it costs that sums are exact: the canonical query beside the one that was written."""
    size = STATELESS[run.scale.name]
    text = "select k, sum(x) as total from rows group by k"
    for groups in (1_000, KEYS[run.scale.name]):
        with tl.open(run.folder / f"derive-sums-{groups}", create=True) as workspace:
            with run.doing(f"writing {size:,} rows"):
                dataset = history(workspace, size, groups)
                derive(workspace, DerivationRequest("totals", text, key="k"))
            found = derivation_at(workspace["totals"].chain.tail())
            assert found is not None
            with query_session(workspace, {"rows": dataset.view()}) as session:
                frames = {"exact": session.result(found), "plain": session.session.sql(text)}
                actions = {name: partial(_computed, frame) for name, frame in frames.items()}
                taken = alternate(actions, ROUNDS[run.scale.name], warmup=1)
        ratio = taken["exact"].median / taken["plain"].median
        what = f"exact sums of {size:,} doubles in {groups:,} groups, beside sum(double)"
        ours, theirs = duration(taken["exact"]), duration(taken["plain"])
        yield Row("derive-sums", what, ours, theirs, ratio, f"≤ {SUMS}×", ratio <= SUMS)


def _computed(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


# --- many small ones ------------------------------------------------------------------------------


def tiny(run: Run) -> Iterator[Row]:
    count = INCREMENTS[run.scale.name]
    with tl.open(run.folder / "derive-tiny", create=True) as workspace:
        dataset = workspace.create("rows")
        dataset.append(rows(1_000, 500, 0))
        derive(workspace, DerivationRequest("totals", TOTALS, key="k"))
        follow(workspace, "totals")
        found, started = [], []
        context = dataset.view().to_spark().sparkSession.sparkContext
        last_job = newest_job(context)
        for number in range(count):
            dataset.append(rows(100, 500, number + 1))
            found.append(follow(workspace, "totals"))
            before, last_job = last_job, newest_job(context)
            started.append(last_job - before)
    part = max(1, count // 10)
    # Those before warm up.
    first, last = Samples(tuple(found[part : 2 * part])), Samples(tuple(found[-part:]))
    ratio = last.median / first.median
    what = (
        f"the last {part:,} of {count:,} increments of 100 rows, beside increments {part:,}–{2 * part - 1:,}"
    )
    yield Row("derive-tiny", what, duration(last), duration(first), ratio, f"≤ {LAST}", ratio <= LAST)
    most, mean = max(started), sum(started) / count
    counted = Value(f"{most} jobs (mean {mean:.1f})", {"most": most, "mean": mean})
    what = "Spark jobs of the increment that has most"
    yield Row("derive-tiny", what, counted, goal=f"≤ {JOBS}", met=most <= JOBS)


def newest_job(context: Any) -> int:
    """Return the number of the newest job that Spark has started."""
    context._jsc.sc().listenerBus().waitUntilEmpty()  # noqa: SLF001 (else it is not listed yet)
    return max(context.statusTracker().getJobIdsForGroup(), default=-1)


def rewrites(run: Run) -> Iterator[Row]:
    """What updates take on average, those that write the state anew among them."""
    name = run.scale.name
    count, size, keys = UPDATES[name], UPDATE_ROWS[name], KEYS[name]
    place = run.folder / "derive-rewrites"
    with tl.open(place, create=True) as workspace:
        dataset = workspace.create("rows")
        dataset.append(rows(4 * keys, keys, 0))
        derive(workspace, DerivationRequest("totals", TOTALS, key="k"))
        follow(workspace, "totals")
        found, written = [], 0
        for number in range(count + 1):
            dataset.append(rows(size, max(keys // 20, 1), number + 1))
            there = _sizes(place)
            found.append(follow(workspace, "totals"))
            written += sum(each for path, each in _sizes(place).items() if path not in there)
    taken = Samples(tuple(found[1:]))
    mean = sum(taken.seconds) / taken.count
    longest = f"the longest took {max(taken.seconds):.2f} s"
    note = f"derive-rewrites: {longest}, each wrote {written // (count + 1):,} bytes"
    what = f"{count} updates of 5 % of {keys:,} keys: the average beside the median"
    yield Row("derive-rewrites", what, one("", mean), duration(taken), mean / taken.median, note=note)


def _sizes(place: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in place.rglob("*") if path.is_file()}


def replay(run: Run) -> Iterator[Row]:
    """Every commit computed again, beside the pulls that made them."""
    name = run.scale.name
    count, size = REPLAYED[name], REPLAYED_ROWS[name]
    queries = {"followed by the increment": TOTALS, "recomputed": AGAIN, "row by row": SOME}
    with tl.open(run.folder / "replay", create=True) as workspace:
        dataset = workspace.create("rows", merge=tl.merge.append())
        pulled = dict.fromkeys(queries, 0.0)
        for number in range(count):
            dataset.append(rows(size, KEYS[name], number))
            for place, (what, text) in enumerate(queries.items()):
                if not number:
                    key = None if what == "row by row" else "k"
                    derive(workspace, DerivationRequest(f"d{place}", text, key=key))
                pulled[what] += follow(workspace, f"d{place}")
        for place, what in enumerate(queries):
            start = perf_counter()
            report = workspace.verify(f"d{place}", replay=True)
            seconds = perf_counter() - start
            assert report.ok, report.problems
            assert report.replayed == count
            many = count * size
            ours, theirs = rate(many / seconds, "rows"), rate(many / pulled[what], "rows")
            ratio = seconds / pulled[what]
            yield Row("replay", f"{count} commits of {size:,} rows, {what}", ours, theirs, ratio)


def empty(run: Run) -> Iterator[Row]:
    """Most commits of the input only move its watermark."""
    count = EMPTY[run.scale.name]
    # Not less often than that leaves twelve, the first advance among them.
    stride = -(-count // WITH_ROWS)
    place = run.folder / "derive-empty"
    with tl.open(place, create=True) as workspace:
        # Synced, ten thousand advances would mostly wait for the disk, the same time each.
        workspace.config.set("storage.durable", False)
    with tl.open(place) as workspace:
        dataset = workspace.create("rows", event_time="at")
        found, with_rows = [], 0
        for number in range(count):
            moment = np.datetime64("2026-01-01", "ms") + np.timedelta64(number, "s")
            if number % stride == 0:
                with_rows += 1
                given: Any = rows(10, 5, number).append_column("at", pa.array([moment] * 10))
                dataset.append(given)
            else:
                dataset.append([], watermark=f"{moment}Z")
            if not number:
                derive(workspace, DerivationRequest("some", SOME))
            found.append(follow(workspace, "some"))
        size = [path.stat().st_size for path in place.rglob("*") if path.is_file()]
        start = perf_counter()
        # `replay` is a scenario of its own: here it would compute each of the commits again.
        assert workspace["some"].verify(replay=False).ok
        verified = perf_counter() - start
    part = max(1, count // 10)
    first, last = Samples(tuple(found[part : 2 * part])), Samples(tuple(found[-part:]))
    ratio = last.median / first.median
    note = f"derive-empty: {len(size):,} objects, {sum(size):,} bytes, verified in {verified:.2f} s"
    what = (
        f"the last {part:,} of {count:,} advances, of which {with_rows} bring rows, not synced, "
        f"beside advances {part:,}–{2 * part - 1:,}"
    )
    yield Row("derive-empty", what, duration(last), duration(first), ratio, f"≤ {LAST}", ratio <= LAST, note)


def stateless(run: Run) -> Iterator[Row]:
    size = STATELESS[run.scale.name]
    place = run.folder / "derive-stateless"
    if missing := lacks_bytes(run.folder, 6 * size * BYTES_OF_A_ROW):
        yield Row("derive-stateless", f"{size:,} rows", note=f"derive-stateless was not measured: {missing}")
        return
    with tl.open(place, create=True) as workspace:
        with run.doing(f"writing {size:,} rows"):
            dataset = workspace.create("rows", merge=tl.merge.append())
            numbers = np.arange(size)
            table = rows(size, 1_000, 3).append_column("n", pa.array(numbers))
            dataset.append(table.slice(0, size // 2))
        text = "select n, k, x * 2 as y from rows where x > 1"
        derive(workspace, DerivationRequest("some", text, key="n"))
        follow(workspace, "some")
        dataset.append(table.slice(size // 2))
        settle()
        ours = follow(workspace, "some")
        new = dataset.diff(list(dataset.log())[1].block).drop("op").to_spark()
        new.createOrReplaceTempView("rows")
        target = str(place / "plain.parquet")
        made = new.sparkSession.sql(text)
        # The second time its code is compiled, as that of ours is.
        other = min(timed(lambda: made.write.mode("overwrite").parquet(target)) for _ in range(2))
    yield Row("derive-stateless", f"{size // 2:,} new rows", one("", ours), one("", other), ours / other)
