"""Samples of how long something takes."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Action = Callable[[], object]


@dataclass(frozen=True)
class Samples:
    """Seconds each sample took."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p95(self) -> float:
        return sorted(self.seconds)[min(len(self.seconds) - 1, round(0.95 * len(self.seconds)))]

    @property
    def count(self) -> int:
        return len(self.seconds)

    def part(self, start: int, stop: int | None = None) -> Samples:
        return Samples(self.seconds[start:stop])


def timed(action: Action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def settle() -> None:
    """Let the disk finish what came before, so that it is not charged to what follows."""
    gc.collect()
    os.sync()


def sample(action: Action, count: int, warmup: int = 0) -> Samples:
    for _ in range(warmup):
        action()
    return Samples(tuple(timed(action) for _ in range(count)))


def alternate(actions: Mapping[str, Action], rounds: int, warmup: int = 3) -> dict[str, Samples]:
    """Sample several actions in turn, so that what disturbs the machine disturbs all of them alike."""
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(warmup + rounds):
        for name, action in actions.items():
            seconds = timed(action)
            if number >= warmup:
                taken[name].append(seconds)
    return {name: Samples(tuple(seconds)) for name, seconds in taken.items()}
