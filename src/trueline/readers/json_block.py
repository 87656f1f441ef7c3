"""One block of JSON lines to typed columns.

Arrow reads what is plain; a part of a block that it refuses, or that it might
read against the rules, is read again line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json

from trueline.limits import CELLS
from trueline.readers import json_values
from trueline.readers.batch import LINE, BadColumn, ParsedRows, ReadStats, RowNumbers, table_of
from trueline.readers.blocks import RecordBlock
from trueline.readers.cells import Cells, convert, is_strict
from trueline.readers.json_values import MAX_DEPTH, NotAnObject
from trueline.readers.rules import CellRules

# Lines in which Arrow failed are tried again in so many parts, twice, before Python reads them.
_PARTS = 16
# Arrow takes Inf and -NaN, which Python does not.
_WORDS = re.compile(rb"[:,\[]\s*-?(?:Inf|NaN)")
# Half a surrogate pair is not valid text; some versions of Arrow's parser let it through.
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_NOTHING = pa.schema([("\0", pa.null())])


class LineParser:
    """Parses the blocks of one file of JSON lines."""

    def __init__(self, rules: CellRules, schema: pa.Schema, *, typed: bool = True) -> None:
        self._rules = rules
        self._schema = schema
        self._plan = [_reading(field.type) for field in schema] if typed else [None]
        self._fast = typed and all(kind is not None for kind in self._plan)
        self._asked = (
            pa.schema([(field.name, kind) for field, kind in zip(schema, self._plan, strict=True)])
            if self._fast and len(schema)
            else _NOTHING
        )

    def pieces(self, block: RecordBlock, stats: ReadStats) -> Iterator[ParsedRows]:
        """Type the lines of a block; lines of white space are not rows."""
        lines = _Lines(block)
        # A line may lack any of the columns: so many lines together that their cells fit.
        step = max(1, CELLS // max(len(self._schema), 1))
        for start in range(0, len(lines), step):
            yield from self._pieces(lines, start, min(start + step, len(lines)), 0, stats)

    def _pieces(
        self, lines: _Lines, start: int, stop: int, tries: int, stats: ReadStats
    ) -> Iterator[ParsedRows]:
        if start == stop:
            return
        piece = self._quick(lines, start, stop, stats) if self._fast else None
        if piece is not None:
            yield piece
            return
        if not self._fast or tries == 2 or stop - start < _PARTS:
            yield self._slow(lines, start, stop, stats)
            return
        step = -(-(stop - start) // _PARTS)
        for at in range(start, stop, step):
            yield from self._pieces(lines, at, min(at + step, stop), tries + 1, stats)

    def _quick(self, lines: _Lines, start: int, stop: int, stats: ReadStats) -> ParsedRows | None:
        text = lines.text(start, stop)
        if not is_plain(text, stop - start):
            return None
        try:
            table = arrow_json.read_json(
                pa.BufferReader(text),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=self._asked, unexpected_field_behavior="ignore"
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if table.num_rows != stop - start:
            return None
        found = []
        for field in self._schema:
            array = table.column(field.name).combine_chunks()
            cells = Cells(array) if array.type == field.type else convert(array, field.type, self._rules)
            if array.type == field.type and not is_strict(array):
                return None
            found.append(cells)
        return self._piece(lines, start, found, [], stats, rows=stop - start)

    def _slow(self, lines: _Lines, start: int, stop: int, stats: ReadStats) -> ParsedRows:
        rows: list[dict[str, Any]] = []
        broken = []
        for number in range(start, stop):
            try:
                rows.append(json_values.parse(lines.line(number)))
            except NotAnObject:
                broken.append(number - start)
                rows.append({})
        found = [
            json_values.column(
                [row.get(field.name) for row in rows], field.type, self._rules, fast=self._fast
            )
            for field in self._schema
        ]
        return self._piece(lines, start, found, broken, stats, rows=stop - start)

    def _piece(
        self, lines: _Lines, start: int, found: list[Cells], broken: list[int], stats: ReadStats, *, rows: int
    ) -> ParsedRows:
        bad = []
        for field, cells in zip(self._schema, found, strict=True):
            if cells.rounded:
                stats.rounded[field.name] = stats.rounded.get(field.name, 0) + cells.rounded
            if cells.bad is not None and cells.bad.any():
                text = partial(_cell_text, lines, start, field.name)
                bad.append(BadColumn(field.name, np.flatnonzero(cells.bad), text))
        if broken:
            bad.append(BadColumn(LINE, np.array(broken, np.int64), partial(_line_text, lines, start)))
        table = table_of([cells.array for cells in found], self._schema, rows)
        return ParsedRows(table, bad, partial(_line_numbers, lines, start))


class _Lines:
    """The lines of a block that are more than white space."""

    def __init__(self, block: RecordBlock) -> None:
        self._text = block.text
        self._first = block.line
        array = np.frombuffer(block.text, np.uint8)
        ends = np.flatnonzero(array == 10)
        if not block.text.endswith(b"\n"):
            ends = np.append(ends, len(block.text))
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
        self.numbers: RowNumbers = np.arange(len(starts), dtype=np.int64)
        # A line that begins with a bracket is not white space; only the others are checked.
        doubtful = np.flatnonzero(array[np.minimum(starts, len(array) - 1)] != 123)
        blank = [at for at in doubtful.tolist() if not block.text[starts[at] : ends[at]].strip(b" \t\r")]
        if blank:
            self.numbers = np.delete(self.numbers, blank)
        self._starts, self._ends = starts[self.numbers], ends[self.numbers]

    def __len__(self) -> int:
        return len(self.numbers)

    def line(self, number: int) -> bytes:
        return self._text[self._starts[number] : self._ends[number]]

    def text(self, start: int, stop: int) -> bytes:
        """Some lines, without those of white space between them, line ends alike."""
        at, end = self._starts[start], self._ends[stop - 1]
        dense = self.numbers[stop - 1] - self.numbers[start] == stop - 1 - start
        text = self._text[at:end] if dense else b"\n".join(self.line(each) for each in range(start, stop))
        return text.replace(b"\r\n", b"\n").removesuffix(b"\r")

    def physical(self, rows: RowNumbers) -> RowNumbers:
        return np.asarray(self._first + self.numbers[rows], np.int64)


def is_plain(text: bytes, lines: int) -> bool:
    """Whether Arrow reads exactly these lines as rows, if it reads them at all.

    Between two whole objects, and never inside one, there is `}` line end `{`:
    so when every line end is of this kind, each line holds whole objects, and
    as many rows as lines means one object per line.
    """
    if not (text.startswith(b"{") and text.endswith(b"}")):
        return False
    if text.count(b"}\n{") != lines - 1 or not _is_utf8(text):
        return False
    if (b"\\u" in text and _HALF.search(text)) or _has_words(text):
        return False
    return text.count(b"{") + text.count(b"[") == lines or _deepest(text) <= MAX_DEPTH


def _has_words(text: bytes) -> bool:
    # A pattern alone takes as long as all the rest of the parsing.
    return (b"Inf" in text or b"NaN" in text) and _WORDS.search(text) is not None


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _deepest(text: bytes) -> int:
    """A bound on the nesting of any line: its opening brackets."""
    array = np.frombuffer(text, np.uint8)
    opens = np.flatnonzero((array == 123) | (array == 91))
    at = np.searchsorted(opens, np.flatnonzero(array == 10))
    return int(np.diff(np.concatenate([[0], at, [len(opens)]])).max())


def _reading(kind: pa.DataType) -> pa.DataType | None:
    """The type Arrow is asked for: the one wanted, or text to be converted; None if neither works."""
    types = pa.types
    if (
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
    ):
        return kind
    if types.is_float32(kind) or types.is_float64(kind) or types.is_null(kind):
        return kind
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return pa.string()
    if types.is_decimal128(kind):
        return kind
    if types.is_struct(kind) and kind.num_fields:
        return kind if all(_reading(field.type) == field.type for field in kind) else None
    if types.is_list(kind):
        return kind if _reading(kind.value_type) == kind.value_type else None
    return None


def _cell_text(lines: _Lines, start: int, name: str, rows: RowNumbers) -> list[str | None]:
    found = [json_values.parse(lines.line(start + row)).get(name) for row in rows.tolist()]
    texts = [str(value) if isinstance(value, str) else json_values.written(value) for value in found]
    return [text.encode("utf-8", "replace").decode() for text in texts]


def _line_text(lines: _Lines, start: int, rows: RowNumbers) -> list[str | None]:
    return [lines.line(start + row).decode("utf-8", "replace").rstrip("\r") for row in rows.tolist()]


def _line_numbers(lines: _Lines, start: int, rows: RowNumbers) -> RowNumbers:
    return lines.physical(rows + start)
