"""What passes the driver while views run on Spark: names of files, counts, a sample of the order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.examples import some
from tests.spark.lowering.counting import Passed, counted
from tests.spark.lowering.nasty import everything
from trueline.spark import packing
from trueline.spark.lowering import limit
from trueline.spark.lowering.deliver import delivered
from trueline.spark.lowering.dispatch import LoweringTarget

# Of both, tasks take a sample of the order that is as large as it gets.
FEW, MANY = 8_000, 32_000
PAYLOAD = 100
# A number for each further row would be more.
BYTES_OF_A_ROW = 8


# The smaller side of a join without keys, in more parts than the larger; that it is small is not known.
IN_PARTS = tl.View.concat(*(tl.View.from_arrow(pa.table({"m": [part], "t": ["c"]})) for part in range(3)))


def written(folder, count):
    """Return a view of rows whose payload cannot be compressed, in a file of four groups."""
    random = np.random.default_rng(5)
    raw = random.bytes(count * PAYLOAD)
    payload = pa.array([raw[at * PAYLOAD : (at + 1) * PAYLOAD] for at in range(count)])
    made = pa.table({"n": range(count), "k": random.integers(0, 500, count), "p": payload})
    pq.write_table(made, folder / f"{count}.parquet", row_group_size=count // 4)
    return tl.View.read_parquet(str(folder / f"{count}.parquet"))


@pytest.fixture(scope="module")
def few_and_many(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    return written(folder, FEW), written(folder, MANY)


def views(rows):
    other = rows.select("n", "p").rename(q="p")
    return {
        "filter": rows.filter("k > 3"),
        "sort": rows.sort("k"),
        "shuffle": rows.shuffle(1),
        "group": rows.group_by("n").agg(p="first(p)"),
        "join": rows.join(other, on="n"),
        "cross": rows.join(IN_PARTS, how="cross").filter("n % 10 = m"),
        "window": rows.window(1, 1, s="sum(k)"),
        "window by a key": rows.window(1, 1, by="k", s="sum(n)"),
        "rank": rows.window(r="rank(k)"),
        "limit": rows.sort("k").limit(7_000),
        "skip": rows.sort("k").skip(10),
        "zip": rows.sort("k").zip(rows.select("p").rename(q="p")),
        "sample": rows.sort("k").sample(1.5, seed=3, replace=True),
    }


NAMES = list(views(tl.View.from_arrow(pa.table({"n": [1], "k": [1], "p": [b""]}))))


@pytest.mark.contract("exchange:E2")
@pytest.mark.parametrize("name", NAMES)
def test_what_passes_the_driver_does_not_grow_with_the_rows(name, few_and_many, spark, monkeypatch):
    monkeypatch.setattr(limit, "_FEW", 100)
    few, many = (delivering(views(rows)[name], spark) for rows in few_and_many)
    assert few.jobs == many.jobs > 0
    assert few.bytes > 0
    assert many.bytes < few.bytes + (MANY - FEW) * BYTES_OF_A_ROW


def delivering(view, session) -> Passed:
    """Count what passes the driver until the first row can be read."""
    parts = delivered(view.node, everything(view), session)
    with counted(session) as passed:
        next(parts[0].chunks(), None)
    return passed


def test_rows_that_a_frame_is_asked_for_are_counted(few_and_many, spark):
    """The count above can fail: rows that are collected are seen by it."""
    with counted(spark) as passed:
        few_and_many[0].to_spark(spark).toArrow()
    assert passed.bytes > FEW * PAYLOAD


# Counting the rows of a side takes two jobs of Spark, which runs each exchange as one; where rows are sorted
# a sample of their order comes before it, and one of the values where they are ranked.
JOBS_OF_A_PLAN = {"window": 2, "rank": 3, "limit": 3, "skip": 3, "zip": 5}


@pytest.mark.contract("exchange:E2")
@pytest.mark.parametrize("name", NAMES)
def test_to_spark_starts_no_job_but_those_that_explain_names(name, few_and_many, spark, monkeypatch):
    monkeypatch.setattr(limit, "_FEW", 100)
    view = views(few_and_many[0])[name]
    is_counted = "counted first" in view.on_spark(spark).explain()
    with counted(spark) as passed:
        view.to_spark(spark)
    assert is_counted == (passed.jobs > 0)
    assert passed.jobs == JOBS_OF_A_PLAN.get(name, 0)


# --- what else runs a view ----------------------------------------------------------------------


def appended(rows, session, folder):
    with tl.open(folder, create=True, spark=session) as ws:
        made = ws.create("x")
        made.append(rows.on_spark(session).sort("k"))
        return made.info.rows


def queried(rows, session, folder):
    with tl.open(folder, create=True, spark=session) as ws:
        ws.create("x", merge=tl.merge.upsert("n")).append(rows)
        with counted(session) as passed:
            found = ws.sql("select k, count(p) as rows, max(p) as p from x group by k").count()
    return found, passed


@pytest.mark.contract("exchange:E2")
def test_appending_a_view_brings_names_and_counts_only(few_and_many, spark, tmp_path):
    found = []
    for rows, count in zip(few_and_many, (FEW, MANY), strict=True):
        with counted(spark) as passed:
            assert appended(rows, spark, tmp_path / str(count)) == count
        found.append(passed)
    assert found[0].jobs == found[1].jobs > 0
    assert found[1].bytes < found[0].bytes + (MANY - FEW) * BYTES_OF_A_ROW


@pytest.mark.contract("exchange:E2")
def test_counting_a_view_brings_numbers_only(few_and_many, spark):
    found = []
    for rows, count in zip(few_and_many, (FEW, MANY), strict=True):
        view = rows.filter("k >= 0").sort("k").on_spark(spark)
        with counted(spark) as passed:
            assert view.count() == count
        found.append(passed)
    assert found[0].jobs == found[1].jobs > 0
    assert found[1].bytes < found[0].bytes + 1_000


@pytest.mark.contract("exchange:E2")
def test_a_query_brings_its_answer_only(few_and_many, spark, tmp_path):
    found = [queried(rows, spark, tmp_path / str(place)) for place, rows in enumerate(few_and_many)]
    assert [count for count, _ in found] == [500, 500]
    assert found[1][1].bytes < found[0][1].bytes + (MANY - FEW) * BYTES_OF_A_ROW


def sides_of_a_query(rows, session, folder):
    """Count what passes the driver while a query joins two datasets, the larger of which is `b`."""
    with tl.open(folder, create=True, spark=session) as ws:
        for name in ("a", "b"):
            ws.create(name, merge=tl.merge.upsert("n")).append(rows if name == "b" else rows.filter("k < 9"))
        with counted(session) as passed:
            found = ws.sql("select a.k, max(b.p) as p from a join b using (n) group by a.k").count()
    return found, passed


@pytest.mark.contract("exchange:E2")
def test_no_side_of_a_query_over_keyed_datasets_passes_the_driver(few_and_many, spark, tmp_path):
    found = [sides_of_a_query(rows, spark, tmp_path / str(place)) for place, rows in enumerate(few_and_many)]
    assert [count for count, _ in found] == [9, 9]
    assert found[1][1].bytes < found[0][1].bytes + (MANY - FEW) * BYTES_OF_A_ROW


@pytest.mark.contract("exchange:E2")
@pytest.mark.parametrize("how", ["inner", "left_semi"])
def test_frames_of_views_are_not_taken_for_small(few_and_many, spark, how):
    """Spark would collect one of them in the driver, to send it to all executors."""
    few, many = few_and_many
    read, moved = few.filter("k >= 0").to_spark(spark), many.group_by("n").agg(s="sum(k)").to_spark(spark)
    for one, other in ((read, moved), (moved, read)):
        plan = one.join(other.where("n >= 0").select("n"), "n", how)._jdf.queryExecution()
        assert "Broadcast" not in plan.executedPlan().toString()


def test_a_frame_whose_size_is_known_to_be_small_may_be_sent_around(few_and_many, spark, tmp_path):
    """Rows of a known number and width, in a session that allows as many bytes; of keyed ones the most."""
    few, many = few_and_many
    with tl.open(tmp_path / "ws", create=True) as ws:
        keyed = ws.create("keyed", merge=tl.merge.upsert("n"))
        keyed.append(few.select("n", "k"))
        views = few.select("n", "k").with_columns(m="n + 1"), keyed.view()
    session = spark.newSession()
    for limit_of_bytes, is_sent in (("1m", True), ("100", False)):
        session.conf.set("spark.sql.autoBroadcastJoinThreshold", limit_of_bytes)
        session.conf.set("spark.sql.adaptive.enabled", "false")
        for view in views:
            joined = many.filter("k >= 0").to_spark(session).join(view.to_spark(session), "n")
            plan = joined._jdf.queryExecution().executedPlan().toString()
            assert ("Broadcast" in plan) == is_sent


@pytest.mark.contract("exchange:E2")
def test_cursors_read_what_tasks_wrote(few_and_many, spark):
    sizes = []
    for rows in few_and_many:
        with counted(spark) as passed:
            for cursor in rows.on_spark(spark).sort("k").cursor_set(["p"], 2):
                with cursor:
                    cursor.move_next()
        sizes.append(passed.bytes)
    assert sizes[1] < sizes[0] + (MANY - FEW) * BYTES_OF_A_ROW


@pytest.mark.contract("exchange:E2")
def test_a_file_of_a_view_is_written_from_what_tasks_wrote(few_and_many, spark, tmp_path):
    sizes = []
    for place, rows in enumerate(few_and_many):
        with counted(spark) as passed:
            rows.on_spark(spark).sort("k").write_parquet(tmp_path / f"{place}.parquet")
        sizes.append(passed.bytes)
    assert sizes[1] < sizes[0] + (MANY - FEW) * BYTES_OF_A_ROW
    written = pq.read_table(tmp_path / "1.parquet", columns=["n"])
    assert written.equals(few_and_many[1].sort("k").select("n").to_arrow())


@pytest.mark.sampled
@pytest.mark.contract("exchange:E2")
def test_frames_are_made_of_nothing_that_is_here_but_of_no_rows(few_and_many, spark, tmp_path, monkeypatch):
    """`createDataFrame` sends rows through the driver: whatever runs, it is asked for frames without any."""
    from pyspark.sql import SparkSession

    real, sizes = SparkSession.createDataFrame, []

    def noted(self, data, *args, **options):
        sizes.append(data.num_rows if isinstance(data, pa.Table) else len(list(data)))
        return real(self, data, *args, **options)

    monkeypatch.setattr(SparkSession, "createDataFrame", noted)
    for view in some(views(few_and_many[0]).values(), 4):
        view.to_spark(spark)
        delivering(view, spark)
    tl.View.from_arrow(pa.table({"n": range(FEW)})).sort("n").to_spark(spark).count()
    tl.View.from_arrow(pa.table({"n": pa.array([], pa.int64())})).to_spark(spark).count()
    appended(few_and_many[0], spark, tmp_path / "a")
    queried(few_and_many[0], spark, tmp_path / "q")
    assert sizes
    assert set(sizes) == {0}


def test_a_task_is_sent_few_of_many_pieces(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "_BYTES_SENT", 30)
    assert packing.shares([b"x" * 10] * 7) == [range(3), range(3, 6), range(6, 7)]
    assert packing.shares([b"x", b"x" * 99, b"x"]) == [range(1), range(1, 2), range(2, 3)]
    assert packing.shares([]) == [range(0)]
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text(f"n,t\n{number},a\nx,b\n")
    given = pa.schema({"n": pa.int64(), "t": pa.string()})
    rows = tl.View.read_csv(str(tmp_path / "*.csv"), schema=given)
    for view in (rows, rows.sort("n"), rows.skip(2), rows.group_by("t").agg(s="sum(n)")):
        found = LoweringTarget(spark).lower(rows.node, everything(rows))
        assert found.base._jdf.queryExecution().analyzed().toString().count("MapInArrow") == 3
        there = view.on_spark(spark)
        assert there.to_arrow().equals(view.to_arrow())
        assert there.bad == {"n": 3}
    assert sorted(map(tuple, rows.drop_nulls().to_spark(spark).collect())) == [(0, "a"), (1, "a"), (2, "a")]


# --- to_spark is lazy ---------------------------------------------------------------------------


@pytest.fixture
def datasets(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws:
        many, keyed = ws.create("many"), ws.create("keyed", merge=tl.merge.upsert("n"))
        for part in range(40):
            rows = pa.table({"n": [part], "d": pa.array([part * 1_000], pa.timestamp("ns")), "s": ["x"]})
            many.append(rows)
            if part < 3:
                keyed.append(rows)
        yield {
            "many slices": many.view().select("n", "s"),
            "many slices of types that tasks read": many.view(),
            "moved": many.view().select("n", "s").sort("s"),
            "keyed": keyed.view(),
            "keyed, moved": keyed.view().sort("s"),
            "joined": many.view().join(keyed.view().rename(t="s", e="d"), on="n"),
            "a table": tl.View.from_arrow(pa.table({"n": range(300_000)})).sort("n"),
        }


@pytest.mark.contract("exchange:E2")
def test_to_spark_of_datasets_starts_no_job(datasets, spark):
    """Spark lists more than 32 paths by a job of its own."""
    expected = {"a table": 300_000, "joined": 3, "keyed": 3, "keyed, moved": 3}
    for name, view in datasets.items():
        with counted(spark) as passed:
            frame = view.to_spark(spark)
        assert passed.jobs == 0, name
        assert frame.count() == expected.get(name, 40), name
