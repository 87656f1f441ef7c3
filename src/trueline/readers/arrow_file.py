"""Arrow IPC read within the memory limits, whatever its messages claim (guard:G8).

A message of some bytes can say that its buffers unpack to gigabytes, or that its body has them. So the
messages of a file are read here first: only those that fit are handed to Arrow. A file and a stream hold
the same messages; what the footer of a file says besides is not needed.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trueline.errors import SchemaError
from trueline.limits import DEPTH, PAGES, Limits
from trueline.readers.rules import is_bytes, is_text

_MAGIC: Final = b"ARROW1"
_START: Final = b"ARROW1\0\0"
_FEATHER_1: Final = b"FEA1"
_CONTINUATION: Final = b"\xff\xff\xff\xff"
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
# The description of a batch takes some times as much in memory as in the file.
_METADATA_PART: Final = 4
_READ: Final = 1 << 20
_SPREAD: Final = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


class MalformedMessage(ValueError):
    """Bytes that are not Arrow IPC."""


# --- messages -----------------------------------------------------------------------------


class _Table:
    """A table of a flatbuffer; every place in it is checked."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._vtable = at - self._number("<i", at)
        self._size = self._number("<H", self._vtable)

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, _unpacked("<I", data, 0))

    def _number(self, form: str, at: int) -> int:
        return _unpacked(form, self._data, at)

    def _place(self, field: int) -> int | None:
        slot = 4 + 2 * field
        offset = self._number("<H", self._vtable + slot) if slot + 2 <= self._size else 0
        return self._at + offset if offset else None

    def number(self, field: int, form: str, default: int = 0) -> int:
        place = self._place(field)
        return default if place is None else self._number(form, place)

    def table(self, field: int) -> _Table | None:
        place = self._place(field)
        return None if place is None else _Table(self._data, place + self._number("<I", place))

    def pairs(self, field: int) -> npt.NDArray[np.int64]:
        """A vector of structs of two numbers."""
        place = self._place(field)
        if place is None:
            return np.zeros((0, 2), np.int64)
        start = place + self._number("<I", place)
        count = self._number("<I", start)
        if start + 4 + 16 * count > len(self._data):
            raise MalformedMessage("a list in a message is longer than the message")
        return np.frombuffer(self._data, "<i8", 2 * count, start + 4).reshape(-1, 2)


def _unpacked(form: str, data: bytes, at: int) -> int:
    if at < 0 or at + struct.calcsize(form) > len(data):
        raise MalformedMessage("a message points outside of itself")
    found: int = struct.unpack_from(form, data, at)[0]
    return found


class _Message(NamedTuple):
    """One message as it is stored, and what it is."""

    kind: int
    data: bytes


@dataclass
class Messages:
    """The messages of an open file, each of which fits the limits."""

    raw: BinaryIO
    path: str
    limits: Limits

    def __post_init__(self) -> None:
        self._stop = self.raw.seek(0, io.SEEK_END)
        self._at = 0
        self._dictionaries: dict[int, int] = {}
        head = self._read(0, 8)
        self.is_file = head == _START
        if head.startswith(_FEATHER_1):
            raise MalformedMessage("it is Feather version 1, which is not read here: write it as version 2")
        if self.is_file:
            end = self._read(max(self._stop - 10, 8), 10)
            length = int.from_bytes(end[:4], "little")
            if end[4:] != _MAGIC or length > self._stop - 18:
                raise MalformedMessage("its end is missing: the file is truncated")
            self._at, self._stop = 8, self._stop - 10 - length

    def __iter__(self) -> Iterator[_Message]:
        while True:
            prefix = self._read(self._at, 8)
            size_at = 4 if prefix[:4] == _CONTINUATION else 0
            if len(prefix) < size_at + 4:
                if self.is_file:
                    return
                raise MalformedMessage("it does not end as a stream does: it is truncated, or not Arrow")
            length = int.from_bytes(prefix[size_at : size_at + 4], "little")
            if not length:
                return
            yield self._message(prefix[: size_at + 4], length)

    def _message(self, prefix: bytes, length: int) -> _Message:
        start = self._at + len(prefix)
        self._check_there(start, length)
        if length > self.limits.batch_bytes // _METADATA_PART:
            raise self.limits.too_large(self.path, "a message", length * _METADATA_PART)
        metadata = self._read(start, length)
        root = _Table.root(metadata)
        kind, body = root.number(1, "<B"), root.number(3, "<q")
        header = root.table(2)
        if header is None or kind not in (_SCHEMA, _DICTIONARY, _BATCH) or body < 0:
            raise MalformedMessage("it has a message that is not a schema, a dictionary or a batch")
        self._check_there(start + length, body)
        if body > PAGES * self.limits.batch_bytes:
            raise self.limits.too_large(self.path, "a batch of rows", -(-body // PAGES))
        content = self._read(start + length, body)
        if kind == _BATCH:
            self._check(self._size(header, content), "a batch of rows")
        elif kind == _DICTIONARY:
            self._add_dictionary(header, content)
        self._at = start + length + body
        return _Message(kind, prefix + metadata + content)

    def _add_dictionary(self, header: _Table, content: bytes) -> None:
        """Dictionaries stay in memory: all of them together have to fit."""
        name, inner = header.number(0, "<q"), header.table(1)
        size = self._size(inner, content) if inner is not None else 0
        before = self._dictionaries.get(name, 0) if header.number(2, "<B") else 0
        self._dictionaries[name] = before + size
        self._check(sum(self._dictionaries.values()), "its dictionaries")

    def _size(self, batch: _Table, content: bytes) -> int:
        """How many bytes the buffers of a batch have, unpacked; as many as rows where that is more."""
        buffers = batch.pairs(2)
        if len(buffers) and (
            buffers.min() < 0 or buffers.max() > len(content) or buffers.sum(axis=1).max() > len(content)
        ):
            raise MalformedMessage("a batch points outside of its bytes")
        # Rows of nulls alone have no bytes, and are many all the same.
        size = max(batch.number(0, "<q"), 0)
        if batch.table(3) is None:
            return max(size, int(buffers[:, 1].sum()))
        total = 0
        for at, length in buffers.tolist():
            said = _unpacked("<q", content, at) if length >= 8 else 0
            total += max(said, length)
        return max(size, total)

    def _check(self, size: int, what: str) -> None:
        if size > PAGES * self.limits.batch_bytes:
            raise self.limits.too_large(self.path, what, -(-size // PAGES))

    def _check_there(self, start: int, length: int) -> None:
        if start + length > self._stop:
            raise MalformedMessage("it ends inside a message: it is truncated")

    def _read(self, at: int, size: int) -> bytes:
        """Read bytes of the file; fewer at its end, and never more at once than are there."""
        self.raw.seek(at)
        size = max(0, min(size, self._stop - at))
        parts: list[bytes] = []
        while size and (part := self.raw.read(min(size, _READ))):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class _Checked(io.RawIOBase):
    """The checked messages as a stream, for Arrow to read."""

    def __init__(self, messages: Messages) -> None:
        self._messages = iter(messages)
        self._rest = memoryview(b"")
        self._ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        parts = []
        while size:
            if not len(self._rest):
                found = None if self._ended else next(self._messages, None)
                self._ended = found is None
                if found is None:
                    break
                self._rest = memoryview(found.data)
            part = self._rest[: size if size > 0 else len(self._rest)]
            self._rest = self._rest[len(part) :]
            parts.append(bytes(part))
            size -= len(part) if size > 0 else 0
        return b"".join(parts)


def open_batches(raw: BinaryIO, path: str, limits: Limits) -> Any:
    """Open the batches of an Arrow file or stream, for `pyarrow` to read one by one."""
    stream = _Checked(Messages(raw, path, limits))
    found = pa.ipc.open_stream(pa.PythonFile(cast("Any", stream), mode="r"))
    limits.check_columns(path, len(found.schema))
    for field in found.schema:
        _check_type(path, field.name, field.type, 0)
    return found


# --- columns ------------------------------------------------------------------------------


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values of a column: dictionaries and views are encodings, an extension has a storage.

    >>> plain_type(pa.dictionary(pa.int8(), pa.string()))
    DataType(string)
    """
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    return _SPREAD.get(kind, kind)


def _check_type(path: str, name: str, kind: pa.DataType, depth: int) -> None:
    """Refuse types that may say the same bytes a million times, but for those that are watched."""
    types = pa.types
    if depth > DEPTH:
        raise MalformedMessage(f"its columns are nested more than {DEPTH} levels deep")
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    views = types.is_string_view(kind) or types.is_binary_view(kind)
    if depth == 0 and types.is_dictionary(kind):
        kind, views = kind.value_type, False
    repeated = types.is_run_end_encoded(kind) or types.is_union(kind) or types.is_dictionary(kind)
    spread = types.is_list_view(kind) or types.is_large_list_view(kind) or (views and depth > 0)
    if repeated or spread:
        raise SchemaError(
            f"{path}: column {name!r} has values of type {kind}, which are not read from Arrow files",
            remedy="write them as plain text, numbers, lists or structs",
            path=path,
            column=name,
        )
    for number in range(kind.num_fields):
        _check_type(path, name, kind.field(number).type, depth + 1)


def sound_batches(batch: pa.RecordBatch, path: str, limits: Limits) -> Iterator[pa.RecordBatch]:
    """Check a batch, and cut it so that what its columns say more than once fits when it is written out."""
    arrays = [_storage(column) for column in batch.columns]
    for array in arrays:
        _check_lengths(array, path, limits)
        bare(array).validate(full=True)
    batch = pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
    weights = [found for array in arrays if (found := _weights(array)) is not None]
    if not weights:
        yield batch
        return
    ends = np.cumsum(np.sum(weights, axis=0, dtype=np.int64))
    start = 0
    while start < batch.num_rows:
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + limits.batch_bytes, side="right")))
        yield batch.slice(start, stop - start)
        start = stop


def _storage(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column


def bare(array: pa.Array) -> pa.Array:
    """An array of the same memory whose cells are not looked at, only where they are."""
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(array.indices, bare(array.dictionary), safe=False)
    return array.view(_bare_type(array.type))


def _bare_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if is_text(kind):
        large = pa.large_binary() if types.is_large_string(kind) else pa.binary()
        return pa.binary_view() if types.is_string_view(kind) else large
    if types.is_date64(kind) or types.is_time64(kind):
        return pa.int64()
    if types.is_time32(kind):
        return pa.int32()
    if types.is_decimal(kind):
        return pa.binary(kind.byte_width)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_bare_type(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_bare_type(kind.key_type), _bare_type(kind.item_type))
    for test, make in ((types.is_list, pa.list_), (types.is_large_list, pa.large_list)):
        if test(kind):
            return make(kind.value_field.with_type(_bare_type(kind.value_type)))
    if types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_bare_type(kind.value_type)), kind.list_size)
    return kind


def _check_lengths(array: pa.Array, path: str, limits: Limits) -> None:
    """Refuse lists of more items than fit: a list of nulls has no bytes."""
    types, kind = pa.types, array.type
    if (
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_map(kind)
    ):
        inner = array.values if not types.is_map(kind) else array.items
        if len(inner) > limits.batch_bytes:
            raise limits.too_large(path, "a list", len(inner))
        _check_lengths(inner, path, limits)
    elif types.is_struct(kind):
        for number in range(kind.num_fields):
            _check_lengths(array.field(number), path, limits)


def _weights(array: pa.Array) -> npt.NDArray[np.int64] | None:
    """The bytes of each cell, where cells may share their bytes; None where they cannot."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        each = _lengths(array.dictionary)
        codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return each[codes] if len(each) else np.zeros(len(array), np.int64)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _lengths(array)
    return None


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        views = np.frombuffer(array.buffers()[1], np.int32)[::4]
        return views[array.offset : array.offset + len(array)].astype(np.int64) + 16
    if is_text(kind) or is_bytes(kind):
        wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        if pa.types.is_fixed_size_binary(kind):
            return np.full(len(array), kind.byte_width, np.int64)
        offsets = np.frombuffer(array.buffers()[1] or b"", np.int64 if wide else np.int32)
        return np.diff(offsets[array.offset : array.offset + len(array) + 1]).astype(np.int64) + 8
    # Lists and structs in a dictionary may be as large as all of it.
    return np.full(len(array), array.nbytes if kind.num_fields else 16, np.int64)
