"""How the tests start JVMs, which live for seconds: `python -m tests.spark.jvms` makes what lets them start.

Without the second compiler and with one thread for garbage they take 44 % less of the processor, with an
archive of the classes that Spark loads another 44 % (5.2 s for a start and two queries instead of 9.3 s).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.architecture import ROOT

QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_FOLDER = ROOT / ".cache" / "jvms"


def archive() -> Path:
    """Name the archive of this Java and this Spark."""
    import pyspark

    from trueline.spark import java

    of = f"{java.home_for_spark(java.find())} {pyspark.__file__} {pyspark.__version__}"
    return _FOLDER / f"{hashlib.sha256(of.encode()).hexdigest()[:16]}.jsa"


@cache
def options() -> str:
    """Return the options of JVMs; those before there is an archive, and of another Java, go without it."""
    try:
        return f"{QUICK} -XX:SharedArchiveFile={archive()} -Xlog:cds=off"
    except Exception:  # noqa: BLE001 (where there is no Java, no JVM is started)
        return QUICK


def main() -> None:
    """Start a Spark, let it do a little, and keep the classes it has loaded when it ends."""
    made = archive()
    if made.exists():
        return
    made.parent.mkdir(parents=True, exist_ok=True)
    # What was not finished before is of no use.
    for left in made.parent.glob(f"{made.stem}.[0-9]*"):
        left.unlink(missing_ok=True)
    mine = made.with_suffix(f".{os.getpid()}")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK} -XX:ArchiveClassesAtExit={mine}"
    from pyspark import SparkContext

    from trueline.spark.session import start
    from trueline.spark.settings import Settings

    session = start(Settings(master="local[1]", memory="1g")).given
    frame = session.createDataFrame([(1, "a"), (2, None)], "n long, s string").repartition(2, "n")
    frame.groupBy("s").count().join(frame, "s", "left").orderBy("n").toArrow()
    process = SparkContext._gateway.proc
    session.stop()
    process.stdin.close()
    process.wait()
    mine.rename(made)


def make() -> subprocess.Popen[bytes]:
    """Begin to make the archive, beside other work."""
    command = [sys.executable, "-m", "tests.spark.jvms"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
