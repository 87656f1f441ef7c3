"""`python -m tests.lanes`: the suite as three processes side by side, and types and contracts beside them.

One begins with what starts a Spark of its own; the rest is dealt out, file by file, to whichever process
comes to it: what uses the one Spark of a process to two of them, what needs no JVM to all, so that the cores
are busy to the end. Also the pytest plugin for it: `pytest --lane spark`, `--lane jvms`, `--lane rest`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from tests.spark.jvms import make

# In this order: what starts a Spark of its own needs a process that has none yet.
LANES = ("jvms", "spark", "rest")
DEALT = ("spark", "rest")
PROCESSES = (("jvms", "spark", "rest"), ("rest",), ("spark", "rest"))
# What uses Spark takes longest: on fewer cores than there are processes, what needs none waits for it.
PATIENT = ("nice", "-n", "5")
CHECKS = ("-m mypy", "-m tests.contracts --check")
# Tests wait for the disk a fifth of their time. In memory, where there is plenty, they do not: what is synced
# and when is counted by the tests that are about it.
IN_MEMORY = Path("/dev/shm")
ENOUGH = 8 << 30


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lane",
        action="append",
        choices=LANES,
        help="only what uses the Spark of the suite, or starts its own, or needs none; may be repeated",
    )
    parser.addoption(
        "--dealt",
        metavar="FOLDER",
        help="only files that no other process has taken, but for what starts its own Spark",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if wanted := config.getoption("--lane"):
        left_out = [item for item in items if lane_of(item) not in wanted]
        # In the order of the lanes: those of the last may be taken by others meanwhile.
        items[:] = sorted((item for item in items if lane_of(item) in wanted), key=_lane_number)
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    folder, lane = item.config.getoption("--dealt"), lane_of(item)
    if folder is None or lane not in DEALT or _is_ours(Path(folder, lane), item.path):
        return None
    # What was left standing for this one has to go, as if it had run.
    item.session._setupstate.teardown_exact(nextitem)
    return True


def lane_of(item: pytest.Item) -> str:
    """Say where it runs: what uses the one Spark of the suite takes turns, and what starts others does."""
    if item.get_closest_marker("jvm"):
        return "jvms"
    return "spark" if "spark_room" in getattr(item, "fixturenames", ()) else "rest"


def _lane_number(item: pytest.Item) -> int:
    return LANES.index(lane_of(item))


@cache
def _is_ours(folder: Path, path: Path) -> bool:
    """Say whether this process has the file, or takes it now: whoever makes its mark first."""
    mark = folder / str(path).replace(os.sep, "+")
    me = str(os.getpid())
    try:
        with mark.open("x") as file:
            file.write(me)
        return True
    except FileExistsError:
        return mark.read_text() == me


def main(words: list[str]) -> int:
    """Show one process as it goes, the others when all are done."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Without it every process compiles every module again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with ExitStack() as stack:
        made = stack.enter_context(tempfile.TemporaryDirectory(dir=folder(), ignore_cleanup_errors=True))
        # Users whom tests make up go through it.
        Path(made).chmod(0o711)
        dealt = Path(made, "dealt")
        for lane in DEALT:
            dealt.joinpath(lane).mkdir(parents=True)
        command = [sys.executable, "-m", "pytest", f"--dealt={dealt}", *words]
        *behind, shown = (
            [
                *(PATIENT if lanes == ("rest",) and shutil.which(PATIENT[0]) else ()),
                *command,
                f"--basetemp={made}/{lanes[0]}",
                *(f"--lane={lane}" for lane in lanes),
            ]
            for lanes in PROCESSES
        )
        if not words:
            python = shlex.quote(sys.executable)
            behind.insert(0, ["sh", "-c", " && ".join(f"{python} {check}" for check in CHECKS)])
        # What does not ask pytest for a folder works in memory too, and each process in a place of its own.
        places = [temporary(Path(made, "temporary"), str(number)) for number in range(len(behind) + 1)]
        archive = make()
        told = [stack.enter_context(tempfile.TemporaryFile()) for _ in behind]
        running = [
            subprocess.Popen(lane, stdout=file, stderr=subprocess.STDOUT, env=place)
            for lane, file, place in zip(behind, told, places[1:], strict=True)
        ]
        try:
            first = subprocess.run(shown, check=False, env=places[0])
            codes = [first.returncode, *(lane.wait() for lane in running)]
        finally:
            archive.terminate()
            archive.wait()
            for lane, file in zip(running, told, strict=True):
                lane.terminate()
                lane.wait()
                file.seek(0)
                sys.stdout.flush()
                sys.stdout.buffer.write(file.read())
                sys.stdout.flush()
    return next(filter(None, codes), 0)


def temporary(folder: Path, name: str) -> dict[str, str]:
    """Make a place for temporary files; return the environment of a process that uses it."""
    place = folder / name
    place.mkdir(parents=True)
    place.chmod(0o1777)
    return os.environ | {"TMPDIR": str(place)}


def folder() -> str | None:
    """Return where the tests work: in memory if there is room, else where temporary files are."""
    if not (IN_MEMORY.is_dir() and os.access(IN_MEMORY, os.W_OK)):
        return None
    return str(IN_MEMORY) if shutil.disk_usage(IN_MEMORY).free >= ENOUGH else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
