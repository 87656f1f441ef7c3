"""Parquet: typed already, so a cell is bad only where it does not fit the declared type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa

from trueline.errors import BrokenFile, InputError, SchemaError, TruelineError, check_memory
from trueline.limits import Limits
from trueline.readers.batch import (
    BATCH_ROWS,
    MAX_LISTED,
    BadColumn,
    ParsedRows,
    Reading,
    ReadStats,
    RowNumbers,
    table_of,
)
from trueline.readers.cast import cast_column, check_castable
from trueline.readers.parquet_file import BoundedFile
from trueline.readers.parts import PART_BYTES, PART_ROWS, WHOLE, Part
from trueline.readers.reader import NOTHING, SAMPLE_ROWS, Reader, chosen
from trueline.readers.source import Source

_LARGE = 1 << 28


@dataclass(frozen=True)
class ParquetReader(Reader):
    """Reads Parquet, a few pages at a time, and only the columns asked for.

    >>> from io import BytesIO
    >>> import pyarrow.parquet as pq
    >>> file = BytesIO()
    >>> pq.write_table(pa.table({"a": [1, 300]}), file)
    >>> batch = next(ParquetReader().read(Source.memory(file.getvalue()), pa.schema({"a": pa.int8()})))
    >>> batch.table.to_pydict(), batch.bad["text"].to_pylist()
    ({'a': [1, None]}, ['300'])
    """

    kind: ClassVar[str] = "parquet"

    max_listed: int = MAX_LISTED
    max_columns: int | None = None
    max_batch_bytes: int | None = None

    def __post_init__(self) -> None:
        _ = self.limits
        if self.max_listed < 0:
            raise InputError("max_listed is negative", remedy="give 0 or more")

    def infer(
        self, sources: Sequence[Source], *, rows: int = SAMPLE_ROWS, known: pa.Schema = NOTHING
    ) -> pa.Schema:
        """The columns of all files, widened where they differ."""
        found = pa.schema([])
        for source in sources:
            with _file(source, self.limits) as file:
                schema = pa.schema([_typed(field, known) for field in file.schema_arrow])
            _check_names(source, schema)
            try:
                found = pa.unify_schemas([found, schema], promote_options="permissive")
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise SchemaError(
                    f"{source.path} has different columns from the files before it: {error}",
                    remedy="declare a schema, or read the files separately",
                    path=source.path,
                ) from None
        return found

    def count_rows(self, source: Source) -> int:
        """How many rows the footer says there are."""
        with _file(source, self.limits) as file:
            return sum(file.rows(group) for group in range(file.num_row_groups))

    def parts(self, source: Source, *, size: int = PART_BYTES) -> list[Part]:
        """Cut between row groups, about every million rows: a group is decoded from its start."""
        if source.size is None or source.size < size:
            return [WHOLE]
        with _file(source, self.limits) as file:
            groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        places, at = [0], 0
        for rows in groups:
            if at - places[-1] >= PART_ROWS // 2:
                places.append(at)
            at += rows
        stops: list[int | None] = [*places[1:], None]
        return [Part(start, stop) for start, stop in zip(places, stops, strict=True)]

    def read(
        self,
        source: Source,
        schema: pa.Schema,
        *,
        columns: Sequence[str] | None = None,
        batch_rows: int = BATCH_ROWS,
        part: Part = WHOLE,
        start: int = 0,
        stop: int | None = None,
    ) -> Reading:
        """Read the rows from `start` up to `stop`; adjacent ranges give every row once."""
        if start < 0 or (stop is not None and stop < start):
            raise InputError(f"rows {start} to {stop} are not a range", remedy="give 0 <= start <= stop")
        stats, wanted = ReadStats(), chosen(schema, columns)
        low, high = (start, stop) if part == WHOLE else (part.start, part.stop)
        pieces = self._pieces(source, schema, wanted, stats, _Range(batch_rows, low, high))
        return Reading(pieces, stats, batch_rows=batch_rows, max_listed=self.max_listed, start=start)

    def _pieces(
        self,
        source: Source,
        schema: pa.Schema,
        wanted: pa.Schema,
        stats: ReadStats,
        wish: _Range,
    ) -> Iterator[ParsedRows]:
        with _file(source, self.limits) as file:
            there = file.schema_arrow
            _check_names(source, there)
            stats.absent += [name for name in schema.names if there.get_field_index(name) < 0]
            stats.unknown += [name for name in there.names if schema.get_field_index(name) < 0]
            if len(schema) and len(stats.absent) == len(schema):
                raise SchemaError(
                    f"{source.path} has none of the columns {', '.join(schema.names[:6])}",
                    remedy=f"declare columns that the file has: {', '.join(there.names[:6])}",
                    path=source.path,
                )
            names = [name for name in wanted.names if there.get_field_index(name) >= 0]
            for name in names:
                check_castable(there.field(name).type, wanted.field(name), source.path)
            lacking = sum(_width(field.type) for field in wanted if field.name not in there.names)
            for batch in _ranged(file, names, wish, lacking):
                for part in _small(batch):
                    yield _piece(part, wanted, stats)

    def to_read_step(self) -> dict[str, object]:
        return {"kind": "Parquet"}

    @classmethod
    def from_read_step(cls, step: Mapping[str, Any]) -> Self:
        if step.get("kind") != "Parquet":
            super().from_read_step(step)
        return cls()


@contextmanager
def _file(source: Source, limits: Limits) -> Iterator[BoundedFile]:
    """Open a file; anything Arrow cannot parse as Parquet is a broken file."""
    with closing(source.open()) as raw:
        try:
            with closing(BoundedFile(raw, source.path, limits, checksums=True)) as file:
                yield file
        except TruelineError:
            raise
        except (pa.ArrowException, MemoryError, OSError, ValueError, OverflowError) as error:
            check_memory(error, f"reading {source.path}")
            raise BrokenFile(
                f"{source.path} is broken or not Parquet: {str(error).splitlines()[0][:200]}",
                remedy="fetch the file again",
                path=source.path,
            ) from error


def _check_names(source: Source, schema: pa.Schema) -> None:
    if len(set(schema.names)) < len(schema.names):
        twice = next(name for name in schema.names if schema.names.count(name) > 1)
        raise SchemaError(
            f"{source.path} has two columns {twice!r}",
            remedy="rename one of them in the file",
            path=source.path,
        )


def _typed(field: pa.Field, known: pa.Schema) -> pa.Field:
    """The field with the type it is known to have; a dictionary is an encoding only."""
    if known.get_field_index(field.name) >= 0:
        return field.with_type(known.field(field.name).type)
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field


class _Range(NamedTuple):
    """Which rows of a file, in batches of how many."""

    batch_rows: int
    start: int
    stop: int | None


def _ranged(file: BoundedFile, names: list[str], wish: _Range, lacking: int) -> Iterator[pa.RecordBatch]:
    """Batches of the rows asked for; row groups outside the range are not touched."""
    at = 0
    for group in range(file.metadata.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        low = max(wish.start - at, 0)
        high = min(rows, wish.stop - at) if wish.stop is not None else rows
        if low < high:
            yield from _group(file, group, names, _Range(wish.batch_rows, low, high), lacking)
        at += rows


def _group(
    file: BoundedFile, group: int, names: list[str], wish: _Range, lacking: int
) -> Iterator[pa.RecordBatch]:
    low, high, at = wish.start, wish.stop or 0, 0
    size = max(1, min(wish.batch_rows, high))
    for batch in file.batches(group, names, size, besides=lacking):
        begin, end = max(low - at, 0), min(high - at, batch.num_rows)
        if begin < end:
            yield batch.slice(begin, end - begin)
        at += batch.num_rows
        if at >= high:
            return
    raise ValueError(f"row group {group} ends after {at} rows")


def _width(kind: pa.DataType) -> int:
    """The bytes of a null of a type, about."""
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return 8 + sum(_width(kind.field(place).type) for place in range(kind.num_fields))


def _small(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halve a batch until it is far from the 2 GiB that plain text can address."""
    if batch.num_rows > 1 and batch.num_columns and batch.nbytes > _LARGE:
        half = batch.num_rows // 2
        yield from _small(batch.slice(0, half))
        yield from _small(batch.slice(half))
    else:
        yield batch


def _piece(batch: pa.RecordBatch, wanted: pa.Schema, stats: ReadStats) -> ParsedRows:
    arrays, bad = [], []
    for field in wanted:
        if batch.schema.get_field_index(field.name) < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(field.name)
        found = cast_column(column, field.type)
        arrays.append(found.array)
        stats.undecodable += found.undecodable
        if found.rounded:
            stats.rounded[field.name] = stats.rounded.get(field.name, 0) + found.rounded
        if found.bad is not None and found.bad.any():
            bad.append(BadColumn(field.name, np.flatnonzero(found.bad), partial(_shown, column)))
    return ParsedRows(table_of(arrays, wanted, batch.num_rows), bad)


def _shown(column: pa.Array, rows: RowNumbers) -> list[str | None]:
    """Values as text; where even that fails, as bytes."""
    texts: list[str | None] = []
    for row in rows.tolist():
        cell = column[row]
        try:
            value = cell.as_py()
        except (UnicodeDecodeError, ValueError, OverflowError):
            held = getattr(cell, "as_buffer", lambda: None)()
            value = held.to_pybytes() if held is not None else "(not readable)"
        texts.append(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))
    return texts
