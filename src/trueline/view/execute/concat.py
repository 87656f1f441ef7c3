"""Views one after another, in the pieces of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from trueline.identity import RowId
from trueline.kernel.chunk import Chunk, Piece, RowByRowPiece, concat_pieces, map_pieces
from trueline.view.execute.dispatch import pieces, row_count, stored_columns
from trueline.view.plan.concat import Concat
from trueline.view.plan.node import Want, once_a_walk


@pieces.register(Concat)
@once_a_walk
def _concat(node: Concat, want: Want) -> Sequence[Piece]:
    found = [pieces(view, below) for view, below in zip(node.views, node.wants(want), strict=True)]
    if want.ids:
        found = [map_pieces(each, partial(ConcatPiece, number=number)) for number, each in enumerate(found)]
    return concat_pieces(found)


@stored_columns.register(Concat)
@once_a_walk
def _stored(node: Concat, columns: tuple[int, ...], rows: range) -> list[pa.ChunkedArray] | None:
    """Ask the views that have some of the rows, and no others."""
    found: list[list[pa.ChunkedArray]] = []
    first = 0
    for view, places in zip(node.views, node.places, strict=True):
        count = row_count(view)
        if count is None:
            return None
        here = range(max(rows.start - first, 0), min(rows.stop - first, count))
        if here:
            stored = stored_columns(view, tuple(places[index] for index in columns), here)
            if stored is None:
                return None
            found.append(stored)
        first += count
    kinds = [node.schema[index].type.arrow for index in columns]
    return [
        pa.chunked_array([chunk for stored in found for chunk in stored[place].chunks], kind)
        for place, kind in enumerate(kinds)
    ]


@dataclass(frozen=True, eq=False)
class ConcatPiece(RowByRowPiece):
    """A piece of the view of this number, whose ids say so."""

    number: int

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        for chunk in self.below.chunks():
            assert chunk.ids is not None
            yield Chunk(chunk.rows, chunk.arrays, chunk.ids.combine(RowId(self.number)))
