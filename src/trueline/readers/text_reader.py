"""Plain text, one row per line or one row per file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa

from trueline.errors import InputError
from trueline.limits import CELLS
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
from trueline.readers.blocks import BLOCK, Lines, RecordBlock, blocks, count_lines
from trueline.readers.cells import convert
from trueline.readers.parts import PART_BYTES, WHOLE, Part, after_line, cut_text
from trueline.readers.reader import NOTHING, SAMPLE_ROWS, Reader, chosen, guessed
from trueline.readers.rules import CellRules, check_readable
from trueline.readers.source import Source
from trueline.readers.stream import can_be_cut, encoding_name, opened


@dataclass(frozen=True)
class TextReader(Reader):
    r"""Reads lines of text; ``\n``, ``\r\n`` and ``\r`` end a line, an empty line is a row of empty text.

    >>> file = Source.memory(b"one\r\n\ntwo")
    >>> next(TextReader().read(file, TextReader().infer([]))).table.to_pydict()
    {'text': ['one', '', 'two']}
    """

    kind: ClassVar[str] = "text"

    column: str = "text"
    whole: bool = False
    encoding: str = "utf-8"
    max_listed: int = MAX_LISTED
    max_record_bytes: int | None = None
    block_bytes: int = BLOCK

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding", encoding_name(self.encoding))
        if not self.column:
            raise InputError("the column has no name", remedy="give one, or leave it at 'text'")
        _ = self.limits
        if self.block_bytes < 1 or self.max_listed < 0:
            raise InputError("block_bytes or max_listed is too small", remedy="give a larger number")

    def infer(
        self, sources: Sequence[Source], *, rows: int = SAMPLE_ROWS, known: pa.Schema = NOTHING
    ) -> pa.Schema:
        """One column of text."""
        return guessed({self.column: pa.string()}, known, lambda kind: kind)

    def read(
        self,
        source: Source,
        schema: pa.Schema,
        *,
        columns: Sequence[str] | None = None,
        batch_rows: int = BATCH_ROWS,
        part: Part = WHOLE,
    ) -> Reading:
        check_readable(schema, "a text file")
        stats = ReadStats()
        stats.absent += [name for name in schema.names if name != self.column]
        stats.unknown += [] if self.column in schema.names else [self.column]
        pieces = self._pieces(source, chosen(schema, columns), stats, part)
        return Reading(pieces, stats, batch_rows=batch_rows, max_listed=self.max_listed)

    def parts(self, source: Source, *, size: int = PART_BYTES) -> list[Part]:
        """Cut text in UTF-8 behind lines, where each is a row."""
        if self.whole or not can_be_cut(source, self.encoding, size):
            return [WHOLE]
        return cut_text(source, size, after_line)

    def _pieces(
        self, source: Source, schema: pa.Schema, stats: ReadStats, part: Part
    ) -> Iterator[ParsedRows]:
        cut = _Whole() if self.whole else Lines()
        size, limit, ends = self.block_bytes, self.limits.record_bytes, part.stop is None
        step = max(1, CELLS // max(len(schema), 1))
        with opened(source, self.encoding, part) as stream:
            found = blocks(stream, source, cut, size=size, limit=limit, ends=ends)
            if self.whole:
                # A file without a byte is a row too.
                found = iter([next(found, RecordBlock(b"", 1))])
            for block in found:
                cells = pa.array([block.text], pa.binary()) if self.whole else lines_of(block.text)
                for start in range(0, len(cells), step):
                    first = RecordBlock(b"", block.line + start)
                    yield self._piece(first, cells.slice(start, step), schema, stats)
                if part.stop is not None:
                    stats.lines = block.line - 1 + count_lines(block.text)

    def _piece(self, block: RecordBlock, cells: pa.Array, schema: pa.Schema, stats: ReadStats) -> ParsedRows:
        arrays, bad = [], []
        for field in schema:
            if field.name != self.column:
                arrays.append(pa.nulls(len(cells), field.type))
                continue
            found = convert(cells, field.type, CellRules(nulls=()))
            stats.undecodable += found.undecodable
            arrays.append(found.array)
            if found.rounded:
                stats.rounded[field.name] = stats.rounded.get(field.name, 0) + found.rounded
            if found.bad is not None and found.bad.any():
                bad.append(BadColumn(field.name, np.flatnonzero(found.bad), partial(_text, cells)))
        return ParsedRows(table_of(arrays, schema, len(cells)), bad, lambda rows: rows + block.line)

    def to_read_step(self) -> dict[str, object]:
        raise InputError(
            "Open Data Fabric has no source of plain text",
            remedy="use csv with one column, or append the files",
        )


@dataclass(frozen=True, slots=True)
class _Whole:
    """All of a file is one record."""

    def whole(self, text: bytes, *, final: bool) -> int:
        return len(text) if final else 0

    def first(self, text: bytes) -> int:
        return len(text)

    def lines(self, text: bytes) -> int:
        return count_lines(text)


def lines_of(text: bytes) -> pa.Array:
    r"""The lines of a text as bytes, without their ends.

    >>> lines_of(b"a\r\n\rb").to_pylist()
    [b'a', b'', b'b']
    """
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not text.endswith(b"\n"):
        text += b"\n"
    array = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(array == 10)
    offsets = np.concatenate([[0], ends - np.arange(len(ends))]).astype(np.int32)
    values = array[array != 10].tobytes()
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def _text(cells: pa.Array, rows: RowNumbers) -> list[str | None]:
    return [cell.decode("utf-8", "replace") for cell in cells.take(pa.array(rows)).to_pylist()]
