"""Columns of the input, chosen and named: nothing about rows changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trueline.view.plan.node import Node, OneInput, OwnSchema, Want
from trueline.view.schema import Field, Schema


@dataclass(frozen=True, eq=False)
class Select(OwnSchema, OneInput):
    """Columns of the input, by their places there, under the names they have or get."""

    places: tuple[int, ...]
    columns: Schema

    @property
    def title(self) -> str:
        shown = []
        for column, place in zip(self.columns, self.places, strict=True):
            old = self.below.schema[place].name
            shown.append(column.name if column.name == old else f"{old} as {column.name}")
        return f"columns {', '.join(shown)}"

    def wants(self, want: Want) -> tuple[Want, ...]:
        """The same columns, where the input has them."""
        columns = dict.fromkeys(self.places[index] for index in want.columns)
        bounds = {self.places[index]: each for index, each in want.bounds.items()}
        return (want.of(tuple(columns)).within(bounds),)

    def passed(self, column: int) -> tuple[int, int] | None:
        """Every column is one of the input's."""
        return 0, self.places[column]


def selected(below: Node, places: Sequence[int], names: Sequence[str] | None = None) -> Select:
    """Keep columns by their places, under the names they have or get."""
    columns = [below.schema[place] for place in places]
    given = names or [column.name for column in columns]
    fields = [
        Field(name, column.type, column.annotations, column.nullable)
        for column, name in zip(columns, given, strict=True)
    ]
    return Select(below, tuple(places), Schema(fields))
