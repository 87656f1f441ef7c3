"""How other threads reach the coordinator, and are held back while it has enough to do."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final

from trueline.run.attempt import Attempt, Outcome

# How often a run that only waits for steps that are not ready looks whether they are.
PATIENCE: Final = 2.0


class NotWoken(UserWarning):
    """A step became ready, and nobody called `run.wake()`: the run would have waited for ever."""


def warn_not_woken(steps: Sequence[str]) -> None:
    """Warn that steps were found to be ready by chance."""
    names = ", ".join(repr(name) for name in steps)
    text = (
        f"the run waited for {names}, which had become ready without a call of run.wake()\n  → call "
        "run.wake() when what ready() asks for has changed; without it a run notices only after seconds"
    )
    warnings.warn(text, NotWoken, stacklevel=2)


@dataclass
class Inbox:
    """What reaches the coordinator from other threads."""

    queue: SimpleQueue[tuple[Any, ...]] = field(default_factory=SimpleQueue)

    def post(self, attempt: Attempt, outcome: Outcome | BaseException) -> None:
        """A batch has ended."""
        self.queue.put(("done", attempt, outcome))

    def feed(self, items: Mapping[Any, Any], *, final: bool = False) -> None:
        """Values have come in, new or revised; `final` ones will not be revised."""
        self.queue.put(("feed", dict(items), final))

    def close(self) -> None:
        """No more values will come in."""
        self.queue.put(("close",))

    def wake(self) -> None:
        """A step that was not ready may be."""
        self.queue.put(("wake",))

    def abort(self, error: BaseException) -> None:
        """The run is to end with an error."""
        self.queue.put(("raise", error))


class Gate:
    """Holds back those who feed a run while as many values as it may hold are on their way."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._condition = threading.Condition()
        self._held = 0
        self._entered = 0
        self._is_over = False

    def enter(self) -> None:
        """Wait for room, then take it."""
        with self._condition:
            while self._held >= self._limit and not self._is_over:
                self._condition.wait()
            self._held += 1
            self._entered += 1

    def turn_back(self) -> None:
        """Give back the room that was taken: nothing came in."""
        with self._condition:
            self._held -= 1
            self._entered -= 1
            self._condition.notify_all()

    def leave(self, handled: int, backlog: int) -> None:
        """Make room: of the values handled so far, only the backlog is still on its way."""
        with self._condition:
            self._held = min(self._held, self._entered - handled + backlog)
            if self._held < self._limit:
                self._condition.notify_all()

    def open(self) -> None:
        """Let everyone pass: the run is over."""
        with self._condition:
            self._is_over = True
            self._condition.notify_all()
