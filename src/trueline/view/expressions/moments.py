"""Dates and times as people write them in expressions."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Final

import pyarrow as pa

from trueline.errors import InputError

_MOMENT: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?\s*(Z|UTC|[+-]\d\d:?\d\d)?",
    re.IGNORECASE,
)


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
