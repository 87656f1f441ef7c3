"""Streaming queries in a process of their own, which is killed in the middle of all of them.

`python -m tests.spark.source_story FOLDER fill:before:1 follow:after:0`: the queries run one after another;
each stops for ever before or after the batch of that number, and where the last one does, all are killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trueline.spark.session import start
from trueline.spark.settings import Settings
from trueline.spark.sink import sink
from trueline.spark.source import register

EVENTS = ("offset as place", "op as what", "item", "count")


def stopping(send: Any, when: str, number: int, stop: Callable[[], object]) -> Any:
    """Let a query stop before or after a batch is sent: Spark has then not noted it as done."""

    def wrapped(batch, batch_id):
        if (when, batch_id) == ("before", number):
            stop()
        send(batch, batch_id)
        if (when, batch_id) == ("after", number):
            stop()

    return wrapped


def query(session: Any, story: str, folder: Path, send: Any) -> Any:
    """Start a query that fills a dataset from files, or with the events of another dataset."""
    if story == "fill":
        reader = session.readStream.schema("n long, word string").option("maxFilesPerTrigger", 1)
        frame = reader.json(str(folder / "in"))
    else:
        reader = session.readStream.format("trueline").option("workspace", str(folder / "shop"))
        frame = reader.option("dataset", "stock").option("changes", "true").load().selectExpr(*EVENTS)
    writer = frame.writeStream.foreachBatch(send).option("checkpointLocation", str(folder / f"check-{story}"))
    return writer.trigger(availableNow=True).start()


def main(folder: Path, *stops: str) -> None:
    conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    session = start(Settings(master="local[2]", memory="1g", conf=conf)).given
    register(session)
    for place in stops:
        story, when, number = place.split(":")
        is_there = threading.Event()

        def stop(is_there=is_there, is_last=place == stops[-1]):
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            is_there.set()
            threading.Event().wait()

        query(session, story, folder, stopping(sink(folder / "shop", story), when, int(number), stop))
        is_there.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
