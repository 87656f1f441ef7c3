"""Runs on Spark: the same results as inline, useless jobs seen to stop, nothing left in any thread."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.run.sequential import random_run, sequential
from tests.spark.running_steps import AddOne, ByValue, Meets, Refuses, Stalls
from trueline.chain.instant import Instant
from trueline.chain.store.scratch import FolderScratch
from trueline.dataset.prepare import Rows, mask, on_rows, parse, repair, validate
from trueline.errors import RunFailed, SparkFailed
from trueline.run import Inline, Run, Step
from trueline.spark import run_executor as running
from trueline.spark.run_executor import AHEAD, FINAL, Spark

PROPERTIES = (
    "spark.scheduler.pool",
    "spark.job.description",
    "spark.job.interruptOnCancel",
    "spark.jobGroup.id",
)


class Watching:
    def __init__(self):
        self.events = []

    def event(self, event):
        self.events.append(event)

    def of(self, what, step):
        return [event for event in self.events if event.what == what and event.step == step]


@pytest.fixture
def fifos(tmp_path):
    paths = [str(tmp_path / name) for name in ("gate", "never")]
    for path in paths:
        os.mkfifo(path)
    return paths


def status(spark, tag):
    context = spark.sparkContext
    # What the tracker knows it hears from a queue.
    context._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = context._jsc.sc().statusTracker().getJobIdsForTag(tag)
    return [context.statusTracker().getJobInfo(job).status for job in jobs]


# --- results ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [11])
def test_results_are_those_of_one_step_after_another(spark_room, seed):
    steps, inputs = random_run(seed)
    assert Run(steps, executor=Spark(spark_room)).execute(inputs) == sequential(steps, inputs)


def test_values_are_references_and_every_attempt_writes_to_its_own_place(spark_room, tmp_path):
    scratch = FolderScratch(tmp_path / "scratch")
    tables = {"a": pa.table({"n": [1, 2, 0]}), "b same": pa.table({"n": [1, 2, 1]})}
    inputs = {name: Rows.keep(table, scratch) for name, table in tables.items()}
    steps = [on_rows(AddOne()), on_rows(AddOne())]
    found = Run(steps, executor=Spark(spark_room)).execute(inputs)
    inline = Run(steps, executor=Inline()).execute(inputs)
    assert {key: rows.table() for key, rows in found.items()} == {
        key: rows.table() for key, rows in inline.items()
    }
    assert found == inline  # by digest
    assert found["a"].name != inline["a"].name
    assert found["b same"].name == inputs["b same"].name
    assert inputs["a"].table()["n"].to_pylist() == [1, 2, 0]


def test_files_prepared_on_spark_make_the_same_blocks(spark_room, tmp_path):
    for number in range(5):
        rows = "".join(f"{number * 10 + n}, Bern,{n - 1},u{n}@x.ch\n" for n in range(4))
        (tmp_path / f"{number}.csv").write_text("id,city,price,email\n" + rows)
    (tmp_path / "3.csv").write_bytes(b"\x1f\x8b no gzip")
    with tl.open(tmp_path / "one", create=True) as ws:
        ws.create("sales")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    heads = []
    for name, executor in (("one", None), ("two", Spark(spark_room))):
        with tl.open(tmp_path / name) as ws:
            ws.clock = lambda: Instant.parse("2030-01-01T00:00:00Z")
            steps = [
                parse(on_error="skip_key"),
                validate("price >= 0", drop=True),
                repair(city="trim(city)"),
                mask("email", key="k"),
                Step(map=lambda path, table: table.slice(0, 2), name="two"),
            ]
            commit = ws["sales"].append(str(tmp_path / "*.csv"), steps=steps, executor=executor)
            assert list(commit.left_out) == [str(tmp_path / "3.csv")]
            heads.append((ws["sales"].head, commit.rows))
    assert heads[0] == heads[1]
    assert heads[0][1] == 8


def test_several_keys_of_a_step_are_tasks_of_one_job(spark, spark_room):
    executor, seen = Spark(spark_room), Watching()
    step = Step(map=lambda key, value: value + 1, batch_size=-1)
    assert Run([step], executor=executor, observers=[seen]).execute({1: 1, 2: 2, 3: 3}) == {1: 2, 2: 3, 3: 4}
    [number] = {event.attempt for event in seen.of("started", 0)}
    assert status(spark, executor.tag(number)) == ["SUCCEEDED"]


# --- cancelling ---------------------------------------------------------------------------


@pytest.mark.timeout(120)
def test_a_superseded_job_is_seen_to_stop(spark, spark_room, fifos):
    gate, never = fifos
    executor, seen = Spark(spark_room), Watching()
    run = Run([Meets(gate), Stalls(gate, never)], executor=executor, observers=[seen])
    assert run.execute({"k": "value"}) == {"k": "value! done"}
    [first, second] = [event.attempt for event in seen.of("started", 1)]
    assert [event.attempt for event in seen.of("superseded", 1)] == [first]
    assert status(spark, executor.tag(first)) == ["FAILED"]
    assert status(spark, executor.tag(second)) == ["SUCCEEDED"]


@pytest.mark.timeout(120)
def test_results_do_not_depend_on_a_cancel_arriving(spark, spark_room, tmp_path, monkeypatch):
    """Every cancel is lost; the useless work ends by itself, late, and is dropped."""
    gate, late = str(tmp_path / "gate"), str(tmp_path / "late")
    for path in (gate, late):
        os.mkfifo(path)
    monkeypatch.setattr(type(spark_room.engine), "cancel", lambda engine, tag: None)

    def first(key, value):
        with Path(gate).open("rb"):
            return "new"

    def second(key, value):
        if value == "old":
            with Path(gate).open("wb"):
                pass
            with Path(late).open("rb"):
                return "made of old"
        with Path(late).open("wb"):
            return "made of new"

    executor, seen = Spark(spark_room), Watching()
    run = Run([Step(map=first), Step(map=second)], executor=executor, observers=[seen])
    assert run.execute({"k": "old"}) == {"k": "made of new"}
    assert len(seen.of("superseded", 1)) == 1
    assert status(spark, executor.tag(seen.of("started", 1)[0].attempt)) == ["SUCCEEDED"]


@pytest.mark.timeout(120)
def test_nothing_runs_any_more_when_a_run_is_given_up(spark, spark_room, fifos):
    gate, never = fifos
    executor = Spark(spark_room)

    class Impatient:
        def event(self, event):
            if event.what == "changed":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Run([Meets(gate), Stalls(gate, never)], executor=executor, observers=[Impatient()]).execute(
            {"k": "v"}
        )
    assert not executor._jobs
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []


# --- properties ---------------------------------------------------------------------------


def test_no_property_leaks_from_a_run_and_the_callers_are_kept(spark, spark_room, monkeypatch):
    context = spark.sparkContext
    seen = []
    mark = type(spark_room.engine).mark

    def look(engine, tag, label, pool=None):
        mark(engine, tag, label, pool)
        seen.append((threading.current_thread(), context.getLocalProperty("spark.scheduler.pool"), tag))
        assert set(context.getJobTags()) == {"mine", tag}

    monkeypatch.setattr(type(spark_room.engine), "mark", look)
    context.addJobTag("mine")
    context.setLocalProperty("spark.scheduler.pool", "my pool")
    try:
        before = {name: context.getLocalProperty(name) for name in PROPERTIES}
        executor = Spark(spark_room)
        run = Run([Step(map=lambda k, v: v), Step(map=lambda k, v: v)], executor=executor)
        run.execute({"a": 1, "b": 2})
        assert {name: context.getLocalProperty(name) for name in PROPERTIES} == before
        assert set(context.getJobTags()) == {"mine"}
    finally:
        context.removeJobTag("mine")
        context.setLocalProperty("spark.scheduler.pool", None)
    assert {pool for _, pool, _ in seen} <= {FINAL, AHEAD}
    assert FINAL in {pool for _, pool, _ in seen}  # the first step's, though a later one may begin before it
    assert threading.current_thread() not in {thread for thread, _, _ in seen}
    assert not [thread for thread, _, _ in seen if thread.is_alive()]


def test_a_thread_is_left_without_properties_even_if_its_job_fails(spark, spark_room, monkeypatch):
    context = spark.sparkContext
    left = {}

    def fail(self, step, items):
        raise SparkFailed("lost")

    work = Spark._work

    def looking(self, *job):
        work(self, *job)
        left.update({name: context.getLocalProperty(name) for name in PROPERTIES})
        left["tags"] = set(context.getJobTags())

    monkeypatch.setattr(Spark, "_collected", fail)
    monkeypatch.setattr(Spark, "_work", looking)
    with pytest.raises(SparkFailed, match="lost"):
        Run([Step(map=lambda k, v: v)], executor=Spark(spark_room)).execute({"a": 1})
    assert left == {**dict.fromkeys(PROPERTIES), "tags": set()}


def test_final_work_goes_ahead_of_work_that_may_be_thrown_away(spark):
    scheduler = spark.sparkContext._jsc.sc()
    weights = {name: scheduler.getPoolForName(name).get().weight() for name in (FINAL, AHEAD, "default")}
    assert weights == {FINAL: 1000, AHEAD: 1, "default": 1000}


# --- failures -----------------------------------------------------------------------------


def test_a_step_that_fails_in_a_task_fails_as_elsewhere(spark_room):
    with pytest.raises(RunFailed, match="refuses") as refused:
        Run([Refuses()], executor=Spark(spark_room)).execute({"bad": 1, "good": 2})
    assert isinstance(refused.value.__cause__, ZeroDivisionError)
    step = Refuses()
    step.on_error = "skip_key"
    run = Run([step], executor=Spark(spark_room))
    assert run.execute({"bad": 1, "good": 2}) == {"good": 2}
    assert [failure.key for failure in run.failures] == ["bad"]


def test_rows_by_value_are_refused(spark_room):
    for step, inputs in ((ByValue(), {"a": 1}), (Refuses(), {"a": pa.table({"n": [1]})})):
        with pytest.raises(RunFailed) as refused:
            Run([step], executor=Spark(spark_room)).execute(inputs)
        assert refused.value.__cause__.code == "NotAReference"


def test_a_cancel_that_comes_too_early_is_repeated_when_more_work_comes(spark_room, monkeypatch):
    from trueline.run.attempt import Attempt

    cancelled = []
    monkeypatch.setattr(type(spark_room.engine), "cancel", lambda engine, tag: cancelled.append(tag))
    executor, done = Spark(spark_room), []
    executor.start([], lambda attempt, outcome: done.append((attempt.number, outcome)))
    old = Attempt(1, 0, 1, {"k": ((0,), 1)})
    executor._jobs[1] = running._Job(old, executor.tag(1))
    executor.superseded(old)
    old.token.supersede()
    executor.submit(Step(map=lambda key, value: 7), Attempt(2, 0, 2, {"k": ((0,), 1)}), [("k", 1)])
    assert executor._jobs.pop(1).attempt is old
    executor.stop()
    assert cancelled == [executor.tag(1)] * 2
    assert [(number, outcome.changed) for number, outcome in done] == [(2, [("k", 7)])]
