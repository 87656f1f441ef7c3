"""Views one after another.

A row's id is `id.combine(RowId(i))` for the i-th view, the first included (view:C77, rule 5). Rows come in
the pieces of their views, in order; their number is the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from trueline.errors import SchemaError
from trueline.identity import RowId
from trueline.kernel.chunk import Chunk
from trueline.kernel.pieces import Piece, of_each, strung
from trueline.view.annotations import Annotations, category_values
from trueline.view.plan.node import Node, Want, once_a_walk
from trueline.view.schema import Column, Field, Schema


@dataclass(frozen=True, eq=False)
class Concatenated(Node):
    """All rows of the first view, then of the second …; `places` says where each has the columns."""

    views: tuple[Node, ...]
    places: tuple[tuple[int, ...], ...]
    columns: Schema

    @property
    def schema(self) -> Schema:
        """The columns of the first, as far as the others agree."""
        return self.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The views."""
        return self.views

    @property
    @once_a_walk
    def row_count(self) -> int | None:
        """The sum, if all are known (view:C31)."""
        counts = [view.row_count for view in self.views]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def title(self) -> str:
        return f"{len(self.views)} views one after another"

    def wants(self, want: Want) -> tuple[Want, ...]:
        """The same of each; what a reader rules out is ruled out of each."""
        return tuple(
            want.of([places[index] for index in want.columns]).within(
                {places[index]: each for index, each in want.bounds.items()}
            )
            for places in self.places
        )

    @once_a_walk
    def pieces(self, want: Want) -> Sequence[Piece]:
        """Return the pieces of the first, then of the second …"""
        found = [view.pieces(below) for view, below in zip(self.views, self.wants(want), strict=True)]
        if want.ids:
            found = [of_each(pieces, partial(PieceOf, number=number)) for number, pieces in enumerate(found)]
        return strung(found)


@dataclass(frozen=True, eq=False)
class PieceOf:
    """A piece of the view of this number, whose ids say so."""

    below: Piece
    number: int

    @property
    def rows(self) -> int | None:
        """Those of the piece."""
        return self.below.rows

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        for chunk in self.below.chunks():
            assert chunk.ids is not None
            yield Chunk(chunk.rows, chunk.arrays, chunk.ids.combine(RowId(self.number)))


def concatenated(views: Sequence[Node]) -> Concatenated:
    """Put views one after another: the same names in the same order, hidden ones too, else found by name."""
    first = views[0].schema
    names = [column.name for column in first]
    if all([column.name for column in view.schema] == names for view in views):
        lines = [tuple(view.schema) for view in views]
    else:
        lines = [_by_name(view.schema, first, number) for number, view in enumerate(views)]
    fields = [_together(columns) for columns in zip(*lines, strict=True)]
    places = tuple(tuple(column.index for column in line) for line in lines)
    return Concatenated(tuple(views), places, Schema(fields))


def _by_name(schema: Schema, first: Schema, number: int) -> tuple[Column, ...]:
    extra = sorted(set(schema.names) - set(first.names))
    lacking = sorted(set(first.names) - set(schema.names))
    if extra or lacking:
        wrong = f"lacks {lacking[0]!r}" if lacking else f"has {extra[0]!r}, which the first has not"
        raise SchemaError(
            f"view {number + 1} of {first.names} {wrong}",
            remedy="select() the columns that all views have, or add one: with_columns(… = 'null')",
            code="UnknownColumn",
            column=(lacking or extra)[0],
        )
    return tuple(schema[name] for name in first.names)


def _together(columns: Sequence[Column]) -> Field:
    first = columns[0]
    for number, column in enumerate(columns):
        if column.type != first.type:
            raise SchemaError(
                f"column {first.name!r} is of type {first.type} in view 1 and {column.type} in "
                f"view {number + 1}",
                remedy=f"convert one: with_columns({first.name} = 'cast({first.name} as {first.type})')",
                code="TypeMismatch",
                column=first.name,
            )
        if category_values(first) != category_values(column):
            raise SchemaError(
                f"the codes of column {first.name!r} stand for other values in view {number + 1}",
                remedy="make them categories of the same values, or text",
                code="TypeMismatch",
                column=first.name,
            )
    kept = {
        kind: each
        for kind, each in first.annotations.found.items()
        if all(column.annotations.found.get(kind) == each for column in columns)
    }
    return Field(first.name, first.type, Annotations(kept), any(column.nullable for column in columns))
