"""`python -m tests.lanes`: the suite as three processes side by side, one of them with all that needs a JVM.

Also the pytest plugin that deals the tests out: `pytest --lane spark`, `--lane first`, `--lane second`, and
`--lane rest` for all that needs no JVM.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

LANES = ("spark", "first", "second")
# The folders from here on, by name, are the second half of what needs no JVM.
SECOND_FROM = "tests/kernel"
# Tests wait for the disk a fifth of their time. In memory, where there is plenty, they do not: what is synced
# and when is counted by the tests that are about it.
IN_MEMORY = Path("/dev/shm")
ENOUGH = 8 << 30


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lane",
        choices=(*LANES, "rest"),
        help="only what needs Spark, or one half of the others, or all of them",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if lane := config.getoption("--lane"):
        wanted = ("first", "second") if lane == "rest" else (lane,)
        left_out = [item for item in items if lane_of(item) not in wanted]
        items[:] = [item for item in items if lane_of(item) in wanted]
        config.hook.pytest_deselected(items=left_out)


def lane_of(item: pytest.Item) -> str:
    """Say where it runs: what uses the one Spark of the suite, or starts another, takes turns."""
    if "spark_room" in getattr(item, "fixturenames", ()) or item.get_closest_marker("jvm"):
        return "spark"
    return "first" if str(item.path) < str(item.config.rootpath / SECOND_FROM) else "second"


def main(words: list[str]) -> int:
    """Show one lane as it goes, the others when all are done."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with ExitStack() as stack:
        made = stack.enter_context(tempfile.TemporaryDirectory(dir=folder(), ignore_cleanup_errors=True))
        command = [sys.executable, "-m", "pytest"]
        *behind, shown = (
            [*command, f"--basetemp={made}/{lane}", "--lane", lane, *(words or paths(lane))] for lane in LANES
        )
        told = [stack.enter_context(tempfile.TemporaryFile()) for _ in behind]
        running = [
            subprocess.Popen(lane, stdout=file, stderr=subprocess.STDOUT)
            for lane, file in zip(behind, told, strict=True)
        ]
        try:
            codes = [subprocess.run(shown, check=False).returncode, *(lane.wait() for lane in running)]
        finally:
            for lane, file in zip(running, told, strict=True):
                lane.terminate()
                lane.wait()
                file.seek(0)
                sys.stdout.flush()
                sys.stdout.buffer.write(file.read())
                sys.stdout.flush()
    return next(filter(None, codes), 0)


def paths(lane: str) -> list[str]:
    """Return what a lane has to look through for its tests, as far as that is known by name."""
    entries = sorted(f"tests/{each.name}" for each in Path("tests").iterdir() if _has_tests(each))
    match lane:
        case "first":
            return ["src", *(each for each in entries if each < SECOND_FROM)]
        case "second":
            return [each for each in entries if each >= SECOND_FROM]
    return ["tests"]


def _has_tests(path: Path) -> bool:
    return path.name != "__pycache__" if path.is_dir() else path.name.startswith("test_")


def folder() -> str | None:
    """Return where the tests work: in memory if there is room, else where temporary files are."""
    if not (IN_MEMORY.is_dir() and os.access(IN_MEMORY, os.W_OK)):
        return None
    return str(IN_MEMORY) if shutil.disk_usage(IN_MEMORY).free >= ENOUGH else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
