"""Taking Spark frames in: spooled once in their order, then read by the tasks that write the slices.

No row of a frame passes the driver: it gets files, counts and times only.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from trueline.chain.datatypes import DataSchema
from trueline.chain.head_state import Tail
from trueline.chain.instant import Instant
from trueline.chain.schema import fields_of
from trueline.chain.store.folders import Inside
from trueline.chain.store.scratch import Scratch
from trueline.dataset.append.incoming import Incoming, latest, newest_event, typed_for
from trueline.dataset.append.intake import fit, fit_rows
from trueline.dataset.append.new_columns import NewColumns
from trueline.dataset.append.pieces import FEW_ROWS, IncomingPiece, PieceWriter
from trueline.dataset.definition import strategy_of
from trueline.errors import EnvironmentMissing
from trueline.kernel.tasks import InlineTasks, Tasks
from trueline.merge import Changelog, Upsert
from trueline.view.plan.on_spark import OnSpark

if TYPE_CHECKING:
    from trueline.view.plan.on_spark import OnSpark


@dataclass(frozen=True, slots=True)
class SpooledPiece:
    """A Parquet file of a spooled frame; its rows are typed for the dataset as they are read."""

    rows: int
    place: Inside
    schema: pa.Schema
    tail: Tail
    with_op: bool = False
    new: NewColumns = "error"
    size: int = 0

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Read the rows [start, stop), a row group at a time."""
        with self.place.open() as opened, pq.ParquetFile(opened) as file:
            first = 0
            for number in range(file.num_row_groups):
                count = file.metadata.row_group(number).num_rows
                begin, end = max(start - first, 0), min(stop - first, count)
                if begin < end:
                    rows = file.read_row_group(number).slice(begin, end - begin)
                    fitted = fit_rows(rows.cast(self.schema), self.tail, with_op=self.with_op, new=self.new)
                    yield fitted.table
                first += count


@dataclass(frozen=True, slots=True)
class EventTimes:
    """The latest event time of a piece, and how many had more than milliseconds."""

    newest: Instant | None
    rounded: int


def look_at_times(piece: SpooledPiece) -> EventTimes:
    """Read the event times of a piece, and no other column."""
    name = piece.tail.vocab.event_time
    newest, rounded = None, 0
    times = piece.schema.field(name)
    with piece.place.open() as opened, pq.ParquetFile(opened) as file:
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number, columns=[name]).cast(pa.schema([times]))
            fitted = fit(rows, _times_only(piece.tail))
            newest, rounded = latest([newest, newest_event(fitted)]), rounded + fitted.rounded
    return EventTimes(newest, rounded)


def _times_only(tail: Tail) -> Tail:
    """Return a tail of a dataset that has the event time and nothing else."""
    assert tail.schema is not None
    kept = tuple(field for field in fields_of(tail.schema) if field.name in tail.vocab.names)
    return tail._replace(schema=type(tail.schema)(schema=DataSchema(kept)))


def take_frame(
    frame: Any,
    tail: Tail,
    scratch: Scratch,
    tasks: Tasks,
    new: NewColumns = "error",
    *,
    with_op: bool | None = None,
) -> Incoming:
    """Spool a frame into scratch: by the JVM where that is a folder, through Python workers elsewhere.

    `with_op` says whether operations go along, if not the strategy of the dataset.
    """
    from trueline.spark.frames import spool, write_pieces
    from trueline.spark.types import arrow_schema_of

    schema = arrow_schema_of(frame.schema)
    typed, with_op, ignored = typed_frame(schema, tail, new, with_op)
    if scratch.folder is None:
        written = write_pieces(frame, WritePartition(scratch, schema, typed, with_op, new))
        pieces: tuple[Any, ...] = tuple(piece for piece, _ in written if piece.rows)
        times = [seen for _, seen in written]
    else:
        spooled = spool(frame, scratch.folder)
        pieces = tuple(
            SpooledPiece(piece.rows, piece.place, spooled.schema, typed, with_op, new, piece.size)
            for piece in spooled.pieces
        )
        # Without such a column there is nothing to look for, and a job for each partition is not free.
        timed = pieces if typed.vocab.event_time in schema.names else ()
        looking = tasks if spooled.rows > FEW_ROWS else InlineTasks()
        times = [seen for _, seen in looking.map(look_at_times, timed, label="look at event times")]
    return frame_rows(pieces, times, schema, typed, with_op=with_op, ignored=ignored, new=new)


def take_view(plan: OnSpark, tail: Tail, scratch: Scratch, new: NewColumns = "error") -> Incoming:
    """Take the rows of a view that runs on Spark: its tasks write them to scratch, in their order."""
    from trueline.view.engine import engine

    schema = plan.schema.to_arrow()
    typed, with_op, ignored = typed_frame(schema, tail, new)
    write = WritePartition(scratch, schema, typed, with_op, new)
    written = engine().write(plan.below, plan.session, write)
    pieces = tuple(piece for piece, _ in written if piece.rows)
    _check_shared(pieces, scratch)
    times = [seen for _, seen in written]
    return frame_rows(pieces, times, schema, typed, with_op=with_op, ignored=ignored, new=new)


def _check_shared(pieces: Sequence[IncomingPiece], scratch: Scratch) -> None:
    """Refuse a folder in which this process does not see what tasks wrote."""
    folder = scratch.folder
    for piece in pieces:
        if folder is not None and not (folder / piece.name).exists():
            raise EnvironmentMissing(
                f"{folder / piece.name} was written, but the driver does not see it",
                remedy="choose a folder that all machines of the cluster share, or an object store",
                code="FolderNotShared",
                folder=str(folder),
            )


def typed_frame(
    schema: pa.Schema, tail: Tail, new: NewColumns = "error", with_op: bool | None = None
) -> tuple[Tail, bool, tuple[str, ...]]:
    """Return the tail that rows are typed for, whether operations go along, and the columns left out."""
    op = tail.vocab.op
    if with_op is None:
        with_op = isinstance(strategy_of(tail), Changelog | Upsert) and op in schema.names
    columns = pa.schema([column for column in schema if not with_op or column.name != op])
    typed = typed_for(columns, tail, new)
    return typed, with_op, fit(columns.empty_table(), typed, new).ignored


def frame_rows(
    pieces: tuple[Any, ...],
    times: Sequence[EventTimes],
    schema: pa.Schema,
    typed: Tail,
    *,
    with_op: bool,
    ignored: tuple[str, ...] = (),
    new: NewColumns = "error",
) -> Incoming:
    """Return the rows of a frame that were typed for a tail."""
    assert typed.schema is not None
    if not pieces:
        # A frame without rows is a table without rows: as a snapshot it says that all are gone.
        pieces = (IncomingPiece.of(fit_rows(schema.empty_table(), typed, with_op=with_op, new=new).table),)
    return Incoming(
        pieces,
        DataSchema(fields_of(typed.schema)),
        typed.vocab,
        latest([seen.newest for seen in times]),
        sum(seen.rounded for seen in times),
        given=frozenset(schema.names),
        with_op=with_op,
        ignored_columns=ignored,
        new=new,
    )


@dataclass(frozen=True, slots=True)
class WritePartition:
    """Writes the rows of a partition to scratch, typed for the dataset."""

    scratch: Scratch
    schema: pa.Schema
    tail: Tail
    with_op: bool = False
    new: NewColumns = "error"

    def __call__(self, partition: int, batches: Iterator[pa.RecordBatch]) -> tuple[IncomingPiece, EventTimes]:
        """Write a partition; a second attempt, whose rows may come in another order, has its own file."""
        assert self.tail.schema is not None
        writer: PieceWriter | None = None
        newest, rounded = None, 0
        name = f"partition-{partition}-{uuid.uuid4().hex}.arrow"
        for batch in batches:
            # Spark sends instants in the zone of the session.
            table = pa.Table.from_batches([batch]).cast(self.schema)
            fitted = fit_rows(table, self.tail, with_op=self.with_op, new=self.new)
            writer = writer or PieceWriter(self.scratch, name, fitted.table.schema)
            writer.write(fitted.table)
            newest, rounded = latest([newest, newest_event(fitted)]), rounded + fitted.rounded
        return (writer.finish() if writer else IncomingPiece(0)), EventTimes(newest, rounded)
