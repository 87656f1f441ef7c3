"""Watch runs that others make: whatever runs inside `with watching(…)` is told to the observers given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

from trueline.run.events import Observer

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
