"""How the tests start JVMs, which live for seconds: `python -m tests.spark.jvms` makes what lets them start.

Without the second compiler and with one thread for garbage they take 44 % less of the processor, with an
archive of the classes that Spark loads another 44 % (5.2 s for a start and two queries instead of 9.3 s).
What is in the archive is what was loaded while it was made: a little of everything that the tests do.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from tests.architecture import ROOT

QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_FOLDER = ROOT / ".cache" / "jvms"


def archive() -> Path:
    """Name the archive of this Java, this Spark, and what is done to fill it."""
    import pyspark

    from trueline.spark import java

    of = (java.home_for_spark(java.find()), pyspark.__file__, pyspark.__version__, Path(__file__).read_text())
    return _FOLDER / f"{hashlib.sha256(str(of).encode()).hexdigest()[:16]}.jsa"


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
    # What fails here fails in the tests; what it has loaded is kept all the same.
    with tempfile.TemporaryDirectory() as folder, suppress(Exception):
        use(session, Path(folder))
    process = SparkContext._gateway.proc
    session.stop()
    process.stdin.close()
    process.wait()
    mine.rename(made)


# Views that between them sort, count, join and add up.
VIEWS = ("sort by two", "groups by sums", "join, full", "window by a key")


def use(session: Any, folder: Path) -> None:
    """Let a Spark do a little of each kind: queries, files, views, datasets that are derived."""
    import trueline as tl
    from tests.spark.lowering.nasty import everything, rows_of, views
    from trueline.spark.lowering.deliver import delivered

    frame = session.createDataFrame([(1, "a"), (2, None)], "n long, s string").repartition(2, "n")
    frame.groupBy("s").count().join(frame, "s", "left").orderBy("n").toArrow()
    frame.selectExpr("n", "row_number() over (partition by s order by n) r").distinct().collect()
    frame.write.parquet(str(folder / "files"))
    session.read.parquet(str(folder / "files")).where("n > 1").limit(1).toArrow()
    made = views(rows=40)
    for name in VIEWS:
        rows_of(delivered(made[name].node, everything(made[name]), session))
    made["join"].to_spark(session).collect()
    with tl.open(folder / "ws", create=True, spark=session) as ws:
        rows = ws.create("rows", merge=tl.merge.upsert("n"))
        rows.append(frame)
        ws.derive("sums", "select s, sum(n) as t, max(n) as m from rows group by s", key="s")
        ws.pull()
        rows.append([{"n": 3, "s": "a"}])
        ws.pull()
        ws.verify("sums", replay=True)


def make() -> subprocess.Popen[bytes]:
    """Begin to make the archive, beside other work."""
    command = [sys.executable, "-m", "tests.spark.jvms"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
