"""Classic and Connect: the same checks on both, each kind in one process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.spark import smoke
from tests.spark.cluster import PATHS

# All checks of a kind run in the first test that asks for one of them.
pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]
CHECKS = [name for name in vars(smoke) if name.startswith("check_")]


def outcome(place: str, folder: Path) -> tuple[dict[str, str], str, list[str]]:
    """What each check said, what came on stderr, and what was left in the current folder."""
    environment = os.environ | {
        "PYTHONPATH": PATHS,
        "PYSPARK_PYTHON": sys.executable,
    }
    environment.pop("PYTHONWARNINGS", None)
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.smoke", place],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=850,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout), done.stderr, sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def ran(tmp_path_factory, request):
    @cache
    def ask(kind: str):
        place = kind if kind == "classic" else request.getfixturevalue("connect_server").address
        return outcome(place, tmp_path_factory.mktemp(kind))

    return ask


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_it_holds_on_both(kind, check, ran):
    said = ran(kind)[0]
    assert list(said) == CHECKS
    assert said[check] == "ok", said[check]


def test_a_spark_started_here_says_nothing_and_leaves_nothing(ran):
    _, stderr, left = ran("classic")
    assert stderr == ""
    assert left == []
