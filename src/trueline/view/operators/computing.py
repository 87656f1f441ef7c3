"""Columns computed by expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from trueline import types as t
from trueline.identity import RowIds
from trueline.view.expressions import Expression, expression
from trueline.view.operators.columns import Columns, Copied, Kernel, computed
from trueline.view.operators.parameters import named_in
from trueline.view.plan.node import Node
from trueline.view.schema import Field


@dataclass(frozen=True)
class Compute:
    """One expression, as a kernel."""

    name: str
    expression: Expression
    inputs: tuple[int, ...]
    outputs: tuple[Field, ...]
    needs_ids: bool = False

    @property
    def text(self) -> str:
        return f"{self.name} = {self.expression.text}"

    def run(self, arrays: Sequence[pa.Array], rows: int, ids: RowIds | None) -> Sequence[pa.Array]:
        """Return the values; where there is no answer they are missing (decision 5)."""
        del ids
        names = list(self.expression.columns)
        batch = pa.RecordBatch.from_arrays(list(arrays), names=names)
        found = self.expression.values(batch, rows)
        target = self.outputs[0].type.arrow
        return [found if found.type == target else found.cast(target)]


def with_columns(below: Node, columns: Mapping[str, str], parameters: Mapping[str, object]) -> Columns:
    """Add columns computed from those there are; a column that is just another one *is* that one.

    Either way it is a new column, and has no annotations (view:C23).
    """
    new: list[Kernel | Copied] = []
    for name, text in columns.items():
        used = {each: parameters[each] for each in named_in(text) if each in parameters}
        found = expression(text, below.schema.to_arrow(), used)
        if found.column is not None:
            old = below.schema[found.column]
            new.append(Copied(Field(name, old.type, nullable=old.nullable), old.index))
            continue
        inputs = tuple(below.schema[column].index for column in found.columns)
        new.append(Compute(name, found, inputs, (Field(name, found.kind),)))
    return computed(below, new)


@dataclass(frozen=True)
class Identify:
    """The row id as a column (view:C80)."""

    name: str
    inputs: tuple[int, ...] = ()
    needs_ids: bool = True

    @property
    def outputs(self) -> tuple[Field, ...]:
        return (Field(self.name, t.rowid, nullable=False),)

    @property
    def text(self) -> str:
        return f"{self.name} = row id"

    def run(self, arrays: Sequence[pa.Array], rows: int, ids: RowIds | None) -> Sequence[pa.Array]:
        """Return the ids."""
        assert ids is not None
        return [ids.to_arrow()]
