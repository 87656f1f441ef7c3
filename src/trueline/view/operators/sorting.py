"""Rows in another order: by columns here, by a hash of their ids in `shuffling`.

The columns are those of the input, the very same schema; ids do not change. Rows come in as many pieces
as a reader likes: each is a range of the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from trueline.errors import InputError, SchemaError
from trueline.kernel.chunk import Chunk
from trueline.kernel.exchange import Ordering, Plan
from trueline.kernel.external_sort import how_many, ordered_pieces
from trueline.kernel.pieces import Piece
from trueline.view.plan.node import Node, Want
from trueline.view.schema import Schema


@dataclass(frozen=True)
class ByColumns:
    """The values of some columns of a chunk, by where they stand there."""

    at: tuple[int, ...]
    descending: tuple[bool, ...]

    def keys(self, chunk: Chunk) -> Sequence[pa.Array]:
        """Return the columns."""
        return [chunk.arrays[place] for place in self.at]


@dataclass(frozen=True, eq=False)
class Reordered(Node):
    """All rows of the input, in another order."""

    below: Node

    @property
    def schema(self) -> Schema:
        """That of the input (view:C10)."""
        return self.below.schema

    @property
    def inputs(self) -> tuple[Node, ...]:
        """One."""
        return (self.below,)

    @property
    def row_count(self) -> int | None:
        """That of the input (view:C31)."""
        return self.below.row_count

    @property
    def portable(self) -> bool:
        """Each process would order all rows again."""
        return False

    def passed(self, column: int) -> tuple[int, int] | None:
        """Every column is the input's."""
        return 0, column

    def ordered(self, want: Want, below: Want, order: Ordering) -> Sequence[Piece]:
        """Return the rows in order."""
        plan = Plan(order, len(want.columns), want.ids)
        return ordered_pieces(self.below.pieces(below), plan, how_many(want.parts, self.row_count))


@dataclass(frozen=True, eq=False)
class Sorted(Reordered):
    """Rows by the values of columns: missing last, NaN before it, equal rows as they were."""

    by: tuple[int, ...]
    descending: tuple[bool, ...]

    @property
    def title(self) -> str:
        shown = (
            f"{self.schema[place].name}{' descending' if down else ''}"
            for place, down in zip(self.by, self.descending, strict=True)
        )
        return f"sorted by {', '.join(shown)}"

    def wants(self, want: Want) -> tuple[Want, ...]:
        """What is wanted, and what the order depends on."""
        return (want.of(tuple(dict.fromkeys((*want.columns, *self.by)))),)

    def pieces(self, want: Want) -> Sequence[Piece]:
        """Return ranges of the order."""
        (below,) = self.wants(want)
        at = tuple(below.columns.index(place) for place in self.by)
        return self.ordered(want, below, ByColumns(at, self.descending))


def sorted_by(below: Node, columns: Sequence[str], descending: bool | Sequence[bool]) -> Sorted:
    """Order rows by columns; one direction for all of them, or one for each."""
    if not columns:
        raise InputError("sort by what?", remedy="name the columns")
    found = below.schema.find_all(tuple(columns))
    for column in found:
        if not column.type.has_order:
            raise SchemaError(
                f"column {column.name!r} is of type {column.type}, which has no order",
                remedy="sort by a column of single values",
                code="TypeMismatch",
                column=column.name,
                found=str(column.type),
            )
    down = (descending,) * len(found) if isinstance(descending, bool) else tuple(descending)
    if len(down) != len(found) or not all(isinstance(each, bool) for each in down):
        raise InputError(
            f"descending={descending!r} for {len(found)} columns",
            remedy="give True or False, or one of them for each column",
        )
    return Sorted(below, tuple(column.index for column in found), down)
