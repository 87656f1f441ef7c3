"""Lengths of time as people write them: `90s`, `1h`, `7d`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from trueline.errors import InputError

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_TEXT: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([smhdw]?)")


def seconds(value: str | float | timedelta) -> float:
    """Return a duration in seconds; a bare number is seconds.

    >>> seconds("1h"), seconds("1.5m"), seconds(10)
    (3600.0, 90.0, 10.0)
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        if 0 <= value < 1e15:
            return float(value)
    elif isinstance(value, str) and (match := _TEXT.fullmatch(value.strip())):
        return float(match[1]) * _UNITS[match[2] or "s"]
    raise InputError(
        f"{value!r} is not a duration",
        remedy="write a number and s, m, h, d or w, for example 90s, 1h or 7d",
        code="BadDuration",
    )


def in_units(length: float) -> str:
    """Write a duration so that `seconds` reads it back.

    >>> [in_units(s) for s in (0, 0.5, 90, 7200, 864_000)]
    ['0s', '0.5s', '90s', '2h', '10d']
    """
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if length and length % size == 0:
            return f"{length / size:.0f}{unit}"
    return f"{length:.15g}s"
