"""Replay of one workspace under several Sparks, one after another: `python -m … PATH`.

More words name the Sparks; without them it is all. Prints one JSON object: the name of each Spark → how
many commits were replayed, and what was found.
"""

from __future__ import annotations

import json
import sys

import trueline as tl
from trueline.spark.session import start
from trueline.spark.settings import Settings

# Cores, shuffle partitions, whether plans adapt, rows of a batch between Spark and Python. The Spark of the
# suite, which all other tests replay in, has two cores, two partitions, plans that adapt and large batches.
SPARKS = {
    "one core": ("local[1]", 1, "false", 3),
    "four cores": ("local[4]", 7, "true", 5),
}


def replayed(path: str, master: str, partitions: int, adaptive: str, rows: int) -> list[object]:
    """Replay all commits in a Spark of these settings."""
    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.default.parallelism": str(partitions),
        "spark.sql.adaptive.enabled": adaptive,
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(rows),
    }
    room = start(Settings(master=master, memory="1g", conf=conf))
    try:
        session = room.given
        assert session.sparkContext.master == master
        assert session.conf.get("spark.sql.shuffle.partitions") == str(partitions)
        with tl.open(path, spark=session) as ws:
            report = ws.verify(replay=True)
            return [report.replayed, [str(problem) for problem in report.problems]]
    finally:
        room.stop()


if __name__ == "__main__":
    chosen = sys.argv[2:] or list(SPARKS)
    sys.stdout.write(json.dumps({name: replayed(sys.argv[1], *SPARKS[name]) for name in chosen}))
