"""What is looked at of executors that die: one cluster and one driver (`deaths_story.py`) for all of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.examples import is_soak
from tests.spark.cluster import cluster, tell

# Each exchange, and where an executor dies: as it reads what is exchanged, on the other side of the
# shuffle, where what it had ready for others dies with it, or as ranges of the order come together.
EXCHANGES = {"sort by two": "ranges", "join, full": "exchanged", "limit": "reading"}
DYING = [f"{view}/{place}" for view, place in EXCHANGES.items()]
# Asked for; `make soak` also has it plainly, and where the session says that tasks do it.
APPENDED = ["append on Spark/ranges"]
DUPLICATED = "speculation/sort by two"

# Rows of steps, of a pull and of a view come in as those of files: every death costs the start of a JVM.
APPENDS = ("files", "view", "steps", "pull", "keyed_files") if is_soak() else ("files",)
STREAMS = ("table", "reader", "iterator") if is_soak() else ()
FRAMES = ("frame", "query", "keyed_frame") if is_soak() else ("frame", "query")

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    # What is delivered comes by jobs of one task, which have no other to be compared with.
    "spark.speculation.task.duration.threshold": "2s",
    "spark.eventLog.enabled": "false",
}
# Two machines, as Spark sees them: a duplicate of a task runs on another machine only.
HOSTS = {"a": "127.0.0.1", "b": "127.0.0.2"}


def told(folder: Path, **parts: Sequence[str]) -> dict[str, Any]:
    """Run chapters of views, and of other work in tasks; return what each part found."""
    with cluster(folder / "workers", HOSTS) as running:
        story = "tests.spark.deaths_story"
        return tell(running, folder, (), story=story, conf=SPECULATION, seconds=840, parts=parts)


def some_of_each(folder: Path) -> dict[str, Any]:
    """Return what `make test` looks at."""
    views = [*DYING, *APPENDED, DUPLICATED]
    tasks = [*APPENDS, *STREAMS, *FRAMES, "derived", "verify", "clone_and_push"]
    return told(folder, views=views, tasks=tasks)
