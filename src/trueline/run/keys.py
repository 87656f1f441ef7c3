"""Keys in their own order, whatever order they came in (decision 20)."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import Any, Final


class All:
    """The source of writes that rest on all keys of a batch; it writes after every single key."""

    def __repr__(self) -> str:
        return "ALL"


ALL: Final = All()


def in_order(keys: Iterable[Any]) -> list[Any]:
    """Return keys in their own order; keys that have none go by the name of their type, then by their text.

    >>> in_order([10, "b", 2, "a"])
    [2, 10, 'a', 'b']
    """
    single: list[Any] = []
    every: list[Any] = []
    for key in keys:
        (every if key is ALL else single).append(key)
    return [*_sorted(single), *every]


def _sorted(keys: list[Any]) -> list[Any]:
    # Sets compare by what they hold, so most have no order, yet comparing them raises nothing.
    if not any(isinstance(key, frozenset) for key in keys):
        try:
            return sorted(keys)
        except TypeError:
            pass
    kinds: dict[str, list[Any]] = {}
    for key in keys:
        kinds.setdefault("" if isinstance(key, Real) else type(key).__qualname__, []).append(key)
    if len(kinds) == 1:
        return sorted(keys, key=_text)
    return [key for kind in sorted(kinds) for key in _sorted(kinds[kind])]


def _text(key: Any) -> str:
    """A text that does not depend on the order in which a set happens to hold its members."""
    if isinstance(key, frozenset):
        return "{" + ", ".join(sorted(_text(each) for each in key)) + "}"
    return named(key)


def named(key: Any) -> str:
    """Return how a key is shown; one that cannot say it goes by its type.

    >>> named("a.csv")
    "'a.csv'"
    """
    try:
        return repr(key)
    except Exception:  # noqa: BLE001 (whatever a key's own repr raises)
        return f"<{type(key).__qualname__}>"
