"""What takes the start of several JVMs, once for all tests that look at what it found."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


@pytest.fixture(scope="package")
def deaths(tmp_path_factory):
    """What views and other work found on a cluster whose executors died."""
    # Not before: how much is looked at is known when tests are collected.
    from tests.spark.deaths import some_of_each

    return some_of_each(tmp_path_factory.mktemp("deaths"))


@pytest.fixture(scope="package")
def connect_server(tmp_path_factory):
    """A server of Spark Connect."""
    if find_spec("grpc") is None:
        pytest.skip("Spark Connect needs grpcio: pip install 'pyspark[connect]'")
    from tests.spark.connect_server import serving

    with serving(tmp_path_factory.mktemp("connect")) as found:
        yield found
