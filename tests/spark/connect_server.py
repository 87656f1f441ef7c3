"""A server of Spark Connect for all tests of it, which sees nothing in one folder of this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.spark.cluster import PATHS, Daemon
from trueline.spark import java

# Mounts an empty folder over another, for the server alone.
_HIDDEN = 'mount -t tmpfs tmpfs "$1" && shift && exec "$@"'


@dataclass(frozen=True)
class ConnectServer:
    """Where it is, and the folder it does not see; None where nothing can be hidden from a process."""

    address: str
    hidden: Path | None


def hiding(folder: Path) -> list[str]:
    """Return the words that start a process which sees nothing in a folder; none where it is not allowed."""
    words = ["unshare", "--mount", "--map-root-user", "sh", "-c", _HIDDEN, "sh", str(folder)]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], check=False).returncode:
        return []
    return words


@contextmanager
def serving(folder: Path) -> Iterator[ConnectServer]:
    """Run a server while the block lasts."""
    hidden, mine = folder / "hidden", folder / "server"
    hidden.mkdir()
    mine.mkdir()
    environment = {
        "JAVA_HOME": str(java.home_for_spark(java.find())),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": PATHS,
        "PYSPARK_PYTHON": sys.executable,
        "TMPDIR": str(mine),
    }
    conf = {
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    arguments = ["--master", "local[2]", *(f"--conf={name}={value}" for name, value in conf.items())]
    arguments += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    before = hiding(hidden)
    daemon = Daemon("SparkSubmit", arguments, environment, before)
    try:
        port = daemon.wait_for(r"Spark Connect server started at: .*:(\d+)").group(1)
        yield ConnectServer(f"sc://127.0.0.1:{port}", hidden if before else None)
    finally:
        daemon.end()
