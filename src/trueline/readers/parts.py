"""One file in parts that are read side by side, and what they say put together again.

Where a record of comma-separated text begins cannot be seen from the middle of a file: a line may be
inside quotes. So a cut is a guess, and reading proves it. The first part begins with a record. A part that
begins with one and is read to its last byte as whole records shows that the next begins with one too. If
all parts are read without an error, every cut was right; if one is not, the file is read as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import BinaryIO, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from trueline.readers.batch import ReadStats
from trueline.readers.source import Source

# Every part learns the habits of its file again, which costs about one block of 2 MiB parsed twice.
PART_BYTES: Final = 64 << 20
PART_ROWS: Final = 1 << 20
# How much text is read to guess where a record begins.
WINDOW: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a file: bytes of a text, rows of a Parquet file; up to its end where `stop` is None.

    `names` are the columns that the header at the start of the file names. `row` is the number of its first
    row where the rows before it were counted: then it begins with a record for certain. `inside` says
    whether an array of JSON is open at its start, where records are not lines.
    """

    start: int = 0
    stop: int | None = None
    names: tuple[str, ...] | None = None
    row: int | None = None
    inside: bool | None = None

    @property
    def ends(self) -> bool:
        """Whether its end is certainly the end of a record."""
        return self.stop is None or self.row is not None


WHOLE: Final = Part()


def cut_text(
    source: Source,
    size: int,
    begin: Callable[[bytes], int | None],
    *,
    names: tuple[str, ...] | None = None,
    behind: int = 0,
) -> list[Part]:
    """Cut a text about every `size` bytes; `begin` guesses where in a window a record begins.

    The first `behind` bytes, with what comes before the rows, are not cut.
    """
    total = source.size or 0
    places = [0]
    with closing(source.open()) as raw:
        for target in range(size, total - size // 2, size):
            raw.seek(target)
            found = begin(_read(raw, WINDOW))
            if found is not None and max(places[-1], behind) < target + found < total:
                places.append(target + found)
    stops: list[int | None] = [*places[1:], None]
    return [Part(start, stop, names if start else None) for start, stop in zip(places, stops, strict=True)]


class CountedBlock(NamedTuple):
    """A block of a text as it was passed over: its bytes, its rows, whether an array is open at its start."""

    size: int
    rows: int
    inside: bool | None = None


def counted_parts(
    source: Source, blocks: Sequence[CountedBlock], count: int, *, names: tuple[str, ...] | None = None
) -> list[Part]:
    """Make at most `count` parts of a text whose blocks were counted; together they are the file."""
    at, row = (source.size or 0) - sum(block.size for block in blocks), 0
    step = -(-len(blocks) // max(count, 1)) or 1
    found = [Part(row=0)]
    for number, block in enumerate(blocks):
        if number and number % step == 0:
            found[-1] = replace(found[-1], stop=at)
            found.append(Part(at, None, names, row, block.inside))
        elif not number:
            found[-1] = replace(found[-1], inside=block.inside)
        at, row = at + block.size, row + block.rows
    return found if len(found) > 1 else [WHOLE]


def after_line(window: bytes) -> int | None:
    r"""Where a record begins if every ``\n`` ends one.

    >>> after_line(b"b\nc"), after_line(b"c")
    (2, None)
    """
    return window.find(b"\n") + 1 or None


class Stretch:
    """The bytes of a part, as a stream."""

    def __init__(self, raw: BinaryIO, part: Part) -> None:
        raw.seek(part.start)
        self._raw = raw
        self._left = None if part.stop is None else part.stop - part.start

    def read(self, size: int) -> bytes:
        """Give at most `size` bytes more; nothing at the end of the part."""
        if self._left is None:
            return self._raw.read(size) or b""
        data = self._raw.read(min(size, self._left)) or b""
        self._left -= len(data)
        return data


def followed_by(before: ReadStats, part: ReadStats, *, max_listed: int) -> ReadStats:
    """Add the totals of the next part to those of the parts before it."""
    both = before + part
    both.first_row = before.first_row if before.rows else part.first_row
    both.listed = min(both.listed, max_listed)
    # A key of JSON may come in one part only.
    both.absent = [name for name in before.absent if name in part.absent]
    return both


def in_the_file(cells: pa.Table, before: ReadStats) -> pa.Table:
    """Number the rows and lines of a part's bad cells from the start of the file.

    >>> cells = pa.table({"row": [0], "line": [1]})
    >>> in_the_file(cells, ReadStats(rows=7, lines=8)).to_pylist()
    [{'row': 7, 'line': 9}]
    """
    for name, count in (("row", before.rows), ("line", before.lines)):
        place = cells.schema.get_field_index(name)
        cells = cells.set_column(place, name, pc.add(cells[name], pa.scalar(count, pa.int64())))
    return cells


def _read(raw: BinaryIO, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := raw.read(size - len(data))):
        data += more
    return data
