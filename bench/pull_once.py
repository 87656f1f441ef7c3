"""One pull in a process of its own: `python -m bench.pull_once PATH NAME …` prints the peak of its memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import trueline
from bench.cluster_once import peak_of_python


def peak_of_pull(place: Path, *names: str) -> int:
    """Return the most bytes that the Python process of a pull held; Spark's JVM is another process."""
    root = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    command = [sys.executable, "-m", "bench.pull_once", str(place), *names]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=root, env=environment)
    return int(done.stdout.splitlines()[-1])


def pull(place: str, names: list[str]) -> None:
    with trueline.open(place) as workspace:
        report = workspace.pull(*names)
        assert sum(len(each.commits) for each in report) == len(names), report


if __name__ == "__main__":
    pull(sys.argv[1], sys.argv[2:])
    print(peak_of_python(), flush=True)
