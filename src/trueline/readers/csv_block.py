"""One block of comma-separated text to typed columns.

Arrow parses and, where it can, types in one go. What Arrow refuses, and the
few things it would let through against the rules, are read again as text and
typed by `cells.convert`, which is the definition; the result is the same
either way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from trueline.limits import CELLS
from trueline.readers.batch import EXTRA, BadColumn, ParsedRows, ReadStats, RowNumbers, table_of
from trueline.readers.blocks import RecordBlock, count_lines
from trueline.readers.cells import Cells, by_the_rules, convert, is_strict
from trueline.readers.csv_file import CsvColumns, Habits
from trueline.readers.records import Dialect, lines_before
from trueline.readers.rules import CellRules, is_text
from trueline.readers.stream import BOM

_COLUMN = re.compile(r"In CSV column #([0-9]+)")


class Ragged(NamedTuple):
    """Rows with too few cells (and how many they have), and rows with too many (and what is too much)."""

    short: RowNumbers
    widths: npt.NDArray[np.int64]
    long: RowNumbers
    extra: list[bytes]


class BlockParser:
    """Parses the blocks of one file; keeps nothing but habits between them."""

    def __init__(self, dialect: Dialect, rules: CellRules, layout: CsvColumns, *, typed: bool = True) -> None:
        self._dialect = dialect
        self._rules = rules
        self._layout = layout
        self._typed = typed
        self._habits = Habits()
        self._names = [str(number) for number in range(layout.width)]
        self._doubtful = {place for place, kind in self._kinds() if _has_value(rules, kind)}
        # A cell with a null spelling is null; in a text column only where it is not quoted.
        self._convert = {
            "strings_can_be_null": True,
            "quoted_strings_can_be_null": False,
            "null_values": list(rules.nulls),
            "true_values": list(rules.true_values),
            "false_values": list(rules.false_values),
            "decimal_point": rules.decimal,
            "timestamp_parsers": [arrow_csv.ISO8601],
        }

    def pieces(self, block: RecordBlock, stats: ReadStats) -> Iterator[ParsedRows]:
        """Type the cells of a block; the stats get what a piece does not hold."""
        wanted = [place for place in self._layout.places if place is not None]
        odd, quoted = has_hexadecimal(block.text), not self._dialect.plain(block.text)
        types = {
            place: None if quoted and place in self._doubtful else self._guess(place, kind, hexadecimal=odd)
            for place, kind in self._kinds()
        }
        read = None
        # Full rows have no more cells than bytes; columns that the file lacks have, where rows are many.
        if count_lines(block.text) * len(self._layout.schema) <= CELLS:
            read = self._parsed(block.text, types) or self._parsed(block.text, dict.fromkeys(wanted))
        if read is not None:
            yield self._piece(block, block.text, read, None, stats)
            return
        for part in self._parts(block):
            text, ragged = self._mended(part.text)
            read = self._parsed(text, types) or self._parsed(text, dict.fromkeys(wanted))
            assert read is not None, "a repaired block has rows of one width"
            yield self._piece(part, text, read, ragged, stats)

    def _parts(self, block: RecordBlock) -> Iterator[RecordBlock]:
        """Cut a block so that rows short of many cells do not fill the memory when they get them."""
        step = max(1, CELLS // max(self._layout.width, len(self._layout.schema)))
        starts, _ = self._rows(block.text)
        begins = [0, *starts[step::step].tolist(), len(block.text)]
        for at, end in pairwise(begins):
            before = int(lines_before(block.text, np.array([at]))[0])
            yield RecordBlock(block.text[at:end], block.line + before)

    def _piece(
        self, block: RecordBlock, text: bytes, read: _Read, ragged: Ragged | None, stats: ReadStats
    ) -> ParsedRows:
        arrays, bad = [], []
        for field, place in zip(self._layout.schema, self._layout.places, strict=True):
            if place is None:
                arrays.append(pa.nulls(read.rows, field.type))
                continue
            cells, raw = self._column(text, read, place, field.type)
            if cells.rounded:
                stats.rounded[field.name] = stats.rounded.get(field.name, 0) + cells.rounded
            stats.undecodable += cells.undecodable
            array, wrong = cells.array, np.flatnonzero(cells.bad) if cells.bad is not None else None
            if ragged is not None:
                array, wrong = _cut_off(array, wrong, ragged, place)
            arrays.append(array)
            if wrong is not None and len(wrong):
                bad.append(BadColumn(field.name, wrong, partial(self._text, text, place, raw, ragged)))
        if ragged is not None:
            stats.short += len(ragged.short)
            if len(ragged.long):
                bad.append(BadColumn(EXTRA, ragged.long, partial(_extra, ragged)))
        table = table_of(arrays, self._layout.schema, read.rows)
        return ParsedRows(table, bad, partial(self._lines, block, read.rows))

    def raw(self, block: RecordBlock) -> Iterator[list[pa.Array]]:
        """All cells of a block as bytes, some rows at a time; null where a row lacks them."""
        every = dict.fromkeys(range(self._layout.width))
        read = self._parsed(block.text, every)
        if read is not None:
            yield [read.column(place) for place in every]
            return
        for part in self._parts(block):
            text, ragged = self._mended(part.text)
            read = self._parsed(text, every)
            assert read is not None, "a repaired block has rows of one width"
            yield [_cut_off(read.column(place), None, ragged, place)[0] for place in every]

    def _kinds(self) -> list[tuple[int, pa.DataType]]:
        pairs = zip(self._layout.places, self._layout.schema.types, strict=True)
        return [(place, kind) for place, kind in pairs if place is not None]

    def _guess(self, place: int, kind: pa.DataType, *, hexadecimal: bool) -> pa.DataType | None:
        """The type Arrow may try, None where it has to be text first."""
        types = pa.types
        if not self._typed or not self._habits.trusts(place):
            return None
        if types.is_integer(kind):
            return None if hexadecimal else kind
        if types.is_timestamp(kind) and not self._rules.timestamp_format:
            if kind.tz is None or place in self._habits.zoned:
                return kind
            return pa.timestamp(kind.unit) if self._rules.timezone == "UTC" else None
        easy = (types.is_boolean, types.is_float32, types.is_float64, types.is_time, types.is_decimal128)
        text_like = (types.is_string, types.is_large_string)
        if any(test(kind) for test in (*easy, *text_like)):
            return kind
        return kind if types.is_date(kind) and not self._rules.date_format else None

    def _parsed(self, text: bytes, types: dict[int, pa.DataType | None]) -> _Read | None:
        """Parse a block, None if rows are ragged or a cell is not of the type tried."""
        if text.startswith(BOM):
            # Arrow drops a byte order mark at the start of any buffer.
            text = BOM + text
        only = [str(place) for place in sorted(types)] or ["0"]
        kinds = {str(place): kind or pa.binary() for place, kind in types.items()} or {"0": pa.binary()}
        try:
            table = arrow_csv.read_csv(
                pa.py_buffer(text),
                read_options=arrow_csv.ReadOptions(
                    use_threads=False, column_names=self._names, block_size=len(text) + 1
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._dialect.separator.decode(),
                    quote_char=self._dialect.quote.decode() if self._dialect.quote else False,
                    escape_char=self._dialect.escape.decode() if self._dialect.escape else False,
                    newlines_in_values=not self._dialect.plain(text),
                    ignore_empty_lines=self._layout.width > 1,
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=kinds, include_columns=only, **self._convert
                ),
            )
        except pa.ArrowInvalid as error:
            if found := _COLUMN.search(str(error)):
                self._habits.distrust(int(found[1]))
            return None
        return _Read(table)

    def _column(
        self, text: bytes, read: _Read, place: int, kind: pa.DataType
    ) -> tuple[Cells, pa.Array | None]:
        """The values of a column, and its cells as bytes where they were needed."""
        array = read.column(place)
        if not pa.types.is_binary(array.type):
            typed = self._checked(array, kind)
            if typed is not None:
                return Cells(typed), None
            self._habits.distrust(place)
            again = self._parsed(text, {place: None})
            assert again is not None, "the same rows parse again"
            array = again.column(place)
        cells = (convert if self._typed else by_the_rules)(array, kind, self._rules)
        if cells.bad is not None or cells.rounded:
            self._habits.distrust(place)
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            self._learn_zone(place, array)
        return cells, array

    def _learn_zone(self, place: int, cells: pa.Array) -> None:
        first = next((cell for cell in cells[:64].to_pylist() if cell), b"")
        self._habits.zone(place, zoned=first.endswith(b"Z") or b"+" in first or first.count(b"-") > 2)

    def _checked(self, array: pa.Array, kind: pa.DataType) -> pa.Array | None:
        """A column Arrow typed, None where it was less strict than the rules."""
        if not is_strict(array):
            return None
        return array if array.type == kind else array.view(kind)

    def _mended(self, text: bytes) -> tuple[bytes, Ragged]:
        """Give every row of a block the right number of cells, and report what was changed."""
        width, dialect = self._layout.width, self._dialect
        starts, ends = self._rows(text)
        widths = dialect.widths(text, starts, ends)
        short, long = np.flatnonzero(widths < width), np.flatnonzero(widths > width)
        out, extra, at = [], [], 0
        for row in np.union1d(short, long).tolist():
            record = text[starts[row] : ends[row]]
            if widths[row] < width:
                record += dialect.separator * (width - int(widths[row]))
            else:
                cut = dialect.cut(record, width)
                extra.append(record[cut + 1 :])
                record = record[:cut]
            out += [text[at : starts[row]], record, b"\n"]
            at = int(starts[row + 1]) if row + 1 < len(starts) else len(text)
        return b"".join([*out, text[at:]]), Ragged(short, widths[short], long, extra)

    def _rows(self, text: bytes) -> tuple[RowNumbers, RowNumbers]:
        """Begin and end of every row: an empty line is one only where a row is one cell."""
        starts, ends = self._dialect.lex(text)
        if self._layout.width == 1:
            return starts, ends
        filled = ends > starts
        return starts[filled], ends[filled]

    def _text(
        self, text: bytes, place: int, cells: pa.Array | None, ragged: Ragged | None, rows: RowNumbers
    ) -> list[str | None]:
        """The original text of cells, for reports of bad cells."""
        missing = set(_missing(ragged, place).tolist()) if ragged is not None else set()
        if missing.issuperset(rows.tolist()):
            return [""] * len(rows)
        if cells is None:
            read = self._parsed(text, {place: None})
            assert read is not None, "the same rows parse again"
            cells = read.column(place)
        found = cells.take(pa.array(rows)).to_pylist()
        return [
            "" if row in missing or cell is None else cell.decode("utf-8", "replace")
            for row, cell in zip(rows.tolist(), found, strict=True)
        ]

    def _lines(self, block: RecordBlock, rows: int, chosen: RowNumbers) -> RowNumbers:
        """The lines of the file on which rows begin."""
        starts, _ = self._rows(block.text)
        assert len(starts) == rows, "the rows of a block are its records"
        return block.line + lines_before(block.text, starts[chosen])


def _has_value(rules: CellRules, kind: pa.DataType) -> bool:
    """Whether a null spelling is a value too: in quotes Arrow would take it for that, which only text is."""
    words = pa.array([word for word in rules.nulls if word], pa.string())
    if is_text(kind) or not len(words):
        return False
    return bool(by_the_rules(words, kind, replace(rules, nulls=())).array.null_count < len(words))


def has_hexadecimal(text: bytes) -> bool:
    """Whether 0x occurs anywhere: Arrow takes 0xFF for a number, and for int8 even for -1."""
    if b"x" not in text and b"X" not in text:
        return False
    # A search for two bytes of which one is in every number takes ten times as long.
    array = np.frombuffer(text, np.uint8)
    at = np.flatnonzero((array == 120) | (array == 88))
    return bool((array[at[at > 0] - 1] == 48).any())


class _Read(NamedTuple):
    """What Arrow parsed."""

    table: Any

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def column(self, place: int) -> pa.Array:
        column = self.table.column(str(place))
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _missing(ragged: Ragged, place: int) -> RowNumbers:
    return ragged.short[ragged.widths <= place]


def _cut_off(
    array: pa.Array, wrong: RowNumbers | None, ragged: Ragged, place: int
) -> tuple[pa.Array, RowNumbers | None]:
    """Cells that short rows lack are null, and bad."""
    gone = _missing(ragged, place)
    if not len(gone):
        return array, wrong
    mask = np.zeros(len(array), np.bool_)
    mask[gone] = True
    array = pc.if_else(pa.array(mask), pa.scalar(None, array.type), array)
    return array, np.union1d(gone, wrong) if wrong is not None else gone


def _extra(ragged: Ragged, rows: RowNumbers) -> list[str | None]:
    at = np.searchsorted(ragged.long, rows)
    return [ragged.extra[number].decode("utf-8", "replace") for number in at.tolist()]
