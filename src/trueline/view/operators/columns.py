"""Choosing, naming and computing columns: row to row, nothing about rows changes.

Ids, order, number of rows, shuffling and pieces are those of the input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pyarrow as pa

from trueline.identity import RowIds
from trueline.kernel.chunk import Chunk
from trueline.kernel.pieces import Piece, of_each
from trueline.view.plan.node import Node, Want
from trueline.view.schema import Field, Schema


class Kernel(Protocol):
    """A function over columns of some rows, whose result for a row depends on that row alone.

    It can be pickled, holds no state, and gives a row the same bytes whatever rows are beside it.
    """

    @property
    def inputs(self) -> tuple[int, ...]:
        """The columns of the input that it reads."""

    @property
    def outputs(self) -> tuple[Field, ...]:
        """The columns it makes."""

    @property
    def text(self) -> str:
        """What it does, for people."""

    def run(self, arrays: Sequence[pa.Array], rows: int, ids: RowIds | None) -> Sequence[pa.Array]:
        """Return the columns it makes; `ids` are there if `needs_ids`."""

    @property
    def needs_ids(self) -> bool:
        """Whether it asks who the rows are."""


@dataclass(frozen=True)
class Copied:
    """A new column that is one of the input's, by its place there."""

    field: Field
    place: int


@dataclass(frozen=True)
class Made:
    """A column that a kernel makes: which kernel, which of its outputs."""

    kernel: int
    output: int


@dataclass(frozen=True, eq=False)
class Columns(Node):
    """Columns of the input, and columns made from them; `line` says place by place which."""

    below: Node
    line: tuple[int | Made, ...]
    columns: Schema
    kernels: tuple[Kernel, ...] = ()

    @property
    def schema(self) -> Schema:
        """The columns there are now."""
        return self.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        """One."""
        return (self.below,)

    @property
    def row_count(self) -> int | None:
        """That of the input (view:C31)."""
        return self.below.row_count

    @property
    def title(self) -> str:
        made = [kernel.text for kernel in self.kernels]
        if made:
            return f"with {', '.join(made)}"
        shown = []
        for column, place in zip(self.columns, self.line, strict=True):
            assert isinstance(place, int)
            old = self.below.schema[place].name
            shown.append(column.name if column.name == old else f"{old} as {column.name}")
        return f"columns {', '.join(shown)}"

    def wants(self, want: Want) -> tuple[Want, ...]:
        """The columns passed on, and what the kernels need whose columns are wanted (view:C35)."""
        passed, kernels = self._split(want)
        needed = dict.fromkeys([*passed, *(c for k in kernels for c in self.kernels[k].inputs)])
        ids = want.ids or any(self.kernels[k].needs_ids for k in kernels)
        bounds = {
            place: each for index, each in want.bounds.items() if isinstance(place := self.line[index], int)
        }
        return (want.of(tuple(needed), ids=ids).within(bounds),)

    def _split(self, want: Want) -> tuple[list[int], list[int]]:
        places = [self.line[index] for index in want.columns]
        passed = [place for place in places if isinstance(place, int)]
        return passed, sorted({place.kernel for place in places if isinstance(place, Made)})

    def passed(self, column: int) -> tuple[int, int] | None:
        """A column that no kernel makes is one of the input's."""
        place = self.line[column]
        return (0, place) if isinstance(place, int) else None

    def pieces(self, want: Want) -> Sequence[Piece]:
        """Return those of the input, with what is done to them."""
        (below,) = self.wants(want)
        _, kernels = self._split(want)
        at = {column: place for place, column in enumerate(below.columns)}
        steps = tuple(Step(self.kernels[k], tuple(at[c] for c in self.kernels[k].inputs)) for k in kernels)
        order = tuple(
            at[place] if isinstance(place, int) else Made(kernels.index(place.kernel), place.output)
            for place in (self.line[index] for index in want.columns)
        )
        if not steps and order == tuple(range(len(below.columns))) and below.ids == want.ids:
            return self.below.pieces(below)
        return of_each(
            self.below.pieces(below), partial(ColumnsPiece, steps=steps, order=order, ids=want.ids)
        )


@dataclass(frozen=True)
class Step:
    """A kernel, and where its inputs stand in a chunk."""

    kernel: Kernel
    at: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ColumnsPiece:
    """A piece of the input, and what is done to its columns."""

    below: Piece
    steps: tuple[Step, ...]
    order: tuple[int | Made, ...]
    ids: bool

    @property
    def rows(self) -> int | None:
        """Those of the input."""
        return self.below.rows

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order."""
        for chunk in self.below.chunks():
            made = [
                step.kernel.run([chunk.arrays[place] for place in step.at], chunk.rows, chunk.ids)
                for step in self.steps
            ]
            arrays = tuple(
                chunk.arrays[place] if isinstance(place, int) else made[place.kernel][place.output]
                for place in self.order
            )
            yield Chunk(chunk.rows, arrays, chunk.ids if self.ids else None)


# --- making them ----------------------------------------------------------------------------


def chosen(below: Node, places: Sequence[int], names: Sequence[str] | None = None) -> Columns:
    """Keep columns by their places, under the names they have or get."""
    columns = [below.schema[place] for place in places]
    given = names or [column.name for column in columns]
    fields = [
        Field(name, column.type, column.annotations, column.nullable)
        for column, name in zip(columns, given, strict=True)
    ]
    return Columns(below, tuple(places), Schema(fields))


def computed(below: Node, new: Sequence[Kernel | Copied]) -> Columns:
    """Add the columns that kernels make, and copies, each where its name says (view:C8, view:C9)."""
    kernels: list[Kernel] = []
    fields: list[tuple[int | Made, Field]] = []
    for each in new:
        if isinstance(each, Copied):
            fields.append((each.place, each.field))
        else:
            fields += [(Made(len(kernels), output), field) for output, field in enumerate(each.outputs)]
            kernels.append(each)
    schema, old = below.schema.added([each for _, each in fields])
    # A new column keeps its order among those of its name; `added` places them in the order given.
    waiting: dict[str, list[int | Made]] = {}
    for made, each_field in fields:
        waiting.setdefault(each_field.name, []).append(made)
    line = tuple(
        place if place is not None else waiting[column.name].pop(0)
        for place, column in zip(old, schema, strict=True)
    )
    return Columns(below, line, schema, tuple(kernels))
