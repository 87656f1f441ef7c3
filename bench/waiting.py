"""Runs whose steps only wait: what the schedule costs, beside the best that is possible and two plain ways.

The *barrier* does one step after another with a pool; the *chain* one task per
key. The *ideal* is the greatest of: all the waiting shared by the workers, the
longest key, a limited step by itself.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from bench.run_once import run_feedforward

WORKERS = 8


@dataclass(frozen=True)
class Waiting:
    """So many keys through steps that wait; `limits` says how many batches of a step may run at once."""

    what: str
    keys: int
    steps: int
    seconds: Callable[[int, int], float]
    changes: Callable[[int, int], bool]
    limits: dict[int, int] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)

    def step(self, index: int) -> Callable[[Any, Any], Any]:
        """A function for a step: it waits, and changes the value or does not."""

        def work(key: int, value: int) -> int:
            self.calls.append(index)
            time.sleep(self.seconds(key, index))
            return value + 1 if self.changes(key, index) else value

        return work

    @property
    def inputs(self) -> dict[Any, Any]:
        return dict.fromkeys(range(self.keys), 0)

    @property
    def expected(self) -> dict[int, int]:
        return {key: sum(self.changes(key, step) for step in range(self.steps)) for key in range(self.keys)}

    @property
    def ideal(self) -> float:
        by_key = [sum(self.seconds(key, step) for step in range(self.steps)) for key in range(self.keys)]
        limited = [
            sum(self.seconds(key, step) for key in range(self.keys)) / limit
            for step, limit in self.limits.items()
        ]
        return max(sum(by_key) / WORKERS, *by_key, *limited)

    # --- the ways ---------------------------------------------------------------------

    def ours(self) -> None:
        from trueline.run import Run, Step

        steps = [
            Step(map=self.step(index), concurrency=self.limits.get(index)) for index in range(self.steps)
        ]
        assert Run(steps, WORKERS).execute(self.inputs) == self.expected

    def barrier(self) -> None:
        values = self.inputs
        for index in range(self.steps):
            work = self.step(index)
            with ThreadPoolExecutor(self.limits.get(index, WORKERS)) as pool:
                values = dict(zip(values, pool.map(work, values, values.values()), strict=True))
        assert values == self.expected

    def chain(self) -> None:
        works = [self.step(index) for index in range(self.steps)]
        doors = {index: threading.Semaphore(limit) for index, limit in self.limits.items()}

        def through(key: int) -> int:
            value = 0
            for index, work in enumerate(works):
                if index in doors:
                    with doors[index]:
                        value = work(key, value)
                else:
                    value = work(key, value)
            return value

        with ThreadPoolExecutor(WORKERS) as pool:
            assert dict(enumerate(pool.map(through, range(self.keys)))) == self.expected

    def feedforward(self) -> None:
        works = [self.step(index) for index in range(self.steps)]
        limits = [self.limits.get(index) for index in range(self.steps)]
        run_feedforward(works, self.inputs, WORKERS, limits)


def _chosen(share: float, *about: object) -> bool:
    return random.Random(repr(about)).random() < share


def scenarios(keys: int) -> list[Waiting]:
    """The loads of the comparison: even, slow here and there, slow keys, a step that is limited."""

    def even(_: int, __: int) -> float:
        return 0.005

    def here_and_there(key: int, step: int) -> float:
        return 0.1 if _chosen(0.02, "slow", key, step) else 0.003

    def slow_keys(key: int, _: int) -> float:
        return 0.1 if key % 50 == 49 else 0.003

    def second(_: int, step: int) -> float:
        return 0.001 if step == 1 else 0.005

    def first(_: int, step: int) -> float:
        return 0.002 if step == 0 else 0.005

    def none(_: int, __: int) -> bool:
        return False

    def every(_: int, __: int) -> bool:
        return True

    def tenth(key: int, step: int) -> bool:
        return _chosen(0.1, "change", key, step)

    return [
        Waiting("5 ms each, none change", keys, 4, even, none),
        Waiting("5 ms each, all change", keys, 4, even, every),
        Waiting("2 % of the calls 100 ms, none change", keys, 4, here_and_there, none),
        Waiting("2 % of the calls 100 ms, all change", keys, 4, here_and_there, every),
        Waiting("2 % of the keys slow, none change", keys, 4, slow_keys, none),
        Waiting("2 % of the keys slow, all change", keys, 4, slow_keys, every),
        Waiting("step 1 one at a time, 10 % change", keys, 4, second, tenth, {1: 1}),
        Waiting("step 1 one at a time, all change", keys, 4, second, every, {1: 1}),
        Waiting("step 0 one at a time, all change", keys, 4, first, every, {0: 1}),
    ]


def ahead(share: float, seed: int, seconds: float = 0.05) -> Waiting:
    """Two keys, eight steps: only working ahead is faster than the chain."""
    return Waiting(
        f"{share:.0%} change",
        2,
        8,
        lambda _, __: seconds,
        lambda key, step: _chosen(share, seed, key, step),
    )
