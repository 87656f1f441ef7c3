"""A run as it goes on: a bar on the console in use, with what works ahead and what was thrown away."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from trueline import console as consoles
from trueline.console import Console, Progress
from trueline.run.events import Event, Observer

# The bar is moved so many seconds apart: often enough to be live, seldom enough to cost nothing.
_APART: Final = 0.1


class Display:
    """Watches a run and shows how far it is: `Run(steps, observers=[Display()])`.

    On a terminal and in a notebook it is a live bar, which is gone when the run ends; into a file
    nothing is written. The bar counts values that went through a step and are not revised since.

    >>> from trueline.console import SilentConsole
    >>> from trueline.run import Run, Step
    >>> display = Display("adding", console=SilentConsole())
    >>> Run([Step(map=lambda key, value: value + 1)], observers=[display]).execute({"a": 1})
    {'a': 2}
    >>> display.through, display.total, display.seat() is display
    (1, 1, True)
    """

    def __init__(self, label: str = "run", console: Console | None = None) -> None:
        self.label = label
        self.console = console
        self._work = ExitStack()
        self._bar: Progress | None = None
        self._reset(())

    def seat(self) -> Observer:
        """Return the observer of one more run; while one is shown, others that go on are not."""
        return self if self._bar is None else _Unseen()

    def _reset(self, steps: Sequence[str]) -> None:
        self.steps = tuple(steps)
        self.done: list[set[Any]] = [set() for _ in steps]
        self.keys: set[Any] = set()
        self.finals = 0
        self.thrown = 0
        self._shown = 0
        self._expected = 0
        self._drawn = 0.0

    # --- called by the run --------------------------------------------------------------

    def begin(self, steps: Sequence[str]) -> None:
        """Draw the bar."""
        self._work.close()
        self._reset(steps)
        console = self.console or consoles.current()
        self._bar = self._work.enter_context(console.progress(self.label))

    def end(self) -> None:
        """Draw it a last time, and take it away."""
        self._draw()
        self._bar = None
        self._work.close()

    def event(self, event: Event) -> None:
        """Count what happened, and now and then show it."""
        match event.what:
            case "accepted":
                self._accepted(event)
            case "changed" | "unchanged":
                self.done[event.step].add(event.key)
            case "superseded":
                self.thrown += 1
            case "step final":
                self.finals = max(self.finals, event.step + 1)
        now = time.monotonic()
        if now - self._drawn >= _APART:
            self._drawn = now
            self._draw()

    def _accepted(self, event: Event) -> None:
        self.keys.add(event.key)
        if event.key in self.done[event.step]:
            self.done[event.step].remove(event.key)
            self.thrown += 1

    # --- shown to people --------------------------------------------------------------

    @property
    def total(self) -> int:
        """How much there is, as far as is known: every key at every step."""
        return len(self.keys) * len(self.steps)

    @property
    def through(self) -> int:
        """How much of it is done; a step that is final has done with every key."""
        return sum(
            len(self.keys) if index < self.finals else len(done) for index, done in enumerate(self.done)
        )

    def _draw(self) -> None:
        if self._bar is None:
            return
        if self.total != self._expected:
            self._expected = self.total
            self._bar.expect(self.total)
        through = self.through
        self._bar.advance(through - self._shown)
        self._shown = through
        self._bar.describe(self._words())

    def _words(self) -> str:
        at = self.steps[self.finals] if self.finals < len(self.steps) else "done"
        furthest = max((index for index, done in enumerate(self.done) if done), default=0)
        words = f"{self.label}: {at}"
        if furthest > self.finals:
            words += f", ahead to {self.steps[furthest]}"
        if self.thrown:
            words += f", {self.thrown:,} thrown away"
        return words


class _Unseen:
    """Watches a run that is not shown."""

    def event(self, event: Event) -> None:
        """Leave it."""
