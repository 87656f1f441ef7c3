"""Explore the same properties for longer, part by part, until the time is up.

`python tools/soak.py MINUTES [SEED] [PART]`. Parts that try everything there is run once for a seed, parts
that draw at random again and again, each round with the next seed. What held is written down below `.cache`:
the same seed goes on where it ended, and tries what failed again. One line at the end says how it went.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOWERING = "tests/spark/lowering"
AGREEMENT = ("tests/workspace/snapshot", "tests/workspace/pull/test_stops.py")
# Files of views on Spark that have parts of their own; the others there hold properties.
ON_SPARK = ("chains", "equal", "conformance", "lost_executors", "hot_keys")
# The rooms with tests that look at a sample of their cases in `make test`.
SAMPLED = ("attacks", "bench", "dataset", "run", "spark", "workspace")
HELD, FAILED, NONE = "held", "failed", "no tests"
_NO_TESTS = 5


@dataclass(frozen=True)
class Part:
    """Some of the tests: their marks and places, and whether a new seed makes them new ones."""

    name: str
    marks: str
    places: tuple[str, ...]
    without: tuple[str, ...] = ()
    words: str = ""
    is_random: bool = False

    @property
    def chosen(self) -> tuple[str, ...]:
        """What pytest is told to choose them.

        >>> Part("all of a room", "sampled", ("tests/run",), without=("tests/run/test_model.py",)).chosen
        ('-m', 'sampled', 'tests/run', '--ignore=tests/run/test_model.py')
        """
        words = ("-k", self.words) if self.words else ()
        return ("-m", self.marks, *self.places, *(f"--ignore={place}" for place in self.without), *words)


def parts() -> list[Part]:
    """Return all parts; the views of Spark are cut by their settings, so that no part takes long.

    >>> len({part.name for part in parts()}) == len(parts())
    True
    """
    named = tuple(f"{LOWERING}/test_{name}.py" for name in ON_SPARK)
    chains, equal, conformance, lost, hot = ((place,) for place in named)
    either = "soak or hypothesis"
    found = [
        Part("properties", either, ("tests",), without=(LOWERING, *AGREEMENT), is_random=True),
        Part("agreement", either, AGREEMENT, is_random=True),
        Part("chains of views on Spark", either, chains, is_random=True),
        Part("properties of views on Spark", either, (LOWERING,), without=named, is_random=True),
    ]
    found += [Part(f"all cases, {room}", "sampled", (f"tests/{room}",)) for room in SAMPLED]
    for each in product((1, 3, 20), ("adaptive", "fixed"), (10, 10_000)):
        settings = "{}p-{}-{}r".format(*each)
        found.append(Part(f"views on Spark, {settings}", "soak", equal, words=settings))
    found.append(Part("conformance on Spark", "soak", conformance))
    found.append(Part("lost executors", "soak", lost))
    found.append(Part("keys with most of the rows", "soak", hot))
    return found


def command(part: Part, seed: int) -> list[str]:
    """Build the pytest call of one part.

    >>> command(parts()[0], 7)[-2:]
    ['--hypothesis-profile=soak', '--hypothesis-seed=7']
    """
    options = ["-q", "-p", "no:cacheprovider", "--timeout=0", *part.chosen]
    profile = ["--hypothesis-profile=soak", f"--hypothesis-seed={seed}"]
    return [sys.executable, "-m", "pytest", *options, *profile]


class Soak:
    """One soak: its seed, what is known of its parts, and when it ends."""

    def __init__(self, minutes: float, seed: int, folder: Path) -> None:
        self.seed, self.end = seed, time.monotonic() + minutes * 60
        self.file = folder / f"{seed}.json"
        self.known: dict[str, str] = {}
        if self.file.exists():
            self.known = json.loads(self.file.read_text(encoding="utf-8"))
        self.rounds = 0

    @property
    def left(self) -> float:
        """How many minutes are left."""
        return max(0.0, (self.end - time.monotonic()) / 60)

    def run(self, chosen: list[Part]) -> int:
        """Run parts until the time is up, at least one; return the exit code."""
        for part, seed, share in self._turns(chosen):
            self._one(part, seed, share)
        print(self.summary(chosen), flush=True)
        return 1 if FAILED in self.known.values() else 0

    def _turns(self, chosen: list[Part]) -> Iterator[tuple[Part, int, float]]:
        """Yield what to run next, and for how long it may explore."""
        waiting = [part for part in chosen if self.known.get(part.name) not in (HELD, NONE)]
        random = [part for part in chosen if part.is_random]
        is_first = True
        for number, part in enumerate(waiting):
            if is_first or self.left:
                yield part, self.seed, self.left / (len(waiting) - number)
            is_first = False
        while random and self.left:
            self.rounds += 1
            for part in random:
                if self.left and self.known.get(part.name) != FAILED:
                    yield part, self.seed + self.rounds, self.left / len(random)
            random = [part for part in random if self.known.get(part.name) == HELD]

    def _one(self, part: Part, seed: int, share: float) -> None:
        print(f"soak: {part.name}, seed {seed}, {self.left:.1f} minutes left", flush=True)
        begin = time.monotonic()
        environment = {**os.environ, "TRUELINE_SOAK_MINUTES": f"{share:.2f}"}
        code = subprocess.run(command(part, seed), env=environment, check=False, cwd=ROOT).returncode
        how = {0: HELD, _NO_TESTS: NONE}.get(code, FAILED)
        self.known[part.name] = how
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.known, indent=1), encoding="utf-8")
        again = f"; again: make soak MINUTES=0 SEED={seed} PART='{part.name}'" if how == FAILED else ""
        print(f"soak: {part.name}: {how} in {(time.monotonic() - begin) / 60:.1f} minutes{again}", flush=True)

    def summary(self, chosen: list[Part]) -> str:
        """Say in one line how it went.

        >>> soak = Soak(0, 7, Path("/nowhere"))
        >>> soak.known = {part.name: HELD for part in parts()[1:]} | {"lost executors": FAILED}
        >>> soak.summary(parts())
        'soak: seed 7: 23 of 25 parts held; failed: lost executors; 1 not begun: make soak SEED=7'
        """
        by = {
            how: [part.name for part in chosen if self.known.get(part.name) == how]
            for how in (HELD, FAILED, NONE, None)
        }
        said = [f"soak: seed {self.seed}: {len(by[HELD])} of {len(chosen)} parts held"]
        said[0] += f" and {self.rounds} more rounds" if self.rounds else ""
        said += [f"failed: {', '.join(by[FAILED])}"] if by[FAILED] else []
        said += [f"without tests: {', '.join(by[NONE])}"] if by[NONE] else []
        said += [f"{len(by[None])} not begun: make soak SEED={self.seed}"] if by[None] else []
        return "; ".join(said)


def main(arguments: list[str]) -> int:
    """Run a soak, or one part of it again."""
    minutes, seed, name = (*arguments, "", "", "")[:3]
    first = int(seed) if seed else secrets.randbelow(2**31)
    soak = Soak(float(minutes or 5), first, ROOT / ".cache" / "soak")
    chosen = parts()
    if name:
        chosen = [part for part in chosen if name in part.name]
        soak.known = {key: how for key, how in soak.known.items() if name not in key}
    if not chosen:
        print(f"soak: no part has {name!r} in its name; there are: {', '.join(p.name for p in parts())}")
        return 2
    return soak.run(chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
