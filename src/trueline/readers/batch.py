"""What a reader returns: rows, the cells that were bad, and the totals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

BAD_CELLS = pa.schema(
    [("row", pa.int64()), ("line", pa.int64()), ("column", pa.string()), ("text", pa.string())]
)
EXTRA, LINE = "(extra)", "(line)"
BATCH_ROWS = 65_536
MAX_LISTED = 10_000
MAX_TEXT = 1_000

RowNumbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of one file, in its order.

    `start` is the row of the file the batch begins with; `bad` lists bad
    cells (row and line of the file, column, original text), the first
    10,000 of a file; how many there are is exact in the totals.
    """

    table: pa.RecordBatch
    bad: pa.RecordBatch
    start: int = 0


class BadColumn(NamedTuple):
    """The bad cells of one column of a piece: rows of the piece, and the text of some of them."""

    column: str
    rows: RowNumbers
    text: Callable[[RowNumbers], list[str | None]]


class ParsedRows(NamedTuple):
    """RowNumbers as a format makes them, before they are counted and cut into batches."""

    table: pa.RecordBatch
    bad: list[BadColumn]
    lines: Callable[[RowNumbers], RowNumbers] | None = None


@dataclass(frozen=True, slots=True)
class BadCounts:
    """How many cells of each column were bad, and what helps to say why.

    >>> BadCounts(rows=4, cells={"x": 3}).shares
    {'x': 0.75}
    """

    rows: int = 0
    cells: Mapping[str, int] = field(default_factory=dict)
    samples: Mapping[str, str] = field(default_factory=dict)
    short: int = 0
    undecodable: int = 0
    first_row: int = 0
    columns: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """All bad cells."""
        return sum(self.cells.values())

    @property
    def shares(self) -> dict[str, float]:
        """Bad cells per row, by column."""
        return {name: count / max(self.rows, 1) for name, count in self.cells.items()}


@dataclass(slots=True)
class ReadStats:
    """Totals of one file or, added up, of several; grows while a file is read.

    `bad` counts bad cells by column (`(extra)`: rows with too many cells,
    `(line)`: lines that are not a JSON object), `filled` cells that hold a value,
    `rounded` times that had more digits than their type, `short` rows with too
    few cells, `absent` columns the file does not have, `unknown` columns of
    the file that were not asked for. Where `headless` says that the file was
    read without a header, `first_row` counts the bad cells of its first row.
    `lines` counts the lines of a part that others follow.
    """

    rows: int = 0
    bad: dict[str, int] = field(default_factory=dict)
    filled: dict[str, int] = field(default_factory=dict)
    rounded: dict[str, int] = field(default_factory=dict)
    samples: dict[str, str] = field(default_factory=dict)
    short: int = 0
    undecodable: int = 0
    headless: bool = False
    first_row: int = 0
    listed: int = 0
    absent: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    lines: int = 0

    @property
    def counts(self) -> BadCounts:
        """The bad cells, for `looks_wrong` and for a limit on them."""
        return BadCounts(
            self.rows,
            dict(self.bad),
            dict(self.samples),
            self.short,
            self.undecodable,
            self.first_row,
            tuple(self.filled),
            tuple(name for name, count in self.filled.items() if not count and not self.bad.get(name)),
            tuple(self.absent),
            tuple(self.unknown),
        )

    def __add__(self, other: ReadStats) -> ReadStats:
        total = ReadStats.from_dict(self.to_dict())
        for each in fields(ReadStats):
            mine, theirs = getattr(total, each.name), getattr(other, each.name)
            if isinstance(mine, bool):
                setattr(total, each.name, mine or theirs)
            elif isinstance(mine, int):
                setattr(total, each.name, mine + theirs)
            elif each.name == "samples":
                setattr(total, each.name, {**theirs, **mine})
            elif isinstance(mine, dict):
                for name, count in theirs.items():
                    mine[name] = mine.get(name, 0) + count
            else:
                mine += [name for name in theirs if name not in mine]
        return total

    def to_dict(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ReadStats:
        """Undo `to_dict`."""
        stats = cls()
        for name, value in values.items():
            setattr(stats, name, value.copy() if isinstance(value, dict | list) else value)
        return stats

    def count(self, piece: ParsedRows) -> None:
        """Add the rows and bad cells of a piece."""
        for bad in piece.bad:
            self.bad[bad.column] = self.bad.get(bad.column, 0) + len(bad.rows)
            if self.headless and self.rows == 0:
                self.first_row += int(np.count_nonzero(bad.rows == 0))
            if bad.column not in self.samples and len(bad.rows):
                self.samples[bad.column] = (bad.text(bad.rows[:1])[0] or "")[:MAX_TEXT]
        for name, column in zip(piece.table.schema.names, piece.table.columns, strict=True):
            self.filled[name] = self.filled.get(name, 0) + len(column) - column.null_count
        self.rows += piece.table.num_rows


class Reading(Iterator[Batch]):
    """The batches of one file; `stats` holds the totals of what was read so far.

    A broken file raises while it is read: what was returned before is not
    the whole file, so commit only after the iteration ended.
    """

    def __init__(
        self,
        pieces: Iterator[ParsedRows],
        stats: ReadStats,
        *,
        batch_rows: int = BATCH_ROWS,
        max_listed: int = MAX_LISTED,
        start: int = 0,
    ) -> None:
        self.stats = stats
        self._batches = _batches(pieces, stats, max(1, batch_rows), max_listed, start)

    def __iter__(self) -> Reading:
        return self

    def __next__(self) -> Batch:
        return next(self._batches)


def _batches(
    pieces: Iterator[ParsedRows], stats: ReadStats, batch_rows: int, max_listed: int, start: int
) -> Iterator[Batch]:
    for piece in pieces:
        bad = _listed(piece, max_listed - stats.listed, start)
        stats.listed += bad.num_rows
        stats.count(piece)
        rows = bad["row"].to_numpy()
        for at in range(0, piece.table.num_rows, batch_rows):
            table = piece.table.slice(at, batch_rows)
            low, high = np.searchsorted(rows, [start + at, start + at + table.num_rows])
            yield Batch(table, bad.slice(low, high - low), start + at)
        start += piece.table.num_rows


def _listed(piece: ParsedRows, room: int, start: int) -> pa.RecordBatch:
    """List bad cells by row and column, at most as many as there is room for."""
    if room <= 0 or not piece.bad:
        return pa.RecordBatch.from_pylist([], BAD_CELLS)
    # Rows up to the one at which the room is full, so that wide tables of bad cells are not listed first.
    size = piece.table.num_rows
    per_row = sum(np.bincount(bad.rows, minlength=size) for bad in piece.bad)
    last = int(np.searchsorted(np.cumsum(per_row), room))
    chosen = [bad.rows[bad.rows <= last] for bad in piece.bad]
    rows = np.concatenate(chosen)
    column = np.repeat(np.arange(len(chosen)), [len(some) for some in chosen])
    order = np.argsort(rows, kind="stable")[:room]
    rows, column = rows[order], column[order]
    texts: list[str | None] = [None] * len(rows)
    for number in np.unique(column).tolist():
        at = np.flatnonzero(column == number)
        for place, text in zip(at.tolist(), piece.bad[number].text(rows[at]), strict=True):
            texts[place] = text
    lines = pa.array(piece.lines(rows), pa.int64()) if piece.lines else pa.nulls(len(rows), pa.int64())
    return pa.RecordBatch.from_arrays(
        [
            pa.array(rows + start, pa.int64()),
            lines,
            pa.array([piece.bad[number].column for number in column.tolist()], pa.string()),
            pc.utf8_slice_codeunits(pa.array(texts, pa.string()), 0, MAX_TEXT),
        ],
        schema=BAD_CELLS,
    )


def table_of(arrays: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Make a record batch that knows its rows even without a column.

    >>> table_of([], pa.schema([]), 3).num_rows
    3
    """
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
