"""One batch of work: what it was given, who may still want it, and what came of it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from trueline.errors import InputError
from trueline.run.equality import same
from trueline.run.generations import Generations
from trueline.run.step import Step

Entry: TypeAlias = tuple[Generations, Any]


class Token:
    """Says whether running work is superseded; a step may poll it with `trueline.run.current()`.

    >>> token = Token()
    >>> token.supersede(["a"])
    >>> token.superseded("a"), token.superseded("b"), token.superseded()
    (True, False, False)
    """

    __slots__ = ("_keys", "_whole", "touched")

    def __init__(self) -> None:
        self._keys: set[Any] = set()
        self._whole = False
        self.touched = False  # a cheap look before `superseded`

    def supersede(self, keys: Iterable[Any] | None = None) -> None:
        """Mark the work as superseded, for some keys or for all."""
        if keys is None:
            self._whole = True
        else:
            self._keys.update(keys)
        self.touched = True

    def superseded(self, key: Any = None) -> bool:
        """Return whether the work is superseded: for a key, or as a whole."""
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
    restamped: bool = False  # some entries were replaced by newer ones of the same value

    def supersede(self, keys: Iterable[Any]) -> None:
        """Drop what comes of some keys."""
        keys = list(keys)
        self.stale.update(keys)
        self.token.supersede(keys)
        if self.is_useless:
            self.token.supersede()

    @property
    def is_useless(self) -> bool:
        """Whether all of it is superseded."""
        return len(self.stale) == len(self.items)


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
    """Return the token of the work this thread does, None if it does none.

    >>> from trueline.run import Run, Step
    >>> current() is None
    True
    >>> step = Step(map=lambda key, value: "stop" if current().superseded(key) else "go on")
    >>> Run([step]).execute({"a": 1})
    {'a': 'go on'}
    """
    return getattr(_local, "token", None)


def work(step: Step, items: list[tuple[Any, Any]], token: Token | None = None) -> Outcome:
    """Do a batch; whatever a step raises for a key is kept with the key."""
    outer = current()  # a step may make a run, whose work is done in this thread
    _local.token = token
    try:
        if step.kind == "map":
            return _mapped(step, items, token)
        return _flattened(step, items, token) if step.kind == "flat_map" else _processed(step, items)
    finally:
        _local.token = outer


def _mapped(step: Step, items: list[tuple[Any, Any]], token: Token | None) -> Outcome:
    changed: list[tuple[Any, Any]] = []
    errors: list[tuple[Any, BaseException]] = []
    function = step.map
    for key, value in items:
        if token is not None and token.touched and token.superseded(key):
            continue
        try:
            made = function(key, value)
            if made is not value and not same(step, made, value):
                changed.append((key, made))
        except BaseException as error:  # noqa: BLE001 (whatever a step raises; the coordinator judges it)
            errors.append((key, error))
            if not isinstance(error, Exception):
                break
    return Outcome(changed, [], errors)


def _flattened(step: Step, items: list[tuple[Any, Any]], token: Token | None) -> Outcome:
    outcome = Outcome([], [], [])
    for key, value in items:
        if token is not None and token.touched and token.superseded(key):
            continue
        try:
            # All of a key's writes or none: what it yielded before it raised does not count.
            writes = {dst: made for dst, made in step.flat_map(key, value)}  # noqa: C416 (pairs, no mapping)
            outcome.writes += [(key, dst, made) for dst, made in writes.items()]
        except BaseException as error:  # noqa: BLE001 (as above)
            outcome.errors.append((key, error))
            if not isinstance(error, Exception):
                break
    return outcome


def _processed(step: Step, items: list[tuple[Any, Any]]) -> Outcome:
    """Process a batch; where that raises, do each key alone to find out which it was, and the others again.

    Where it raises on no key alone, it fails on all of them.
    """
    try:
        return Outcome([], _writes(step, items), [])
    except BaseException as error:  # noqa: BLE001 (as above)
        if len(items) == 1 or not isinstance(error, Exception):
            return Outcome([], [], [(items[0][0], error)])
        together = error
    errors: list[tuple[Any, BaseException]] = []
    good: list[tuple[Any, Any]] = []
    for item in items:
        try:
            _writes(step, [item])
            good.append(item)
        except BaseException as error:  # noqa: BLE001 (as above)
            errors.append((item[0], error))
            if not isinstance(error, Exception):
                return Outcome([], [], errors)
    if not errors:
        return Outcome([], [], [(key, together) for key, _ in items])
    outcome = _processed(step, good) if good else Outcome([], [], [])
    outcome.errors += errors
    return outcome


def _writes(step: Step, items: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any, Any]]:
    given = {key for key, _ in items}
    writes = []
    for source, key, value in step.process(items):
        if source not in given and not (source is None and step.takes_all):
            raise InputError(
                f"{step!r} wrote {key!r} from {source!r}, which it was not given",
                remedy="yield one of the keys of the batch as the source; None for all of them needs "
                "eager=False and no batch_size",
            )
        hash(key)  # what cannot be a key is this step's mistake
        writes.append((source, key, value))
    return writes
