"""Files as views: CSV, JSON, Arrow and text, in the order given, pinned by size and time (decision 3).

A cell that cannot be read is null, and counted when it is read; no row is
ever left out because of one, whichever columns are read (view:C34, view:C37).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from trueline import types as t
from trueline.errors import SchemaError
from trueline.identity import RowIds
from trueline.kernel.chunk import Chunk, Piece
from trueline.readers import Reader, Source, arrow, csv, find, json, text
from trueline.readers.parts import WHOLE, Part
from trueline.view.execute.dispatch import pieces, row_count
from trueline.view.plan.node import NodeState, Want
from trueline.view.plan.sources import TextFiles
from trueline.view.source_cells import FilePart, ReadCounts, as_types, tally_of

# Parts of one file at most; every part learns the habits of its file again.
_RANGES: Final = 64


@row_count.register(TextFiles)
def _row_count(node: TextFiles) -> int | None:
    """Known once every file was read to its end (view:C29)."""
    tally = tally_of(node)
    counts = [tally.rows(number) for number in range(len(node.files))]
    return None if None in counts else sum(count or 0 for count in counts)


@pieces.register(TextFiles)
def _files_of(node: TextFiles, want: Want) -> Sequence[Piece]:
    """Return a piece for each file; where more are wanted, several of a large one."""
    names = tuple(node.schema[index].name for index in want.columns)
    kinds = tuple(node.schema[index].type for index in want.columns)
    tally, ranges = tally_of(node), _ranges.of(node)
    found: list[Piece] = []
    for number in range(len(node.files)):
        whole = FilePiece(node.reader, node.files, node.arrow, number, names, kinds, tally, ids=want.ids)
        count = ranges.count(number) if want.parts > len(node.files) else 1
        found += [RangePiece(whole, ranges, place) for place in range(count)] if count > 1 else [whole]
    return found


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
        number = 0
        for chunk in self.read(WHOLE, self.number):
            yield chunk
            number += chunk.rows
        self.tally.note_rows(self.number, number)

    def read(self, part: Part, key: FilePart) -> Iterator[Chunk]:
        """Yield the rows of a part of the file, and note its bad cells by a key."""
        first = sum(self._count(before) for before in range(self.number)) if self.ids else 0
        source, number = self.sources[self.number], first + (part.row or 0)
        reading = self.reader.read(source, self.arrow, columns=self.names, part=part)
        bad: Counter[str] = Counter()
        for batch in reading:
            arrays = as_types(batch.table.columns, self.kinds, self.names, bad)
            rows = batch.table.num_rows
            yield Chunk(rows, arrays, RowIds.range(number, rows) if self.ids else None)
            number += rows
        bad.update(reading.stats.bad)
        self.tally.note_bad(source.path, key, bad)

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


class FileRanges:
    """Where the large files of a node are cut: found by passing over each once, when rows are wanted."""

    def __init__(self, node: TextFiles) -> None:
        self._reader, self._files, self._arrow = node.reader, node.files, node.arrow
        self._found: dict[int, list[Part]] = {}
        self._lock = threading.Lock()

    def count(self, number: int) -> int:
        """How many parts a file may have: one for a small one, whoever asks."""
        size, block = self._files[number].size, self._reader.options.get("block_bytes")
        return min(_RANGES, size // block) if size is not None and isinstance(block, int) else 1

    def of(self, number: int) -> list[Part]:
        """Return the parts of a file; fewer than may be where it cannot be cut."""
        with self._lock:
            if number not in self._found:
                file = self._files[number]
                self._found[number] = self._reader.counted(file, self._arrow, count=self.count(number))
            return self._found[number]

    def __getstate__(self) -> dict[str, Any]:
        # Other processes are told, so that not each of them passes over the file.
        for number in range(len(self._files)):
            if self.count(number) > 1:
                self.of(number)
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()


_ranges: Final = NodeState["FileRanges"](FileRanges)


@dataclass(frozen=True, eq=False)
class RangePiece:
    """One of the parts of a large file; those beyond the last have no rows."""

    whole: FilePiece
    ranges: FileRanges
    place: int

    @property
    def rows(self) -> int | None:
        """Not known until the file was passed over."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order."""
        parts = self.ranges.of(self.whole.number)
        if self.place < len(parts):
            yield from self.whole.read(parts[self.place], (self.whole.number, self.place))


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
