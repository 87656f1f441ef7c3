"""Where a view is computed: asked for, or chosen by what it rests on; `explain()` says so before it runs."""

from __future__ import annotations

from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.spark.passing import jobs_in
from trueline import types as t
from trueline.errors import ConfigError
from trueline.spark.lowering import dispatch, places


@contextmanager
def jobs_of(session):
    """Count the jobs that are started inside."""
    scheduler = session.sparkContext._jsc.sc().dagScheduler()
    found, before = [], scheduler.numTotalJobs()
    yield found
    found.append(scheduler.numTotalJobs() - before)


@pytest.fixture
def numbers(tmp_path):
    pq.write_table(pa.table({"n": range(900), "k": [n % 7 for n in range(900)]}), tmp_path / "n.parquet")
    return tl.View.read_parquet(str(tmp_path / "n.parquet"))


def test_all_that_is_made_of_it_runs_on_spark_wherever_it_is_read(numbers, spark, tmp_path):
    here = numbers.filter("n > 5").sort("k", descending=True).with_columns(m="n + k")
    there = numbers.on_spark(spark).filter("n > 5").sort("k", descending=True).with_columns(m="n + k")
    expected = here.to_arrow()
    ways = {
        "to_arrow": there.to_arrow,
        "batches": lambda: pa.Table.from_batches(there.batches()),
        "rows": lambda: pa.Table.from_pylist(list(there.rows()), expected.schema),
        "write_parquet": lambda: (there.write_parquet(tmp_path / "o.parquet"), read(tmp_path))[1],
    }
    for name, way in ways.items():
        with jobs_of(spark) as jobs:
            assert way().equals(expected), name
        assert jobs[0] > 0, name
    with jobs_of(spark) as jobs:
        assert there.count() == 894
        assert there.preview(2).tables[0].rows == here.preview(2).tables[0].rows
    assert jobs[0] >= 2


def read(folder):
    return pq.read_table(folder / "o.parquet").replace_schema_metadata(None)


def test_cursors_share_the_rows_with_their_ids(numbers, spark):
    view = numbers.sort("k")
    found = {}
    for cursor in view.on_spark(spark).cursor_set(["n"], 3):
        with cursor:
            get = cursor.getter("n")
            while cursor.move_next():
                found[cursor.id.low] = get()
    assert found == {n: n for n in range(900)}


def test_a_shuffled_cursor_has_the_order_of_this_process(numbers, spark):
    kept = numbers.cache()
    orders = []
    for view in (kept, kept.on_spark(spark)):
        with view.cursor("n", seed=3) as cursor:
            get, order = cursor.getter("n"), []
            while cursor.move_next():
                order.append(get())
        orders.append(order)
    assert orders[0] == orders[1] != sorted(orders[0])


def test_a_dataset_takes_a_view_that_runs_on_spark(numbers, spark, tmp_path):
    with tl.open(tmp_path / "ws", create=True, spark=spark) as ws:
        here, there = ws.create("here"), ws.create("there")
        here.append(numbers.sort("k"))
        with jobs_of(spark) as jobs:
            there.append(numbers.on_spark(spark).sort("k"))
        assert jobs[0] > 0
        assert there.view().to_arrow().equals(here.view().to_arrow())


@pytest.mark.contract("exchange:E1")
@pytest.mark.parametrize("name", ["read", "sort", "group", "join", "append"])
def test_cells_that_tasks_find_bad_are_counted_once(name, spark, tmp_path, caplog):
    """Whichever job of a view reads them, and however often (decision 2)."""
    for number, cells in enumerate(("1,a\n", "x,b\n", "3,c\ny,d\n")):
        (tmp_path / f"{number}.csv").write_text(f"n,t\n{cells}")
    given = pa.schema({"n": pa.int64(), "t": pa.string()})
    found = []
    for engine in (None, spark):
        files = tl.View.read_csv(str(tmp_path / "*.csv"), schema=given).filter("t <> 'a' or n = 1")
        # The codes of a table: another kind of source, of whose rows a pass is counted.
        coded = pa.schema([t.field("c", t.category(3))])
        codes = tl.View.from_arrow(pa.table([pa.array([0, 7, 1, 9], pa.uint32())], schema=coded))
        rows = {
            "read": files,
            "sort": files.sort("n"),
            "group": files.group_by("t").agg(s="sum(n)"),
            "join": files.join(codes.with_columns(t="'b'"), on="t"),
            "append": files.sort("t"),
        }[name]
        view = rows if engine is None else rows.on_spark(engine)
        if name == "append":
            with tl.open(tmp_path / f"ws{len(found)}", create=True, spark=engine) as ws:
                ws.create("x").append(view)
        else:
            for _ in range(2):
                view.to_arrow()
        found.append((view.bad, sorted(text for text in caplog.messages if text.endswith("are null"))))
        caplog.clear()
    assert found[0] == found[1]
    assert found[0][0] == {"n": 2} | ({"c": 2} if name == "join" else {})
    assert len(found[0][1]) == 2


@pytest.mark.contract("exchange:E7")
def test_explain_says_where_each_step_runs_and_starts_nothing(numbers, spark):
    view = numbers.on_spark(spark).filter("n > 5").sort("k").skip(3)
    with jobs_of(spark) as jobs:
        text = view.explain().splitlines()
    assert jobs == [0]
    assert text[0] == "computed on Spark: asked for"
    steps = [line.strip().removeprefix("on Spark: ") for line in text if "on Spark: " in line][1:]
    assert [step.split(",")[0].split(";")[0] for step in steps] == [
        "rows by number",
        "each row gets its place",
        "in the tasks that have the rows",
        "read by tasks",
    ]
    assert "counted first" in steps[0]


NUMBERED = {
    "rows": lambda v: v,
    "sort": lambda v: v.sort("k"),
    "shuffle": lambda v: v.sort("k").shuffle(1),
    "filter of sorted": lambda v: v.sort("k").filter("n > 1"),
    "group": lambda v: v.group_by("k").agg(s="sum(n)"),
    "group of sorted": lambda v: v.sort("n").group_by("k").agg(s="first(n)"),
    "join": lambda v: v.join(v.rename(m="n"), on="k", how="full"),
    "join of sorted": lambda v: v.join(v.rename(m="n").sort("m"), on="k"),
    "as of": lambda v: v.join(v, on="k", as_of="n", how="full"),
    "window by a key": lambda v: v.sort("n").window(1, by="k", s="sum(n)"),
    "concat": lambda v: v.concat(v.sort("k")),
    "first of sorted": lambda v: v.sort("k").limit(50),
    "skip": lambda v: v.sort("k").skip(2),
}


@pytest.mark.contract("exchange:E7")
@pytest.mark.parametrize("name", NUMBERED)
def test_explain_names_the_jobs_that_choose_ranges_before_rows_are_counted(name, spark):
    rows = tl.View.from_arrow(pa.table({"n": range(90), "k": [n % 7 for n in range(90)]})).filter("n >= 0")
    view = NUMBERED[name](rows).skip(1)
    said = view.on_spark(spark).explain().split("on Spark: ")[2].splitlines()[0]
    with jobs_in(spark) as jobs:
        view.to_spark(spark)
    assert "counted first, by jobs" in said
    assert jobs[-1] == "counting rows"
    if name == "skip":
        # The ranges of the step below.
        assert "takes a sample" in view.on_spark(spark).explain().split("on Spark: ")[3].splitlines()[0]
        return
    assert ("choosing ranges" in jobs) == ("a job takes a sample of its order to choose ranges" in said)


def engine_of_views(ws, view):
    """Return what `explain` says first of a view that the workspace has a choice for."""
    return type(view)(view.node, ws._spark.session, ws._spark.choice).explain().splitlines()[0]


def test_auto_takes_spark_for_frames_and_for_many_bytes(numbers, spark, tmp_path, monkeypatch):
    with tl.open(tmp_path / "ws", create=True, spark=spark) as ws:
        assert ws.config["views.engine"] == "auto"
        moved = numbers.sort("k")
        assert engine_of_views(ws, moved).startswith("computed in this process: it rests on about 0 MiB")
        frame = tl.View.from_spark(spark.range(3))
        assert engine_of_views(ws, frame) == "computed in this process: no step moves rows"
        assert engine_of_views(ws, frame.sort("id")) == "computed on Spark: it rests on a Spark frame"
        monkeypatch.setattr(places, "_BUDGET", 900 * 16 - 1)
        assert engine_of_views(ws, numbers) == "computed in this process: no step moves rows"
        assert engine_of_views(ws, moved).startswith("computed on Spark: it rests on about")


def test_a_frame_that_is_computed_and_small_stays_here(spark):
    frame = tl.View.from_spark(spark.range(0, 9, 1, 2))
    moved = frame.sort("id", descending=True)
    assert moved.explain().splitlines()[0] == "computed on Spark: it rests on a Spark frame"
    assert moved.to_arrow()["id"].to_pylist() == list(range(8, -1, -1))
    assert moved.explain().splitlines()[0].startswith("computed in this process: it rests on about 0 MiB")
    with jobs_of(spark) as jobs:
        assert moved.to_arrow()["id"].to_pylist() == list(range(8, -1, -1))
    assert jobs == [0]


def test_on_a_cluster_auto_takes_it_for_all_but_the_small(numbers, spark, tmp_path, monkeypatch):
    monkeypatch.setattr(places, "shares_folders", lambda session: False)
    with tl.open(tmp_path / "ws", create=True, spark=spark) as ws:
        for view in (numbers, numbers.sort("k")):
            monkeypatch.setattr(places, "_SMALL", 900 * 16)
            assert engine_of_views(ws, view).startswith("computed in this process: it rests on about 0 MiB")
            monkeypatch.setattr(places, "_SMALL", 900 * 16 - 1)
            assert engine_of_views(ws, view) == "computed on Spark: the session is of a cluster"
        frame = tl.View.from_spark(spark.range(3))
        for view in (frame, frame.filter("id > 1"), frame.sort("id"), frame.join(numbers, on={"id": "n"})):
            assert engine_of_views(ws, view) == "computed on Spark: it rests on a Spark frame"
        monkeypatch.setattr(dispatch, "_SENT_ALONG", 0)
        large = tl.View.from_arrow(pa.table({"id": [1]}))
        assert "a cluster cannot read rows in memory" in engine_of_views(ws, large)
        # What is elsewhere does not come here for the sake of what is not.
        both = frame.join(large, on="id")
        assert engine_of_views(ws, both) == "computed on Spark: it rests on a Spark frame"
        many = numbers.join(large, on={"n": "id"})
        assert engine_of_views(ws, many) == "computed on Spark: the session is of a cluster"
        monkeypatch.setattr(places, "_SMALL", 900 * 16)
        assert "a cluster cannot read rows in memory" in engine_of_views(ws, many)


def test_a_small_view_is_read_here_and_a_session_is_never_made_to_choose(spark, tmp_path):
    with tl.open(tmp_path / "ws", create=True, spark=spark) as ws:
        ws.create("x").append(pa.table({"a": [3, 1, 2]}))
        with jobs_of(spark) as jobs:
            assert ws["x"].view().sort("a").to_arrow()["a"].to_pylist() == [1, 2, 3]
        assert jobs == [0]
        assert not ws._spark._rooms


def test_a_session_that_was_stopped_is_not_at_hand(numbers):
    class Stopped:
        """What a session is once its Spark was stopped."""

        sparkContext = type("Context", (), {"_jsc": None})()  # noqa: N815 (Spark's own name)

    found = places.advise(numbers.sort("k").node, Stopped())
    assert (found.is_spark, found.why) == (False, "the Spark that was at hand is stopped")


def test_the_setting_decides_for_all_views_of_a_workspace(spark, tmp_path):
    with tl.open(tmp_path / "ws", create=True, spark=spark) as ws:
        ws.create("x").append(pa.table({"a": [3, 1, 2]}))
        ws.config.set("views.engine", "spark")
        assert "computed on Spark: asked for" in ws["x"].view().sort("a").explain()
        assert ws["x"].view().sort("a").to_arrow()["a"].to_pylist() == [1, 2, 3]
        ws.config.set("views.engine", "process")
        assert "computed in this process: asked for" in ws["x"].view().sort("a").explain()
        with pytest.raises(ConfigError, match=r"views\.engine"):
            ws.config.set("views.engine", "elsewhere")


def test_a_workspace_without_a_session_starts_none_to_choose(ws):
    ws.create("x").append(pa.table({"a": [3, 1, 2]}))
    assert "computed" not in ws["x"].view().sort("a").explain()
    assert not ws._spark._rooms
