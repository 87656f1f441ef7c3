"""Aggregates over stretches of rows: the rows of a group, or those around a row.

Every result is a function of the rows of its stretch in their order, whatever rows are beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.kernel.comparison import codes, has_words, order_words, places_in_order
from trueline.kernel.exact_sums import (
    as_words,
    float_sums,
    prefix,
    python_sums,
    small_sums,
    spread,
    whole_sums,
)
from trueline.kernel.limbs import Whole, as_floats, rounded
from trueline.kernel.value_hash import Words, whole_numbers
from trueline.kernel.word_order import different_words

Values: TypeAlias = pa.Array
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class Spans:
    """Stretches of `rows` rows, from `low` up to `high` (not included).

    Of a window they belong to the rows `at`, which lie in a stretch of their kind from `start` up to
    `stop`; of groups there is no `at`, and no row is in two of them. `gone` rows of that stretch came before
    those in memory.
    """

    rows: int
    low: Whole
    high: Whole
    at: Whole | None = None
    start: Whole | None = None
    stop: Whole | None = None
    gone: int = 0

    @property
    def lengths(self) -> Whole:
        """How many rows each has."""
        return self.high - self.low


AggregateKernel: TypeAlias = Callable[[Values, Spans, t.Type, int], pa.Array]


def there(values: Values) -> npt.NDArray[np.bool_]:
    """Say where values are not null."""
    return np.asarray(values.is_valid())


def _counts(mask: npt.NDArray[np.bool_], spans: Spans) -> Whole:
    return spread(prefix(mask), spans.low, spans.high)


def typed(words: npt.NDArray[np.generic], missing: npt.NDArray[np.bool_], kind: t.Type) -> pa.Array:
    """Return numbers as an array of a type, null where a mask says so."""
    found = pa.array(words, mask=missing if missing.any() else None)
    if pa.types.is_temporal(kind.arrow):
        return found.cast(pa.int32() if kind.arrow.bit_width == 32 else pa.int64()).view(kind.arrow)
    return found.cast(kind.arrow)


# --- how many -------------------------------------------------------------------------------


def count(values: Values | None, spans: Spans, _kind: t.Type, _k: int) -> pa.Array:
    """How many rows, or of a column how many that are not null."""
    return pa.array(spans.lengths if values is None else _counts(there(values), spans))


def count_distinct(values: Values, spans: Spans, _kind: t.Type, _k: int) -> pa.Array:
    """How many different values, of groups; null is not one."""
    found, number = codes([values], spans.rows, nulls=False)
    group = np.repeat(np.arange(len(spans.low)), spans.lengths)
    inside = np.repeat(spans.low - np.cumsum(spans.lengths) + spans.lengths, spans.lengths)
    code = found[inside + np.arange(len(group))]
    pairs = group[code >= 0] * max(1, number) + code[code >= 0]
    pairs = different_words(pairs.view(np.uint64)).view(np.int64)
    return pa.array(np.bincount(pairs // max(1, number), minlength=len(spans.low)).astype(np.int64))


# --- sums -----------------------------------------------------------------------------------


def total(values: Values, spans: Spans, kind: t.Type, _k: int) -> pa.Array:
    """The exact sum; null where no value is there, or where it does not fit the type."""
    none = _counts(there(values), spans) == 0 if values.null_count else spans.lengths == 0
    if pa.types.is_decimal(values.type):
        return decimals(_decimal_sums(values, spans), none, kind)
    if pa.types.is_floating(values.type):
        return pa.array(float_sums(as_floats(values), spans.low, spans.high), mask=none)
    plain = as_integers(values)
    sums = small_sums(plain, spans.low, spans.high)
    if sums is not None:
        is_signed = not pa.types.is_unsigned_integer(kind.arrow)
        return typed(sums if is_signed else sums.view(np.uint64), none, kind)
    return whole_totals(whole_sums(plain, spans.low, spans.high), none, kind)


def whole_totals(limbs: Whole, none: npt.NDArray[np.bool_], kind: t.Type) -> pa.Array:
    """Return sums of three limbs as values; null where a mask says so, or where they do not fit the type."""
    signed = not pa.types.is_unsigned_integer(kind.arrow)
    words, wrong = as_words(limbs, signed=signed)
    return typed(words.view(np.int64) if signed else words, none | wrong, kind)


def average(values: Values, spans: Spans, kind: t.Type, _k: int) -> pa.Array:
    """The exact sum divided by the number of values that are there."""
    number = _counts(there(values), spans)
    none = number == 0
    if pa.types.is_decimal(values.type):
        return decimal_means(_decimal_sums(values, spans), number, values.type.scale, kind)
    if pa.types.is_floating(values.type):
        sums = float_sums(as_floats(values), spans.low, spans.high)
        return pa.array(sums / np.maximum(number, 1), mask=none)
    return whole_means(whole_sums(as_integers(values), spans.low, spans.high), number, kind)


def whole_means(limbs: Whole, number: Whole, kind: t.Type) -> pa.Array:
    """Return sums of three limbs divided by how many values there are; null where there are none."""
    none, divisor = number == 0, np.maximum(number, 1)
    if isinstance(kind, t.Duration):
        sums = zip(*limbs.tolist(), divisor.tolist(), strict=True)
        means = [divided(low + (high << 32) + (over << 64), many) for low, high, over, many in sums]
        return typed(np.array(means, np.int64), none, kind)
    return pa.array(rounded(limbs, 0) / divisor, mask=none)


def decimal_means(sums: Sequence[int], number: Whole, scale: int, kind: t.Type) -> pa.Array:
    """Return sums of digits, of which `scale` are behind the point, divided by how many values there are."""
    assert isinstance(kind, t.Decimal)
    more = 10 ** (kind.scale - scale)
    totals = zip(sums, number.tolist(), strict=True)
    return decimals([divided(each * more, many) for each, many in totals], number == 0, kind)


def as_integers(values: Values) -> npt.NDArray[np.integer]:
    """Return whole numbers and durations as words of 64 bits; 0 where a value is null."""
    if pa.types.is_unsigned_integer(values.type):
        return np.asarray(pc.fill_null(values, 0)).astype(np.uint64)
    return whole_numbers(values)


def decimal_words(values: Values) -> npt.NDArray[np.uint64]:
    """Return the digits of decimals as rows of words, lowest first; 0 where a value is null."""
    width = values.type.byte_width // 8
    raw = np.frombuffer(values.buffers()[1], "<u8", len(values) * width, values.offset * 8 * width)
    return np.where(there(values)[:, None], raw.reshape(len(values), width), np.uint64(0))


def _decimal_sums(values: Values, spans: Spans) -> list[int]:
    return python_sums(decimal_words(values), spans.low, spans.high)


def decimals(sums: Sequence[int], none: npt.NDArray[np.bool_], kind: t.Type) -> pa.Array:
    """Return digits as decimals; null where a mask says so, or where they are too many."""
    assert isinstance(kind, t.Decimal)
    limit = 10**kind.precision
    return pa.array(
        [
            None if missing or abs(each) >= limit else Decimal(each).scaleb(-kind.scale)
            for each, missing in zip(sums, none.tolist(), strict=True)
        ],
        kind.arrow,
    )


def divided(number: int, by: int) -> int:
    """Divide whole numbers, rounded to the nearest, halves away from zero."""
    by = max(1, by)
    found = (2 * abs(number) + by) // (2 * by)
    return found if number >= 0 else -found


# --- extremes -------------------------------------------------------------------------------


def smallest(values: Values, spans: Spans, kind: t.Type, _k: int) -> pa.Array:
    """The first value in the order of `sort`; NaN only where there is nothing else."""
    return _extreme(values, spans, kind, largest=False)


def largest(values: Values, spans: Spans, kind: t.Type, _k: int) -> pa.Array:
    """The last value in the order of `sort` that is not null: NaN if there is one."""
    return _extreme(values, spans, kind, largest=True)


def _extreme(values: Values, spans: Spans, kind: t.Type, *, largest: bool) -> pa.Array:
    valid = there(values)
    none = _counts(valid, spans) == 0
    by_rank = not has_words(values.type)
    if by_rank:
        order = places_in_order([values], (False,))
        words = np.empty(len(order), np.uint64)
        words[order] = np.arange(len(order), dtype=np.uint64)
    else:
        words = order_words(values)
    # A null must not win.
    words = np.where(valid, words, np.uint64(0) if largest else ~np.uint64(0))
    found = _of_spans(words, spans, np.maximum if largest else np.minimum)
    if by_rank:
        places = order[np.where(none, 0, found).astype(np.int64)] if len(order) else np.zeros(0, np.int64)
        return values.take(pa.array(places, mask=none))
    return from_words(found, none, kind)


def _of_spans(words: Words, spans: Spans, better: np.ufunc) -> Words:
    """Return the best word of each stretch; of an empty one, any."""
    found = np.zeros(len(spans.low), np.uint64)
    some = spans.lengths > 0
    low, high = spans.low[some], spans.high[some]
    if not len(low):
        return found
    if spans.at is None:
        # Groups lie one after another and cover all rows.
        found[some] = better.reduceat(words, low)
        return found
    # The best of 1, 2, 4 … rows from each row on; two of them cover any stretch.
    level = np.frexp((high - low).astype(np.float64))[1] - 1
    best, answer = words, np.empty(len(low), np.uint64)
    for power in range(int(level.max()) + 1):
        if power:
            half = 1 << (power - 1)
            best = better(best[:-half], best[half:])
        here = np.flatnonzero(level == power)
        answer[here] = better(best[low[here]], best[high[here] - (1 << power)])
    found[some] = answer
    return found


def from_words(words: Words, none: npt.NDArray[np.bool_], kind: t.Type) -> pa.Array:
    """Turn words of an order into the values they encode."""
    if pa.types.is_floating(kind.arrow):
        bits = np.where(words & _SIGN, words ^ _SIGN, ~words)
        return pa.array(bits.view(np.float64), mask=none).cast(kind.arrow)
    if pa.types.is_unsigned_integer(kind.arrow):
        return pa.array(np.where(none, np.uint64(0), words), mask=none).cast(kind.arrow)
    whole = np.where(none, np.int64(0), (words ^ _SIGN).view(np.int64))
    return typed(whole, none, kind)


# --- single rows ----------------------------------------------------------------------------


def first(values: Values, spans: Spans, _kind: t.Type, _k: int) -> pa.Array:
    """The value of the first row, null if it is null there."""
    return values.take(pa.array(spans.low, mask=spans.lengths == 0))


def last(values: Values, spans: Spans, _kind: t.Type, _k: int) -> pa.Array:
    """The value of the last row, null if it is null there."""
    return values.take(pa.array(spans.high - 1, mask=spans.lengths == 0))


def lag(values: Values, spans: Spans, _kind: t.Type, k: int) -> pa.Array:
    """The value k rows before, null where there is no such row; windows only."""
    assert spans.at is not None
    assert spans.start is not None
    assert spans.stop is not None
    places = spans.at - k
    return values.take(pa.array(places, mask=(places < spans.start) | (places >= spans.stop)))


def lead(values: Values, spans: Spans, kind: t.Type, k: int) -> pa.Array:
    """The value k rows after, null where there is no such row; windows only."""
    return lag(values, spans, kind, -k)


def row_number(_values: Values | None, spans: Spans, _kind: t.Type, _k: int) -> pa.Array:
    """The number of the row among those with an equal key, from 1 on; windows only."""
    assert spans.at is not None
    assert spans.start is not None
    return pa.array(spans.at - spans.start + (spans.gone + 1))


def collect(values: Values, spans: Spans, kind: t.Type, _k: int) -> pa.Array:
    """All values as a vector, nulls too."""
    ends = np.cumsum(spans.lengths)
    places = np.arange(int(ends[-1]) if len(ends) else 0)
    places += np.repeat(spans.low - ends + spans.lengths, spans.lengths)
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values.take(pa.array(places)), type=kind.arrow)


# --- truth ----------------------------------------------------------------------------------


def any_true(values: Values, spans: Spans, _kind: t.Type, _k: int) -> pa.Array:
    """Whether one is true; null where no value is there."""
    true, none = _truth(values, spans)
    return pa.array(true > 0, mask=none)


def all_true(values: Values, spans: Spans, _kind: t.Type, _k: int) -> pa.Array:
    """Whether none that is there is false; null where no value is there."""
    true, none = _truth(values, spans)
    return pa.array(true == _counts(there(values), spans), mask=none)


def _truth(values: Values, spans: Spans) -> tuple[Whole, npt.NDArray[np.bool_]]:
    """Return how many are true, and where no value is there."""
    true = _counts(np.asarray(pc.fill_null(values, False)), spans)
    return true, _counts(there(values), spans) == 0
