"""Expressions bound to columns and parameters: checked before rows are read, evaluated batch by batch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from math import ceil, floor
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import InputError, SchemaError, TruelineError
from trueline.kernel.vectors import dense
from trueline.types import Type, Vector, boolean, of
from trueline.view.converting import convert
from trueline.view.expressions import tree as t
from trueline.view.expressions.functions.conditional import case, logical
from trueline.view.expressions.functions.numeric import arithmetic
from trueline.view.expressions.functions.registry import TAKES_SPARSE, call
from trueline.view.expressions.functions.temporal import is_temporal, months_later, time_arithmetic
from trueline.view.expressions.operands import Operand, aligned, as_array, not_comparable, over, plain
from trueline.view.expressions.tree import check, kind_of
from trueline.view.plan.node import NO_BOUNDS, Bounds, Interval, both, step_of
from trueline.view.schema import unknown_column
from trueline.view.source_cells import entered

_NOTHING: Final = pa.RecordBatch.from_arrays([], names=[])
_KERNELS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_EXACT_DOUBLES: Final = 1 << 53
_TURNED: Final[Mapping[str, str]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
# What is quoted or a comment holds no parameter; `::` is none either.
_PARTS: Final = re.compile(
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|::|:([A-Za-z_]\w*)""",
    re.DOTALL,
)


@dataclass(frozen=True)
class Expression:
    """What was written, what it needs, and what it rules out."""

    text: str
    tree: t.Expr
    columns: tuple[str, ...]
    bounds: Bounds
    type: pa.DataType
    kind: Type

    @property
    def column(self) -> str | None:
        """The column it is, if it is one and nothing more."""
        return self.tree.name if isinstance(self.tree, t.Name) else None

    def values(self, batch: pa.RecordBatch, rows: int) -> pa.Array:
        """Return its value for each row, null where there is no answer."""
        found = as_array(evaluate(self.tree, batch), rows)
        return found if found.type == self.type else found.cast(self.type)

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Say for each row whether the condition is true; where it is null it is not."""
        found = as_array(evaluate(self.tree, batch), batch.num_rows)
        return pc.fill_null(found, False) if found.null_count else found


def expression(text: str, schema: pa.Schema, parameters: Mapping[str, object] | None = None) -> Expression:
    """Read an expression and bind it to columns; what cannot be evaluated fails here.

    >>> schema = pa.schema({"x": pa.int64()})
    >>> found = expression("x * :a", schema, {"a": 2})
    >>> found.values(pa.record_batch({"x": [1, None]}), 2).to_pylist(), str(found.type)
    ([2, None], 'int64')
    """
    # The parser takes 0.3 s to load, which views that compute nothing do not pay.
    from trueline.view.expressions.parse import parse

    tree = parse(text, parameters or {})
    columns = tuple(dict.fromkeys(t.names(tree)))
    for name in columns:
        if schema.get_field_index(name) < 0:
            raise unknown_column(name, tuple(schema.names))
    fields = pa.schema([schema.field(name) for name in columns])
    bound = t.rebuilt(tree, lambda node: _bound(node, fields))
    check(bound)
    # Types do not depend on rows: what evaluates without any does so with some.
    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in fields], schema=fields)
    kind = evaluate(bound, empty).type
    return Expression(text, bound, columns, pruned(bound, fields), kind, kind_of(bound) or of(kind))


def _bound(node: t.Expr, fields: pa.Schema) -> t.Expr:
    """Give columns their types, and compute what is the same for all rows."""
    if isinstance(node, t.Name):
        return t.Name(node.name, of(fields.field(node.name)))
    parts = list(t.parts(node))
    constant = all(isinstance(part, t.Value) for part in parts) and not isinstance(node, t.Value | t.Months)
    if not constant or isinstance(node, t.In | t.Like) or kind_of(node) is not None:
        return node
    return t.Value(evaluate(node, _NOTHING))


def condition(text: str, schema: pa.Schema, parameters: Mapping[str, object] | None = None) -> Expression:
    """Read a condition and bind it to columns: an expression that is true, false or null.

    >>> schema = pa.schema({"x": pa.int64()})
    >>> found = condition("x > :a and x / 0 is null", schema, {"a": 1})
    >>> found.mask(pa.record_batch({"x": [1, 2, None]})).to_pylist()
    [False, True, False]
    """
    found = expression(text, schema, parameters)
    if pa.types.is_null(found.type):
        return replace(found, tree=t.Value(pa.scalar(None, pa.bool_())), type=pa.bool_(), kind=boolean)
    if not pa.types.is_boolean(found.type):
        raise SchemaError(
            f"{text:.200} is of type {found.type}, not a condition",
            remedy="compare it with something, as in x <> 0",
            code="TypeMismatch",
        )
    return found


# --- evaluating with Arrow's kernels: null on error, never an exception for a row -------------


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


# --- pruning: what a condition rules out by ranges of single columns --------------------------


def pruned(node: t.Expr, schema: pa.Schema) -> Bounds:
    """Return the ranges outside of which a condition cannot be true."""
    match node:
        case t.And(left, right):
            return both(pruned(left, schema), pruned(right, schema))
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


# --- parameters among the keywords of one call ----------------------------------------------


def named_in(text: object) -> set[str]:
    """Return the parameters a text names.

    >>> sorted(named_in("x > :a and s = ':b' -- :c"))
    ['a']
    """
    found = _PARTS.finditer(text) if isinstance(text, str) else ()
    return {match[1] for match in found if match[1]}


def columns_and_parameters(
    texts: Mapping[str, str], keywords: Mapping[str, object]
) -> tuple[dict[str, str], dict[str, object]]:
    """Return what is to be computed, by name, and the parameters.

    A keyword that some text names as `:keyword` is a parameter, whatever its
    value; every other one is a new column, and its value has to be the text
    of an expression. A number is not: it might be a parameter misspelt.

    >>> columns_and_parameters({}, {"y": "x + :a", "a": 1})
    ({'y': 'x + :a'}, {'a': 1})
    """
    names = _parameters(texts, keywords)
    parameters = {name: value for name, value in keywords.items() if name in names}
    columns: dict[str, str] = {}
    for name, text in [*texts.items(), *((n, v) for n, v in keywords.items() if n not in names)]:
        if not isinstance(text, str):
            raise InputError(
                f"{name} is {text!r:.80}, and no expression names :{name}",
                remedy=f'if it is a parameter, write :{name} in an expression; if a column, {name}="…"',
                code="UnknownParameter",
                parameter=name,
            )
        if name in columns:
            raise InputError(f"two columns are named {name!r}", remedy="name each once", code="NamedTwice")
        columns[name] = text
    return columns, parameters


def _parameters(texts: Mapping[str, str], keywords: Mapping[str, object]) -> set[str]:
    """Find the keywords that texts of columns name; what a parameter's own text names does not count."""
    named = {name: named_in(value) & set(keywords) for name, value in keywords.items()}
    found = set().union(*(named_in(text) for text in texts.values())) & set(keywords)
    while True:
        left = [name for name in keywords if name not in found]
        columns = [name for name in left if not any(name in named[other] for other in left)]
        more = found.union(*(named[name] for name in columns))
        if more != found:
            found = more
        elif len(columns) == len(left):
            return found
        else:
            both = sorted(set(left) - set(columns))
            raise InputError(
                f"{' and '.join(both)} name each other: which is the column?",
                remedy="give the columns as a mapping, the parameters as keywords",
                code="UnknownParameter",
            )
