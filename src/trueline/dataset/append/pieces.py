"""Rows on their way in: ordered pieces, in memory or in scratch files, cut into slices by rank."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.store.scratch import Scratch

ROWS_OF_A_SLICE: Final = 1 << 20
ROWS_OF_A_BATCH: Final = 1 << 16
# Of large rows fewer are held together.
BYTES_OF_A_BATCH: Final = 64 << 20
# Fewer rows are looked at in this process, wherever they are: a Spark job takes longer to begin.
FEW_ROWS: Final = 1 << 16
# Unless they have more bytes than this.
FEW_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class IncomingPiece:
    """Rows in source order, typed as the dataset stores them; held in memory or in a scratch file.

    `ends` says how many rows there are up to the end of each batch of the file, `size` how many bytes.
    """

    rows: int
    table: pa.Table | None = None
    scratch: Scratch | None = None
    name: str = ""
    ends: tuple[int, ...] = ()
    size: int = 0

    @classmethod
    def of(cls, table: pa.Table) -> IncomingPiece:
        """Hold rows in memory."""
        return cls(table.num_rows, table)

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Read the rows [start, stop), some at a time."""
        if self.table is not None:
            yield self.table.slice(start, stop - start)
            return
        assert self.scratch is not None
        with self.scratch.open(self.name) as file:
            yield from rows_of_file(file, self.ends, start, stop)


def rows_of_file(file: BinaryIO, ends: Sequence[int], start: int, stop: int) -> Iterator[pa.Table]:
    """Read the rows [start, stop) of a file of batches of which it is known where each ends."""
    with pa.ipc.open_file(file) as reader:
        for number in range(bisect_right(ends, start), len(ends)):
            first = ends[number - 1] if number else 0
            if first >= stop:
                return
            batch = reader.get_batch(number)
            begin, end = max(start - first, 0), min(stop - first, batch.num_rows)
            yield pa.Table.from_batches([batch.slice(begin, end - begin)])


class BatchWriter:
    """Writes rows to a file in batches; where each ends is kept, so that a row is found by its number."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file
        self._writer = pa.ipc.new_file(file, schema)
        self._waiting: list[pa.Table] = []
        self._count, self._size = 0, 0
        self._ends: list[int] = []
        self.rows = self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Here, not whenever it is collected: closing is what sends a file to an object store.
        self._file.close()

    def write(self, rows: pa.Table) -> None:
        """Take rows; they reach the file in full batches."""
        self.rows += rows.num_rows
        self.size += rows.nbytes
        self._count += rows.num_rows
        self._size += rows.nbytes
        self._waiting.append(rows)
        while self._count >= ROWS_OF_A_BATCH or self._size > BYTES_OF_A_BATCH:
            self._flush()

    def _flush(self) -> None:
        waiting = pa.concat_tables(self._waiting)
        count, _ = rows_within(waiting.slice(0, ROWS_OF_A_BATCH), BYTES_OF_A_BATCH)
        for batch in waiting.slice(0, count).combine_chunks().to_batches():
            self._writer.write_batch(batch)
            self._ends.append(batch.num_rows + (self._ends[-1] if self._ends else 0))
        rest = waiting.slice(count)
        self._waiting, self._count, self._size = [rest], rest.num_rows, rest.nbytes

    def close(self) -> tuple[int, ...]:
        """Close the file and return where its batches end."""
        while self._count:
            self._flush()
        self._writer.close()
        self._file.close()
        return tuple(self._ends)


class PieceWriter(BatchWriter):
    """Writes a piece to scratch."""

    def __init__(self, scratch: Scratch, name: str, schema: pa.Schema) -> None:
        super().__init__(scratch.create(name), schema)
        self._scratch = scratch
        self._name = name

    def finish(self) -> IncomingPiece:
        """Close the file and return the piece."""
        return IncomingPiece(self.rows, None, self._scratch, self._name, self.close(), self.size)


@dataclass(frozen=True, slots=True)
class WriteAsGiven:
    """Writes the rows of a partition to scratch as they are."""

    scratch: Scratch
    schema: pa.Schema
    what: str = "rows"

    def __call__(self, partition: int, batches: Iterator[pa.RecordBatch]) -> IncomingPiece:
        """Write a partition; a second attempt has its own file."""
        name = f"{self.what}-{partition}-{uuid.uuid4().hex}.arrow"
        writer: PieceWriter | None = None
        for batch in batches:
            writer = writer or PieceWriter(self.scratch, name, self.schema)
            # Spark sends instants in the zone of the session.
            writer.write(pa.Table.from_batches([batch]).cast(self.schema))
        return writer.finish() if writer else IncomingPiece(0)


@dataclass(frozen=True, slots=True)
class RowRange:
    """The rows [start, stop) of a piece."""

    piece: IncomingPiece
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start


def cut(
    pieces: Sequence[IncomingPiece],
    rows_of_a_slice: int = ROWS_OF_A_SLICE,
    *,
    goes_on: Callable[[IncomingPiece, int], bool] | None = None,
) -> list[tuple[RowRange, ...]]:
    """Cut pieces into slices by rank alone: where a slice ends depends on the rows, not on the pieces.

    A row that `goes_on` says belongs with the next is not the last of a slice, which is then one row shorter.

    >>> table = pa.table({"x": range(5)})
    >>> [
    ...     [(p.start, p.stop) for p in parts]
    ...     for parts in cut([IncomingPiece.of(table), IncomingPiece.of(table)], 4)
    ... ]
    [[(0, 4)], [(4, 5), (0, 3)], [(3, 5)]]
    """
    slices: list[tuple[RowRange, ...]] = []
    parts: list[RowRange] = []
    room = rows_of_a_slice
    for piece in pieces:
        start = 0
        while start < piece.rows:
            stop = min(piece.rows, start + room)
            room -= stop - start
            if room == 0 and goes_on is not None and goes_on(piece, stop - 1):
                stop -= 1
            if stop > start:
                parts.append(RowRange(piece, start, stop))
            start = stop
            if room == 0:
                slices.append(tuple(parts))
                parts, room = [], rows_of_a_slice
    if parts:
        slices.append(tuple(parts))
    return slices


_LENGTHS: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


def rows_within(table: pa.Table, most: int) -> tuple[int, int]:
    """Return how many rows from the first on have at most so many bytes, and how many they have.

    One row is always within.

    >>> rows_within(pa.table({"n": [1, 2, 3], "text": ["a", "bb", None]}), 19)
    (2, 19)
    """
    if table.nbytes <= most:  # which is more than the values: it counts what says where they end, too
        return table.num_rows, table.nbytes
    ends = np.cumsum(sum((_sizes(column) for column in table.columns), np.zeros(table.num_rows, np.int64)))
    rows = max(1, int(np.searchsorted(ends, most, side="right")))
    return rows, int(ends[rows - 1])


def _sizes(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the bytes of each value of a column."""
    return np.concatenate([np.zeros(0, np.int64), *(_sizes_of(chunk) for chunk in column.chunks)])


def _sizes_of(array: Any) -> npt.NDArray[np.int64]:
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _sizes_of(array.storage)
    if types.is_struct(kind):
        return sum((_sizes_of(each) for each in array.flatten()), np.zeros(len(array), np.int64))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        ends = np.concatenate([[0], np.cumsum(_sizes_of(array.flatten()))])
        stops = np.cumsum(_filled(pc.list_value_length(array)))
        return np.diff(ends[stops], prepend=0)
    if any(test(kind) for test in _LENGTHS):
        return _filled(pc.binary_length(array))
    try:
        return np.full(len(array), kind.bit_width // 8, np.int64)
    except ValueError:  # nothing we store: a value counts as nothing, its rows still count
        return np.zeros(len(array), np.int64)


def _filled(lengths: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(lengths, 0), np.int64)
