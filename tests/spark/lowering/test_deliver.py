"""Rows that are read here from a Spark elsewhere: from files that all machines see, or fetched in parcels.

The suite's Spark runs on this machine; here it is taken for one that need not.
"""

from __future__ import annotations

import gc
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.chain.store.small_s3 import serving
from tests.spark.lowering.nasty import difference, everything, in_process, rows_of, table
from tests.spark.lowering.test_driver import counted
from tests.spark.passing import jobs_in
from tests.spark.test_frozen_frames import scratch_of
from trueline.errors import EnvironmentMissing, SchemaError, StoreError
from trueline.spark import engines, frames, parcels, shared_places, views, workers
from trueline.spark.engines import Classic
from trueline.spark.lowering import deliver, places, scan
from trueline.spark.lowering.deliver import delivered
from trueline.view.export import export

FETCHED, BYTES = "values fetched", "bytes fetched"
PAYLOAD = 100


@pytest.fixture
def far(monkeypatch, tmp_path):
    """A Spark whose machines need not see this one's folders; what is fetched from it is counted."""
    for module in (frames, places, scan, deliver):
        monkeypatch.setattr(module, "shares_folders", lambda session: False)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    found, values = Counter(), Classic.values

    def counting(engine, frame, sizes=None):
        for value in values(engine, frame, sizes):
            found[FETCHED] += 1
            found[BYTES] += len(value)
            yield value

    monkeypatch.setattr(Classic, "values", counting)
    return found


@pytest.fixture
def alone(far, monkeypatch):
    """One that shares no folder with this machine."""

    def refused(*_):
        raise EnvironmentMissing("not to be seen", remedy="share it", code="FolderNotShared")

    monkeypatch.setattr(shared_places, "shared_folder", refused)
    return far


def payloads(folder, count):
    """Return rows that cannot be packed smaller, in a file of two groups."""
    random = np.random.default_rng(5)
    raw = random.bytes(count * PAYLOAD)
    payload = pa.array([raw[at * PAYLOAD : (at + 1) * PAYLOAD] for at in range(count)])
    made = pa.table({"n": range(count), "k": random.integers(0, 500, count), "p": payload})
    pq.write_table(made, folder / f"{count}.parquet", row_group_size=count // 2)
    return tl.View.read_parquet(str(folder / f"{count}.parquet"))


def left_in(folder: Path) -> list[Path]:
    """Return the files of rows in temporary folders."""
    return [path for path in folder.glob("trueline-*/**/*.arrow") if path.is_file()]


@pytest.mark.contract("exchange:E2", "exchange:E9")
def test_where_a_folder_is_shared_names_and_counts_pass_and_files_go_with_the_reader(far, spark, tmp_path):
    view = payloads(tmp_path, 8_000).sort("k")
    parts = delivered(view.node, everything(view), spark)
    with counted(spark) as passed:
        first = next(chunk for part in parts for chunk in part.chunks())
        assert len(left_in(tmp_path / "temporary")) > 0
    assert passed.bytes < 8_000 * PAYLOAD / 4
    assert first.rows > 0
    assert difference(in_process(view), rows_of(parts), view) == ""
    assert not far
    del parts, first
    gc.collect()
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.contract("exchange:E2", "exchange:E9")
@pytest.mark.parametrize("kind", ["folder", "object store"])
def test_rows_of_a_dataset_are_delivered_beside_it(kind, far, spark, tmp_path, monkeypatch):
    """Machines of a cluster see the workspace, but seldom a folder for temporary files."""
    monkeypatch.setattr(shared_places, "shared_folder", lambda *_: pytest.fail("a folder of this machine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with serving() as server:
        place, options = (tmp_path / "ws", {}) if kind == "folder" else ("s3://bucket/lake", server.options)
        with tl.open(place, create=True, **options) as ws:
            ds = ws.create("x")
            ds.append(pa.table({"n": range(900), "k": [n % 7 for n in range(900)]}))
            view = ds.view().sort("k", descending=True)
            parts = delivered(view.node, everything(view), spark)
            assert difference(in_process(view), rows_of(parts), view) == ""
            assert any("rows-" in str(path) for path in scratch_of(ds.chain.store))
            del parts
            gc.collect()
            assert scratch_of(ds.chain.store) == []
    assert not far


@pytest.mark.contract("exchange:E1")
@pytest.mark.parametrize("kind", ["folder", "object store"])
def test_bad_cells_are_counted_where_a_place_is_shared(kind, far, spark, tmp_path, monkeypatch):
    for number, cells in enumerate(("1,a\n", "x,b\n", "3,c\ny,d\n")):
        (tmp_path / f"{number}.csv").write_text(f"n,t\n{cells}")
    given = pa.schema({"n": pa.int64(), "t": pa.string()})
    view = tl.View.read_csv(str(tmp_path / "*.csv"), schema=given).sort("n")
    with serving() as server:
        if kind == "object store":
            monkeypatch.setattr(shared_places, "shared_folder", lambda *_: pytest.fail("a folder"))
            with tl.open("s3://bucket/lake", create=True, **server.options) as ws:
                store = ws.create("x").chain.store
                scan.lend(view.node, lambda: store)
        assert view.on_spark(spark).to_arrow()["t"].to_pylist() == ["a", "c", "b", "d"]
    assert view.bad == {"n": 2}
    assert not far


@pytest.mark.contract("exchange:E1", "exchange:E2")
def test_rows_of_machines_that_share_no_place_are_fetched(alone, spark):
    view = tl.View.from_arrow(table(240, 1)).sort("x", descending=True)
    found = rows_of(delivered(view.node, everything(view), spark))
    assert difference(in_process(view), found, view) == ""
    assert alone[FETCHED] > 0


@pytest.mark.contract("exchange:E2")
@pytest.mark.parametrize("moves", [True, False])
def test_no_task_sends_more_than_a_share(moves, alone, spark, tmp_path, monkeypatch):
    """Whatever a partition has: the rows of two come in many shares, in their order, each fetched once."""
    monkeypatch.setattr(parcels, "_BYTES_OF_A_SHARE", 100_000)
    monkeypatch.setattr(parcels, "_BYTES_OF_A_PARCEL", 30_000)
    monkeypatch.setattr(engines, "_AT_ONCE", 200_000)
    rows = payloads(tmp_path, 8_000)
    view = rows.sort("k") if moves else rows.filter("k >= 0")
    with jobs_in(spark) as jobs, largest_result(spark) as largest:
        found = rows_of(delivered(view.node, everything(view), spark))
    assert difference(in_process(view), found, view) == ""
    assert 8_000 * PAYLOAD < alone[BYTES] < 8_000 * (PAYLOAD + 50)
    # Rows with their ids are 0.9 MB, of which a job brings two shares.
    assert 5 <= len([job for job in jobs if job == "running the view"]) <= 15
    assert 30_000 < largest[0] < 150_000


class largest_result:  # noqa: N801 (used as a function that is a context)
    """Find how many bytes the largest result of a task has."""

    def __init__(self, session):
        self.context, self.java = session.sparkContext, session.sparkContext._jsc.sc()

    def __enter__(self):
        self.before, self.found = {stage.stageId() for stage in self._stages()}, []
        return self.found

    def __exit__(self, *_):
        store = self.java.statusStore()
        new = [stage for stage in self._stages() if stage.stageId() not in self.before]
        sizes = []
        for stage in new:
            tasks = store.taskList(stage.stageId(), stage.attemptId(), 10_000)
            found = (tasks.apply(at).taskMetrics().get() for at in range(tasks.size()))
            sizes += [each.resultSize() for each in found]
        self.found.append(max(sizes))

    def _stages(self):
        self.java.listenerBus().waitUntilEmpty()
        quantiles = self.context._gateway.new_array(self.context._jvm.double, 0)
        found = self.java.statusStore().stageList(None, False, False, quantiles, None)
        return [found.apply(at) for at in range(found.size())]


def test_a_row_that_is_larger_than_a_parcel_is_one(tmp_path):
    batch = pa.record_batch({"p": [b"x" * 5, b"y" * 50_000, b"z" * 5, b"", b"w" * 29_000]})
    shares = list(parcels._packed(iter([batch]), 30_000))
    found = [pa.ipc.open_stream(each).read_all().num_rows for each in shares]
    assert found == [1, 1, 3]


def test_what_was_kept_to_be_fetched_is_let_go(alone, spark):
    view = tl.View.range(1_000).sort("n")
    before = spark.sparkContext._jsc.getPersistentRDDs().size()
    rows_of(delivered(view.node, everything(view), spark))
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == before


# --- files ------------------------------------------------------------------------------------------


@pytest.fixture
def read_here(monkeypatch):
    """The rows that this process reads of those delivered; tasks do it in processes of their own."""
    found, part = Counter(), deliver.DeliveredRows.part

    def counting(rows, number):
        for chunk in part(rows, number):
            found["rows"] += chunk.rows
            yield chunk

    monkeypatch.setattr(deliver.DeliveredRows, "part", counting)
    return found


READERS = {
    "parquet": pq.read_table,
    "arrow": lambda path: pa.ipc.open_file(path).read_all(),
    "jsonl": Path.read_bytes,
    "csv": Path.read_bytes,
}


@pytest.mark.contract("exchange:E2")
@pytest.mark.parametrize("ending", READERS)
def test_a_file_that_all_machines_see_is_written_by_a_task(ending, far, read_here, spark, tmp_path):
    rows = pa.table({"n": range(900), "k": [n % 7 for n in range(900)], "t": ["a", "b", "c"] * 300})
    view = tl.View.from_arrow(rows).sort("k")
    here, there = tmp_path / f"here.{ending}", tmp_path / f"there.{ending}"
    written = export(view.node, here)
    with counted(spark) as passed:
        found = export(view.on_spark(spark)._plan, there)
    # Chunks of rows end elsewhere in the files that have such.
    assert READERS[ending](there) == READERS[ending](here)
    assert found.rows == written.rows == 900
    assert found.size == there.stat().st_size
    assert passed.bytes > 0
    assert not read_here
    assert not far
    assert sorted(path.name for path in tmp_path.iterdir()) == [here.name, "temporary", there.name]
    view.on_spark(spark).to_arrow()
    assert read_here["rows"] == 900, "the count above can fail"


def test_what_a_file_cannot_hold_is_said_as_in_this_process(far, spark, tmp_path):
    view = tl.View.from_arrow(pa.table({"n": [2, 1], "t": ["a", "\0"]})).sort("n")
    said = []
    for each in (view, view.on_spark(spark)):
        with pytest.raises(SchemaError, match="a zero character in row 0") as error:
            each.write_csv(tmp_path / "x.csv")
        said.append(str(error.value))
    assert said[0] == said[1]
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]


def test_a_file_in_a_folder_of_this_machine_is_written_here(far, read_here, spark, tmp_path, monkeypatch):
    def refused(*_, **named):
        if named.get("files"):
            raise EnvironmentMissing("not to be seen", remedy="share it", code="FolderNotShared")

    monkeypatch.setattr(workers.Workers, "check", refused)
    found = tl.View.range(90).sort("n", descending=True).on_spark(spark).write_parquet(tmp_path / "x.parquet")
    assert (found.rows, read_here["rows"]) == (90, 90)
    assert pq.read_table(tmp_path / "x.parquet")["n"].to_pylist() == list(range(89, -1, -1))


def test_a_name_that_was_not_given_is_not_taken(far, spark, tmp_path, monkeypatch):
    (tmp_path / "mine").write_text("rows")
    monkeypatch.setattr(views, "written_whole", lambda *_: ("mine", 1))
    with pytest.raises(StoreError, match="not a name that was given"):
        tl.View.range(9).on_spark(spark).write_parquet(tmp_path / "x.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "temporary"]
