"""What every test has: profiles for hypothesis, the contract mark, one Spark for those that ask."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.spark.jvms import QUICK, options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from trueline.spark.session import SparkRoom

WARM = Path(__file__).parent / "spark" / "warm"

pytest_plugins = ["tests.marks", "tests.lanes", "pytester", "trueline.testing.plugin"]

# The same examples in every run of `make test`; `make soak` looks at new ones, its seed printed.
settings.register_profile(
    "test",
    max_examples=50,
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # a check by time: other work on the machine decides it
)
settings.register_profile(
    "soak",
    max_examples=1000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("test")


@pytest.fixture(scope="session", autouse=True)
def nobodys_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The settings of whoever runs the tests decide nothing here, and are not written."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        for name in [name for name in os.environ if name.startswith(("TRUELINE_SPARK_", "TRUELINE_HTTP_"))]:
            environment.delenv(name)
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_jvms() -> Iterator[None]:
    """JVMs of tests live for seconds, and start quickly."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_SUBMIT_OPTS", options())
        environment.setenv("SPARK_LAUNCHER_OPTS", QUICK)
        # Their Python workers are forks of what has loaded everything.
        environment.setenv("PYTHONPATH", str(WARM), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def soak_minutes() -> float:
    """How long a test marked `soak` may explore."""
    return float(os.environ.get("TRUELINE_SOAK_MINUTES", "0.2"))


@pytest.fixture(scope="session")
def spark_room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkRoom]:
    """The one Spark of the whole suite: started when a test first asks for it, ours and pinned."""
    from trueline.spark.session import start
    from trueline.spark.settings import Settings

    small = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        # Code that Spark has compiled for one test serves others; it keeps a hundred classes else.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # What the tests count is of the last jobs: to list a thousand stages takes longer than a small job.
        "spark.ui.retainedStages": "200",
        "spark.ui.retainedJobs": "200",
        "spark.sql.ui.retainedExecutions": "20",
    }
    with pytest.MonkeyPatch.context() as environment:
        # What its workers keep of workspaces in object stores goes with the suite.
        for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
            environment.setenv(name, str(tmp_path_factory.mktemp(name)))
        room = start(Settings(master="local[2]", memory="1g", conf=small))
    yield room
    room.stop()


@pytest.fixture(scope="session")
def spark(spark_room: SparkRoom) -> SparkSession:
    """A session as a user has it, in the Spark of the suite; to change settings, take a `newSession()`."""
    return spark_room.given


@pytest.fixture
def ws(tmp_path):
    import trueline as tl

    with tl.open(tmp_path / "ws", create=True) as workspace:
        yield workspace


@pytest.fixture
def ds(ws):
    return ws.create("trades")
