"""Tells those who watch a run what happens in it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from trueline.run.attempt import Attempt, Entry
from trueline.run.events import Event, Observer, Watcher, What


class Teller:
    """Makes events; where nobody watches it is false, and nothing is made."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._observers = tuple(observers)
        self._watchers = [observer for observer in self._observers if isinstance(observer, Watcher)]
        self._started = time.perf_counter()

    def __bool__(self) -> bool:
        return bool(self._observers)

    def begin(self, names: Sequence[str]) -> None:
        """The run begins."""
        for watcher in self._watchers:
            watcher.begin(names)
        self._started = time.perf_counter()

    def end(self) -> None:
        """The run has ended."""
        for watcher in self._watchers:
            watcher.end()

    def now(self) -> float:
        """Return the seconds since the run began."""
        return time.perf_counter() - self._started

    def tell(
        self,
        what: What,
        step: int,
        key: Any = None,
        entry: Entry = ((), None),
        attempt: Attempt | None = None,
    ) -> None:
        """Tell of one key, or of a step."""
        if self._observers:
            self.tell_all(what, step, {key: entry}, attempt)

    def tell_all(self, what: What, step: int, entries: Mapping[Any, Entry], attempt: Attempt | None) -> None:
        """Tell of several keys."""
        if not self._observers:
            return
        at = self.now()
        told = (0, 0, False, 0.0)
        if attempt is not None:
            told = (attempt.number, attempt.worker, attempt.speculative, attempt.seconds)
        number, worker, ahead, seconds = told
        for key, (gens, value) in entries.items():
            event = Event(what, step, key, gens, number, at, worker, value, ahead, seconds)
            for observer in self._observers:
                observer.event(event)
