"""Numbers as other numbers: out of range is null, decimals round half away from zero."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.errors import check_memory

Array: TypeAlias = Any  # pyarrow has no types
_WIDEST: Final = pa.decimal256(76, 38)
_CONTEXT: Final = Context(prec=400)


def limits(kind: pa.DataType) -> tuple[int, int]:
    """Return the smallest and the largest whole number of a type."""
    bits = kind.bit_width
    return (
        (-(1 << bits - 1), (1 << bits - 1) - 1) if pa.types.is_signed_integer(kind) else (0, (1 << bits) - 1)
    )


def _within(array: Array, low: int, high: int) -> Array:
    """Whole numbers from `low` to `high`; the others are null."""
    least, most = limits(array.type)
    fits: Array = None
    if low > least:
        fits = pc.greater_equal(array, pa.scalar(low, array.type))
    if high < most:
        below = pc.less_equal(array, pa.scalar(high, array.type))
        fits = below if fits is None else pc.and_(fits, below)
    return array if fits is None else pc.if_else(fits, array, None)


def whole(array: Array, target: t.Type) -> Array:
    """Whole numbers as whole numbers of another type."""
    low, high = limits(target.arrow)
    least, most = limits(array.type)
    return _within(array, max(low, least), min(high, most)).cast(target.arrow)


def codes(array: Array, target: t.Type) -> Array:
    """Whole numbers as codes of a category."""
    assert isinstance(target, t.Category)
    least, most = limits(array.type)
    return _within(array, max(0, least), min(target.count - 1, most)).cast(target.arrow)


def nearest(array: Array, target: t.Type) -> Array:
    """Whole numbers as floats."""
    return array.cast(target.arrow, safe=False)


def is_not_zero(array: Array) -> Array:
    """Floats as true or false; NaN is neither."""
    return pc.if_else(pc.is_nan(array), None, pc.not_equal(array, pa.scalar(0.0, array.type)))


def cut(array: Array, target: t.Type) -> Array:
    """Floats as whole numbers."""
    found = pc.trunc(array.cast(pa.float64()))
    low, high = limits(target.arrow)
    # Both ends are powers of two, or next to one: as doubles they are exact, the upper one not included.
    fits = pc.and_(pc.greater_equal(found, float(low)), pc.less(found, float(high + 1)))
    return pc.if_else(fits, found, None).cast(target.arrow)


def floats(array: Array, target: t.Type) -> Array:
    """Floats as floats of another size: NaN has one bit pattern, what is finite does not become infinite."""
    from trueline.readers.cells import one_nan

    found = array.cast(target.arrow, safe=False)
    if target == t.float32:
        burst = pc.and_(pc.is_inf(found), pc.is_finite(array))
        if pc.any(burst).as_py():
            found = pc.if_else(burst, None, found)
    return one_nan(found)


# --- decimals ---------------------------------------------------------------------------------


def decimals(array: Array, target: t.Type) -> Array:
    """Whole numbers as decimals."""
    return rescaled(array.cast(pa.decimal256(20, 0)), target)


def rescaled(array: Array, target: t.Type) -> Array:
    """Decimals with another number of digits."""
    assert isinstance(target, t.Decimal)
    kind: Any = array.type
    try:
        return array.cast(target.arrow) if _is_wider(kind, target) else _rounded(array, target)
    except pa.ArrowException as error:
        check_memory(error, "converting decimals")
        # Digits that have no room on the way, though they may have in the end.
        return pa.array([_quantised(value, target) for value in array.to_pylist()], target.arrow)


def _is_wider(kind: Any, target: t.Decimal) -> bool:
    """Whether every value fits as it is."""
    return bool(target.scale >= kind.scale and target.precision - target.scale >= kind.precision - kind.scale)


def _rounded(array: Array, target: t.Decimal) -> Array:
    kind: Any = array.type
    found = array.cast(pa.decimal256(76, kind.scale))
    if target.scale < kind.scale:
        found = pc.round(found, ndigits=target.scale, round_mode="half_towards_infinity")
    room = target.precision - target.scale
    if room < 76 - kind.scale:
        limit = pa.scalar(Decimal(10) ** room, pa.decimal256(room + 1, 0))
        fits = pc.less(pc.abs(found), limit)
        found = pc.if_else(fits, found, pa.scalar(None, found.type))
    return found.cast(target.arrow)


def _quantised(value: Decimal | None, target: t.Decimal) -> Decimal | None:
    if value is None or not value.is_finite():
        return None
    try:
        found = value.quantize(Decimal(1).scaleb(-target.scale), ROUND_HALF_UP, _CONTEXT)
    except InvalidOperation:
        return None
    return found if abs(found) < Decimal(10) ** (target.precision - target.scale) else None


def decimals_of_floats(array: Array, target: t.Type) -> Array:
    """Floats as the decimals people read them as: 2.675 is 2.675, and 2.68 with two digits."""
    assert isinstance(target, t.Decimal)
    finite = pc.if_else(pc.is_finite(array), array, None)
    written = finite.cast(pa.string())
    # Beyond, the digits have no room in the widest decimal.
    easy = pc.and_(pc.less(pc.abs(finite), 1e30), pc.greater(pc.abs(finite), 1e-18))
    easy = pc.fill_null(pc.or_(easy, pc.equal(finite, pa.scalar(0.0, array.type))), True)
    found = rescaled(pc.if_else(easy, written, None).cast(_WIDEST), target)
    hard = np.flatnonzero(np.asarray(pc.invert(easy)))
    if not len(hard):
        return found
    exact = [_quantised(Decimal(text), target) for text in written.take(pa.array(hard)).to_pylist()]
    return pc.replace_with_mask(found, pc.invert(easy), pa.array(exact, target.arrow))


def whole_of_decimals(array: Array, target: t.Type) -> Array:
    """Decimals as whole numbers."""
    kind: Any = array.type
    low, high = limits(target.arrow)
    found = pc.trunc(array)
    wide = pa.decimal256(20, 0)
    ends = [pa.scalar(Decimal(end), wide) for end in (low, high)]
    fits = pc.and_(pc.greater_equal(found, ends[0]), pc.less_equal(found, ends[1]))
    kept = pc.if_else(fits, found, pa.scalar(None, kind))
    return kept.cast(target.arrow)


def floats_of_decimals(array: Array, target: t.Type) -> Array:
    """Decimals as the nearest floats: by their text, since Arrow rounds more than once on the way."""
    return array.cast(pa.string()).cast(target.arrow)


# --- text -------------------------------------------------------------------------------------


def text_of_floats(array: Array) -> Array:
    """Write floats so that they read back the same; a point tells whole ones from whole numbers."""
    found = array.cast(pa.string())
    whole_ones = pc.match_substring_regex(found, "^-?[0-9]+$")
    found = pc.if_else(whole_ones, pc.binary_join_element_wise(found, ".0", ""), found)
    if not pc.all(pc.is_finite(array), min_count=0).as_py():
        for written, meant in (("nan", "NaN"), ("-nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
            found = pc.if_else(pc.equal(found, written), meant, found)
    return found


def text_of_decimals(array: Array) -> Array:
    """Write decimals without powers of ten."""
    found = array.cast(pa.string())
    powers = pc.match_substring(found, "E")
    if not pc.any(powers).as_py():
        return found
    scale = array.type.scale
    return pa.array(
        [
            format(value, f".{scale}f") if short else text
            for value, text, short in zip(
                array.to_pylist(), found.to_pylist(), powers.to_pylist(), strict=True
            )
        ],
        pa.string(),
    )
