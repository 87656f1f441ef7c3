"""What a room outside hands a view to read: rows in a fixed order, the same each time, from any thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

import pyarrow as pa

from trueline.view.origin import Origin
from trueline.view.plan.node import NO_BOUNDS, Bounds

# How many rows files are read in at once; with half as many a scan of one column took a sixth longer.
ROWS_OF_A_BATCH: Final = 131_072


class RowSource(Protocol):
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

    @property
    def ordinal(self) -> str | None:
        """The column that says who a row is, which `batches` gives, seen or not; None: a row's number."""

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield these columns, in this order, of all rows but those the bounds rule out.

        Rows outside the bounds may be there too. With no columns the batches
        still have their numbers of rows.
        """

    def explain(self) -> list[str]:
        """Say in a few lines what reading it means."""


class Divisible(RowSource, Protocol):
    """A source that can be read by several processes at once.

    Where `pieces` may be None, or its pieces stay in this process, it has `travels`, which says so
    without opening anything.
    """

    def pieces(self, bounds: Bounds = NO_BOUNDS, parts: int = 0) -> Sequence[RowSource] | None:
        """Return sources that together hold the same rows, in order, and can be pickled; None if not.

        Rows that the bounds rule out may be left out. `parts` is a wish, 0 for no opinion.
        """

    def files(self) -> Sequence[str] | None:
        """Return Parquet files on a file system that together hold the same rows; None if there are none.

        Columns are found in them by name; one that a file lacks is null there.
        """
