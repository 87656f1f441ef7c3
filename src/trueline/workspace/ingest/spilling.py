"""Events of a large merge, kept in scratch range by range, so that memory does not grow with the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from trueline.chain.scratch import Scratch
from trueline.workspace.ingest.pieces import Piece, PieceWriter
from trueline.workspace.merging.merged import RANK, Merged
from trueline.workspace.state.keys import KEY
from trueline.workspace.state.ordering import as_array
from trueline.workspace.state.segment import GONE, SegmentInfo
from trueline.workspace.state.state import State

Segments = Sequence[tuple[SegmentInfo, ...]]


class EventsByKey:
    """Events in the order of keys: those of a range follow those of the one before."""

    def __init__(self, scratch: Scratch, state: State, offset: str, first: int) -> None:
        self._scratch = scratch
        self._state = state
        self._offset = offset
        self._next = first
        self._writer: PieceWriter | None = None
        self._segments: list[tuple[SegmentInfo, ...]] = []
        self.ignored: Counter[str] = Counter()

    def add(self, merged: Merged) -> None:
        """Take the merge of the next range."""
        self.ignored.update(merged.ignored)
        if merged.delta is not None and merged.delta.num_rows:
            self._segments.append(self._state.write_part(merged.delta_with_offsets(self._offset, self._next)))
        if self._writer is None:
            self._writer = PieceWriter(self._scratch, "events.arrow", merged.events.schema)
        self._writer.write(merged.events)
        self._next += merged.events.num_rows

    def finish(self) -> tuple[tuple[Piece, ...], Segments]:
        """Return the events, and the segments of the state that hold what they set."""
        piece = self._writer.finish() if self._writer is not None else None
        return (piece,) if piece is not None and piece.rows else (), [part for part in self._segments if part]


class EventsBySource:
    """Events in the order of the source: of the ranges it is kept which rows count (a byte for each).

    Which offset a key got is known after the last range; until then its rank stands for it.
    """

    def __init__(self, scratch: Scratch, state: State, offset: str, first: int, rows: int) -> None:
        self._scratch = scratch
        self._state = state
        self._offset = offset
        self._first = first
        self._counts = np.zeros(rows, dtype=bool)
        self._keys: list[Piece] = []
        self.ignored: Counter[str] = Counter()

    def add(self, merged: Merged) -> None:
        """Take the merge of the next range."""
        self.ignored.update(merged.ignored)
        if merged.delta is None or not merged.delta.num_rows:
            return
        ranks = as_array(merged.events[RANK])
        self._counts[np.asarray(ranks)] = True
        table = merged.delta.select([KEY, GONE]).append_column(RANK, ranks.take(merged.set_by))
        writer = PieceWriter(self._scratch, f"keys-{len(self._keys)}.arrow", table.schema)
        writer.write(table)
        self._keys.append(writer.finish())

    def finish(self, rows: Iterable[pa.Table]) -> tuple[tuple[Piece, ...], Segments]:
        """Return the rows that count, and the segments of the state that hold their keys."""
        offsets = np.cumsum(self._counts, dtype=np.int64) + (self._first - 1)
        segments = [part for piece in self._keys if (part := self._write(piece, offsets))]
        return self._select(rows), segments

    def _write(
        self, piece: Piece, offsets: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> tuple[SegmentInfo, ...]:
        table = pa.concat_tables(piece.read(0, piece.rows))
        found = pa.array(offsets[np.asarray(as_array(table[RANK]))])
        return self._state.write_part(table.drop_columns([RANK]).append_column(self._offset, found))

    def _select(self, rows: Iterable[pa.Table]) -> tuple[Piece, ...]:
        writer: PieceWriter | None = None
        rank = 0
        for table in rows:
            if writer is None:
                writer = PieceWriter(self._scratch, "events.arrow", table.schema)
            writer.write(table.filter(pa.array(self._counts[rank : rank + table.num_rows])))
            rank += table.num_rows
        piece = writer.finish() if writer is not None else None
        return (piece,) if piece is not None and piece.rows else ()
