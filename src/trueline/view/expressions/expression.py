"""A condition bound to columns: checked before a row is read, then evaluated batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import SchemaError
from trueline.types import Type, boolean, of
from trueline.view.bounds import Bounds
from trueline.view.expressions import tree as t
from trueline.view.expressions.evaluate import evaluate
from trueline.view.expressions.opaque_types import check, kind_of
from trueline.view.expressions.operands import as_array
from trueline.view.expressions.pruning import ruled
from trueline.view.schema import unknown_column

_NOTHING: Final = pa.RecordBatch.from_arrays([], names=[])


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
        """Return its value for each row, missing where there is no answer."""
        found = as_array(evaluate(self.tree, batch), rows)
        return found if found.type == self.type else found.cast(self.type)

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Say for each row whether the condition is true; where it is missing it is not."""
        return pc.fill_null(as_array(evaluate(self.tree, batch), batch.num_rows), False)


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
    return Expression(text, bound, columns, ruled(bound, fields), kind, kind_of(bound) or of(kind))


def _bound(node: t.Expr, fields: pa.Schema) -> t.Expr:
    """Tell columns their types, and reckon out what is the same for all rows."""
    if isinstance(node, t.Name):
        return t.Name(node.name, of(fields.field(node.name)))
    parts = list(t.parts(node))
    constant = all(isinstance(part, t.Value) for part in parts) and not isinstance(node, t.Value | t.Months)
    if not constant or isinstance(node, t.In | t.Like) or kind_of(node) is not None:
        return node
    return t.Value(evaluate(node, _NOTHING))


def condition(text: str, schema: pa.Schema, parameters: Mapping[str, object] | None = None) -> Expression:
    """Read a condition and bind it to columns: an expression that is true, false or missing.

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
