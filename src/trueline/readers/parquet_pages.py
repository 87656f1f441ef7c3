"""The pages of a Parquet file, by their headers: how large each is before anything is unpacked.

A footer may say anything of its columns; what Arrow allocates is what the headers of the pages say. So
they are read here first, some dozens of bytes a page, and no page is unpacked that is too large.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, TypeVar

import numpy as np
import pyarrow as pa

# Arrow gives up at the same size; statistics of long values are in a header.
_HEADER_BYTES: Final = 16 << 20
_FIRST_BYTES: Final = 512
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS: Final = (4, 5, 6)
_NESTED: Final = 16
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
PLAIN_DICTIONARY, RLE, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY, RLE_DICTIONARY = 2, 3, 6, 7, 8
# Packed levels that are decoded together.
_PACKED_BYTES: Final = 1 << 17
# Of what Parquet has; LZO and the older form of LZ4 are not read here.
_CODES: Final = {0: "uncompressed", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_SCHEMA, _GROUPS = 2, 4
T = TypeVar("T")


class Malformed(ValueError):
    """Bytes that are not valid Parquet."""


class _Short(Exception):
    """More bytes are needed."""


class Thrift:
    """Reads the compact form of Thrift; structs become dictionaries by the numbers of their fields."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise Malformed("a number is too long")

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise _Short
        self.at += 1
        return self.data[self.at - 1]

    def integer(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> None:
        """Skip bytes: nothing here needs them."""
        size = self.varint()
        if size > len(self.data) - self.at:
            raise _Short
        self.at += size

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > _NESTED:
            raise Malformed("structs are nested too deep")
        fields: dict[int, Any] = {}
        number = 0
        while kind := self.byte():
            number = number + (kind >> 4) if kind >> 4 else self.integer()
            fields[number] = self.value(kind & 15, depth)
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if kind in _INTEGERS:
            return self.integer()
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind == _BINARY:
            return self.binary()
        if kind in (_LIST, _SET):
            count, kind = self.list()
            found = [self.element(kind, depth) for _ in range(count)]
            return found if kind == _STRUCT else None
        if kind == _BYTE:
            return self.byte()
        if kind == _DOUBLE:
            self.at += 8
            return None
        raise Malformed(f"a header has the unknown type {kind}")

    def element(self, kind: int, depth: int = 0) -> Any:
        return self.byte() if kind in (_TRUE, _FALSE) else self.value(kind, depth)

    def list(self) -> tuple[int, int]:
        """How many elements follow, and of which kind; an element has at least one byte."""
        first = self.byte()
        count = first >> 4 if first >> 4 < 15 else self.varint()
        if count > len(self.data) - self.at:
            raise _Short
        return count, first & 15


def schema_shape(footer: bytes) -> tuple[int, int]:
    """How many columns a footer describes, and how deep they are nested, before Arrow builds them."""
    return _in_footer(footer, _SCHEMA, _shape)


def codecs(footer: bytes) -> list[list[str]]:
    """How the columns of each group of rows are packed; Arrow, asked for a codec it does not know, aborts."""
    return _in_footer(footer, _GROUPS, _group_codecs)


def _in_footer(footer: bytes, wanted: int, read: Callable[[Thrift], T]) -> T:
    """Read one list of the footer, and skip what is before it."""
    try:
        thrift, number = Thrift(footer), 0
        while kind := thrift.byte():
            number = number + (kind >> 4) if kind >> 4 else thrift.integer()
            if number == wanted and kind & 15 == _LIST:
                return read(thrift)
            thrift.value(kind & 15, 0)
    except _Short:
        raise Malformed("the footer ends too early") from None
    raise Malformed("the footer is incomplete")


def _group_codecs(thrift: Thrift) -> list[list[str]]:
    count, kind = thrift.list()
    groups = []
    for _ in range(count):
        group = thrift.element(kind)
        columns = group.get(1) if isinstance(group, dict) else None
        metas = [column.get(3) if isinstance(column, dict) else None for column in columns or ()]
        codes = [meta.get(4) if isinstance(meta, dict) else None for meta in metas]
        groups.append([_CODES.get(code, "") if isinstance(code, int) else "" for code in codes])
    return groups


def _shape(thrift: Thrift) -> tuple[int, int]:
    count, kind = thrift.list()
    leaves = deepest = 0
    # How many children are still to come, of each group that is open.
    open_groups: list[int] = []
    for _ in range(count):
        element = thrift.element(kind)
        children = element.get(5, 0) if isinstance(element, dict) else 0
        while open_groups and not open_groups[-1]:
            open_groups.pop()
        if open_groups:
            open_groups[-1] -= 1
        if children:
            open_groups.append(int(children))
            deepest = max(deepest, len(open_groups))
        else:
            leaves += 1
    return leaves, deepest


@dataclass(frozen=True, slots=True)
class Page:
    """One page: where its content begins, its bytes packed and unpacked, and its number of values."""

    at: int
    packed: int
    size: int
    values: int
    encoding: int
    is_dictionary: bool
    # Of version 2: the bytes of its repetition and definition levels, which are not packed; else None.
    levels: tuple[int, int] | None
    repetition_encoding: int
    is_packed: bool


def pages(file: BinaryIO, start: int, stop: int, values: int) -> Iterator[Page]:
    """Yield the pages of a column from `start` on as Arrow would read them, until `values` are seen."""
    at, seen = start, 0
    while seen < values and at < stop:
        header, begin = _header(file, at, stop)
        page = _page(header, begin)
        if page is not None:
            if not page.is_dictionary:
                seen += page.values
            yield page
        at = begin + _size(header, 3)
        if at > stop:
            raise Malformed("a page extends beyond the end of its column")


def _header(file: BinaryIO, at: int, stop: int) -> tuple[dict[int, Any], int]:
    size = _FIRST_BYTES
    while True:
        size = min(size, stop - at, _HEADER_BYTES)
        data = read_at(file, at, size)
        thrift = Thrift(data)
        try:
            return thrift.struct(), at + thrift.at
        except _Short:
            if len(data) < size or size in (stop - at, _HEADER_BYTES):
                raise Malformed("the header of a page does not end") from None
            size *= 16


def read_at(file: BinaryIO, at: int, size: int) -> bytes:
    """Read bytes from a place; fewer at the end of the file."""
    file.seek(at)
    data = file.read(size) or b""
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


def _page(header: dict[int, Any], begin: int) -> Page | None:
    kind = header.get(1)
    content = header.get({_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}.get(kind if kind is not None else -1, 0))
    if kind not in (_DATA, _DICTIONARY, _DATA_V2):
        return None
    if not isinstance(content, dict):
        raise Malformed("a page does not say what it holds")
    version_2 = kind == _DATA_V2
    levels = (_size(content, 6), _size(content, 5)) if version_2 else None
    return Page(
        begin,
        _size(header, 3),
        max(_size(header, 2), _size(header, 3)),
        _size(content, 1),
        _size(content, 4 if version_2 else 2),
        kind == _DICTIONARY,
        levels,
        RLE if version_2 else content.get(4, RLE),
        bool(content.get(7, True)) if version_2 else True,
    )


def _size(fields: dict[int, Any], number: int) -> int:
    value = fields.get(number)
    if not isinstance(value, int) or value < 0:
        raise Malformed("a page has no size, or a negative one")
    return value


def unpacked(file: BinaryIO, page: Page, codec: str) -> bytes | None:
    """The content of a page of version 1, or of a dictionary; None where it is packed in an unusual way."""
    data = read_at(file, page.at, page.packed)
    if len(data) < page.packed:
        raise Malformed("a page ends too early")
    if codec == "uncompressed":
        return data
    if not codec:
        return None
    try:
        return bytes(pa.decompress(data, page.size, codec=codec, asbytes=True))
    except (pa.ArrowInvalid, OSError):
        return None


def longest_value(dictionary: bytes, values: int) -> int:
    """The longest of the texts of a dictionary, each of which follows its length."""
    at = longest = 0
    unpack = struct.Struct("<I").unpack_from
    try:
        for _ in range(values):
            (size,) = unpack(dictionary, at)
            at += 4 + size
            longest = max(longest, size)
    except struct.error:
        raise Malformed("a dictionary ends too early") from None
    return longest


class LongestRecord:
    """Counts the values of the longest record of a nested column, by its repetition levels."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._current = 0
        self.longest = 0

    def add(self, levels: bytes, values: int) -> None:
        """Take the levels of the next page: runs, and stretches of packed ones."""
        thrift, left = Thrift(levels), values
        try:
            while left > 0:
                head = thrift.varint()
                if head & 1:
                    left -= self._packed(thrift, head >> 1, left)
                else:
                    count = min(head >> 1, left)
                    if not count:
                        raise Malformed("a run of levels is empty")
                    level = int.from_bytes(
                        bytes(thrift.byte() for _ in range(-(-self._width // 8))), "little"
                    )
                    self._run(level, count)
                    left -= count
        except _Short:
            raise Malformed("the levels of a page end too early") from None

    def _run(self, level: int, count: int) -> None:
        if level:
            self._current += count
        else:
            self.longest = max(self.longest, self._current, 1)
            self._current = 1
        self.longest = max(self.longest, self._current)

    def _packed(self, thrift: Thrift, groups: int, left: int) -> int:
        taken = 0
        for start in range(0, groups, _PACKED_BYTES):
            size = min(groups - start, _PACKED_BYTES) * self._width
            data = thrift.data[thrift.at : thrift.at + size]
            thrift.at += len(data)
            bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
            whole = len(bits) // self._width
            inside = np.asarray(bits[: whole * self._width].reshape(whole, self._width).any(axis=1), np.bool_)
            found = inside[: left - taken]
            taken += len(found)
            self._mixed(found)
            if len(data) < size:
                break
        if not taken:
            raise _Short
        return taken

    def _mixed(self, inside: Any) -> None:
        """Take levels of which each says whether its value goes on with the record before."""
        starts = np.flatnonzero(~inside)
        if not len(starts):
            self._current += len(inside)
        else:
            first = self._current + int(starts[0])
            between = int(np.diff(starts).max()) if len(starts) > 1 else 0
            self._current = len(inside) - int(starts[-1])
            self.longest = max(self.longest, first, between)
        self.longest = max(self.longest, self._current)


def repetition_levels(file: BinaryIO, page: Page, codec: str) -> bytes | None:
    """The repetition levels of a page; None where they are written in a way that is not read here."""
    if page.repetition_encoding != RLE:
        return None
    if page.levels is not None:
        return read_at(file, page.at, page.levels[0])
    data = unpacked(file, page, codec)
    if data is None or len(data) < 4:
        return None
    (size,) = struct.unpack_from("<I", data)
    return data[4 : 4 + size]
