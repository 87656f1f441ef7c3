"""An executor whose batches end when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from trueline.run import Run, Step
from trueline.run.attempt import Attempt, work
from trueline.run.executors import Post


class Manual:
    """Begins batches at once, works on them when `choose` picks them: it is given (step, keys) of each."""

    def __init__(self, choose: Callable[[list[tuple[int, str]]], int], workers: int = 8) -> None:
        self.workers = workers
        self.choose = choose
        self.waiting: list[tuple[Step, Attempt, list[tuple[Any, Any]]]] = []
        self.useless: list[int] = []
        self.done: list[tuple[int, str]] = []
        self._post: Post | None = None

    def start(self, steps: Sequence[Step], post: Post) -> None:
        self._post = post

    def submit(self, step: Step, attempt: Attempt, items: list[tuple[Any, Any]]) -> None:
        self.waiting.append((step, attempt, items))

    def superseded(self, attempt: Attempt) -> None:
        self.useless.append(attempt.number)

    def pump(self) -> bool:
        if not self.waiting:
            return False
        assert self._post is not None
        shown = [(attempt.index, "".join(map(str, attempt.items))) for _, attempt, _ in self.waiting]
        place = self.choose(shown)
        self.done.append(shown[place])
        step, attempt, items = self.waiting.pop(place)
        self._post(attempt, work(step, items, attempt.token))
        return True

    def stop(self) -> None:
        self.waiting.clear()


def right_first(shown: list[tuple[int, str]]) -> int:
    """End what the last step has begun first."""
    return max(range(len(shown)), key=lambda place: shown[place][0])


def left_first(shown: list[tuple[int, str]]) -> int:
    """End what the first step has begun first."""
    return min(range(len(shown)), key=lambda place: shown[place][0])


def in_turn(*wanted: tuple[int, str]) -> Callable[[list[tuple[int, str]]], int]:
    """End these, one after another, then whatever is leftmost."""
    left = list(wanted)

    def choose(shown: list[tuple[int, str]]) -> int:
        if left and left[0] in shown:
            return shown.index(left.pop(0))
        return left_first(shown)

    return choose


class Told:
    """Keeps every event."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def event(self, event: Any) -> None:
        self.events.append(event)

    def of(self, *what: str) -> list[tuple[Any, ...]]:
        return [(e.what, e.step, e.key) for e in self.events if e.what in what]


def run_by(steps: Iterable[Step], executor: Any, inputs: dict[Any, Any], **options: Any) -> tuple[Any, Any]:
    """Run to the end; return the result and the run."""
    run = Run(list(steps), executor=executor, **options)
    return run.execute(inputs), run
