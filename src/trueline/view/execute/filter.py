"""Rows for which a condition is true, in the pieces of the input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from trueline.kernel.chunk import Chunk, Piece, map_pieces
from trueline.view.execute.dispatch import pieces
from trueline.view.expressions import Expression
from trueline.view.plan.filter import Filter
from trueline.view.plan.node import Want


@pieces.register(Filter)
def _filter(node: Filter, want: Want) -> Sequence[Piece]:
    (below,) = node.wants(want)
    at = tuple(below.columns.index(column) for column in node.needed)
    made = partial(FilterPiece, where=node.where, at=at, keep=len(want.columns))
    return map_pieces(pieces(node.below, below), made)


@dataclass(frozen=True, eq=False)
class FilterPiece:
    """A piece of the input, of which some rows are kept, and the first `keep` columns."""

    below: Piece
    where: Expression
    at: tuple[int, ...]
    keep: int

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows that are kept."""
        for chunk in self.below.chunks():
            batch = pa.RecordBatch.from_arrays(
                [chunk.arrays[place] for place in self.at], names=list(self.where.columns)
            )
            if not self.at:
                batch = pa.record_batch({"": pa.nulls(chunk.rows)})
            kept = chunk.select(range(self.keep)).filter(self.where.mask(batch))
            if kept.rows:
                yield kept
