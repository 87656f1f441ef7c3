"""A row for each value of a vector.

The ids of the rows that one row becomes are `id.fork()`, that one's `next()`, and so on (view:C77, rule 4);
with `outer` a row without values stays, as `id.fork()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trueline import types as t
from trueline.errors import SchemaError
from trueline.view.annotations import CATEGORY_VALUES, Annotations
from trueline.view.plan.node import IdRule, Node, OneInput, OwnSchema, Want
from trueline.view.schema import Field, Schema


@dataclass(frozen=True, eq=False)
class Explode(OwnSchema, OneInput):
    """The rows of the input, repeated; the vector's place is taken by its values."""

    column: int
    outer: bool
    columns: Schema

    @property
    def id_rule(self) -> IdRule:
        """Each value of a row is a row."""
        return IdRule.FORK

    @property
    def title(self) -> str:
        rest = ", rows without values kept" if self.outer else ""
        return f"a row for each value of {self.below.schema[self.column].name}{rest}"

    @property
    def vector(self) -> t.Vector:
        """The type of the vectors."""
        found = self.below.schema[self.column].type
        assert isinstance(found, t.Vector)
        return found

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """The input's times the size of the vectors, if that is fixed and none is null (view:C31)."""
        total = counts[0]
        is_fixed = self.vector.size and not self.below.schema[self.column].nullable
        return total * self.vector.size if total is not None and is_fixed else None

    def wants(self, want: Want) -> tuple[Want, ...]:
        """What is wanted, and how many values each row has."""
        columns = dict.fromkeys((*want.columns, self.column))
        bounds = {index: each for index, each in want.bounds.items() if index != self.column}
        return (want.of(tuple(columns)).within(bounds),)

    def passed(self, column: int) -> tuple[int, int] | None:
        """Every other column is the input's."""
        return None if column == self.column else (0, column)


def exploded(below: Node, name: str, *, outer: bool) -> Explode:
    """Give each value of a vector a row of its own; what is known of categories stays known."""
    column = below.schema.find(name)
    if not isinstance(column.type, t.Vector):
        raise SchemaError(
            f"column {column.name!r} is of type {column.type}, not a vector",
            remedy="explode a column of vectors",
            code="TypeMismatch",
            column=column.name,
            found=str(column.type),
        )
    known = {kind: each for kind, each in column.annotations.found.items() if kind == CATEGORY_VALUES}
    fields = below.schema.fields
    fields[column.index] = Field(column.name, column.type.item, Annotations(known))
    return Explode(below, column.index, outer, Schema(fields))
