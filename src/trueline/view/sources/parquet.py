"""Parquet files as views: groups of rows are read by themselves, and only the columns that are wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.parquet as pq

from trueline import types as t
from trueline.errors import BrokenFile, SchemaError, TruelineError, check_memory
from trueline.identity import RowIds
from trueline.kernel.chunk import ROWS_OF_A_CHUNK, Chunk, Piece
from trueline.limits import DEFAULT
from trueline.readers import Limits, Source, find, parquet
from trueline.readers.archive import in_memory
from trueline.readers.parquet_file import BoundedFile
from trueline.view.execute.dispatch import pieces
from trueline.view.plan.node import Interval, Want, step_of
from trueline.view.plan.sources import ParquetFiles, Range, RowGroup
from trueline.view.source import ROWS_OF_A_BATCH
from trueline.view.source_cells import ReadCounts, as_types, tally_of

_COUNTED: Final = ("INT32", "INT64")
# A tenth of the time of a scan went into reading the footer again for each group of rows. A source is
# pinned: as long as it can be opened at all, its footer is the one that was read.
_footers: WeakKeyDictionary[Source, pq.FileMetaData] = WeakKeyDictionary()


@pieces.register(ParquetFiles)
def _parquet(node: ParquetFiles, want: Want) -> Sequence[Piece]:
    """Return a piece for each group of rows that the bounds do not rule out."""
    firsts = accumulate((group.rows for group in node.groups), initial=0)
    kinds = tuple(node.schema[index].type for index in want.columns)
    tally = tally_of(node)
    return [
        RowGroupPiece(
            node.files[group.file],
            group,
            first,
            want.columns,
            kinds,
            want.ids,
            tally=tally,
            limits=node.limits,
        )
        for group, first in zip(node.groups, firsts, strict=False)
        if group.rows and _may_match(group, want.bounds)
    ]


def _may_match(group: RowGroup, bounds: Mapping[int, Interval]) -> bool:
    return all(
        (found := group.ranges[index]) is None or interval.meets(*found) for index, interval in bounds.items()
    )


@dataclass(frozen=True, eq=False)
class RowGroupPiece:
    """One group of rows of one file."""

    source: Source
    group: RowGroup
    first: int
    columns: tuple[int, ...]
    kinds: tuple[t.Type, ...]
    ids: bool
    tally: ReadCounts
    limits: Limits = DEFAULT

    @property
    def rows(self) -> int:
        """What the file says."""
        return self.group.rows

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order."""
        if not self.columns:
            for start in range(0, self.rows, ROWS_OF_A_CHUNK):
                rows = min(ROWS_OF_A_CHUNK, self.rows - start)
                yield Chunk(rows, (), self._ids(start, rows))
            return
        with opened(self.source, self.limits) as file:
            names = [file.schema_arrow.names[index] for index in self.columns]
            start, bad = 0, Counter[str]()
            for batch in file.batches(self.group.number, names, ROWS_OF_A_BATCH):
                columns = [batch.column(name) for name in names]
                arrays = as_types(columns, self.kinds, names, bad)
                yield Chunk(batch.num_rows, arrays, self._ids(start, batch.num_rows))
                start += batch.num_rows
            if start != self.rows:
                raise ValueError(f"group of rows {self.group.number} ends after {start} rows")
            self.tally.note_bad(self.source.path, (self.group.file, self.group.number), bad)

    def _ids(self, start: int, rows: int) -> RowIds | None:
        return RowIds.range(self.first + start, rows) if self.ids else None


@contextmanager
def opened(source: Source, limits: Limits) -> Iterator[BoundedFile]:
    """Open a file that is still the one that was pinned; what Parquet does not understand is broken."""
    with closing(source.open()) as raw:
        try:
            known = _footers.get(source)
            with closing(BoundedFile(raw, source.path, limits, metadata=known)) as file:
                _footers[source] = file.metadata
                yield file
        except TruelineError:
            raise
        except (pa.ArrowException, MemoryError, OSError, ValueError, OverflowError) as error:
            check_memory(error, f"reading {source.path}")
            raise BrokenFile(
                f"{source.path} is corrupt or not a Parquet file: {str(error).splitlines()[0][:200]}",
                remedy="fetch the file again",
                path=source.path,
            ) from error


def parquet_files(paths: Any, schema: pa.Schema | None = None, **options: Any) -> ParquetFiles:
    """View Parquet files: footers are read now, rows when they are asked for.

    All files have the same columns. `schema` says which, where there are no files; the options are
    the limits of the reader.
    """
    reader = parquet(**options)
    limits = reader.limits
    sources = tuple(in_memory(source, reader.member, limits) for source in find(paths))
    groups: list[RowGroup] = []
    for number, source in enumerate(sources):
        with opened(source, limits) as file:
            found = file.schema_arrow
            if len(set(found.names)) < len(found.names):
                raise SchemaError(f"{source.path} has two columns with the same name", remedy="rename one")
            if schema is not None and not found.equals(schema):
                raise SchemaError(
                    f"{source.path} differs from the files before it: {_difference(schema, found)}",
                    remedy="read the files separately, select what they share, and concat",
                    path=source.path,
                )
            schema = schema or found
            groups += _groups(file, number)
    if schema is None:
        raise SchemaError("no files, so no columns", remedy="give a schema, or files")
    return ParquetFiles(sources, schema, tuple(groups), limits=limits)


def _groups(file: BoundedFile, number: int) -> Iterator[RowGroup]:
    footer, schema = file.metadata, file.schema_arrow
    paths = [footer.schema.column(place).path for place in range(footer.num_columns)]
    places = {path: place for place, path in enumerate(paths)}
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        ranges = tuple(
            _range(group.column(places[each.name]), each.type) if each.name in places else None
            for each in schema
        )
        # What a view counts without reading has to be there.
        yield RowGroup(number, index, file.rows(index), ranges)


def _range(column: Any, kind: pa.DataType) -> Range:
    """The smallest and largest value as `Interval` counts them, None if the file does not say."""
    found, step = column.statistics, step_of(kind)
    if found is None or step is None or not found.has_min_max or found.physical_type not in _COUNTED:
        return None
    if pa.types.is_unsigned_integer(kind) or found.min_raw > found.max_raw:
        return None
    return int(found.min_raw) * step, int(found.max_raw) * step


def _difference(one: pa.Schema, other: pa.Schema) -> str:
    lacks = [name for name in one.names if name not in other.names]
    extra = [name for name in other.names if name not in one.names]
    differ = [
        f"{name} is {other.field(name).type}, was {one.field(name).type}"
        for name in one.names
        if name in other.names and other.field(name).type != one.field(name).type
    ]
    told = [*(f"{name} is missing" for name in lacks), *(f"{name} is new" for name in extra), *differ]
    return "; ".join(told) or "they are in another order"
