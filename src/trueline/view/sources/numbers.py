"""Whole numbers, made as they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from trueline.identity import RowIds
from trueline.kernel.chunk import ROWS_OF_A_CHUNK, Chunk, Piece
from trueline.view.execute.dispatch import pieces
from trueline.view.plan.node import Want
from trueline.view.plan.sources import Numbers

_ROWS_OF_A_PIECE: Final = 1 << 20
_MOST_PIECES: Final = 1 << 14  # they are listed before the first row is read; made in 20 ms


@pieces.register(Numbers)
def _numbers(node: Numbers, want: Want) -> Sequence[Piece]:
    """Return equal parts, as many as are wanted or a million rows each, of very many rows larger ones."""
    usual = min(-(-node.count // _ROWS_OF_A_PIECE), _MOST_PIECES)
    parts = max(1, usual, min(want.parts, node.count))
    cuts = [node.count * part // parts for part in range(parts + 1)]
    return [
        NumbersPiece(node.start, first, last - first, len(want.columns), ids=want.ids)
        for first, last in pairwise(cuts)
    ]


@dataclass(frozen=True)
class NumbersPiece:
    """Some of them."""

    start: int
    first: int
    rows: int
    columns: int
    ids: bool

    def chunks(self) -> Iterator[Chunk]:
        """Yield them."""
        for done in range(0, self.rows, ROWS_OF_A_CHUNK):
            rows = min(ROWS_OF_A_CHUNK, self.rows - done)
            first = self.first + done
            arrays: tuple[pa.Array, ...] = ()
            if self.columns:
                arrays = (pa.array(np.arange(self.start + first, self.start + first + rows, dtype=np.int64)),)
            yield Chunk(rows, arrays, RowIds.range(first, rows) if self.ids else None)
