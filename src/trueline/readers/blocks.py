"""Text cut into blocks of whole records, within a bounded buffer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trueline.errors import BrokenFile
from trueline.limits import record_too_long
from trueline.readers.source import Source
from trueline.readers.stream import Readable

BLOCK = 1 << 21
# A `\r` at the end of what was read may be the first half of a line end.
_LINE_END = re.compile(rb"\r\n|\n|\r(?=.)", re.DOTALL)


class RecordEnds(Protocol):
    """Where records end."""

    def whole(self, text: bytes, *, final: bool) -> int:
        """Length of the longest beginning of `text` that is made of whole records."""
        ...

    def first(self, text: bytes) -> int:
        """Length of the first record without its line end; all of the text where it does not end in it."""
        ...

    def lines(self, text: bytes) -> int:
        """How many lines end in a text."""
        ...


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Some whole records, and the line (from 1) the first of them begins on."""

    text: bytes
    line: int


def blocks(
    stream: Readable,
    source: Source,
    cut: RecordEnds,
    *,
    size: int,
    limit: int,
    skip: int = 0,
    ends: bool = True,
) -> Iterator[RecordBlock]:
    """Cut a stream after its first `skip` lines; a record of more than `limit` bytes is an error.

    Where more follows in the file (not `ends`), the end of the stream ends no record.
    """
    size = max(1, min(size, limit))
    begin = _after(skip, stream, source, size=size, limit=limit) if skip else b""
    line, text, ahead = skip + 1, b"", begin or stream.read(size)
    final = False
    while not final:
        # One chunk ahead, to know the end; growing with what is left over keeps long records linear.
        more, ahead = ahead, stream.read(max(size, len(text) // 2)) if ahead else b""
        final = not ahead
        if b"\0" in more:
            raise zero_byte(source, line + cut.lines(text + more[: more.index(b"\0")]))
        text += more
        end = cut.whole(text, final=final and ends)
        if len(text) > limit and cut.first(text) > limit:
            raise record_too_long(source.path, line, limit, len(text))
        if end:
            block = RecordBlock(text[:end], line)
            yield block
            line += cut.lines(block.text)
            text = text[end:]
    if text:
        raise BrokenFile(
            f"{source.path} is broken: the record that begins on line {line} does not end",
            remedy="look for a quote that is opened and never closed, or give quote=None",
            path=source.path,
            line=line,
        )


def _after(skip: int, stream: Readable, source: Source, *, size: int, limit: int) -> bytes:
    """Drop the first lines; returns the text already read behind them."""
    text, line = b"", 1
    while more := stream.read(size):
        text += more
        while line <= skip and (found := _LINE_END.search(text)):
            text, line = text[found.end() :], line + 1
        if line > skip:
            return text
        if len(text) > limit:
            raise record_too_long(source.path, line, limit, len(text))
    return b""


def count_lines(text: bytes) -> int:
    r"""Count line ends: ``\n``, ``\r\n`` and ``\r``.

    >>> count_lines(b"a\nb\r\nc\rd")
    3
    """
    count = int(np.count_nonzero(np.frombuffer(text, np.uint8) == 10))
    if b"\r" in text:
        count += text.count(b"\r") - text.count(b"\r\n")
    return count


def last_line_end(text: bytes, *, final: bool) -> int:
    r"""Length of `text` up to and with its last line end; a ``\r`` at the very end may be half of one."""
    stop = len(text)
    if not final and text.endswith(b"\r"):
        stop -= 1
    return max(text.rfind(b"\n", 0, stop), text.rfind(b"\r", 0, stop)) + 1


@dataclass(frozen=True, slots=True)
class Lines:
    r"""Every line is a record; with `universal` a ``\r`` ends one too."""

    universal: bool = True

    def whole(self, text: bytes, *, final: bool) -> int:
        if final:
            return len(text)
        return last_line_end(text, final=False) if self.universal else text.rfind(b"\n") + 1

    def first(self, text: bytes) -> int:
        ends = [text.find(end) for end in ((b"\n", b"\r") if self.universal else (b"\n",))]
        return min((end for end in ends if end >= 0), default=len(text))

    def lines(self, text: bytes) -> int:
        return count_lines(text) if self.universal else text.count(b"\n")


def zero_byte(source: Source, line: int) -> BrokenFile:
    """The error of a zero byte, which no text has."""
    return BrokenFile(
        f"{source.path} is broken: a zero byte on line {line}",
        remedy="if it is text of two bytes a character, give encoding='utf-16'; else fetch the file again",
        path=source.path,
        line=line,
    )
