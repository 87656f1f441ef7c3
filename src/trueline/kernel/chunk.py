"""Chunks: some columns of some rows in memory, and who the rows are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trueline.identity import RowIds

ROWS_OF_A_CHUNK: Final = 65_536


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows: an array for each column that was wanted, of exactly the column's Arrow type.

    Vectors alone may come in one of two encodings (`trueline.kernel.vectors`).
    With no columns there are still rows, and ids if they were wanted (view:C33).
    """

    rows: int
    arrays: tuple[pa.Array, ...]
    ids: RowIds | None = None

    def slice(self, start: int, count: int | None = None) -> Chunk:
        """Return the rows from number `start` on."""
        left = max(0, self.rows - start)
        rows = left if count is None else min(left, count)
        ids = None if self.ids is None else self.ids[start : start + rows]
        return Chunk(rows, tuple(array.slice(start, rows) for array in self.arrays), ids)

    def take(self, places: npt.NDArray[np.int64]) -> Chunk:
        """Return the rows at these places, in this order."""
        at = pa.array(places)
        ids = None if self.ids is None else RowIds(self.ids.low[places], self.ids.high[places])
        return Chunk(len(places), tuple(array.take(at) for array in self.arrays), ids)

    def filter(self, mask: npt.NDArray[np.bool_]) -> Chunk:
        """Return the rows where a mask is true."""
        kept = int(np.count_nonzero(mask))
        if kept == self.rows:
            return self
        chosen = pa.array(mask)
        ids = None if self.ids is None else RowIds(self.ids.low[mask], self.ids.high[mask])
        return Chunk(kept, tuple(array.filter(chosen) for array in self.arrays), ids)

    def select(self, places: Sequence[int], *, ids: bool = True) -> Chunk:
        """Return some of the arrays, by where they stand here."""
        return Chunk(self.rows, tuple(self.arrays[place] for place in places), self.ids if ids else None)


def joined(chunks: Sequence[Chunk], kinds: Sequence[pa.DataType], *, ids: bool) -> Chunk:
    """Return chunks one after another as one."""
    from trueline.kernel.vectors import concatenated

    arrays = tuple(
        concatenated([chunk.arrays[place] for chunk in chunks], kind) for place, kind in enumerate(kinds)
    )
    found = RowIds.concat([chunk.ids for chunk in chunks if chunk.ids is not None]) if ids else None
    return Chunk(sum(chunk.rows for chunk in chunks), arrays, found)


def together(chunks: Sequence[Chunk]) -> Chunk:
    """Return chunks of the same columns as one; there is at least one."""
    if len(chunks) == 1:
        return chunks[0]
    kinds = []
    for place in range(len(chunks[0].arrays)):
        found = dict.fromkeys(chunk.arrays[place].type for chunk in chunks)
        # Vectors alone may come in two encodings; together they are dense.
        kinds.append(next((kind for kind in found if not pa.types.is_struct(kind)), next(iter(found))))
    return joined(chunks, kinds, ids=chunks[0].ids is not None)


def bytes_of(chunk: Chunk) -> int:
    """Return how many bytes rows take in memory."""
    ids = 0 if chunk.ids is None else 16 * chunk.rows
    return ids + sum(int(array.nbytes) for array in chunk.arrays)
