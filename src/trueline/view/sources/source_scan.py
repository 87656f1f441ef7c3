"""The rows of a source from another room: a dataset at a commit, a frozen Spark frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa

from trueline import types as t
from trueline.identity import RowIds
from trueline.kernel.chunk import Chunk, Piece
from trueline.view.execute.dispatch import pieces, portable
from trueline.view.plan.node import Interval, Want
from trueline.view.plan.sources import SourceScan
from trueline.view.source import RowSource
from trueline.view.source_cells import Pass, as_types, tally_of


@portable.register(SourceScan)
def _portable(node: SourceScan) -> bool:
    """Whether the source can be divided into pieces, and does not say that they stay in this process."""
    return hasattr(node.source, "pieces") and bool(getattr(node.source, "travels", True))


@pieces.register(SourceScan)
def _source_scan(node: SourceScan, want: Want) -> Sequence[Piece]:
    """Return the pieces of the source; rows that are known by their number need those before counted."""
    source = node.source
    names = tuple(node.schema[index].name for index in want.columns)
    kinds = tuple(node.schema[index].type for index in want.columns)
    bounds = {node.schema[index].name: each for index, each in want.bounds.items()}
    ordinal = getattr(source, "ordinal", None)
    if want.ids and ordinal is None:
        bounds = {}  # rows that are known by their number cannot be left out before they are counted
    divide = getattr(source, "pieces", None)
    parts: Sequence[RowSource] | None = divide(bounds, want.parts) if divide is not None else None
    if parts is not None and not parts:
        return []
    noted = Pass(tally_of(node))
    firsts: list[int] | None = None
    if parts is not None:
        firsts = _firsts(parts) if want.ids and ordinal is None else [0] * len(parts)
    if parts is None or firsts is None:
        return [ScanPiece(source, names, kinds, bounds, ordinal, 0, want.ids, noted, 0)]
    return [
        ScanPiece(part, names, kinds, bounds, ordinal, first, want.ids, noted, number)
        for number, (part, first) in enumerate(zip(parts, firsts, strict=True))
    ]


def _firsts(parts: Sequence[RowSource]) -> list[int] | None:
    """Return the numbers of the first rows of parts, None where rows are not counted."""
    counts = [part.row_count for part in parts]
    known = [count for count in counts if count is not None]
    return list(accumulate(known, initial=0))[:-1] if len(known) == len(counts) else None


@dataclass(frozen=True, eq=False)
class ScanPiece:
    """One source, or a part of one."""

    source: RowSource
    names: tuple[str, ...]
    kinds: tuple[t.Type, ...]
    bounds: Mapping[str, Interval]
    ordinal: str | None
    first: int
    ids: bool
    noted: Pass
    number: int

    @property
    def rows(self) -> int | None:
        """What the source says, unless it may leave rows out."""
        return None if self.bounds else self.source.row_count

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order."""
        extra = [self.ordinal] if self.ids and self.ordinal and self.ordinal not in self.names else []
        number, bad = self.first, Counter[str]()
        for batch in self.source.batches([*self.names, *extra], self.bounds):
            arrays = as_types(batch.columns[: len(self.kinds)], self.kinds, self.names, bad)
            if bad:
                self.noted.note(self.number, bad)
            yield Chunk(batch.num_rows, arrays, self._ids(batch, number) if self.ids else None)
            number += batch.num_rows

    def _ids(self, batch: pa.RecordBatch, number: int) -> RowIds:
        if self.ordinal is None:
            return RowIds.range(number, batch.num_rows)
        place = self.names.index(self.ordinal) if self.ordinal in self.names else len(self.names)
        low = np.asarray(batch.column(place)).astype(np.uint64)
        return RowIds(low, np.zeros_like(low))
