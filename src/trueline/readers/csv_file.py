"""One file of comma-separated text: its header, its blocks, its cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from trueline.errors import SchemaError
from trueline.limits import DEFAULT, Limits
from trueline.readers.blocks import RecordBlock, blocks, count_lines
from trueline.readers.parts import WHOLE, Part
from trueline.readers.records import Dialect
from trueline.readers.source import Source
from trueline.readers.stream import TextStream


@dataclass(frozen=True, slots=True)
class CsvColumns:
    """Which cells of a record are wanted: for each field its position in the file, or None."""

    names: tuple[str, ...]
    schema: pa.Schema
    places: tuple[int | None, ...]

    @property
    def width(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class CsvText:
    """How the text of a file is laid out."""

    dialect: Dialect
    header: bool = True
    names: tuple[str, ...] | None = None
    skip_lines: int = 0
    block_bytes: int = 0
    limits: Limits = DEFAULT

    def open(
        self, stream: TextStream, source: Source, part: Part = WHOLE
    ) -> tuple[tuple[str, ...] | None, Iterator[RecordBlock]]:
        """The names of the columns, or None where the file has none, and the blocks after the header."""
        skip = 0 if part.start else self.skip_lines
        size, limit, ends = self.block_bytes, self.limits.record_bytes, part.stop is None
        found = blocks(stream, source, self.dialect, size=size, limit=limit, skip=skip, ends=ends)
        if part.start:
            return part.names, found
        if not self.header:
            return self.names, found
        for block in found:
            begin = self._header_end(block.text)
            if begin is not None:
                at, end, rest = begin
                line = block.line + count_lines(block.text[:at])
                self.limits.check_columns(source.path, self.dialect.width(block.text[at:end]), line)
                names = self.names or self._names(block.text[at:end], source)
                return names, _behind(block, rest, found)
        return self.names or (), iter(())

    def _header_end(self, text: bytes) -> tuple[int, int, int] | None:
        """Begin and end of the first record that is not an empty line, and the begin of the next."""
        return next((record for record in self.dialect.records(text) if record[1] > record[0]), None)

    def _names(self, record: bytes, source: Source) -> tuple[str, ...]:
        try:
            cells = [cell.decode() for cell in self.dialect.split(record)]
        except UnicodeDecodeError:
            raise SchemaError(
                f"{source.path}: the header is not valid in the encoding given",
                remedy="give encoding=, for example 'cp1252' or 'utf-16'",
                path=source.path,
            ) from None
        names = tuple(cell or f"column_{number}" for number, cell in enumerate(cells, start=1))
        counted = Counter(names)
        twice = next((name for name, count in counted.items() if count > 1), None)
        if twice is not None:
            raise SchemaError(
                f"{source.path}: the header has the column {twice!r} twice",
                remedy="give the columns other names with names=[...]",
                path=source.path,
                column=twice,
            )
        return names


def _behind(block: RecordBlock, rest: int, more: Iterator[RecordBlock]) -> Iterator[RecordBlock]:
    """The blocks after the header; lines keep their numbers."""
    if rest < len(block.text):
        yield RecordBlock(block.text[rest:], block.line + count_lines(block.text[:rest]))
    yield from more


@dataclass(slots=True)
class Habits:
    """What the blocks so far were like; only ever decides which way is tried first."""

    as_text: dict[int, int] = field(default_factory=dict)
    zoned: set[int] = field(default_factory=set)

    def trusts(self, column: int) -> bool:
        """Whether Arrow may give the column its type while it parses."""
        left = self.as_text.get(column, 0)
        if left:
            self.as_text[column] = left - 1
        return not left

    def distrust(self, column: int, *, blocks: int = 8) -> None:
        """Read the column as text for some blocks: one failed attempt costs a block parsed twice."""
        self.as_text[column] = blocks

    def zone(self, column: int, *, zoned: bool) -> None:
        """Remember whether the times of a column name their zone."""
        if zoned != (column in self.zoned):
            self.zoned ^= {column}
            self.as_text.pop(column, None)
