"""Frames whose rows have an order: computed once, into files of ours."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from trueline.kernel.temporary import Temporary
from trueline.spark.errors import translated
from trueline.spark.frames import Spooled, fetch, shares_folders, spool
from trueline.spark.types import arrow_schema_of
from trueline.view.origin import Origin
from trueline.view.plan.node import NO_BOUNDS, Bounds
from trueline.view.schema import unknown_column
from trueline.view.source import ROWS_OF_A_BATCH, RowSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def freeze(
    frame: DataFrame,
    order_by: Sequence[str] | None = None,
    origins: Mapping[str, Origin] | None = None,
    note: str = "",
) -> FrozenFrame:
    """Return the rows of a frame as a source, sorted by columns or as they come the first time."""
    with translated():
        schema = arrow_schema_of(frame.schema)
        for name in order_by or ():
            if name not in schema.names:
                raise unknown_column(name, tuple(schema.names))
        ordered = (
            frame.orderBy(*[frame[f"`{name.replace('`', '``')}`"] for name in order_by])
            if order_by
            else frame
        )
    return FrozenFrame(ordered, schema, dict(origins or {}), note)


class FrozenFrame:
    """A frame computed when its rows are first read, and once: into Parquet files in a folder of ours.

    The folder is removed with the last view that uses it.
    """

    travels = False

    def __init__(
        self, frame: DataFrame, schema: pa.Schema, origins: Mapping[str, Origin], note: str = ""
    ) -> None:
        self.frame = frame
        self.note = note
        self.schema = schema
        self.origins = origins
        self.ordinal: str | None = None
        self._lock = threading.Lock()
        self._spooled: Spooled | None = None

    @property
    def row_count(self) -> int | None:
        """Known once it was computed."""
        return None if self._spooled is None else self._spooled.rows

    def frozen(self) -> Spooled:
        """Compute the frame, the first time."""
        with self._lock:
            if self._spooled is None:
                folder = Temporary("frame")
                weakref.finalize(self, folder.remove)
                bring = spool if shares_folders(self.frame.sparkSession) else fetch
                self._spooled = bring(self.frame, folder.path)
            return self._spooled

    def pieces(self, bounds: Bounds = NO_BOUNDS, parts: int = 0) -> Sequence[RowSource] | None:
        """Return its files, which only this machine is sure to have; the frame is computed for it."""
        del bounds, parts
        return [FrozenPart(piece.path, piece.rows, self.schema, self) for piece in self.frozen().pieces]

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the order they were frozen in."""
        for part in self.pieces() or ():
            yield from part.batches(columns, bounds)

    def explain(self) -> list[str]:
        """Say whether it was computed."""
        known = self._spooled
        how = "not computed yet" if known is None else f"frozen, {known.rows:,} rows"
        made_from = f" of {', '.join(map(str, self.origins.values()))}" if self.origins else ""
        made_from += f", {self.note}" if self.note else ""
        return [f"Spark frame{made_from} ({how})"]


@dataclass(frozen=True)
class FrozenPart:
    """One file of a frozen frame, which is there as long as the frame is."""

    path: str
    row_count: int
    schema: pa.Schema
    frame: FrozenFrame | None
    ordinal: str | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        # Tasks read the file; whoever sent them there keeps the frame.
        return FrozenPart, (self.path, self.row_count, self.schema, None)

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order."""
        del bounds
        schema = pa.schema([self.schema.field(name) for name in columns])
        if not columns:
            yield pa.record_batch({"": pa.nulls(self.row_count)}).select([])
            return
        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(ROWS_OF_A_BATCH, columns=list(columns)):
                yield batch.select(list(columns)).cast(schema)

    def explain(self) -> list[str]:
        """Say what it is."""
        return ["a part of a Spark frame"]
