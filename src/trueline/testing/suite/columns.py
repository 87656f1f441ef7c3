"""K5: any columns may be asked for, and nothing else depends on which."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from trueline import types as t
from trueline.identity import RowId
from trueline.testing.kit import Broken, NotApplicable, holds, refused
from trueline.testing.read import same_ids
from trueline.testing.subjects import ViewSubject

_MOST_SINGLES: Final = 20
# What K5.wrong_type does not ask for: a getter that converts, or that looks types up in a list, shows here.
_SELDOM: Final = (
    *(t.int8, t.int16, t.uint8, t.uint16, t.uint32, t.uint64),
    *(t.decimal(9, 2), t.date, t.timestamp("us", "UTC"), t.time("us"), t.duration("us")),
    *(t.binary, t.rowid, t.vector(t.int64), t.vector(t.float64, 3)),
)
_ROWS_REMEDY: Final = "let the columns asked for decide what is computed, never which rows there are"


def subsets(subject: ViewSubject) -> Iterator[list[int]]:
    """Yield no columns, each alone, the even ones, the odd ones, ten in any order."""
    every = subject.all
    yield []
    singles = every if len(every) <= _MOST_SINGLES else subject.random.sample(every, _MOST_SINGLES)
    yield from ([column] for column in singles)
    if len(every) > 2:
        yield every[::2]
        yield every[1::2]
        yield subject.random.sample(every, min(10, len(every)))


@holds("view", "K5.rows", "view:C33", "view:C34", "view:C73")
def rows(subject: ViewSubject) -> None:
    """The same rows come, with the same ids, whichever columns are asked for."""
    for columns in subsets(subject):
        what = f"with columns {[subject.name(column) for column in columns]} the rows differ"
        same_ids(subject.serial.ids, subject.read(columns).ids, what, _ROWS_REMEDY)


@holds("view", "K5.values", "view:C26", "view:C34")
def values(subject: ViewSubject) -> None:
    """A column has the same values, whichever others are asked for."""
    for columns in subsets(subject):
        found = subject.read(columns)
        if found.ids != subject.serial.ids:
            continue  # K5.rows reports it
        for row, (one, other) in enumerate(zip(subject.serial.values, found.values, strict=True)):
            for place, column in enumerate(columns):
                if one[column] != other[place]:
                    raise Broken(
                        f"alone or with some others it is {other[place]!r:.80}, with all {one[column]!r:.80}",
                        "compute a column from the row alone",
                        column=subject.name(column),
                        row=row,
                    )


@holds("view", "K5.inactive", "view:C46")
def inactive(subject: ViewSubject) -> None:
    """A column that was not asked for has no getter."""
    for column in subject.all[:_MOST_SINGLES]:
        others = [each for each in subject.all[:_MOST_SINGLES] if each != column]
        with subject.view.cursor(others) as cursor:
            if not refused(lambda cursor=cursor, column=column: cursor.getter(column)):  # type: ignore[misc]
                raise Broken(
                    "a getter can be made for a column that was not asked for",
                    "check is_active() in getter()",
                    column=subject.name(column),
                )


@holds("view", "K5.wrong_type", "view:C47")
def wrong_type(subject: ViewSubject) -> None:
    """A getter can be made for exactly the column's type, and for no other."""
    with subject.view.cursor(subject.all) as cursor:
        cursor.move_next()
        for column in subject.all:
            kind = subject.view.schema[column].type
            cursor.getter(column, kind)
            for other in (t.int32, t.int64, t.float32, t.float64, t.text, t.boolean, t.category(3)):
                if other != kind and not refused(lambda c=column, o=other: cursor.getter(c, o)):  # type: ignore[misc]
                    raise Broken(
                        f"the column has type {kind}, and a getter of type {other} can be made",
                        "compare the whole type: trueline.types.same() does",
                        column=subject.name(column),
                    )


@holds("view", "K5.other_types", "view:C47")
def other_types(subject: ViewSubject) -> None:
    """A getter of a type that is seldom asked for is refused too: small numbers, decimals, times."""
    with subject.view.cursor(subject.all) as cursor:
        cursor.move_next()
        for column in subject.all:
            kind = subject.view.schema[column].type
            for other in _SELDOM:
                if other != kind and not refused(partial(cursor.getter, column, other)):
                    raise Broken(
                        f"the column has type {kind}, and a getter of type {other} can be made",
                        "compare the whole type: trueline.types.same() does",
                        column=subject.name(column),
                    )


@holds("view", "K5.active", "view:C50")
def active(subject: ViewSubject) -> None:
    """Exactly the columns asked for are active."""
    for columns in subsets(subject):
        with subject.view.cursor(columns) as cursor:
            for column in subject.all:
                if cursor.is_active(column) != (column in columns):
                    said = "active" if cursor.is_active(column) else "not active"
                    raise Broken(
                        f"the column is {said}, asked for were {[subject.name(each) for each in columns]}",
                        "let is_active() say what was asked for, not what is read for it",
                        column=subject.name(column),
                    )


@holds("view", "K5.fitting", "view:C47")
def fitting(subject: ViewSubject) -> None:
    """Every value is of its column's type, or null."""
    if not subject.all:
        raise NotApplicable("there are no columns")
    with subject.view.cursor(subject.all) as cursor:
        kinds = [subject.view.schema[column].type for column in subject.all]
        getters = None
        while cursor.move_next():
            getters = getters or [cursor.getter(column) for column in subject.all]
            for column, (get, kind) in enumerate(zip(getters, kinds, strict=True)):
                value = get()
                if value is not None and not fits(value, kind):
                    raise Broken(
                        f"{value!r:.100} is not a {kind}",
                        "convert values when they are read, and give None where that fails",
                        column=subject.name(column),
                        row=cursor.position,
                    )


def fits(value: Any, kind: t.Type) -> bool:
    """Say whether a value is one of a type.

    >>> fits(3, t.category(3)), fits(300, t.uint8), fits(True, t.int64), fits([1.5], t.vector(t.float32))
    (False, False, False, True)
    """
    if isinstance(kind, t.Vector):
        return hasattr(value, "__len__") and all(
            value[place] is None or fits(value[place], kind.item) for place in range(min(3, len(value)))
        )
    if isinstance(kind, t.Category):
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < kind.count
    if isinstance(kind, t.Primitive) and "int" in kind.name:
        bits = int(kind.name.rsplit("int", maxsplit=1)[1])
        low, high = (0, 1 << bits) if kind.name.startswith("u") else (-(1 << bits - 1), 1 << bits - 1)
        return isinstance(value, int) and not isinstance(value, bool) and low <= value < high
    if isinstance(kind, t.Primitive):
        return isinstance(value, _CLASSES[kind.name]) and not isinstance(value, dt.datetime)
    return type(kind) not in _OTHERS or isinstance(value, _OTHERS[type(kind)])


_CLASSES: Final[dict[str, type | tuple[type, ...]]] = {
    "bool": bool,
    "float32": float,
    "float64": float,
    "text": str,
    "bytes": bytes,
    "date": (dt.date, np.datetime64),
}
# What Python's own classes cannot hold is numpy's: moments beyond the year 9999, nanoseconds.
_OTHERS: Final[dict[type, tuple[type, ...]]] = {
    t.RowIdentity: (RowId,),
    t.Timestamp: (dt.datetime, np.datetime64),
    t.Time: (dt.time, np.timedelta64),
    t.Duration: (dt.timedelta, np.timedelta64),
    t.Decimal: (decimal.Decimal,),
}
