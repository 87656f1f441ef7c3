"""`python -m tests.lanes`: the suite as two processes side by side, one of them with all that needs a JVM.

Also the pytest plugin that deals the tests out: `pytest --lane spark` and `pytest --lane rest`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile

import pytest

LANES = ("spark", "rest")
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
    command = [sys.executable, "-m", "pytest", *words, "--lane"]
    with tempfile.TemporaryFile() as told:
        first = subprocess.Popen([*command, "spark"], stdout=told, stderr=subprocess.STDOUT)
        try:
            second = subprocess.run([*command, "rest"], check=False)
            first.wait()
        finally:
            first.terminate()
            first.wait()
            told.seek(0)
            sys.stdout.flush()
            sys.stdout.buffer.write(told.read())
            sys.stdout.flush()
    return first.returncode or second.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
