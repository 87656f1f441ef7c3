"""A Parquet file read within the memory limits, whatever its footer claims (guard:G8).

A few hundred bytes can expand to gigabytes: a dictionary of one long text and a run of a million times
"that one", a run of a billion nulls in one list, a page of zeros. So before rows are decoded the headers
of their pages are read, and only as many rows are decoded together as fit.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from trueline.limits import DEPTH, PAGES, Limits
from trueline.readers.parquet_pages import (
    DELTA_BYTE_ARRAY,
    PLAIN_DICTIONARY,
    RLE_DICTIONARY,
    LongestRecord,
    Malformed,
    Page,
    codecs,
    longest_value,
    pages,
    read_at,
    repetition_levels,
    schema_shape,
    unpacked,
)

_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# Columns of larger files are read piece by piece; of smaller ones a column is one read.
_LARGE: Final = 64 << 20
_BUFFER: Final = 1 << 20
# Some writers do not count the header of the dictionary; Arrow allows for as many bytes.
_SLACK: Final = 100
_FOOTER_PART: Final = 4
_THRIFT_ELEMENTS: Final = 1_000_000
_MAGIC: Final = b"PAR1"


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column of values: its position, its path, and the bytes of a value without text."""

    place: int
    path: str
    width: int
    is_text: bool
    levels: int

    @classmethod
    def of(cls, place: int, column: Any) -> _Leaf:
        physical, text = column.physical_type, column.physical_type == "BYTE_ARRAY"
        width = column.length if physical == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS.get(physical, 8)
        if column.logical_type.type == "DECIMAL":
            width = max(width, 32)
        marks = 2 * (column.max_definition_level > 0) + 2 * (column.max_repetition_level > 0)
        return cls(place, column.path, width + marks, text, column.max_repetition_level)


class BoundedFile:
    """An open Parquet file; `batches` gives the rows of a group, few at a time where they are large."""

    def __init__(
        self,
        raw: BinaryIO,
        path: str,
        limits: Limits,
        *,
        metadata: pq.FileMetaData | None = None,
        checksums: bool = False,
    ) -> None:
        self._raw = raw if _is_near(raw) else cast("BinaryIO", _Ahead(raw))
        self._path = path
        self._limits = limits
        self._size = raw.seek(0, io.SEEK_END)
        elements = _THRIFT_ELEMENTS if metadata is not None else self._check_footer()
        raw.seek(0)
        self._file = pq.ParquetFile(
            pa.PythonFile(self._raw, mode="r"),
            metadata=metadata,
            buffer_size=_BUFFER if self._size > _LARGE else 0,
            pre_buffer=False,
            page_checksum_verification=checksums,
            thrift_container_size_limit=elements,
        )
        self.metadata: pq.FileMetaData = self._file.metadata
        self.num_row_groups: int = self.metadata.num_row_groups
        self._columns: dict[tuple[int, int], _Column] = {}

    def _check_footer(self) -> int:
        """Refuse a footer that would cost Arrow too much memory; return how long a list in it may be."""
        end = read_at(self._raw, max(self._size - 8, 0), 8)
        length = int.from_bytes(end[:4], "little")
        if len(end) < 8 or end[4:] != _MAGIC or length > self._size - 12:
            return _THRIFT_ELEMENTS  # not a Parquet file: Arrow has the best message
        if length > self._limits.batch_bytes // _FOOTER_PART:
            raise self._limits.too_large(self._path, "its footer", length * _FOOTER_PART)
        columns, depth = schema_shape(read_at(self._raw, self._size - 8 - length, length))
        self._limits.check_columns(self._path, columns)
        if depth > DEPTH:
            raise Malformed(f"its columns are nested {depth:,} levels deep; the limit is {DEPTH}")
        return min(_THRIFT_ELEMENTS, max(length, 1))

    @cached_property
    def schema_arrow(self) -> pa.Schema:
        """The columns as Arrow has them."""
        return self._file.schema_arrow

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def rows(self, group: int) -> int:
        """How many rows a group has: what the footer says, checked against the pages of a column."""
        said = int(self.metadata.row_group(group).num_rows)
        if said <= self._size:
            return said  # no more rows than bytes: counting them is cheap
        flat = next((leaf for leaf in self._leaves if not leaf.levels), None)
        if flat is not None and self._column(group, flat).total < said:
            raise Malformed(f"the footer says that row group {group} has {said:,} rows; it has fewer")
        return said

    def batches(
        self, group: int, names: Sequence[str], rows: int, *, besides: int = 0, threads: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns of a group, at most `rows` at a time, and fewer where they are large.

        `besides` is how many more bytes the caller adds to a row.
        """
        if not names:
            left = self.rows(group)
            size = max(1, min(rows, self._limits.batch_bytes // max(besides, 1)))
            while left > 0:
                yield pa.record_batch({"": pa.nulls(min(left, size))}).select([])
                left -= size
            return
        size = self.rows_at_once(group, names, rows, besides=besides)
        yield from self._file.iter_batches(size, row_groups=[group], columns=list(names), use_threads=threads)

    def all_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all columns of all groups."""
        for group in range(self.num_row_groups):
            yield from self.batches(group, self.schema_arrow.names, rows)

    def table(self) -> pa.Table:
        """All rows at once, if they fit."""
        names, found = self.schema_arrow.names, 0
        for group in range(self.num_row_groups):
            rows = self.rows(group)
            at_once = self.rows_at_once(group, names, max(rows, 1))
            found += -(-rows * self._limits.batch_bytes // at_once) if at_once < rows else 0
        if found:
            raise self._limits.too_large(self._path, "the table", found)
        return pa.Table.from_batches(self.all_batches(65_536), self.schema_arrow)

    def rows_at_once(self, group: int, names: Sequence[str], rows: int, *, besides: int = 0) -> int:
        """How many rows of a group, up to `rows`, can be decoded together."""
        wanted = set(names)
        leaves = [leaf for leaf in self._leaves if not wanted.isdisjoint(_prefixes(leaf.path))]
        if isinstance(self._raw, _Ahead):
            self._raw.hold([self._range(group, leaf) for leaf in leaves], self._limits.batch_bytes)
        columns = [self._column(group, leaf) for leaf in leaves]
        limit = self._limits.batch_bytes
        for column in columns:
            if column.largest > limit:
                raise self._limits.too_large(
                    self._path, f"a page of column {column.leaf.path!r}", column.largest
                )
        together = sum(column.open_bytes for column in columns)
        if together > PAGES * limit:
            what = f"the pages of {len(columns):,} columns that are open together"
            raise self._limits.too_large(self._path, what, -(-together // PAGES))
        nested = sum(1 for column in columns if column.leaf.levels)
        for column in columns:
            column.spare = limit // (4 * nested) if nested else 0
        most = max(1, min(rows, int(self.metadata.row_group(group).num_rows)))
        if self._fits(columns, most, besides):
            return most
        if not self._fits(columns, 1, besides):
            largest = max(columns, key=lambda column: column.decoded(1))
            found = sum(column.decoded(1) for column in columns) + besides
            what = f"one row (most of it column {largest.leaf.path!r})"
            raise self._limits.too_large(self._path, what, found)
        low, high = 1, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(columns, middle, besides) else (low, middle)
        return low

    def _fits(self, columns: Sequence[_Column], rows: int, besides: int) -> bool:
        limit = self._limits.batch_bytes
        if rows * besides + sum(column.decoded(rows) for column in columns) > limit:
            return False
        if rows == 1:
            return True  # pages as they are: they were weighed together
        usual = sum(column.usual_text(rows) for column in columns)
        return usual <= limit and sum(column.text(rows) for column in columns) <= PAGES * limit

    # --- columns ----------------------------------------------------------------

    @cached_property
    def _leaves(self) -> list[_Leaf]:
        schema = self.metadata.schema
        return [_Leaf.of(place, schema.column(place)) for place in range(self.metadata.num_columns)]

    def _range(self, group: int, leaf: _Leaf) -> tuple[int, int]:
        """Where the pages of a column begin and end, as Arrow sees it."""
        column = self.metadata.row_group(group).column(leaf.place)
        start, length = column.data_page_offset, column.total_compressed_size
        if column.has_dictionary_page and 0 < (column.dictionary_page_offset or 0) < start:
            start = column.dictionary_page_offset
        if min(start, length) < 0 or start + length > self._size:
            raise Malformed(f"the footer places column {leaf.path!r} beyond the end of the file")
        return start, min(start + length + _SLACK, self._size)

    def _column(self, group: int, leaf: _Leaf) -> _Column:
        known = self._columns.get((group, leaf.place))
        if known is None:
            if self._columns and next(iter(self._columns))[0] != group:
                self._columns.clear()
            values = self.metadata.row_group(group).column(leaf.place).num_values
            found = list(pages(self._raw, *self._range(group, leaf), values))
            known = _Column(self._raw, leaf, lambda: self._codec(group, leaf), found)
            self._columns[group, leaf.place] = known
        return known

    def _codec(self, group: int, leaf: _Leaf) -> str:
        found = self._codecs
        return found[group][leaf.place] if group < len(found) and leaf.place < len(found[group]) else ""

    @cached_property
    def _codecs(self) -> list[list[str]]:
        length = int.from_bytes(read_at(self._raw, self._size - 8, 4), "little")
        return codecs(read_at(self._raw, max(self._size - 8 - length, 0), length))


def _prefixes(path: str) -> Iterator[str]:
    """Names that select a column of values: its own, and those of the columns it is nested in.

    >>> list(_prefixes("a.list.element"))
    ['a.list.element', 'a.list', 'a']
    """
    while path:
        yield path
        path = path.rpartition(".")[0]


class _Column:
    """What the pages of one column in one group say; the largest that some of its rows can become."""

    def __init__(self, raw: BinaryIO, leaf: _Leaf, codec: Callable[[], str], found: list[Page]) -> None:
        self.leaf = leaf
        self.spare = 0
        self._raw, self._codec = raw, codec
        self._pages = [page for page in found if not page.is_dictionary]
        self._dictionary = next((page for page in found if page.is_dictionary), None)
        self.total = sum(page.values for page in self._pages)
        self._is_coded = any(page.encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY) for page in self._pages)
        # A text can be "as the one before, up to here, and then": as long as its page, each time.
        self._chained = max(
            (page.size for page in self._pages if page.encoding == DELTA_BYTE_ARRAY), default=0
        )
        self.largest = max((page.size for page in found), default=0)

    @property
    def open_bytes(self) -> int:
        """The bytes of the pages that are unpacked at a time: one, and the dictionary."""
        return max((page.size for page in self._pages), default=0) + (
            self._dictionary.size if self._dictionary else 0
        )

    def decoded(self, rows: int) -> int:
        """The most that so many rows take, without the text stored plainly in the pages."""
        values = self._values(rows)
        each = self.leaf.width
        if self.leaf.is_text:
            each += (self._longest if self._is_coded else 0) + self._chained
        return values * each

    def text(self, rows: int) -> int:
        """The most text that so many rows have stored plainly in pages."""
        if not self.leaf.is_text or not self._pages:
            return 0
        ends, sums = self._plain
        # The window that begins with the last value of a page, for each page.
        last = np.searchsorted(ends, ends - 1 + self._values(rows) - 1, side="right")
        return int((sums[np.minimum(last + 1, len(ends))] - sums[: len(ends)]).max())

    def usual_text(self, rows: int) -> int:
        """The text that so many rows have if all are alike."""
        if not self.leaf.is_text or not self.total:
            return 0
        return int(self._plain[1][-1]) * self._values(rows) // self.total

    def _values(self, rows: int) -> int:
        return min(self.total, rows * self._longest_record) if self.leaf.levels else min(self.total, rows)

    @cached_property
    def _plain(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where each page ends, in values, and the bytes of text before each."""
        coded = (PLAIN_DICTIONARY, RLE_DICTIONARY, DELTA_BYTE_ARRAY)
        sizes = [0 if page.encoding in coded else page.size for page in self._pages]
        ends = np.cumsum([page.values for page in self._pages], dtype=np.int64)
        return ends, np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])

    @cached_property
    def _longest(self) -> int:
        """The longest text of the dictionary."""
        page = self._dictionary
        if page is None:
            return 0
        if page.size <= 4 * page.values + 64:
            return max(page.size - 4 * page.values, 0)  # short, whichever it is
        data = unpacked(self._raw, page, self._codec())
        return page.size if data is None else longest_value(data, page.values)

    @cached_property
    def _longest_record(self) -> int:
        """How many values the longest record has; all of them where that would do."""
        each = self.leaf.width
        if self.leaf.is_text:
            each += (self._longest if self._is_coded else 0) + self._chained
        if self.total * each <= self.spare:
            return self.total
        counted = LongestRecord(self.leaf.levels.bit_length())
        for page in self._pages:
            levels = repetition_levels(self._raw, page, self._codec())
            if levels is None:
                return self.total
            counted.add(levels, page.values)
        return max(1, counted.longest)


# --- remote files ----------------------------------------------------------


def _is_near(raw: BinaryIO) -> bool:
    """Whether reading some bytes costs no request."""
    if isinstance(raw, io.BytesIO):
        return True
    try:
        raw.fileno()
    except (OSError, AttributeError):
        return False
    return True


class _Ahead(io.RawIOBase):
    """A file of which ranges are fetched at once and kept: page headers do not cost a request each."""

    def __init__(self, raw: BinaryIO) -> None:
        self._far = raw
        self._at = 0
        self._held: list[tuple[int, bytes]] = []

    def hold(self, ranges: Sequence[tuple[int, int]], most: int) -> None:
        """Fetch ranges and drop the earlier ones; a range too large to be kept is not fetched."""
        self._held = []
        joined: list[tuple[int, int]] = []
        for start, stop in sorted(ranges):
            if joined and start <= joined[-1][1] + _BUFFER // 16 and stop - joined[-1][0] <= most:
                joined[-1] = joined[-1][0], max(stop, joined[-1][1])
            else:
                joined.append((start, stop))
        for start, stop in joined:
            if stop - start <= most - sum(len(data) for _, data in self._held):
                self._held.append((start, read_at(self._far, start, stop - start)))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            self._at = self._far.seek(offset, io.SEEK_END)
        else:
            self._at = offset + (self._at if whence == io.SEEK_CUR else 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        for start, data in self._held:
            begin = self._at - start
            if size >= 0 and begin >= 0 and begin + size <= len(data):
                self._at += size
                return data[begin : begin + size]
        self._far.seek(self._at)
        found = self._far.read(size) or b""
        self._at += len(found)
        return found
