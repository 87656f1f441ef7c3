"""Starting and adopting Spark: once, lazily, with clear errors. What is the same on Connect: smoke.py."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from trueline.errors import EnvironmentMissing, InputError
from trueline.spark import launch, session
from trueline.spark.settings import SQL_SETTINGS, Settings


@pytest.fixture
def fresh(monkeypatch):
    """As if this process had asked for no Spark yet."""
    monkeypatch.setattr(session._Process, "room", None)


def test_many_threads_that_ask_at_once_start_one_spark(spark, fresh, monkeypatch):
    started = []

    def pretend(settings):
        started.append(settings)
        return SimpleNamespace(session=spark, stop=lambda: None, said=lambda: "")

    monkeypatch.setattr(session, "launch", pretend)
    monkeypatch.setattr(session, "_running", lambda: None)
    monkeypatch.setattr(session.atexit, "register", lambda *_: None)
    together, rooms = threading.Barrier(8, timeout=30), []

    def ask():
        together.wait()
        rooms.append(session.start(Settings(master="local[2]")))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(started) == 1
    assert len(rooms) == 8
    assert len(set(map(id, rooms))) == 1


def test_a_spark_the_process_already_has_is_used_and_not_stopped(spark, fresh):
    room = session.start()
    assert not room.is_ours
    assert room.session.sparkContext is spark.sparkContext
    room.stop()
    assert spark.range(2).count() == 2


def test_what_is_no_session_is_refused():
    with pytest.raises(InputError, match="SparkSession"):
        session.adopt("local[2]")


def test_without_pyspark_the_remedy_is_named(fresh, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyspark"]:
        monkeypatch.setitem(sys.modules, name, None)
    for ask in (
        session.start,
        lambda: session.start(Settings(remote="sc://localhost")),
        lambda: launch.launch(Settings()),
    ):
        with pytest.raises(EnvironmentMissing, match=r"trueline\[spark\]"):
            ask()


def test_a_jvm_that_does_not_start_is_quoted():
    with pytest.raises(EnvironmentMissing) as caught:
        launch.launch(Settings(memory="1k"))
    assert caught.value.code == "SparkMissing"
    assert "heap" in caught.value.problem.lower() or "memory" in caught.value.problem.lower()
    assert "doctor" in caught.value.remedy


def test_what_the_jvm_says_can_be_read(spark_room):
    spark_room.session.sparkContext._jvm.System.err.println("something odd")
    assert "something odd" in spark_room.said()


def test_the_environment_is_as_before(spark_room):
    import os

    before = dict(os.environ)
    with launch._environment({"JAVA_HOME": "elsewhere", "TRUELINE_NEW": "1"}):
        assert os.environ["JAVA_HOME"] == "elsewhere"
    assert dict(os.environ) == before


def test_a_local_spark_listens_on_this_machine_only_and_a_cluster_is_not_told_so():
    local = Settings(master="local[3]").conf_of_spark()
    assert local["spark.driver.bindAddress"] == local["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in Settings(master="spark://host:7077").conf_of_spark()
    assert [
        Settings(master=m).is_local for m in ("local", "local[*]", "local-cluster[2,1,1024]", "yarn")
    ] == [
        True,
        True,
        True,
        False,
    ]


def test_settings_of_the_user_win():
    conf = Settings(memory="3g", ui=True, conf={"spark.app.name": "mine", "spark.x": 1}).conf_of_spark()
    found = [conf[key] for key in ("spark.driver.memory", "spark.ui.enabled", "spark.app.name", "spark.x")]
    assert found == ["3g", "true", "mine", "1"]
    assert conf["spark.pyspark.python"] == sys.executable
    assert conf.items() >= SQL_SETTINGS.items()
