"""Whole numbers, made as they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from trueline import types as t
from trueline.errors import InputError
from trueline.identity import RowIds
from trueline.kernel.chunk import ROWS_OF_A_CHUNK, Chunk
from trueline.kernel.pieces import Piece
from trueline.view.plan.node import Node, Want
from trueline.view.schema import Field, Schema

_ROWS_OF_A_PIECE: Final = 1 << 20
_MOST_PIECES: Final = 1 << 14  # they are listed before the first row is read; made in 20 ms


@dataclass(frozen=True, eq=False)
class Numbers(Node):
    """The whole numbers from `start` on; a row's id is its number from 0 on."""

    count: int
    start: int
    name: str

    def __post_init__(self) -> None:
        for each in (self.count, self.start):
            if isinstance(each, bool) or not isinstance(each, int):
                raise InputError(f"a range of {each!r}", remedy="give whole numbers")
        if self.count < 0 or not -(1 << 63) <= self.start <= (1 << 63) - max(1, self.count):
            raise InputError(
                f"{self.count:,} numbers from {self.start:,} on", remedy="stay within 64 bits, from 0 rows on"
            )

    @cached_property
    def schema(self) -> Schema:
        """One column."""
        return Schema([Field(self.name, t.int64, nullable=False)])

    @property
    def row_count(self) -> int | None:
        """As many as were asked for."""
        return self.count

    @property
    def title(self) -> str:
        return f"numbers from {self.start:,} on: {self.count:,} rows"

    def pieces(self, want: Want) -> Sequence[Piece]:
        """Return equal parts, as many as are wanted or a million rows each, of very many rows larger ones."""
        usual = min(-(-self.count // _ROWS_OF_A_PIECE), _MOST_PIECES)
        parts = max(1, usual, min(want.parts, self.count))
        cuts = [self.count * part // parts for part in range(parts + 1)]
        return [
            NumbersPiece(self.start, first, last - first, len(want.columns), ids=want.ids)
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
