"""Evaluating an expression over a batch with Arrow's kernels: null on error, never an exception for a row."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import SchemaError
from trueline.view.expressions import tree as t
from trueline.view.expressions.aligning import Side, aligned, as_double, is_number, not_comparable, plain

_KERNELS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_CHECKED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_LONGER: Final[dict[str, Callable[[Any, Any], Any]]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_INT64: Final = (Decimal(-(1 << 63)), Decimal((1 << 63) - 1))


def evaluate(node: t.Node, batch: pa.RecordBatch) -> Side:
    """Return the values of an expression: an array, or one value for all rows."""
    match node:
        case t.Name(name):
            return batch.column(batch.schema.get_field_index(name))
        case t.Value(scalar):
            return scalar
        case t.Compare(op, left, right):
            return _compare(op, evaluate(left, batch), evaluate(right, batch))
        case t.Distinct(left, right, negated):
            return _distinct(evaluate(left, batch), evaluate(right, batch), negated)
        case t.Both(left, right):
            return pc.and_kleene(_truth(evaluate(left, batch)), _truth(evaluate(right, batch)))
        case t.Either(left, right):
            return pc.or_kleene(_truth(evaluate(left, batch)), _truth(evaluate(right, batch)))
        case t.Not(of):
            return pc.invert(_truth(evaluate(of, batch)))
        case t.IsNull(of):
            return pc.is_null(evaluate(of, batch))
        case t.IsTruth(of, truth):
            return pc.fill_null(pc.equal(_truth(evaluate(of, batch)), truth), False)
        case t.Among(of, values):
            return _among(evaluate(of, batch), [value.scalar for value in values])
        case t.Like(of, pattern, ignore_case):
            return _like(evaluate(of, batch), pattern.scalar, ignore_case)
        case t.Reckon(op, left, right):
            return _reckon(op, evaluate(left, batch), evaluate(right, batch))
        case t.Negate(of):
            return _reckon("-", pa.scalar(0, pa.int64()), evaluate(of, batch))


def _truth(side: Side) -> Side:
    if pa.types.is_null(side.type):
        return side.cast(pa.bool_())
    if not pa.types.is_boolean(side.type):
        raise SchemaError(
            f"a condition is of type {side.type}, not boolean",
            remedy="compare it with something, as in x <> 0",
            code="TypeMismatch",
        )
    return side


def _compare(op: str, left: Side, right: Side) -> Side:
    one, other = aligned(left, right, "compare")
    if pa.types.is_null(one.type):
        return pc.equal(one.cast(pa.bool_()), other.cast(pa.bool_()))
    try:
        return _KERNELS[op](one, other)
    except pa.ArrowNotImplementedError:
        raise not_comparable(left, right, "compare") from None


def _distinct(left: Side, right: Side, negated: bool) -> Side:
    same = pc.fill_null(_compare("=", left, right), False)
    neither = pc.and_(pc.is_null(left), pc.is_null(right))
    found = pc.or_(same, neither)
    return found if negated else pc.invert(found)


def _among(of: Side, values: list[pa.Scalar]) -> Side:
    """One of the values; missing if none is and one of them is missing."""
    of = plain(of)
    # Nothing is in an empty list, not even what is missing.
    found: list[Side] = [pc.and_(pc.is_null(of), False)]
    alike: list[pa.Scalar] = []
    for value in values:
        one, other = aligned(of, value, "compare")
        # Arrow's set holds NaN equal to NaN, so numbers with a fraction are compared one by one.
        if one.type == of.type and other.is_valid and not pa.types.is_floating(one.type):
            alike.append(other)
        else:
            found.append(_compare("=", of, value))
    if alike:
        listed = pa.array([value.as_py() for value in alike], alike[0].type)
        inside = pc.is_in(of, value_set=listed)
        found.append(pc.if_else(pc.is_null(of), pa.scalar(None, pa.bool_()), inside))
    return reduce(pc.or_kleene, found)


def _like(of: Side, pattern: pa.Scalar, ignore_case: bool) -> Side:
    of = plain(of)
    if pa.types.is_null(of.type):
        of = of.cast(pa.string())
    if not pa.types.is_string(of.type):
        raise SchemaError(
            f"like needs text, not {of.type}", remedy="compare with = or between", code="TypeMismatch"
        )
    if not pattern.is_valid:
        return pc.equal(of, pattern)
    return pc.match_like(of, pattern.as_py(), ignore_case=ignore_case)


# --- arithmetic -------------------------------------------------------------------


def _reckon(op: str, left: Side, right: Side) -> Side:
    one, other = plain(left), plain(right)
    kinds = [side.type for side in (one, other)]
    if any(not is_number(kind) and not pa.types.is_null(kind) for kind in kinds):
        raise not_comparable(left, right, f"reckon ({op}) with")
    if all(pa.types.is_null(kind) for kind in kinds):
        return pc.add(one.cast(pa.int64()), other.cast(pa.int64()))
    if all(pa.types.is_integer(kind) for kind in kinds) and pa.uint64() in kinds:
        one, other = (side.cast(pa.decimal256(20, 0)) for side in (one, other))
    one, other = aligned(one, other, f"reckon ({op}) with")
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


def _overflowing(op: str, one: Side, other: Side) -> Side:
    """Numbers some of whose results have no place in 64 bits: those are missing."""
    wide = pa.decimal256(20, 0)
    found = _LONGER[op](one.cast(wide), other.cast(wide))
    fits = pc.and_(pc.greater_equal(found, _INT64[0]), pc.less_equal(found, _INT64[1]))
    return pc.if_else(fits, found, pa.scalar(None, found.type)).cast(pa.int64())


def _decimals(op: str, one: Side, other: Side) -> Side:
    try:
        return _LONGER[op](one, other)
    except pa.ArrowException as error:
        raise SchemaError(
            f"decimals of types {one.type} and {other.type} cannot be reckoned with ({op}): {error}",
            remedy="use decimals of fewer digits",
            code="TypeMismatch",
        ) from None


def _divided(op: str, one: Side, other: Side) -> Side:
    """Division gives doubles, the remainder has the sign of the first; by zero both are missing."""
    whole = op == "%" and not any(
        pa.types.is_floating(side.type) or pa.types.is_decimal(side.type) for side in (one, other)
    )
    kind = pa.int64() if whole else pa.float64()
    one, other = one.cast(kind, safe=whole), other.cast(kind, safe=whole)
    other = pc.if_else(pc.equal(other, pa.scalar(0, kind)), pa.scalar(None, kind), other)
    if op == "/":
        return pc.divide(one, other)
    if isinstance(one, pa.Scalar) and isinstance(other, pa.Scalar):
        return _remainder(pa.array([one.as_py()], kind), pa.array([other.as_py()], kind))[0]
    size = len(one) if isinstance(one, pa.Array) else len(other)
    return _remainder(as_array(one, size), as_array(other, size))


def _remainder(one: pa.Array, other: pa.Array) -> pa.Array:
    missing = pc.or_(pc.is_null(one), pc.is_null(other)).to_numpy(zero_copy_only=False)
    # By 1 where it does not matter: what stands under a missing value may be zero.
    below = pc.fill_null(other, 1).to_numpy(zero_copy_only=False)
    with np.errstate(all="ignore"):
        found = np.fmod(pc.fill_null(one, 0).to_numpy(zero_copy_only=False), below)
    return pa.array(found, one.type, mask=missing)


def as_array(side: Side, rows: int) -> pa.Array:
    """Return a value for each row."""
    if isinstance(side, pa.ChunkedArray):
        return side.combine_chunks()
    if isinstance(side, pa.Array):
        return side
    return pa.array([side.as_py()] * rows, side.type) if not side.is_valid else pa.repeat(side, rows)
