"""Frames whose rows have an order: computed once, into files of ours.

On a cluster tasks write them where all machines see them: in the scratch of a store of a workspace, or in a
folder of this machine that the others share. Where there is neither, only few rows are fetched.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from trueline.dataset.append.pieces import IncomingPiece, WriteAsGiven
from trueline.errors import NotPortable
from trueline.kernel.temporary import Temporary
from trueline.spark.errors import translated
from trueline.spark.frames import SMALL, Spooled, TooLarge, fetch, shares_folders, spool, write_pieces
from trueline.spark.session import check_age
from trueline.spark.shared_places import SharedPlace, give_back, shared_scratch
from trueline.spark.types import arrow_schema_of
from trueline.view.origin import Origin
from trueline.view.plan.node import NO_BOUNDS, Bounds
from trueline.view.schema import unknown_column
from trueline.view.source import ROWS_OF_A_BATCH, RowSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from trueline.chain.store.scratch import Scratch

_KIND: Final = "frame"


def freeze(
    frame: DataFrame,
    order_by: Sequence[str] | None = None,
    origins: Mapping[str, Origin] | None = None,
    read_at: str = "",
    place: SharedPlace | None = None,
) -> FrozenFrame:
    """Return the rows of a frame as a source, sorted by columns or as they come the first time."""
    with translated():
        check_age(frame.sparkSession)
        schema = arrow_schema_of(frame.schema)
        for name in order_by or ():
            if name not in schema.names:
                raise unknown_column(name, tuple(schema.names))
        ordered = (
            frame.orderBy(*[frame[f"`{name.replace('`', '``')}`"] for name in order_by])
            if order_by
            else frame
        )
    return FrozenFrame(ordered, schema, dict(origins or {}), read_at, place)


@dataclass(frozen=True)
class FrozenRows:
    """What a frame became: its files in order, and whether they are where all machines see them."""

    parts: tuple[FrozenPart, ...]
    size: int
    is_everywhere: bool

    @property
    def rows(self) -> int:
        """How many rows there are in all."""
        return sum(part.row_count for part in self.parts)


class FrozenFrame:
    """A frame computed when its rows are first read, and once: into files of ours.

    They are removed with the last view that uses them.
    """

    travels = False

    def __init__(
        self,
        frame: DataFrame,
        schema: pa.Schema,
        origins: Mapping[str, Origin],
        read_at: str = "",
        place: SharedPlace | None = None,
    ) -> None:
        self.frame = frame
        self.read_at = read_at
        self.schema = schema
        self.origins = origins
        self.ordinal: str | None = None
        self.places = [] if place is None else [place]
        self._lock = threading.Lock()
        self._frozen: FrozenRows | None = None

    @property
    def row_count(self) -> int | None:
        """Known once it was computed."""
        return None if self._frozen is None else self._frozen.rows

    def lend(self, place: SharedPlace) -> None:
        """Offer a place to be computed in, for a cluster."""
        self.places.append(place)

    def frozen(self) -> FrozenRows:
        """Compute the frame, the first time."""
        with self._lock:
            if self._frozen is None:
                self._frozen = self._computed(self.frame.sparkSession)
            return self._frozen

    def pieces(self, bounds: Bounds = NO_BOUNDS, parts: int = 0) -> Sequence[RowSource] | None:
        """Return its files; the frame is computed for it."""
        del bounds, parts
        return [replace(part, frame=self) for part in self.frozen().parts]

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the order they were frozen in."""
        for part in self.frozen().parts:
            yield from part.batches(columns, bounds)

    def explain(self) -> list[str]:
        """Say whether it was computed."""
        known = self._frozen
        how = "not computed yet" if known is None else f"frozen, {known.rows:,} rows"
        made_from = f" of {', '.join(map(str, self.origins.values()))}" if self.origins else ""
        made_from += f", read at one snapshot: {self.read_at}" if self.read_at else ""
        return [f"Spark frame{made_from} ({how})"]

    def sent_along(self) -> HeldRows:
        """Return the rows, which only this machine has, to be sent to tasks; many are refused."""
        if self.frozen().size > SMALL:
            raise self._process_bound("the tasks of a cluster")
        batches = self.batches(self.schema.names, NO_BOUNDS)
        return HeldRows(pa.Table.from_batches(batches, schema=self.schema), self.origins)

    # --- where --------------------------------------------------------------------------------

    def _computed(self, session: SparkSession) -> FrozenRows:
        if shares_folders(session):
            return self._of_files(spool(self.frame, self._temporary().path), is_everywhere=False)
        with ExitStack() as stack:
            scratch = shared_scratch(session, self.places, stack)
            if scratch is not None:
                found = self._written_to(scratch)
                weakref.finalize(self, give_back, stack.pop_all())
                return found
        try:
            return self._of_files(fetch(self.frame, self._temporary().path, most=SMALL), is_everywhere=False)
        except TooLarge:
            raise self._process_bound("the driver") from None

    def _temporary(self) -> Temporary:
        folder = Temporary(_KIND)
        weakref.finalize(self, folder.remove)
        return folder

    def _written_to(self, scratch: Scratch) -> FrozenRows:
        """Let tasks write the rows: the JVM where that is a folder, Python workers elsewhere."""
        if scratch.folder is not None:
            return self._of_files(spool(self.frame, scratch.folder), is_everywhere=True)
        written = write_pieces(self.frame, WriteAsGiven(scratch, self.schema))
        pieces = [piece for piece in written if piece.rows]
        parts = tuple(FrozenPart(piece, piece.rows, self.schema) for piece in pieces)
        return FrozenRows(parts, sum(piece.size for piece in pieces), is_everywhere=True)

    def _of_files(self, spooled: Spooled, *, is_everywhere: bool) -> FrozenRows:
        parts = tuple(FrozenPart(piece.path, piece.rows, self.schema) for piece in spooled.pieces)
        return FrozenRows(parts, sum(piece.size for piece in spooled.pieces), is_everywhere)

    def _process_bound(self, where: str) -> NotPortable:
        return NotPortable(
            f"{self.explain()[0]}: its machines share no folder with this one, and its rows, more than"
            f" {SMALL >> 20} MiB, would pass {where}",
            remedy="append them to a dataset first: in a folder that all machines share, or an object store",
            code="ProcessBound",
        )


@dataclass(frozen=True)
class FrozenPart:
    """One file of a frozen frame, which is there as long as the frame is: of Parquet, or of scratch."""

    file: str | IncomingPiece
    row_count: int
    schema: pa.Schema
    frame: FrozenFrame | None = None
    ordinal: str | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        # Tasks read the file; whoever sent them there keeps the frame.
        return FrozenPart, (self.file, self.row_count, self.schema)

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order."""
        del bounds
        schema = pa.schema([self.schema.field(name) for name in columns])
        if not columns:
            yield pa.record_batch({"": pa.nulls(self.row_count)}).select([])
        elif isinstance(self.file, IncomingPiece):
            for table in self.file.read(0, self.row_count):
                yield from table.select(list(columns)).cast(schema).to_batches()
        else:
            with pq.ParquetFile(self.file) as file:
                for batch in file.iter_batches(ROWS_OF_A_BATCH, columns=list(columns)):
                    yield batch.select(list(columns)).cast(schema)

    def explain(self) -> list[str]:
        """Say what it is."""
        return ["a part of a Spark frame"]


@dataclass(frozen=True)
class HeldRows:
    """The rows of a small frame in memory, as they are sent along with tasks."""

    table: pa.Table
    origins: Mapping[str, Origin] = field(default_factory=dict)
    ordinal: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.table.schema

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return int(self.table.num_rows)

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order."""
        del bounds
        if not columns:
            yield pa.record_batch({"": pa.nulls(self.row_count)}).select([])
            return
        yield from self.table.select(list(columns)).to_batches()

    def explain(self) -> list[str]:
        """Say what it is."""
        return ["a small Spark frame"]
