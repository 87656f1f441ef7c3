"""Where Spark works for a workspace: one room, lazily, left on close, and never the user's own session."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pyarrow as pa
import pytest

import trueline as tl
from trueline.errors import ConfigError, InputError
from trueline.spark import session as sessions
from trueline.spark.settings import Settings
from trueline.workspace.config import Config


@pytest.fixture
def entered(monkeypatch):
    """The rooms that are made, in order."""
    made = []
    init = sessions.SparkRoom.__init__

    def counted(room, *args):
        init(room, *args)
        made.append(room)

    monkeypatch.setattr(sessions.SparkRoom, "__init__", counted)
    return made


@pytest.fixture
def opened(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws:
        ws.create("sales").append(pa.table({"x": [1, 2]}))
    return lambda **how: tl.open(tmp_path / "ws", **how)


def test_a_workspace_has_one_room_whatever_is_done_in_it(opened, spark, entered):
    before = spark.conf.getAll
    with opened(spark=spark) as ws:
        assert entered == [], "nothing is started before it is needed"
        for _ in range(2):
            ws["sales"].append(spark.range(3).selectExpr("id as x"))
            assert ws.sql("select sum(x) as s from sales").to_arrow().num_rows == 1
            assert ws["sales"].view().filter("x > 1").to_spark().sparkSession is ws._spark.first.session
        (room,) = entered
        assert room.given is spark
        assert ws._spark.first is room
    assert room._made == [], "and on close it is left"
    assert spark.conf.getAll == before
    assert spark.range(2).count() == 2


def test_a_workspace_without_one_of_its_own_works_in_the_spark_of_the_frame(opened, spark, entered):
    with opened() as ws:
        ws["sales"].append(spark.range(3).selectExpr("id as x"))
        other = spark.newSession()
        ws["sales"].append(other.range(3).selectExpr("id as x"))
        ws.sql("select 1").count()
        assert len(entered) == 1


def test_the_session_of_a_query_is_given_back_with_its_view(opened, spark):
    with opened(spark=spark) as ws:
        room = ws._spark.first
        alive = len(room._made)
        view = ws.sql("select x + 1 as y from sales")
        rest = view.select("y").limit(1)
        assert len(room._made) == alive + 1
        del view
        assert rest.to_arrow().num_rows == 1
        del rest
        gc.collect()
        assert len(room._made) == alive
        with pytest.raises(InputError):
            ws.sql("select nothing from sales")
        gc.collect()
        assert len(room._made) == alive, "also where the query was refused"


def test_closing_a_workspace_leaves_the_spark_of_the_process_alone(opened, spark, entered):
    with opened() as first, opened() as second:
        assert first.sql("select 1 as x").count() == 1
        first.close()
        assert second.sql("select 2 as x").count() == 1
        assert first.sql("select 3 as x").count() == 1, "it can be used again"
    assert spark.range(2).count() == 2


def test_another_master_than_that_of_the_process_is_refused(opened, spark):
    with opened(spark=spark.sparkContext.master) as ws:
        assert ws.sql("select 1 as x").count() == 1
    with opened(spark="local[7]") as ws, pytest.raises(InputError) as refused:
        ws.sql("select 1")
    assert refused.value.code == "OtherSpark"


@pytest.mark.parametrize("asked", ["", "local[0]", "local[x]", "sc://", "sc://:1", "cluster", 4, object()])
def test_what_can_be_no_spark_is_refused_when_the_workspace_is_opened(opened, asked):
    with pytest.raises(InputError) as refused:
        opened(spark=asked)
    assert refused.value.code == "BadSpark"


def test_settings_say_where_spark_runs(opened, monkeypatch):
    asked = []
    room = SimpleNamespace(is_stopped=False, stop=lambda: None)
    monkeypatch.setattr(sessions, "enter", lambda *args: asked.append(args) or room)
    with opened() as ws:
        assert ws._spark.first is ws._spark.first is room
        for name, value in (("master", "local[3]"), ("remote", "sc://host:15002"), ("driver.memory", "2g")):
            ws.config.set(f"spark.{name}", value)
    with opened() as ws:
        _ = ws._spark.first
        room.is_stopped = True
        _ = ws._spark.first
    assert asked == [
        (None, Settings()),
        (None, chosen := Settings(master="local[3]", remote="sc://host:15002", memory="2g")),
        (None, chosen),
    ]


def test_an_address_comes_before_what_the_settings_say(monkeypatch, spark):
    asked = []
    monkeypatch.setattr(sessions, "_connected", lambda address: asked.append(address) or spark)
    settings = Settings(remote="sc://settings:1")
    sessions.enter("sc://asked:2", settings).stop()
    sessions.enter(None, settings).stop()
    sessions.enter(spark.sparkContext.master, settings).stop()
    assert asked == ["sc://asked:2", "sc://settings:1"]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "spark.master",
            ["local", "local[*]", "local[4]", "local[2,3]", "spark://h:7077", "yarn"],
            ["x", 4, "local[]"],
        ),
        ("spark.remote", ["sc://h", "sc://h:15002/;token=x"], ["http://h", "sc://", "sc:// h", True]),
        ("spark.driver.memory", ["4g", "512m", "1tb"], ["4", "g", "0g", "4 g", "-1g", 4]),
    ],
)
def test_settings_of_spark_are_checked(name, good, bad):
    kept = []
    for value in good:
        config = Config("format = 1", lambda _, text: kept.append(text))
        config.set(name, value)
        assert Config(kept[-1], lambda _, text: kept.append(text))[name] == value
    for value in bad:
        with pytest.raises(ConfigError, match="write it like"):
            Config("format = 1", lambda _, text: kept.append(text)).set(name, value)
