"""Functions of numbers, and arithmetic: whole numbers stay whole, what has no answer is null."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.errors import SchemaError, check_memory
from trueline.view.converting import convert
from trueline.view.converting.numbers import limits
from trueline.view.expressions.functions.registry import function
from trueline.view.expressions.operands import (
    VERBS,
    Array,
    Operand,
    aligned,
    as_double,
    is_number,
    not_comparable,
    over,
    plain,
)

_CHECKED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_LONGER: Final[dict[str, Callable[[Any, Any], Any]]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_INT64: Final = (Decimal(-(1 << 63)), Decimal((1 << 63) - 1))
_CONTEXT: Final = Context(prec=400)


def arithmetic(op: str, left: Operand, right: Operand) -> Operand:
    """Return a sum, a difference, a product, a quotient or a remainder."""
    one, other = plain(left), plain(right)
    kinds = [side.type for side in (one, other)]
    if any(not is_number(kind) and not pa.types.is_null(kind) for kind in kinds):
        raise not_comparable(left, right, VERBS[op])
    if all(pa.types.is_null(kind) for kind in kinds):
        return pc.add(one.cast(pa.int64()), other.cast(pa.int64()))
    if all(pa.types.is_integer(kind) for kind in kinds) and pa.uint64() in kinds:
        one, other = (side.cast(pa.decimal256(20, 0)) for side in (one, other))
    one, other = aligned(one, other, VERBS[op])
    if op in "/%":
        return _divided(op, one, other)
    if pa.types.is_decimal(one.type):
        return _decimals(op, one, other)
    if pa.types.is_floating(one.type):
        return _LONGER[op](as_double(one), as_double(other))
    one, other = one.cast(pa.int64()), other.cast(pa.int64())
    try:
        return _CHECKED[op](one, other)
    except pa.ArrowInvalid:
        return _overflowing(op, one, other)


def _overflowing(op: str, one: Operand, other: Operand) -> Operand:
    """Numbers some of whose results have no place in 64 bits: those are null."""
    wide = pa.decimal256(20, 0)
    found = _LONGER[op](one.cast(wide), other.cast(wide))
    fits = pc.and_(pc.greater_equal(found, _INT64[0]), pc.less_equal(found, _INT64[1]))
    return pc.if_else(fits, found, pa.scalar(None, found.type)).cast(pa.int64())


def _decimals(op: str, one: Operand, other: Operand) -> Operand:
    try:
        return _LONGER[op](one, other)
    except pa.ArrowException as error:
        check_memory(error, f"computing decimals ({op})")
        needed = re.search(r"(\d+)\s*$", str(error))
        why = f"the result needs {needed[1]} digits" if needed else str(error)
        raise SchemaError(
            f"cannot {VERBS[op]} {t.of(one.type)} and {t.of(other.type)}: {why}",
            remedy="cast them to decimals of fewer digits",
            code="TypeMismatch",
        ) from None


def _divided(op: str, one: Operand, other: Operand) -> Operand:
    """Division gives doubles, the remainder has the sign of the first; by zero both are null."""
    whole = op == "%" and not any(
        pa.types.is_floating(side.type) or pa.types.is_decimal(side.type) for side in (one, other)
    )
    kind = pa.int64() if whole else pa.float64()
    one, other = one.cast(kind, safe=whole), other.cast(kind, safe=whole)
    other = pc.if_else(pc.equal(other, pa.scalar(0, kind)), pa.scalar(None, kind), other)
    return pc.divide(one, other) if op == "/" else over([one, other], _remainder)


def _remainder(one: Array, other: Array) -> Array:
    missing = pc.or_(pc.is_null(one), pc.is_null(other)).to_numpy(zero_copy_only=False)
    # By 1 where it does not matter: what is stored under a null may be zero.
    below = pc.fill_null(other, 1).to_numpy(zero_copy_only=False)
    with np.errstate(all="ignore"):
        found = np.fmod(pc.fill_null(one, 0).to_numpy(zero_copy_only=False), below)
    return pa.array(found, one.type, mask=missing)


# --- functions ----------------------------------------------------------------------------------


@function("mod", "number", "number", says="the remainder, as `a % b`: the sign of the first, null by zero")
def mod(one: Array, other: Array) -> Array:
    """Return the remainder."""
    return arithmetic("%", one, other)


@function("div", "whole", "whole", says="the quotient without its fraction, as `a div b`; null by zero")
def div(one: Array, other: Array) -> Array:
    """Return the whole quotient."""
    a, b = (convert(side, t.of(side.type), t.int64) for side in (one, other))
    missing = np.asarray(pc.or_(pc.is_null(a), pc.is_null(b)))
    x, y = np.asarray(pc.fill_null(a, 0)), np.asarray(pc.fill_null(b, 1))
    low = limits(pa.int64())[0]
    gone = missing | (y == 0) | ((x == low) & (y == -1))
    safe = np.where(gone, 1, y)
    found = x // safe
    return pa.array(found + ((x % safe != 0) & ((x < 0) != (safe < 0))), pa.int64(), mask=gone)


@function(
    "abs",
    "number",
    says="without its sign; null where there is no such whole number",
    spark="whole numbers become bigint",
)
def absolute(number: Array) -> Array:
    """Take the sign away."""
    if not pa.types.is_signed_integer(number.type):
        return pc.abs(number)
    wide = number.cast(pa.int64())
    try:
        return pc.abs_checked(wide)
    except pa.ArrowInvalid:
        low = pa.scalar(limits(pa.int64())[0], pa.int64())
        return pc.abs(pc.if_else(pc.equal(wide, low), None, wide))


@function("sign", "number", says="-1, 0 or 1 as a double, NaN for NaN")
def sign(number: Array) -> Array:
    """Return the sign."""
    return pc.sign(_double(number))


def _double(number: Array) -> Array:
    return convert(number, t.of(number.type), t.float64)


@function(
    "floor",
    "number",
    says="the largest whole number that is not above it",
    spark="null for NaN and beyond 64 bits; decimals too become bigint",
)
def floor(number: Array) -> Array:
    """Round down."""
    return _whole(number, pc.floor)


@function(
    "ceil",
    "number",
    says="the smallest whole number that is not below it",
    spark="null for NaN and beyond 64 bits; decimals too become bigint",
)
def ceil(number: Array) -> Array:
    """Round up."""
    return _whole(number, pc.ceil)


def _whole(number: Array, kernel: Any) -> Array:
    kind = t.of(number.type)
    if pa.types.is_integer(number.type):
        return convert(number, kind, t.int64)
    if isinstance(kind, t.Decimal):
        # One more digit: 9.9 becomes 10.
        wide = t.decimal(min(76, kind.precision + 1), kind.scale)
        return convert(kernel(convert(number, kind, wide)), wide, t.int64)
    return convert(kernel(_double(number)), t.float64, t.int64)


@function(
    "round",
    "number",
    "const whole?",
    says="to so many digits after the point, halves away from zero; the type stays",
    spark="float32 and whole numbers keep their type; decimals keep their scale",
)
def rounded(number: Array, digits: int = 0) -> Array:
    """Round as people do: 2.675 to two digits is 2.68, though as a double it lies below."""
    kind = t.of(number.type)
    places = min(max(digits, -400), 400)
    if isinstance(kind, t.Decimal):
        if places >= kind.scale:
            return number
        wide = t.decimal(min(76, kind.precision + 1), kind.scale)
        return pc.round(convert(number, kind, wide), ndigits=places, round_mode="half_towards_infinity")
    if pa.types.is_integer(number.type):
        return number if places >= 0 else _tens(number, -places)
    return convert(_floats(number, places), t.float64, kind)


def _tens(number: Array, places: int) -> Array:
    if places > 20:
        return pc.if_else(pc.is_valid(number), pa.scalar(0, number.type), number)
    exact = pc.round(number.cast(pa.decimal256(40, 0)), ndigits=-places, round_mode="half_towards_infinity")
    return convert(exact, t.of(exact.type), t.of(number.type))


def _floats(number: Array, places: int) -> Array:
    wide = _double(number)
    found = pc.round(wide, ndigits=places, round_mode="half_towards_infinity")
    values = np.asarray(pc.fill_null(wide, 0.0))
    with np.errstate(all="ignore"):
        moved = np.abs(values) * np.power(10.0, places)
        # Half a unit in the last place of what was given, and some more.
        window = 1e-6 + moved * (2.0**-22 if pa.types.is_float32(number.type) else 2.0**-50)
        close = np.isfinite(values) & ~(np.abs(moved - np.floor(moved) - 0.5) > window)
    # Arrow leaves a number as it is that vanishes when it is moved.
    found = pc.if_else(pa.array(moved < 0.25), pc.multiply(found, 0.0), found)
    rows = np.flatnonzero(close & np.asarray(pc.is_valid(wide)))
    if not len(rows):
        return found
    # Near a half the digits that people read decide, not the double's.
    texts = number.take(pa.array(rows)).cast(pa.string()).to_pylist()
    unit = Decimal(1).scaleb(-places)
    exact = [float(Decimal(text).quantize(unit, ROUND_HALF_UP, _CONTEXT)) for text in texts]
    mask = np.zeros(len(wide), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(found, pa.array(mask), pa.array(exact, pa.float64()))


def _in_domain(found: Array, *given: Array) -> Array:
    """Null where a function has no answer, though it was given numbers."""
    nan = pc.is_nan(found)
    for each in given:
        nan = pc.and_not(nan, pc.is_nan(each))
    return pc.if_else(pc.fill_null(nan, False), None, found)


@function("sqrt", "number", says="the square root, null below zero", spark="null below zero, Spark gives NaN")
def sqrt(number: Array) -> Array:
    """Return the square root."""
    given = _double(number)
    return _in_domain(pc.sqrt(given), given)


@function("ln", "number", says="the natural logarithm, null from zero down")
def ln(number: Array) -> Array:
    """Return the natural logarithm."""
    return _logarithm(number, pc.ln)


@function("log10", "number", says="the logarithm to base 10, null from zero down")
def log10(number: Array) -> Array:
    """Return the logarithm to base 10."""
    return _logarithm(number, pc.log10)


@function(
    "log2",
    "number",
    says="the logarithm to base 2, null from zero down",
    spark="the last bit may differ: Java divides two logarithms",
)
def log2(number: Array) -> Array:
    """Return the logarithm to base 2."""
    return _logarithm(number, pc.log2)


def _logarithm(number: Array, kernel: Any) -> Array:
    given = _double(number)
    below = pc.less_equal(given, 0.0)
    return kernel(pc.if_else(pc.fill_null(below, False), None, given))


@function("exp", "number", says="e to its power")
def exp(number: Array) -> Array:
    """Return e to the power."""
    return pc.exp(_double(number))


@function(
    "power",
    "number",
    "number",
    says="the first to the power of the second, null where there is none",
    spark="null where there is no answer, Spark gives NaN",
)
def power(one: Array, other: Array) -> Array:
    """Return a power."""
    a, b = _double(one), _double(other)
    return _in_domain(pc.power(a, b), a, b)


@function("isnan", "values", says="whether it is NaN; null is not")
def isnan(number: Operand) -> Operand:
    """Say whether a number is NaN."""
    side = plain(number)
    if pa.types.is_floating(side.type):
        return pc.fill_null(pc.is_nan(side), False)
    if not is_number(side.type) and not pa.types.is_null(side.type):
        raise SchemaError(
            f"isnan takes a number, not {side.type}", remedy="for null write x is null", code="TypeMismatch"
        )
    return pc.and_(pc.is_null(side), False)


@function("nanvl", "number", "number", says="the first, or the second where the first is NaN")
def nanvl(one: Array, other: Array) -> Array:
    """Replace NaN."""
    a, b = _double(one), _double(other)
    return pc.if_else(pc.fill_null(pc.is_nan(a), False), b, a)
