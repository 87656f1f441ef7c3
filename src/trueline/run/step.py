"""One step of a run: a function from a key's value to its next value, or to writes of several keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
      A step that is not eager may yield None for the source: the write rests on all items of the batch.

    A step must be a function of what it is given: the same again for the same input, and nothing else.

    >>> shout = Step(map=lambda key, value: value.upper(), name="shout")
    >>> shout.kind, shout.eager
    ('map', True)
    """

    name: str = ""
    eager: bool = True
    concurrency: int | None = None
    batch_size: int | None = None
    on_error: OnError = "fail_run"
    # How often it changes a value, as far as one knows before it has run: later steps work ahead if rarely.
    change_rate: float = 0.0
    kind: Kind
    _given: ClassVar[tuple[str, ...]] = ("map", "flat_map", "process", "match", "ready", "digest")

    def __init__(self, **given: Any) -> None:
        for key, value in given.items():
            if key not in (*self._given, "name", "eager", "concurrency", "batch_size", "on_error"):
                raise InputError(
                    f"a step has no {key!r}",
                    remedy="give map, flat_map or process; match, ready, digest, name, eager, concurrency, "
                    "batch_size, on_error",
                )
            setattr(self, key, value)
        found = [
            kind
            for kind in _KINDS
            if kind in self.__dict__ or getattr(type(self), kind) is not getattr(Step, kind)
        ]
        if len(found) != 1:
            raise InputError(
                f"{self!r} has {' and '.join(found) or 'nothing'} to do",
                remedy="define exactly one of map, flat_map, process",
            )
        self.kind = found[0]
        self._check()

    def _check(self) -> None:
        for name in ("concurrency", "batch_size"):
            limit = getattr(self, name)
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit == 0):
                raise InputError(f"{name}={limit!r}", remedy="give a whole number from 1 on, or None")
        if self.concurrency is not None and self.concurrency < 0:
            raise InputError(
                f"concurrency={self.concurrency}", remedy="give a whole number from 1 on, or None"
            )
        if self.on_error not in ("fail_run", "skip_step", "skip_key"):
            raise InputError(f"on_error={self.on_error!r}", remedy="give fail_run, skip_step or skip_key")

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
        """Return what tells values apart; equal digests are equal values."""
        return value

    def superseded(self, key: Any) -> None:
        """Learn that running work for a key is of no use any more."""

    # --- for the engine -----------------------------------------------------------------

    @property
    def matches_all(self) -> bool:
        """Whether `match` was left as it is."""
        return "match" not in self.__dict__ and type(self).match is Step.match

    @property
    def writes_others(self) -> bool:
        """Whether it may write keys other than the one it was given."""
        return self.kind != "map"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name or getattr(self, 'kind', '?')}>"


def same(step: Step, one: Any, other: Any) -> bool:
    """Say whether two values are equal to a step; where that cannot be told they are not."""
    if one is other:
        return True
    if one is ERASED or other is ERASED:
        return False
    try:
        return bool(step.digest(one) == step.digest(other))
    except Exception:  # noqa: BLE001 (whatever a value's own comparison raises)
        return False


def writes_of(step: Step, items: Sequence[Write]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (source, key, value) of a step that may write other keys."""
    if step.kind == "process":
        yield from step.process(items)
        return
    flat_map: Callable[[Any, Any], Iterable[Write]] = step.flat_map
    for key, value in items:
        for dst, made in flat_map(key, value):
            yield key, dst, made
