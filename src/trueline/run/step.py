"""One step of a run: a function from a key's value to its next value, or to writes of several keys."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, Literal, TypeAlias

from trueline.errors import InputError


class Erased(Enum):
    """The value of a key that is no longer there."""

    ERASED = "erased"

    def __repr__(self) -> str:
        return "ERASED"


ERASED: Final = Erased.ERASED

OnError: TypeAlias = Literal["fail_run", "skip_step", "skip_key"]
Kind: TypeAlias = Literal["map", "flat_map", "process"]
Write: TypeAlias = tuple[Any, Any]
_KINDS: Final[tuple[Kind, ...]] = ("map", "flat_map", "process")


class Step:
    """Subclass it with one of `map`, `flat_map`, `process`, or give one: `Step(map=f)`.

    - `map(key, value)` returns the key's next value, or ERASED; the same value means nothing changes.
    - `flat_map(key, value)` yields (key, value) or (key, ERASED) for the keys it writes.
    - `process(items)` gets several (key, value) and yields (source, key, value): which of them made it write.
      If it is not eager and has no `batch_size` it gets all keys at once, in their order, and may yield None
      for the source: the write rests on all of them, and comes after the others.

    A step must be a function of what it is given: the same again for the same input, and nothing else. It
    must not change a value it is given: earlier and later steps may be looking at it.

    >>> shout = Step(map=lambda key, value: value.upper(), name="shout")
    >>> shout.kind, shout.eager
    ('map', True)

    >>> shout.check()
    >>> shout.map("k", "a"), shout.match("k"), shout.ready(), shout.digest("a"), shout.superseded("k")
    ('A', True, True, 'a', None)
    >>> shout.matches_all, shout.writes_others, shout.takes_all, shout.is_whole, shout.hears_superseded
    (True, False, False, False, False)
    >>> list(Step(flat_map=lambda key, value: [(key, value), ("copy", value)]).flat_map("k", 1))
    [('k', 1), ('copy', 1)]
    >>> total = Step(process=lambda items: [(None, "total", sum(v for _, v in items))], eager=False)
    >>> list(total.process([("a", 1), ("b", 2)]))
    [(None, 'total', 3)]
    """

    name: str = ""
    eager: bool = True
    concurrency: int | None = None
    batch_size: int | None = None
    on_error: OnError = "fail_run"
    # How often it changes a value, as far as one knows before it has run: later steps work ahead if rarely.
    change_rate: float = 0.0
    _functions: ClassVar = ("map", "flat_map", "process", "match", "ready", "digest", "superseded")
    _settings: ClassVar = ("name", "eager", "concurrency", "batch_size", "on_error", "change_rate")

    def __init__(self, **given: Any) -> None:
        for key, value in given.items():
            if key not in (*self._functions, *self._settings):
                raise InputError(
                    f"{key!r} is not an argument of a step",
                    remedy=f"give one of {', '.join((*self._functions, *self._settings))}",
                )
            setattr(self, key, value)
        self.check()

    @property
    def kind(self) -> Kind:
        """Which of map, flat_map, process it defines."""
        found = self.__dict__.get("_kind")
        if found is None:
            found = self.__dict__["_kind"] = self._found()
        return found

    def _found(self) -> Kind:
        found = [
            kind
            for kind in _KINDS
            if kind in self.__dict__ or getattr(type(self), kind) is not getattr(Step, kind)
        ]
        if len(found) != 1:
            raise InputError(
                f"{self!r} defines {' and '.join(found) or 'none of map, flat_map, process'}",
                remedy="define exactly one of map, flat_map, process",
            )
        return found[0]

    def check(self) -> None:
        """Raise unless it can be run; a run asks again, for steps that were changed since."""
        self.__dict__["_kind"] = self._found()
        for name in self._functions:
            if not callable(function := getattr(self, name)):
                raise InputError(f"{name}={function!r} is not a function", remedy="give a function")
        if inspect.iscoroutinefunction(getattr(self, self.kind)):
            raise InputError(f"{self.kind} of {self!r} is asynchronous", remedy="define it without async")
        if not isinstance(self.name, str):
            raise InputError(f"name={self.name!r} is not a string", remedy="give a string")
        rate: Any = self.change_rate
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise InputError(f"change_rate={rate!r} is not a fraction", remedy="give a number from 0 to 1")
        self._check_limits()

    def _check_limits(self) -> None:
        for name in ("concurrency", "batch_size"):
            limit = getattr(self, name)
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit == 0):
                raise InputError(
                    f"{name}={limit!r} is not a limit", remedy="give an integer of at least 1, or None"
                )
        if self.concurrency is not None and self.concurrency < 0:
            raise InputError(
                f"concurrency={self.concurrency} is not a limit",
                remedy="give an integer of at least 1, or None",
            )
        if self.on_error not in ("fail_run", "skip_step", "skip_key"):
            raise InputError(
                f"on_error={self.on_error!r} is not known", remedy="give fail_run, skip_step or skip_key"
            )

    # --- what it does -------------------------------------------------------------------

    def map(self, key: Any, value: Any) -> Any:
        """Return the key's next value."""
        raise NotImplementedError

    def flat_map(self, key: Any, value: Any) -> Iterable[Write]:
        """Yield the keys it writes, and their values."""
        raise NotImplementedError

    def process(self, items: Sequence[Write]) -> Iterable[tuple[Any, Any, Any]]:
        """Yield (source, key, value) for several keys at once."""
        raise NotImplementedError

    # --- what it wants ------------------------------------------------------------------

    def match(self, key: Any) -> bool:
        """Say whether it has anything to do with a key; for the others it changes nothing."""
        return True

    def ready(self) -> bool:
        """Say whether it can begin work now; one that cannot is looked past until `run.wake()`."""
        return True

    def digest(self, value: Any) -> Any:
        """Return what values are compared by: equal digests mean equal values."""
        return value

    def superseded(self, key: Any) -> None:
        """Called when running work for a key is superseded: its result will be dropped."""

    # --- for the engine -----------------------------------------------------------------

    @property
    def matches_all(self) -> bool:
        """Whether `match` was left as it is."""
        return "match" not in self.__dict__ and type(self).match is Step.match

    @property
    def writes_others(self) -> bool:
        """Whether it may write keys other than the one it was given."""
        return self.kind != "map"

    @property
    def takes_all(self) -> bool:
        """Whether it is given all keys at once, when they are final."""
        return self.kind == "process" and not self.eager and (self.batch_size is None or self.batch_size < 0)

    @property
    def is_whole(self) -> bool:
        """Whether what it does to one key may change what becomes of another."""
        return self.writes_others or self.on_error == "skip_step"

    @property
    def hears_superseded(self) -> bool:
        """Whether it defines `superseded`."""
        return "superseded" in self.__dict__ or type(self).superseded is not Step.superseded

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{' ' * bool(self.name)}{self.name}>"
