"""What must hold on every kind of Spark; run in a process of its own: `python -m tests.spark.smoke classic`.

Instead of that, the address of a Connect server may be given, which has two cores and the settings `LOCAL`.
Prints one JSON object: the name of each check → "ok", or what went wrong.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.spark import deeds
from tests.spark.running_steps import Meets, Stalls
from trueline import console
from trueline.dataset.derivation import derivation_at
from trueline.errors import HashMismatch, InputError, QueryError, SparkFailed, TaskFailed, UnsafeQuery
from trueline.kernel.tasks import InlineTasks
from trueline.run import Run
from trueline.spark.engines import engine_of
from trueline.spark.errors import translated
from trueline.spark.frames import spool, write_pieces
from trueline.spark.jobs import run
from trueline.spark.run_executor import Spark
from trueline.spark.session import SparkRoom, adopt, start
from trueline.spark.settings import SQL_SETTINGS, Settings
from trueline.spark.source import register
from trueline.workspace.derive.strategies import increment

LOCAL = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}


class Impatient(console.CapturedConsole):
    """Someone who presses Ctrl-C as soon as something is done."""

    def progress(self, label, total=None):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def expect(self, total):
        pass

    def advance(self, steps=1):
        raise KeyboardInterrupt


def caught(kind, action):
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def all_settings(session) -> dict[str, str]:
    return {row[0]: row[1] for row in session.sql("SET -v").collect()} | {
        row[0]: row[1] for row in session.sql("SET").collect()
    }


def check_the_session_handed_in_keeps_its_settings(user, room):
    user.conf.set("spark.sql.session.timeZone", "America/New_York")
    user.conf.set("spark.sql.ansi.enabled", "false")
    user.conf.set("spark.sql.shuffle.partitions", "3")
    before = all_settings(user)
    other = adopt(user)
    assert dict(other.tasks().map(deeds.square, [2], label="t")) == {0: 4}
    spool(user.range(3), tempfile.mkdtemp())
    other.stop()
    after = all_settings(user)
    assert after == before, {k: (before.get(k), v) for k, v in after.items() if before.get(k) != v}
    assert user.range(2).count() == 2


def check_our_session_is_pinned(user, room):
    for session in (room.session, room.new_session()):
        assert {key: session.conf.get(key) for key in SQL_SETTINGS} == SQL_SETTINGS
        assert session.sql("select cast(timestamp'2020-01-01' as string)").first()[0] == "2020-01-01 00:00:00"


def check_views_of_ours_are_not_seen_by_the_user(user, room):
    room.session.range(1).createOrReplaceTempView("ours")
    assert "ours" not in {table.name for table in user.catalog.listTables()}


def check_every_task_answers_once_and_as_inline_does(user, room):
    work = [deeds.Sum(n, 100 * n) for n in range(7)]
    answers = list(room.tasks().map(deeds.add, work, label="adding"))
    assert sorted(answers) == sorted(InlineTasks().map(deeds.add, work, label="adding"))
    assert list(room.tasks().map(deeds.add, [], label="adding")) == []


def check_each_descriptor_ran_once(user, room):
    folder = tempfile.mkdtemp()
    paths = [f"{folder}/{n}" for n in range(5)]
    list(room.tasks().map(deeds.note, paths, label="noting"))
    assert [Path(path).read_bytes() for path in paths] == [b"x"] * 5


def check_workers_use_the_drivers_interpreter(user, room):
    [(_, (executable, _zone))] = room.tasks().map(deeds.interpreter, [0], label="asking")
    assert Path(executable).resolve() == Path(sys.executable).resolve(), executable


def check_an_error_of_ours_comes_back_with_its_fields(user, room):
    work = room.tasks().map(deeds.refuse_three, [1, 2, 3, 4], label="checking")
    error = caught(HashMismatch, lambda: list(work))
    assert (error.problem, error.remedy) == ("slice f1620 is damaged", "restore it")
    assert error.fields == {"expected": "f1620a", "found": [1, {"b": 2}]}
    assert type(error) is HashMismatch
    assert "\tat " not in "".join(traceback.format_exception(error))


def check_an_error_that_is_too_large_or_not_plain_still_has_its_kind(user, room):
    large = caught(HashMismatch, lambda: list(room.tasks().map(deeds.carry_much, [10_000_000], label="c")))
    assert (large.remedy, large.fields) == ("r", {})
    odd = caught(HashMismatch, lambda: list(room.tasks().map(deeds.carry_a_lock, [1], label="c")))
    assert odd.remedy == "r"
    assert odd.lock.startswith("<unlocked _thread.lock object"), odd.fields
    small = caught(HashMismatch, lambda: list(room.tasks().map(deeds.carry_much, [60_000], label="c")))
    assert len(small.text) == 60_000


def check_another_exception_is_named_with_its_place(user, room):
    error = caught(TaskFailed, lambda: list(room.tasks().map(deeds.divide, [1, 0], label="dividing")))
    assert (error.label, error.index, error.error) == ("dividing", 1, "ZeroDivisionError")
    assert "in divide" in error.traceback
    assert "return 1 / number" in error.traceback
    assert "pyspark" not in error.traceback
    for text in (str(error), "".join(traceback.format_exception(error))):
        assert "java" not in text.lower().replace("javascript", ""), text
    refused = caught(InputError, lambda: list(room.tasks().map(deeds.unpackable, [1], label="locking")))
    assert refused.code == "NotPlain", refused


def check_a_lost_worker_is_told_and_the_next_job_works(user, room):
    error = caught(SparkFailed, lambda: list(room.tasks().map(deeds.die, [0, 1], label="dying")))
    assert error.code == "WorkerLost", (error.code, str(error))
    assert "\tat " not in str(error)
    assert dict(room.tasks().map(deeds.square, [3], label="t")) == {0: 9}


def check_giving_up_cancels_the_job(user, room):
    pipe = f"{tempfile.mkdtemp()}/pipe"
    os.mkfifo(pipe)
    with console.use(Impatient()):
        caught(KeyboardInterrupt, lambda: list(room.tasks().map(deeds.wait_at, ["", pipe], label="waiting")))
    assert dict(room.tasks().map(deeds.square, [3, 4], label="t")) == {0: 9, 1: 16}


def check_nothing_stays_with_the_callers_thread(user, room):
    tags = set(room.session.getTags())
    list(room.tasks().map(deeds.square, [1], label="t"))
    caught(TaskFailed, lambda: list(room.tasks().map(deeds.divide, [0], label="t")))
    assert set(room.session.getTags()) == tags == set()
    if not room.is_connect:
        context = room.session.sparkContext
        assert set(context.getJobTags()) == set()
        assert context.getLocalProperty("spark.job.description") is None


def check_progress_reaches_the_console(user, room):
    with console.use(console.CapturedConsole()) as seen:
        list(room.tasks().map(deeds.square, [1, 2, 3], label="squaring"))
    [work] = seen.work
    assert (work.label, work.total, work.done, work.closed) == ("squaring", 3, 3, True), work
    with console.use(console.CapturedConsole()) as seen:
        list(room.tasks().map(deeds.make_rows, [deeds.Sized(10, 3), deeds.Sized(5, 4)], label="making"))
    [work] = seen.work
    assert (work.label, work.total, work.done) == ("making, bytes, 7 rows", 15, 15), work


def check_progress_of_a_query_counts_rows(user, room):
    folder = tempfile.mkdtemp()
    user.range(0, 1000, 1, 2).write.parquet(folder, mode="overwrite")
    frame = room.session.read.parquet(folder).selectExpr("sum(id)")
    with console.use(console.CapturedConsole()) as seen:

        def patient():
            answer, until = frame.toArrow(), time.monotonic() + 60
            # Rows are known a little after a task is done. Where the JVM cannot be reached tasks are counted.
            while not (room.is_connect or seen.work[0].label.endswith(" rows")) and time.monotonic() < until:
                threading.Event().wait(0.05)
            return answer

        run(engine_of(room.session), patient, label="adding")
    assert seen.work[0].label == ("adding" if room.is_connect else "adding, 1,000 rows"), seen.work


def check_a_query_that_is_wrong_names_the_place(user, room):
    from trueline.spark.errors import translated

    def ask(query):
        with translated():
            room.session.sql(query).collect()

    for query, line, column, fragment, condition in (
        ("selec 1 +\n  from from", 1, 1, "selec", "PARSE_SYNTAX_ERROR"),
        ("select 1,\n  nope from range(3)", 2, 3, "nope", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("select *\nfrom nothing_here", 2, 6, "nothing_here", "TABLE_OR_VIEW_NOT_FOUND"),
        ("select id,\n 1/(id-1) x from range(3)", 2, 2, "1/(id-1)", "DIVIDE_BY_ZERO"),
        ("select cast('abc' as int)", 1, 8, "cast('abc' as int)", "CAST_INVALID_INPUT"),
    ):
        error = caught(QueryError, lambda query=query: ask(query))
        found = (error.line, error.column, error.fragment, error.condition)
        assert found == (line, column, fragment, condition), (query, found, str(error))
        for unwanted in ("\tat ", "JVM", "SQLSTATE", "Project [", "org.apache"):
            assert unwanted not in str(error), str(error)
    raised = caught(QueryError, lambda: ask("select raise_error('too bad')"))
    assert raised.problem == "too bad", raised.problem


def check_a_frame_is_spooled_in_order(user, room):
    for frame, partitions in (
        (user.range(0, 1000, 1, 4), 4),
        (user.range(0, 1000, 1, 3).selectExpr("999 - id as id").orderBy("id"), None),
        (user.range(0, 1000, 1, 5).where("id < 200 or id >= 600"), 3),
    ):
        spooled = spool(frame, tempfile.mkdtemp())
        numbers = [n for p in spooled.pieces for n in pq.read_table(p.path)["id"].to_pylist()]
        assert numbers == sorted(numbers)
        assert len(numbers) == spooled.rows == frame.count()
        assert [piece.rows for piece in spooled.pieces] == [
            pq.read_metadata(piece.path).num_rows for piece in spooled.pieces
        ]
        assert partitions in (None, len(spooled.pieces)), spooled.pieces
    assert spool(user.range(5).where("id > 9"), tempfile.mkdtemp()).pieces == ()


def check_partitions_are_handed_over_in_order(user, room):
    frame = user.range(0, 10, 1, 3)
    assert write_pieces(frame, deeds.count_rows) == [(0, [0, 1, 2]), (1, [3, 4, 5]), (2, [6, 7, 8, 9])]
    error = caught(Exception, lambda: write_pieces(frame, deeds.fail_on_partition))
    assert (type(error).__name__, error.fields) == ("StorageFull", {"partition": 1})


def check_values_are_spooled_as_they_are(user, room):
    frame = user.sql(VALUES)
    spooled = spool(frame, tempfile.mkdtemp())
    [row] = pa.concat_tables(pq.read_table(p.path).cast(spooled.schema) for p in spooled.pieces).to_pylist()
    shown = {name: str(value) for name, value in row.items()}
    assert shown == EXPECTED, {k: v for k, v in shown.items() if EXPECTED.get(k) != v}


VALUES = """
select true b, 1Y i8, -2S i16, 3 i32, 4L i64, 1.5F f32, double('nan') f64, 12.340BD d, 'é' s, X'00ff' y,
  date'0001-01-01' old, timestamp'1500-01-01 00:00:00.000001Z' t, timestamp_ntz'2020-01-01 00:00:00.5' n,
  array(1, null) a, named_struct('x', 1, 'y', null :: string) st, null :: int missing
"""
EXPECTED = {
    "b": "True",
    "i8": "1",
    "i16": "-2",
    "i32": "3",
    "i64": "4",
    "f32": "1.5",
    "f64": "nan",
    "d": "12.340",
    "s": "é",
    "y": r"b'\x00\xff'",
    "old": "0001-01-01",
    "t": "1500-01-01 00:00:00.000001+00:00",
    "n": "2020-01-01 00:00:00.500000",
    "a": "[1, None]",
    "st": "{'x': 1, 'y': None}",
    "missing": "None",
}


def check_a_run_gives_what_it_gives_inline_and_stops_what_is_of_no_use(user, room):
    folder = tempfile.mkdtemp()
    gate, never = f"{folder}/gate", f"{folder}/never"
    for path in (gate, never):
        os.mkfifo(path)
    run = Run([Meets(gate), Stalls(gate, never)], executor=Spark(room))
    # It ends only if the work on the old value, which waits for ever, is cancelled.
    assert run.execute({"k": "value"}) == {"k": "value! done"}
    assert run.report.steps[1].wasted == 1, run.report
    assert set(room.session.getTags()) == set()


def check_queries_reach_datasets_only_and_data_stays_text(user, room):
    folder = Path(tempfile.mkdtemp())
    (folder / "secret").write_text("secret")
    blob = base64.b64encode(pickle.dumps(RuntimeError("ran"))).decode()
    cells = [f"trueline-error:{blob}:end", f"trueline-error:{'0' * 32}:{blob}:end"]
    with tl.open(folder / "ws", create=True, spark=user) as ws:
        ws.create("people").append(pa.table({"name": cells}))
        assert ws.sql("with p as (from people) select count(*) n from p").to_arrow().to_pylist() == [{"n": 2}]
        for text in (
            f"select * from text.`{folder}/secret`",
            "select reflect('java.lang.Math', 'abs', -1)",
            "select transform(name) using 'cat' from people",
            "select * from spark_catalog.default.people",
            "select * from outside",
        ):
            error = caught(UnsafeQuery, lambda text=text: ws.sql(text))
            assert error.construct, text
        for place in (0, 1):
            asking = f"select cast(name as int) from people where startswith(name, '{cells[place][:30]}')"
            error = caught(QueryError, lambda asking=asking: ws.sql(asking).to_arrow())
            assert error.condition == "CAST_INVALID_INPUT", error
    with tl.open(folder / "ws", spark=user, trusted_sql=True) as ws:
        assert ws.sql(f"select * from text.`{folder}/secret`").to_arrow().to_pylist() == [{"value": "secret"}]


def check_frames_and_streams_are_written_by_the_data_source(user, room):
    folder = Path(tempfile.mkdtemp())
    register(user)
    with tl.open(folder / "shop", create=True) as ws:
        copy, stock = ws.create("copy"), ws.create("stock", merge=tl.merge.upsert("id"))
        place = {"workspace": str(folder / "shop")}
        for dataset in (copy, stock, stock):
            writer = user.range(0, 100, 1, 3).write.format("trueline").mode("append").options(**place)
            writer.option("dataset", dataset.name).option("idempotencyKey", "once").save()
        assert copy.view().to_arrow()["id"].to_pylist() == list(range(100))
        assert stock.view().count() == stock.changes().count() == 100

        def overwrite():
            with translated():
                writer.mode("overwrite").save()

        error = caught(InputError, overwrite)
        assert error.code == "NotOverwritten", error
        frame = user.readStream.format("trueline").options(**place, dataset="copy").load()
        options = place | {"dataset": "mirror", "name": "q", "checkpointLocation": str(folder / "checkpoint")}
        mirror = ws.create("mirror")
        for _ in range(2):
            query = frame.writeStream.format("trueline").options(**options).trigger(availableNow=True).start()
            query.awaitTermination()
        assert mirror.view().to_arrow()["id"].to_pylist() == list(range(100))
        assert mirror.commit().idempotency_key == "spark/q/0"


def check_a_derived_dataset_is_defined_followed_and_replayed(user, room):
    with tl.open(Path(tempfile.mkdtemp()) / "ws", create=True, spark=user) as ws:
        transfers = ws.create("transfers", merge=tl.merge.upsert("id"))
        transfers.append([{"id": 1, "account": "a", "amount": 0.1}, {"id": 2, "account": "b", "amount": 2.0}])
        balances = ws.derive(
            "balances", "select account, sum(amount) as s from transfers group by account", key="account"
        )
        ws.pull()
        transfers.append([{"id": 3, "account": "a", "amount": 0.2}, {"id": 2, "account": "c", "amount": 2.0}])
        (done,) = ws.pull()
        decided = derivation_at(balances.chain.tail())
        assert (decided.strategy, done.commits[0].strategy) == ("keyed", "keyed"), decided.reason
        found = balances.view().to_arrow().to_pylist()
        assert found == [{"account": "a", "s": 0.30000000000000004}, {"account": "c", "s": 2.0}], found
        report = ws.verify(replay=True)
        assert report.ok, report.problems
        assert report.replayed == 2


def check_a_change_that_is_large_is_followed_by_tasks(user, room):
    with (
        tl.open(Path(tempfile.mkdtemp()) / "ws", create=True, spark=user) as ws,
        pytest.MonkeyPatch.context() as patch,
    ):
        transfers = ws.create("transfers", merge=tl.merge.upsert("id"))
        transfers.append([{"id": 1, "account": "a", "amount": 0.1}, {"id": 2, "account": "b", "amount": 2.0}])
        balances = ws.derive("balances", "select account, sum(amount) as s from transfers group by account")
        bag = ws.derive("bag", "select account from transfers")
        ws.pull()
        # Rows go and come, and nothing is small enough for this process.
        patch.setattr(increment, "DRIVER_BYTES", 1)
        transfers.append([{"id": 3, "account": "a", "amount": 0.2}, {"id": 2, "account": "a", "amount": 2.0}])
        used = {each.dataset: each.commits[0].strategy for each in ws.pull()}
        assert used == {"balances": "keyed", "bag": "stateless"}, used
        assert balances.view().to_arrow().to_pylist() == [{"account": "a", "s": 2.3}]
        assert bag.view().to_arrow().to_pylist() == [{"account": "a"}] * 3
        report = ws.verify(replay=True)
        assert report.ok, report.problems


def check_views_of_frames_and_queries_become_frames_again(user, room):
    frame = tl.View.from_spark(user.range(0, 9, 1, 2)).to_spark(user)
    assert sorted(row[0] for row in frame.where("id > 5").collect()) == [6, 7, 8]
    with tl.open(Path(tempfile.mkdtemp()) / "ws", create=True, spark=user) as ws:
        ws.create("x").append(pa.table({"a": [3, 1, 2]}))
        answer = ws.sql("select a, a + 1 as b from x").to_spark()
        assert sorted(map(tuple, answer.collect())) == [(1, 2), (2, 3), (3, 4)]


def check_a_room_can_be_left(user, room):
    """Last: nothing else works in this room after it."""
    room.stop()
    if room.is_connect:
        assert user.range(3).count() == 3
        return
    again = start(Settings(master="local[1]", memory="1g", conf=LOCAL))
    assert again is not room
    frame = again.session.range(3)
    assert frame.count() == 3
    kill_jvm()
    lost = caught(SparkFailed, lambda: run(again.engine, frame.toArrow, label="counting"))
    assert (lost.code, again.is_stopped) == ("SparkGone", True), lost
    assert caught(SparkFailed, again.new_session).code == "SparkGone"
    third = start(Settings(master="local[1]", memory="1g", conf=LOCAL))
    assert third.session.range(3).count() == 3
    third.stop()


def kill_jvm():
    from pyspark import SparkContext

    process = SparkContext._gateway.proc
    process.kill()
    process.wait()


def rooms(kind: str) -> tuple[object, SparkRoom]:
    """Start a Spark, or use that of a server, and make a room in it."""
    if kind == "classic":
        room = start(Settings(master="local[2]", memory="1g", conf=LOCAL))
        assert start() is room
        assert room.is_ours
        return room.given, room
    from pyspark.sql import SparkSession

    user = SparkSession.builder.remote(kind).getOrCreate()
    return user, adopt(user)


def main(kind: str) -> dict[str, str]:
    user, room = rooms(kind)
    assert room.is_connect == (kind != "classic")
    said: dict[str, str] = {}
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            try:
                check(user, room)
                said[name] = "ok"
            except BaseException:  # noqa: BLE001 (every check is told)
                said[name] = traceback.format_exc()[-3000:]
    return said


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1])))
