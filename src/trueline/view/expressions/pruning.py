"""Finding in a condition what it rules out by ranges of single columns."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from math import ceil, floor
from typing import Any, Final

import pyarrow as pa

from trueline.errors import TruelineError
from trueline.view.bounds import NO_BOUNDS, Bounds, Interval, both, step_of
from trueline.view.expressions import tree as t
from trueline.view.expressions.operands import aligned

_EXACT_DOUBLES: Final = 1 << 53
_TURNED: Mapping[str, str] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def ruled(node: t.Expr, schema: pa.Schema) -> Bounds:
    """Return the ranges outside of which a condition cannot be true."""
    match node:
        case t.And(left, right):
            return both(ruled(left, schema), ruled(right, schema))
        case t.Compare(op, t.Name(name), t.Value(scalar)) if op in _TURNED:
            return _range(name, op, scalar, schema)
        case t.Compare(op, t.Value(scalar), t.Name(name)) if op in _TURNED:
            return _range(name, _TURNED[op], scalar, schema)
        case t.In(t.Name(name), values) if values:
            found = [_range(name, "=", value.scalar, schema).get(name) for value in values]
            known = [each for each in found if each is not None and each.low is not None]
            if len(known) == len(values):
                lows, highs = [each.low for each in known], [each.high for each in known]
                return {
                    name: Interval(
                        min(x for x in lows if x is not None), max(x for x in highs if x is not None)
                    )
                }
    return NO_BOUNDS


def _range(name: str, op: str, scalar: pa.Scalar, schema: pa.Schema) -> Bounds:
    kind = schema.field(name).type
    if step_of(kind) is None or not scalar.is_valid:
        return NO_BOUNDS
    try:
        value = _number(kind, scalar)
    except (TruelineError, pa.ArrowException, OverflowError, ValueError):
        return NO_BOUNDS
    match op:
        case "=":
            return {name: Interval(ceil(value), floor(value))}
        case "<" | "<=":
            return {name: Interval(high=ceil(value) - 1 if op == "<" else floor(value))}
    return {name: Interval(low=floor(value) + 1 if op == ">" else ceil(value))}


def _number(kind: pa.DataType, scalar: pa.Scalar) -> int | float | Decimal:
    """Return a constant in the units of bounds."""
    _, side = aligned(pa.scalar(None, kind), scalar, "compare")
    if pa.types.is_null(side.type) or not side.is_valid:
        raise ValueError("no constant")
    value: Any = side.as_py()
    if pa.types.is_floating(side.type):
        # Beyond, a whole number is rounded before it is compared.
        if not abs(value) < _EXACT_DOUBLES:
            raise ValueError("too large")
        return float(value)
    if pa.types.is_decimal(side.type):
        return Decimal(value)
    step = step_of(side.type)
    if step is None:
        raise ValueError("no bounds")
    number = side.cast(pa.int32()) if pa.types.is_date32(side.type) else side.cast(pa.int64())
    return int(number.as_py()) * step
