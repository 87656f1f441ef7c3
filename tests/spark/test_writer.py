"""Spark fills datasets by `format("trueline")`: frames and streams, with every merge."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import trueline as tl
from tests.spark import writer_story
from tests.spark.cluster import PATHS
from trueline.chain.store.store import Folder
from trueline.dataset.append.staged import StagedRows
from trueline.errors import (
    DatasetNotFound,
    EnvironmentMissing,
    InputError,
    QueryError,
    SchemaError,
    SparkFailed,
    StorageFull,
)
from trueline.spark.errors import CarriedError, carried, lasting_nonce, translated
from trueline.spark.results import encode
from trueline.spark.source import TruelineSource, register
from trueline.spark.types import to_spark_schema
from trueline.spark.writer import Message, Target


@pytest.fixture
def session(spark):
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    register(own)
    return own


def write(frame, dataset, mode="append", **options) -> None:
    writer = frame.write.format("trueline").mode(mode).option("workspace", dataset.workspace.location)
    with translated():
        writer.option("dataset", dataset.name).options(**options).save()


def rows(dataset) -> list[dict]:
    return dataset.view().to_arrow().to_pylist()


def commits(dataset) -> list[int]:
    """How many records each commit has added, oldest first."""
    return [commit.rows for commit in dataset.log() if commit.rows][::-1]


def objects(dataset) -> set[str]:
    return {str(stored.hash) for stored in dataset.chain.store.list(Folder.DATA)}


def slices(dataset) -> set[str]:
    """The objects that commits refer to."""
    return {
        str(b.data_event.new_data.physical_hash)
        for _, b in dataset.blocks()
        if b.data_event is not None and b.data_event.new_data is not None
    }


# --- frames -------------------------------------------------------------------------------------


def test_a_frame_is_one_commit_with_its_rows_in_order_and_nothing_else_is_left(session, ws):
    copy = ws.create("copy")
    write(session.range(0, 1000, 1, 4), copy)
    write(session.range(1000, 1010, 1, 1), copy)
    assert [row["id"] for row in rows(copy)] == list(range(1010))
    assert commits(copy) == [1000, 10]
    assert objects(copy) == slices(copy)
    assert ws.verify().ok


def test_it_is_the_commit_that_append_makes(session, ws, monkeypatch):
    """Equal rows give equal slices, whichever way they come."""
    table = pa.table({"city": ["Bern", None, "Zug"], "price": [1.5, 2.0, None], "tags": [["a"], [], None]})
    frame = session.createDataFrame(table.to_pylist(), "city string, price double, tags array<string>")
    one, other = ws.create("one"), ws.create("other")
    monkeypatch.setattr(ws, "clock", None, raising=False)
    write(frame.coalesce(1), one)
    other.append(frame.coalesce(1))
    assert one.view().to_arrow() == other.view().to_arrow() == table.cast(one.view().to_arrow().schema)
    assert one.schema == other.schema


def test_types_arrive_as_append_has_them(session, ws):
    frame = session.createDataFrame(
        [
            (
                1,
                Decimal("1.20"),
                date(2026, 1, 2),
                datetime(2026, 1, 2, 3, 4, 5, 678),
                b"x",
                [1, None],
                (1,),
            )
        ],
        "n int, d decimal(9,2), day date, at timestamp, raw binary, many array<int>, s struct<a:int>",
    )
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        one, other = ws.create("one"), ws.create("other")
        write(frame, one)
        other.append(frame)
    finally:
        session.conf.set("spark.sql.session.timeZone", "UTC")
    assert rows(one) == rows(other)
    assert one.schema == other.schema


def test_the_session_that_registered_last_writes_also_beside_others(spark, ws):
    """Spark looks for a format in the active session."""
    copy = ws.create("copy")
    for _ in range(2):
        other = spark.newSession()
        register(other)
        register(other)
        write(other.range(3), copy)
    assert commits(copy) == [3, 3]


def test_a_frame_without_rows_adds_nothing(session, ws):
    copy = ws.create("copy")
    write(session.range(0), copy)
    write(session.createDataFrame([], "id long"), copy)
    assert commits(copy) == []
    assert objects(copy) == set()


def test_the_path_is_another_word_for_the_workspace(session, ws):
    copy = ws.create("copy")
    writer = session.range(3).write.format("trueline").mode("append").option("dataset", "copy")
    writer.save(ws.location)
    assert len(rows(copy)) == 3
    assert session.read.format("trueline").option("dataset", "copy").load(ws.location).count() == 3
    with pytest.raises(InputError, match="two workspaces"), translated():
        writer.option("workspace", "elsewhere").save(ws.location)


def test_a_frame_sent_again_with_its_key_is_one_commit(session, ws):
    copy = ws.create("copy")
    write(session.range(0, 10, 1, 2), copy, idempotencyKey="monday")
    # In another order and cut otherwise, as a shuffle leaves it.
    write(session.range(0, 10, 1, 3).orderBy("id", ascending=False), copy, idempotencyKey="monday")
    assert [row["id"] for row in rows(copy)] == list(range(10))
    copy.append(pa.table({"id": list(range(10))}), idempotency_key="monday")
    assert commits(copy) == [10]
    assert objects(copy) == slices(copy)
    with pytest.raises(InputError) as caught:
        write(session.range(11), copy, idempotencyKey="monday")
    assert caught.value.code == "KeyReused"
    assert objects(copy) == slices(copy)


def test_the_watermark_is_set(session, ws):
    copy = ws.create("copy")
    write(session.range(3), copy, watermark="2026-11-13T00:00:00Z")
    assert str(copy.commit().watermark) == "2026-11-13T00:00:00Z"


def test_event_times_move_the_watermark_as_with_append(session, ws):
    events = "values (timestamp'2026-01-02 03:04:05.678901'), (timestamp'2026-01-01 00:00:00') as t(at)"
    one, other = (ws.create(name, event_time="at") for name in ("one", "other"))
    frame = session.sql(f"select * from {events}")
    write(frame, one)
    other.append(frame)
    assert one.commit().watermark == other.commit().watermark is not None
    assert one.commit().rounded == other.commit().rounded == 1


# --- merges -------------------------------------------------------------------------------------

MERGES = {
    "append": None,
    "upsert": tl.merge.upsert("item"),
    "snapshot": tl.merge.snapshot("item"),
    "changelog": tl.merge.changelog("item"),
    "ledger": tl.merge.ledger("item"),
}
FRAMES = {
    "changelog": [
        "values (0, 'nut', 1), (0, 'bolt', 2) as t(op, item, count)",
        "values (1, 'bolt', 2), (2, 'nut', 1), (3, 'nut', 5) as t(op, item, count)",
    ],
}
OTHERS = [
    "values ('nut', 1), ('bolt', 2) as t(item, count)",
    "values ('nut', 5), ('cog', 7) as t(item, count)",
]


@pytest.mark.parametrize("merge", MERGES)
def test_every_merge_gives_what_append_gives(session, ws, merge):
    one, other = (ws.create(name, merge=MERGES[merge]) for name in ("one", "other"))
    for query in FRAMES.get(merge, OTHERS):
        frame = session.sql(f"select * from {query}").coalesce(1)
        write(frame, one)
        other.append(frame)
    assert rows(one) == rows(other)
    events = ["op", *one.view().schema.names]
    seen, expected = (each.changes().select(*events).to_arrow() for each in (one, other))
    assert seen == expected
    assert one.commit().ignored == other.commit().ignored
    assert ws.verify().ok


def test_overwriting_replaces_the_rows_where_the_merge_is_snapshot(session, ws):
    stock = ws.create("stock", merge=tl.merge.snapshot("item"))
    for query in OTHERS:
        write(session.sql(f"select * from {query}"), stock, mode="overwrite")
    assert rows(stock) == [{"item": "cog", "count": 7}, {"item": "nut", "count": 5}]
    assert stock.changes().count() == 6


@pytest.mark.parametrize("merge", sorted(MERGES.keys() - {"snapshot"}))
def test_overwriting_is_refused_elsewhere_and_its_remedy_works(session, ws, merge):
    stock = ws.create("stock", merge=MERGES[merge])
    frame = session.sql(f"select * from {FRAMES.get(merge, OTHERS)[0]}")
    with pytest.raises(InputError, match=r'use \.mode\("append"\)') as caught:
        write(frame, stock, mode="overwrite")
    assert caught.value.code == "NotOverwritten"
    assert merge in caught.value.merge
    assert commits(stock) == []
    write(frame, stock, mode="append")
    assert len(rows(stock)) == 2


def test_an_empty_frame_retracts_a_snapshot_only_where_that_is_asked_for(session, ws):
    stock = ws.create("stock", merge=tl.merge.snapshot("item"))
    write(session.sql(f"select * from {OTHERS[0]}"), stock, mode="overwrite")
    none = session.sql(f"select * from {OTHERS[0]} where count > 9")
    with pytest.raises(InputError, match="retract every row, 2 of them") as caught:
        write(none, stock, mode="overwrite")
    assert caught.value.code == "EmptySnapshot"
    assert len(rows(stock)) == 2
    name, value = re.search(r'\.option\("(\w+)", "(\w+)"\)', caught.value.remedy).groups()
    write(none, stock, mode="overwrite", **{name: value})
    assert rows(stock) == []
    with pytest.raises(InputError, match="'allowEmpty' is 'perhaps'"):
        write(none, stock, mode="overwrite", allowEmpty="perhaps")


def test_new_columns_are_asked_for_by_an_option_which_the_error_names(session, ws):
    copy = ws.create("copy")
    write(session.sql("select 1L as id"), copy)
    more = session.sql("select id, if(id = 2, 'x', null) as word from values (2L) as t(id)")
    with pytest.raises(SchemaError, match="word") as caught:
        write(more, copy)
    assert "new_columns=" not in caught.value.remedy
    name, value = re.search(r'\.option\("(\w+)", "(\w+)"\)', caught.value.remedy).groups()
    write(more, copy, **{name: value})
    assert rows(copy) == [{"id": 1, "word": None}, {"id": 2, "word": "x"}]


# --- refused ------------------------------------------------------------------------------------


def test_a_user_without_our_calls_reads_message_and_remedy(session, ws):
    """Where the writer is made, and where its tasks run."""
    stock = ws.create("stock", schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    frame = session.range(0, 100, 1, 4).selectExpr("if(id = 99, null, id) as id")
    for mode, name, message, remedy in (
        ("overwrite", "InputError", 'mode("overwrite") replaces all rows', 'use .mode("append"), or'),
        ("append", "SchemaError", "the table does not fit the dataset", "cast, rename or drop"),
    ):
        writer = frame.write.format("trueline").mode(mode).option("dataset", "stock")
        with pytest.raises(PySparkException) as caught:
            writer.save(ws.location)
        text = str(caught.value)
        assert f"trueline.errors.{name}: {message}" in text
        assert f"\n  → {remedy}" in text
        assert "trueline-error" not in text
        assert not re.search(r"[A-Za-z0-9+/=]{80}", text), text
    assert commits(stock) == []


def test_errors_are_ours_and_name_the_place(session, ws):
    copy = ws.create("copy", schema=pa.schema({"id": pa.int64()}))
    with pytest.raises(DatasetNotFound):
        writer = session.range(3).write.format("trueline").mode("append")
        with translated():
            writer.option("workspace", ws.location).option("dataset", "copi").save()
    for options in ({"at": "head"}, {"name": "q"}, {"partitions": "3"}):
        with pytest.raises(InputError) as caught:
            write(session.range(3), copy, **options)
        assert caught.value.code == "BadOption"
        assert repr(next(iter(options))) in caught.value.problem
    with pytest.raises(InputError, match="'soon' is not"):
        write(session.range(3), copy, watermark="soon")
    with pytest.raises(SchemaError, match="id"):
        write(session.sql("select 'a' as id"), copy)
    with pytest.raises(SchemaError, match="interval"):
        write(session.sql("select interval 1 day as gap"), ws.create("gaps"))
    with pytest.raises(QueryError, match="Append"):
        write(session.range(3), copy, mode="error")
    assert commits(copy) == []
    assert objects(copy) == set()


def test_options_of_a_write_are_not_options_of_a_read(session, ws):
    ws.create("copy").append(pa.table({"id": [1]}))
    reader = session.read.format("trueline").option("workspace", ws.location).option("dataset", "copy")
    with pytest.raises(InputError, match="there is no option 'idempotencykey'"), translated():
        reader.option("idempotencyKey", "k").load()


def test_derived_and_polled_datasets_are_refused_before_any_task_runs(session, ws, tmp_path):
    (tmp_path / "in").mkdir()
    polled = ws.create("polled", source=str(tmp_path / "in" / "*.csv"))
    with pytest.raises(InputError) as caught:
        write(session.range(3), polled)
    assert caught.value.code == "HasSource"


def test_a_bad_row_in_a_task_aborts_and_leaves_nothing_that_is_read(session, ws):
    copy = ws.create("copy", schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    frame = session.range(0, 100, 1, 4).selectExpr("if(id = 99, null, id) as id")
    with pytest.raises(SchemaError, match="id: has 1 null"):
        write(frame, copy)
    assert commits(copy) == []
    ws.gc(older_than=0)
    assert objects(copy) == set()
    write(session.range(3), copy)
    assert commits(copy) == [3]


# --- without a session: what Spark does to its writers --------------------------------------------


class Rig:
    """A writer as Spark uses it: tasks with copies of it, messages, one commit or abort."""

    def __init__(self, dataset, schema: pa.Schema, *, stream: bool = False, overwrite: bool = False, **more):
        self.given = {"workspace": dataset.workspace.location, "dataset": dataset.name} | more
        self.kind = type("Registered", (TruelineSource,), {"nonce": lasting_nonce()})
        self.schema, self.overwrite, self.stream = schema, overwrite, stream

    def writer(self):
        source = self.kind(self.given)
        make = source.streamWriter if self.stream else source.writer
        with raised():
            return make(to_spark_schema(self.schema), self.overwrite)

    def message(self, partition: int, *tables: pa.Table, writer=None) -> Message:
        """What the task of a partition answers."""
        stage = (writer or self.writer()).stage
        return Message(encode(stage(partition, [b for table in tables for b in table.to_batches()])))


class raised:  # noqa: N801 (reads as a verb)
    """Raise the errors of ours that are on their way to the driver."""

    def __enter__(self):
        return self

    def __exit__(self, _, error, __):
        if isinstance(error, CarriedError):
            found = carried(str(error))
            assert found is not None
            raise found from None


NUMBERS = pa.schema({"n": pa.int64()})


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": list(values)}, schema=NUMBERS)


def test_a_partition_that_was_staged_twice_counts_once(ws):
    """Speculation and attempts that were killed after they had staged everything."""
    copy = ws.create("copy")
    rig = Rig(copy, NUMBERS)
    writer = rig.writer()
    rig.message(1, numbers(3, 4), writer=writer)
    messages = [rig.message(part, numbers(2 * part + 1, 2 * part + 2), writer=writer) for part in (0, 1)]
    writer.commit(messages)
    assert [row["n"] for row in rows(copy)] == [1, 2, 3, 4]
    assert len(objects(copy) - slices(copy)) == 1, "what the lost attempt has staged"
    again = [rig.message(0, numbers(5), writer=writer) for _ in range(2)]
    writer.commit(again)
    assert [row["n"] for row in rows(copy)] == [1, 2, 3, 4, 5]


def test_messages_come_in_any_order_and_rows_in_that_of_the_partitions(ws):
    copy = ws.create("copy")
    rig = Rig(copy, NUMBERS)
    writer = rig.writer()
    messages = [rig.message(part, numbers(part), writer=writer) for part in (2, 0, 1)]
    writer.commit([*messages, rig.message(3, writer=writer)])
    assert [row["n"] for row in rows(copy)] == [0, 1, 2]


def test_an_abort_removes_what_is_known_and_gc_the_rest(ws):
    copy = ws.create("copy")
    rig = Rig(copy, NUMBERS)
    writer = rig.writer()
    known, killed = rig.message(0, numbers(1), writer=writer), rig.message(1, numbers(2), writer=writer)
    assert len(objects(copy)) == 2
    writer.abort([known, None])
    assert len(objects(copy)) == 1
    del killed
    assert ws.gc().objects == 0, "it is young: its commit might be in flight"
    assert ws.gc(older_than=0).objects == 1
    assert objects(copy) == set()
    assert commits(copy) == []


def test_two_writers_of_equal_rows_do_not_take_each_others_away(ws):
    copy = ws.create("copy")
    rig = Rig(copy, NUMBERS)
    one, other = rig.writer(), rig.writer()
    first, second = rig.message(0, numbers(1), writer=one), rig.message(0, numbers(1), writer=other)
    one.commit([first])
    other.commit([second])
    assert commits(copy) == [1, 1]


def test_a_batch_of_a_stream_that_is_sent_again_finds_its_commit(ws):
    copy = ws.create("copy")
    rig = Rig(copy, NUMBERS, stream=True, name="orders")
    for _ in range(2):
        # Spark commits with another writer than the one of the tasks.
        rig.writer().commit([rig.message(0, numbers(1, 2)), rig.message(1, numbers(3))], 0)
    rig.writer().commit([rig.message(0, numbers(4))], 1)
    assert [row["n"] for row in rows(copy)] == [1, 2, 3, 4]
    assert [commit.idempotency_key for commit in copy.log() if commit.rows] == [
        "spark/orders/1",
        "spark/orders/0",
    ]
    assert objects(copy) == slices(copy)
    with pytest.raises(InputError) as caught, raised():
        rig.writer().commit([rig.message(0, numbers(5))], 1)
    assert caught.value.code == "KeyReused"


def test_a_batch_that_the_other_sink_has_sent_is_known(session, ws):
    """A query may change from `foreachBatch` to `format("trueline")` under its name."""
    from trueline.spark.sink import sink

    copy = ws.create("copy")
    sink(ws.location, "copy", name="orders")(session.range(3).selectExpr("id as n"), 0)
    rig = Rig(copy, NUMBERS, stream=True, name="orders")
    rig.writer().commit([rig.message(0, numbers(0, 1, 2))], 0)
    assert commits(copy) == [3]


def test_columns_that_others_add_meanwhile_are_null(ws):
    copy = ws.create("copy")
    copy.append(numbers(0))
    for stream in (False, True):
        rig = Rig(copy, NUMBERS, stream=stream, **({"name": "q"} if stream else {}))
        writer = rig.writer()
        messages = [rig.message(0, numbers(1), writer=writer)]
        copy.append(pa.table({"n": [7], f"more{stream}": ["x"]}), new_columns="add")
        rig.writer().commit(messages, 0) if stream else writer.commit(messages)
    assert [row["n"] for row in rows(copy)] == [0, 7, 1, 7, 1]
    assert [row["moreFalse"] for row in rows(copy)] == [None, "x", None, None, None]


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_that_others_fix_meanwhile_refuses_the_rows(ws, stream):
    copy = ws.create("copy")
    rig = Rig(copy, NUMBERS, stream=stream, **({"name": "q"} if stream else {}))
    writer = rig.writer()
    messages = [rig.message(0, numbers(1), writer=writer)]
    copy.append(pa.table({"n": ["text"]}))
    with pytest.raises(SchemaError), raised():
        rig.writer().commit(messages, 0) if stream else writer.commit(messages)
    assert commits(copy) == [1]


def test_rows_that_are_not_seen_where_they_are_committed_are_reported(ws):
    copy = ws.create("copy")
    rig = Rig(copy, NUMBERS)
    writer = rig.writer()
    messages = [rig.message(0, numbers(1), writer=writer)]
    ws.gc(older_than=0)
    with pytest.raises(EnvironmentMissing, match="share") as caught, raised():
        writer.commit(messages)
    assert caught.value.code == "FolderNotShared"
    assert commits(copy) == []
    writer.commit([rig.message(0, numbers(1), writer=writer)])
    assert commits(copy) == [1], "the remedy: write them again"


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"trueline.run.step.Erased": 0}', encode({"rows": 3})])
def test_an_answer_that_does_not_say_what_was_staged_is_refused(ws, answer):
    copy = ws.create("copy")
    with pytest.raises(SparkFailed) as caught, raised():
        Rig(copy, NUMBERS).writer().commit([Message(answer)])
    assert caught.value.code == "BadAnswer"


def test_a_task_without_an_answer_is_refused(ws):
    copy = ws.create("copy")
    rig = Rig(copy, NUMBERS)
    writer = rig.writer()
    with pytest.raises(SparkFailed), raised():
        writer.commit([rig.message(0, numbers(1), writer=writer), None])
    assert commits(copy) == []


def test_what_cannot_be_removed_is_left_to_gc(ws, monkeypatch):
    copy = ws.create("copy")
    rig = Rig(copy, NUMBERS)
    writer = rig.writer()
    messages = [rig.message(0, numbers(1), writer=writer)]
    rows_ = writer.rows(messages, all_of_them=True)
    assert isinstance(rows_, StagedRows)

    class Full:
        def delete(self, *_):
            raise StorageFull("no space left", remedy="make room")

    rows_.discard(Full())
    writer.commit(messages)
    assert commits(copy) == [1]


def test_large_partitions_and_many_are_read_again_in_their_order(ws, monkeypatch):
    from trueline.dataset.append import pieces

    monkeypatch.setattr(pieces, "ROWS_OF_A_BATCH", 7)
    copy = ws.create("copy")
    rig = Rig(copy, NUMBERS)
    writer = rig.writer()
    parts = []
    for part in range(3):
        tables = [numbers(*range(start, start + 10)) for start in range(100 * part, 100 * part + 100, 10)]
        parts.append(rig.message(part, *tables, writer=writer))
    writer.commit(parts)
    assert [row["n"] for row in rows(copy)] == list(range(300))


# --- streams ------------------------------------------------------------------------------------


def lines(folder, number: int, *values: int) -> None:
    """Leave a file for a stream, newer than those before it."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{number}.json"
    path.write_text("".join(f'{{"n": {value}}}\n' for value in values))
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def stream(frame, dataset, checkpoint, mode="append", **options) -> None:
    """Run a query until all that is there has been written."""
    writer = frame.writeStream.format("trueline").outputMode(mode).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(checkpoint)).options(**options)
    with translated():
        query = writer.option("workspace", dataset.workspace.location).option("dataset", dataset.name).start()
        query.awaitTermination()


def incoming(session, folder):
    return session.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(folder))


def test_a_stream_adds_every_batch_once_also_over_restarts(session, ws, tmp_path):
    copy = ws.create("copy")
    lines(tmp_path / "in", 0, 1, 2)
    lines(tmp_path / "in", 1, 3)
    frame = incoming(session, tmp_path / "in")
    with pytest.raises(InputError, match="needs the option 'name'"):
        stream(frame, copy, tmp_path / "unnamed")
    stream(frame, copy, tmp_path / "checkpoint", name="orders")
    lines(tmp_path / "in", 2, 4)
    stream(frame, copy, tmp_path / "checkpoint", name="orders")
    assert [row["n"] for row in rows(copy)] == [1, 2, 3, 4]
    found = [commit.idempotency_key for commit in copy.log() if commit.rows]
    assert found == ["spark/orders/2", "spark/orders/1", "spark/orders/0"]
    assert objects(copy) == slices(copy)
    # A batch that Spark has not noted as done is sent again.
    (tmp_path / "checkpoint" / "commits" / "2").unlink()
    (tmp_path / "checkpoint" / "commits" / ".2.crc").unlink(missing_ok=True)
    stream(frame, copy, tmp_path / "checkpoint", name="orders")
    assert commits(copy) == [2, 1, 1]
    # A new checkpoint under the old name begins with batch 0 again: with other rows it is refused.
    lines(tmp_path / "other", 0, 9)
    with pytest.raises(InputError) as caught:
        stream(incoming(session, tmp_path / "other"), copy, tmp_path / "new", name="orders")
    assert caught.value.code == "KeyReused"
    assert commits(copy) == [2, 1, 1]


def test_a_stream_from_a_dataset_to_a_dataset(session, ws, tmp_path):
    stock = ws.create("stock", merge=tl.merge.upsert("item"))
    for counts in ([1, 2], [5, 2]):
        stock.append(pa.table({"item": ["nut", "bolt"], "count": counts}))
    reader = session.readStream.format("trueline").option("workspace", ws.location).option("dataset", "stock")
    with translated():
        frame = (
            reader.option("changes", "true").load().where("op <> 'update_preimage'").select("item", "count")
        )
    copy = ws.create("copy", merge=tl.merge.upsert("item"))
    stream(frame, copy, tmp_path / "checkpoint", name="mirror")
    assert rows(copy) == rows(stock)


def test_a_complete_result_replaces_a_snapshot_and_nothing_else(session, ws, tmp_path):
    lines(tmp_path / "in", 0, 1, 1, 2)
    lines(tmp_path / "in", 1, 2)
    counts = incoming(session, tmp_path / "in").groupBy("n").count()
    result = ws.create("result", merge=tl.merge.snapshot("n"))
    with pytest.raises(InputError) as caught:
        stream(counts, ws.create("other"), tmp_path / "a", mode="complete", name="a")
    assert caught.value.code == "NotOverwritten"
    stream(counts, result, tmp_path / "b", mode="complete", name="b")
    assert rows(result) == [{"n": 1, "count": 2}, {"n": 2, "count": 2}]


# --- killed and resumed ---------------------------------------------------------------------------


def died(folder: Path, when: str, number: int) -> None:
    """Run the story in a process of its own, whose tasks die, and in the end its Spark."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.writer_story", str(folder), when, str(number)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": PATHS, "PYSPARK_PYTHON": sys.executable},
        timeout=400,
    )
    assert done.returncode != 0
    assert done.stdout == "stumbled\n", done.stderr[-3000:]


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(4):
        path = tmp_path / "in" / f"{number}.json"
        every = range(number * 50, number * 50 + 50)
        path.write_text("".join(f'{{"n": {n}, "word": "w{n}"}}\n' for n in every))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    with tl.open(tmp_path / "shop", create=True) as shop:
        shop.create("stumbled")
        shop.create("filled")
        yield shop


def check_filled(shop):
    filled = shop["filled"]
    assert rows(filled) == [{"n": n, "word": f"w{n}"} for n in range(200)]
    assert commits(filled) == [50] * 4
    shop.gc(older_than=0)
    assert objects(filled) == slices(filled)
    assert shop.verify().ok


def test_attempts_that_staged_their_rows_and_died_add_none_and_a_stream_goes_on(shop, session, tmp_path):
    """First tasks of a frame raise and are killed; then Spark is, in the middle of a stream."""
    died(tmp_path, "after", 2)
    stumbled, filled = shop["stumbled"], shop["filled"]
    assert [row["n"] for row in rows(stumbled)] == list(range(4000))
    assert commits(stumbled) == [4000]
    assert len(objects(stumbled) - slices(stumbled)) == 2
    shop.gc(older_than=0)
    assert objects(stumbled) == slices(stumbled)
    assert commits(filled) == [50] * 3
    writer_story.fill(session, tmp_path)
    check_filled(shop)


@pytest.mark.soak
def test_a_stream_whose_spark_is_killed_again_and_again_adds_each_row_once(shop, session, tmp_path):
    died(tmp_path, "before", 1)
    assert commits(shop["filled"]) == [50]
    died(tmp_path, "after", 2)
    assert commits(shop["filled"]) == [50] * 3
    writer_story.fill(session, tmp_path)
    check_filled(shop)


# --- options ------------------------------------------------------------------------------------


def test_a_stream_needs_a_name_and_makes_its_keys(ws):
    place = {"workspace": ws.location, "dataset": "copy"}
    with pytest.raises(InputError, match="needs the option 'name'"):
        Target.of(place, stream=True)
    for name in ("", "a/b"):
        with pytest.raises(InputError):
            Target.of(place | {"name": name}, stream=True)
    with pytest.raises(InputError, match="idempotencyKey"):
        Target.of(place | {"name": "q", "idempotencyKey": "k"}, stream=True)
    assert Target.of(place | {"name": "q", "checkpointLocation": "c"}, stream=True).name == "q"
    assert "secret" not in repr(Target.of(place | {"store.secret_access_key": "secret"}, stream=False))


def test_a_stream_that_appends_to_snapshots_is_refused(ws):
    stock = ws.create("stock", merge=tl.merge.snapshot("n"))
    with pytest.raises(InputError, match="complete") as caught:
        Rig(stock, NUMBERS, stream=True, name="q").writer()
    assert caught.value.code == "SnapshotStream"
    rig = Rig(stock, NUMBERS, stream=True, overwrite=True, name="q")
    for batch, values in enumerate(((1, 2), (2, 3))):
        rig.writer().commit([rig.message(0, numbers(*values))], batch)
    assert rows(stock) == [{"n": 2}, {"n": 3}]
