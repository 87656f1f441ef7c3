"""Starting the JVM: with the right Java, the driver's Python, and without its noise."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from trueline.credentials import has_secrets, is_secret_name
from trueline.errors import EnvironmentMissing
from trueline.spark import java
from trueline.spark.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LINES: Final = 12


class Launched:
    """A Spark that was started here: its first session, and what its JVM said."""

    def __init__(
        self, session: SparkSession, log: IO[bytes], folder: tempfile.TemporaryDirectory[str]
    ) -> None:
        self.session = session
        self._log = log
        self._folder = folder

    def said(self) -> str:
        """Return the last lines of the JVM's log."""
        return _tail(self._log)

    def stop(self) -> None:
        """Stop Spark and its JVM."""
        from pyspark import SparkContext

        gateway = SparkContext._gateway  # noqa: SLF001 (the JVM that was started for us)
        if jvm_has_ended():
            forget_jvm()
        else:
            self.session.stop()
        process = getattr(gateway, "proc", None)
        if gateway is not None and process is not None:
            gateway.shutdown()
            process.stdin.close()
            process.wait(timeout=30)
            SparkContext._gateway = None  # noqa: SLF001 (so that another can be started)
            SparkContext._jvm = None  # noqa: SLF001
        self._log.close()
        self._folder.cleanup()


def jvm_has_ended() -> bool:
    """Say whether the JVM that this process started for a classic Spark has ended, on its own or killed."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 (there is no other way to ask)
    return process is not None and process.poll() is not None


def forget_jvm() -> None:
    """Let go of a Spark whose JVM has ended, which `stop` cannot do, so that another can be started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    sparks: Any = SparkContext
    context, gateway = sparks._active_spark_context, sparks._gateway  # noqa: SLF001
    if context is not None:
        context._jsc = None  # noqa: SLF001 (it would be asked to stop)
        context.stop()
    sparks._gateway = sparks._jvm = None  # noqa: SLF001
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001
    with suppress(Exception):
        gateway.close()


def launch(settings: Settings) -> Launched:
    """Start a classic Spark; what the JVM prints goes to a file, so that stderr stays the user's."""
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession
    except ImportError:
        raise pyspark_missing() from None
    start: Any = launch_gateway
    home = java.home_for_spark(java.find())
    folder = tempfile.TemporaryDirectory(prefix="trueline-spark-", ignore_cleanup_errors=True)
    conf = SparkConf(loadDefaults=False)
    conf.set("spark.sql.warehouse.dir", str(Path(folder.name, "warehouse")))
    conf.setAll(list(settings.conf_of_spark().items()))
    log: IO[bytes] = settings.log.open("w+b") if settings.log else tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the JVM)
    environment = {"JAVA_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    if settings.is_local:
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    with _environment(environment):
        try:
            gateway = start(_visible(conf), {"stdout": log, "stderr": log})
            context = SparkContext(conf=conf, gateway=gateway)
        except Exception as error:  # noqa: BLE001 (pyspark raises of many kinds here)
            said = _tail(log)
            folder.cleanup()
            raise EnvironmentMissing(
                f"Spark does not start: {str(error).splitlines()[0]}\n{said}".rstrip(),
                remedy="`trueline doctor` checks Java and memory; the lines above are the JVM's",
                code="SparkMissing",
            ) from None
        return Launched(SparkSession(context), log, folder)


def _visible(conf: Any) -> Any:
    """Return the settings for the command line of the JVM, which every user of the machine can read.

    The others come to it over our connection, before its context is made.
    """
    from pyspark import SparkConf

    shown = SparkConf(loadDefaults=False)
    return shown.setAll(
        [
            (name, value)
            for name, value in conf.getAll()
            if not is_secret_name(name) and not has_secrets(value)
        ]
    )


def pyspark_missing() -> EnvironmentMissing:
    """The error of a Python without pyspark."""
    return EnvironmentMissing(
        "pyspark is not installed", remedy="pip install 'trueline[spark]'", code="SparkMissing"
    )


def _tail(log: IO[bytes]) -> str:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - 65_536))
    text = log.read().decode(errors="replace")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    return "\n".join(f"    {line[:300]}" for line in lines[-_LINES:])


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while Spark starts: it reads some settings only from there."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
