"""Spark frames in: the frame's order, dense offsets, no row on the driver, equal bytes however it is cut."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.records import records, slices
from trueline.dataset.append import append as committing
from trueline.dataset.append import frames as taking
from trueline.dataset.append import pieces
from trueline.dataset.append.pieces import cut
from trueline.errors import InputError


@pytest.fixture
def small_slices(monkeypatch):
    monkeypatch.setattr(committing, "ROWS_OF_A_SLICE", 1000)
    monkeypatch.setattr(pieces, "ROWS_OF_A_SLICE", 1000)
    monkeypatch.setattr(cut, "__defaults__", (1000,))


def frame(spark, rows=5000, partitions=3):
    return spark.range(0, rows, 1, partitions).selectExpr(
        "id", "cast(id % 7 as string) as city", "timestamp_millis(id * 1000) as at", "id / 3 as share"
    )


def test_a_frame_becomes_slices_in_its_order(ws, spark, small_slices):
    ds = ws.create("x", event_time="at")
    commit = ds.append(frame(spark))
    assert (commit.rows, len(commit.blocks)) == (5000, 6)
    rows = records(ds)
    assert rows["id"].to_pylist() == list(range(5000))
    assert rows["offset"].to_pylist() == list(range(5000))
    assert str(ds.info.watermark) == "1970-01-01T01:23:19Z"
    assert ds.verify().ok


def test_hashes_do_not_depend_on_how_a_frame_is_partitioned(ws, spark, small_slices, monkeypatch):
    from trueline.chain import Instant

    now = Instant.parse("2030-01-01T00:00:00Z")
    monkeypatch.setattr(Instant, "now", classmethod(lambda cls: now))
    seen = []
    for partitions in (1, 4):
        ds = ws.create(f"x{partitions}", event_time="at")
        ds.append(frame(spark, partitions=partitions))
        seen.append([(told.logical_hash, told.physical_hash) for told, _ in slices(ds)])
    table = frame(spark).toArrow()
    ds = ws.create("arrow", event_time="at")
    ds.append(table)
    seen.append([(told.logical_hash, told.physical_hash) for told, _ in slices(ds)])
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == 5


def test_no_row_of_a_frame_passes_the_driver(ws, spark, monkeypatch):
    """Collecting, in any of its forms, fails the test."""
    from pyspark.sql.classic.dataframe import DataFrame

    made = frame(spark)
    for name in ("collect", "toPandas", "toLocalIterator"):
        monkeypatch.setattr(DataFrame, name, lambda *a, **k: pytest.fail("rows on the driver"))
    assert ws.create("x").append(made).rows == 5000


def test_an_empty_frame_records_nothing(ws, spark):
    ds = ws.create("x")
    head = ds.head
    assert ds.append(frame(spark, rows=0)).rows == 0
    assert ds.head == head


def test_a_frame_may_be_merged_by_key(ws, spark):
    import trueline as tl

    ds = ws.create("x", merge=tl.merge.upsert("id"))
    ds.append(spark.createDataFrame([(1, "Bern"), (2, "Zug")], "id long, city string"))
    commit = ds.append(spark.createDataFrame([(2, "Chur"), (1, "Bern")], "id long, city string"))
    assert (commit.rows, commit.ignored) == (2, {"unchanged": 1})
    assert ds.view().to_arrow().sort_by("id")["city"].to_pylist() == ["Bern", "Chur"]


def test_a_frame_is_appended_once_by_its_key(ws, spark):
    ds = ws.create("x")
    first = ds.append(frame(spark), idempotency_key="batch 7")
    again = frame(spark, partitions=2).orderBy("share", ascending=False)
    assert ds.append(again, idempotency_key="batch 7").block == first.block, "its order may differ"
    ds.append(
        [{"id": -1, "at": datetime(2026, 1, 1, tzinfo=UTC), "note": "a column that came meanwhile"}],
        new_columns="add",
    )
    assert ds.append(frame(spark), idempotency_key="batch 7").block == first.block
    assert ds.info.rows == 5001


def test_other_rows_under_a_known_key_are_an_error_though_they_are_as_many(ws, spark):
    ds = ws.create("x", merge=tl.merge.upsert("id"))
    ds.append(frame(spark), idempotency_key="batch 7")
    for change in ("if(id = 4321, -1, id) as id", "id + 1 as id"):
        other = frame(spark).selectExpr(change, "city", "at", "share")
        with pytest.raises(InputError) as refused:
            ds.append(other, idempotency_key="batch 7")
        assert refused.value.code == "KeyReused"
    assert ds.info.rows == 5000


def test_frames_reach_an_object_store(spark, tmp_path):
    """Nothing is shared with the executors but the store; here it lives in this process, so tasks do too."""
    from tests.chain.growing import grow_root
    from trueline.chain import Chain
    from trueline.chain.store.object import ObjectStore
    from trueline.dataset.append.frames import WritePartition
    from trueline.dataset.append.incoming import typed_for

    store = ObjectStore(f"memory://{tmp_path.name}/x")
    tail = grow_root(Chain(store), 0).tail()
    batch = pa.record_batch({"x": [1, 2, 3], "city": ["a", "b", None]})
    with store.scratch() as scratch:
        assert scratch.folder is None
        piece, times = WritePartition(scratch, batch.schema, typed_for(batch.schema, tail))(
            0, iter([batch, batch])
        )
        assert (piece.rows, times.newest) == (6, None)
        assert [row for part in piece.read(2, 5) for row in part["x"].to_pylist()] == [3, 1, 2]


def test_a_frame_and_a_table_of_the_same_rows_have_one_digest(ws, spark):
    ds = ws.create("x", event_time="at")
    first = ds.append(frame(spark, 100), idempotency_key="batch 7")
    assert ds.append(frame(spark, 100).toArrow(), idempotency_key="batch 7").block == first.block
    with pytest.raises(InputError) as refused:
        ds.append(frame(spark, 100).toArrow().slice(1), idempotency_key="batch 7")
    assert refused.value.code == "KeyReused"


@pytest.mark.parametrize(("columns", "looks"), [(["id", "city"], 0), (["id", "at"], 3)])
def test_event_times_are_looked_for_only_where_there_are_some(ws, spark, monkeypatch, columns, looks):
    seen = []
    real = taking.look_at_times
    monkeypatch.setattr(taking, "look_at_times", lambda piece: (seen.append(piece), real(piece))[1])
    ds = ws.create("x", event_time="at")
    if not looks:
        ds = ws.create("y")
    ds.append(frame(spark).select(*columns))
    assert len(seen) == looks
    assert (ds.info.watermark is not None) == bool(looks)
