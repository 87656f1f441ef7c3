"""Reading segments: only the groups of rows that can hold what is asked for, each checked as it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import SEEK_END
from itertools import pairwise
from threading import Lock
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from trueline.chain.store.store import Folder, Store
from trueline.dataset.state.segment import BYTES_OF_A_GROUP, GONE, ROWS_OF_A_GROUP, SegmentInfo
from trueline.errors import (
    CorruptionError,
    HashMismatch,
    ObjectMissing,
    StateMissing,
    TruelineError,
    check_memory,
)
from trueline.identity.multihash import physical_hash
from trueline.kernel.key_encoding import KEY, KeyRange
from trueline.kernel.sorted_keys import as_array, ascends, within
from trueline.readers import Limits
from trueline.readers.parquet_file import BoundedFile

# Hashing 8 MiB takes 25 ms. Larger files rest on their page checksums until `verify`, or a rewrite.
HASHED_BYTES: Final = 8 << 20
# A group is read as a whole. Ours have fewer bytes: Parquet has no number of less than four, and a level
# beside each; and one row may have more than a group should.
_LIMITS: Final = Limits(batch_bytes=8 * BYTES_OF_A_GROUP)


@dataclass(slots=True)
class Reads:
    """What was read: how many groups of rows, how many rows in them, how many bytes of columns."""

    groups: int = 0
    rows: int = 0
    bytes: int = 0


class SegmentReader:
    """Reads one segment of a store; what cannot be what its name says is a `CorruptionError`."""

    def __init__(self, store: Store, info: SegmentInfo, reads: Reads) -> None:
        self.info = info
        self._store = store
        self._reads = reads
        self._lock = Lock()
        self._footer: pq.FileMetaData | None = None
        self._schema = pa.schema([])
        self._names: frozenset[str] = frozenset()
        self._bounds: list[tuple[bytes, bytes]] | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns that are kept, without key and mark."""
        self._known()
        return self._schema

    def stream(self, columns: Sequence[str], wanted: KeyRange | None = None) -> Iterator[pa.Table]:
        """Yield key, mark and columns (those it has) of the rows in a range, a group at a time."""
        last: bytes | None = None
        with self._opened() as file:
            for number in self._groups(wanted):
                rows = self._group(file, number, [KEY, GONE, *columns])
                keys = as_array(rows[KEY])
                if last is not None and keys[0].as_py() <= last:
                    raise self._wrong(f"the keys of group {number} do not follow those before")
                last = keys[-1].as_py()
                first, end = within(keys, wanted)
                if end > first:
                    yield rows.slice(first, end - first)

    def group_starts(self) -> list[bytes]:
        """The first key of each group, as far as the footer has them."""
        self._known()
        return [first for first, _ in self._bounds or ()]

    def groups_with(self, keys: pa.BinaryArray) -> list[tuple[int, int, int]]:
        """Return the groups some of the sorted keys may be in, each with from where to where these are."""
        if not len(keys) or not self.info.overlaps(KeyRange(keys[0].as_py(), keys[-1].as_py() + b"\x00")):
            return []
        self._known()
        if self._bounds is None:
            return [(number, 0, len(keys)) for number in range(self._count)]
        found = []
        for number, (first, last) in enumerate(self._bounds):
            start, end = within(keys, KeyRange(first, last + b"\x00"))
            if end > start:
                found.append((number, start, end))
        return found

    @contextmanager
    def groups(self) -> Iterator[Any]:
        """Open the file; yields a function from a group's number and columns to its rows."""
        with self._opened() as file:
            yield lambda number, columns: self._group(file, number, columns)

    def check_hash(self) -> None:
        """Check that the file hashes to its name; small ones were hashed when they were first opened."""
        if self.info.size > HASHED_BYTES:
            self._hash()
        else:
            self._known()

    def _hash(self) -> None:
        with self._source() as source:
            found = physical_hash(source)
        if found != self.info.hash:
            raise self._other_hash()

    def verify(self) -> None:
        """Check the whole file: its hash, and every group in it."""
        self._hash()
        for rows in self.stream(self.schema.names):
            assert rows.num_rows

    # --- the file -----------------------------------------------------------

    def _source(self) -> BinaryIO:
        try:
            return self._store.open(Folder.CHECKPOINTS, self.info.hash)
        except ObjectMissing as error:
            raise StateMissing(
                f"state file {self.info.hash.short} is not in {self._store.location}",
                remedy="rebuild the state from the dataset",
                hash=self.info.hash,
                location=str(self._store.location),
                file=f"checkpoints/{self.info.hash}",
            ) from error

    @contextmanager
    def _opened(self) -> Iterator[BoundedFile]:
        with self._source() as source:
            with self._as_corruption():
                self._look_at(source)
                file = BoundedFile(source, self._path, _LIMITS, metadata=self._footer, checksums=True)
            with closing(file):
                yield file

    @property
    def _path(self) -> str:
        return f"state file {self.info.hash.short}"

    def _look_at(self, source: BinaryIO) -> None:
        """Check that the file is a segment, the first time all of it if it is small; later its size only."""
        if source.seek(0, SEEK_END) != self.info.size:
            raise self._wrong(f"it has {source.tell():,} bytes, not {self.info.size:,}")
        with self._lock:
            if self._footer is None:
                source.seek(0)
                if self.info.size <= HASHED_BYTES and physical_hash(source) != self.info.hash:
                    raise self._other_hash()
                source.seek(0)
                self._learn(BoundedFile(source, self._path, _LIMITS))
        source.seek(0)

    def _known(self) -> None:
        if self._footer is None:
            with self._opened():
                pass

    def _learn(self, file: BoundedFile) -> None:
        """Take the footer, once it is seen to be that of a segment."""
        footer, schema = file.metadata, file.schema_arrow
        if schema.names[:2] != [KEY, GONE] or schema.types[:2] != [pa.binary(), pa.bool_()]:
            raise self._wrong(f"its columns are {schema.names}")
        if len(set(schema.names)) != len(schema.names):
            raise self._wrong("two of its columns have the same name")
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        counts = [group.num_rows for group in groups]
        if footer.num_rows != self.info.rows or sum(counts) != self.info.rows:
            raise self._wrong(f"it has {footer.num_rows:,} rows, not {self.info.rows:,}")
        if any(not 0 < count <= ROWS_OF_A_GROUP for count in counts):
            raise self._wrong("a group of rows is empty or too large")
        self._bounds = self._bounds_of([group.column(0).statistics for group in groups])
        self._schema = pa.schema(list(schema)[2:])
        self._names = frozenset(schema.names)
        self._footer = footer

    def _bounds_of(self, statistics: Sequence[Any]) -> list[tuple[bytes, bytes]] | None:
        """The first and last key of each group, None where keys are too long for statistics."""
        if any(each is None or not each.has_min_max for each in statistics):
            return None
        bounds = [(each.min, each.max) for each in statistics]
        flat = [key for pair in bounds for key in pair]
        if any(not isinstance(key, bytes) for key in flat):
            raise self._wrong("its statistics are not keys")
        if any(a > b for a, b in bounds) or any(a[1] >= b[0] for a, b in pairwise(bounds)):
            raise self._wrong("its groups of rows are not in order")
        return bounds

    # --- groups of rows -----------------------------------------------------

    @property
    def _count(self) -> int:
        assert self._footer is not None
        return int(self._footer.num_row_groups)

    def _groups(self, wanted: KeyRange | None) -> list[int]:
        if wanted is None or self._bounds is None:
            return list(range(self._count))
        return [
            number
            for number, (first, last) in enumerate(self._bounds)
            if (wanted.first is None or last >= wanted.first) and (wanted.end is None or first < wanted.end)
        ]

    def _group(self, file: BoundedFile, number: int, columns: Sequence[str]) -> pa.Table:
        """Read columns of a group, the key among them, and see that the keys are what the footer says."""
        with self._as_corruption():
            rows = self._rows(file, number, [c for c in columns if c in self._names])
            rows.validate()
        self._tally(number, rows)
        if KEY not in rows.column_names:
            return rows
        keys = as_array(rows[KEY])
        if not ascends(keys):
            raise self._wrong(f"the keys of group {number} do not ascend")
        first, last = keys[0].as_py(), keys[-1].as_py()
        if self._bounds is not None and self._bounds[number] != (first, last):
            raise self._wrong(f"the keys of group {number} are not those of its statistics")
        if first < self.info.first_key or (self.info.last_key and last > self.info.last_key):
            raise self._wrong(f"the keys of group {number} are not in its range")
        return rows

    def _rows(self, file: BoundedFile, number: int, columns: Sequence[str]) -> pa.Table:
        """Decode a group as it is: of one that would have to be read in parts we have written none."""
        count = file.metadata.row_group(number).num_rows
        if file.rows_at_once(number, columns, count) < count:
            raise self._wrong(f"group {number} has more bytes than a group of rows may have")
        batches = list(file.batches(number, columns, count, threads=True))
        rows = pa.Table.from_batches(batches, pa.schema([file.schema_arrow.field(c) for c in columns]))
        if rows.num_rows != count:
            raise self._wrong(f"group {number} has {rows.num_rows:,} rows, its footer says {count:,}")
        return rows

    def _tally(self, number: int, rows: pa.Table) -> None:
        assert self._footer is not None
        group = self._footer.row_group(number)
        wanted = set(rows.column_names)
        read = 0
        for index in range(group.num_columns):
            column = group.column(index)
            if column.path_in_schema.split(".")[0] in wanted:
                read += column.total_compressed_size
        with self._lock:
            self._reads.groups += 1
            self._reads.rows += rows.num_rows
            self._reads.bytes += read

    # --- errors -------------------------------------------------------------

    @contextmanager
    def _as_corruption(self) -> Iterator[None]:
        """Say of bytes that Arrow cannot read that they are damaged."""
        try:
            yield
        except TruelineError:
            raise
        except (pa.ArrowException, MemoryError, OSError, ValueError, KeyError, TypeError) as error:
            check_memory(error, f"reading the state file {self.info.hash.short}")
            raise self._wrong(f"it cannot be read: {error}") from error

    def _wrong(self, what: str) -> CorruptionError:
        return CorruptionError(
            f"state file {self.info.hash.short} is damaged: {what}",
            remedy="rebuild the state from the dataset",
            code="StateCorrupt",
            hash=self.info.hash,
        )

    def _other_hash(self) -> HashMismatch:
        return HashMismatch(
            f"state file {self.info.hash.short} does not hash to its name",
            remedy="rebuild the state from the dataset",
            hash=self.info.hash,
        )
