"""Writes in a process of its own, in which tasks, workers or the whole Spark die in the middle.

`python -m tests.spark.writer_story FOLDER before|after BATCH`: tasks die while a frame is written; then Spark
dies before or after the commit of a batch of a stream.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from trueline.spark.session import start
from trueline.spark.settings import Settings
from trueline.spark.source import TruelineSource, register
from trueline.spark.writer import FrameWriter, StreamWriter, Target


class DyingStream(StreamWriter):
    """Lets Spark die before or after the commit of a batch: Spark has then not noted it as done."""

    jvm, when, number = 0, "", -1

    def commit(self, messages, batchId):  # noqa: N803
        if (self.when, batchId) == ("before", self.number):
            self.die()
        super().commit(messages, batchId)
        if (self.when, batchId) == ("after", self.number):
            self.die()

    def die(self):
        os.kill(self.jvm, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class StumblingFrame(FrameWriter):
    """Lets first attempts fail after they have staged their rows: one raises, of one the worker dies."""

    def write(self, iterator):
        from pyspark import TaskContext

        message = super().write(iterator)
        context = TaskContext.get()
        if context.attemptNumber() == 0 and context.partitionId() == 1:
            raise OSError("gone")
        if context.attemptNumber() == 0 and context.partitionId() == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return message


class Source(TruelineSource):
    """The source with such writers."""

    dying = DyingStream

    def writer(self, schema, overwrite):
        return StumblingFrame(Target.of(self.given, stream=False), schema, overwrite, self.nonce)

    def streamWriter(self, schema, overwrite):
        return self.dying(Target.of(self.given, stream=True), schema, overwrite, self.nonce)


def fill(session: Any, folder: Path) -> None:
    """Fill a dataset from files, by a stream."""
    reader = session.readStream.schema("n long, word string").option("maxFilesPerTrigger", 1)
    query = (
        reader.json(str(folder / "in"))
        .writeStream.format("trueline")
        .options(workspace=str(folder / "shop"), dataset="filled", name="fill")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(folder: Path, when: str, number: str) -> None:
    # Tasks have three attempts.
    conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    session = start(Settings(master="local[2,3]", memory="1g", conf=conf)).given
    register(session)
    jvm = session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    dying = type("Dying", (DyingStream,), {"jvm": jvm, "when": when, "number": int(number)})
    session.dataSource.register(type("Story", (Source,), {"dying": dying}))
    frame = session.range(0, 4000, 1, 4).selectExpr("id as n", "concat('w', id) as word")
    writer = frame.write.format("trueline").mode("append").option("dataset", "stumbled")
    writer.save(str(folder / "shop"))
    sys.stdout.write("stumbled\n")
    sys.stdout.flush()
    fill(session, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
