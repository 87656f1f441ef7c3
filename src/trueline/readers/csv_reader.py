"""Comma-separated text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Self

import pyarrow as pa

from trueline.errors import InputError, SchemaError
from trueline.readers.batch import BATCH_ROWS, MAX_LISTED, ParsedRows, Reading, ReadStats
from trueline.readers.blocks import BLOCK, RecordBlock, count_lines
from trueline.readers.csv_block import BlockParser
from trueline.readers.csv_file import CsvColumns, CsvText
from trueline.readers.inference import guess
from trueline.readers.parts import PART_BYTES, WHOLE, Part, cut_text
from trueline.readers.reader import (
    NOTHING,
    SAMPLE_BYTES,
    SAMPLE_CELLS,
    SAMPLE_ROWS,
    Reader,
    chosen,
    guessed,
)
from trueline.readers.records import Dialect
from trueline.readers.rules import FALSE, TRUE, CellRules, check_readable
from trueline.readers.source import Source
from trueline.readers.stream import can_be_cut, encoding_name, opened

# Blocks of only empty lines that are kept while searching for the first row.
_BLANK_BLOCKS = 4
_STEP = {
    "separator": "separator",
    "encoding": "encoding",
    "quote": "quote",
    "escape": "escape",
    "header": "header",
    "dateFormat": "date_format",
    "timestampFormat": "timestamp_format",
}


@dataclass(frozen=True)
class CsvReader(Reader):
    r"""Reads comma-separated text; `docs/reference/readers.md` says exactly how.

    >>> reader = CsvReader()
    >>> file = Source.memory(b"city,temp\nBern,7\nBasel,warm\n")
    >>> batch = next(reader.read(file, pa.schema({"city": pa.string(), "temp": pa.int64()})))
    >>> batch.table.to_pydict(), batch.bad.to_pylist()[0]["text"]
    ({'city': ['Bern', 'Basel'], 'temp': [7, None]}, 'warm')
    """

    kind: ClassVar[str] = "csv"

    separator: str = ","
    quote: str | None = '"'
    escape: str | None = None
    header: bool = True
    names: tuple[str, ...] | None = None
    skip_lines: int = 0
    encoding: str = "utf-8"
    nulls: tuple[str, ...] = ("",)
    true_values: tuple[str, ...] = TRUE
    false_values: tuple[str, ...] = FALSE
    decimal: str = "."
    date_format: str | None = None
    timestamp_format: str | None = None
    timezone: str = "UTC"
    max_listed: int = MAX_LISTED
    max_columns: int | None = None
    max_record_bytes: int | None = None
    block_bytes: int = BLOCK

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding", encoding_name(self.encoding))
        if self.names is not None:
            object.__setattr__(self, "names", tuple(self.names))
        marks = [mark for mark in (self.separator, self.quote, self.escape) if mark is not None]
        if any(len(mark) != 1 or not mark.isascii() or mark in "\r\n\0" for mark in marks):
            raise InputError(
                "separator, quote or escape is not one ASCII character", remedy="give one, for example ';'"
            )
        if len(set(marks)) < len(marks):
            raise InputError("separator, quote and escape are not all different", remedy="change one of them")
        _ = self.limits
        if self.block_bytes < 1 or min(self.skip_lines, self.max_listed) < 0:
            raise InputError(
                "block_bytes, skip_lines or max_listed is too small", remedy="give a larger number"
            )
        rules = self.rules
        for name in ("nulls", "true_values", "false_values"):
            object.__setattr__(self, name, getattr(rules, name))

    @property
    def rules(self) -> CellRules:
        """How cells become values."""
        return CellRules(
            self.nulls,
            self.true_values,
            self.false_values,
            self.decimal,
            self.date_format,
            self.timestamp_format,
            self.timezone,
        )

    def read(
        self,
        source: Source,
        schema: pa.Schema,
        *,
        columns: Sequence[str] | None = None,
        batch_rows: int = BATCH_ROWS,
        part: Part = WHOLE,
        typed: bool = True,
    ) -> Reading:
        """Read one file; `typed=False` goes the slow way, with the same result."""
        check_readable(schema, "a CSV file")
        wanted, stats = chosen(schema, columns), ReadStats()
        pieces = self._pieces(source, schema, wanted, stats, part, typed=typed)
        return Reading(pieces, stats, batch_rows=batch_rows, max_listed=self.max_listed)

    def _pieces(
        self,
        source: Source,
        schema: pa.Schema,
        wanted: pa.Schema,
        stats: ReadStats,
        part: Part,
        *,
        typed: bool,
    ) -> Iterator[ParsedRows]:
        with opened(source, self.encoding, part) as stream:
            names, blocks = self._text.open(stream, source, part)
            if names == ():
                return
            layout = self._layout(source, schema, wanted, names, stats)
            parser = BlockParser(self._text.dialect, self.rules, layout, typed=typed)
            for block in blocks:
                yield from parser.pieces(block, stats)
                if part.stop is not None:
                    stats.lines = block.line - 1 + count_lines(block.text)

    def parts(self, source: Source, *, size: int = PART_BYTES) -> list[Part]:
        """Cut text in UTF-8 behind lines where the next records have as many cells as the first."""
        if not can_be_cut(source, self.encoding, size):
            return [WHOLE]
        with opened(source) as stream:
            names, blocks = self._text.open(stream, source)
            width = len(names or ()) or next((self._width(block) for block in blocks), 0)
            behind = stream.taken
        begin = partial(self._text.dialect.begin, width=width)
        return cut_text(source, size, begin, names=names, behind=behind)

    def _width(self, block: RecordBlock) -> int:
        """How many cells the first row of a block has."""
        dialect = self._text.dialect
        filled = (block.text[at:end] for at, end, _ in dialect.records(block.text) if end > at)
        return next((dialect.width(record) for record in filled), 0)

    @property
    def _text(self) -> CsvText:
        quote = self.quote.encode() if self.quote else None
        escape = self.escape.encode() if self.escape else None
        dialect = Dialect(self.separator.encode(), quote, escape)
        return CsvText(dialect, self.header, self.names, self.skip_lines, self.block_bytes, self.limits)

    def _layout(
        self,
        source: Source,
        schema: pa.Schema,
        wanted: pa.Schema,
        names: tuple[str, ...] | None,
        stats: ReadStats,
    ) -> CsvColumns:
        """Find the columns in the file: by name, or by position where the file has no names."""
        stats.headless = not self.header
        found = names if names is not None else tuple(schema.names)
        place = {name: number for number, name in enumerate(found)}
        stats.absent += [name for name in schema.names if name not in place]
        stats.unknown += [name for name in found if schema.get_field_index(name) < 0]
        if len(schema) and len(stats.absent) == len(schema):
            raise SchemaError(
                f"{source.path} has none of the columns {_some(schema.names)}; its header is {_some(found)}",
                remedy=_header_remedy(found, schema.names, self.separator),
                path=source.path,
            )
        return CsvColumns(found, wanted, tuple(place.get(name) for name in wanted.names))

    def infer(
        self, sources: Sequence[Source], *, rows: int = SAMPLE_ROWS, known: pa.Schema = NOTHING
    ) -> pa.Schema:
        """The narrowest types that lose nothing of the first rows; see `docs/reference/readers.md`."""
        sample: dict[str, list[pa.Array]] = {}
        first: tuple[str, ...] | None = None
        for source in sources:
            if rows <= 0:
                break
            with opened(source, self.encoding) as stream:
                names, blocks = self._text.open(stream, source)
                names = names if names is not None else first
                if names is None:
                    names, blocks = self._numbered(blocks, source)
                    first = names
                for name in names or ():
                    sample.setdefault(name, [])
                rows -= self._take(names or (), blocks, sample, rows)
        return guessed(sample, known, lambda cells: guess(cells, self.rules))

    def _take(
        self,
        names: tuple[str, ...],
        blocks: Iterator[RecordBlock],
        sample: dict[str, list[pa.Array]],
        rows: int,
    ) -> int:
        """Add cells of at most `rows` rows to a sample; returns how many."""
        parser = BlockParser(self._text.dialect, self.rules, CsvColumns(names, pa.schema([]), ()))
        taken = size = 0
        for arrays in (part for block in (blocks if names else ()) for part in parser.raw(block)):
            some = [array[: rows - taken] for array in arrays]
            for name, array in zip(names, some, strict=True):
                sample[name].append(array)
            taken += len(some[0])
            size += sum(array.nbytes for array in some)
            if taken >= rows or size >= SAMPLE_BYTES or taken * len(names) >= SAMPLE_CELLS:
                # A sample is held as a whole, with all the files that are sampled.
                return max(taken, rows)
        return taken

    def _numbered(
        self, blocks: Iterator[RecordBlock], source: Source
    ) -> tuple[tuple[str, ...] | None, Iterator[RecordBlock]]:
        """Names for the cells of the first row of a file without a header."""
        passed = []
        for block in blocks:
            passed.append(block)
            if width := self._width(block):
                self.limits.check_columns(source.path, width, block.line)
                return tuple(f"column_{number}" for number in range(1, width + 1)), chain(passed, blocks)
            if len(passed) > _BLANK_BLOCKS:
                passed = passed[-1:]
        return None, iter(passed)

    def to_read_step(self) -> dict[str, object]:
        step = {theirs: getattr(self, ours) for theirs, ours in _STEP.items()}
        if len(self.nulls) == 1:
            step["nullValue"] = self.nulls[0]
        return {"kind": "Csv", **{name: value for name, value in step.items() if value is not None}}

    @classmethod
    def from_read_step(cls, step: Mapping[str, Any]) -> Self:
        if step.get("kind") != "Csv":
            super().from_read_step(step)
        options = {ours: step[theirs] for theirs, ours in _STEP.items() if step.get(theirs) is not None}
        # The specification's default, unlike ours, is a file without a header.
        options.setdefault("header", False)
        if step.get("nullValue") is not None:
            options["nulls"] = (step["nullValue"],)
        return cls(**options)


def _some(names: Sequence[str], limit: int = 6) -> str:
    shown = ", ".join(repr(name[:40]) for name in names[:limit])
    return f"{shown}, … ({len(names)} in all)" if len(names) > limit else shown


def _header_remedy(found: Sequence[str], names: Sequence[str], separator: str) -> str:
    for other in ";\t|, ":
        if other != separator and any(other in name for name in found):
            parts = {part.strip() for name in found for part in name.split(other)}
            if parts & set(names):
                return f"give separator={other!r}"
    return "check separator, encoding and header (header=False where the first line is data)"
