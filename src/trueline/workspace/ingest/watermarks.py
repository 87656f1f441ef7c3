"""Watermarks: up to when a dataset is complete."""

from __future__ import annotations

from datetime import date, datetime

from trueline.chain.instant import Instant
from trueline.chain.tail import Tail
from trueline.errors import InputError

FIRST = Instant.parse("0001-01-01T00:00:00Z")


def as_instant(moment: object) -> Instant:
    """Read a moment: an aware datetime, a date (its beginning, UTC), or RFC 3339 text.

    >>> as_instant("2026-11-13T12:00:00+01:00"), as_instant(date(2026, 11, 13))
    (Instant('2026-11-13T11:00:00Z'), Instant('2026-11-13T00:00:00Z'))
    """
    if isinstance(moment, Instant):
        return moment
    if isinstance(moment, datetime):
        return Instant.of(moment)
    if isinstance(moment, date):
        return Instant.parse(f"{moment.isoformat()}T00:00:00Z")
    if isinstance(moment, str):
        return Instant.parse(f"{moment}T00:00:00Z" if len(moment) == 10 else moment)
    raise InputError(f"{moment!r} is not a moment", remedy="give an aware datetime or RFC 3339 text")


def watermark_after(
    tail: Tail, newest: Instant | None, explicit: Instant | None, lateness_ns: int
) -> Instant | None:
    """Return the watermark after rows up to `newest`: it lags by the lateness and never goes back (D5)."""
    found = explicit
    if found is None and newest is not None:
        found = Instant(max(newest - lateness_ns, FIRST))
    before = tail.watermark
    return before if found is None or (before is not None and found < before) else found
