"""Columns computed row by row, in the pieces of the input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from trueline.kernel.chunk import Chunk, Piece, RowByRowPiece, map_pieces
from trueline.view.execute.dispatch import pieces
from trueline.view.plan.node import Want
from trueline.view.plan.with_columns import MadeColumn, RowKernel, WithColumns


@pieces.register(WithColumns)
def _with_columns(node: WithColumns, want: Want) -> Sequence[Piece]:
    (below,) = node.wants(want)
    _, kernels = node.divided(want)
    at = {column: place for place, column in enumerate(below.columns)}
    calls = tuple(KernelCall(node.kernels[k], tuple(at[c] for c in node.kernels[k].inputs)) for k in kernels)
    order = tuple(
        at[place] if isinstance(place, int) else MadeColumn(kernels.index(place.kernel), place.output)
        for place in (node.line[index] for index in want.columns)
    )
    return with_calls(pieces(node.below, below), calls, order, given=below, want=want)


def with_calls(
    below: Sequence[Piece],
    calls: tuple[KernelCall, ...],
    order: tuple[int | MadeColumn, ...],
    *,
    given: Want,
    want: Want,
) -> Sequence[Piece]:
    """Return pieces with columns computed and put in order; as they are where there is nothing to do."""
    if not calls and order == tuple(range(len(given.columns))) and given.ids == want.ids:
        return below
    return map_pieces(below, partial(ColumnsPiece, calls=calls, order=order, ids=want.ids))


@dataclass(frozen=True)
class KernelCall:
    """A kernel, and where its inputs are in a chunk."""

    kernel: RowKernel
    at: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ColumnsPiece(RowByRowPiece):
    """A piece of the input, and what is done to its columns."""

    calls: tuple[KernelCall, ...]
    order: tuple[int | MadeColumn, ...]
    ids: bool

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order."""
        for chunk in self.below.chunks():
            made = [
                call.kernel.run([chunk.arrays[place] for place in call.at], chunk.rows, chunk.ids)
                for call in self.calls
            ]
            arrays = tuple(
                chunk.arrays[place] if isinstance(place, int) else made[place.kernel][place.output]
                for place in self.order
            )
            yield Chunk(chunk.rows, arrays, chunk.ids if self.ids else None)
