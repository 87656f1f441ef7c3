"""A row for each value of a vector.

The ids of the rows that one row becomes are `id.fork()`, that one's `next()`, and so on (view:C77, rule 4);
with `outer` a row without values stays, as `id.fork()`. Rows come in the pieces of the input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.errors import SchemaError
from trueline.identity import RowId, RowIds
from trueline.kernel.chunk import ROWS_OF_A_CHUNK, Chunk
from trueline.kernel.pieces import Piece, of_each
from trueline.kernel.vectors import dense
from trueline.view.annotations import CATEGORY_VALUES, Annotations
from trueline.view.plan.node import Node, Want
from trueline.view.schema import Field, Schema

# Where so few rows have values left, their ids are made one by one.
_FEW: Final = 16


@dataclass(frozen=True, eq=False)
class Exploded(Node):
    """The rows of the input, repeated; the vector's place is taken by its values."""

    below: Node
    column: int
    outer: bool
    columns: Schema

    @property
    def schema(self) -> Schema:
        """The columns of the input, one of them of single values."""
        return self.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        """One."""
        return (self.below,)

    @property
    def row_count(self) -> int | None:
        """The input's times the size of the vectors, if that is one and none is missing (view:C31)."""
        column = self.below.schema[self.column]
        assert isinstance(column.type, t.Vector)
        total = self.below.row_count
        return None if total is None or not column.type.size or column.nullable else total * column.type.size

    @property
    def title(self) -> str:
        rest = ", rows without values kept" if self.outer else ""
        return f"a row for each value of {self.below.schema[self.column].name}{rest}"

    def wants(self, want: Want) -> tuple[Want, ...]:
        """What is wanted, and how many values each row has."""
        columns = dict.fromkeys((*want.columns, self.column))
        bounds = {index: each for index, each in want.bounds.items() if index != self.column}
        return (want.of(tuple(columns)).within(bounds),)

    def passed(self, column: int) -> tuple[int, int] | None:
        """Every other column is the input's."""
        return None if column == self.column else (0, column)

    def pieces(self, want: Want) -> Sequence[Piece]:
        """Return those of the input."""
        (below,) = self.wants(want)
        kind = self.below.schema[self.column].type
        assert isinstance(kind, t.Vector)
        at = below.columns.index(self.column)
        made = partial(ExplodedPiece, at=at, keep=len(want.columns), kind=kind, outer=self.outer)
        return of_each(self.below.pieces(below), made)


@dataclass(frozen=True, eq=False)
class ExplodedPiece:
    """A piece of the input, each row as often as it has values; `at` is where the vectors are."""

    below: Piece
    at: int
    keep: int
    kind: t.Vector
    outer: bool

    @property
    def rows(self) -> int | None:
        """Only the end will tell."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        for chunk in self.below.chunks():
            vectors = dense(chunk.arrays[self.at], self.kind)
            counts = np.asarray(pc.fill_null(pc.list_value_length(vectors), 0)).astype(np.int64)
            times = np.maximum(counts, 1) if self.outer else counts
            ends = np.cumsum(times)
            start = 0
            while start < chunk.rows:
                before = int(ends[start - 1]) if start else 0
                # At least one row, and as many as make a chunk.
                stop = max(start + 1, int(np.searchsorted(ends, before + ROWS_OF_A_CHUNK, side="right")))
                part = self._part(chunk.slice(start, stop - start), counts[start:stop], times[start:stop])
                if part.rows:
                    yield part
                start = stop

    def _part(self, chunk: Chunk, counts: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> Chunk:
        rows = int(times.sum())
        source = pa.array(np.repeat(np.arange(chunk.rows), times))
        arrays = []
        for place in range(self.keep):
            if place == self.at:
                arrays.append(self._values(chunk.arrays[place], counts, times))
            else:
                arrays.append(chunk.arrays[place].take(source))
        return Chunk(rows, tuple(arrays), None if chunk.ids is None else forked(chunk.ids, times))

    def _values(
        self, vectors: pa.Array, counts: npt.NDArray[np.int64], times: npt.NDArray[np.int64]
    ) -> pa.Array:
        values = dense(vectors, self.kind).flatten()
        if np.array_equal(counts, times):
            return values
        # A row that is kept though it has no value has a missing one.
        there = np.repeat(counts > 0, times)
        at = np.cumsum(there) - 1
        return values.take(pa.array(at, mask=~there))


def forked(ids: RowIds, times: npt.NDArray[np.int64]) -> RowIds:
    """Return for each id so many: its fork, the next of that, and so on, those of one id together."""
    low, high = (np.empty(int(times.sum()), np.uint64) for _ in range(2))
    firsts = np.cumsum(times) - times
    rows = np.flatnonzero(times > 0)
    now, step = ids[rows].fork(), 0
    while len(rows) > _FEW:
        low[firsts[rows] + step], high[firsts[rows] + step] = now.low, now.high
        step += 1
        more = times[rows] > step
        rows, now = rows[more], now[more].next()
    for row, one in zip(rows.tolist(), now, strict=True):
        each: RowId = one
        for place in range(int(firsts[row]) + step, int(firsts[row] + times[row])):
            low[place], high[place] = each.low, each.high
            each = each.next()
    return RowIds(low, high)


def exploded(below: Node, name: str, *, outer: bool) -> Exploded:
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
    return Exploded(below, column.index, outer, Schema(fields))
