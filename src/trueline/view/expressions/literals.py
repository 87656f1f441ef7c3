"""Dates, times and intervals as people write them in expressions: `2026-11-13`, `interval 1 day`."""

from __future__ import annotations

import re
from datetime import date, datetime
from fractions import Fraction
from typing import Final

import pyarrow as pa

from trueline.errors import InputError
from trueline.view.expressions import tree as t

_MOMENT: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?\s*(Z|UTC|[+-]\d\d:?\d\d)?",
    re.IGNORECASE,
)
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
_INTERVAL_PART: Final = re.compile(r"\s*([+-]?[0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z]+)\s*")


def as_date(text: str) -> pa.Scalar:
    """Read `2026-11-13`.

    >>> as_date("2026-11-13").as_py()
    datetime.date(2026, 11, 13)
    """
    try:
        return pa.scalar(date.fromisoformat(text.strip()))
    except ValueError:
        raise _bad(text, "a date", "2026-11-13") from None


def as_timestamp(text: str) -> pa.Scalar:
    """Read a date with or without time and zone, to the nanosecond; without a zone it is UTC.

    >>> as_timestamp("2026-11-13 12:00:00+01:00").as_py().isoformat()
    '2026-11-13T11:00:00+00:00'
    """
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        raise _bad(text, "a time", "2026-11-13 12:00:00")
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    zone = "+00:00" if zone is None or zone.upper() in ("Z", "UTC") else zone
    try:
        whole = datetime.fromisoformat(
            f"{year}-{month}-{day}T{hour or '00'}:{minute or '00'}:{second or '00'}{zone}"
        )
    except ValueError:
        raise _bad(text, "a time", "2026-11-13 12:00:00") from None
    seconds = int((whole - datetime.fromisoformat("1970-01-01T00:00:00+00:00")).total_seconds())
    digits = (fraction or "").ljust(6, "0")
    if len(digits) <= 6:
        return pa.scalar(seconds * 1_000_000 + int(digits), pa.timestamp("us", "UTC"))
    nanoseconds = seconds * 1_000_000_000 + int(digits.ljust(9, "0"))
    if not -(1 << 63) <= nanoseconds < 1 << 63:
        raise _bad(text, "a time in nanoseconds", "2026-11-13 12:00:00")
    return pa.scalar(nanoseconds, pa.timestamp("ns", "UTC"))


def _bad(text: str, what: str, example: str) -> InputError:
    return InputError(
        f"{text[:80]!r} is not {what}", remedy=f"write it as '{example}'", code="BadConstant", text=text
    )


def span(number: str, unit: str | None) -> t.Expr:
    """Read a span; months and years have no fixed length, and are kept apart.

    >>> span("1", "DAY"), span("2 hours 30 minutes", None), span("1", "year")
    (Value(scalar=<pyarrow.DurationScalar: datetime.timedelta(days=1)>),
     Value(scalar=<pyarrow.DurationScalar: datetime.timedelta(seconds=9000)>), Months(count=12))
    """
    written = number if unit is None else f"{number} {unit}"
    parts, at = [], 0
    while match := _INTERVAL_PART.match(written, at):
        parts.append((Fraction(match[1]), match[2].lower().removesuffix("s")))
        at = match.end()
    if at != len(written) or not parts:
        raise _bad_interval(written)
    if all(name in _MONTHS for _, name in parts):
        months = sum((size * _MONTHS[name] for size, name in parts), Fraction(0))
        if months.denominator != 1 or abs(months) > 120_000_000:
            raise _bad_interval(written)
        return t.Months(int(months))
    if any(name not in _MICROSECONDS for _, name in parts):
        raise _bad_interval(written)
    total = sum((size * _MICROSECONDS[name] for size, name in parts), Fraction(0))
    if total.denominator != 1 or abs(total) >= 1 << 63:
        raise _bad_interval(written)
    return t.Value(pa.scalar(int(total), pa.duration("us")))


def _bad_interval(written: str) -> InputError:
    return InputError(
        f"interval '{written:.80}' is not a span of time",
        remedy="write interval '1 day 2 hours' (down to microseconds), or interval 3 months",
        code="BadConstant",
    )
