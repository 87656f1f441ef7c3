"""Days and moments as text of any form: `%d.%m.%Y`; names are English, on every machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import InputError
from trueline.view.converting.times import PER_SECOND, missing, ticks
from trueline.view.expressions.functions.registry import function
from trueline.view.expressions.functions.temporal import (
    Ints,
    checked_form,
    clock_seconds,
    day_of_year,
    days_of,
    month_starts,
    months_of,
)
from trueline.view.expressions.operands import Array

_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)
_DAYS: Final = ("Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday")
_WHOLE: Final = {"F": "%Y-%m-%d", "T": "%H:%M:%S", "R": "%H:%M"}


@function(
    "date_format",
    "moment",
    "const text",
    says="as text, in a form such as `%d.%m.%Y %H:%M`",
    spark="forms are those of readers (`%d.%m.%Y`), not Java's (`dd.MM.yyyy`)",
)
def date_format(moment: Array, form: str) -> Array:
    """Write days and moments in a form."""
    for short, long in _WHOLE.items():
        form = form.replace(f"%{short}", long)
    parts: list[object] = [pa.array([""] * len(moment), pa.string())]
    at = 0
    checked_form(form)
    while at < len(form):
        if form[at] != "%":
            parts.append(form[at])
            at += 1
            continue
        letter = form[at + 1 : at + 2]
        if letter == "%":
            parts.append("%")
        elif letter in _PARTS:
            parts.append(_PARTS[letter](moment))
        else:
            raise InputError(
                f"the form {form!r:.80} has an unknown part %{letter}",
                remedy=f"use {' '.join(f'%{each}' for each in (*_PARTS, *_WHOLE, '%'))}",
                code="BadConstant",
            )
        at += 2
    found = pc.binary_join_element_wise(*parts, "")
    return pc.if_else(pa.array(missing(moment)), pa.scalar(None, pa.string()), found)


def _digits(values: Ints, width: int) -> Array:
    """Whole numbers with zeros before them; the sign comes first."""
    shown = pc.utf8_lpad(pa.array(np.abs(values)).cast(pa.string()), width, "0")
    negative = pa.array(values < 0)
    return (
        pc.if_else(negative, pc.binary_join_element_wise("-", shown, ""), shown)
        if (values < 0).any()
        else shown
    )


def _year(moment: Array) -> Ints:
    return months_of(days_of(moment)) // 12 + 1970


def _month(moment: Array) -> Ints:
    return months_of(days_of(moment)) % 12


def _day(moment: Array) -> Ints:
    days = days_of(moment)
    return days - month_starts(months_of(days)) + 1


def _twelve(moment: Array) -> Ints:
    return (clock_seconds(moment) // 3_600 + 11) % 12 + 1


def _micros(moment: Array) -> Ints:
    """The fraction of a second, to the microsecond."""
    if pa.types.is_date(moment.type):
        return np.zeros(len(moment), np.int64)
    per_second = PER_SECOND[moment.type.unit]
    rest = ticks(moment) % per_second
    return rest * (1_000_000 // per_second) if per_second <= 1_000_000 else rest // (per_second // 1_000_000)


def _named(names: tuple[str, ...], places: Ints) -> Array:
    return pa.array(names).take(pa.array(places))


_PARTS: Final[dict[str, Callable[[Array], Array]]] = {
    "Y": lambda moment: _digits(_year(moment), 4),
    "y": lambda moment: _digits(_year(moment) % 100, 2),
    "m": lambda moment: _digits(_month(moment) + 1, 2),
    "d": lambda moment: _digits(_day(moment), 2),
    "b": lambda moment: _named(tuple(each[:3] for each in _MONTHS), _month(moment)),
    "B": lambda moment: _named(_MONTHS, _month(moment)),
    "a": lambda moment: _named(tuple(each[:3] for each in _DAYS), days_of(moment) % 7),
    "A": lambda moment: _named(_DAYS, days_of(moment) % 7),
    "j": lambda moment: _digits(day_of_year(days_of(moment)), 3),
    "H": lambda moment: _digits(clock_seconds(moment) // 3_600, 2),
    "I": lambda moment: _digits(_twelve(moment), 2),
    "p": lambda moment: _named(("AM", "PM"), clock_seconds(moment) // 43_200),
    "M": lambda moment: _digits(clock_seconds(moment) // 60 % 60, 2),
    "S": lambda moment: _digits(clock_seconds(moment) % 60, 2),
    "f": lambda moment: _digits(_micros(moment), 6),
    "z": lambda moment: pa.array(["+00:00"] * len(moment), pa.string()),
}
