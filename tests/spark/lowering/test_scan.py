"""Rows that live in one process: tasks read them from files, or they are refused by name (exchange:E7)."""

from __future__ import annotations

import gc
import pickle
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.spark.lowering.nasty import difference, everything, in_process, rows_of, table
from tests.spark.passing import jobs_in
from trueline.errors import EnvironmentMissing, NotPortable
from trueline.spark import frames, frozen_frames, shared_places
from trueline.spark.lowering import deliver, dispatch, places, scan
from trueline.spark.lowering.deliver import delivered
from trueline.spark.lowering.dispatch import LoweringTarget
from trueline.view.execute import pieces
from trueline.view.plan.node import Want


class OneStream:
    """A source that can be read from its start only, in batches of its own."""

    ordinal = None
    origins = {}  # noqa: RUF012 (as sources have it)

    def __init__(self, rows: pa.Table) -> None:
        self.table, self.schema, self.row_count = rows, rows.schema, None

    def batches(self, columns, bounds):
        """Yield the rows."""
        if not columns:
            yield pa.record_batch({"": pa.nulls(self.table.num_rows)}).select([])
            return
        yield from self.table.select(list(columns)).to_batches(max_chunksize=70)

    def explain(self):
        """Say what it is."""
        return ["a stream of ours"]


@pytest.fixture(autouse=True)
def folders_of_nobody_else(monkeypatch, tmp_path):
    """Other processes make such folders too, where temporary files are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def temporary_folders() -> set[Path]:
    gc.collect()
    return set(Path(tempfile.gettempdir()).glob("trueline-rows-*"))


def on_spark(view, session):
    return rows_of(delivered(view.node, everything(view), session))


def test_rows_that_cannot_travel_are_read_from_files_that_go_with_the_reading(spark):
    before = temporary_folders()
    view = tl.View(OneStream(table(300, 3))).filter("i > 0").sort("x")
    assert difference(in_process(view), on_spark(view, spark), view) == ""
    assert temporary_folders() <= before


def test_rows_without_columns_are_still_counted(spark):
    view = tl.View(OneStream(table(300, 3)))
    found = delivered(view.node, Want(()), spark)
    assert sum(chunk.rows for piece in found for chunk in piece.chunks()) == 300


def test_a_large_table_is_a_few_files_of_about_the_same_size(spark, monkeypatch):
    monkeypatch.setattr(dispatch, "_SENT_ALONG", 0)
    monkeypatch.setattr(scan, "_BYTES_OF_A_FILE", 4 << 20)
    view = tl.View.from_arrow(pa.table({"n": range(1_000_000)})).with_columns(m="n + 1")
    assert view.to_spark(spark).rdd.getNumPartitions() <= 5
    found = on_spark(view.sort("m", descending=True).limit(3), spark)
    assert found is not None
    assert found.arrays[0].to_pylist() == [999_999, 999_998, 999_997]


def test_a_piece_of_a_table_takes_its_own_rows_with_it_only():
    view = tl.View.from_arrow(pa.table({"n": range(1_000_000)}))
    sizes = [len(pickle.dumps(piece)) for piece in pieces(view.node, Want((0,)))]
    assert sum(sizes) < 1.1 * 8_000_000


def test_rows_in_files_of_ours_stay_until_they_were_counted(spark, monkeypatch):
    monkeypatch.setattr(dispatch, "_SENT_ALONG", 0)
    view = tl.View.from_arrow(pa.table({"n": range(9), "k": [n % 2 for n in range(9)]}))
    before = temporary_folders()
    assert view.filter("n > 1").on_spark(spark).count() == 7
    assert view.group_by("k").agg(c="count(*)").on_spark(spark).count() == 2
    assert temporary_folders() <= before


@pytest.mark.contract("exchange:E1")
def test_a_frozen_frame_is_computed_once_and_read_by_tasks(spark):
    seen = spark.sparkContext.accumulator(0)

    def counted(batches):
        for batch in batches:
            seen.add(batch.num_rows)
            yield batch

    frame = spark.range(0, 500, 1, 3).mapInArrow(counted, "id long")
    view = tl.View.from_spark(frame).with_columns(k="id % 7").sort("k", descending=True)
    assert difference(in_process(view), on_spark(view, spark), view) == ""
    assert seen.value == 500


def test_a_frame_with_an_order_keeps_it(spark):
    frame = spark.range(0, 500, 1, 3).selectExpr("id % 10 as a", "id as b")
    view = tl.View.from_spark(frame, order_by=["a", "b"]).skip(100)
    assert difference(in_process(view), on_spark(view, spark), view) == ""


def not_shared(*_):
    raise EnvironmentMissing("not to be seen", remedy="share it", code="FolderNotShared")


@pytest.mark.contract("exchange:E7")
@pytest.mark.parametrize("kind", ["stream", "table", "frame"])
def test_a_cluster_refuses_rows_of_one_process_by_name(kind, spark, monkeypatch):
    monkeypatch.setattr(scan, "shares_folders", lambda session: False)
    monkeypatch.setattr(shared_places, "shared_folder", not_shared)
    monkeypatch.setattr(dispatch, "_SENT_ALONG", 0)
    monkeypatch.setattr(frozen_frames, "SMALL", 0)
    monkeypatch.setattr(scan, "SMALL", 0)
    view, name = {
        "stream": lambda: (tl.View(OneStream(table(9, 3))), "a stream of ours"),
        "table": lambda: (tl.View.from_arrow(table(9, 3)), "rows in memory"),
        "frame": lambda: (tl.View.from_spark(spark.range(3)), "Spark frame"),
    }[kind]()
    with pytest.raises(NotPortable, match=name) as error:
        LoweringTarget(spark).lower(view.filter("true").node, everything(view))
    assert error.value.code == "ProcessBound"
    assert "append them to a dataset" in error.value.remedy


# --- beside rows that are elsewhere ---------------------------------------------------------------


@pytest.fixture
def cluster(spark, monkeypatch):
    """A Spark whose machines need not see this one's folders, and to which any rows are many."""
    for module in (scan, places, deliver, frames):
        monkeypatch.setattr(module, "shares_folders", lambda session: False)
    monkeypatch.setattr("trueline.spark.session.is_cluster", lambda session: True)
    monkeypatch.setattr(dispatch, "_SENT_ALONG", 0)
    monkeypatch.setattr(places, "_SMALL", 0)
    return spark


@pytest.fixture
def opened(cluster, tmp_path):
    """A workspace of a cluster with a dataset, which is larger than what is at hand."""
    with tl.open(tmp_path / "ws", create=True, spark=cluster) as ws:
        ws.create("many").append(pa.table({"n": range(900), "k": [n % 7 for n in range(900)]}))
        yield ws


def beside(ws, kind):
    """Return a view of the dataset and of rows that only this process has."""
    names = pa.table({"k": range(5), "name": list("abcde")})
    few = tl.View.from_arrow(names) if kind == "table" else tl.View(OneStream(names))
    return ws["many"].view().join(few, on="k").sort("name")


@pytest.mark.contract("exchange:E7")
@pytest.mark.parametrize("kind", ["table", "stream"])
@pytest.mark.parametrize("size", ["few", "many"])
def test_beside_many_rows_of_a_cluster_those_of_this_process_are_brought_there(
    kind, size, opened, monkeypatch
):
    """Few are sent along; many are written where all machines see them."""
    view = beside(opened, kind)
    expected = view.on_spark(opened._spark.session()).explain().count("sent along if it is small")
    assert expected == 1
    if size == "few":
        monkeypatch.setattr(shared_places, "shared_folder", lambda *_: pytest.fail("a folder"))
    else:
        monkeypatch.setattr(scan, "SMALL", 0)
    before = temporary_folders()
    assert view.explain().startswith("computed on Spark: the session is of a cluster")
    with jobs_in(opened._spark.session()) as jobs:
        found = view.to_arrow()
    assert "running the view" in jobs
    assert found.equals(in_process_of(view))
    assert temporary_folders() <= before


def in_process_of(view):
    return tl.View(view.node).to_arrow()


@pytest.mark.contract("exchange:E7")
@pytest.mark.parametrize("kind", ["table", "stream"])
@pytest.mark.parametrize("way", ["read", "append"])
def test_where_they_cannot_be_brought_they_are_refused_by_name(kind, way, opened, monkeypatch):
    monkeypatch.setattr(scan, "SMALL", 0)
    monkeypatch.setattr(shared_places, "shared_scratch", lambda *_: None)
    monkeypatch.setattr(scan, "shared_scratch", lambda *_: None)
    view, made = beside(opened, kind), opened.create("made")
    before = made.head
    name = "rows in memory" if kind == "table" else "a stream of ours"
    with pytest.raises(NotPortable, match=name) as error:
        view.to_arrow() if way == "read" else made.append(view)
    assert error.value.code == "ProcessBound"
    assert made.head == before


@pytest.mark.contract("exchange:E7")
@pytest.mark.parametrize("kind", ["table", "stream"])
def test_an_append_lends_its_folder_to_rows_of_this_process(kind, opened, monkeypatch):
    monkeypatch.setattr(scan, "SMALL", 0)
    monkeypatch.setattr(shared_places, "shared_folder", lambda *_: pytest.fail("a folder of this machine"))
    view, made = beside(opened, kind), opened.create("made")
    with jobs_in(opened._spark.session()) as jobs:
        made.append(view)
    assert "running the view" in jobs
    assert made.view().to_arrow().equals(in_process_of(view))
    gc.collect()
    left = made.chain.store.place.path.glob("private/scratch/*/**/*")
    assert [path for path in left if path.is_file()] == []


@pytest.mark.contract("exchange:E7")
def test_what_only_this_process_has_stays_here(opened):
    view = tl.View.from_arrow(pa.table({"k": range(5)})).sort("k")
    found = places.advise(view.node, opened._spark.session())
    assert (found.is_spark, "a cluster cannot read rows in memory" in found.why) == (False, True)
