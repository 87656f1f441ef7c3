"""The rows of an index: where a block or a slice is, with a check sum that shows a torn one."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from trueline.identity.multihash import Multihash

_SEEN: Final = "seen"
# Each is a head that went back, which is rare; those that are furthest on are kept.
_MOST_SEEN: Final = 64


class Damaged(Exception):
    """The index does not hold what it should; it is deleted and rebuilt."""


class Unusable(Exception):
    """The index cannot be kept where it should be; one in memory serves instead."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Where one block of the chain is, and the little that is searched by."""

    sequence_number: int
    hash: Multihash
    type: int
    time_us: int
    last_offset: int | None
    commits: int
    is_end: bool
    before: int | None
    data: int | None
    rare: int | None


@dataclass(frozen=True, slots=True)
class SliceEntry:
    """Where a slice is, and between which event times its records lie, if somebody has looked.

    `times` are as the file stores them; (None, None) says that no record has one.
    """

    first: int
    last: int
    sequence_number: int
    block: Multihash
    times: tuple[int | None, int | None] | None


def signed(offset: int | None) -> int | None:
    """SQLite's integers are signed; offsets from hostile blocks may use all 64 bits."""
    return offset - (1 << 64) if offset is not None and offset >= 1 << 63 else offset


def unsigned(offset: int | None) -> int | None:
    """Undo `signed`."""
    return offset + (1 << 64) if offset is not None and offset < 0 else offset


def crc(row: tuple[Any, ...]) -> int:
    """Return the check sum of a row."""
    return zlib.crc32(repr(row).encode())


def row_of(entry: IndexEntry) -> tuple[Any, ...]:
    """Return an entry as it is stored, but for its check sum."""
    digest, last = entry.hash.digest, signed(entry.last_offset)
    head = (entry.sequence_number, digest, entry.type, entry.time_us, last, entry.commits, int(entry.is_end))
    return (*head, entry.before, entry.data, entry.rare)


def entry_of(row: tuple[Any, ...]) -> IndexEntry:
    """Read what `row_of` gave, with its check sum; one that does not check out raises `Damaged`."""
    if crc(tuple(row[:-1])) != row[-1]:
        raise Damaged(f"row {row[0]} does not check out")
    seq, digest, kind, time_us, last, commits, is_end, before, data, rare, _ = row
    name = Multihash.sha3_256(digest)
    return IndexEntry(seq, name, kind, time_us, unsigned(last), commits, bool(is_end), before, data, rare)


def slice_entry(row: tuple[Any, ...]) -> SliceEntry:
    """Read a slice with its block and, where they are known, its times."""
    start, stop, seq, _, digest, low, high, check = row
    if check is not None and crc((digest, low, high)) != check:
        raise Damaged(f"the times of slice {seq} do not check out")
    return SliceEntry(start, stop, seq, Multihash.sha3_256(digest), None if check is None else (low, high))


# --- heads that were seen ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SeenHead:
    """A head the chain had here once; `seed` is the first block of that chain, which says whose it is."""

    head: Multihash
    sequence_number: int
    seed: Multihash | None


def read_seen(connection: sqlite3.Connection) -> list[SeenHead]:
    """Return the heads that were cut off; what does not check out is passed over."""
    found = connection.execute("SELECT value FROM meta WHERE key = ?", (_SEEN,)).fetchone()
    try:
        values, check = json.loads(found[0]) if found is not None else ([], crc(()))
        if check != crc(tuple(map(tuple, values))):
            return []
        return [SeenHead(Multihash(h), int(n), None if s is None else Multihash(s)) for h, n, s in values]
    except (ValueError, TypeError):
        return []


def write_seen(connection: sqlite3.Connection, seen: Iterable[SeenHead]) -> None:
    """Remember heads that were cut off, in place of those remembered before."""
    newest = sorted(set(seen), key=lambda each: (-each.sequence_number, each.head))[:_MOST_SEEN]
    values = tuple((str(each.head), each.sequence_number, each.seed and str(each.seed)) for each in newest)
    connection.execute("DELETE FROM meta WHERE key = ?", (_SEEN,))
    if values:
        connection.execute("INSERT INTO meta VALUES (?, ?)", (_SEEN, json.dumps([values, crc(values)])))
