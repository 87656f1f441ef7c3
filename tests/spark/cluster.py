"""A Spark standalone cluster on loopback: one master, some workers, each a process that can be killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.architecture import ROOT
from tests.spark.jvms import options
from tests.spark.stalling import WORKER
from trueline.spark import java

MB = 1 << 20
# The heap of a driver, and what its Python may have beyond what it has when it is ready.
HEAP, ROOM = 160 * MB, 96 * MB
# The last folder makes Python workers begin with what they need loaded.
PATHS = os.pathsep.join(map(str, (ROOT / "src", ROOT, ROOT / "tests" / "spark" / "warm")))
_SECONDS = 60
_QUICK = options()
QUICK = {"spark.driver.extraJavaOptions": _QUICK, "spark.executor.extraJavaOptions": _QUICK}
_CONF = QUICK | {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": PATHS,
    "spark.sql.shuffle.partitions": "4",
    # Spark keeps 300 MB for itself unless told otherwise, and refuses a heap that is smaller.
    "spark.testing.reservedMemory": str(32 * MB),
    "spark.eventLog.enabled": "true",
}


class Daemon:
    """A master, a worker or a server; what it says is read as it comes, so that it never waits for a reader.

    It is started by the words `before` it, if there are any.
    """

    def __init__(
        self, kind: str, arguments: list[str], environment: dict[str, str], before: Sequence[str] = ()
    ) -> None:
        import pyspark

        script = Path(pyspark.__file__).parent / "bin" / "spark-class"
        command = [*before, str(script), f"org.apache.spark.deploy.{kind}", *arguments]
        self.process = subprocess.Popen(
            command,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self.lines: list[str] = []
        self._said = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._said:
                self.lines.append(line)
                self._said.notify_all()
        with self._said:
            self._over = True
            self._said.notify_all()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until it says something."""
        found: list[re.Match[str]] = []

        def is_said() -> bool:
            found.extend(match for line in self.lines if (match := re.search(pattern, line)))
            return bool(found) or self._over

        with self._said:
            self._said.wait_for(is_said, _SECONDS)
        assert found, f"{pattern!r} was not said:\n{''.join(self.lines[-30:])}"
        return found[0]

    def end(self, number: int = signal.SIGTERM) -> None:
        """End the process and wait for it; harmless when repeated."""
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Cluster:
    """A master and its workers, by name; each worker has one core."""

    def __init__(self, folder: Path, memory: str) -> None:
        self.folder = folder
        self._memory = memory
        self._environment = {
            "JAVA_HOME": str(java.home_for_spark(java.find())),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": _QUICK,
            "PYTHONPATH": PATHS,
            "PYSPARK_PYTHON": sys.executable,
        }
        local = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self._local = local
        self.workers: dict[str, Daemon] = {}
        self.all: list[Daemon] = []
        self.master = Daemon("master.Master", local, self._environment)
        try:
            self.all.append(self.master)
            self.url = self.master.wait_for(r"Starting Spark master at (spark://\S+)").group(1)
        except BaseException:
            self.master.end()
            raise

    def start_worker(self, name: str, host: str = "127.0.0.1") -> None:
        """Start a worker, on an address of loopback; `wait` waits until it can be used."""
        work = ["--cores", "1", "--memory", self._memory, "--work-dir", str(self.folder / name)]
        environment = self._environment | {WORKER: name, "SPARK_LOCAL_IP": host}
        local = ["--host", host, *self._local[2:]]
        self.workers[name] = Daemon("worker.Worker", [*local, *work, self.url], environment)
        self.all.append(self.workers[name])

    def wait(self) -> None:
        """Wait until the master knows all workers."""
        for worker in self.workers.values():
            worker.wait_for("Successfully registered with master")

    def kill(self, name: str) -> None:
        """Kill a worker as a power cut would; its executors notice and end too."""
        self.workers.pop(name).end(signal.SIGKILL)

    def end(self) -> None:
        """End everything."""
        for daemon in (*self.workers.values(), self.master):
            daemon.end()


def tell(
    running: Cluster,
    folder: Path,
    chapters: Sequence[str],
    *,
    story: str = "tests.spark.cluster_story",
    conf: Mapping[str, str] = MappingProxyType({}),
    seconds: float = 540,
    **more: Any,
) -> dict[str, Any]:
    """Run chapters of a story by a driver of its own; return what each found."""
    (folder / "events").mkdir()
    config = {
        "master": running.url,
        "folder": str(folder),
        "workspace": str(folder / "ws"),
        "heap": HEAP,
        "room": ROOM,
        "conf": _CONF | {"spark.eventLog.dir": (folder / "events").as_uri(), **conf},
        "log": str(folder / "driver.log"),
        "chapters": list(chapters),
    }
    environment = os.environ | {
        "PYTHONPATH": PATHS,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_DATA_HOME": str(folder / "data"),
        # Its pages count when they are used, not when they are reserved.
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }
    command = [sys.executable, "-m", story, json.dumps(config | more)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def cluster(folder: Path, hosts: Mapping[str, str] | None = None, memory: str = "1g") -> Iterator[Cluster]:
    """Run a cluster while the block lasts: a worker for each name, on its address of loopback."""
    made = Cluster(folder, memory)
    try:
        for name, host in (hosts or {"a": "127.0.0.1", "b": "127.0.0.1"}).items():
            made.start_worker(name, host)
        made.wait()
        yield made
    finally:
        made.end()
