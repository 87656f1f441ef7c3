"""Views one after another, in the pieces of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from trueline.identity import RowId
from trueline.kernel.chunk import Chunk, Piece, concat_pieces, map_pieces
from trueline.view.execute.dispatch import pieces
from trueline.view.plan.concat import Concat
from trueline.view.plan.node import Want, once_a_walk


@pieces.register(Concat)
@once_a_walk
def _concat(node: Concat, want: Want) -> Sequence[Piece]:
    found = [pieces(view, below) for view, below in zip(node.views, node.wants(want), strict=True)]
    if want.ids:
        found = [map_pieces(each, partial(ConcatPiece, number=number)) for number, each in enumerate(found)]
    return concat_pieces(found)


@dataclass(frozen=True, eq=False)
class ConcatPiece:
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
