"""The command line: every verb is one public method, shown to people or as JSON."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0 done; 1 the answer is no; 2 misuse or bad input; 3 something is missing
    on this machine; 4 tried and failed, trying again is safe.
    """
    from trueline.cli.app import run

    return run(arguments)
