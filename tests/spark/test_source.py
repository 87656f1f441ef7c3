"""Spark reads datasets by `format("trueline")` and fills them by `foreachBatch`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable

import trueline as tl
from tests.spark import source_story
from tests.spark.cluster import PATHS
from trueline.errors import CorruptionError, DatasetNotFound, InputError, SchemaError, WorkspaceNotFound
from trueline.spark.errors import CarriedError, carried, lasting_nonce, translated
from trueline.spark.sink import sink
from trueline.spark.source import TruelineSource, register


@pytest.fixture(scope="module")
def session(spark):
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    register(own)
    return own


@pytest.fixture
def ws(tmp_path):
    with tl.open(tmp_path / "shop", create=True) as opened:
        yield opened


@pytest.fixture
def sales(ws):
    dataset = ws.create("sales")
    dataset.append(pa.table({"city": ["Bern", "Zug"], "price": [9.5, None]}))
    dataset.append(pa.table({"city": ["Chur"], "price": [3.0], "tags": [["a", None]]}), new_columns="add")
    return dataset


@pytest.fixture
def stock(ws):
    dataset = ws.create("stock", merge=tl.merge.upsert("item"))
    dataset.append(pa.table({"item": ["nut", "bolt"], "count": [1, 2]}))
    dataset.append(pa.table({"item": ["nut", "cog"], "count": [5, 7]}))
    return dataset


def load(session, dataset, **options):
    reader = session.read.format("trueline").option("workspace", dataset.workspace.location)
    with translated():
        return reader.option("dataset", dataset.name).options(**options).load()


def rows(frame) -> list[dict]:
    with translated():
        return frame.toArrow().to_pylist()


def test_a_frame_has_the_rows_of_the_view_in_their_order(session, sales):
    frame = load(session, sales)
    assert frame.columns == ["city", "price", "tags"]
    assert rows(frame) == sales.view().to_arrow().to_pylist()
    assert [row["city"] for row in rows(frame)] == ["Bern", "Zug", "Chur"]


def test_it_reads_at_a_commit_with_the_columns_of_that_commit(session, sales):
    [_, first] = [commit for commit in sales.log() if commit.rows]
    for at in (str(first.block), "offset:1"):
        frame = load(session, sales, at=at)
        assert frame.columns == ["city", "price"]
        assert [row["city"] for row in rows(frame)] == ["Bern", "Zug"]


def test_a_frame_stays_at_its_commit(session, sales):
    frame = load(session, sales)
    sales.append(pa.table({"city": ["Thun"], "price": [1.0], "more": [1]}), new_columns="add")
    assert [row["city"] for row in rows(frame)] == ["Bern", "Zug", "Chur"]
    assert "more" in load(session, sales).columns


def test_columns_are_chosen_and_those_of_the_system_shown(session, sales):
    assert rows(load(session, sales, columns="price, city")) == [
        {"price": 9.5, "city": "Bern"},
        {"price": None, "city": "Zug"},
        {"price": 3.0, "city": "Chur"},
    ]
    assert rows(load(session, sales, system="true")) == sales.view(system=True).to_arrow().to_pylist()


def test_a_keyed_dataset_has_its_current_rows(session, stock):
    expected = [{"item": "bolt", "count": 2}, {"item": "cog", "count": 7}, {"item": "nut", "count": 5}]
    assert sorted(rows(load(session, stock)), key=lambda row: row["item"]) == expected
    assert rows(load(session, stock)) == stock.view().to_arrow().to_pylist()


def test_current_rows_are_there_when_the_state_is_gone(session, stock):
    expected = stock.view().to_arrow().to_pylist()
    for path in Path(stock.chain.store.location, "checkpoints").iterdir():
        path.unlink()
    assert rows(load(session, stock)) == expected


def test_changes_are_events_with_their_operation(session, stock):
    found = rows(load(session, stock, changes="true"))
    assert found == stock.changes().to_arrow().to_pylist()
    assert {row["op"] for row in found} == {"insert", "update_preimage", "update_postimage"}
    after = rows(load(session, stock, changes="true", after="offset:1", columns="item"))
    assert after == stock.changes(after=1).select("item").to_arrow().to_pylist()


def test_about_a_million_records_are_a_partition(session, ws):
    numbers = ws.create("numbers")
    for first, count in ((0, 1 << 20), (1 << 20, 3), ((1 << 20) + 3, 2)):
        numbers.append(pa.table({"n": pa.array(range(first, first + count), pa.int64())}))
    for options in ({}, {"changes": "true", "columns": "n"}):
        frame = load(session, numbers, **options)
        assert frame.rdd.getNumPartitions() == 2
        assert frame.toArrow()["n"].to_pylist() == list(range((1 << 20) + 5))


def test_errors_are_ours(session, sales, stock):
    with pytest.raises(DatasetNotFound):
        session_load = session.read.format("trueline").option("workspace", sales.workspace.location)
        with translated():
            session_load.option("dataset", "sale").load()
    with pytest.raises(WorkspaceNotFound), translated():
        session.read.format("trueline").option("workspace", "/nowhere").option("dataset", "x").load()
    for options in ({"att": "x"}, {"system": "perhaps"}, {"at": "offset:0"}):
        with pytest.raises(InputError):
            load(session, sales, **options)
    with pytest.raises(SchemaError):
        load(session, sales, columns="citty")
    with pytest.raises(InputError, match="needs the option 'changes'"):
        rows(load(session, sales, after="offset:1"))


def test_a_damaged_slice_is_named(session, sales):
    frame = load(session, sales)
    for path in Path(sales.chain.store.location, "data").iterdir():
        path.chmod(0o644)
        path.write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(CorruptionError) as caught:
        rows(frame)
    assert caught.value.dataset == "sales"


def seen_by_a_user(error: object) -> str:
    """Return the text of an error of Spark after checking that people can read what is ours in it."""
    text = str(error)
    assert "trueline-error" not in text
    assert not re.search(r"[A-Za-z0-9+/=]{80}", text), text
    return text


def test_a_user_without_our_calls_reads_message_and_remedy(session, sales):
    reader = session.read.format("trueline").option("workspace", sales.workspace.location)
    with pytest.raises(PySparkException) as caught:
        reader.option("dataset", "sale").load()
    assert "trueline.errors.DatasetNotFound: no dataset 'sale'" in seen_by_a_user(caught.value)
    assert "\n  → did you mean 'sales'?\n" in str(caught.value)
    with pytest.raises(PySparkException) as caught:
        reader.option("dataset", "sales").option("columns", "citty").load()
    assert "\n  → did you mean 'city'?\n" in seen_by_a_user(caught.value)
    with pytest.raises(PySparkException) as caught:
        reader.option("dataset", "sales").option("columns", "city").option(
            "after", "offset:1"
        ).load().collect()
    assert '\n  → add .option("changes", "true")\n' in seen_by_a_user(caught.value)


def test_a_user_reads_what_is_wrong_with_a_slice(session, sales):
    frame = load(session, sales)
    for path in Path(sales.chain.store.location, "data").iterdir():
        path.chmod(0o644)
        path.write_bytes(b"PAR1 nonsense PAR1")
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    text = seen_by_a_user(caught.value)
    with pytest.raises(CorruptionError) as expected:
        rows(frame)
    assert f"trueline.errors.{type(expected.value).__name__}: {expected.value}\n" in text


def test_a_user_of_a_stream_reads_message_and_remedy(session, stock, tmp_path):
    reader = session.readStream.format("trueline").option("workspace", stock.workspace.location)
    query = reader.option("dataset", "stock").load().writeStream.format("noop").trigger(availableNow=True)
    running = query.option("checkpointLocation", str(tmp_path / "check")).start()
    with pytest.raises(PySparkException) as caught:
        running.awaitTermination()
    for error in (caught.value, running.exception()):
        text = seen_by_a_user(error)
        assert "stock replaces rows, and a stream cannot retract rows" in text
        assert '\n  → read its events: .option("changes", "true")\n' in text


# --- the sink -----------------------------------------------------------------------------------


def test_a_batch_that_is_sent_again_finds_its_commit(session, ws):
    copy = ws.create("copy")
    send = sink(ws.location, "copy", name="q")
    frame = session.range(0, 10, 1, 2)
    send(frame, 0)
    send(frame, 0)
    send(session.range(10, 15), 1)
    assert [row["id"] for row in copy.view().to_arrow().to_pylist()] == list(range(15))
    with pytest.raises(InputError) as caught:
        send(session.range(3), 1)
    assert caught.value.code == "KeyReused"


def test_a_batch_of_no_query_is_refused(session, ws):
    ws.create("copy")
    with pytest.raises(InputError) as caught:
        sink(ws.location, "copy")(session.range(3), 0)
    assert caught.value.code == "NoQuery"


def test_a_sink_of_nowhere_is_refused_before_the_query_starts(ws):
    with pytest.raises(DatasetNotFound):
        sink(ws.location, "nothing")
    with pytest.raises(InputError):
        sink(ws.location, "nothing", name="a/b")


# --- the stream, without a query ------------------------------------------------------------------


def stream(dataset, **options):
    given = {"workspace": dataset.workspace.location, "dataset": dataset.name} | options
    source = type("Registered", (TruelineSource,), {"nonce": lasting_nonce()})(given)
    with carried_out():
        return source.streamReader(source.schema())


@contextmanager
def carried_out():
    """Raise the errors of ours that are on their way to the driver."""
    try:
        yield
    except CarriedError as error:
        raise carried(str(error)) from None


def read(reader, start: int, end: int) -> list[dict]:
    with carried_out():
        parts = reader.partitions({"offset": start}, {"offset": end})
        return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def test_a_stream_goes_from_commit_end_to_commit_end(sales):
    reader = stream(sales)
    assert reader.initialOffset() == {"offset": -1}
    newest = {"offset": 2, "block": str(sales.head)}
    assert reader.latestOffset({"offset": -1}, ReadAllAvailable()) == newest
    assert reader.latestOffset(newest, ReadAllAvailable()) == newest
    assert [row["city"] for row in read(reader, -1, 1)] == ["Bern", "Zug"]
    assert [row["city"] for row in read(reader, 1, 2)] == ["Chur"]
    assert read(reader, 2, 2) == []
    for start, end in ((-1, 0), (0, 2)):
        with pytest.raises(InputError) as caught:
            read(reader, start, end)
        assert caught.value.code == "InsideCommit"


def test_a_stream_begins_after_a_commit(sales):
    found = stream(sales, after="offset:1").initialOffset()
    assert found == {"offset": 1, "block": str(list(sales.log())[1].block)}


def test_commits_without_records_do_not_move_a_stream(sales):
    reader = stream(sales)
    before = reader.latestOffset({"offset": -1}, ReadAllAvailable())
    sales.append([], watermark="2026-11-13T00:00:00Z")
    assert reader.latestOffset(before, ReadAllAvailable()) == before


def test_a_dataset_that_was_reset_and_grew_again_is_noticed(sales):
    reader = stream(sales)
    read_before = reader.latestOffset({"offset": -1}, ReadAllAvailable())
    sales.chain.reset(list(sales.log())[1].block)
    sales.append(pa.table({"city": ["Thun", "Biel"], "price": [1.0, 2.0]}))
    for ask in (
        lambda: reader.latestOffset(read_before, ReadAllAvailable()),
        lambda: reader.partitions(read_before, {"offset": 3}),
        lambda: reader.partitions({"offset": -1}, read_before | {"offset": 3}),
    ):
        with pytest.raises(InputError, match="new checkpoint") as caught, carried_out():
            ask()
        assert caught.value.code == "StreamReset"
    assert reader.latestOffset({"offset": 1}, ReadAllAvailable())["offset"] == 3, "an old checkpoint"
    assert [row["city"] for row in read(stream(sales), 1, 3)] == ["Thun", "Biel"]


def test_what_comes_after_the_start_is_left_to_the_next_run_of_available_now(sales):
    reader = stream(sales)
    reader.prepareForTriggerAvailableNow()
    sales.append(pa.table({"city": ["Thun"], "price": [1.0]}))
    assert reader.latestOffset({"offset": -1}, ReadAllAvailable())["offset"] == 2


def test_columns_that_come_later_do_not_stop_a_stream_and_old_batches_have_them_missing(sales):
    before = stream(sales)
    sales.append(pa.table({"city": ["Thun"], "price": [1.0], "more": [1]}), new_columns="add")
    assert read(before, 2, 3) == [{"city": "Thun", "price": 1.0, "tags": None}]
    assert read(stream(sales), -1, 1)[0] == {"city": "Bern", "price": 9.5, "tags": None, "more": None}


def test_a_stream_passes_over_records_that_were_removed(sales):
    sales.drop_data(where="city = 'Zug'", reason="asked to")
    assert [row["city"] for row in read(stream(sales), -1, 2)] == ["Bern", "Chur"]


def test_streams_that_cannot_be_are_refused(sales, stock):
    with pytest.raises(InputError) as caught:
        stream(stock)
    assert caught.value.code == "KeyedStream"
    with pytest.raises(InputError) as caught:
        stream(sales, at="offset:1")
    assert caught.value.code == "BadOption"
    with pytest.raises(InputError) as caught, carried_out():
        stream(sales).latestOffset({"offset": 7}, ReadAllAvailable())
    assert caught.value.code == "StreamBehind"


# --- killed and resumed ---------------------------------------------------------------------------


def killed(folder: Path, *stops: str) -> None:
    """Run queries in a process of their own, which dies in the middle of each."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.source_story", str(folder), *stops],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": PATHS, "PYSPARK_PYTHON": sys.executable},
        timeout=200,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]


def resumed(session, story: str, folder: Path) -> None:
    """Run a query that was killed to its end, here."""
    source_story.query(session, story, folder, sink(folder / "shop", story)).awaitTermination()


@pytest.fixture
def killing(tmp_path):
    """Files and a dataset that queries follow."""
    (tmp_path / "in").mkdir()
    for number in range(4):
        lines = [f'{{"n": {n}, "word": "w{n}"}}\n' for n in range(number * 50, number * 50 + 50)]
        path = tmp_path / "in" / f"{number}.json"
        path.write_text("".join(lines))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    with tl.open(tmp_path / "shop", create=True) as ws:
        ws.create("fill")
        ws.create("follow")
        stock = ws.create("stock", merge=tl.merge.upsert("item"))
        for count in range(3):
            stock.append(pa.table({"item": ["nut", f"cog {count}"], "count": [count, count]}))
    return tmp_path


def check_filled(ws):
    assert ws["fill"].view().to_arrow().to_pylist() == [{"n": n, "word": f"w{n}"} for n in range(200)]
    assert [commit.rows for commit in ws["fill"].log() if commit.rows] == [50] * 4


def test_queries_that_are_killed_and_resumed_give_each_row_and_event_once_in_order(killing, session):
    """One has sent a batch that Spark has not noted, and is not the last; of the other it is the only one."""
    killed(killing, "follow:after:0", "fill:after:2")
    with tl.open(killing / "shop") as ws:
        assert ws["fill"].view().count() == 150
        stock = ws["stock"]
        seen = stock.changes().count()
        assert ws["follow"].view().count() == seen
        stock.append(pa.table({"item": ["nut"], "count": [9]}))
        stock.append(pa.table({"item": ["bolt"], "count": [1], "colour": ["red"]}), new_columns="add")
    for story in ("fill", "follow"):
        resumed(session, story, killing)
    with tl.open(killing / "shop") as ws:
        check_filled(ws)
        events = ws["stock"].changes().to_arrow().to_pylist()
        expected = [(row["offset"], row["op"], row["item"], row["count"]) for row in events]
        assert [tuple(row.values()) for row in ws["follow"].view().to_arrow().to_pylist()] == expected
        assert [commit.rows for commit in ws["follow"].log() if commit.rows] == [len(expected) - seen, seen]


@pytest.mark.soak
def test_a_query_may_be_killed_again_and_again(killing, session):
    killed(killing, "fill:before:1")
    killed(killing, "fill:after:2")
    resumed(session, "fill", killing)
    with tl.open(killing / "shop") as ws:
        check_filled(ws)
