"""One run of a streaming query in a process of its own, which may be killed in the middle.

`python -m tests.spark.source_story fill|follow FOLDER [before|after BATCH]`
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from trueline.spark.session import start
from trueline.spark.settings import Settings
from trueline.spark.sink import sink
from trueline.spark.source import register

EVENTS = ("offset as place", "op as what", "item", "count")


def killed(send, when: str, number: int):
    """Let the process die before or after a batch is sent: Spark has then not noted it as done."""

    def wrapped(batch, batch_id):
        if (when, batch_id) == ("before", number):
            os.kill(os.getpid(), signal.SIGKILL)
        send(batch, batch_id)
        if (when, batch_id) == ("after", number):
            os.kill(os.getpid(), signal.SIGKILL)

    return wrapped


def main(story: str, folder: Path, when: str = "", number: str = "-1") -> None:
    session = start(Settings(master="local[2]", memory="1g", conf={"spark.ui.enabled": "false"})).given
    shop = folder / "shop"
    if story == "fill":
        reader = session.readStream.schema("n long, word string").option("maxFilesPerTrigger", 1)
        frame = reader.json(str(folder / "in"))
    else:
        register(session)
        reader = session.readStream.format("trueline").option("workspace", str(shop))
        frame = reader.option("dataset", "stock").option("changes", "true").load().selectExpr(*EVENTS)
    query = (
        frame.writeStream.foreachBatch(killed(sink(shop, "copy"), when, int(number)))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
