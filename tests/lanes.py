"""`python -m tests.lanes`: the suite as two processes side by side, one of them with all that needs a JVM.

Also the pytest plugin that deals the tests out: `pytest --lane spark` and `pytest --lane rest`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

LANES = ("spark", "rest")
# Tests wait for the disk a fifth of their time. In memory, where there is plenty, they do not: what is synced
# and when is counted by the tests that are about it.
IN_MEMORY = Path("/dev/shm")
ENOUGH = 8 << 30
BESIDE_SPARK = ("tests/spark", "tests/dataset/append")  # what makes both lanes about as long


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lane",
        choices=LANES,
        help="only what needs Spark, with some long ones, or the others",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if lane := config.getoption("--lane"):
        dealt = {name: [item for item in items if lane_of(item) == name] for name in LANES}
        items[:] = dealt.pop(lane)
        config.hook.pytest_deselected(items=[item for others in dealt.values() for item in others])


def lane_of(item: pytest.Item) -> str:
    """Say where it runs: what uses the one Spark of the suite, or starts another, takes turns."""
    needs_a_jvm = "spark_room" in getattr(item, "fixturenames", ()) or item.get_closest_marker("jvm")
    beside = any(item.path.is_relative_to(item.config.rootpath / folder) for folder in BESIDE_SPARK)
    return "spark" if needs_a_jvm or beside else "rest"


def main(words: list[str]) -> int:
    """Show one lane as it goes, the other when it is done."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    command = [sys.executable, "-m", "pytest", *words]
    with tempfile.TemporaryFile() as told, tempfile.TemporaryDirectory(dir=folder()) as made:
        spark, rest = ([*command, f"--basetemp={made}/{lane}", "--lane", lane] for lane in LANES)
        first = subprocess.Popen(spark, stdout=told, stderr=subprocess.STDOUT)
        try:
            second = subprocess.run(rest, check=False)
            first.wait()
        finally:
            first.terminate()
            first.wait()
            told.seek(0)
            sys.stdout.flush()
            sys.stdout.buffer.write(told.read())
            sys.stdout.flush()
    return first.returncode or second.returncode


def folder() -> str | None:
    """Return where the tests work: in memory if there is room, else where temporary files are."""
    if not (IN_MEMORY.is_dir() and os.access(IN_MEMORY, os.W_OK)):
        return None
    return str(IN_MEMORY) if shutil.disk_usage(IN_MEMORY).free >= ENOUGH else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
