"""A server of Spark Connect that sees no folder of its client: what cannot work is refused by name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.examples import is_soak
from tests.spark import connect_elsewhere
from tests.spark.cluster import PATHS, Daemon
from trueline.spark import java

pytestmark = [pytest.mark.jvm, pytest.mark.sampled, pytest.mark.timeout(600)]
CHECKS = [name for name in vars(connect_elsewhere) if name.startswith("check_")]
# Mounts an empty folder over that of the client, for the server alone.
_HIDDEN = 'mount -t tmpfs tmpfs "$1" && shift && exec "$@"'


def hiding(folder) -> list[str]:
    """Return the words that start a process which sees nothing in a folder."""
    return ["unshare", "--mount", "--map-root-user", "sh", "-c", _HIDDEN, "sh", str(folder)]


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What each check said."""
    if find_spec("grpc") is None:
        pytest.skip("Spark Connect needs grpcio: pip install 'pyspark[connect]'")
    folder = tmp_path_factory.mktemp("connect")
    client, server = folder / "client", folder / "server"
    client.mkdir()
    server.mkdir()
    if shutil.which("unshare") is None or subprocess.run([*hiding(client), "true"], check=False).returncode:
        pytest.skip("hiding a folder from a process needs mount namespaces")
    environment = {
        "JAVA_HOME": str(java.home_for_spark(java.find())),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": PATHS,
        "PYSPARK_PYTHON": sys.executable,
        "TMPDIR": str(server),
    }
    conf = {"spark.connect.grpc.binding.port": "0", "spark.sql.shuffle.partitions": "2"}
    arguments = ["--master", "local[2]", *(f"--conf={name}={value}" for name, value in conf.items())]
    arguments += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    names = [] if is_soak() else connect_elsewhere.VIEWS
    daemon = Daemon("SparkSubmit", arguments, environment, hiding(client))
    try:
        port = daemon.wait_for(r"Spark Connect server started at: .*:(\d+)").group(1)
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.connect_elsewhere", f"sc://127.0.0.1:{port}", *names],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": PATHS, "TMPDIR": str(client)},
            timeout=500,
        )
    finally:
        daemon.end()
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.contract("exchange:E7")
@pytest.mark.parametrize("check", CHECKS)
def test_it_holds_where_no_folder_is_shared(check, said):
    assert list(said) == CHECKS
    assert said[check] == "ok", said[check]
