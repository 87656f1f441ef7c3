"""Where the rows of a view come from: the protocol, and rows in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa

from trueline.view.bounds import Bounds
from trueline.view.origin import Origin

ROWS_OF_A_BATCH: Final = 65_536


class Source(Protocol):
    """Rows in a fixed order, the same each time they are read, and from any thread."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    @property
    def row_count(self) -> int | None:
        """How many rows there are, None if that is not known without reading."""

    @property
    def origins(self) -> Mapping[str, Origin]:
        """The datasets it rests on, by name."""

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield these columns, in this order, of all rows but those the bounds rule out.

        Rows outside the bounds may be there too. With no columns the batches
        still have their numbers of rows.
        """

    def explain(self) -> list[str]:
        """Say in a few lines what reading it means."""


class Divisible(Source, Protocol):
    """A source that can be read by several processes at once."""

    def pieces(self) -> Sequence[Source] | None:
        """Return sources that together hold the same rows, in order, and can be pickled; None if not."""

    def files(self) -> Sequence[str] | None:
        """Return Parquet files on a file system that together hold the same rows; None if there are none.

        Columns are found in them by name; one that a file lacks is missing there.
        """


@dataclass(frozen=True)
class TableSource:
    """Rows in memory."""

    table: pa.Table
    origins: Mapping[str, Origin] = field(default_factory=dict)
    title: str = "rows in memory"

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.table.schema

    @property
    def row_count(self) -> int | None:
        """How many there are."""
        return int(self.table.num_rows)

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the rows, some at a time."""
        del bounds
        yield from self.table.select(list(columns)).to_batches(max_chunksize=ROWS_OF_A_BATCH)

    def explain(self) -> list[str]:
        """Say how many there are."""
        return [f"{self.title}: {self.table.num_rows:,} rows, {self.table.num_columns} columns"]
