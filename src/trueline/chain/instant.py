"""A point in time to the nanosecond, as blocks carry it."""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta
from typing import Self

from trueline.errors import InputError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = _EPOCH.toordinal()
_DAY_NS = 86_400 * 1_000_000_000
_MIN_NS = (1 - _EPOCH_DAY) * _DAY_NS
_MAX_NS = (date.max.toordinal() - _EPOCH_DAY + 1) * _DAY_NS - 1
_RFC3339 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?\s*"
    r"([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)


def _before_year(year: int) -> int:
    """Return the day number (from the epoch) of the last day before a year."""
    past = year - 1
    return past * 365 + past // 4 - past // 100 + past // 400 - _EPOCH_DAY


class Instant(int):
    """Nanoseconds since 1970-01-01T00:00Z, shown as RFC 3339 text.

    >>> Instant.parse("2020-01-01T12:00:00.5Z")
    Instant('2020-01-01T12:00:00.500Z')
    >>> Instant.parse("2020-01-01T00:00:00Z") < Instant.parse("2020-01-01T00:00:00.000000001Z")
    True

    >>> noon = Instant.parse("2020-01-01T12:00:00Z")
    >>> noon.parts, Instant.from_parts(*noon.parts) == noon, Instant.parts_are_valid(2020, 400, 0, 0)
    ((2020, 1, 43200, 0), True, False)
    >>> Instant.of(noon.datetime) == noon, noon < Instant.now()
    (True, True)
    """

    __slots__ = ()

    def __new__(cls, nanoseconds: int) -> Self:
        if not _MIN_NS <= nanoseconds <= _MAX_NS:
            raise InputError(
                f"{nanoseconds} ns from 1970 is outside the years 1 to 9999",
                remedy="give a time between 0001-01-01 and 9999-12-31",
            )
        return int.__new__(cls, nanoseconds)

    @classmethod
    def now(cls) -> Instant:
        """Return the current time of the system clock."""
        return int.__new__(cls, time.time_ns())

    @classmethod
    def of(cls, moment: datetime) -> Instant:
        """Convert an aware datetime."""
        if moment.tzinfo is None:
            raise InputError(
                f"{moment} has no time zone", remedy="pass an aware datetime, e.g. with tzinfo=UTC"
            )
        gap = moment - _EPOCH
        return cls(gap.days * _DAY_NS + gap.seconds * 1_000_000_000 + gap.microseconds * 1000)

    @classmethod
    def parse(cls, text: str) -> Instant:
        """Read RFC 3339 text; a zone is required, up to nine digits of a second."""
        match = _RFC3339.fullmatch(text.strip()) if len(text) <= 64 else None
        if match is None:
            raise InputError(
                f"{text[:64]!r} is not an RFC 3339 time",
                remedy="write it like 2026-11-13T09:30:00Z",
                text=text[:64],
            )
        year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
        zone = match[8].upper()
        shift = 0
        if zone != "Z":
            shift = (int(zone[1:3]) * 60 + int(zone[4:6])) * (-1 if zone[0] == "-" else 1)
        try:
            whole = cls.of(
                datetime(year, month, day, hour, minute, second, tzinfo=UTC) - timedelta(minutes=shift)
            )
        except (ValueError, OverflowError) as error:
            raise InputError(
                f"{text!r} is not a valid time: {error}", remedy="check day and hour", text=text
            ) from None
        return cls(whole + int((match[7] or "").ljust(9, "0")))

    @classmethod
    def from_parts(cls, year: int, ordinal: int, seconds: int, nanoseconds: int) -> Instant:
        """Build from the parts a block stores; the caller has checked the ranges with `parts_are_valid`."""
        return int.__new__(
            cls, (_before_year(year) + ordinal) * _DAY_NS + seconds * 1_000_000_000 + nanoseconds
        )

    @staticmethod
    def parts_are_valid(year: int, ordinal: int, seconds: int, nanoseconds: int) -> bool:
        """Say whether year, day of the year (from 1), second of the day and nanosecond make a valid time."""
        if not 1 <= year <= 9999 or seconds >= 86_400 or nanoseconds >= 1_000_000_000:
            return False
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return 1 <= ordinal <= 365 + leap

    @property
    def parts(self) -> tuple[int, int, int, int]:
        """Year, day of the year (from 1), second of the day, nanosecond."""
        day, rest = divmod(int(self), _DAY_NS)
        year = date.fromordinal(day + _EPOCH_DAY).year
        seconds, nanoseconds = divmod(rest, 1_000_000_000)
        return year, day - _before_year(year), seconds, nanoseconds

    @property
    def datetime(self) -> datetime:
        """As an aware datetime in UTC; what is below a microsecond is cut off."""
        return _EPOCH + timedelta(microseconds=int(self) // 1000)

    def __str__(self) -> str:
        day, rest = divmod(int(self), _DAY_NS)
        seconds, nanoseconds = divmod(rest, 1_000_000_000)
        text = f"{date.fromordinal(day + _EPOCH_DAY):%Y-%m-%d}".rjust(10, "0")
        text += f"T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        if nanoseconds:
            digits = f"{nanoseconds:09}"
            text += "." + (
                digits[:3]
                if nanoseconds % 1_000_000 == 0
                else digits[:6]
                if nanoseconds % 1000 == 0
                else digits
            )
        return text + "Z"

    def __repr__(self) -> str:
        return f"Instant('{self}')"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __reduce__(self) -> tuple[type[Instant], tuple[int]]:
        return (Instant, (int(self),))
