"""Views one after another.

A row's id is `id.combine(RowId(i))` for the i-th view, the first included (view:C77, rule 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trueline.errors import SchemaError
from trueline.view.annotations import Annotations
from trueline.view.plan.node import IdRule, Node, OwnSchema, Want
from trueline.view.plan.same_type import are_same, check_same
from trueline.view.schema import Column, Field, Schema


@dataclass(frozen=True, eq=False)
class Concat(OwnSchema):
    """All rows of the first view, then of the second …; `places` says where each has the columns."""

    views: tuple[Node, ...]
    places: tuple[tuple[int, ...], ...]
    columns: Schema

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The views."""
        return self.views

    @property
    def id_rule(self) -> IdRule:
        """Which view a row is of is part of who it is."""
        return IdRule.CONCAT

    @property
    def title(self) -> str:
        return f"{len(self.views)} views concatenated"

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """The sum, if all are known (view:C31)."""
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def wants(self, want: Want) -> tuple[Want, ...]:
        """The same of each; what a reader rules out is ruled out of each."""
        return tuple(
            want.of([places[index] for index in want.columns]).within(
                {places[index]: each for index, each in want.bounds.items()}
            )
            for places in self.places
        )


def concatenated(views: Sequence[Node]) -> Concat:
    """Put views one after another: the same names in the same order, hidden ones too, else found by name."""
    first = views[0].schema
    if _alike_with_hidden([view.schema for view in views]):
        lines = [tuple(view.schema) for view in views]
    else:
        lines = [_by_name(view.schema, first, number) for number, view in enumerate(views)]
    fields = [_together(columns) for columns in zip(*lines, strict=True)]
    places = tuple(tuple(column.index for column in line) for line in lines)
    return Concat(tuple(views), places, Schema(fields))


def _alike_with_hidden(schemas: Sequence[Schema]) -> bool:
    """Say whether hidden columns go together too; one that was converted hides a column that does not."""
    names = [column.name for column in schemas[0]]
    if any([column.name for column in schema] != names for schema in schemas):
        return False
    hidden = [column.index for column in schemas[0] if column.is_hidden]
    return all(are_same([schema[index] for schema in schemas]) for index in hidden)


def _by_name(schema: Schema, first: Schema, number: int) -> tuple[Column, ...]:
    extra = sorted(set(schema.names) - set(first.names))
    lacking = sorted(set(first.names) - set(schema.names))
    if extra or lacking:
        wrong = f"lacks {lacking[0]!r}" if lacking else f"has {extra[0]!r}, which the first has not"
        name = (lacking or extra)[0]
        null = f"cast(null as {(first if lacking else schema)[name].type})"
        raise SchemaError(
            f"view {number + 1} of {first.names} {wrong}",
            remedy="select() the columns that all views have, "
            f"or add it to the other: with_columns({{{name!r}: {null!r}}})",
            code="UnknownColumn",
            column=name,
        )
    return tuple(schema[name] for name in first.names)


def _together(columns: Sequence[Column]) -> Field:
    first = columns[0]
    check_same(columns, [f"in view {number + 1}" for number in range(len(columns))], lossless=True)
    kept = {
        kind: each
        for kind, each in first.annotations.found.items()
        if all(column.annotations.found.get(kind) == each for column in columns)
    }
    return Field(first.name, first.type, Annotations(kept), any(column.nullable for column in columns))
