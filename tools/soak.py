"""Explore the same properties for longer: repeat the property tests with new seeds until the time is up.

`python tools/soak.py MINUTES [FIRST_SEED]`. Every round prints its seed; the first failing round ends the
run with the one command that repeats it.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time


def command(seed: int) -> list[str]:
    """Build the pytest call of one round.

    >>> command(7)[-2:]
    ['--hypothesis-profile=soak', '--hypothesis-seed=7']
    """
    chosen = "soak or hypothesis"
    options = ["-q", "-x", "-p", "no:cacheprovider", "--timeout=0", "-m", chosen]
    return [
        sys.executable,
        "-m",
        "pytest",
        *options,
        "--hypothesis-profile=soak",
        f"--hypothesis-seed={seed}",
    ]


def main(arguments: list[str]) -> int:
    """Run rounds until the minutes have passed; at least one."""
    minutes = float(arguments[0]) if arguments else 5.0
    seed = int(arguments[1]) if len(arguments) > 1 else secrets.randbelow(2**31)
    end = time.monotonic() + minutes * 60
    rounds = 0
    while True:
        left = max(0.0, (end - time.monotonic()) / 60)
        print(f"soak: round {rounds + 1}, seed {seed}, {left:.1f} minutes left", flush=True)
        environment = {**os.environ, "TRUELINE_SOAK_MINUTES": f"{left:.2f}"}
        code = subprocess.run(command(seed), env=environment, check=False).returncode
        if code == 5:
            print("soak: there are no property tests to run")
            return 0
        if code:
            print(f"soak: failed with seed {seed}; again: make soak MINUTES=0 SEED={seed}")
            return code
        rounds += 1
        seed += 1
        if time.monotonic() >= end:
            print(f"soak: {rounds} rounds, no failure")
            return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
