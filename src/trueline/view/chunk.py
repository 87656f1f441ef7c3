"""What passes between the parts of a view: some columns of some rows, and who the rows are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trueline.identity import RowIds
from trueline.view.bounds import Interval

ROWS_OF_A_CHUNK: Final = 65_536


@dataclass(frozen=True, slots=True)
class Want:
    """What is asked of a node: columns by their places in its schema, each once, in the order wanted.

    `bounds` are hints, by column: rows outside of them will not be missed, so
    whoever counts or orders rows must not hand them on. `parts` is how many
    pieces a reader would like to have, 0 for no opinion (view:C60).
    """

    columns: tuple[int, ...]
    ids: bool = False
    bounds: Mapping[int, Interval] = field(default_factory=dict)
    parts: int = 0

    def __hash__(self) -> int:
        return hash((self.columns, self.ids, self.parts))

    def of(self, columns: Sequence[int], *, ids: bool | None = None) -> Want:
        """Return it for other columns, with no bounds."""
        return Want(tuple(columns), self.ids if ids is None else ids, {}, self.parts)

    def within(self, bounds: Mapping[int, Interval]) -> Want:
        """Return it with bounds added to those there are."""
        both = {key: self.bounds.get(key, Interval()) & each for key, each in bounds.items()}
        return replace(self, bounds={**self.bounds, **both})


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows: an array for each column that was wanted, of exactly the column's Arrow type.

    Vectors alone may come in one of two encodings (`trueline.view.vectors`).
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
    from trueline.view.vectors import concatenated

    arrays = tuple(
        concatenated([chunk.arrays[place] for chunk in chunks], kind) for place, kind in enumerate(kinds)
    )
    found = RowIds.concat([chunk.ids for chunk in chunks if chunk.ids is not None]) if ids else None
    return Chunk(sum(chunk.rows for chunk in chunks), arrays, found)
