"""Functions of days and moments, and arithmetic with spans; where there is no zone, UTC is meant.

Everything goes by whole numbers of the stored unit, so that no moment that
can be stored is too far away.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.errors import InputError, SchemaError
from trueline.view.converting import convert
from trueline.view.converting.times import DAY, PER_SECOND, made, missing, scaled, ticks
from trueline.view.expressions.functions.registry import function
from trueline.view.expressions.operands import VERBS, Array, Operand, not_comparable, over, plain

Ints: TypeAlias = npt.NDArray[np.int64]
_UNITS: Final = ("s", "ms", "us", "ns")
_MOST: Final = (1 << 63) - 1


def _days(moment: Array) -> Ints:
    """Days since 1970, of days and moments alike."""
    found = ticks(moment)
    return found if pa.types.is_date32(moment.type) else found // (DAY * _per_second(moment.type))


def _per_second(kind: Any) -> int:
    return PER_SECOND["ms" if pa.types.is_date64(kind) else kind.unit]


def _months(days: Ints) -> Ints:
    """Months since 1970."""
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _month_starts(months: Ints) -> Ints:
    """The first days of months, as days since 1970."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _numbers(values: Ints, of: Array) -> Array:
    return pa.array(values, pa.int64(), mask=missing(of))


@function("year", "moment", says="the year")
def year(moment: Array) -> Array:
    """Return the year."""
    return _numbers(_months(_days(moment)) // 12 + 1970, moment)


@function("quarter", "moment", says="the quarter, 1 to 4")
def quarter(moment: Array) -> Array:
    """Return the quarter."""
    return _numbers(_months(_days(moment)) % 12 // 3 + 1, moment)


@function("month", "moment", says="the month, 1 to 12")
def month(moment: Array) -> Array:
    """Return the month."""
    return _numbers(_months(_days(moment)) % 12 + 1, moment)


@function("weekofyear", "moment", says="the week of ISO 8601, 1 to 53")
def weekofyear(moment: Array) -> Array:
    """Return the week: the one its Thursday is in."""
    days = _days(moment)
    thursday = days - (days + 3) % 7 + 3
    return _numbers((_of_year(thursday) - 1) // 7 + 1, moment)


@function("day", "moment", says="the day of the month")
def day(moment: Array) -> Array:
    """Return the day of the month."""
    days = _days(moment)
    return _numbers(days - _month_starts(_months(days)) + 1, moment)


@function("dayofyear", "moment", says="the day of the year, from 1")
def dayofyear(moment: Array) -> Array:
    """Return the day of the year."""
    return _numbers(_of_year(_days(moment)), moment)


def _of_year(days: Ints) -> Ints:
    at = days.astype("datetime64[D]")
    found: Ints = (at - at.astype("datetime64[Y]").astype("datetime64[D]")).astype(np.int64) + 1
    return found


@function("dayofweek", "moment", says="the day of the week, 1 is Sunday")
def dayofweek(moment: Array) -> Array:
    """Return the day of the week from Sunday."""
    return _numbers((_days(moment) + 4) % 7 + 1, moment)


@function("weekday", "moment", says="the day of the week, 0 is Monday")
def weekday(moment: Array) -> Array:
    """Return the day of the week from Monday."""
    return _numbers((_days(moment) + 3) % 7, moment)


def _clock(moment: Array) -> Ints:
    """Seconds since midnight."""
    if pa.types.is_date32(moment.type):
        return np.zeros(len(moment), np.int64)
    return ticks(moment) // _per_second(moment.type) % DAY


@function("hour", "clock", says="the hour, 0 to 23")
def hour(moment: Array) -> Array:
    """Return the hour."""
    return _numbers(_clock(moment) // 3_600, moment)


@function("minute", "clock", says="the minute")
def minute(moment: Array) -> Array:
    """Return the minute."""
    return _numbers(_clock(moment) // 60 % 60, moment)


@function("second", "clock", says="the second, without its fraction")
def second(moment: Array) -> Array:
    """Return the second."""
    return _numbers(_clock(moment) % 60, moment)


# --- cutting off, counting ------------------------------------------------------------------------

_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3_600, "day": DAY}


@function(
    "date_trunc",
    "const text",
    "moment",
    says="the moment a `year`, `quarter`, `month`, `week`, `day`, `hour`, `minute` or `second` began",
)
def date_trunc(unit: str, moment: Array) -> Array:
    """Cut a moment off."""
    stamp = moment if pa.types.is_timestamp(moment.type) else _as_stamp(moment)
    per_second, values, name = PER_SECOND[stamp.type.unit], ticks(stamp), unit.lower()
    if name in _SECONDS:
        step = _SECONDS[name] * per_second
        found, far = values // step * step, values < -_MOST // step * step
        return made(np.where(far, 0, found), far | missing(stamp), stamp.type)
    days = _days(stamp)
    if name == "week":
        begin = days - (days + 3) % 7
    elif name in ("month", "quarter", "year"):
        size = {"month": 1, "quarter": 3, "year": 12}[name]
        begin = _month_starts(_months(days) // size * size)
    else:
        raise InputError(
            f"date_trunc has no unit {unit!r:.40}",
            remedy="give year, quarter, month, week, day, hour, minute or second",
            code="BadConstant",
        )
    found, far = scaled(begin, 1, DAY * per_second)
    return made(found, far | missing(stamp), stamp.type)


def _as_stamp(day_: Array) -> Array:
    return convert(day_.cast(pa.date32()), t.date, t.timestamp())


@function("datediff", "moment", "moment", says="how many days the second is before the first")
def datediff(end: Array, start: Array) -> Array:
    """Count the days between."""
    gone = missing(end) | missing(start)
    return pa.array(_days(end) - _days(start), pa.int64(), mask=gone)


@function("date_add", "moment", "whole", says="the day so many days later")
def date_add(moment: Array, days: Array) -> Array:
    """Count days on."""
    return _later(moment, _days(moment), days, 1)


@function("date_sub", "moment", "whole", says="the day so many days before")
def date_sub(moment: Array, days: Array) -> Array:
    """Count days back."""
    return _later(moment, _days(moment), days, -1)


def _later(moment: Array, days: Ints, count: Array, sign: int) -> Array:
    wide = convert(count, t.of(count.type), t.int64)
    by = np.asarray(pc.fill_null(wide, 0), np.int64)
    far = np.abs(by.astype(np.float64)) > 2.0**33
    found = days + sign * np.where(far, 0, by)
    far |= (found > (1 << 31) - 1) | (found < -(1 << 31))
    return made(np.where(far, 0, found), far | missing(moment) | missing(wide), pa.date32())


@function(
    "add_months",
    "moment",
    "const whole",
    says="the day so many months later, the last of its month if there is none",
)
def add_months(moment: Array, months: int) -> Array:
    """Count months on."""
    found = _months_later(_days(moment), months)
    return made(found, missing(moment), pa.date32())


def _months_later(days: Ints, months: int) -> Ints:
    if abs(months) > 120_000_000:
        raise InputError(f"{months:,} months are too many", remedy="give fewer", code="BadConstant")
    now = _months(days)
    begin = _month_starts(now + months)
    last = _month_starts(now + months + 1) - 1
    found: Ints = np.minimum(begin + days - _month_starts(now), last)
    return found


# --- counting since 1970 --------------------------------------------------------------------------


def _since(moment: Array, unit: str) -> Array:
    stamp = moment if pa.types.is_timestamp(moment.type) else _as_stamp(moment)
    found, far = scaled(ticks(stamp), PER_SECOND[stamp.type.unit], PER_SECOND[unit])
    return pa.array(found, pa.int64(), mask=far | missing(stamp))


@function("unix_seconds", "moment", says="seconds since 1970, the fraction cut off")
def unix_seconds(moment: Array) -> Array:
    """Count seconds since 1970."""
    return _since(moment, "s")


@function("unix_millis", "moment", says="milliseconds since 1970")
def unix_millis(moment: Array) -> Array:
    """Count milliseconds since 1970."""
    return _since(moment, "ms")


@function("unix_micros", "moment", says="microseconds since 1970")
def unix_micros(moment: Array) -> Array:
    """Count microseconds since 1970."""
    return _since(moment, "us")


def _stamp(number: Array, unit: str) -> Array:
    wide = convert(number, t.of(number.type), t.int64)
    found, far = scaled(np.asarray(pc.fill_null(wide, 0), np.int64), PER_SECOND[unit], PER_SECOND["us"])
    return made(found, far | missing(wide), pa.timestamp("us", "UTC"))


@function("timestamp_seconds", "whole", says="the moment so many seconds after 1970 began")
def timestamp_seconds(number: Array) -> Array:
    """Return a moment by its seconds."""
    return _stamp(number, "s")


@function("timestamp_millis", "whole", says="the moment so many milliseconds after 1970 began")
def timestamp_millis(number: Array) -> Array:
    """Return a moment by its milliseconds."""
    return _stamp(number, "ms")


@function("timestamp_micros", "whole", says="the moment so many microseconds after 1970 began")
def timestamp_micros(number: Array) -> Array:
    """Return a moment by its microseconds."""
    return _stamp(number, "us")


# --- reading --------------------------------------------------------------------------------------


def _read(given: Array, kind: t.Type, form: str | None) -> Array:
    if form is None or not pa.types.is_string(given.type):
        source = t.of(given.type)
        return convert(given.cast(source.arrow), source, kind)
    from trueline.readers.cells import convert as read
    from trueline.readers.rules import CellRules

    return read(given, kind.arrow, CellRules(nulls=(), date_format=form, timestamp_format=form)).array


@function(
    "to_date",
    "readable",
    "const text?",
    says="text as a day, ISO or in a form such as `%d.%m.%Y`; a moment's day",
    spark="forms are those of readers (`%d.%m.%Y`), not Java's (`dd.MM.yyyy`)",
)
def to_date(given: Array, form: str | None = None) -> Array:
    """Read days."""
    return _read(given, t.date, form)


@function(
    "to_timestamp",
    "readable",
    "const text?",
    says="text as a moment, ISO or in a form such as `%d.%m.%Y %H:%M`",
    spark="forms are those of readers (`%d.%m.%Y`), not Java's (`dd.MM.yyyy`)",
)
def to_timestamp(given: Array, form: str | None = None) -> Array:
    """Read moments."""
    return _read(given, t.timestamp(), form)


# --- spans ----------------------------------------------------------------------------------------


def is_temporal(side: Operand) -> bool:
    """Say whether a side is a day, a moment or a span."""
    kind = side.type
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_duration(kind))


def time_arithmetic(op: str, left: Operand, right: Operand) -> Operand:
    """Add and subtract spans, and take the span between two moments; too far away is null."""
    one, other = plain(left), plain(right)
    spans = [pa.types.is_duration(side.type) for side in (one, other)]
    if op == "+" and spans == [True, False]:
        one, other, spans = other, one, [False, True]
    moments = [is_temporal(side) and not span for side, span in zip((one, other), spans, strict=True)]
    if spans[1] and (spans[0] or moments[0]):
        return _shifted(op, one, other)
    if op == "-" and all(moments):
        return over([_stamped(one), _stamped(other)], lambda a, b: _summed("-", a, b, span=True))
    raise not_comparable(left, right, VERBS[op])


def _stamped(side: Operand) -> Operand:
    return side if not pa.types.is_date(side.type) else over([side], _in_seconds)


def _in_seconds(day_: Array) -> Array:
    return convert(day_.cast(pa.date32()), t.date, t.timestamp("s"))


def _shifted(op: str, one: Operand, span: Operand) -> Operand:
    if not pa.types.is_date(one.type):
        return over([one, span], lambda a, b: _summed(op, a, b, span=False))
    # A day and a constant of whole days is a day; anything else has a time of day.
    whole = (
        isinstance(span, pa.Scalar) and span.is_valid and span.value % (DAY * PER_SECOND[span.type.unit]) == 0
    )
    found = over([_stamped(one), span], lambda a, b: _summed(op, a, b, span=False))
    kind = t.of(found.type)
    target: t.Type = t.date if whole else t.timestamp()
    return over([found], lambda array: convert(array, kind, target))


def _summed(op: str, one: Array, other: Array, *, span: bool) -> Array:
    unit = max(one.type.unit, other.type.unit, key=_UNITS.index)
    gone = missing(one) | missing(other)
    values = []
    for each in (one, other):
        found, far = scaled(ticks(each), PER_SECOND[each.type.unit], PER_SECOND[unit])
        gone |= far
        values.append(found)
    a, b = values
    with np.errstate(over="ignore"):
        result = a + b if op == "+" else a - b
    # The sum of two numbers of one sign has it too, unless it was too large.
    signs = (a < 0) == (b < 0) if op == "+" else (a < 0) != (b < 0)
    gone |= signs & ((result < 0) != (a < 0))
    zone = getattr(one.type, "tz", None)
    kind = pa.duration(unit) if span or pa.types.is_duration(one.type) else pa.timestamp(unit, zone)
    return made(result, gone, kind)


def months_later(op: str, side: Operand, months: int) -> Operand:
    """Count months on or back from a day or a moment, whose time of day stays."""
    given = plain(side)
    if pa.types.is_null(given.type):
        given = given.cast(pa.timestamp("us", "UTC"))
    if not is_temporal(given) or pa.types.is_duration(given.type) or op not in "+-":
        raise SchemaError(
            f"months cannot be added to {given.type}",
            remedy="add them to a date or a timestamp",
            code="TypeMismatch",
        )
    return over([given], lambda array: _month_by_month(array, months if op == "+" else -months))


def _month_by_month(array: Array, months: int) -> Array:
    days = _months_later(_days(array), months)
    if pa.types.is_date(array.type):
        return made(days, missing(array), pa.date32())
    per_day = DAY * PER_SECOND[array.type.unit]
    found, far = scaled(days, 1, per_day)
    return made(found + ticks(array) % per_day, far | missing(array), array.type)
