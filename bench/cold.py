"""How long a command takes that a person types: `trueline log --json` in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import trueline
from bench import rows
from bench.run import Run
from bench.table import Row, duration
from bench.timing import alternate

MOST = 0.3
COMMITS = 20
COMMAND = "import sys; from trueline.cli import main; sys.exit(main())"  # as the installed script does
NOTE = "cold start: a new process each time, files in the page cache; the peer is `python -c pass`."


def run(run: Run) -> Iterator[Row]:
    what = "cold start: trueline log --json"
    folder = run.folder / "cold"
    with trueline.open(folder, create=True) as workspace:
        dataset = workspace.create("rows")
        for _ in range(COMMITS):
            dataset.append(rows.table())
    log = [sys.executable, "-c", COMMAND, "-C", str(folder), "log", "rows", "--json"]
    bare = [sys.executable, "-c", "pass"]
    taken = alternate(
        {"log": lambda: _called(log), "bare": lambda: _called(bare)}, run.scale.cold_starts, warmup=1
    )
    ours = taken["log"]
    yield Row(
        "cold",
        what,
        duration(ours),
        duration(taken["bare"], "bare Python: "),
        ours.median / taken["bare"].median,
        f"≤ {MOST} s",
        ours.median <= MOST,
        NOTE,
    )


def _called(command: list[str]) -> None:
    # The package that runs here, installed or not.
    source = str(Path(trueline.__file__).parents[1])
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": source})
