"""A condition bound to columns: checked before a row is read, then evaluated batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import SchemaError
from trueline.view.bounds import Bounds
from trueline.view.expressions import tree as t
from trueline.view.expressions.evaluating import as_array, evaluate
from trueline.view.expressions.ruling import ruled
from trueline.view.schema import unknown_column


@dataclass(frozen=True)
class Expression:
    """What was written, what it needs, and what it rules out."""

    text: str
    tree: t.Node
    columns: tuple[str, ...]
    bounds: Bounds
    type: pa.DataType

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
    from trueline.view.expressions.parsing import parse

    tree = parse(text, parameters or {})
    columns = tuple(dict.fromkeys(t.names(tree)))
    for name in columns:
        if schema.get_field_index(name) < 0:
            raise unknown_column(name, tuple(schema.names))
    fields = pa.schema([schema.field(name) for name in columns])
    # Types do not depend on rows: what evaluates without any does so with some.
    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in fields], schema=fields)
    kind = evaluate(tree, empty).type
    return Expression(text, tree, columns, ruled(tree, fields), kind)


def condition(text: str, schema: pa.Schema, parameters: Mapping[str, object] | None = None) -> Expression:
    """Read a condition and bind it to columns: an expression that is true, false or missing.

    >>> schema = pa.schema({"x": pa.int64()})
    >>> found = condition("x > :a and x / 0 is null", schema, {"a": 1})
    >>> found.mask(pa.record_batch({"x": [1, 2, None]})).to_pylist()
    [False, True, False]
    """
    found = expression(text, schema, parameters)
    if pa.types.is_null(found.type):
        return replace(found, tree=t.Value(pa.scalar(None, pa.bool_())), type=pa.bool_())
    if not pa.types.is_boolean(found.type):
        raise SchemaError(
            f"{text:.200} is of type {found.type}, not a condition",
            remedy="compare it with something, as in x <> 0",
            code="TypeMismatch",
        )
    return found
