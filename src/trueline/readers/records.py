"""The records of comma-separated text: where they end, how many cells they have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trueline.readers.blocks import count_lines, last_line_end

Positions = npt.NDArray[np.int64]
_LINE_END = rb"(?:\r\n|\n|\r)"
# Lines that are tried as the begin of a record, and records after it that are checked.
_TRIES = 256
_ALIKE = 16


@dataclass(frozen=True, slots=True)
class Dialect:
    r"""How cells and records are separated.

    A quote opens a quoted cell only at the start of the cell; inside, a
    doubled quote is one quote; after the closing quote the rest of the cell
    is taken literally (``"a"b`` is ``ab``). The escape, where there is one,
    takes the meaning from the next byte, inside quotes and outside.
    """

    separator: bytes
    quote: bytes | None = b'"'
    escape: bytes | None = None

    def plain(self, text: bytes) -> bool:
        """Whether every line of a text is a record."""
        return not (self.quote and self.quote in text) and not (self.escape and self.escape in text)

    def whole(self, text: bytes, *, final: bool) -> int:
        if self.plain(text):
            return len(text) if final else last_line_end(text, final=False)
        end = self._by_parity(text, final=final)
        if end is not None:
            return end
        for _, stop in self._records(text, final=final):
            end = stop
        return end or 0

    def first(self, text: bytes) -> int:
        found = _patterns(self).record.match(text)
        # A quote that is never closed ends the match before the cell it opens, not behind the record.
        ends = found is not None and text[found.end() : found.end() + 1] in (b"\n", b"\r")
        return found.end() if found is not None and ends else len(text)

    def lines(self, text: bytes) -> int:
        return count_lines(text)

    def _by_parity(self, text: bytes, *, final: bool) -> int | None:
        """Find the end by counting quotes, where every quote opens, closes or doubles; else None."""
        if self.quote is None or (self.escape and self.escape in text):
            return None
        array = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(array == self.quote[0])
        opening, closing = quotes[0::2], quotes[1::2]
        around = np.zeros(256, np.bool_)
        around[[self.separator[0], self.quote[0], 10, 13]] = True
        before = around[array[opening[opening > 0] - 1]]
        after = around[array[closing[closing < len(text) - 1] + 1]]
        if not (before.all() and after.all()):
            return None
        if final and len(quotes) % 2 == 0:
            return len(text)
        ends = np.flatnonzero((array == 10) | (array == 13))
        if not final and text.endswith(b"\r"):
            ends = ends[:-1]
        outside = ends[np.searchsorted(quotes, ends) % 2 == 0]
        return int(outside[-1]) + 1 if len(outside) else 0

    def _records(self, text: bytes, *, final: bool) -> Iterator[tuple[int, int]]:
        """Begin and end, line end included, of every whole record."""
        record = _patterns(self).ending if final else _patterns(self).ended
        at = 0
        while at < len(text) and (found := record.match(text, at)):
            yield at, found.end()
            at = found.end()

    def records(self, text: bytes, *, final: bool = True) -> Iterator[tuple[int, int, int]]:
        """Begin and end of every record, and the begin of the next, one by one; empty lines too."""
        for at, stop in self._records(text, final=final):
            yield at, self._trim(text, at, stop), stop

    def begin(self, window: bytes, width: int) -> int | None:
        r"""Guess where in the middle of a text a record begins: behind a line, so that records are alike.

        >>> Dialect(b",").begin(b"of text\nand more\n3,4\n5,6\n", width=2)
        17
        """
        at = 0
        for _ in range(_TRIES):
            at = window.find(b"\n", at) + 1
            if not at:
                return None
            text = window[at:]
            alike = [
                self.width(text[begin:end]) == width
                for begin, end, _ in islice(self.records(text, final=False), _ALIKE)
                if end > begin
            ]
            if alike and alike[0] and 2 * sum(alike) > len(alike):
                return at
        return None

    def lex(self, text: bytes) -> tuple[Positions, Positions]:
        """Begin and end, line ends excluded, of all records of a block, empty lines too."""
        if self.plain(text):
            return _lines(text)
        pairs = [(at, stop) for at, stop in self._records(text, final=True)]
        starts = np.array([at for at, _ in pairs], np.int64)
        ends = np.array([self._trim(text, at, stop) for at, stop in pairs], np.int64)
        return starts, ends

    def _trim(self, text: bytes, at: int, stop: int) -> int:
        found = _patterns(self).record.match(text, at, stop)
        assert found is not None
        return found.end()

    def split(self, record: bytes) -> list[bytes]:
        r"""Take a record apart.

        >>> Dialect(b",", quote=b"'").split(b"1,'a,''b',")
        [b'1', b"a,'b", b'']
        """
        return [self._value(cell) for cell in self._cells(record)]

    def widths(self, text: bytes, starts: Positions, ends: Positions) -> Positions:
        """How many cells each record of a text has."""
        if not self.plain(text):
            widths = [
                self.width(text[at:end]) for at, end in zip(starts.tolist(), ends.tolist(), strict=True)
            ]
            return np.array(widths, np.int64)
        marks = np.flatnonzero(np.frombuffer(text, np.uint8) == self.separator[0])
        found = np.searchsorted(marks, ends) - np.searchsorted(marks, starts) + 1
        return found.astype(np.int64)

    def width(self, record: bytes) -> int:
        """How many cells a record has."""
        if self.plain(record):
            return record.count(self.separator) + 1
        return sum(1 for _ in self._cells(record))

    def cut(self, record: bytes, width: int) -> int:
        """Length of the first `width` cells of a record."""
        at = 0
        for count, cell in enumerate(self._cells(record), start=1):
            at += len(cell)
            if count == width:
                break
            at += 1
        return at

    def _cells(self, record: bytes) -> Iterator[bytes]:
        cell, at = _patterns(self).cell, 0
        while found := cell.match(record, at):
            yield found.group()
            if found.end() >= len(record):
                return
            at = found.end() + 1

    def _value(self, cell: bytes) -> bytes:
        out, quoted, at = bytearray(), False, 0
        if self.quote and cell.startswith(self.quote):
            quoted, at = True, 1
        while at < len(cell):
            byte, at = cell[at : at + 1], at + 1
            if byte == self.escape:
                byte, at = cell[at : at + 1], at + 1
            elif quoted and byte == self.quote:
                if cell[at : at + 1] != self.quote:
                    quoted = False
                    continue
                at += 1
            out += byte
        return bytes(out)


class _Patterns(NamedTuple):
    cell: re.Pattern[bytes]
    record: re.Pattern[bytes]
    ended: re.Pattern[bytes]
    ending: re.Pattern[bytes]


@lru_cache(maxsize=64)
def _patterns(dialect: Dialect) -> _Patterns:
    separator = re.escape(dialect.separator)
    escape = re.escape(dialect.escape) if dialect.escape else b""
    bare = rb"[^" + separator + rb"\r\n" + escape + rb"]*+"
    if escape:
        bare += rb"(?:" + escape + rb"." + bare + rb")*+"
    cell = bare
    if dialect.quote:
        quote = re.escape(dialect.quote)
        inner = rb"[^" + quote + escape + rb"]*+"
        again = quote + quote + (rb"|" + escape + rb"." if escape else b"")
        quoted = quote + inner + rb"(?:(?:" + again + rb")" + inner + rb")*+" + quote
        cell = rb"(?:" + quoted + bare + rb"|(?!" + quote + rb")" + bare + rb")"
    record = cell + rb"(?:" + separator + cell + rb")*+"
    half = rb"(?:\r\n|\n|\r(?=.))"
    return _Patterns(
        re.compile(cell, re.DOTALL),
        re.compile(record, re.DOTALL),
        re.compile(record + half, re.DOTALL),
        re.compile(record + rb"(?:" + _LINE_END + rb"|\Z)", re.DOTALL),
    )


def _lines(text: bytes) -> tuple[Positions, Positions]:
    array = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero((array == 10) | (array == 13)).astype(np.int64)
    starts = ends + 1
    if len(ends) and b"\r\n" in text:
        pair = np.flatnonzero(
            (array[ends[:-1]] == 13) & (array[ends[1:]] == 10) & (ends[1:] == ends[:-1] + 1)
        )
        starts = np.delete(starts, pair)
        ends = np.delete(ends, pair + 1)
    starts = np.concatenate([np.zeros(1, np.int64), starts])
    if starts[-1] == len(text):
        return starts[:-1], ends
    return starts, np.concatenate([ends, np.array([len(text)], np.int64)])


def lines_before(text: bytes, positions: Positions) -> Positions:
    """Count the line ends before each position; positions are after whole line ends."""
    _, ends = _lines(text)
    return np.searchsorted(ends, positions, side="left").astype(np.int64)
