"""Notifies the observers of a run of what happens; `watching` adds observers to runs that others make."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

from trueline.run.attempt import Attempt, Entry
from trueline.run.events import Event, Observer, Watcher, What


class Notifier:
    """Makes events and hands them to observers; without observers it is false, and makes none."""

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

    def notify(
        self,
        what: What,
        step: int,
        key: Any = None,
        entry: Entry = ((), None),
        attempt: Attempt | None = None,
    ) -> None:
        """Report what happened to one key, or to a step."""
        if self._observers:
            self.notify_all(what, step, {key: entry}, attempt)

    def notify_all(
        self, what: What, step: int, entries: Mapping[Any, Entry], attempt: Attempt | None
    ) -> None:
        """Report what happened to several keys."""
        if not self._observers:
            return
        at = self.now()
        number, worker, ahead, seconds = 0, 0, False, 0.0
        if attempt is not None:
            number, worker = attempt.number, attempt.worker
            ahead, seconds = attempt.speculative, attempt.seconds
        for key, (gens, value) in entries.items():
            event = Event(what, step, key, gens, number, at, worker, value, ahead, seconds)
            for observer in self._observers:
                observer.event(event)


# --- observers of runs that others make -----------------------------------------------

_watchers: ContextVar[tuple[Observer, ...]] = ContextVar("trueline_run_watchers", default=())


@runtime_checkable
class Seated(Protocol):
    """An observer that several runs may have at once: each is watched from a seat of its own."""

    def seat(self) -> Observer:
        """Return who watches one run."""


@contextmanager
def watching(*observers: Observer) -> Iterator[None]:
    """Have observers watch every run that is made inside the block, by whatever makes it.

    >>> from trueline.run import Recording, Run, Step, watching
    >>> recording = Recording()
    >>> with watching(recording):
    ...     Run([Step(map=lambda key, value: value + 1, name="add")]).execute({"a": 1})
    {'a': 2}
    >>> [piece.name for piece in recording.pieces]
    ['add']
    """
    token = _watchers.set((*_watchers.get(), *observers))
    try:
        yield
    finally:
        _watchers.reset(token)


def watchers() -> tuple[Observer, ...]:
    """Return those who watch the run that is being made."""
    return tuple(each.seat() if isinstance(each, Seated) else each for each in _watchers.get())
