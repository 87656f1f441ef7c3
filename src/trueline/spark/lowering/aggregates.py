"""Aggregates that Spark's hash aggregation computes to the bit, in parts that the kernel puts together.

Whole numbers are cut into words of 21 bits, floats into words of 24 on a grid of their own, so that sums of
words are exact and no group has rows enough to overflow them. A window of the grid holds floats of 64 powers
of two, as most columns are; values in other windows are summed apart, as further groups of the same key.
NaN and the infinities have windows of their own, so that a group needs no flags to say that it has seen one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trueline import types as t
from trueline.kernel import aggregates as kernel
from trueline.kernel.aggregates import Spans
from trueline.kernel.exact_sums import as_words, prefix, spread
from trueline.kernel.limbs import BITS, MASK, Whole, carried, rounded, with_infinities
from trueline.view.plan.aggregates import AggregateCall

if TYPE_CHECKING:
    from pyspark.sql import Column

# A group of 2^42 rows does not overflow a sum of these.
_WORD: Final = 21
# The words of a float: five of 24 bits, the lowest of which counts 2^-80 in window 0. There values have
# sizes from 2^-24 up to 2^40, and no bit below 2^-76: a window may be missed by a little.
_FLOAT_WORD: Final = 24
_FLOAT_WORDS: Final = 5
_LOWEST: Final = -80
_WINDOW: Final = 64
_SMALLEST: Final = -24
# Windows of what has no bits to add: they begin after the last window of numbers, which is 16.
_NAN, _UP, _DOWN = 64, 65, 66
_NARROW: Final = frozenset((t.int8, t.int16, t.int32, t.uint8, t.uint16, t.uint32))

Arrays: TypeAlias = Sequence[pa.Array]
Finish: TypeAlias = Callable[[Arrays, Spans, AggregateCall], pa.Array]


@dataclass(frozen=True)
class CatalystAggregate:
    """One aggregate in parts: columns that Spark aggregates, of these types, and how they are put together.

    `before` are columns that are made of rows first, some at a time, each from those before; `window` is the
    one by which parts of a group are kept apart. Without `finish` the one part of a group is its value.
    """

    made: tuple[Column, ...]
    types: tuple[t.Type, ...]
    merge: Finish
    finish: bool = False
    before: tuple[Mapping[str, Column], ...] = ()
    window: str | None = None


def is_partial(call: AggregateCall, kind: t.Type | None) -> bool:
    """Say whether an aggregate can be made in parts, or the kernel must have all rows of a group."""
    make = call.kind.make
    if make in (kernel.count, kernel.any_true, kernel.all_true):
        return True
    if kind is None:
        return False
    if make in (kernel.smallest, kernel.largest, kernel.first):
        return kind.is_primitive and kind.has_order and kind.arrow != pa.float16()
    return make in (kernel.total, kernel.average) and kind in t.NUMBERS


def catalyst_aggregate(
    call: AggregateCall, kind: t.Type | None, name: str, position: Column
) -> CatalystAggregate:
    """Return an aggregate of a column in parts, where it can be; `position` says which row is the first."""
    from pyspark.sql import functions as f

    make = call.kind.make
    if make is kernel.count:
        made = f.count(f.lit(1)) if kind is None else f.count(f.col(name))
        return CatalystAggregate((made,), (t.int64,), _added)
    assert kind is not None
    if make in (kernel.smallest, kernel.largest):
        return _extreme(name, kind, largest=make is kernel.largest)
    if make in (kernel.any_true, kernel.all_true):
        chosen = f.max if make is kernel.any_true else f.min
        return CatalystAggregate((chosen(f.col(name)),), (kind,), _of_parts)
    if make is kernel.first:
        # Parts of a group come in the order of their first rows.
        return CatalystAggregate((f.min_by(f.col(name), position),), (kind,), _of_parts)
    return _float_sum(name) if kind in t.FLOATS else _whole_sum(name, kind)


# --- extremes, counts, single values ----------------------------------------------------------


def _extreme(name: str, kind: t.Type, *, largest: bool) -> CatalystAggregate:
    from pyspark.sql import functions as f

    value, best = f.col(name), f.max if largest else f.min
    if kind in t.FLOATS:
        # One NaN, which is the largest for Spark too, and one zero.
        double = "double" if kind == t.float64 else "float"
        nan, zero = (f.lit(each).cast(double) for each in (float("nan"), 0.0))
        made = best(f.when(f.isnan(value), nan).when(value == 0, zero).otherwise(value))
    elif kind == t.uint64:
        sign = f.lit(-(1 << 63))
        made = best(value.bitwiseXOR(sign)).bitwiseXOR(sign)
    else:
        made = best(value)
    return CatalystAggregate((made,), (kind,), _of_parts)


def _added(parts: Arrays, spans: Spans, call: AggregateCall) -> pa.Array:
    del call
    return pa.array(_sum(parts[0], spans))


def _of_parts(parts: Arrays, spans: Spans, call: AggregateCall) -> pa.Array:
    """The best of the best, the first of the first."""
    return call.of(parts[0], spans)


def _sum(values: pa.Array, spans: Spans) -> Whole:
    return spread(prefix(np.asarray(values)), spans.low, spans.high)


# --- whole numbers ------------------------------------------------------------------------------


def _whole_sum(name: str, kind: t.Type) -> CatalystAggregate:
    from pyspark.sql import functions as f

    value = f.coalesce(f.col(name).cast("bigint"), f.lit(0).cast("bigint"))
    count = f.count(f.col(name))
    if kind in _NARROW:
        words = [f.sum(value)]
    else:
        mask = f.lit((1 << _WORD) - 1).cast("bigint")
        shift = f.shiftrightunsigned if kind == t.uint64 else f.shiftright
        cut = [value.bitwiseAND(mask), f.shiftright(value, _WORD).bitwiseAND(mask), shift(value, 2 * _WORD)]
        words = [f.sum(each) for each in cut]
    merge = _whole_total_unsigned if pa.types.is_unsigned_integer(kind.arrow) else _whole_total_signed
    return CatalystAggregate((count, *words), (t.int64,) * (1 + len(words)), merge, finish=True)


def _whole_total_signed(parts: Arrays, spans: Spans, call: AggregateCall) -> pa.Array:
    return _whole_total(parts, spans, call, signed=True)


def _whole_total_unsigned(parts: Arrays, spans: Spans, call: AggregateCall) -> pa.Array:
    return _whole_total(parts, spans, call, signed=False)


def _whole_total(parts: Arrays, spans: Spans, call: AggregateCall, *, signed: bool) -> pa.Array:
    count = _sum(parts[0], spans)
    limbs = on_grid([(_sum(each, spans), _WORD * place) for place, each in enumerate(parts[1:])])
    if call.kind.make is kernel.average:
        return pa.array(rounded(limbs, 0) / np.maximum(count, 1), mask=count == 0)
    low, high, *over = carried(limbs)
    # All above 64 bits as one number: a sum has less than 2^106.
    above = sum((each << (BITS * place) for place, each in enumerate(over[:2])), np.int64(0))
    words, wrong = as_words(np.array([low, high, above]), signed=signed)
    numbers: npt.NDArray[np.generic] = words.view(np.int64) if signed else words
    return pa.array(numbers, mask=(count == 0) | wrong).cast(call.type.arrow)


# --- floats -------------------------------------------------------------------------------------


def _float_sum(name: str) -> CatalystAggregate:
    from pyspark.sql import functions as f

    of_row, window = f.col(name), f.col(f"{name}_w")
    double, zero = of_row.cast("double"), f.lit(0).cast("bigint")
    size, value = f.abs(double), f.coalesce(double, f.lit(0.0))
    in_window = (size >= 2.0**_SMALLEST) & (size < 2.0 ** (_SMALLEST + _WINDOW))
    far = f.floor((f.log2(size) - _SMALLEST) / _WINDOW).cast("bigint")
    number = f.when(in_window | (size == 0) | of_row.isNull(), zero).when(f.isnan(of_row), _NAN)
    number = number.when(of_row == float("inf"), _UP).when(of_row == float("-inf"), _DOWN).otherwise(far)
    # A number of 2^1023 has no inverse power of two: half of it twice.
    half = f.pow(f.lit(2.0), window * -(_WINDOW // 2))
    top = _LOWEST + _FLOAT_WORD * (_FLOAT_WORDS - 1)
    near = f.when(window == 0, value).when(window < _NAN, value * half * half).otherwise(0.0)
    before = [{f"{name}_w": number}, {f"{name}_r0": near * 2.0**-top}]
    words = [f"{name}_{place}" for place in range(_FLOAT_WORDS)]
    for place, word in enumerate(words):
        rest = f.col(f"{name}_r{place}")
        whole = rest.cast("bigint")
        # What is left is exact: the highest bits of a number are taken away.
        left = (rest - whole.cast("double")) * 2.0**_FLOAT_WORD
        before.append({word: whole} | ({f"{name}_r{place + 1}": left} if place + 1 < _FLOAT_WORDS else {}))
    made = (f.count(of_row), *(f.sum(f.col(each)) for each in reversed(words)))
    types = (t.int64,) * (1 + len(made))
    return CatalystAggregate(made, types, _float_total, finish=True, before=tuple(before), window=f"{name}_w")


def _float_total(parts: Arrays, spans: Spans, call: AggregateCall) -> pa.Array:
    """Round the sum of all words once; the parts are the window, the count, and the words."""
    window, count = np.asarray(parts[0]), _sum(parts[1], spans)
    words = np.array([np.asarray(each) for each in parts[2:]])
    seen = np.unique(window)
    numbers = seen[seen < _NAN]
    lowest, highest = (int(numbers[at]) if len(numbers) else 0 for at in (0, -1))
    step = _WINDOW // BITS
    unit = _LOWEST % BITS
    limbs = np.zeros(((highest - lowest) * step + 7, len(spans.low)), np.int64)
    group = np.repeat(np.arange(len(spans.low)), spans.lengths)
    for number in numbers:
        here = window == number
        cut = on_grid([(word[here], _FLOAT_WORD * place + unit) for place, word in enumerate(words)])
        first = (int(number) - lowest) * step
        for place, limb in enumerate(cut):
            # A group has several parts of a window where another sum keeps them apart.
            np.add.at(limbs[first + place], group[here], limb)
    found = rounded(limbs, BITS * (lowest * step + _LOWEST // BITS))
    found = with_infinities(found, *(_has(window == each, spans) for each in (_NAN, _UP, _DOWN)))
    if call.kind.make is kernel.average:
        found = found / np.maximum(count, 1)
    return pa.array(found, mask=count == 0)


def _has(parts: npt.NDArray[np.bool_], spans: Spans) -> npt.NDArray[np.bool_]:
    """Say which groups have one of these parts."""
    return np.logical_or.reduceat(parts, spans.low)


def on_grid(words: Sequence[tuple[Whole, int]]) -> Whole:
    """Return sums of words, each times 2 to a power, as limbs at the places 0, 1 and so on.

    >>> on_grid([(np.array([5]), 0), (np.array([-1]), 40)]).tolist()
    [[5], [-256], [0], [0]]
    """
    top = max(power for _, power in words) // BITS
    found = np.zeros((top + 3, len(words[0][0])), np.int64)
    for word, power in words:
        place, shift = divmod(power, BITS)
        sign, size = np.sign(word), np.abs(word)
        lower, upper = (size & MASK) << np.int64(shift), (size >> np.int64(BITS)) << np.int64(shift)
        found[place] += (lower & MASK) * sign
        found[place + 1] += ((lower >> np.int64(BITS)) + (upper & MASK)) * sign
        found[place + 2] += (upper >> np.int64(BITS)) * sign
    return found
