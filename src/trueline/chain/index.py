"""A private map of one chain: finds blocks without walking, and can always be rebuilt.

It only says where things are. What they are is read from the blocks, whose
hashes prove them; a row that does not check out means the file is damaged.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from trueline.chain.block import Block, commit_record, is_commit_end
from trueline.chain.events import AddData, Event, ExecuteTransform
from trueline.chain.index_rows import (
    Damaged,
    IndexEntry,
    SeenHead,
    SliceEntry,
    Unusable,
    crc,
    entry_of,
    read_seen,
    row_of,
    signed,
    slice_entry,
    unsigned,
    write_seen,
)
from trueline.chain.store.folders import Inside, check_database, open_database, remove_database
from trueline.chain.wire import OneOf, layout
from trueline.identity.multihash import Multihash

Spot = Path | Inside
VERSION = 4
_TYPES = next(field.kind for field in layout(Block).fields if field.name == "event")
assert isinstance(_TYPES, OneOf)
TYPE_NUMBERS: dict[type, int] = {event: number for number, event in enumerate(_TYPES.of, 1)}
_DATA_TYPES = frozenset({TYPE_NUMBERS[AddData], TYPE_NUMBERS[ExecuteTransform]})
# `before` links a row to the one before it of the same type, `data` to the newest data event, `rare` to
# the newest other event, whose own row in `rare` lists the newest of every type. So whatever is asked for is
# found by sequence number, and a row that was lost is noticed.
# The last digits of a digest, the very last first: people see the end of a hash and write it, or some of it.
_SHORT = 8
_BACKWARDS = "||".join(f"substr(hex(substr(hash,29,4)),{_SHORT - i},1)" for i in range(_SHORT))
_SCHEMA = f"""
CREATE TABLE event(
  seq INTEGER PRIMARY KEY, hash BLOB NOT NULL, type INTEGER NOT NULL, time INTEGER NOT NULL,
  last_offset INTEGER, commits INTEGER NOT NULL, is_end INTEGER NOT NULL,
  before INTEGER, data INTEGER, rare INTEGER, crc INTEGER NOT NULL);
CREATE UNIQUE INDEX event_hash ON event(hash);
CREATE INDEX event_end ON event({_BACKWARDS});
CREATE TABLE rare(seq INTEGER PRIMARY KEY, latest TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE slice(
  start INTEGER PRIMARY KEY, stop INTEGER NOT NULL, seq INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE taken(
  input TEXT NOT NULL, seq INTEGER NOT NULL, block BLOB, last_offset INTEGER,
  PRIMARY KEY(input, seq)) WITHOUT ROWID;
CREATE INDEX taken_offset ON taken(input, last_offset, seq);
CREATE TABLE token(key TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE file(hash TEXT NOT NULL, name TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY(hash, name, seq))
  WITHOUT ROWID;
CREATE INDEX file_name ON file(name, seq);
CREATE TABLE slice_time(block BLOB PRIMARY KEY, low INTEGER, high INTEGER, crc INTEGER NOT NULL)
  WITHOUT ROWID;
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_COLUMNS = "seq, hash, type, time, last_offset, commits, is_end, before, data, rare, crc"
_INSERT = f"INSERT INTO event({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?)"


class Index:
    """A SQLite file (or memory) with one row per block of the present branch."""

    def __init__(self, path: Spot | None = None) -> None:
        self.place = Inside(path.absolute().parent, (path.name,)) if isinstance(path, Path) else path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._carried: list[SeenHead] = []
        self._boot = ""
        self._pid = os.getpid()

    # --- reading --------------------------------------------------------------

    def tip(self) -> IndexEntry | None:
        """Return the newest entry."""
        return self._one(f"SELECT {_COLUMNS} FROM event ORDER BY seq DESC LIMIT 1")

    def at(self, sequence_number: int) -> IndexEntry | None:
        """Return the entry with a sequence number."""
        return self._one(f"SELECT {_COLUMNS} FROM event WHERE seq = ?", sequence_number)

    def find(self, block: Multihash) -> IndexEntry | None:
        """Return the entry of a block, None if it is not on the branch."""
        entry = self._one(f"SELECT {_COLUMNS} FROM event WHERE hash = ?", block.digest)
        # Rows hold the digest alone; a hash of another function may have the same.
        return entry if entry is not None and entry.hash == block else None

    def beginning(self, digits: str) -> list[IndexEntry]:
        """Return the entries whose digest begins with hexadecimal digits, in order."""
        bounds = (bytes.fromhex(digits.ljust(64, fill)) for fill in "0f")
        return self._all(f"SELECT {_COLUMNS} FROM event WHERE hash BETWEEN ? AND ? ORDER BY seq", *bounds)

    def ending(self, digits: str) -> list[IndexEntry]:
        """Return the entries whose digest ends with hexadecimal digits, in order."""
        end = digits[-_SHORT:][::-1].upper()
        query = f"SELECT {_COLUMNS} FROM event WHERE {_BACKWARDS} BETWEEN ? AND ? ORDER BY seq"
        return [entry for entry in self._all(query, end, end + "G") if entry.hash.endswith(digits)]

    def newest(self, *events: type[Event], upto: int, nth: int = 0) -> IndexEntry | None:
        """Return the n-th newest entry (0: the newest) of these events at or before a sequence number."""
        here = self.required(upto)
        fronts = [entry for event in events if (entry := self._latest(TYPE_NUMBERS[event], here))]
        while fronts:
            fronts.sort(key=lambda entry: entry.sequence_number)
            newest = fronts.pop()
            if nth == 0:
                return newest
            nth -= 1
            if newest.before is not None:
                fronts.append(self.required(newest.before))
        return None

    def every(self, *events: type[Event], upto: int) -> list[IndexEntry]:
        """Return the entries of rare events at or before a sequence number, oldest first."""
        found: list[IndexEntry] = []
        here = self.required(upto)
        for event in events:
            entry = self._latest(TYPE_NUMBERS[event], here)
            while entry is not None:
                found.append(entry)
                entry = self.required(entry.before) if entry.before is not None else None
        return sorted(found, key=lambda entry: entry.sequence_number)

    def required(self, sequence_number: int) -> IndexEntry:
        """Return an entry that must be there."""
        entry = self.at(sequence_number)
        if entry is None:
            raise Damaged(f"row {sequence_number} is missing")
        return entry

    def _latest(self, kind: int, here: IndexEntry) -> IndexEntry | None:
        """Return the newest entry of a type at or before an entry."""
        if here.type == kind:
            return here
        if kind in _DATA_TYPES and (data := self._data(here)) is not None and data.type == kind:
            return data
        number = self._rare(here.rare).get(kind) if here.rare is not None else None
        return self.required(number) if number is not None else None

    def _data(self, here: IndexEntry) -> IndexEntry | None:
        """Return the newest data event at or before an entry."""
        if here.data is None or here.data == here.sequence_number:
            return here if here.data is not None else None
        return self.required(here.data)

    def _rare(self, sequence_number: int) -> dict[int, int]:
        rows = self._rows("SELECT seq, latest, crc FROM rare WHERE seq = ?", sequence_number)
        if not rows or crc(tuple(rows[0][:2])) != rows[0][2]:
            raise Damaged(f"row {sequence_number} of rare events is missing or does not check out")
        return {int(kind): number for kind, number in json.loads(rows[0][1]).items()}

    def page(self, after: int, upto: int, size: int = 1000) -> list[IndexEntry]:
        """Return the next entries with after < sequence number <= upto, oldest first."""
        query = f"SELECT {_COLUMNS} FROM event WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
        page = self._all(query, after, upto, size)
        expected = range(after + 1, min(upto, after + size) + 1)
        if [entry.sequence_number for entry in page] != list(expected):
            raise Damaged(f"rows after {after} are missing")
        return page

    def positions(
        self, after: int, upto: int, size: int = 10_000
    ) -> list[tuple[bytes, int, int | None, int]]:
        """Return digest, number, last offset and whether a commit ends of the next entries, unchecked."""
        query = (
            "SELECT hash, seq, last_offset, is_end FROM event WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
        )
        return self._rows(query, after, upto, size)

    def at_time(self, time_us: int) -> IndexEntry | None:
        """Return the last commit end recorded at or before a time; times do not go back along a chain."""
        low, high = -1, (tip.sequence_number if (tip := self.tip()) else -1)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.required(middle).time_us <= time_us else (low, middle - 1)
        while low >= 0 and not (entry := self.required(low)).is_end:
            low -= 1
        return entry if low >= 0 else None

    def slices(self, first: int, last: int, upto: int) -> list[int]:
        """Return the sequence numbers of the blocks whose slices touch the offsets [first, last]."""
        end = self.required(upto).last_offset
        last = min(last, -1 if end is None else end)
        if first > last:
            return []
        query = (
            "SELECT start, stop, seq, crc FROM slice WHERE start <= ? AND start >= "
            "(SELECT max(start) FROM slice WHERE start <= ?) ORDER BY start"
        )
        rows = self._rows(query, last, first)
        # Offsets are dense, so a slice that was lost leaves a gap.
        gaps = any(before[1] + 1 != after[0] for before, after in pairwise(rows))
        if not rows or gaps or rows[-1][1] < last or any(crc(tuple(row[:3])) != row[3] for row in rows):
            raise Damaged(f"slices of the offsets {first} to {last} are missing or do not check out")
        return [row[2] for row in rows]

    def slice_page(self, first: int, last: int, upto: int, size: int = 1000) -> list[SliceEntry]:
        """Return the first slices that touch the offsets [first, last], in order; none if there are none."""
        end = self.required(upto).last_offset
        last = min(last, -1 if end is None else end)
        if first > last:
            return []
        query = (
            "SELECT s.start, s.stop, s.seq, s.crc, e.hash, t.low, t.high, t.crc FROM slice s "
            "JOIN event e ON e.seq = s.seq LEFT JOIN slice_time t ON t.block = e.hash "
            "WHERE s.start <= ? AND s.start >= (SELECT max(start) FROM slice WHERE start <= ?) "
            "ORDER BY s.start LIMIT ?"
        )
        rows = self._rows(query, last, first, size)
        gaps = any(before[1] + 1 != after[0] for before, after in pairwise(rows))
        torn = any(crc(tuple(row[:3])) != row[3] for row in rows)
        if not rows or gaps or torn or not rows[0][0] <= first <= rows[0][1]:
            raise Damaged(f"slices of the offsets {first} to {last} are missing or do not check out")
        if len(rows) < size and rows[-1][1] < last:
            raise Damaged(f"slices of the offsets up to {last} are missing")
        return [slice_entry(row) for row in rows]

    def keep_times(self, times: Mapping[Multihash, tuple[int | None, int | None]]) -> None:
        """Remember between which event times the records of slices lie, by block."""
        with self._writing() as connection:
            for block, (low, high) in times.items():
                row = (block.digest, low, high)
                connection.execute("INSERT OR REPLACE INTO slice_time VALUES (?,?,?,?)", (*row, crc(row)))

    def taken(self, source: str, after: int, upto: int) -> tuple[Multihash | None, int | None] | None:
        """Return how far an input was read: block and offset, by the newest with after < number <= upto.

        None if nothing there has read it. Found by number: through the offset it would take a walk. It is a
        hint; the block that recorded it says what is so.
        """
        within = "input = ? AND seq > ? AND seq <= ? ORDER BY seq DESC LIMIT 1"
        rows = self._rows(f"SELECT block, last_offset FROM taken WHERE {within}", source, after, upto)
        block = Multihash.sha3_256(rows[0][0]) if rows and rows[0][0] is not None else None
        return (block, unsigned(rows[0][1])) if rows else None

    def token(self, key: str) -> int | None:
        """Return the sequence number of the block that carries an idempotency key."""
        return rows[0][0] if (rows := self._rows("SELECT seq FROM token WHERE key = ?", key)) else None

    def file(self, content: str) -> int | None:
        """Return the sequence number of the newest block that appended a file with these bytes."""
        rows = self._rows("SELECT max(seq) FROM file WHERE hash = ?", content)
        return rows[0][0] if rows else None

    def file_named(self, name: str) -> tuple[str, int] | None:
        """Return the hash of the newest file of a name, and the sequence number of its block."""
        rows = self._rows("SELECT hash, seq FROM file WHERE name = ? ORDER BY seq DESC LIMIT 1", name)
        return (rows[0][0], rows[0][1]) if rows else None

    def file_names(self) -> list[str]:
        """Return the names of all files that were appended."""
        return [row[0] for row in self._rows("SELECT DISTINCT name FROM file")]

    # --- writing --------------------------------------------------------------

    def extend(self, blocks: Iterable[Block], *, after: Multihash | None) -> None:
        """Add blocks that follow `after`; what another process added meanwhile is left as it is."""
        with self._writing() as connection:
            tip = self.tip()
            if (tip.hash if tip else None) != after:
                return
            first = tip.sequence_number + 1 if tip else 0
            for block in blocks:
                tip = self._insert(connection, block, tip)
            # It is added while the head's move is being made durable: a power cut may take that back.
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('last', ?)", (f"{first} {self._boot}",))

    def truncate(self, after: int, *, if_still: Callable[[], bool]) -> None:
        """Forget what follows a sequence number (-1: all), if it is still right once nothing else writes."""
        with self._writing() as connection:
            if not if_still():
                return
            known = self._known_tip()
            if known is not None and known.sequence_number > after:
                write_seen(connection, [*read_seen(connection), self._seen_head(known)])
            for table in ("event", "rare", "slice", "taken", "token", "file"):
                connection.execute(f"DELETE FROM {table} WHERE seq > ?", (after,))
            connection.execute("DELETE FROM slice_time WHERE block NOT IN (SELECT hash FROM event)")

    def seen(self) -> list[SeenHead]:
        """Return heads that were seen here and are not on the present branch."""
        with self._lock, _as_damage():
            return [each for each in read_seen(self._open()) if self.find(each.head) is None]

    def forget_seen(self, *heads: Multihash) -> None:
        """Forget heads that were seen here, all if none is named, and those of the present branch."""
        with self._writing() as connection:
            others = [each for each in read_seen(connection) if heads and each.head not in heads]
            write_seen(connection, [each for each in others if self.find(each.head) is None])

    def discard(self) -> None:
        """Delete the index with its file; what it still knows of heads goes into the next one."""
        with self._lock:
            if self.place is None or self.place.exists():
                with suppress(Damaged, Unusable, sqlite3.Error):
                    known = self._known_tip()
                    self._carried += read_seen(self._open())
                    self._carried += [self._seen_head(known)] if known is not None else []
            self.close()
            if self.place is not None:
                remove_database(self.place)

    def in_memory(self) -> Index:
        """Close it, and return a copy that needs no place to write: its folder is read-only or full."""
        copy = Index(None)
        if self.place is not None and self.place.exists():
            with suppress(sqlite3.Error, Damaged):
                check_database(self.place)
                source = sqlite3.connect(f"{self.place.path.as_uri()}?mode=ro&immutable=1", uri=True)
                # One that was cut short while it was made, by a full disk, has no tables.
                if source.execute("PRAGMA user_version").fetchone()[0] == VERSION:
                    source.backup(copy._open())
                source.close()
        self.close()
        return copy

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                with suppress(sqlite3.Error):
                    self._connection.close()
                self._connection = None

    # --- inside ---------------------------------------------------------------

    def _insert(self, connection: sqlite3.Connection, block: Block, tip: IndexEntry | None) -> IndexEntry:
        record, event, seq = commit_record(block), block.event, block.sequence_number
        is_end = is_commit_end(block)
        data = event if isinstance(event, AddData | ExecuteTransform) else None
        kind = TYPE_NUMBERS[type(event)]
        last = data.last_offset if data else tip.last_offset if tip else None
        before = self._latest(kind, tip) if tip else None
        past = self._data(tip) if tip else None
        # Only chains from elsewhere mix AddData and ExecuteTransform; a change is a rare event.
        rare = data is None or (past is not None and past.type != kind)
        entry = IndexEntry(
            seq,
            block.hash,
            kind,
            block.system_time // 1000,
            last,
            (tip.commits if tip else 0) + is_end,
            is_end,
            before.sequence_number if before else None,
            seq if data else tip.data if tip else None,
            seq if rare else tip.rare if tip else None,
        )
        row = row_of(entry)
        connection.execute(_INSERT, (*row, crc(row)))
        if rare:
            latest = self._rare(tip.rare) if tip and tip.rare is not None else {}
            latest |= {past.type: past.sequence_number} if past else {}
            listed = (seq, json.dumps(latest | {kind: seq}))
            connection.execute("INSERT INTO rare VALUES (?,?,?)", (*listed, crc(listed)))
        if data and data.new_data:
            interval = data.new_data.offset_interval
            held = (signed(interval.start), signed(interval.end), seq)
            connection.execute("INSERT OR REPLACE INTO slice VALUES (?,?,?,?)", (*held, crc(held)))
        if isinstance(event, ExecuteTransform):
            for taken in event.query_inputs:
                block_digest = taken.last_block.digest if taken.last_block else None
                connection.execute(
                    "INSERT INTO taken VALUES (?,?,?,?)",
                    (str(taken.dataset_id), seq, block_digest, signed(taken.last_offset)),
                )
        key = (record.notes or {}).get("idempotency_key")
        if isinstance(key, str):
            connection.execute("INSERT OR IGNORE INTO token VALUES (?,?)", (key, seq))
        for name, content in record.files:
            connection.execute("INSERT OR IGNORE INTO file VALUES (?,?,?)", (content, name, seq))
        return entry

    def _known_tip(self) -> IndexEntry | None:
        """Return the newest block that the head was at for sure.

        What was added last before the machine was restarted may have been in flight at a power cut.
        """
        last = self._rows("SELECT value FROM meta WHERE key = 'last'")
        first, _, boot = str(last[0][0]).partition(" ") if last else ("", "", self._boot)
        if boot == self._boot or not first.isdecimal():
            return self.tip()
        return self._one(f"SELECT {_COLUMNS} FROM event WHERE seq = ?", int(first) - 1)

    def _seen_head(self, tip: IndexEntry) -> SeenHead:
        first = self.at(0)
        return SeenHead(tip.hash, tip.sequence_number, first.hash if first is not None else None)

    def _open(self) -> sqlite3.Connection:
        if self._pid != os.getpid():
            # A connection must not be used, nor closed, by a forked child.
            self._connection, self._pid = None, os.getpid()
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        connection = open_database(self.place)
        try:
            self._prepare(connection)
        except BaseException:
            # Left open it would keep its lock.
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # It can be rebuilt, so it need not be durable; the chain is.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN IMMEDIATE")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")
            if self._carried:
                write_seen(connection, self._carried)
        connection.execute("COMMIT")
        if version not in (0, VERSION):
            raise Damaged(f"layout {version} is not {VERSION}")
        self._check_after_a_crash(connection)

    def _check_after_a_crash(self, connection: sqlite3.Connection) -> None:
        """Look through the file once after each start of the machine: being unsynced, a crash may tear it."""
        self._boot = boot = _boot()
        row = connection.execute("SELECT value FROM meta WHERE key = 'boot'").fetchone()
        if row is not None and row[0] == boot and boot:
            return
        if row is not None:
            answer = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if answer != "ok":
                raise Damaged(str(answer))
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('boot', ?)", (boot,))

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

    def _all(self, query: str, *values: Any) -> list[IndexEntry]:
        return [entry_of(row) for row in self._rows(query, *values)]

    def _one(self, query: str, *values: Any) -> IndexEntry | None:
        rows = self._rows(query, *values)
        return entry_of(rows[0]) if rows else None


@contextmanager
def _as_damage() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if any(said in str(error) for said in ("readonly", "unable to open", "full", "locked")):
            raise Unusable(str(error)) from None
        raise Damaged(str(error)) from None
    except (sqlite3.Error, OverflowError, ValueError, TypeError) as error:
        raise Damaged(str(error)) from None
    except OSError as error:
        raise Unusable(str(error)) from None


def _boot() -> str:
    """Return an identifier of this boot of the machine, empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
