r"""Where objects begin and end in JSON that does not have one object per line.

A file of JSON is either lines, each of them a record, or values: arrays, whose elements are records, and
objects that follow each other or go over several lines. The beginning of a file shows which it is. Values
are cut where brackets outside of strings close, so a file is never held as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from trueline.errors import BrokenFile
from trueline.limits import record_too_long
from trueline.readers.blocks import RecordBlock, zero_byte
from trueline.readers.source import Source
from trueline.readers.stream import Readable

# So much of a file is looked at first; where no value ends in it, twice as much, up to the longest record.
WINDOW: Final = 1 << 16
_BLANK: Final = b" \t\r\n"
_IS_SEPARATOR: Final = np.isin(np.arange(256), list(_BLANK + b","))
_ON_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")
_ARRAY: Final = re.compile(rb"\s*\[\s*[\[{\]]")

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ValueBlock(RecordBlock):
    """Some records that are not lines: where each begins and ends, and whether an array is open before."""

    starts: Places
    ends: Places
    inside: bool


class Ahead:
    """A stream of which the beginning was read to look at it."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._front = b""

    def look(self, size: int) -> bytes:
        """Return the first `size` bytes, fewer only where the stream ends before."""
        while len(self._front) < size and (more := self._stream.read(size - len(self._front))):
            self._front += more
        return self._front[:size]

    def read(self, size: int) -> bytes:
        """Give at most `size` bytes more, those that were looked at first; nothing at the end."""
        if not self._front:
            return self._stream.read(size)
        text, self._front = self._front[:size], self._front[size:]
        return text


def has_lines(stream: Ahead, limit: int) -> bool:
    r"""Say whether every line of a file is a record of its own, as far as its beginning shows.

    >>> from io import BytesIO
    >>> files = b'{"a":1}\n{"a":2}', b'{\n"a":1}', b'[{"a":1}]'
    >>> [has_lines(Ahead(BytesIO(text)), 99) for text in files]
    [True, False, False]
    """
    size = min(WINDOW, max(limit, 1))
    while True:
        text = stream.look(size)
        known = _shown(text, final=len(text) < size or size >= limit)
        if known is not None:
            return known
        size = min(2 * size, limit)


def _shown(text: bytes, *, final: bool) -> bool | None:
    """What a beginning shows; None where more has to be seen."""
    begin = text.lstrip(_BLANK)
    if begin[:1] not in (b"{", b"["):
        return True if begin or final else None
    if _ARRAY.match(text):
        return False
    found = _brackets(text, 0)
    starts, ends = (each.tolist() for each in found.groups(0))
    for number, (start, end) in enumerate(zip(starts, ends, strict=False)):
        if text[start:end].strip(b"{} ") == b"" and number + 1 < len(ends):
            continue  # an object of nothing is written on one line everywhere
        beside = starts[number + 1 : number + 2] and not text[end : starts[number + 1]].strip(b" \t\r,")
        return not ((beside or b"\n" in text[start:end]) and _is_json(text[start:end]))
    return True if final else None


def _is_json(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


# --- values -------------------------------------------------------------------------------


def value_blocks(
    stream: Readable, source: Source, *, size: int, limit: int, inside: bool = False, ends: bool = True
) -> Iterator[ValueBlock]:
    """Cut a stream of values into blocks of whole records, within a bounded buffer.

    It may begin `inside` an array, and more may follow it in the file (not `ends`).
    """
    size = max(1, min(size, limit))
    line, text, ahead, final = 1, b"", stream.read(size), False
    while not final:
        # One chunk ahead, to know the end; growing with what is left over keeps long records linear.
        more, ahead = ahead, stream.read(max(size, len(text) // 2)) if ahead else b""
        final = not ahead
        text += more
        if b"\0" in more:
            raise zero_byte(source, line + text.count(b"\n", 0, text.index(b"\0")))
        cut = _cut(text, inside=inside, final=final)
        if cut.stray is not None:
            raise _broken(source, line + text.count(b"\n", 0, cut.stray), "a bracket closes that none opened")
        _refuse_long(source, text, line, cut, limit)
        if cut.end:
            yield ValueBlock(text[: cut.end], line, cut.starts, cut.ends, inside)
            line += text.count(b"\n", 0, cut.end)
            text, inside = text[cut.end :], cut.inside
    if (inside and ends) or text.strip(_BLANK):
        blank = len(text) - len(text.lstrip(_BLANK))
        line += text.count(b"\n", 0, blank)
        raise _broken(source, line, "the array or object that is open there does not end")


def _refuse_long(source: Source, text: bytes, line: int, cut: _Cut, limit: int) -> None:
    long = np.flatnonzero(cut.ends - cut.starts > limit)
    at, length = (int(cut.starts[long[0]]), 0) if len(long) else (cut.end, len(text) - cut.end)
    if len(long) or length > limit:
        raise record_too_long(source.path, line + text.count(b"\n", 0, at), limit, length or limit + 1)


def _broken(source: Source, line: int, what: str) -> BrokenFile:
    return BrokenFile(
        f"{source.path} is not whole JSON: {what} (line {line})",
        remedy="fetch the file again: it may be truncated",
        path=source.path,
        line=line,
    )


class _Cut(NamedTuple):
    """Records of a text, how much of it they are, whether an array is open there, and a bracket too many."""

    starts: Places
    ends: Places
    end: int
    inside: bool
    stray: int | None


def _cut(text: bytes, *, inside: bool, final: bool) -> _Cut:
    """Find the records of a text that begins between two of them, `inside` an array or outside of any."""
    found = _brackets(text, int(inside))
    opens, closes = found.outermost()
    edges: list[tuple[Places, Places]] = []  # where records, with white space around them, begin and end
    at, array = 0, inside
    for begin, stop in zip(opens, closes, strict=True):
        if begin is not None:
            edges.append(_between(at, begin))
            at, array = begin, text[begin : begin + 1] == b"["
        if array:
            first = at if begin is None else at + 1
            commas = found.commas(first, len(text) if stop is None else stop)
            at = int(commas[-1]) + 1 if len(commas) else first
            edges.append((np.concatenate([[first], commas[:-1] + 1])[: len(commas)], commas))
        if stop is None:
            break
        edges.append(_between(at, stop if array else stop + 1))
        at, array = stop + 1, False
    is_open = bool(opens) and closes[-1] is None
    if final and not is_open:
        # What is behind the last value is not one.
        edges.append(_between(at, len(text)))
        at = len(text)
    starts, ends = _stripped(text, edges)
    return _Cut(starts, ends, at, is_open and array, found.stray)


def _between(start: int, end: int) -> tuple[Places, Places]:
    return np.array([start], np.int64), np.array([end], np.int64)


def _stripped(text: bytes, edges: list[tuple[Places, Places]]) -> tuple[Places, Places]:
    """Take white space and separators from both ends of records; what is nothing else is not a record."""
    if not edges:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    starts, ends = (np.concatenate([each[side] for each in edges]) for side in (0, 1))
    solid = np.flatnonzero(~_IS_SEPARATOR[np.frombuffer(text, np.uint8)])
    first, behind = np.searchsorted(solid, starts), np.searchsorted(solid, ends)
    there = first < behind
    return solid[first[there]], solid[behind[there] - 1] + 1


class _Brackets(NamedTuple):
    """The brackets outside of strings, how deep it is behind each, and the commas between elements."""

    depth: int
    places: Places
    depths: npt.NDArray[np.int32]
    separators: Places
    stray: int | None

    def groups(self, base: int) -> tuple[Places, Places]:
        """Where values at a depth begin and, of those that end, where they end."""
        before = np.concatenate([np.array([self.depth], np.int32), self.depths[:-1]])[: len(self.depths)]
        starts = self.places[(before == base) & (self.depths == base + 1)]
        ends = self.places[(before == base + 1) & (self.depths == base)] + 1
        return starts, ends

    def outermost(self) -> tuple[list[int | None], list[int | None]]:
        """Where outermost values open (None: before this text) and close (None: behind it)."""
        starts, ends = self.groups(0)
        opens: list[int | None] = [*([None] if self.depth else []), *starts.tolist()]
        closes: list[int | None] = [int(end) - 1 for end in ends]
        return opens, closes + [None] * (len(opens) - len(closes))

    def commas(self, start: int, stop: int) -> Places:
        """The commas between the elements of an array that reaches from one place to another."""
        low, high = np.searchsorted(self.separators, [start, stop])
        return self.separators[low:high]


def _brackets(text: bytes, depth: int) -> _Brackets:
    array = np.frombuffer(text, np.uint8)
    quoted = _quoted(text, array)
    opening = (array == 123) | (array == 91)
    closing = (array == 125) | (array == 93)
    places = np.flatnonzero((opening | closing) & ~quoted)
    # Small numbers: a record of many megabytes may be made of brackets alone.
    depths = np.cumsum(np.where(opening[places], np.int8(1), np.int8(-1)), dtype=np.int32) + np.int32(depth)
    stray: int | None = None
    if len(depths) and depths.min() < 0:
        first = int(np.argmax(depths < 0))
        stray = int(places[first])
        places, depths = places[:first], depths[:first]
    gaps = np.diff(np.concatenate([[0], places, [len(text)]]))
    between = np.repeat(np.concatenate([[depth == 1], depths == 1]), gaps)
    return _Brackets(depth, places, depths, np.flatnonzero((array == 44) & ~quoted & between), stray)


def _quoted(text: bytes, array: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Which bytes are inside of strings."""
    quotes = array == 34
    if b'\\"' in text:
        at = np.flatnonzero(quotes)
        plain = np.where(array != 92, np.arange(len(array), dtype=np.int32), np.int32(-1))
        last = np.maximum.accumulate(plain)
        behind = at[at > 0]
        # A quote behind an odd number of backslashes does not end its string.
        escaped = behind[(behind - 1 - last[behind - 1]) % 2 == 1]
        quotes[escaped] = False
    return np.logical_xor.accumulate(quotes)


# --- records, however a block holds them ------------------------------------------------------


class Records:
    """The records of a block, lines or values; lines of white space are not records."""

    def __init__(self, block: RecordBlock) -> None:
        self._text = block.text
        self._first = block.line
        self._lined: bytes | None = None
        if isinstance(block, ValueBlock):
            self._starts, self._ends = block.starts, block.ends
            ends = np.flatnonzero(np.frombuffer(block.text, np.uint8) == 10)
            self._numbers: Places = np.searchsorted(ends, block.starts).astype(np.int64)
            self._lined = _on_one_line(block.text)
        else:
            self._starts, self._ends, self._numbers = _lines(block.text)

    def __len__(self) -> int:
        return len(self._starts)

    def record(self, number: int) -> bytes:
        """The text of a record."""
        return self._text[self._starts[number] : self._ends[number]]

    def joined(self, start: int, stop: int) -> bytes:
        """Some records, one on each line."""
        if self._lined is not None:
            return self._put_together(self._lined, start, stop)
        at, end = self._starts[start], self._ends[stop - 1]
        dense = self._numbers[stop - 1] - self._numbers[start] == stop - 1 - start
        text = self._text[at:end] if dense else b"\n".join(self.record(each) for each in range(start, stop))
        return text.replace(b"\r\n", b"\n").removesuffix(b"\r")

    def _put_together(self, text: bytes, start: int, stop: int) -> bytes:
        """Put values, which have no line ends, one on each line."""
        starts, ends = self._starts[start:stop], self._ends[start:stop]
        if (starts[1:] == ends[:-1]).any():  # nothing between two of them that could be a line end
            pairs = zip(starts.tolist(), ends.tolist(), strict=True)
            return b"\n".join(text[begin:end] for begin, end in pairs)
        first, last = int(starts[0]), int(ends[-1])
        array = np.frombuffer(text, np.uint8)[first:last].copy()
        array[ends[:-1] - first] = 10
        edges = np.zeros(last - first + 1, np.int8)
        edges[starts - first] = 1
        edges[ends[:-1] - first + 1] = -1
        kept = np.cumsum(edges[:-1], dtype=np.int8).view(np.bool_)
        return array[kept].tobytes()

    def physical(self, rows: Places) -> Places:
        """The lines of the file that records begin on."""
        return np.asarray(self._first + self._numbers[rows], np.int64)


def _on_one_line(text: bytes) -> bytes:
    """Take out the line ends between values; those inside strings stay, so that their values stay broken."""
    if b"\n" not in text and b"\r" not in text:
        return text
    array = np.frombuffer(text, np.uint8)
    inside = np.flatnonzero(_quoted(text, array) & ((array == 10) | (array == 13)))
    lined = text.translate(_ON_ONE_LINE)
    if not len(inside):
        return lined
    broken = np.frombuffer(lined, np.uint8).copy()
    broken[inside] = array[inside]
    return broken.tobytes()


def _lines(text: bytes) -> tuple[Places, Places, Places]:
    """Where the lines of a text that are more than white space begin and end, and their numbers."""
    array = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(array == 10)
    if not text.endswith(b"\n"):
        ends = np.append(ends, len(text))
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
    numbers: Any = np.arange(len(starts), dtype=np.int64)
    # A line that begins with a bracket is not white space; only the others are checked.
    doubtful = np.flatnonzero(array[np.minimum(starts, len(array) - 1)] != 123)
    blank = [at for at in doubtful.tolist() if not text[starts[at] : ends[at]].strip(b" \t\r")]
    if blank:
        numbers = np.delete(numbers, blank)
    return starts[numbers], ends[numbers], numbers
