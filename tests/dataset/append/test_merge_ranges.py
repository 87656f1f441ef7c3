"""Large merges as tasks: whatever does the work, the slices, the state and the counts are the same."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.dataset.append.test_properties import Clock
from tests.examples import examples
from tests.workspace.records import records, slices
from trueline.dataset.append import append as appending
from trueline.dataset.append import append as committing
from trueline.dataset.append import frames, pieces
from trueline.dataset.append import merge as merging
from trueline.dataset.append.merge import open_state
from trueline.dataset.state import rewrite as rewriting
from trueline.dataset.state import segment
from trueline.dataset.state import segment_reader as reading
from trueline.errors import InputError, TaskFailed
from trueline.kernel.tasks import InlineTasks

STRATEGIES = ["ledger", "upsert", "snapshot", "changelog"]
MERGING = {"sort by key", "merge by key", "write state", "select rows", "verify state", "rewrite state"}


@dataclass
class Elsewhere:
    """Tasks as other processes do them: only pickled things get there and back, in any order, some twice."""

    seed: int = 0
    labels: list[str] = field(default_factory=list)

    def map(self, function, descriptors, *, label):
        self.labels.append(label)
        random = np.random.default_rng(self.seed)
        for index in random.permutation(len(descriptors)).tolist():
            packed = pickle.dumps((function, descriptors[index]))
            if random.random() < 0.3:
                _run(packed)
            yield index, _run(packed)


def _run(packed):
    function, descriptor = pickle.loads(packed)
    return pickle.loads(pickle.dumps(function(descriptor)))


@pytest.fixture
def shrunk(monkeypatch):
    """Slices of 500 rows, runs and ranges of about 300; the clock stands still."""
    shrink(monkeypatch, slice_rows=500, at_once=600)


def shrink(patch, slice_rows, at_once):
    patch.setattr(committing, "Instant", Clock)
    patch.setattr(committing, "ROWS_OF_A_SLICE", slice_rows)
    patch.setattr(pieces.cut, "__defaults__", (slice_rows,))
    patch.setattr(merging, "ROWS_AT_ONCE", at_once)
    for module in (merging, frames):
        patch.setattr(module, "FEW_ROWS", 0)


def told(ds, commits):
    """All that may not depend on who did the work."""
    assert ds.verify().ok, ds.verify().problems
    state = open_state(ds.chain.store, ds.chain.tail())
    return {
        "slices": [(part.logical_hash, part.physical_hash) for part, _ in slices(ds)],
        "state": [(file.hash, file.notes) for file in state.files],
        "ignored": [dict(commit.ignored) for commit in commits],
        "late": [commit.late for commit in commits],
        "watermark": ds.info.watermark,
    }


# --- random batches -------------------------------------------------------------------


def batch(strategy, seed, rows, keys):
    """Rows with keys that come again, some values that stay, and what else the strategy takes."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, keys, rows)
    if strategy == "snapshot":
        ids = random.permutation(keys)[:rows]
    table = pa.table(
        {
            "day": pa.array(
                random.integers(0, 10**6, len(ids)).astype("datetime64[ms]"), pa.timestamp("ms", "UTC")
            ),
            "id": pa.array(ids, pa.int64()),
            "city": pa.array(
                [None if n == 0 else f"city {n}" for n in random.integers(0, 3, len(ids))], pa.string()
            ),
            "price": pa.array(random.integers(0, 2, len(ids)) / 3),
        }
    )
    if strategy == "upsert":
        table = table.append_column("op", pa.array((random.random(len(ids)) < 0.2).astype(np.int32)))
    if strategy == "changelog":
        ops = random.integers(0, 3, len(ids))
        # A correction is two rows of one key, one directly after the other.
        which = np.repeat(np.arange(len(ids)), np.where(ops == 2, 2, 1))
        again = np.append(False, which[1:] == which[:-1])
        table = table.take(pa.array(which)).append_column(
            "op", pa.array((ops[which] + again).astype(np.int32))
        )
    return table


def history(strategy, seed, sizes=((900, 700), (1000, 900), (40, 900), (800, 1200))):
    return [batch(strategy, seed * 100 + n, rows, keys) for n, (rows, keys) in enumerate(sizes)]


def appended(ws, name, strategy, batches):
    ds = ws.create(name, merge=getattr(tl.merge, strategy)("id"), event_time="day", lateness="1m")
    return told(ds, [ds.append(data) for data in batches])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_many_tasks_give_what_one_process_gives(ws, monkeypatch, shrunk, strategy):
    batches = history(strategy, 1)
    alone = appended(ws, "alone", strategy, batches)
    assert len(alone["slices"]) > 4
    for seed, tasks in enumerate((Elsewhere(1), Elsewhere(2), InlineTasks(workers=3))):
        monkeypatch.setattr(appending, "in_this_process", lambda tasks=tasks: tasks)
        # Rows in memory are never sent away, so that the files are what the tasks read.
        monkeypatch.setattr(merging, "_is_here", lambda _: False)
        assert appended(ws, f"tasks{seed}", strategy, batches) == alone
        if isinstance(tasks, Elsewhere):
            assert {"sort by key", "merge by key", "write state"} <= set(tasks.labels)
    monkeypatch.setattr(merging, "ROWS_AT_ONCE", 1 << 20)
    whole = appended(ws, "whole", strategy, batches)
    assert {name: each for name, each in whole.items() if name != "state"} == {
        name: each for name, each in alone.items() if name != "state"
    }


@settings(max_examples=examples(8))
@given(st.sampled_from(STRATEGIES), st.integers(0, 10**6), st.integers(2, 40), st.integers(1, 25))
def test_cuts_do_not_show_in_slices(tmp_path_factory, strategy, seed, at_once, keys):
    """Random batches, through runs and ranges of any size."""
    batches = history(strategy, seed, sizes=((40, keys), (30, keys), (20, keys + 5)))
    seen = []
    for rows in (1 << 20, at_once):
        with pytest.MonkeyPatch.context() as patch, tl.open(tmp_path_factory.mktemp("w"), create=True) as ws:
            ws.config.set("storage.durable", False)
            shrink(patch, 16, rows)
            tasks = Elsewhere(seed)
            patch.setattr(appending, "in_this_process", lambda tasks=tasks: tasks)
            patch.setattr(merging, "_is_here", lambda _, rows=rows: rows > 40)
            found = appended(ws, "x", strategy, batches)
            state = open_state(ws["x"].chain.store, ws["x"].chain.tail())
            found["state"] = [row for rows in state.scan() for row in rows.to_pylist()]
            seen.append(found)
    assert seen[0] == seen[1]


# --- through Spark ----------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_spark_tasks_give_what_one_process_gives(ws, spark, monkeypatch, strategy):
    """Frames of any partitioning, every row read and merged by tasks, none of them in this process."""
    shrink(monkeypatch, slice_rows=900, at_once=600)
    batches = history(strategy, 2, sizes=((900, 700), (1000, 900)))
    alone = appended(ws, "alone", strategy, batches)
    # Two partitions, then one: the same rows in the same order.
    given = [spark.createDataFrame(data).coalesce(2 - n) for n, data in enumerate(batches)]
    labels = watched(monkeypatch)
    with monkeypatch.context() as strict:
        for kind in (pieces.IncomingPiece, frames.SpooledPiece):
            strict.setattr(kind, "read", lambda *_: pytest.fail("a row of a frame in the driver"))
        ds = ws.create("spark", merge=getattr(tl.merge, strategy)("id"), event_time="day", lateness="1m")
        commits = [ds.append(frame) for frame in given]
    assert told(ds, commits) == alone
    assert {"sort by key", "merge by key", "write state", "write slices"} <= set(labels)


def test_spark_tasks_keep_what_a_frame_lacks_as_one_process_does(ws, spark, monkeypatch):
    shrink(monkeypatch, slice_rows=900, at_once=600)
    first, second = history("upsert", 2, sizes=((900, 700), (1000, 900)))
    lacks = [name for name in second.column_names if name not in ("id", "day", "op")][-1]
    second = second.drop_columns([lacks])
    alone = appended(ws, "alone", "upsert", [first, second])
    ds = ws.create("spark", merge=tl.merge.upsert("id"), event_time="day", lateness="1m")
    commits = [ds.append(spark.createDataFrame(data).coalesce(2)) for data in (first, second)]
    assert told(ds, commits) == alone
    assert ws["spark"].view().to_arrow().equals(ws["alone"].view().to_arrow())
    before = {row["id"]: row[lacks] for row in ds.view(at=commits[0]).to_arrow().to_pylist()}
    after = {row["id"]: row[lacks] for row in ds.view().to_arrow().to_pylist()}
    stayed = before.keys() & after.keys() & set(second["id"].to_pylist())
    assert any(before[key] is not None for key in stayed)


def watched(monkeypatch):
    from trueline.spark.tasks import SparkTasks

    labels = []
    real = SparkTasks.map
    monkeypatch.setattr(
        SparkTasks, "map", lambda self, f, d, *, label: labels.append(label) or real(self, f, d, label=label)
    )
    return labels


def test_a_small_frame_is_merged_without_a_job(ws, spark, monkeypatch):
    labels = watched(monkeypatch)
    ds = ws.create("x", merge=tl.merge.upsert("id"), event_time="day")
    for data in history("upsert", 3, sizes=((100, 50), (100, 60))):
        ds.append(spark.createDataFrame(data))
    assert labels == []
    assert ds.verify().ok


def test_a_frame_without_rows_is_a_snapshot_of_nothing(ws, spark):
    ds = ws.create("x", merge=tl.merge.snapshot("id"))
    ds.append(pa.table({"id": [1, 2]}))
    with pytest.raises(InputError, match="would retract every row"):
        ds.append(spark.range(0))
    assert ds.append(spark.range(0), allow_empty=True).rows == 2
    assert ds.view().count() == 0


# --- what is refused, and what is missing -----------------------------------------------


def through(monkeypatch, tasks):
    monkeypatch.setattr(appending, "in_this_process", lambda: tasks)
    monkeypatch.setattr(merging, "_is_here", lambda _: False)


def test_rows_without_a_key_are_counted_over_all_tasks(ws, monkeypatch, shrunk):
    ids = [None if n % 100 == 7 else n for n in range(1000)]
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    seen = []
    for tasks in (InlineTasks(), Elsewhere(1), Elsewhere(2)):
        through(monkeypatch, tasks)
        with pytest.raises(InputError) as refused:
            ds.append(pa.table({"id": pa.array(ids, pa.int64())}))
        seen.append((refused.value.code, refused.value.count, refused.value.rows))
    assert seen == [("NullKey", 10, [7 + 100 * n for n in range(10)])] * 3
    assert ds.info.rows == 0


def test_state_that_tasks_do_not_find_is_made_again(ws, monkeypatch, shrunk):
    batches = history("upsert", 4)
    alone = appended(ws, "alone", "upsert", batches)
    through(monkeypatch, Elsewhere(3))
    ds = ws.create("x", merge=tl.merge.upsert("id"), event_time="day", lateness="1m")
    commits = [ds.append(data) for data in batches[:2]]
    for file in open_state(ds.chain.store, ds.chain.tail()).files:
        (Path(ds.chain.store.location) / "checkpoints" / file.hash).unlink()
    commits += [ds.append(data) for data in batches[2:]]
    assert [row["price"] for row in records(ds).to_pylist()]
    found = [(part.logical_hash, part.physical_hash) for part, _ in slices(ds)]
    assert found == alone["slices"]


def test_a_task_that_fails_leaves_the_head_where_it_was(ws, monkeypatch, shrunk):
    class Broken(Elsewhere):
        def map(self, function, descriptors, *, label):
            if label == "write state":
                raise TaskFailed("no", remedy="none")
            return super().map(function, descriptors, label=label)

    ds = ws.create("x", merge=tl.merge.upsert("id"), event_time="day")
    ds.append(batch("upsert", 1, 900, 700))
    head = ds.head
    through(monkeypatch, Broken())
    with pytest.raises(TaskFailed):
        ds.append(batch("upsert", 2, 900, 700))
    assert ds.head == head
    assert ds.verify().ok
    through(monkeypatch, Elsewhere())
    assert ds.append(batch("upsert", 2, 900, 700)).rows


def test_state_is_rewritten_by_tasks_in_ranges_of_its_own(ws, monkeypatch, shrunk):
    monkeypatch.setattr(rewriting.compacted, "__kwdefaults__", {"rows_of_a_range": 200})
    # Ranges are cut where groups of rows begin.
    for module in (segment, reading):
        monkeypatch.setattr(module, "ROWS_OF_A_GROUP", 64)
    batches = [batch("upsert", n, 900, 1000) for n in range(3)]
    seen = []
    for tasks in (InlineTasks(), Elsewhere(5)):
        with monkeypatch.context() as patch:
            through(patch, tasks)
            seen.append(appended(ws, f"x{len(seen)}", "upsert", batches))
    assert seen[0] == seen[1]
    assert {"verify state", "rewrite state"} <= set(tasks.labels)
    parts = [notes["part"] for _, notes in seen[0]["state"] if notes["generation"] == 0]
    assert len(parts) > 2
