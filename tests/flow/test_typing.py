"""A type checker finds the common mistakes before anything runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.architecture import ROOT

PROGRAM = Path(__file__).with_name("typed_program.py")


def test_mypy_finds_every_mistake_and_nothing_else():
    lines = enumerate(PROGRAM.read_text(encoding="utf-8").splitlines(), 1)
    expected = {
        (number, found[1]) for number, line in lines if (found := re.search(r"# error: ([\w-]+)", line))
    }
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", PROGRAM],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    found = {
        (int(match[1]), match[2])
        for match in re.finditer(r"typed_program\.py:(\d+): error: .*\[([\w-]+)\]", done.stdout)
    }
    assert found == expected, done.stdout + done.stderr
    assert len(expected) == 14
