"""What is ours behind a frame goes with the last plan that reads it; what is the user's stays as it is."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.spark.passing import jobs_in
from trueline.spark import frame_needs
from trueline.spark.frame_needs import release_unneeded
from trueline.spark.lowering import dispatch

TRIES = 20


@pytest.fixture(autouse=True)
def folders_of_nobody_else(monkeypatch, tmp_path):
    """Other processes make such folders too, where temporary files are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture(autouse=True)
def nothing_is_sent_along(monkeypatch):
    monkeypatch.setattr(dispatch, "_SENT_ALONG", 0)


def folders() -> set[Path]:
    found = Path(tempfile.gettempdir())
    return {*found.glob("trueline-rows-*"), *found.glob("trueline-frame-*")}


def let_go(session) -> None:
    """Let both sides collect what nobody refers to."""
    gc.collect()
    session._jvm.System.gc()
    release_unneeded()


def kept_after_collecting(session, known) -> set[Path]:
    """Return our folders that are left: the JVM may take more than one round to find out."""
    for _ in range(TRIES):
        let_go(session)
        if not folders() - known:
            break
    return folders() - known


def view_of(kind, session):
    if kind == "frame":
        return tl.View.from_spark(session.range(0, 90, 1, 3).withColumnRenamed("id", "n"))
    return tl.View.from_arrow(pa.table({"n": range(90)}))


@pytest.mark.contract("exchange:E9")
@pytest.mark.parametrize("kind", ["table", "frame"])
def test_folders_behind_a_frame_go_when_nothing_made_of_it_is_left(kind, spark):
    known = folders()
    frame = view_of(kind, spark).sort("n").to_spark(spark)
    made = frame.filter("n > 80")
    made.createOrReplaceTempView("kept_by_a_view")
    assert folders() - known
    del frame
    let_go(spark)
    assert made.count() == 9
    del made
    for _ in range(3):
        let_go(spark)
    assert spark.sql("select count(*) as n from kept_by_a_view").toArrow()["n"].to_pylist() == [9]
    spark.catalog.dropTempView("kept_by_a_view")
    assert kept_after_collecting(spark, known) == set()
    assert frame_needs._needed == []


@pytest.mark.contract("exchange:E9")
def test_a_joined_and_a_cached_frame_keep_what_they_read(spark):
    known = folders()
    one = view_of("table", spark).to_spark(spark)
    both = one.join(view_of("frame", spark).to_spark(spark).hint("merge"), "n").cache()
    del one
    for _ in range(3):
        let_go(spark)
    assert both.count() == 90
    both.unpersist()
    assert both.count() == 90
    del both
    assert kept_after_collecting(spark, known) == set()


def test_a_spark_that_was_stopped_needs_nothing():
    class Stopped:
        _jsc = None

    assert frame_needs.Needed(Stopped(), (object(),), ()).is_over


# --- the session of the user ----------------------------------------------------------------------


def state_of(session) -> dict[str, object]:
    """Return what a user sees of a session."""
    catalog = session.catalog
    return {
        "settings": dict(session.conf.getAll),
        "tables": sorted((each.name, each.isTemporary) for each in catalog.listTables()),
        "functions": len(catalog.listFunctions()),
        "database": catalog.currentDatabase(),
        "cached": [catalog.isCached(each.name) for each in catalog.listTables()],
        "properties": [session.sparkContext.getLocalProperty(name) for name in PROPERTIES],
    }


PROPERTIES = ["spark.scheduler.pool", "spark.job.description", "spark.jobGroup.id", "spark.job.tags"]


@pytest.mark.contract("exchange:E9")
def test_a_session_that_is_handed_in_stays_as_it_was(spark, tmp_path):
    """Tasks of it are used for views and frames, for files and verification too."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "3")
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    session.conf.set("spark.sql.ansi.enabled", "false")
    session.range(5).createOrReplaceTempView("mine")
    session.range(7).createOrReplaceTempView("x")
    session.catalog.cacheTable("mine")
    session.udf.register("twice", lambda n: 2 * n, "long")
    before = state_of(session)
    (tmp_path / "0.csv").write_text("id\n50\n51\n")
    with tl.open(tmp_path / "ws", create=True, spark=session) as ws, jobs_in(session) as jobs:
        ws.config.set("spark.tasks", "always")
        made, keyed = ws.create("x"), ws.create("keyed", merge=tl.merge.upsert("id"))
        made.append(session.range(0, 50, 1, 3))
        keyed.append(session.range(0, 50, 1, 3))
        made.append(made.view().on_spark(session).sort("id", descending=True))
        assert made.view().on_spark(session).sort("id").skip(3).count() == 97
        assert made.view().join(keyed.view(), on="id").to_spark(session).count() == 100
        assert ws.sql("select count(*) as n from x join keyed using (id)").to_arrow()["n"].to_pylist() == [
            100
        ]
        assert tl.View.from_spark(session.range(9), order_by=["id"]).sort("id").to_spark(session).count() == 9
        keyed.append(str(tmp_path / "0.csv"))
        assert made.verify().ok
    assert any("verify" in job for job in jobs)
    assert state_of(session) == before
    assert session.sql("select sum(twice(id)) as s from mine").toArrow()["s"].to_pylist() == [20]
    assert session.table("x").count() == 7
    session.catalog.clearCache()
