"""The values that the codes of categories stand for, in their places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from trueline import types as t
from trueline.errors import SchemaError
from trueline.identity import RowIds
from trueline.view.annotations import CATEGORY_VALUES, category_values
from trueline.view.plan.node import Node
from trueline.view.plan.select import Select
from trueline.view.plan.with_columns import WithColumns, computed
from trueline.view.schema import Column, Field


@dataclass(frozen=True)
class Decode:
    """The values of one category, as a kernel."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[Field, ...]
    values: tuple[object, ...]
    needs_ids: bool = False

    @property
    def text(self) -> str:
        return f"{self.name} = its values"

    def run(self, arrays: Sequence[pa.Array], rows: int, ids: RowIds | None) -> Sequence[pa.Array]:
        """Return the values, null where there is no code."""
        del rows, ids
        return [pa.array(self.values, self.outputs[0].type.arrow).take(arrays[0])]


def decoded(below: Node, columns: Sequence[Column]) -> WithColumns | Select:
    """Put the values of categories in place of their codes."""
    return computed(below, [_kernel(column) for column in columns])


def _kernel(column: Column) -> Decode:
    values = category_values(column)
    if not isinstance(column.type, t.Category) or values is None:
        what = (
            "does not say what its codes mean" if isinstance(column.type, t.Category) else "is not a category"
        )
        raise SchemaError(
            f"column {column.name!r} of type {column.type} {what}",
            remedy="decode() takes categories with annotated values; cast(x as int64) gives codes",
            code="TypeMismatch",
            column=column.name,
        )
    kind = column.annotations.found[CATEGORY_VALUES].type
    assert isinstance(kind, t.Vector)
    return Decode(column.name, (column.index,), (Field(column.name, kind.item),), values)
