"""Evaluating an expression over a batch with Arrow's kernels: null on error, never an exception for a row."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import SchemaError
from trueline.kernel.vectors import dense
from trueline.types import Type, Vector
from trueline.view.converting import convert
from trueline.view.expressions import tree as t
from trueline.view.expressions.functions.conditional import case, logical
from trueline.view.expressions.functions.numeric import arithmetic
from trueline.view.expressions.functions.registry import TAKES_SPARSE, call
from trueline.view.expressions.functions.temporal import is_temporal, months_later, time_arithmetic
from trueline.view.expressions.operands import Operand, aligned, not_comparable, over, plain
from trueline.view.expressions.tree import kind_of
from trueline.view.source_cells import entered

_KERNELS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def evaluate(node: t.Expr, batch: pa.RecordBatch) -> Operand:
    """Return the values of an expression: an array, or one value for all rows."""
    match node:
        case t.Name(name, kind):
            found = batch.column(batch.schema.get_field_index(name))
            return dense(found, kind) if isinstance(kind, Vector) else found
        case t.Value(scalar):
            return scalar
        case t.Arithmetic() | t.Negate() | t.Months():
            return _arithmetic(node, batch)
        case t.Cast(of, kind):
            return _cast(of, kind, batch)
        case t.Case(conditions, values):
            truths = [_truth(evaluate(each, batch)) for each in conditions]
            return case(truths, [evaluate(each, batch) for each in values])
        case t.Call(name, arguments):
            take = _as_it_is if name in TAKES_SPARSE else evaluate
            return call(name, [take(each, batch) for each in arguments])
    return _condition(node, batch)


def _condition(node: t.Condition, batch: pa.RecordBatch) -> Operand:
    match node:
        case t.Compare(op, left, right):
            return compare(op, evaluate(left, batch), evaluate(right, batch))
        case t.Distinct(left, right, negated):
            return _distinct(evaluate(left, batch), evaluate(right, batch), negated)
        case t.And(left, right):
            return pc.and_kleene(_truth(evaluate(left, batch)), _truth(evaluate(right, batch)))
        case t.Or(left, right):
            return pc.or_kleene(_truth(evaluate(left, batch)), _truth(evaluate(right, batch)))
        case t.Not(of):
            return pc.invert(_truth(evaluate(of, batch)))
        case t.IsNull(of):
            return pc.is_null(_as_it_is(of, batch))
        case t.IsTruth(of, truth):
            return pc.fill_null(pc.equal(_truth(evaluate(of, batch)), truth), False)
        case t.In(of, values):
            return _among(evaluate(of, batch), [value.scalar for value in values])
        case t.Like(of, pattern, ignore_case):
            return _like(evaluate(of, batch), pattern.scalar, ignore_case)


def _arithmetic(node: t.Arithmetic | t.Negate | t.Months, batch: pa.RecordBatch) -> Operand:
    match node:
        case t.Arithmetic(op, left, t.Months(months)):
            return months_later(op, evaluate(left, batch), months)
        case t.Arithmetic(op, left, right):
            one, other = evaluate(left, batch), evaluate(right, batch)
            return (time_arithmetic if is_temporal(one) or is_temporal(other) else arithmetic)(op, one, other)
        case t.Negate(of):
            return arithmetic("-", pa.scalar(0, pa.int64()), evaluate(of, batch))
    raise SchemaError(
        "an interval of months is not added to a date",
        remedy="add it to a date: day + interval 1 month",
        code="TypeMismatch",
    )


def _as_it_is(node: t.Expr, batch: pa.RecordBatch) -> Operand:
    """A column in the encoding it came in: functions of vectors take both."""
    if isinstance(node, t.Name):
        return batch.column(batch.schema.get_field_index(node.name))
    return evaluate(node, batch)


def _cast(of: t.Expr, kind: Type, batch: pa.RecordBatch) -> Operand:
    side = _as_it_is(of, batch)
    # A column says itself what it is, also where it is stored sparse.
    known = of.kind if isinstance(of, t.Name) else kind_of(of)
    source = known or logical(plain(side))
    return over([side], lambda array: convert(entered(array, source), source, kind))


def _truth(side: Operand) -> Operand:
    if pa.types.is_null(side.type):
        return side.cast(pa.bool_())
    if not pa.types.is_boolean(side.type):
        raise SchemaError(
            f"a condition is of type {side.type}, not boolean",
            remedy="compare it with something, as in x <> 0",
            code="TypeMismatch",
        )
    return side


def compare(op: str, left: Operand, right: Operand) -> Operand:
    """Compare two sides; null where one is."""
    one, other = aligned(left, right, "compare")
    if pa.types.is_null(one.type):
        return pc.equal(one.cast(pa.bool_()), other.cast(pa.bool_()))
    try:
        return _KERNELS[op](one, other)
    except pa.ArrowNotImplementedError:
        raise not_comparable(left, right, "compare") from None


def _distinct(left: Operand, right: Operand, negated: bool) -> Operand:
    same = pc.fill_null(compare("=", left, right), False)
    neither = pc.and_(pc.is_null(left), pc.is_null(right))
    found = pc.or_(same, neither)
    return found if negated else pc.invert(found)


def _among(of: Operand, values: list[pa.Scalar]) -> Operand:
    """One of the values; null if none is and one of them is null."""
    of = plain(of)
    # Nothing is in an empty list, not even null.
    found: list[Operand] = [pc.and_(pc.is_null(of), False)]
    alike: list[pa.Scalar] = []
    for value in values:
        one, other = aligned(of, value, "compare")
        # Arrow's set holds NaN equal to NaN, so numbers with a fraction are compared one by one.
        if one.type == of.type and other.is_valid and not pa.types.is_floating(one.type):
            alike.append(other)
        else:
            found.append(compare("=", of, value))
    if alike:
        listed = pa.array([value.as_py() for value in alike], alike[0].type)
        inside = pc.is_in(of, value_set=listed)
        found.append(pc.if_else(pc.is_null(of), pa.scalar(None, pa.bool_()), inside))
    return reduce(pc.or_kleene, found)


def _like(of: Operand, pattern: pa.Scalar, ignore_case: bool) -> Operand:
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
