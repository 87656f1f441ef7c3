"""Files as views: CSV, JSON, Arrow and text, in the order given, pinned by size and time (decision 3).

A cell that cannot be read is null, and counted when it is read; no row is
ever left out because of one, whichever columns are read (view:C34, view:C37).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from trueline import types as t
from trueline.errors import SchemaError
from trueline.identity import RowIds
from trueline.kernel.chunk import Chunk, Piece
from trueline.readers import Reader, Source, arrow, csv, find, json, text
from trueline.view.execute.dispatch import pieces, row_count
from trueline.view.plan.node import Want
from trueline.view.plan.sources import TextFiles
from trueline.view.source_cells import ReadCounts, as_types, tally_of


@row_count.register(TextFiles)
def _row_count(node: TextFiles) -> int | None:
    """Known once every file was read to its end (view:C29)."""
    tally = tally_of(node)
    counts = [tally.rows(number) for number in range(len(node.files))]
    return None if None in counts else sum(count or 0 for count in counts)


@pieces.register(TextFiles)
def _files_of(node: TextFiles, want: Want) -> Sequence[Piece]:
    """Return a piece for each file."""
    names = tuple(node.schema[index].name for index in want.columns)
    kinds = tuple(node.schema[index].type for index in want.columns)
    tally = tally_of(node)
    return [
        FilePiece(node.reader, node.files, node.arrow, number, names, kinds, tally, ids=want.ids)
        for number in range(len(node.files))
    ]


@dataclass(frozen=True, eq=False)
class FilePiece:
    """One file; the rows of those before it are counted once, when ids are wanted."""

    reader: Reader
    sources: tuple[Source, ...]
    arrow: pa.Schema
    number: int
    names: tuple[str, ...]
    kinds: tuple[t.Type, ...]
    tally: ReadCounts
    ids: bool

    @property
    def rows(self) -> int | None:
        """Known once it was read."""
        return self.tally.rows(self.number)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order."""
        first = sum(self._count(before) for before in range(self.number)) if self.ids else 0
        source, number = self.sources[self.number], 0
        reading = self.reader.read(source, self.arrow, columns=self.names)
        bad: Counter[str] = Counter()
        for batch in reading:
            arrays = as_types(batch.table.columns, self.kinds, self.names, bad)
            rows = batch.table.num_rows
            yield Chunk(rows, arrays, RowIds.range(first + number, rows) if self.ids else None)
            number += rows
        self.tally.note_rows(self.number, number)
        bad.update(reading.stats.bad)
        self.tally.note_bad(source.path, self.number, bad)

    def _count(self, number: int) -> int:
        """Count the rows of a file, reading no cell of them."""
        known = self.tally.rows(number)
        if known is None:
            source = self.sources[number]
            known = self.reader.count_rows(source)
            if known is None:
                known = sum(b.table.num_rows for b in self.reader.read(source, self.arrow, columns=()))
            self.tally.note_rows(number, known)
        return known


def csv_files(paths: Any, schema: pa.Schema | None = None, **options: Any) -> TextFiles:
    """View CSV files; the options are those of the reader."""
    return _files(csv(**options), paths, schema)


def json_files(paths: Any, schema: pa.Schema | None = None, **options: Any) -> TextFiles:
    """View files of JSON; the options are those of the reader."""
    return _files(json(**options), paths, schema)


def arrow_files(paths: Any, schema: pa.Schema | None = None, **options: Any) -> TextFiles:
    """View files and streams of Arrow IPC; the options are those of the reader."""
    return _files(arrow(**options), paths, schema)


def text_files(paths: Any, schema: pa.Schema | None = None, **options: Any) -> TextFiles:
    """View the lines of text files; the options are those of the reader."""
    return _files(text(**options), paths, schema)


def _files(reader: Reader, paths: Any, schema: pa.Schema | None) -> TextFiles:
    sources = tuple(find(paths))
    if schema is None:
        if not sources:
            raise SchemaError("no files, so no columns", remedy="give a schema, or files")
        schema = reader.infer(sources)
    return TextFiles(reader, sources, schema)
