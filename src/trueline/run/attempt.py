"""One batch of work: what it was given, who may still want it, and what came of it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from trueline.run.generations import Generations
from trueline.run.step import ERASED, Step, same, writes_of

Entry: TypeAlias = tuple[Generations, Any]


class Token:
    """Tells running work that it is of no use any more; a step may poll it with `trueline.run.current()`."""

    __slots__ = ("_keys", "_whole")

    def __init__(self) -> None:
        self._keys: set[Any] = set()
        self._whole = False

    def supersede(self, keys: Any = None) -> None:
        """Say that the work is of no use, for some keys or for all."""
        if keys is None:
            self._whole = True
        else:
            self._keys.update(keys)

    def superseded(self, key: Any = None) -> bool:
        """Say whether work is of no use: for a key, or as a whole."""
        return self._whole or (key is not None and key in self._keys)


@dataclass(eq=False)
class Attempt:
    """A batch of a step: the entries it works on, by key, and its generation."""

    number: int
    index: int
    generation: int
    items: dict[Any, Entry]
    speculative: bool = False
    stale: set[Any] = field(default_factory=set)
    token: Token = field(default_factory=Token)
    started: float = 0.0
    seconds: float = 0.0
    worker: int = 0

    def supersede(self, keys: set[Any]) -> None:
        """Drop what comes of some keys."""
        self.stale |= keys
        self.token.supersede(keys)
        if len(self.stale) == len(self.items):
            self.token.supersede()


@dataclass(slots=True)
class Outcome:
    """What came of a batch: values that changed, writes of other keys, errors by key, the time it took.

    Of `known` keys it was known before: a journal had it.
    """

    changed: list[tuple[Any, Any]]
    writes: list[tuple[Any, Any, Any]]
    errors: list[tuple[Any, BaseException]]
    seconds: float = 0.0
    worker: int = 0
    known: int = 0


_local = threading.local()


def current() -> Token | None:
    """Return the token of the work this thread does, None if it does none."""
    return getattr(_local, "token", None)


def work(step: Step, items: list[tuple[Any, Any]], token: Token | None = None) -> Outcome:
    """Do a batch; whatever a step raises for a key is kept with the key."""
    _local.token = token
    try:
        return _mapped(step, items, token) if step.kind == "map" else _written(step, items)
    finally:
        _local.token = None


def _mapped(step: Step, items: list[tuple[Any, Any]], token: Token | None) -> Outcome:
    changed: list[tuple[Any, Any]] = []
    errors: list[tuple[Any, BaseException]] = []
    function = step.map
    for key, value in items:
        if token is not None and token._keys and token.superseded(key):  # noqa: SLF001 (a cheap look first)
            continue
        try:
            made = function(key, value)
            if made is not value and not same(step, made, value):
                changed.append((key, made))
        except Exception as error:  # noqa: BLE001 (whatever a step raises)
            errors.append((key, error))
    return Outcome(changed, [], errors)


def _written(step: Step, items: list[tuple[Any, Any]]) -> Outcome:
    try:
        return Outcome([], list(writes_of(step, items)), [])
    except Exception as error:  # noqa: BLE001 (whatever a step raises)
        if len(items) == 1:
            return Outcome([], [], [(items[0][0], error)])
    # Which of them it was is found by doing each alone.
    outcome = Outcome([], [], [])
    for item in items:
        one = _written(step, [item])
        outcome.writes += one.writes
        outcome.errors += one.errors
    return outcome


def is_there(value: Any) -> bool:
    """Say whether a key with this value is there."""
    return value is not ERASED
