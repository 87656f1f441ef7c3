"""How Spark is started, and what every session of ours is pinned to."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

# Results may depend on these, so they are the same for all our queries. Everything else
# (partitions, adaptive execution, memory) may only change the speed.
SQL_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.ansi.doubleQuotedIdentifiers": "false",
        "spark.sql.ansi.enforceReservedKeywords": "false",
        "spark.sql.caseSensitive": "false",
        "spark.sql.timestampType": "TIMESTAMP_LTZ",
        "spark.sql.timeType.enabled": "true",
        "spark.sql.legacy.timeParserPolicy": "CORRECTED",
        "spark.sql.storeAssignmentPolicy": "ANSI",
        "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
        "spark.sql.decimalOperations.allowPrecisionLoss": "true",
        "spark.sql.groupByOrdinal": "true",
        "spark.sql.orderByOrdinal": "true",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.pyspark.jvmStacktrace.enabled": "false",
    }
)

LOCAL: Final = ("local[", "local-cluster[")

# How the address of a Spark Connect server begins.
REMOTE: Final = "sc://"


@dataclass(frozen=True, slots=True)
class Settings:
    """How to start Spark: where it runs, how much memory its driver has, whether its web page is on.

    `remote` is the address of a Spark Connect server (`sc://host:15002`) and comes before `master`. `conf`
    holds any other setting of Spark and wins over ours. `log` is a file for what the JVM says; without it
    that is kept only as long as the process lives.

    >>> Settings().conf_of_spark()["spark.master"]
    'local[*]'
    """

    master: str = "local[*]"
    remote: str | None = None
    memory: str | None = None
    ui: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are this machine."""
        return self.master == "local" or self.master.startswith(LOCAL)

    def conf_of_spark(self) -> dict[str, str]:
        """Return the configuration that Spark is started with."""
        conf = {
            "spark.master": self.master,
            "spark.app.name": "trueline",
            "spark.submit.deployMode": "client",
            "spark.ui.enabled": str(self.ui).lower(),
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "WARN",
            "spark.pyspark.python": sys.executable,
            "spark.pyspark.driver.python": sys.executable,
            # Nothing is left in the current folder: no warehouse, no metastore.
            "spark.sql.catalogImplementation": "in-memory",
            "spark.executorEnv.PYTHONPATH": _python_path(),
            # Work on values that are final goes ahead of work that may be thrown away; all else is as usual:
            # jobs without a pool share one, first come, first served.
            "spark.scheduler.mode": "FAIR",
            "spark.scheduler.allocation.file": f"file://{Path(__file__).with_name('pools.xml')}",
            # Conditions on datasets that are read by `format("trueline")` rule out what need not be read.
            "spark.sql.python.filterPushdown.enabled": "true",
            # Partners of one key of a join go to disk where they are many; else Spark holds all of them.
            "spark.sql.sortMergeJoinExec.buffer.in.memory.threshold": "4096",
            **SQL_SETTINGS,
        }
        if self.is_local:
            # A container often has no name that resolves, and no other machine needs these ports.
            conf |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        if self.memory is not None:
            conf["spark.driver.memory"] = self.memory
        return conf | {key: str(value) for key, value in self.conf.items()}


def _python_path() -> str:
    """Return the folder of this package, for workers whose interpreter cannot find it."""
    return str(Path(__file__).parents[2])
