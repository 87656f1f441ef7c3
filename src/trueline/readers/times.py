"""Text to dates, times and timestamps, a column at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline.readers.formats import (
    ISO_DATE,
    ISO_DURATION,
    ISO_TIME,
    ISO_TIMESTAMP,
    MONTHS,
    Pattern,
    compiled,
)

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


class ParsedTimes(NamedTuple):
    """Values (null where the text is not valid), and how many had more digits than the unit."""

    array: pa.Array
    rounded: int


def dates(text: pa.Array, kind: pa.DataType, form: str | None) -> ParsedTimes:
    """Read days."""
    parts = _Parts(text, compiled(form) if form else ISO_DATE)
    days, fits = parts.days()
    if form:
        clock, clock_fits = parts.clock()
        # A date cannot keep a time of day; a zone would make the day a guess.
        fits &= clock_fits & (clock == 0) & (parts.number("f") == 0) & ~parts.has("z")
    fits &= parts.matched
    if pa.types.is_date64(kind):
        return ParsedTimes(_made(days * 86_400_000, fits, kind), 0)
    return ParsedTimes(_made(days.astype(np.int32), fits, kind), 0)


def times(text: pa.Array, kind: pa.DataType) -> ParsedTimes:
    """Read times of day."""
    parts = _Parts(text, ISO_TIME)
    seconds, fits = parts.clock()
    fraction, lost = parts.fraction(kind.unit)
    fits &= parts.matched
    values = seconds * UNITS[kind.unit] + fraction
    if pa.types.is_time32(kind):
        values = values.astype(np.int32)
    return ParsedTimes(_made(values, fits, kind), int(np.count_nonzero(lost & fits)))


def timestamps(text: pa.Array, kind: pa.DataType, form: str | None, timezone: str) -> ParsedTimes:
    """Read points in time; more digits than the unit has are cut off and counted."""
    parts = _Parts(text, compiled(form) if form else ISO_TIMESTAMP)
    days, fits = parts.days()
    clock, clock_fits = parts.clock()
    offset, offset_fits = parts.offset()
    fits &= clock_fits & offset_fits & parts.matched
    zoned = parts.has("z")
    if kind.tz is None:
        fits &= ~zoned
    seconds = days * 86_400 + clock - offset
    if kind.tz is not None and timezone != "UTC":
        local, exists = _in_zone(seconds, fits & ~zoned, timezone)
        seconds = np.where(zoned, seconds, local)
        fits &= zoned | exists
    fraction, lost = parts.fraction(kind.unit)
    values, in_range = _scaled(seconds, fraction, UNITS[kind.unit])
    fits &= in_range
    return ParsedTimes(_made(values, fits, kind), int(np.count_nonzero(lost & fits)))


def durations(text: pa.Array, kind: pa.DataType) -> ParsedTimes:
    """Read spans as ISO 8601 writes them, without years and months; digits too fine are cut off and counted.

    >>> durations(pa.array(["PT1H0.5S", "-P1D", "P"]), pa.duration("ms")).array.cast("int64").to_pylist()
    [3600500, -86400000, None]
    """
    parts = _Parts(text, ISO_DURATION)
    per_second = UNITS[kind.unit]
    # Unsigned: the smallest span has no positive counterpart, and no sum of the parts comes near 2^64.
    weights = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
    total = sum((parts.natural(part) * np.uint64(weight) for part, weight in weights.items()), np.uint64(0))
    fraction, lost = parts.fraction(kind.unit)
    near = total <= np.uint64((1 << 63) // per_second)
    size = np.where(near, total, np.uint64(0)) * np.uint64(per_second) + fraction.astype(np.uint64)
    minus = np.asarray(pc.equal(parts.group("sign"), "-").to_numpy(zero_copy_only=False), np.bool_)
    # At least one part is required: P and PT alone are not durations.
    said = parts.has("d") | parts.has("h") | parts.has("m") | parts.has("s")
    fits = parts.matched & said & near & (size < np.uint64(1 << 63) + minus.astype(np.uint64))
    values = np.where(minus, np.uint64(0) - size, size).view(np.int64)
    return ParsedTimes(_made(values, fits, kind), int(np.count_nonzero(lost & fits)))


def zones(text: pa.Array, form: str | None) -> tuple[int, int]:
    """Count the texts that name a zone, and those with more than six digits of a second."""
    parts = _Parts(text, compiled(form) if form else ISO_TIMESTAMP)
    digits = pc.utf8_length(parts.group("f")) if "f" in parts.groups else pa.array([], pa.int32())
    fine = np.count_nonzero(digits.to_numpy(zero_copy_only=False) > 6)
    return int(np.count_nonzero(parts.has("z"))), int(fine)


class _Parts:
    """The parts of texts that match a pattern; texts that do not match are zeros and not `matched`."""

    def __init__(self, text: pa.Array, pattern: Pattern) -> None:
        found = pc.extract_regex(text, pattern=pattern.regex)
        self.matched: Flags = np.asarray(pc.is_valid(found).to_numpy(zero_copy_only=False), np.bool_)
        self.groups = pattern.groups
        self._found = found
        self._zero = np.zeros(len(text), np.int64)

    def group(self, name: str) -> Any:
        return pc.fill_null(pc.struct_field(self._found, name), "")

    def has(self, name: str) -> Flags:
        if name not in self.groups:
            return np.zeros(len(self._zero), np.bool_)
        return np.asarray(pc.not_equal(self.group(name), "").to_numpy(zero_copy_only=False), np.bool_)

    def number(self, name: str) -> Ints:
        if name not in self.groups:
            return self._zero.copy()
        group = self.group(name)
        return np.asarray(pc.cast(pc.if_else(pc.equal(group, ""), "0", group), pa.int64()).to_numpy())

    def natural(self, name: str) -> npt.NDArray[np.uint64]:
        group = self.group(name)
        return np.asarray(pc.cast(pc.if_else(pc.equal(group, ""), "0", group), pa.uint64()).to_numpy())

    def days(self) -> tuple[Ints, Flags]:
        """Days since 1970 and whether there is such a day."""
        year = self.number("Y")
        if "y" in self.groups:
            short = self.number("y")
            year = short + np.where(short < 69, 2000, 1900)
        month = self.number("m")
        if "b" in self.groups:
            names = pc.utf8_lower(pc.utf8_slice_codeunits(self.group("b"), 0, 3))
            found = pc.fill_null(pc.index_in(names, value_set=pa.array(MONTHS)), -1)
            month = np.asarray(found.to_numpy(), np.int64) + 1
        day = self.number("d")
        safe = np.clip(month, 1, 12)
        leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
        last = _MONTH_DAYS[safe] + ((safe == 2) & leap)
        fits = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= last)
        return _civil(year, safe, day), fits

    def clock(self) -> tuple[Ints, Flags]:
        """Second of the day and whether the clock can show it; a leap second it cannot."""
        hour, minute, second = self.number("H"), self.number("M"), self.number("S")
        fits = (hour < 24) & (minute < 60) & (second < 60)
        if "I" in self.groups:
            twelve = self.number("I")
            fits &= (twelve >= 1) & (twelve <= 12)
            after = pc.equal(pc.utf8_lower(self.group("p")), "pm").to_numpy(zero_copy_only=False)
            hour = twelve % 12 + np.where(after, 12, 0)
        return hour * 3_600 + minute * 60 + second, fits

    def offset(self) -> tuple[Ints, Flags]:
        """Seconds a zone is ahead of UTC."""
        if "z" not in self.groups:
            return self._zero.copy(), np.ones(len(self._zero), np.bool_)
        digits = pc.replace_substring(self.group("z"), ":", "")
        hours = pc.utf8_slice_codeunits(digits, 1, 3)
        minutes = pc.utf8_slice_codeunits(digits, 3, 5)
        hour, minute = (
            np.asarray(pc.cast(pc.if_else(pc.equal(each, ""), "0", each), pa.int64()).to_numpy())
            for each in (hours, minutes)
        )
        minus = pc.starts_with(digits, "-").to_numpy(zero_copy_only=False)
        return np.where(minus, -1, 1) * (hour * 3_600 + minute * 60), (hour < 24) & (minute < 60)

    def fraction(self, unit: str) -> tuple[Ints, Flags]:
        """Fraction of a second in the unit, and whether something of it was cut off."""
        if "f" not in self.groups:
            return self._zero.copy(), np.zeros(len(self._zero), np.bool_)
        padded = pc.utf8_rpad(self.group("f"), width=9, padding="0")
        nanos = np.asarray(pc.cast(padded, pa.int64()).to_numpy())
        step = UNITS["ns"] // UNITS[unit]
        return nanos // step, nanos % step != 0


def _civil(year: Ints, month: Ints, day: Ints) -> Ints:
    """Days since 1970-01-01 in the Gregorian calendar, years counted from March."""
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    return np.asarray(era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468)


def _scaled(seconds: Ints, fraction: Ints, factor: int) -> tuple[Ints, Flags]:
    """Seconds and a fraction as one number, and whether it fits 64 bits."""
    least, most = -(2**63) // factor, (2**63 - 1) // factor
    low = (seconds > least) | ((seconds == least) & (fraction >= -(2**63) - least * factor))
    high = (seconds < most) | ((seconds == most) & (fraction <= (2**63 - 1) - most * factor))
    with np.errstate(over="ignore"):
        return seconds * factor + fraction, low & high


def _in_zone(seconds: Ints, wanted: Flags, timezone: str) -> tuple[Ints, Flags]:
    """Take times as a zone's wall clock: of two the earlier, and none where the clock skips."""
    local = pa.array(np.where(wanted, seconds, 0)).view(pa.timestamp("s"))
    moved = pc.assume_timezone(local, timezone, ambiguous="earliest", nonexistent="earliest")
    back = pc.local_timestamp(moved)
    exists = pc.equal(back, local).to_numpy(zero_copy_only=False)
    return np.asarray(moved.view(pa.int64()).to_numpy()), np.asarray(exists, np.bool_)


def _made(values: npt.NDArray[Any], fits: Flags, kind: pa.DataType) -> pa.Array:
    return pa.array(values, mask=~fits).view(kind)
