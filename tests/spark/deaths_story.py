"""The driver of all tests in which executors die: `python -m tests.spark.deaths_story CONFIG`.

CONFIG is that of `tests.spark.cluster_story`, with `parts` in the place of chapters: those of
`lost_executors` and of `tasks_story`. Prints one JSON object: part → chapter → what it found.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.spark import tasks_story
from tests.spark.lowering import lost_executors
from trueline.spark.session import start
from trueline.spark.settings import Settings

PARTS = {"views": lost_executors.run, "tasks": tasks_story.run}
# Spark reads these for each set of tasks: duplicates are of views only.
ONCE = {"spark.speculation.multiplier": "1000000", "spark.speculation.task.duration.threshold": "1h"}


def main(config: dict[str, Any]) -> dict[str, Any]:
    """Run the chapters of each part in a session and a folder of its own."""
    settings = Settings(
        master=config["master"], memory=str(config["heap"]), conf=config["conf"], log=Path(config["log"])
    )
    given = start(settings).given
    said: dict[str, Any] = {}
    for name, chapters in config["parts"].items():
        folder = Path(config["folder"], name)
        folder.mkdir()
        if name == "tasks":
            for setting, value in ONCE.items():
                given.sparkContext._jsc.sc().conf().set(setting, value)
        said[name] = PARTS[name](given.newSession(), folder, chapters)
    return said


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1]))))
