"""Rows on their way in: ordered pieces, in memory or in scratch files, cut into slices by rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from trueline.chain.scratch import Scratch

ROWS_OF_A_SLICE: Final = 1 << 20
ROWS_OF_A_BATCH: Final = 1 << 16
# Fewer rows are looked at in this process, wherever they lie: a Spark job takes longer to begin.
FEW_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows in source order, typed as the dataset stores them; held in memory or in a scratch file."""

    rows: int
    table: pa.Table | None = None
    scratch: Scratch | None = None
    name: str = ""

    @classmethod
    def of(cls, table: pa.Table) -> Piece:
        """Hold rows in memory."""
        return cls(table.num_rows, table)

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Read the rows [start, stop), some at a time."""
        if self.table is not None:
            yield self.table.slice(start, stop - start)
            return
        assert self.scratch is not None
        with self.scratch.open(self.name) as file, pa.ipc.open_file(file) as reader:
            for number in range(start // ROWS_OF_A_BATCH, -(-stop // ROWS_OF_A_BATCH)):
                first = number * ROWS_OF_A_BATCH
                batch = reader.get_batch(number)
                begin, end = max(start - first, 0), min(stop - first, batch.num_rows)
                yield pa.Table.from_batches([batch.slice(begin, end - begin)])


class PieceWriter:
    """Writes a piece to scratch in batches of equal size, so that a row is found by its number."""

    def __init__(self, scratch: Scratch, name: str, schema: pa.Schema) -> None:
        self._scratch = scratch
        self._name = name
        self._schema = schema
        self._file = scratch.create(name)
        self._writer = pa.ipc.new_file(self._file, schema)
        self._waiting: list[pa.Table] = []
        self._count = 0
        self.rows = 0

    def write(self, rows: pa.Table) -> None:
        """Take rows; they reach the file in full batches."""
        self.rows += rows.num_rows
        self._count += rows.num_rows
        self._waiting.append(rows)
        while self._count >= ROWS_OF_A_BATCH:
            self._flush(ROWS_OF_A_BATCH)

    def _flush(self, count: int) -> None:
        table = pa.concat_tables(self._waiting).combine_chunks()
        for batch in table.slice(0, count).to_batches():
            self._writer.write_batch(batch)
        rest = table.slice(count)
        self._waiting, self._count = [rest], rest.num_rows

    def finish(self) -> Piece:
        """Close the file and return the piece."""
        if self._count:
            self._flush(self._count)
        self._writer.close()
        self._file.close()
        return Piece(self.rows, None, self._scratch, self._name)


@dataclass(frozen=True, slots=True)
class Part:
    """The rows [start, stop) of a piece."""

    piece: Piece
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start


def cut(pieces: Sequence[Piece], rows_of_a_slice: int = ROWS_OF_A_SLICE) -> list[tuple[Part, ...]]:
    """Cut pieces into slices by rank alone: where a slice ends depends on the rows, not on the pieces.

    >>> table = pa.table({"x": range(5)})
    >>> [[(p.start, p.stop) for p in parts] for parts in cut([Piece.of(table), Piece.of(table)], 4)]
    [[(0, 4)], [(4, 5), (0, 3)], [(3, 5)]]
    """
    slices: list[tuple[Part, ...]] = []
    parts: list[Part] = []
    room = rows_of_a_slice
    for piece in pieces:
        start = 0
        while start < piece.rows:
            stop = min(piece.rows, start + room)
            parts.append(Part(piece, start, stop))
            room -= stop - start
            start = stop
            if room == 0:
                slices.append(tuple(parts))
                parts, room = [], rows_of_a_slice
    if parts:
        slices.append(tuple(parts))
    return slices
