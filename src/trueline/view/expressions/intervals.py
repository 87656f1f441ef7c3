"""Spans of time as people write them: `interval 1 day`, `interval '1 day 2 hours'`."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

import pyarrow as pa

from trueline.errors import InputError
from trueline.view.expressions import tree as t

_MICROSECONDS: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_PART: Final = re.compile(r"\s*([+-]?[0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z]+)\s*")


def span(number: str, unit: str | None) -> t.Node:
    """Read a span; months and years have no fixed length, and are kept apart.

    >>> span("1", "DAY"), span("2 hours 30 minutes", None), span("1", "year")
    (Value(scalar=<pyarrow.DurationScalar: datetime.timedelta(days=1)>),
     Value(scalar=<pyarrow.DurationScalar: datetime.timedelta(seconds=9000)>), Months(count=12))
    """
    written = number if unit is None else f"{number} {unit}"
    parts, at = [], 0
    while match := _PART.match(written, at):
        parts.append((Fraction(match[1]), match[2].lower().removesuffix("s")))
        at = match.end()
    if at != len(written) or not parts:
        raise _bad(written)
    if all(name in _MONTHS for _, name in parts):
        months = sum((size * _MONTHS[name] for size, name in parts), Fraction(0))
        if months.denominator != 1 or abs(months) > 120_000_000:
            raise _bad(written)
        return t.Months(int(months))
    if any(name not in _MICROSECONDS for _, name in parts):
        raise _bad(written)
    total = sum((size * _MICROSECONDS[name] for size, name in parts), Fraction(0))
    if total.denominator != 1 or abs(total) >= 1 << 63:
        raise _bad(written)
    return t.Value(pa.scalar(int(total), pa.duration("us")))


def _bad(written: str) -> InputError:
    return InputError(
        f"interval '{written:.80}' is not a span of time",
        remedy="write interval '1 day 2 hours' (down to microseconds), or interval 3 months",
        code="BadConstant",
    )
