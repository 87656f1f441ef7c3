"""What must hold of the rows of a dataset: checks that `ws.create` and `ws.derive` take.

A check is a value. By itself it stops the commit that breaks it; it can also warn, or leave rows out:

>>> not_null("id")
not_null('id')
>>> in_range("price", 0, 10_000).warn()
in_range('price', 0, 10000).warn()
>>> expression("paid <= total").quarantine()
expression('paid <= total').quarantine()
>>> unique("id"), row_count(at_least=1), max_age("2h"), relation("customer", "customers", "id")
(unique('id'), row_count(at_least=1), max_age('2h'), relation('customer', 'customers', 'id'))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from trueline.errors import InputError, UnsupportedVersion

__all__ = [
    "Action",
    "DatasetCheck",
    "expression",
    "in_range",
    "max_age",
    "not_null",
    "relation",
    "row_count",
    "unique",
]

_BY_ROW: Final = frozenset({"not_null", "in_range", "expression"})
# What must be said: by kind, how many columns and which options; at least one bound.
_MANY_COLUMNS: Final = {
    "not_null": range(1, 1 << 20),
    "unique": range(1, 1 << 20),
    "in_range": range(1, 2),
    "relation": range(1, 2),
}
_NEEDED: Final = {"expression": ("condition",), "max_age": ("age",), "relation": ("dataset", "other")}
_TEXTS: Final = frozenset({"condition", "age", "dataset", "other", "id"})
_BOUNDED: Final = frozenset({"in_range", "row_count"})
_BOUNDS: Final = frozenset({"at_least", "at_most"})
_KINDS: Final = _BY_ROW | {"unique", "row_count", "max_age", "relation"}


class Action(StrEnum):
    """What a broken check does: refuse the commit, leave the rows out and count them, or only count them.

    >>> unique("id").action, unique("id").warn().action.value
    (<Action.STOP: 'stop'>, 'warn')
    """

    STOP = "stop"
    QUARANTINE = "quarantine"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class DatasetCheck:
    """One check: its kind, the columns it looks at, what else it says, and what happens where it is broken.

    >>> check = in_range("price", 0, 10)
    >>> check.kind, check.columns, check.by_row, DatasetCheck.of(check.to_dict()) == check
    ('in_range', ('price',), True, True)
    >>> check.warn().to_dict()
    {'kind': 'in_range', 'columns': ['price'], 'at_least': 0, 'at_most': 10, 'action': 'warn'}
    """

    kind: str
    columns: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    action: Action = Action.STOP

    def warn(self) -> DatasetCheck:
        """Return the check as one that commits the rows and records how many break it.

        >>> not_null("id").warn()
        not_null('id').warn()
        """
        return replace(self, action=Action.WARN)

    def stop(self) -> DatasetCheck:
        """Return the check as one that refuses the whole commit, as checks do unless they say otherwise.

        >>> not_null("id").warn().stop() == not_null("id")
        True
        """
        return replace(self, action=Action.STOP)

    def quarantine(self) -> DatasetCheck:
        """Return the check as one that leaves out the rows that break it, and records how many.

        >>> not_null("id").quarantine()
        not_null('id').quarantine()
        """
        if not self.by_row:
            raise InputError(
                f"{self} looks at more than one row: which of them to leave out is not known",
                remedy=f"use {replace(self, action=Action.STOP)}.warn(), or let it stop the commit",
                code="NotARowCheck",
            )
        return replace(self, action=Action.QUARANTINE)

    def about(self, dataset_id: str) -> DatasetCheck:
        """Return a relation that knows the other dataset by its id, so that it may get another name.

        >>> relation("customer", "customers", "id").about("did:odf:z1").option("id")
        'did:odf:z1'
        """
        options = tuple((name, value) for name, value in self.options if name != "id")
        return replace(self, options=(*options, ("id", dataset_id)))

    def is_same(self, other: DatasetCheck) -> bool:
        """Say whether two checks ask for the same, whatever name a dataset has that they refer to by id.

        >>> one = relation("customer", "people", "id").about("did:odf:z1")
        >>> one.is_same(relation("customer", "customers", "id").about("did:odf:z1"))
        True
        """
        if str(self) == str(other):
            return True
        one, two = self.to_dict(), other.to_dict()
        return "id" in one and {**one, "dataset": ""} == {**two, "dataset": ""}

    @property
    def is_known(self) -> bool:
        """Whether it can be judged here; later software may have recorded one that cannot.

        >>> unique("id").is_known, DatasetCheck("magic").is_known
        (True, False)
        """
        return self.kind in _KINDS

    @property
    def by_row(self) -> bool:
        """Whether each row keeps or breaks it by itself."""
        return self.kind in _BY_ROW

    def option(self, name: str) -> Any:
        """Return what it says beside its columns, None if it says nothing of that name.

        >>> in_range("price", at_most=10).option("at_most")
        10
        """
        return dict(self.options).get(name)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, as definitions record it."""
        columns = {"columns": list(self.columns)} if self.columns else {}
        action = {} if self.action is Action.STOP else {"action": self.action.value}
        return {"kind": self.kind, **columns, **dict(self.options), **action}

    @classmethod
    def of(cls, said: Mapping[str, Any], place: str = "trueline.json") -> DatasetCheck:
        """Read a check that a definition records; one that is not known here is an error.

        >>> DatasetCheck.of({"kind": "magic"})
        Traceback (most recent call last):
        trueline.errors.UnsupportedVersion: the check {'kind': 'magic'} in trueline.json is not known here
          → upgrade trueline
        """
        given: object = said
        kind = said.get("kind") if isinstance(given, Mapping) else None
        known = isinstance(kind, str) and kind in _KINDS
        if not known or said.get("action", "stop") not in list(Action):
            raise UnsupportedVersion(
                f"the check {said!r:.80} in {place} is not known here", remedy="upgrade trueline"
            )
        options = {name: value for name, value in said.items() if name not in ("kind", "columns", "action")}
        columns = said.get("columns", ())
        if not _is_shaped(str(kind), columns, options):
            raise InputError(
                f"the check {said!r:.80} in {place} does not say what a check {kind} needs",
                remedy="say what checks of its kind need, or restore the dataset from a copy",
                code="BadCheck",
            )
        return cls(str(kind), tuple(columns), tuple(options.items()), Action(said.get("action", "stop")))

    def __str__(self) -> str:
        said = list(map(repr, self.columns))
        for name, value in self.options:
            if name == "id":
                continue  # nobody types it
            plain = name in ("condition", "age", "dataset", "other") or (
                name in ("at_least", "at_most") and self.kind == "in_range" and len(self.options) == 2
            )
            said.append(repr(value) if plain else f"{name}={value!r}")
        action = "" if self.action is Action.STOP else f".{self.action.value}()"
        return f"{self.kind}({', '.join(said)}){action}"

    __repr__ = __str__


def not_null(*columns: str) -> DatasetCheck:
    """Every row has a value in these columns.

    >>> not_null("id", "day")
    not_null('id', 'day')
    """
    return DatasetCheck("not_null", _named(columns))


def unique(*columns: str) -> DatasetCheck:
    """No two current rows have the same values in these columns; null is a value.

    >>> unique("id")
    unique('id')
    """
    return DatasetCheck("unique", _named(columns))


def in_range(column: str, at_least: Any = None, at_most: Any = None) -> DatasetCheck:
    """Every value lies between two bounds, both included; a null does not.

    >>> in_range("share", 0, 1)
    in_range('share', 0, 1)
    """
    return DatasetCheck("in_range", _named((column,)), _bounds(at_least, at_most, (int, float, str)))


def expression(condition: str) -> DatasetCheck:
    """Every row meets a condition, written as in `View.filter`; where that is null it is not met.

    >>> expression("paid <= total")
    expression('paid <= total')
    """
    given: object = condition
    if not isinstance(given, str) or not given.strip():
        raise InputError("the condition of a check is empty", remedy='write one: expression("price >= 0")')
    return DatasetCheck("expression", (), (("condition", condition.strip()),))


def row_count(at_least: int | None = None, at_most: int | None = None) -> DatasetCheck:
    """The dataset has so many current rows.

    >>> row_count(at_most=1_000_000).warn()
    row_count(at_most=1000000).warn()
    """
    return DatasetCheck("row_count", (), _bounds(at_least, at_most, (int,)))


def max_age(age: str) -> DatasetCheck:
    """The newest data are no older than this when somebody looks: `trueline status --check` exits with 1.

    That is the watermark where the dataset has an event time, else its last commit.

    >>> max_age("2h")
    max_age('2h')
    """
    given: object = age
    if not isinstance(given, str) or not given.strip():
        raise InputError("the age of a check is empty", remedy='write one: max_age("2h")')
    return DatasetCheck("max_age", (), (("age", age.strip()),))


def relation(column: str, dataset: str, other: str | None = None) -> DatasetCheck:
    """Every value of a column is one of a column of another dataset (of the same name, if none is given).

    >>> relation("customer", "customers", "id")
    relation('customer', 'customers', 'id')
    """
    (name,) = _named((column,))
    (there,) = _named((dataset,))
    return DatasetCheck("relation", (name,), (("dataset", there), ("other", other or name)))


def _is_shaped(kind: str, columns: object, options: Mapping[Any, object]) -> bool:
    """Say whether a check that was read has the columns of its kind, and plain values beside them."""
    if not isinstance(columns, list | tuple) or not all(isinstance(name, str) and name for name in columns):
        return False
    if len(columns) not in _MANY_COLUMNS.get(kind, range(1)):
        return False
    for name, value in options.items():
        kinds = (str,) if name in _TEXTS else (str, int, float, bool, type(None))
        if not isinstance(name, str) or not isinstance(value, kinds):
            return False
        if name in _BOUNDS and (isinstance(value, bool) or not isinstance(value, str | int | float)):
            return False
    bounded = kind not in _BOUNDED or bool(options.keys() & _BOUNDS)
    return bounded and all(name in options for name in _NEEDED.get(kind, ()))


def _named(columns: tuple[str, ...]) -> tuple[str, ...]:
    given: tuple[object, ...] = columns
    if not given or not all(isinstance(name, str) and name for name in given):
        raise InputError(f"{given!r:.80} does not name columns", remedy='name columns: not_null("id")')
    return columns


def _bounds(low: Any, high: Any, kinds: tuple[type, ...]) -> tuple[tuple[str, Any], ...]:
    given = {"at_least": low, "at_most": high}
    said = tuple((name, value) for name, value in given.items() if value is not None)
    wrong = [value for _, value in said if not isinstance(value, kinds) or isinstance(value, bool)]
    if wrong or not said:
        raise InputError(
            f"{wrong[0]!r:.80} is not a bound" if wrong else "the check has no bound",
            remedy="give at_least or at_most, or both",
        )
    return said


def checked(given: object) -> tuple[DatasetCheck, ...]:
    """Return checks that were handed in, one or several."""
    several = (given,) if isinstance(given, DatasetCheck) else given
    if isinstance(several, str) or not isinstance(several, Iterable):
        raise _not_a_check(given)
    found = tuple(several)
    for each in found:
        if not isinstance(each, DatasetCheck):
            raise _not_a_check(each)
    return found


def same_checks(one: Sequence[DatasetCheck], other: Sequence[DatasetCheck]) -> bool:
    """Say whether two definitions have the same checks."""
    return len(one) == len(other) and all(map(DatasetCheck.is_same, one, other))


def _not_a_check(given: object) -> InputError:
    return InputError(
        f"{given!r:.80} is not a check", remedy='make one: trueline.check.not_null("id")', code="NotACheck"
    )
