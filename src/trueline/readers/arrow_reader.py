"""Arrow IPC, files and streams, and Feather: typed already, as Parquet is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from trueline.errors import BrokenFile, InputError, SchemaError, TruelineError, check_memory
from trueline.readers.archive import open_in_memory
from trueline.readers.arrow_file import open_batches, plain_type, sound_batches
from trueline.readers.batch import BATCH_ROWS, MAX_LISTED, ParsedRows, Reading, ReadStats
from trueline.readers.cast import check_castable
from trueline.readers.parquet_reader import check_names, typed_piece, united
from trueline.readers.parts import WHOLE, Part
from trueline.readers.reader import NOTHING, SAMPLE_ROWS, Reader, chosen
from trueline.readers.source import Source


@dataclass(frozen=True)
class ArrowReader(Reader):
    """Reads Arrow IPC (files and streams) and Feather version 2, a batch at a time.

    >>> sink = pa.BufferOutputStream()
    >>> with pa.ipc.new_file(sink, pa.schema({"a": pa.int64()})) as writer:
    ...     writer.write_batch(pa.record_batch({"a": [1, 300]}))
    >>> file = Source.memory(sink.getvalue())
    >>> batch = next(ArrowReader().read(file, pa.schema({"a": pa.int8()})))
    >>> batch.table.to_pydict(), batch.bad["text"].to_pylist()
    ({'a': [1, None]}, ['300'])
    """

    kind: ClassVar[str] = "arrow"

    member: str | None = None
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
            with self._opened(source) as batches:
                schema = pa.schema([_typed(field, known) for field in batches.schema])
            check_names(source, schema)
            found = united(found, schema, source)
        return found

    def read(
        self,
        source: Source,
        schema: pa.Schema,
        *,
        columns: Sequence[str] | None = None,
        batch_rows: int = BATCH_ROWS,
        part: Part = WHOLE,
    ) -> Reading:
        """Read one file; a file of Arrow is one part."""
        stats = ReadStats()
        pieces = self._pieces(source, schema, chosen(schema, columns), stats)
        return Reading(pieces, stats, batch_rows=batch_rows, max_listed=self.max_listed)

    def _pieces(
        self, source: Source, schema: pa.Schema, wanted: pa.Schema, stats: ReadStats
    ) -> Iterator[ParsedRows]:
        with self._opened(source) as batches:
            there = pa.schema([field.with_type(plain_type(field.type)) for field in batches.schema])
            check_names(source, there)
            stats.absent += [name for name in schema.names if there.get_field_index(name) < 0]
            stats.unknown += [name for name in there.names if schema.get_field_index(name) < 0]
            if len(schema) and len(stats.absent) == len(schema):
                raise SchemaError(
                    f"{source.path} has none of the columns {', '.join(schema.names[:6])}",
                    remedy=f"declare columns that the file has: {', '.join(there.names[:6])}",
                    path=source.path,
                )
            for field in wanted:
                if there.get_field_index(field.name) >= 0:
                    check_castable(there.field(field.name).type, field, source.path)
            for batch in batches:
                for some in sound_batches(batch, source.path, self.limits):
                    for start in range(0, some.num_rows, BATCH_ROWS):
                        yield typed_piece(some.slice(start, BATCH_ROWS), wanted, stats)

    @contextmanager
    def _opened(self, source: Source) -> Iterator[Any]:
        """Open a file; anything Arrow cannot read is a broken file."""
        with closing(open_in_memory(source, self.member, self.limits)) as raw:
            try:
                yield open_batches(raw, source.path, self.limits)
            except TruelineError:
                raise
            except (pa.ArrowException, MemoryError, OSError, ValueError, OverflowError) as error:
                check_memory(error, f"reading {source.path}")
                raise BrokenFile(
                    f"{source.path} is broken or not Arrow: {str(error).splitlines()[0][:200]}",
                    remedy="fetch the file again, or write it again as Arrow IPC or Feather version 2",
                    path=source.path,
                ) from error

    def to_read_step(self) -> dict[str, object]:
        raise InputError(
            "Open Data Fabric has no source of Arrow files",
            remedy="append the files, or declare a source of Parquet files",
        )


def _typed(field: pa.Field, known: pa.Schema) -> pa.Field:
    """The field with the type it is known to have, else that of its values, without the file's metadata."""
    if known.get_field_index(field.name) >= 0:
        return field.with_type(known.field(field.name).type)
    return field.with_type(plain_type(field.type))
