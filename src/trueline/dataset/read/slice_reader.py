"""Reading slices: only the columns and groups of rows asked for, each file checked as it is opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trueline.chain.events import DataSlice
from trueline.chain.store.store import Folder, Store
from trueline.dataset.remove.record import Hole
from trueline.errors import CorruptionError, LimitExceeded, ObjectMissing, TruelineError, check_memory
from trueline.identity.multihash import Multihash
from trueline.limits import DEFAULT
from trueline.readers import Limits
from trueline.readers.parquet_file import BoundedFile
from trueline.view.origin import Origin
from trueline.view.plan.node import NO_BOUNDS, Bounds, step_of
from trueline.view.source import ROWS_OF_A_BATCH

_COUNTED: Final = ("INT32", "INT64")
# What a null of a column that a slice lacks takes, about.
_NULL_BYTES: Final = 8
# Of whole slices that were checked: a group of rows that is read by itself need not check its file again.
_footers: WeakKeyDictionary[SliceFile, pq.FileMetaData] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class SliceFile:
    """One slice of a dataset: its file, the block that adds it, and what was removed of it since."""

    dataset: str
    store: Store
    block: Multihash
    data: DataSlice
    hole: Hole | None = None
    limits: Limits = DEFAULT

    @property
    def first(self) -> int:
        """The offset of its first record."""
        return self.data.offset_interval.start

    @property
    def last(self) -> int:
        """The offset of its last record."""
        return self.data.offset_interval.end

    @property
    def rows(self) -> int:
        """How many records it holds."""
        return self.last - self.first + 1 - (self.hole.rows if self.hole else 0)

    @property
    def place(self) -> tuple[Folder, Multihash] | None:
        """Where its records are: in the slice, or in what a removal has left; None if none are left."""
        if self.hole is None:
            return Folder.DATA, self.data.physical_hash
        kept = self.hole.replacement
        return None if kept is None else (Folder.CHECKPOINTS, kept.hash)

    # --- opening ----------------------------------------------------------------

    @contextmanager
    def open(self, offset: str) -> Iterator[BoundedFile]:
        """Open the file and compare it with its block: as many records as offsets, and the same ones.

        Whole files are hashed by `verify`; this looks at the footer only, the first time.
        """
        place = self.place
        assert place is not None
        try:
            with self.store.open(*place) as raw:
                known = _footers.get(self) if self.hole is None else None
                name = f"{self.dataset}: data/{self.data.physical_hash}"
                with closing(BoundedFile(raw, name, self.limits, metadata=known)) as parquet:
                    if known is None:
                        self._check(parquet.metadata, offset)
                        if self.hole is None:
                            _footers[self] = parquet.metadata
                    yield parquet
        except ObjectMissing as error:
            raise self._missing() from error
        except TruelineError:
            raise
        except (pa.ArrowException, MemoryError, OSError, ValueError) as error:
            check_memory(error, f"reading {self._named}")
            raise self.damaged(f"it cannot be read: {error}") from error

    def _check(self, footer: pq.FileMetaData, offset: str) -> None:
        if footer.num_rows != self.rows:
            raise self.damaged(f"it holds {footer.num_rows:,} records, its block says {self.rows:,}")
        place = _places(footer).get(offset)
        if place is None:
            raise self.damaged(f"it has no column {offset!r}")
        if self.hole is not None:
            return
        expected = self.first
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            found = _range(group.column(place).statistics)
            if found is not None and found != (expected, expected + group.num_rows - 1):
                raise self.damaged(
                    f"its group of rows {number} has the offsets {found[0]:,} to {found[1]:,}, "
                    f"expected are {expected:,} to {expected + group.num_rows - 1:,}"
                )
            expected += group.num_rows

    def check_present(self) -> None:
        """Raise if the file is not there."""
        if self.place is not None and self.store.size(*self.place) is None:
            raise self._missing()

    def _missing(self) -> ObjectMissing:
        return ObjectMissing(
            f"{self._named} is missing from {self.store.location}",
            remedy=f"restore the file from a copy of the dataset; `trueline verify {self.dataset}` lists all",
            code="SliceMissing",
            location=str(self.store.location),
            **self._fields,
        )

    def damaged(self, why: str) -> CorruptionError:
        """The error of a file that is not what its block says."""
        return CorruptionError(
            f"{self._named} is damaged: {why}",
            remedy=f"restore the file from a copy of the dataset; `trueline verify {self.dataset}` lists all",
            code="SliceDamaged",
            **self._fields,
        )

    @property
    def _named(self) -> str:
        return (
            f"{self.dataset}: data/{self.data.physical_hash} of block {self.block} "
            f"(offsets {self.first:,} to {self.last:,})"
        )

    @property
    def _fields(self) -> dict[str, Any]:
        return {"dataset": self.dataset, "block": self.block, "file": f"data/{self.data.physical_hash}"}

    # --- reading ----------------------------------------------------------------

    def times(self, field: pa.Field, offset: str) -> tuple[int | None, int | None] | None:
        """Return the smallest and largest stored value of a column of whole numbers; None if unknown.

        (None, None) says that no record has a value.
        """
        if self.place is None:
            return None, None
        with self.open(offset) as parquet:
            place = _places(parquet.metadata).get(field.name)
            if place is None:
                return None, None
            if parquet.schema_arrow.field(field.name).type != field.type:
                return None
            footer = parquet.metadata
            groups = [footer.row_group(number).column(place) for number in range(footer.num_row_groups)]
            filled = [group for group in groups if not _is_empty(group)]
            found = [_range(group.statistics) for group in filled]
        if None in found:
            return None
        known = [each for each in found if each is not None]
        return (min(low for low, _ in known), max(high for _, high in known)) if known else (None, None)

    def is_plain(self, schema: pa.Schema, offset: str, rows: int) -> bool:
        """Say whether the file has the columns of a schema in these types, and none beside that is alike.

        A column that it lacks is one that was added later. So many rows of it can be decoded together.
        """
        with self.open(offset) as parquet:
            there = parquet.schema_arrow
            if len({name.lower() for name in there.names}) < len(there.names):
                return False
            known = [field for field in schema if field.name in there.names]
            if any(not _is_like(there.field(field.name), field) for field in known):
                return False
            if any(not field.nullable for field in schema if field.name not in there.names):
                return False
            names = [field.name for field in known]
            footer = parquet.metadata
            try:
                return all(
                    parquet.rows_at_once(number, names, rows) >= min(rows, footer.row_group(number).num_rows)
                    for number in range(footer.num_row_groups)
                )
            except LimitExceeded:
                return False  # whoever reads it within the limits says what is too large

    def read(
        self,
        schema: pa.Schema,
        offset: str,
        *,
        first: int,
        last: int,
        bounds: Bounds = NO_BOUNDS,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns of a schema of the records with offsets [first, last].

        Columns that were added to the dataset later are null in every row.
        Groups of rows that the bounds rule out are not read. Removed records are passed over.
        """
        if self.hole is not None:
            yield from self._left(schema, offset, first, last, bounds)
            return
        with self.open(offset) as parquet:
            there = [field.name for field in schema if field.name in parquet.schema_arrow.names]
            lacking = _NULL_BYTES * (len(schema) - len(there))
            start = self.first
            for number in range(parquet.metadata.num_row_groups):
                group = parquet.metadata.row_group(number)
                end = start + group.num_rows - 1
                if end >= first and start <= last and self._may_match(parquet, number, bounds):
                    for batch in _batches(parquet, number, there, lacking):
                        stop = start + batch.num_rows - 1
                        if stop >= first and start <= last:
                            fitted = self._fitted(batch, schema, start, offset)
                            skip = max(0, first - start)
                            yield fitted.slice(skip, min(stop, last) - start - skip + 1)
                        start += batch.num_rows
                start = end + 1

    def _left(
        self, schema: pa.Schema, offset: str, first: int, last: int, bounds: Bounds
    ) -> Iterator[pa.RecordBatch]:
        """Yield what a removal has left: the offsets have gaps, so each row is asked for its own."""
        if self.place is None:
            return
        with self.open(offset) as parquet:
            there = {field.name for field in schema} & set(parquet.schema_arrow.names)
            for number in range(parquet.metadata.num_row_groups):
                if not self._may_match(parquet, number, bounds):
                    continue
                names = sorted(there | {offset})
                for batch in _batches(parquet, number, names):
                    at = np.asarray(batch.column(offset))
                    kept = batch.filter(pa.array((at >= first) & (at <= last)))
                    if kept.num_rows:
                        yield self._fitted(kept, schema, None, offset)

    def _may_match(self, parquet: BoundedFile, number: int, bounds: Bounds) -> bool:
        places = _places(parquet.metadata) if bounds else {}
        for name, interval in bounds.items():
            if name not in places:
                continue
            group = parquet.metadata.row_group(number).column(places[name])
            if _is_empty(group):
                return False
            kind = parquet.schema_arrow.field(name).type
            # What statistics say of unsigned numbers depends on who wrote them.
            step = None if pa.types.is_unsigned_integer(kind) else step_of(kind)
            found = _range(group.statistics)
            if found and step and not interval.meets(found[0] * step, found[1] * step):
                return False
        return True

    def _fitted(
        self, batch: pa.RecordBatch, schema: pa.Schema, start: int | None, offset: str
    ) -> pa.RecordBatch:
        """Give a batch the dataset's columns; with `start` its offsets have to be dense from there."""
        if not len(schema):
            return batch.select([])
        columns = []
        for wanted in schema:
            index = batch.schema.get_field_index(wanted.name)
            if index < 0:
                if not wanted.nullable:
                    raise self.damaged(f"it lacks the column {wanted.name!r}, which is not optional")
                columns.append(pa.nulls(batch.num_rows, wanted.type))
                continue
            column = batch.column(index)
            if column.type != wanted.type:
                column = self._cast(column, wanted)
            if not wanted.nullable and column.null_count:
                raise self.damaged(f"its column {wanted.name!r} has null values")
            if wanted.name == offset and start is not None and not _is_dense(column, start):
                raise self.damaged(f"its offsets from {start:,} on are not dense")
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _cast(self, column: pa.Array, field: pa.Field) -> pa.Array:
        try:
            return column.cast(field.type)
        except pa.ArrowException as error:
            check_memory(error, f"reading {self._named}")
            raise self.damaged(
                f"its column {field.name!r} is of type {column.type}, the dataset's is {field.type}: {error}"
            ) from None


@dataclass(frozen=True)
class Slices:
    """Some slices one after another, as a source that can be sent to another process."""

    files: tuple[SliceFile, ...]
    schema: pa.Schema
    offset: str
    span: tuple[int, int] | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict)

    @property
    def row_count(self) -> int | None:
        """Offsets are dense, so it is known, unless some of what is left of a slice is cut off."""
        first, last = self.offsets
        if first > self.files[0].first or last < self.files[-1].last:
            return last - first + 1 if all(file.hole is None for file in self.files) else None
        return sum(file.rows for file in self.files)

    @property
    def offsets(self) -> tuple[int, int]:
        """The first and the last offset that are read."""
        return self.span or (self.files[0].first, self.files[-1].last)

    @property
    def ordinal(self) -> str | None:
        """Who a row is: the offset of its event."""
        return self.offset

    def batches(self, columns: Sequence[str], bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the records in order."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        first, last = self.offsets
        for file in self.files:
            yield from file.read(schema, self.offset, first=first, last=last, bounds=bounds)

    def explain(self) -> list[str]:
        """Say how many there are."""
        return [f"{len(self.files)} slices"]


def _is_like(there: pa.Field, wanted: pa.Field) -> bool:
    """Say whether values of a column need no look before they are those of the dataset's."""
    return bool(there.type == wanted.type and (wanted.nullable or not there.nullable))


def _batches(
    parquet: BoundedFile, number: int, names: Sequence[str], lacking: int = 0
) -> Iterator[pa.RecordBatch]:
    return parquet.batches(number, names, ROWS_OF_A_BATCH, besides=lacking, threads=True)


def _places(footer: pq.FileMetaData) -> dict[str, int]:
    """The places of columns that are not parts of others."""
    schema = footer.schema
    found = [schema.column(index) for index in range(len(schema))]
    return {column.path: index for index, column in enumerate(found) if column.path == column.name}


def _range(statistics: Any) -> tuple[int, int] | None:
    """The smallest and largest value as stored, None if the file does not say."""
    if statistics is None or not statistics.has_min_max or statistics.physical_type not in _COUNTED:
        return None
    low, high = statistics.min_raw, statistics.max_raw
    return (int(low), int(high)) if low <= high else None


def _is_empty(group: Any) -> bool:
    """Whether no row of a group has a value."""
    statistics = group.statistics
    return bool(
        statistics is not None and statistics.has_null_count and statistics.null_count == group.num_values
    )


def _is_dense(column: pa.Array, start: int) -> bool:
    values = np.asarray(column)
    return bool(len(values) == 0 or (values[0] == start and (np.diff(values) == 1).all()))
