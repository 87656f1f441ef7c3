"""Columns of the input, chosen and named: nothing about rows changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trueline.view.annotations import annotated
from trueline.view.plan.node import Node, OneInput, OwnSchema, Want
from trueline.view.schema import Column, Field, Schema


@dataclass(frozen=True, eq=False)
class Select(OwnSchema, OneInput):
    """Columns of the input, by their places there, under the names they have or get."""

    places: tuple[int, ...]
    columns: Schema

    @property
    def title(self) -> str:
        shown = []
        if new := self._annotated():
            return f"with annotations of {', '.join(new)}"
        for column, place in zip(self.columns, self.places, strict=True):
            old = self.below.schema[place].name
            shown.append(column.name if column.name == old else f"{old} as {column.name}")
        return f"columns {', '.join(shown)}"

    def _annotated(self) -> list[str]:
        """The columns of which more is known, where nothing else has changed."""
        known = self.below.schema
        same = [(column.name, column.index) for column in known]
        if [(column.name, place) for column, place in zip(self.columns, self.places, strict=True)] != same:
            return []
        pairs = zip(self.columns, known, strict=True)
        return [new.name for new, old in pairs if new.annotations != old.annotations]

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


def with_annotations(below: Node, column: Column, kinds: Mapping[str, object]) -> Select:
    """Say more, or less, of a column; all else is as it was."""
    fields = below.schema.fields
    fields[column.index] = replace(column.field, annotations=annotated(column, kinds))
    return Select(below, tuple(range(len(fields))), Schema(fields))
