"""Operands of an expression: a column of values, or one value for all rows; and their coercion to one type.

Two operands are brought to types Arrow compares without changing what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import time
from decimal import Decimal
from math import isfinite
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import InputError, SchemaError
from trueline.view.expressions.literals import as_date, as_timestamp
from trueline.view.plan.node import step_of

# An array or a scalar of Arrow's: pyarrow has no types to say so with.
Operand: TypeAlias = Any
Array: TypeAlias = Any

# What is done with two operands, as people say it.
VERBS: Final = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "take the remainder of"}
_UNITS: Final = ("s", "ms", "us", "ns")
_EXACT: Final = pa.decimal128(38, 0)


def as_array(side: Operand, rows: int) -> Array:
    """Return a value for each row."""
    if isinstance(side, pa.ChunkedArray):
        return side.combine_chunks()
    if isinstance(side, pa.Array):
        return side
    return pa.repeat(side, rows) if side.is_valid and rows else pa.nulls(rows, side.type)


def over(sides: Sequence[Operand], run: Callable[..., Array]) -> Operand:
    """Run a kernel that wants arrays: over the rows there are, or over one if all are single values."""
    rows = [len(side) for side in sides if not isinstance(side, pa.Scalar)]
    if not rows:
        return run(*(as_array(side, 1) for side in sides))[0]
    return run(*(as_array(side, rows[0]) for side in sides))


def flags(array: Array) -> npt.NDArray[np.bool_]:
    """Return truth as numpy has it; null is false."""
    return np.asarray(pc.fill_null(array, False))


# --- coercion -------------------------------------------------------------------------------


def aligned(left: Operand, right: Operand, doing: str) -> tuple[Operand, Operand]:
    """Return both sides with types that can be compared; raise `SchemaError` if there are none."""
    one, other = plain(left), plain(right)
    if one.type == other.type:
        return one, other
    if pa.types.is_null(one.type):
        return _cast(one, other.type), other
    if pa.types.is_null(other.type):
        return one, _cast(other, one.type)
    for pair in (_texts, _moments, _spans, _numbers):
        found = pair(one, other)
        if found is not None:
            return found
    raise not_comparable(left, right, doing)


def plain(side: Operand) -> Operand:
    """Give up encodings: dictionaries, views, large offsets, half floats."""
    kind = side.type
    if pa.types.is_dictionary(kind):
        side, kind = _cast(side, kind.value_type), kind.value_type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _cast(side, pa.string())
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return _cast(side, pa.binary())
    if pa.types.is_float16(kind):
        return _cast(side, pa.float32())
    return side


def not_comparable(left: Operand, right: Operand, doing: str) -> SchemaError:
    """The error of two types that do not go together."""
    constant = isinstance(left, pa.Scalar) or isinstance(right, pa.Scalar)
    texts = pa.types.is_string(left.type) or pa.types.is_string(right.type)
    return SchemaError(
        f"cannot {doing} {_shown(left)} and {_shown(right)}",
        remedy="text is put together with || or concat(a, b); text is made of others by cast(x as text)"
        if texts and doing == VERBS["+"]
        else "write the constant in the column's type, as in date'2026-11-13'"
        if constant
        else "convert one of them, as in cast(x as double)",
        code="TypeMismatch",
        left=str(left.type),
        right=str(right.type),
    )


def _shown(side: Operand) -> str:
    return (
        f"{side.as_py()!r} ({side.type})" if isinstance(side, pa.Scalar) else f"a column of type {side.type}"
    )


def _cast(side: Operand, kind: pa.DataType) -> Operand:
    return side.cast(kind)


# --- text with times ------------------------------------------------------------


def _texts(one: Operand, other: Operand) -> tuple[Operand, Operand] | None:
    """A constant of text is read as a date or a time where the other side is one."""
    if isinstance(one, pa.Scalar) and pa.types.is_string(one.type) and _is_moment(other.type):
        return aligned(as_moment(one, other.type), other, "compare")
    if isinstance(other, pa.Scalar) and pa.types.is_string(other.type) and _is_moment(one.type):
        return aligned(one, as_moment(other, one.type), "compare")
    return None


def as_moment(text: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    """Read a constant of text as the date, the time or the moment that it means."""
    value = text.as_py()
    if value is None:
        return pa.scalar(None, kind)
    if pa.types.is_time(kind):
        try:
            return pa.scalar(time.fromisoformat(value.strip()), pa.time64("us"))
        except ValueError:
            raise InputError(
                f"{value[:80]!r} is not a time of day", remedy="write it as '12:00:00'", code="BadConstant"
            ) from None
    if pa.types.is_date(kind) and len(value.strip()) <= 10:
        return as_date(value)
    return as_timestamp(value)


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind))


# --- times ----------------------------------------------------------------------


def _moments(one: Operand, other: Operand) -> tuple[Operand, Operand] | None:
    kinds = (one.type, other.type)
    if all(pa.types.is_time(kind) for kind in kinds):
        return _cast(one, pa.time64("ns")), _cast(other, pa.time64("ns"))
    if not all(pa.types.is_timestamp(kind) or pa.types.is_date(kind) for kind in kinds):
        return None
    one, other = _as_timestamp(one), _as_timestamp(other)
    unit = max(one.type.unit, other.type.unit, key=_UNITS.index)
    target = pa.timestamp(unit, "UTC")
    try:
        return _cast(one, target), _cast(other, target)
    except pa.ArrowInvalid:
        # A time that has no place in the finer unit.
        return exact(one), exact(other)


def _spans(one: Operand, other: Operand) -> tuple[Operand, Operand] | None:
    if not (pa.types.is_duration(one.type) and pa.types.is_duration(other.type)):
        return None
    unit = max(one.type.unit, other.type.unit, key=_UNITS.index)
    try:
        return _cast(one, pa.duration(unit)), _cast(other, pa.duration(unit))
    except pa.ArrowInvalid:
        return _exact_span(one), _exact_span(other)


def _exact_span(side: Operand) -> Operand:
    """A span that has no place in the finer unit, in nanoseconds as a decimal."""
    step = pa.scalar(Decimal(1_000 ** (3 - _UNITS.index(side.type.unit))), pa.decimal128(14, 0))
    return pc.multiply(side.cast(pa.int64()).cast(pa.decimal128(20, 0)), step).cast(_EXACT)


def _as_timestamp(side: Operand) -> Operand:
    """Dates are their first moment, times without a zone are UTC, whatever the zone they are in."""
    kind = side.type
    if pa.types.is_date32(kind):
        return side.cast(pa.timestamp("s")).cast(pa.timestamp("s", "UTC"))
    if pa.types.is_date64(kind):
        return side.cast(pa.timestamp("ms")).cast(pa.timestamp("ms", "UTC"))
    return side.cast(pa.timestamp(kind.unit, "UTC"))


def exact(side: Operand) -> Operand:
    """Times and whole numbers as decimals, which have room for all of them."""
    if pa.types.is_decimal(side.type):
        return side
    step = step_of(side.type)
    assert step is not None
    numbers = side.cast(pa.int64()) if not pa.types.is_unsigned_integer(side.type) else side
    return pc.multiply(
        numbers.cast(pa.decimal128(20, 0)), pa.scalar(Decimal(step), pa.decimal128(14, 0))
    ).cast(_EXACT)


# --- numbers --------------------------------------------------------------------


def is_number(kind: pa.DataType) -> bool:
    """Whether values are numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def as_double(side: Operand) -> Operand:
    """The nearest double: whole numbers beyond 2^53 are rounded."""
    return side if side.type == pa.float64() else side.cast(pa.float64(), safe=False)


def _numbers(one: Operand, other: Operand) -> tuple[Operand, Operand] | None:
    kinds = (one.type, other.type)
    if not all(is_number(kind) for kind in kinds):
        return None
    if any(pa.types.is_floating(kind) for kind in kinds):
        if pa.types.is_decimal(one.type) and isinstance(other, pa.Scalar):
            return _with_decimal(one, other)
        if pa.types.is_decimal(other.type) and isinstance(one, pa.Scalar):
            return _with_decimal(other, one)[::-1]
        return as_double(one), as_double(other)
    if any(pa.types.is_decimal(kind) for kind in kinds):
        return _wide(one), _wide(other)
    if pa.types.is_uint64(one.type) or pa.types.is_uint64(other.type):
        return exact(one), exact(other)
    return _cast(one, pa.int64()), _cast(other, pa.int64())


def _with_decimal(column: Operand, constant: pa.Scalar) -> tuple[Operand, Operand]:
    """A constant such as 0.1 means the decimal it is written as, next to decimals."""
    value = constant.as_py()
    if value is None or not isfinite(value):
        return as_double(column), as_double(constant)
    written = Decimal(repr(value))
    digits = len(written.as_tuple().digits)
    scale = max(0, -int(written.as_tuple().exponent))
    if max(digits, scale) > 38 or written.adjusted() > 37:
        return as_double(column), as_double(constant)
    return _wide(column), _wide(pa.scalar(written))


def _wide(side: Operand) -> Operand:
    """A decimal with room for what it is compared with."""
    kind: Any = side.type
    if not pa.types.is_decimal(kind):
        side, kind = exact(side), _EXACT
    return side.cast(pa.decimal256(kind.precision, kind.scale))
