"""Frames of a cluster under views: tasks write them where all machines see them, or they are refused.

The suite's Spark runs on this machine; here it is taken for one that need not.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager

import pyarrow as pa
import pytest

import trueline as tl
from tests.chain.store.small_s3 import serving
from tests.spark.passing import ROWS, WRITTEN, jobs_in, passing
from trueline.errors import EnvironmentMissing, NotPortable
from trueline.spark import frames, frozen_frames, shared_places
from trueline.spark.lowering import deliver, places, scan

COUNT = 5_000


@pytest.fixture
def far(monkeypatch):
    """A Spark whose machines need not see this one's folders; nothing may be fetched."""
    for module in (frozen_frames, frames, places, scan, deliver):
        monkeypatch.setattr(module, "shares_folders", lambda session: False)
    monkeypatch.setattr("trueline.spark.session.is_cluster", lambda session: True)
    monkeypatch.setattr(frozen_frames, "fetch", lambda *_, **__: pytest.fail("fetched"))
    return monkeypatch


def numbers(session):
    return session.range(0, COUNT, 1, 4).selectExpr("id", "(id * 7919) % 1000 as k")


def expected():
    rows = pa.table({"id": range(COUNT), "k": [n * 7919 % 1000 for n in range(COUNT)]})
    return rows.sort_by([("k", "ascending"), ("id", "ascending")]).to_pylist()


@contextmanager
def opened(kind, folder, spark):
    if kind == "folder":
        with tl.open(folder / "ws", create=True, spark=spark) as ws:
            yield ws
    else:
        with (
            serving() as server,
            tl.open("s3://bucket/lake", create=True, spark=spark, **server.options) as ws,
        ):
            yield ws


@pytest.mark.contract("exchange:E2")
@pytest.mark.parametrize("kind", ["folder", "object store"])
def test_what_is_appended_passes_no_driver(kind, far, spark, tmp_path):
    far.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    far.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    far.setattr(shared_places, "shared_folder", lambda *_: pytest.fail("a folder of this machine"))
    with opened(kind, tmp_path, spark) as ws:
        first, second = ws.create("first"), ws.create("second")
        with passing() as passed, jobs_in(spark) as jobs:
            first.append(tl.View.from_spark(numbers(spark), order_by=["k", "id"]))
            answer = ws.sql("select id, k + 1 as k from first order by k, id")
            second.append(answer.filter("id % 2 = 0"))
        assert passed[ROWS] == passed[WRITTEN] == 0
        assert "reading the frame" in jobs
        assert first.view().to_arrow().to_pylist() == expected()
        assert second.view().count() == COUNT // 2
        assert second.commit().origins == tuple(answer.origins.values())
        # Read here, it is what was frozen: nothing is computed again.
        with jobs_in(spark) as jobs:
            assert answer.to_arrow()["id"].to_pylist() == [row["id"] for row in expected()]
        assert "reading the frame" not in jobs
        store = first.chain.store
        left = scratch_of(store)
        assert left
        del answer
        gc.collect()
        assert scratch_of(store) == []
        assert ws.verify().ok


def scratch_of(store):
    """What is in the scratch of a store."""
    if hasattr(store, "place"):
        return [path for path in store.place.path.glob("private/scratch/*/**/*") if path.is_file()]
    import obstore

    found = obstore.list(store._client, f"{store._prefix}/private/scratch").collect()
    return [meta["path"] for meta in found]


def test_without_a_workspace_a_folder_that_all_machines_share_is_taken(far, spark):
    view = tl.View.from_spark(numbers(spark), order_by=["k", "id"])
    assert view.explain().startswith("computed on Spark: it rests on a Spark frame")
    assert view.to_arrow().to_pylist() == expected()
    assert view.node.source.frozen().is_everywhere
    assert view.group_by("k").agg(n="count(*)").count() == 1000


@pytest.fixture
def alone(far):
    """A Spark that shares no folder with this machine."""

    def refused(*_):
        raise EnvironmentMissing("not to be seen", remedy="share it", code="FolderNotShared")

    far.setattr(shared_places, "shared_folder", refused)
    far.setattr(frozen_frames, "fetch", frames.fetch)
    return far


@pytest.mark.contract("exchange:E7")
def test_where_no_place_is_shared_few_rows_are_fetched_and_many_are_refused(alone, spark):
    view = tl.View.from_spark(numbers(spark), order_by=["k", "id"])
    assert view.sort("id", descending=True).to_arrow()["id"].to_pylist() == list(reversed(range(COUNT)))
    assert view.to_arrow().to_pylist() == expected()
    alone.setattr(frozen_frames, "SMALL", 8 * COUNT)
    for many in (lambda view: view, lambda view: view.sort("k"), lambda view: view.on_spark(spark)):
        refused = tl.View.from_spark(numbers(spark), order_by=["k", "id"])
        with pytest.raises(NotPortable, match="Spark frame") as error:
            many(refused).to_arrow()
        assert error.value.code == "ProcessBound"
        assert "append them to a dataset" in error.value.remedy


def test_no_task_sends_more_than_may_be_fetched(spark, tmp_path):
    batches = [pa.record_batch({"id": pa.array(range(1_000))}) for _ in range(10)]
    assert len(list(frames.FewParcels(20_000)(iter(batches)))) == 3
    with pytest.raises(frames.TooLarge):
        frames.fetch(spark.range(0, 100_000, 1, 2), tmp_path, most=100_000)
    assert list(tmp_path.iterdir()) == []
