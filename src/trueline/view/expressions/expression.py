"""A condition bound to columns: checked before a row is read, then evaluated batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from math import ceil, floor
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import SchemaError, TruelineError
from trueline.types import Type, boolean, of
from trueline.view.bounds import NO_BOUNDS, Bounds, Interval, both, step_of
from trueline.view.expressions import tree as t
from trueline.view.expressions.evaluate import evaluate
from trueline.view.expressions.operands import aligned, as_array
from trueline.view.expressions.tree import check, kind_of
from trueline.view.schema import unknown_column

_NOTHING: Final = pa.RecordBatch.from_arrays([], names=[])
_EXACT_DOUBLES: Final = 1 << 53
_TURNED: Final[Mapping[str, str]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


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
