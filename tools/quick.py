"""`python tools/quick.py [REV]`: what a change most likely breaks, in a few minutes.

Lint, the reference of Python, the plan of the house, and the tests of the rooms that differ from REV (by
default from the last commit, or from the one before it where nothing is changed). What needs a JVM is left to
`make test` unless `spark` itself is touched.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALWAYS = ("tests/test_architecture.py", "tests/test_repository.py")
# What stands outside the rooms, and the tests that hold it.
ELSEWHERE = {
    "docs": ["tests/test_docs.py"],
    "README.md": ["tests/test_docs.py"],
    "bench": ["tests/bench"],
    "tests/contracts": ["tests/contracts"],
}


def changed(revision: str | None) -> list[str]:
    """List the files that differ from a revision, new ones too."""
    new = _git("ls-files", "--others", "--exclude-standard")
    if revision is not None:
        return [*_git("diff", "--name-only", revision), *new]
    return [*_git("diff", "--name-only", "HEAD"), *new] or _git("diff", "--name-only", "HEAD~1")


def tests_for(files: Iterable[str]) -> list[str]:
    """Name the tests to run for some changed files, those that exist, each once.

    >>> tests_for(["src/trueline/flow/graph.py", "docs/flows.md"])[-3:]
    ['src/trueline/flow', 'tests/flow', 'tests/test_docs.py']
    """
    found = [*ALWAYS]
    for file in files:
        parts = Path(file).parts
        if parts[:2] == ("src", "trueline"):
            # A room has a folder of tests of its own name, a module beside the rooms a test of its name.
            room = Path(parts[2]).stem
            found += [f"src/trueline/{parts[2]}", f"tests/{room}", f"tests/test_{room}.py"]
        elif parts[0] == "tests" and len(parts) > 2:
            found.append(f"tests/{parts[1]}")
        elif parts[0] == "tests" and parts[-1].startswith("test_"):
            found.append(file)
        found += [test for start, tests in ELSEWHERE.items() if file.startswith(start) for test in tests]
    return [each for each in dict.fromkeys(found) if (ROOT / each).exists()]


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607 (the user's own git)
    return done.stdout.split("\n")[:-1]


def main(words: list[str]) -> int:
    """Run the checks one after another; stop at the first that fails."""
    tests = tests_for(changed(words[0] if words else None))
    print("→", *tests)
    lane = [] if "tests/spark" in tests else ["--lane", "rest"]
    bin_folder = Path(sys.executable).parent
    commands = (
        [str(bin_folder / "ruff"), "check", "."],
        [str(bin_folder / "ruff"), "format", "--check", "."],
        [str(bin_folder / "mypy")],
        [sys.executable, "tools/reference.py", "--check"],
        [sys.executable, "-m", "pytest", "-q", "-x", *lane, *tests],
    )
    return next(
        (code for each in commands if (code := subprocess.run(each, cwd=ROOT, check=False).returncode)), 0
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
