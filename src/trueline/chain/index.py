"""A private map of one chain: finds blocks without walking, and can always be made anew.

It only says where things are. What they are is read from the blocks, whose
hashes prove them; a row that does not check out means the file is damaged.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trueline.chain.block import Block
from trueline.chain.commits import commit_record
from trueline.chain.events import AddData, Event, ExecuteTransform
from trueline.chain.wire import OneOf, layout
from trueline.identity.multihash import Multihash

VERSION = 1
_TYPES = next(field.kind for field in layout(Block).fields if field.name == "event")
assert isinstance(_TYPES, OneOf)
TYPE_NUMBERS: dict[type, int] = {event: number for number, event in enumerate(_TYPES.of, 1)}
_SCHEMA = """
CREATE TABLE event(
  seq INTEGER PRIMARY KEY, hash BLOB NOT NULL, type INTEGER NOT NULL, time INTEGER NOT NULL,
  last_offset INTEGER, commits INTEGER NOT NULL, is_end INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE UNIQUE INDEX event_hash ON event(hash);
CREATE INDEX event_type ON event(type, seq);
CREATE TABLE slice(start INTEGER PRIMARY KEY, stop INTEGER NOT NULL, seq INTEGER NOT NULL);
CREATE TABLE taken(
  input TEXT NOT NULL, seq INTEGER NOT NULL, block BLOB, last_offset INTEGER,
  PRIMARY KEY(input, seq)) WITHOUT ROWID;
CREATE INDEX taken_offset ON taken(input, last_offset, seq);
CREATE TABLE token(key TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
"""
_COLUMNS = "seq, hash, type, time, last_offset, commits, is_end, crc"


class Damaged(Exception):
    """The index does not hold what it should; it is thrown away and made anew."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one block of the chain is, and the little that is searched by."""

    sequence_number: int
    hash: Multihash
    type: int
    time_us: int
    last_offset: int | None
    commits: int
    is_end: bool


class Index:
    """A SQLite file (or memory) with one row per block of the present branch."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = os.getpid()

    # --- reading --------------------------------------------------------------

    def tip(self) -> Entry | None:
        """Return the newest entry."""
        return self._one(f"SELECT {_COLUMNS} FROM event ORDER BY seq DESC LIMIT 1")

    def at(self, sequence_number: int) -> Entry | None:
        """Return the entry with a sequence number."""
        return self._one(f"SELECT {_COLUMNS} FROM event WHERE seq = ?", sequence_number)

    def find(self, block: Multihash) -> Entry | None:
        """Return the entry of a block, None if it is not on the branch."""
        return self._one(f"SELECT {_COLUMNS} FROM event WHERE hash = ?", block.digest)

    def newest(self, *events: type[Event], upto: int, nth: int = 0) -> Entry | None:
        """Return the n-th newest entry (0: the newest) of these events at or before a sequence number."""
        found: list[Entry] = []
        for event in events:
            query = f"SELECT {_COLUMNS} FROM event WHERE type = ? AND seq <= ? ORDER BY seq DESC LIMIT ?"
            found += self._all(query, TYPE_NUMBERS[event], upto, nth + 1)
        found.sort(key=lambda entry: -entry.sequence_number)
        return found[nth] if nth < len(found) else None

    def every(self, *events: type[Event], upto: int) -> Iterator[Entry]:
        """Iterate over the entries of rare events, oldest first."""
        marks = ", ".join("?" * len(events))
        query = f"SELECT {_COLUMNS} FROM event WHERE type IN ({marks}) AND seq <= ? ORDER BY seq"
        yield from self._all(query, *(TYPE_NUMBERS[event] for event in events), upto)

    def page(self, after: int, upto: int, size: int = 1000) -> list[Entry]:
        """Return the next entries with after < sequence number <= upto, oldest first."""
        query = f"SELECT {_COLUMNS} FROM event WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
        page = self._all(query, after, upto, size)
        expected = range(after + 1, min(upto, after + size) + 1)
        if [entry.sequence_number for entry in page] != list(expected):
            raise Damaged(f"rows after {after} are missing")
        return page

    def at_time(self, time_us: int) -> Entry | None:
        """Return the last commit end recorded at or before a moment; times do not go back along a chain."""
        low, high = -1, (tip.sequence_number if (tip := self.tip()) else -1)
        while low < high:
            middle = (low + high + 1) // 2
            entry = self.at(middle)
            if entry is None:
                raise Damaged(f"row {middle} is missing")
            low, high = (middle, high) if entry.time_us <= time_us else (low, middle - 1)
        return self._one(
            f"SELECT {_COLUMNS} FROM event WHERE seq <= ? AND is_end ORDER BY seq DESC LIMIT 1", low
        )

    def slices(self, first: int, last: int, upto: int) -> list[int]:
        """Return the sequence numbers of the blocks whose slices touch the offsets [first, last]."""
        query = (
            "SELECT seq FROM slice WHERE start >= coalesce("
            "(SELECT max(start) FROM slice WHERE start <= ?), ?) "
            "AND start <= ? AND stop >= ? AND seq <= ? ORDER BY start"
        )
        return [row[0] for row in self._rows(query, first, first, last, first, upto)]

    def token(self, key: str) -> int | None:
        """Return the sequence number of the block that carries an idempotency key."""
        rows = self._rows("SELECT seq FROM token WHERE key = ?", key)
        return rows[0][0] if rows else None

    # --- writing --------------------------------------------------------------

    def extend(self, blocks: Iterable[Block], *, after: Multihash | None) -> None:
        """Add blocks that follow `after`; what another process added meanwhile is left as it is."""
        with self._writing() as connection:
            tip = self._one(f"SELECT {_COLUMNS} FROM event ORDER BY seq DESC LIMIT 1")
            if (tip.hash if tip else None) != after:
                return
            commits = tip.commits if tip else 0
            for block in blocks:
                commits = self._insert(connection, block, commits)

    def truncate(self, after: int, *, if_still: Callable[[], bool]) -> None:
        """Forget what follows a sequence number (-1: all), if that is still right once nobody else writes."""
        with self._writing() as connection:
            if not if_still():
                return
            for table in ("event", "slice", "taken", "token"):
                connection.execute(f"DELETE FROM {table} WHERE seq > ?", (after,))

    def discard(self) -> None:
        """Throw the index away, file and all."""
        with self._lock:
            self.close()
            if self.path is not None:
                for suffix in ("", "-wal", "-shm"):
                    with suppress(OSError):
                        self.path.with_name(self.path.name + suffix).unlink()

    def in_memory(self) -> Index:
        """Return a copy that needs no place to write, for folders that are read-only or full."""
        copy = Index(None)
        if self.path is not None and self.path.exists():
            with suppress(sqlite3.Error, Damaged):
                source = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
                target = copy._open()
                source.backup(target)
                source.close()
        return copy

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                with suppress(sqlite3.Error):
                    self._connection.close()
                self._connection = None

    # --- inside ---------------------------------------------------------------

    def _insert(self, connection: sqlite3.Connection, block: Block, commits: int) -> int:
        record, event, seq = commit_record(block), block.event, block.sequence_number
        data = event if isinstance(event, AddData | ExecuteTransform) else None
        last = data.last_offset if data else self._last_offset(connection)
        commits += record.is_end
        values = (
            seq,
            block.hash.digest,
            TYPE_NUMBERS[type(event)],
            block.system_time // 1000,
            _signed(last),
            commits,
        )
        row = (*values, int(record.is_end))
        connection.execute(f"INSERT INTO event({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?)", (*row, _crc(row)))
        if data and data.new_data:
            interval = data.new_data.offset_interval
            connection.execute(
                "INSERT OR REPLACE INTO slice VALUES (?,?,?)",
                (_signed(interval.start), _signed(interval.end), seq),
            )
        if isinstance(event, ExecuteTransform):
            for taken in event.query_inputs:
                block_digest = taken.last_block.digest if taken.last_block else None
                connection.execute(
                    "INSERT INTO taken VALUES (?,?,?,?)",
                    (str(taken.dataset_id), seq, block_digest, _signed(taken.last_offset)),
                )
        key = (record.notes or {}).get("idempotency_key")
        if isinstance(key, str):
            connection.execute("INSERT OR IGNORE INTO token VALUES (?,?)", (key, seq))
        return commits

    def _last_offset(self, connection: sqlite3.Connection) -> int | None:
        row = connection.execute("SELECT last_offset FROM event ORDER BY seq DESC LIMIT 1").fetchone()
        return row[0] if row else None

    def _open(self) -> sqlite3.Connection:
        if self._pid != os.getpid():
            # A connection must not be used, nor closed, by a forked child.
            self._connection, self._pid = None, os.getpid()
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        target = ":memory:"
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            target = str(self.path)
        connection = sqlite3.connect(target, timeout=60, isolation_level=None, check_same_thread=False)
        # It can be made anew, so it need not be durable; the chain is.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN IMMEDIATE")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
        if version not in (0, VERSION):
            connection.close()
            raise Damaged(f"layout {version} is not {VERSION}")
        return connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _as_damage():
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._lock, _as_damage():
            return self._open().execute(query, values).fetchall()

    def _all(self, query: str, *values: Any) -> list[Entry]:
        return [_entry(row) for row in self._rows(query, *values)]

    def _one(self, query: str, *values: Any) -> Entry | None:
        rows = self._rows(query, *values)
        return _entry(rows[0]) if rows else None


@contextmanager
def _as_damage() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if (
            "readonly" in str(error)
            or "unable to open" in str(error)
            or "full" in str(error)
            or "locked" in str(error)
        ):
            raise Unusable(str(error)) from None
        raise Damaged(str(error)) from None
    except (sqlite3.Error, OverflowError) as error:
        raise Damaged(str(error)) from None
    except OSError as error:
        raise Unusable(str(error)) from None


class Unusable(Exception):
    """The index cannot be kept where it should be; one in memory serves instead."""


def _signed(offset: int | None) -> int | None:
    """SQLite's integers are signed; offsets from hostile blocks may use all 64 bits."""
    return offset - (1 << 64) if offset is not None and offset >= 1 << 63 else offset


def _unsigned(offset: int | None) -> int | None:
    return offset + (1 << 64) if offset is not None and offset < 0 else offset


def _crc(row: tuple[Any, ...]) -> int:
    return zlib.crc32(repr(row).encode())


def _entry(row: Any) -> Entry:
    if _crc(tuple(row[:7])) != row[7]:
        raise Damaged(f"row {row[0]} does not check out")
    seq, digest, kind, time_us, last, commits, is_end, _ = row
    return Entry(seq, Multihash.sha3_256(digest), kind, time_us, _unsigned(last), commits, bool(is_end))
