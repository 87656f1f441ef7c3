"""Rows of an increment that are too many for this process: in files of scratch that tasks write and read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from trueline.dataset.append.pieces import IncomingPiece, WriteAsGiven
from trueline.workspace.derive.strategies.increment import Delta, name_tables, run_sql

if TYPE_CHECKING:
    from trueline.chain.store.folders import Inside
    from trueline.chain.store.scratch import Scratch


_FOLLOWING: Final = "following the inputs"


class RowsInFile(Protocol):
    """Rows in their order, in a file."""

    @property
    def rows(self) -> int: ...

    @property
    def size(self) -> int: ...

    def read(self, start: int, stop: int) -> Iterator[pa.Table]: ...


@dataclass(frozen=True, slots=True)
class SpooledRows:
    """Rows that Spark has written to a file of scratch."""

    rows: int
    size: int
    place: Inside
    schema: pa.Schema

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Read the rows [start, stop), a row group at a time."""
        with self.place.open() as opened, pq.ParquetFile(opened) as file:
            first = 0
            for number in range(file.num_row_groups):
                count = file.metadata.row_group(number).num_rows
                begin, end = max(start - first, 0), min(stop - first, count)
                if begin < end:
                    yield file.read_row_group(number).slice(begin, end - begin).cast(self.schema)
                first += count


def spooled(frame: Any, scratch: Scratch, label: str) -> list[RowsInFile]:
    """Write a frame to scratch: by the JVM where that is a folder, through Python workers elsewhere."""
    from trueline.spark.frames import spool, write_pieces
    from trueline.spark.types import arrow_schema_of

    if scratch.folder is None:
        written = write_pieces(frame, WriteAsGiven(scratch, arrow_schema_of(frame.schema)), label=label)
        return [piece for piece in written if piece.rows]
    found = spool(frame, scratch.folder, label=label)
    return [SpooledRows(piece.rows, piece.size, piece.place, found.schema) for piece in found.pieces]


def read_within(pieces: Sequence[RowsInFile], schema: pa.Schema, most: int) -> pa.Table | None:
    """Read all rows here; None as soon as they have more than so many bytes."""
    # Of Parquet, which may be packed, that is known by reading only.
    if sum(piece.size for piece in pieces if isinstance(piece, IncomingPiece)) > most:
        return None
    tables, size = [schema.empty_table()], 0
    for piece in pieces:
        for table in piece.read(0, piece.rows):
            size += table.nbytes
            if size > most:
                return None
            tables.append(table)
    return pa.concat_tables(tables)


@dataclass(frozen=True, slots=True)
class SpooledParts:
    """Files whose rows are a frame again: each is read by a task."""

    pieces: tuple[RowsInFile, ...]

    def tables(self, number: int) -> Iterator[pa.Table]:
        """Yield the rows of a file."""
        piece = self.pieces[number]
        yield from piece.read(0, piece.rows)


def side_of(session: Any, text: str, rows: Mapping[str, Any], delta: Delta, scratch: Scratch) -> Any:
    """Return the frame of a query over one side of a change, by whose names the other side is read next."""
    from trueline.spark.increments import frame_of_parts, local_frame, local_table, resolves_late

    name_tables(session, rows, delta.empty)
    frame = run_sql(session, text, delta.empty)
    if len(delta.sides) < 2 or not resolves_late(session):
        return frame
    # Its names would mean the other side by the time it is used: what it gives now is kept.
    if delta.is_local:
        return local_frame(session, local_table(frame, label=_FOLLOWING), frame.schema)
    pieces = tuple(spooled(frame, scratch, _FOLLOWING))
    return frame_of_parts(session, SpooledParts(pieces), len(pieces), frame.schema, label=_FOLLOWING)
