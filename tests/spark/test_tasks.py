"""Functions in Spark tasks: how jobs are cut, counted and described."""

from __future__ import annotations

import pytest

from tests.spark import deeds
from trueline import console
from trueline.errors import SparkFailed, TaskFailed
from trueline.spark import tasks


def jobs_of(spark, group, action):
    """How many Spark jobs an action starts, seen through a job group of the caller's thread."""
    context = spark.sparkContext
    context.setJobGroup(group, "counted")
    try:
        action()
        return len(context.statusTracker().getJobIdsForGroup(group))
    finally:
        for key in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(key, None)


def test_many_tasks_are_one_job(spark, spark_room):
    work = spark_room.tasks()
    assert jobs_of(spark, "many", lambda: list(work.map(deeds.square, range(40), label="t"))) == 1


def test_nothing_to_do_starts_no_job(spark, spark_room):
    work = spark_room.tasks()
    assert jobs_of(spark, "none", lambda: list(work.map(deeds.square, [], label="t"))) == 0


def test_too_many_tasks_are_cut_into_jobs_and_numbered_on(spark, spark_room, monkeypatch):
    monkeypatch.setattr(tasks, "_TASKS", 3)
    work, found = spark_room.tasks(), []
    count = jobs_of(spark, "cut", lambda: found.extend(work.map(deeds.square, range(7), label="t")))
    assert count == 3
    assert found == [(n, n * n) for n in range(7)]


def test_large_descriptors_are_cut_by_their_bytes():
    cut = list(tasks._jobs([b"x" * (tasks._BYTES // 2 - 1000)] * 5))
    assert [(first, len(packed)) for first, packed in cut] == [(0, 2), (2, 2), (4, 1)]
    assert [len(packed) for _, packed in tasks._jobs([b"x" * (2 * tasks._BYTES)] * 2)] == [1, 1]


def test_an_index_in_a_later_job_keeps_its_number_in_errors(spark_room, monkeypatch):
    monkeypatch.setattr(tasks, "_TASKS", 2)
    with pytest.raises(TaskFailed) as caught:
        list(spark_room.tasks().map(deeds.divide, [1, 1, 1, 0], label="dividing"))
    assert caught.value.index == 3


def test_a_result_that_comes_twice_is_handed_on_once_and_a_missing_one_is_an_error(spark_room, monkeypatch):
    import pyarrow as pa

    from trueline.spark.results import encode

    def answering(*pairs):
        columns = {"id": [i for i, _ in pairs], "result": [encode(value) for _, value in pairs]}
        table = pa.table(columns | {"rows": [0] * len(pairs)}, schema=tasks._ARROW)
        monkeypatch.setattr(tasks, "run", lambda *_, **__: table)

    answering((0, "a"), (1, "b"), (0, "c"))
    assert list(spark_room.tasks().map(deeds.square, [1, 2], label="t")) == [(0, "a"), (1, "b")]
    answering((0, "a"))
    with pytest.raises(SparkFailed, match="1 of 2 tasks"):
        list(spark_room.tasks().map(deeds.square, [1, 2], label="t"))


def test_jobs_carry_their_label_and_the_callers_pool(spark, spark_room, monkeypatch):
    context = spark.sparkContext
    seen = {}
    mark = type(spark_room.engine).mark

    def look(engine, tag, label):
        mark(engine, tag, label)
        seen["description"] = context.getLocalProperty("spark.job.description")
        seen["pool"] = context.getLocalProperty("spark.scheduler.pool")
        seen["tags"] = set(context.getJobTags())
        seen["tag"] = tag

    monkeypatch.setattr(type(spark_room.engine), "mark", look)
    context.setLocalProperty("spark.scheduler.pool", "mine")
    try:
        list(spark_room.tasks().map(deeds.square, [1], label="squaring"))
    finally:
        context.setLocalProperty("spark.scheduler.pool", None)
    assert (seen["description"], seen["pool"], seen["tags"]) == ("squaring", "mine", {seen["tag"]})
    assert set(context.getJobTags()) == set()


def test_the_bar_is_left_open_by_work_that_failed(spark_room):
    with console.use(console.CapturedConsole()) as seen, pytest.raises(Exception, match="ZeroDivision"):
        list(spark_room.tasks().map(deeds.divide, [0], label="dividing"))
    assert [(work.label, work.done, work.closed) for work in seen.work] == [("dividing", 0, False)]
