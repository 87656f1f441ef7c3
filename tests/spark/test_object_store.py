"""A whole workspace on an object store: tasks write and read through our store, nothing else is shared."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import trueline as tl
from tests.chain.store.small_s3 import KEY, SECRET, serving
from tests.dataset.append.test_frames import frame, small_slices  # noqa: F401 (a fixture)
from tests.spark.smoke import VALUES
from tests.workspace.records import column, slices
from trueline.chain import Instant
from trueline.errors import InputError, StoreError
from trueline.spark.errors import translated
from trueline.spark.sink import sink
from trueline.spark.source import Asked, register

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server():
    with serving() as found:
        yield found


@pytest.fixture
def url(tmp_path, monkeypatch):
    for name in ("CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    return f"s3://bucket/lake-{next(_numbers)}"


@pytest.fixture
def lake(url, server):
    with tl.open(url, create=True, **server.options) as ws:
        yield ws


@pytest.fixture
def session(spark):
    user = spark.newSession()
    register(user)
    return user


def flat(options):
    """The options of a provider as Spark takes them."""
    client = {f"store.client_options.{k}": v for k, v in options["client_options"].items()}
    return {f"store.{k}": v for k, v in options.items() if k != "client_options"} | client


def keys(server, url, *parts):
    within = "/".join([url.removeprefix("s3://bucket/"), *parts])
    return [key for key in server.objects if key.startswith(within)]


def hashes(ds):
    return [(told.logical_hash, told.physical_hash) for told, _ in slices(ds)]


@pytest.fixture
def fixed_time(monkeypatch):
    now = Instant.parse("2030-01-01T00:00:00Z")
    monkeypatch.setattr(Instant, "now", classmethod(lambda cls: now))


# --- in and out ---------------------------------------------------------------------------------


def test_a_frame_is_ingested_read_and_verified(lake, spark, small_slices):  # noqa: F811
    ds = lake.create("x", event_time="at")
    commit = ds.append(frame(spark, rows=4500))
    assert (commit.rows, len(commit.blocks)) == (4500, 6)
    assert column(ds, "id") == list(range(4500))
    assert lake.verify().ok
    assert ds.view().filter("city = '3'").count() == 643
    assert lake.sql("select sum(id) s from x").to_arrow()["s"].to_pylist() == [4500 * 4499 // 2]
    assert ds.view().to_spark(spark).selectExpr("sum(id)").head()[0] == 4500 * 4499 // 2


def test_slices_are_written_by_tasks_only(lake, spark, monkeypatch):
    """One slice too: what the driver writes itself fails here."""
    ds = lake.create("x")
    monkeypatch.setattr(type(ds.chain.store), "writer", lambda *_: pytest.fail("written by the driver"))
    assert ds.append(frame(spark, rows=10)).rows == 10


def test_bytes_are_those_of_a_folder(lake, tmp_path, spark, small_slices, fixed_time):  # noqa: F811
    with tl.open(tmp_path / "ws", create=True) as here:
        both = [ws.create("x", event_time="at") for ws in (lake, here)]
        for partitions, ds in enumerate(both, 2):
            ds.append(frame(spark, rows=4500, partitions=partitions))
        assert hashes(both[0]) == hashes(both[1])
        assert len(hashes(both[0])) == 5


def test_nothing_of_the_work_is_left(lake, url, server, spark, small_slices):  # noqa: F811
    lake.create("x").append(frame(spark))
    lake.create("one").append(frame(spark, rows=10))
    lake.close()
    assert keys(server, url, "datasets/x/private") == []
    assert keys(server, url, "datasets/one/private") == []


def test_every_type_is_the_same_there_as_in_a_folder(lake, spark, fixed_time, tmp_path):
    user = spark.newSession()
    user.conf.set("spark.sql.session.timeZone", "America/New_York")
    made = user.sql(VALUES).unionAll(user.sql(VALUES))
    with tl.open(tmp_path / "ws", create=True) as here:
        both = [ws.create("x") for ws in (lake, here)]
        for ds in both:
            ds.append(made)
        assert hashes(both[0]) == hashes(both[1])
        assert both[0].schema == both[1].schema


def test_a_partition_that_is_written_twice_is_two_files(lake):
    """Its rows may come in another order the second time; who was counted must be who is read."""
    from trueline.dataset.append.frames import WritePartition
    from trueline.dataset.append.incoming import typed_for

    ds = lake.create("x")
    with ds.chain.store.scratch() as scratch:
        schema = pa.schema({"n": pa.int64()})
        write = WritePartition(scratch, schema, typed_for(schema, ds.chain.tail()))
        first, _ = write(0, iter([pa.record_batch({"n": [1, 2]})]))
        second, _ = write(0, iter([pa.record_batch({"n": [3]})]))
        assert [part["n"].to_pylist() for part in first.read(0, 2)] == [[1, 2]]
        assert [part["n"].to_pylist() for part in second.read(0, 1)] == [[3]]


# --- as a source and a sink ----------------------------------------------------------------------


def test_a_source_reads_there_with_the_options_of_the_provider(lake, url, server, session):
    ds = lake.create("stock", merge=tl.merge.upsert("item"))
    ds.append(pa.table({"item": ["a", "b"], "count": [1, 2]}))
    ds.append(pa.table({"item": ["b"], "count": [5]}))
    reader = session.read.format("trueline").options(**flat(server.options)).option("workspace", url)
    rows = reader.option("dataset", "stock").load()
    assert sorted(map(tuple, rows.collect())) == [("a", 1), ("b", 5)]
    assert reader.option("changes", "true").load().count() == 4


def test_a_stream_goes_from_there_to_there(lake, url, server, session, tmp_path):
    lake.create("from").append(pa.table({"n": [1, 2, 3]}))
    lake.create("to")
    reader = session.readStream.format("trueline").options(**flat(server.options))
    frame = reader.option("workspace", url).option("dataset", "from").load()
    query = (
        frame.writeStream.foreachBatch(sink(url, "to", **server.options))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(column(lake["to"], "n")) == [1, 2, 3]
    kept = b"".join(path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file())
    assert kept
    assert SECRET.encode() not in kept
    assert KEY.encode() not in kept


def test_frames_are_written_by_the_data_source(lake, url, server, session):
    lake.create("x")
    writer = (
        session.range(0, 100, 1, 3).write.format("trueline").mode("append").options(**flat(server.options))
    )
    with translated():
        writer.option("workspace", url).option("dataset", "x").save()
    assert column(lake["x"], "id") == list(range(100))
    assert len(keys(server, url, "datasets/x/data")) == 1
    assert keys(server, url, "datasets/x/private/leases") == []


def test_who_has_no_key_is_told_so(lake, url, server, session):
    lake.create("x").append(pa.table({"n": [1]}))
    options = flat(server.options) | {"store.access_key_id": "another"}
    reader = session.read.format("trueline").options(**options).option("workspace", url)
    with pytest.raises(StoreError, match="check address, permissions") as caught, translated():
        reader.option("dataset", "x").load()
    assert SECRET not in str(caught.value)


# --- secrets -------------------------------------------------------------------------------------


def test_keys_are_in_no_plan_and_no_error(lake, url, server, session, capfd):
    lake.create("x").append(pa.table({"n": [1]}))
    reader = session.read.format("trueline").options(**flat(server.options)).option("workspace", url)
    rows = reader.option("dataset", "x").load()
    rows.explain("formatted")
    rows.explain(extended=True)
    with pytest.raises(Exception, match="no option") as caught:
        reader.option("dataset", "x").option("bogus", "1").load()
    said = "".join(capfd.readouterr()) + str(caught.value)
    assert "trueline" in said
    for secret in (KEY, SECRET):
        assert secret not in said
        assert secret not in repr(Asked.of(flat(server.options) | {"workspace": url, "dataset": "x"}))


def test_keys_are_in_no_object(lake, url, server, spark, small_slices):  # noqa: F811
    lake.create("x").append(frame(spark))
    for key in keys(server, url):
        for secret in (KEY, SECRET):
            assert secret.encode() not in server.objects[key][0], key


def test_a_folder_takes_no_options_of_a_provider(tmp_path):
    with pytest.raises(InputError, match="takes no option 'region'"):
        tl.open(tmp_path, create=True, region="here")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("names", [["store.create"], ["store.a", "store.a.b"], ["stores.region"]])
def test_an_option_of_spark_that_is_none_is_named(names):
    with pytest.raises(InputError, match=f"there is no option '{names[-1]}'"):
        Asked.of({"workspace": "w", "dataset": "d"} | dict.fromkeys(names, "1"))


def test_an_unknown_option_of_a_provider_is_named(url):
    with pytest.raises(InputError, match="bogus"):
        tl.open(url, bogus="1")


def test_what_is_not_given_is_looked_for_in_the_environment(url, server, monkeypatch):
    """So executors may have rights of their own, and nothing need be sent to them."""
    given = {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "REGION": "here", "ALLOW_HTTP": "true"}
    for name, value in (given | {"ENDPOINT": server.options["endpoint"]}).items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with tl.open(url, create=True) as ws:
        ws.create("x").append(pa.table({"n": [1]}))
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")  # nor need they have a place for indexes
    with tl.open(url) as ws:
        assert column(ws["x"], "n") == [1]
