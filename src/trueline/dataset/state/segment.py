"""A segment: rows sorted by key in one Parquet file that is never changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from trueline.chain.checkpoint import ENCODING, StateFile
from trueline.chain.store.store import Folder, Store
from trueline.dataset.append.pieces import rows_within
from trueline.errors import CorruptionError, InputError, UnsupportedVersion
from trueline.identity.multihash import Multihash
from trueline.kernel.key_encoding import KEY, KeyEncoding, KeyRange
from trueline.kernel.nan import canonical
from trueline.kernel.sorted_keys import as_array, ascends, unified

GONE: Final = "_gone"
ROWS_OF_A_GROUP: Final = 65_536
# Of large rows fewer are a group: it is read and written as a whole.
BYTES_OF_A_GROUP: Final = 128 << 20
# About 200 MB at eight columns of numbers: a base of many keys is several files, each with its range.
ROWS_OF_A_FILE: Final = 1 << 22
# Bounds are in every checkpoint; longer keys are bounded by their beginnings.
BOUND_BYTES: Final = 128
_GATHERED_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """What is known of a segment without opening it.

    No key is before `first_key` or after `last_key`; keys of up to 128 bytes
    are given exactly. An empty `last_key` is not a bound. `others` are notes of
    later versions, kept as they are.
    """

    hash: Multihash
    size: int
    rows: int
    first_key: bytes
    last_key: bytes
    # A plain number, as tasks answer with plain data.
    encoding: int = int(KeyEncoding.MERGE)
    others: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def overlaps(self, wanted: KeyRange | None) -> bool:
        """Whether a key of the range may be here."""
        if wanted is None:
            return True
        before = wanted.first is not None and self.last_key and self.last_key < wanted.first
        after = wanted.end is not None and self.first_key >= wanted.end
        return not (before or after)

    def to_file(self, name: str, generation: int, part: int) -> StateFile:
        """Return the segment as a checkpoint names it."""
        notes: dict[str, Any] = {
            **self.others,
            "state": name,
            "generation": generation,
            "part": part,
            "rows": self.rows,
            "first": self.first_key.hex(),
            "last": self.last_key.hex(),
        }
        if self.encoding != KeyEncoding.MERGE:
            notes[ENCODING] = self.encoding
        return StateFile(self.hash, self.size, notes)

    @classmethod
    def from_file(cls, file: StateFile) -> Self:
        """Read what a checkpoint says of a segment."""
        rows, first, last = (file.notes.get(name) for name in ("rows", "first", "last"))
        try:
            if type(rows) is not int or rows < 1 or file.size < 1:
                raise ValueError("it has no rows")  # noqa: TRY301 (one place for what is wrong)
            if not isinstance(first, str) or not isinstance(last, str):
                raise TypeError("it has no range of keys")  # noqa: TRY301
            others = {name: value for name, value in file.notes.items() if name not in _NOTES}
            bounds = bytes.fromhex(first), bytes.fromhex(last)
            return cls(file.hash, file.size, rows, *bounds, _encoding(file), others)
        except UnsupportedVersion:
            raise
        except (ValueError, TypeError) as error:
            raise CorruptionError(
                f"a checkpoint describes the state file {file.hash.short} wrongly: {error}",
                remedy="rebuild the state from the dataset",
                hash=file.hash,
            ) from None


_NOTES: Final = frozenset({"state", "generation", "part", "rows", "first", "last", ENCODING})


def _encoding(file: StateFile) -> int:
    """Return how the keys of a file are encoded; refuse what is not known, as keys would be missed."""
    given = file.notes.get(ENCODING, int(KeyEncoding.MERGE))
    if type(given) is not int or given not in list(KeyEncoding):
        raise UnsupportedVersion(
            f"the keys of state file {file.hash.short} have the encoding {given!r}, which is not known here",
            remedy="upgrade trueline",
            hash=file.hash,
        )
    return given


def lower_bound(key: bytes) -> bytes:
    """A short key that is not after this one."""
    return key[:BOUND_BYTES]


def upper_bound(key: bytes) -> bytes:
    r"""A short key that is not before this one; empty where there is none.

    >>> upper_bound(b"ab"), upper_bound(b"a" * 500) > b"a" * 500, upper_bound(b"\xff" * 500)
    (b'ab', True, b'')
    """
    if len(key) <= BOUND_BYTES:
        return key
    cut = key[:BOUND_BYTES].rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else b""


def segment_schema(payload: pa.Schema) -> pa.Schema:
    """Return the columns of a segment: key, mark of removal, and what is kept, which may be null."""
    taken = {KEY, GONE} & set(payload.names)
    if taken or len(set(payload.names)) != len(payload.names):
        raise InputError(
            f"columns {payload.names} cannot be kept: {sorted(taken) or 'a name occurs twice'}",
            remedy="rename the columns",
        )
    fields = [pa.field(KEY, pa.binary(), nullable=False), pa.field(GONE, pa.bool_(), nullable=False)]
    return pa.schema([*fields, *(pa.field(field.name, field.type) for field in payload)])


def rows_of(payload: pa.Schema) -> pa.Schema:
    """The columns of rows of a segment as they are read."""
    return pa.schema([pa.field(KEY, pa.binary()), pa.field(GONE, pa.bool_()), *payload])


class SegmentWriter:
    """Writes rows that come in key order into segments; equal rows give equal files, however they come."""

    def __init__(self, store: Store, payload: pa.Schema, *, rows_of_a_file: int = ROWS_OF_A_FILE) -> None:
        self.schema = segment_schema(payload)
        self._store = store
        self._limit = rows_of_a_file
        self._waiting: list[pa.Table] = []
        self._count, self._size = 0, 0
        self._file: _File | None = None
        self._done: list[SegmentInfo] = []
        self._last: bytes | None = None

    def add(self, rows: pa.Table) -> None:
        """Take rows whose keys follow those taken before."""
        if not rows.num_rows:
            return
        rows = unified(rows, self.schema)
        self._check(as_array(rows[KEY]))
        self._waiting.append(rows)
        self._count += rows.num_rows
        self._size += rows.nbytes
        while self._count >= ROWS_OF_A_GROUP or self._size > BYTES_OF_A_GROUP:
            if not self._write(final=False):
                break

    def _check(self, keys: pa.BinaryArray) -> None:
        if not ascends(keys) or (self._last is not None and keys[0].as_py() <= self._last):
            raise InputError("keys do not ascend", remedy="sort the rows by key, one row for each")
        self._last = keys[-1].as_py()

    def _write(self, *, final: bool) -> bool:
        """Write the next group if it is full, or the last; its end depends on the values of rows alone."""
        rows = pa.concat_tables(self._waiting)
        count, known = rows_within(rows.slice(0, ROWS_OF_A_GROUP), BYTES_OF_A_GROUP)
        if not final and count == self._count < ROWS_OF_A_GROUP:
            self._waiting, self._size = [rows], known
            return False
        group, rest = rows.slice(0, count), rows.slice(count)
        self._waiting = [rest] if rest.num_rows else []
        self._count, self._size = rest.num_rows, rest.nbytes
        if self._file is None:
            self._file = _File(self._store, self.schema)
        self._file.add(group)
        if self._file.rows >= self._limit:
            self._end_file()
        return True

    def _end_file(self) -> None:
        if self._file is not None:
            self._done.append(self._file.finish())
            self._file = None

    def finish(self) -> tuple[SegmentInfo, ...]:
        """Write what is left; return the segments, in key order."""
        while self._count:
            self._write(final=True)
        self._end_file()
        return tuple(self._done)

    def abandon(self) -> None:
        """Throw away the file that is being written."""
        if self._file is not None:
            self._file.abandon()
            self._file = None


class _File:
    """One Parquet file on its way into the store."""

    def __init__(self, store: Store, schema: pa.Schema) -> None:
        self.rows = 0
        self._schema = schema
        self._first = self._last = b""
        self._object = store.writer(Folder.CHECKPOINTS)
        try:
            self._sink = pa.output_stream(self._object, buffer_size=_GATHERED_BYTES)
            self._parquet = pq.ParquetWriter(self._sink, schema, **_layout(schema))
        except BaseException:
            self._object.abandon()
            raise

    def add(self, group: pa.Table) -> None:
        group = group.combine_chunks()
        keys = as_array(group[KEY])
        if not self.rows:
            self._first = keys[0].as_py()
        self._last = keys[-1].as_py()
        self.rows += group.num_rows
        columns = [canonical(column) for column in group.columns]
        try:
            table = pa.Table.from_arrays(columns, schema=self._schema)
            self._parquet.write_table(table, row_group_size=ROWS_OF_A_GROUP)
        except BaseException:
            self.abandon()
            raise

    def finish(self) -> SegmentInfo:
        try:
            self._parquet.close()
            self._sink.close()
            stored = self._object.finish()
        finally:
            self._object.abandon()
        return SegmentInfo(
            stored.hash, stored.size, self.rows, lower_bound(self._first), upper_bound(self._last)
        )

    def abandon(self) -> None:
        self._object.abandon()


def _layout(schema: pa.Schema) -> dict[str, Any]:
    """How segments are written.

    At 5 M keys × 8 columns lz4 makes them a third smaller and costs nothing to
    read; numbers whose bytes are split (all first bytes, all second ones) another
    third, and they are read in 0.6 of the time; dictionaries cost more than they
    save; page checksums find a flipped bit at 5 % of the reading time, where hashing
    the file would take four times as long.
    """
    return {
        "version": "2.6",
        "compression": "lz4",
        "use_dictionary": False,
        "column_encoding": {field.name: "BYTE_STREAM_SPLIT" for field in schema if _is_number(field)},
        "write_statistics": [KEY],
        "write_page_checksum": True,
        "sorting_columns": [pq.SortingColumn(0)],
    }


def _is_number(field: pa.Field) -> bool:
    """Whether values have a fixed number of bytes; a dot in a name would lead into a nested column."""
    kind = field.type
    fixed = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    return bool(fixed and not pa.types.is_boolean(kind) and "." not in field.name)


def write_segment(
    store: Store, rows: pa.Table, payload: pa.Schema, *, rows_of_a_file: int = ROWS_OF_A_FILE
) -> tuple[SegmentInfo, ...]:
    """Stage sorted rows (`_key`, `_gone`, payload) as segments: one file, or several for many rows."""
    return write_segments(store, (rows,), payload, rows_of_a_file=rows_of_a_file)


def write_segments(
    store: Store, tables: Sequence[pa.Table] | Iterator[pa.Table], payload: pa.Schema, **options: int
) -> tuple[SegmentInfo, ...]:
    """Stage a stream of sorted rows, holding a group of them in memory at a time."""
    writer = SegmentWriter(store, payload, **options)
    try:
        for table in tables:
            writer.add(table)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise
