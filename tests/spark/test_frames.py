"""Frames as ordered Parquet pieces. What is the same on Connect: smoke.py."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as f

from tests.spark import deeds
from tests.spark.test_tasks import jobs_of
from trueline.chain.store.folders import inside
from trueline.errors import EnvironmentMissing, InputError, SchemaError, StorageFull
from trueline.spark import engines, frames
from trueline.spark.engines import Classic
from trueline.spark.frames import fetch, shares_folders, spool, write_pieces


def rows_of(spooled) -> list[dict]:
    tables = [pq.read_table(piece.path).cast(spooled.schema) for piece in spooled.pieces]
    return pa.concat_tables(tables).to_pylist() if tables else []


def test_one_job_writes_and_counts_and_no_row_comes_to_the_driver(spark, tmp_path, monkeypatch):
    from pyspark.sql.classic.dataframe import DataFrame

    def refuse(*_, **__):
        raise AssertionError("rows came to the driver")

    for name in ("collect", "toArrow", "toPandas", "toLocalIterator", "count"):
        monkeypatch.setattr(DataFrame, name, refuse)
    frame = spark.range(0, 100_000, 1, 4)
    found = []
    assert jobs_of(spark, "spool", lambda: found.append(spool(frame, tmp_path))) == 1
    assert [piece.rows for piece in found[0].pieces] == [25_000] * 4


def test_pieces_are_plain_and_their_row_groups_small(spark, tmp_path):
    frame = spark.range(0, 5_000_000, 1, 1).withColumn("same", f.lit("x"))
    [piece] = spool(frame, tmp_path).pieces
    footer = pq.read_metadata(piece.path)
    groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
    assert len(groups) > 2
    assert max(group.total_byte_size for group in groups) < 24 << 20
    column = groups[0].column(1)
    assert column.compression == "UNCOMPRESSED"
    assert not column.has_dictionary_page


def test_the_frames_own_settings_make_its_values_and_ours_only_write_them(spark, tmp_path):
    user = spark.newSession()
    user.conf.set("spark.sql.session.timeZone", "America/New_York")
    user.conf.set("spark.sql.ansi.enabled", "false")
    user.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    # The zone is looked up when the plan is optimised, not when the frame is made.
    frame = user.sql(
        "select timestamp'2020-01-01 00:00:00' t, cast('abc' as int) n, 1/0 d, current_timezone() zone"
    )
    [row] = rows_of(spool(frame, tmp_path))
    assert row["zone"] == "America/New_York"
    assert row["t"] == dt.datetime(2020, 1, 1, 5, tzinfo=dt.UTC)
    assert (row["n"], row["d"]) == (None, None)
    [piece] = spool(frame, tmp_path).pieces
    assert pq.read_schema(piece.path).field("t").type == pa.timestamp("us", "UTC")


def test_columns_that_differ_by_case_and_odd_names_are_kept(spark, tmp_path):
    frame = spark.sql("select 1 A, 2 a, 3 `a b,;{}()=.x`, 4 `ü`")
    assert rows_of(spool(frame, tmp_path)) == [{"A": 1, "a": 2, "a b,;{}()=.x": 3, "ü": 4}]


def test_times_of_day_are_kept(spark, tmp_path):
    frame = spark.newSession().sql("select time'12:00:01.123456' t")
    assert rows_of(spool(frame, tmp_path)) == [{"t": dt.time(12, 0, 1, 123456)}]


def test_annotations_come_with_the_schema(spark, tmp_path):
    frame = spark.range(2).select(f.col("id").alias("x", metadata={"ml/role": "label"}))
    spooled = spool(frame, tmp_path)
    assert spooled.schema.field("x").metadata == {b"ml/role": b'"label"'}
    assert [row["x"] for row in rows_of(spooled)] == [0, 1]


def test_a_type_that_cannot_be_stored_is_refused_before_anything_runs(spark, tmp_path):
    frame = spark.sql("select interval '1' day i")
    for ask in (lambda: spool(frame, tmp_path), lambda: write_pieces(frame, deeds.count_rows)):
        with pytest.raises(SchemaError) as caught:
            ask()
        assert caught.value.column == "i"
    assert list(tmp_path.iterdir()) == []


def test_a_stream_is_refused(spark, tmp_path):
    with pytest.raises(InputError, match="foreachBatch"):
        spool(spark.readStream.format("rate").load(), tmp_path)


def test_a_frame_that_fails_leaves_nothing_behind(spark, tmp_path):
    with pytest.raises(Exception, match="Division by zero") as caught:
        spool(spark.range(0, 10, 1, 2).selectExpr("1/(id - 7)"), tmp_path)
    assert caught.value.code == "QueryError"
    assert list(tmp_path.iterdir()) == []


def test_rows_that_the_driver_does_not_see_are_noticed(spark, tmp_path, monkeypatch):
    found = frames._pieces
    monkeypatch.setattr(frames, "_pieces", lambda target: found(target)[:-1])
    with pytest.raises(EnvironmentMissing) as caught:
        spool(spark.range(0, 10, 1, 2), tmp_path)
    assert caught.value.code == "FolderNotShared"
    assert "10 rows" in caught.value.problem
    assert list(tmp_path.iterdir()) == []


def test_part_numbers_are_ordered_as_numbers(tmp_path):
    for part in (100_000, 99_999, 3):
        pq.write_table(pa.table({"x": [part]}), tmp_path / f"part-{part:05}-aaaa-c000.parquet")
    (tmp_path / "part-00001-aaaa-c000.parquet.crc").write_bytes(b"")
    assert [pq.read_table(p.path)["x"].to_pylist() for p in frames._pieces(inside(tmp_path))] == [
        [3],
        [99_999],
        [100_000],
    ]


def test_an_error_in_a_partition_comes_back_as_it_is(spark):
    with pytest.raises(StorageFull) as caught:
        write_pieces(spark.range(0, 10, 1, 3), deeds.fail_on_partition)
    assert caught.value.partition == 1


def test_a_piece_written_by_python_is_the_same_as_one_of_the_jvm(spark, tmp_path):
    from tests.spark.smoke import EXPECTED, VALUES

    frame = spark.sql(VALUES).unionAll(spark.sql(VALUES))
    by_jvm = spool(frame, tmp_path)
    (tmp_path / "python").mkdir()
    folder = inside(tmp_path / "python")
    written = write_pieces(frame, frames.WritePiece(folder, by_jvm.schema))
    pieces = [piece.inside(folder) for piece in written if piece is not None]
    by_python = frames.Spooled(by_jvm.schema, tuple(pieces))
    assert str(rows_of(by_python)) == str(rows_of(by_jvm))
    assert [piece.rows for piece in pieces] == [piece.rows for piece in by_jvm.pieces] == [1, 1]
    assert set(rows_of(by_jvm)[0]) == set(EXPECTED)


# --- fetched -------------------------------------------------------------------------------------


def test_what_is_fetched_is_what_is_spooled(spark, tmp_path):
    from tests.spark.smoke import VALUES

    user = spark.newSession()
    user.conf.set("spark.sql.session.timeZone", "America/New_York")
    values = user.sql(VALUES)
    frame = values.unionAll(values).unionAll(values)
    found = fetch(frame, tmp_path)
    assert str(rows_of(found)) == str(rows_of(spool(frame, tmp_path)))
    assert (found.rows, len(found.pieces)) == (3, 1)


def test_rows_are_fetched_in_their_order_and_none_is_none(spark, tmp_path):
    frame = spark.range(0, 50_000, 1, 3).filter("id % 50000 >= 20000")
    assert [row["id"] for row in rows_of(fetch(frame, tmp_path))] == list(range(20_000, 50_000))
    assert fetch(frame.filter("id < 0"), tmp_path).pieces == ()


def test_a_frame_that_cannot_be_fetched_leaves_nothing_behind(spark, tmp_path):
    with pytest.raises(Exception, match="Division by zero") as caught:
        fetch(spark.range(0, 10, 1, 2).selectExpr("1/(id - 7)"), tmp_path)
    assert caught.value.code == "QueryError"
    assert list(tmp_path.iterdir()) == []


def test_this_machine_shares_its_folders_with_itself(spark):
    assert shares_folders(spark)


@pytest.mark.parametrize("partitions", [1, 100])
def test_rows_of_many_small_partitions_are_fetched_by_a_few_jobs(spark, tmp_path, partitions):
    frame = spark.range(0, 1_000, 1, partitions)
    found = []
    jobs = jobs_of(spark, f"fetch {partitions}", lambda: found.append(fetch(frame, tmp_path)))
    assert jobs <= 8
    assert [row["id"] for row in rows_of(found[0])] == list(range(1_000))


def test_partitions_that_are_too_large_together_are_fetched_one_by_one(spark, tmp_path, monkeypatch):
    real, asked = Classic._partitions, []

    def refuse(self, rows, numbers):
        asked.append(len(numbers))
        if len(numbers) > 4:
            raise RuntimeError("results are bigger than spark.driver.maxResultSize")
        return real(self, rows, numbers)

    monkeypatch.setattr(Classic, "_partitions", refuse)
    found = fetch(spark.range(0, 200, 1, 20), tmp_path)
    assert [row["id"] for row in rows_of(found)] == list(range(200))
    assert asked[:5] == [1, 2, 4, 8, 1]


def test_large_partitions_are_fetched_one_at_a_time(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(engines, "_AT_ONCE", 1_000)
    frame = spark.range(0, 2_000, 1, 5)
    assert jobs_of(spark, "fetch large ones", lambda: fetch(frame, tmp_path)) == 5


def test_pieces_that_go_between_machines_are_compressed(spark, tmp_path, monkeypatch):
    frame = spark.range(0, 50_000, 1, 2).withColumn("same", f.lit("x"))
    plain = spool(frame, tmp_path / "plain")
    monkeypatch.setattr(frames, "shares_folders", lambda session: False)
    packed = spool(frame, tmp_path / "packed")
    assert rows_of(packed) == rows_of(plain)
    assert pq.read_metadata(packed.pieces[0].path).row_group(0).column(0).compression == "LZ4"
    assert sum(piece.size for piece in packed.pieces) < sum(piece.size for piece in plain.pieces)
