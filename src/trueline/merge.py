"""How what is appended joins what is there: the merge strategies.

A strategy is a value; `ws.create` takes one:

>>> append() == Append(), ledger("id") == Ledger(("id",)), upsert("id") == Upsert(("id",))
(True, True, True)
>>> snapshot("id") == Snapshot(("id",), None), changelog("id") == Changelog(("id",))
(True, True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from typing import Any, ClassVar, ParamSpec, TypeVar

from trueline.errors import InputError

__all__ = [
    "Append",
    "Changelog",
    "Ledger",
    "Snapshot",
    "Strategy",
    "Upsert",
    "append",
    "changelog",
    "ledger",
    "snapshot",
    "upsert",
]


class KeyEquality(StrEnum):
    """Which keys are equal; the definition of a dataset says it.

    Bitwise: the two zeros of floats are two keys. Numeric: they are one. Group: they are one, and null is a
    value, as in GROUP BY; the keys of derived datasets are compared so.
    """

    BITWISE = "bitwise"
    NUMERIC = "numeric"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Append:
    """Every row is a new record; offsets follow the order of the rows."""

    NAME: ClassVar[str] = "append"

    def __str__(self) -> str:
        return "append()"


@dataclass(frozen=True, slots=True)
class Ledger:
    """Rows are facts with a key: the first row of a key counts, later ones are ignored and counted."""

    NAME: ClassVar[str] = "ledger"
    key: tuple[str, ...]

    def __str__(self) -> str:
        return f"ledger({_shown(self.key)})"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Each batch is everything there is: what is new, changed or gone becomes an event.

    A row has changed if a column of `compare` has (None: any column but the key).
    """

    NAME: ClassVar[str] = "snapshot"
    key: tuple[str, ...]
    compare: tuple[str, ...] | None = None

    def __str__(self) -> str:
        compare = "" if self.compare is None else f", compare={_shown(self.compare)}"
        return f"snapshot({_shown(self.key)}{compare})"


@dataclass(frozen=True, slots=True)
class Changelog:
    """Rows are events already: the column `op` says which."""

    NAME: ClassVar[str] = "changelog"
    key: tuple[str, ...]

    def __str__(self) -> str:
        return f"changelog({_shown(self.key)})"


@dataclass(frozen=True, slots=True)
class Upsert:
    """The last row of a key counts; a row whose `op` is 1 takes the key away."""

    NAME: ClassVar[str] = "upsert"
    key: tuple[str, ...]

    def __str__(self) -> str:
        return f"upsert({_shown(self.key)})"


@dataclass(frozen=True, slots=True)
class NetChange:
    """Rows that a result gained and rows that it lost (`op` 1), at most one of each for a key.

    Derived datasets that follow by the increment are merged so; nobody creates a dataset with it.
    """

    NAME: ClassVar[str] = "net change"
    key: tuple[str, ...]

    def __str__(self) -> str:
        return f"net change by {_shown(self.key)}"


Strategy = Append | Ledger | Snapshot | Changelog | Upsert
# Those that meet the current rows of a key.
Keyed = Ledger | Snapshot | Changelog | Upsert | NetChange
P = ParamSpec("P")
S = TypeVar("S")


def _one_key(strategy: Callable[P, S]) -> Callable[P, S]:
    """Say of a key that is given column by column how it is given as one."""
    name = strategy.__name__

    @wraps(strategy)
    def made(*given: P.args, **named: P.kwargs) -> S:
        if len(given) > 1:
            raise InputError(
                f"{name}({', '.join(map(repr, given))}): the columns of a key are given as one list",
                remedy=f"write {name}({list(given)!r})",
                code="BadKey",
            )
        return strategy(*given, **named)

    return made


def append() -> Append:
    """Keep every row as it comes.

    >>> str(append())
    'append()'
    """
    return Append()


@_one_key
def ledger(key: str | Iterable[str]) -> Ledger:
    """Keep the first row of every key; a row sent again is ignored.

    >>> str(ledger("id")), str(ledger(["year", "city"]))
    ("ledger('id')", "ledger(['year', 'city'])")
    """
    return Ledger(_names(key, "key"))


def snapshot(key: str | Iterable[str], compare: str | Iterable[str] | None = None) -> Snapshot:
    """Take each batch as the whole table, and keep what differs from the one before.

    >>> str(snapshot("id", compare=["price"]))
    "snapshot('id', compare='price')"
    """
    columns = _names(key, "key")
    return Snapshot(columns, None if compare is None else _names(compare, "compare"))


@_one_key
def changelog(key: str | Iterable[str]) -> Changelog:
    """Take rows as events: `op` is 0 append, 1 retract, 2 correct from, 3 correct to.

    >>> str(changelog("id"))
    "changelog('id')"
    """
    return Changelog(_names(key, "key"))


@_one_key
def upsert(key: str | Iterable[str]) -> Upsert:
    """Keep the last row of every key; `op` 1, where the column is given, removes it.

    >>> str(upsert("id"))
    "upsert('id')"
    """
    return Upsert(_names(key, "key"))


def _names(given: str | Iterable[str], what: str) -> tuple[str, ...]:
    names: tuple[Any, ...] = (given,) if isinstance(given, str) else tuple(given)
    if not names or any(not isinstance(name, str) or not name for name in names):
        raise InputError(
            f"{what} is {given!r}, which names no column", remedy="name a column, or a list of columns"
        )
    if len(set(names)) != len(names):
        raise InputError(f"{what} names a column twice: {', '.join(names)}", remedy="name each column once")
    return names


def _shown(names: tuple[str, ...]) -> str:
    return repr(names[0]) if len(names) == 1 else repr(list(names))
