"""How many rows are current after a commit, and what it did to them: recorded in it, or kept in the index.

Commits of keyed datasets record both. Those of earlier versions and of other writers do not; what was
counted of them later is kept in the private index, so that it is counted once.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from trueline.chain.block import record_of
from trueline.chain.chain import Chain
from trueline.chain.events import AddData
from trueline.chain.head_state import Tail
from trueline.chain.index_rows import Damaged, Unusable, crc
from trueline.chain.sources import (
    MergeAppend,
    MergeChangelogStream,
    MergeSnapshot,
    MergeStrategy,
    MergeUpsertStream,
)
from trueline.identity.multihash import Multihash

CURRENT: Final = "current_rows"
OPERATIONS: Final = "operations"
# The names of the counts, in the order in which people read them.
KINDS: Final = ("insert", "update", "delete")
_TABLE: Final = "counted"
_CREATE: Final = (
    f"CREATE TABLE IF NOT EXISTS {_TABLE}(block BLOB PRIMARY KEY, current INTEGER, inserts INTEGER, "
    "updates INTEGER, deletes INTEGER, crc INTEGER NOT NULL) WITHOUT ROWID"
)


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted of one block: current rows after it, rows it inserted, updated and deleted.

    >>> Counts(inserts=2).operations, Counts(current=5).operations
    ({'insert': 2, 'update': 0, 'delete': 0}, None)
    """

    current: int | None = None
    inserts: int | None = None
    updates: int = 0
    deletes: int = 0

    @property
    def operations(self) -> dict[str, int] | None:
        """The rows by operation, None if they were not counted."""
        if self.inserts is None:
            return None
        return dict(zip(KINDS, (self.inserts, self.updates, self.deletes), strict=True))


def merge_at(tail: Tail) -> MergeStrategy | None:
    """Return the merge strategy in force at a tail, None if nothing was declared."""
    source: Any = tail.push.get("default") or next(iter(tail.push.values()), None) or tail.polling
    return None if source is None else source.merge


def replaces_rows(tail: Tail) -> bool:
    """Say whether later events of a dataset replace earlier ones, so that it has fewer rows than events."""
    return isinstance(merge_at(tail), MergeSnapshot | MergeChangelogStream | MergeUpsertStream)


def has_key(tail: Tail) -> bool:
    """Say whether a dataset is keyed: by any strategy but append."""
    merge = merge_at(tail)
    return merge is not None and not isinstance(merge, MergeAppend)


def recorded_current(tail: Tail) -> int | None:
    """Return how many rows are current, as the last commit before a tail records it."""
    if not isinstance(tail.data, AddData):
        return None
    return read_count((record_of(tail.data).notes or {}).get(CURRENT))


def read_count(noted: object) -> int | None:
    """Read a count that a commit noted; what is not one is passed over."""
    return noted if type(noted) is int and noted >= 0 else None


def read_operations(noted: object) -> dict[str, int] | None:
    """Read the counts by operation that a commit noted, None where it noted none.

    >>> read_operations({"insert": 1, "delete": 2}), read_operations({"insert": "1"})
    ({'insert': 1, 'update': 0, 'delete': 2}, None)
    """
    if not isinstance(noted, Mapping):
        return None
    found = {kind: read_count(noted.get(kind, 0)) for kind in KINDS}
    known = {kind: count for kind, count in found.items() if count is not None}
    return known if len(known) == len(KINDS) else None


# --- the index ---------------------------------------------------------------------


def kept_counts(chain: Chain, block: Multihash) -> Counts:
    """Return what the index knows of a block; a row that does not check out counts as none."""
    index = chain._index
    with suppress(Damaged, Unusable):
        if index._rows("SELECT 1 FROM sqlite_master WHERE name = ?", _TABLE):
            columns = "block, current, inserts, updates, deletes, crc"
            for row in index._rows(f"SELECT {columns} FROM {_TABLE} WHERE block = ?", block.digest):
                if crc(tuple(row[:-1])) == row[-1]:
                    return Counts(*row[1:-1])
    return Counts()


def keep_counts(chain: Chain, counted: Mapping[Multihash, Counts]) -> None:
    """Remember counts by block, beside what is known of it; forgetting them costs only time."""
    before = {block: kept_counts(chain, block) for block in counted}
    with suppress(Damaged, Unusable), chain._index._writing() as connection:
        connection.execute(_CREATE)
        for block, new in counted.items():
            old = before[block]
            by_operation = new if new.inserts is not None else old
            row = (
                block.digest,
                old.current if new.current is None else new.current,
                by_operation.inserts,
                by_operation.updates,
                by_operation.deletes,
            )
            connection.execute(f"INSERT OR REPLACE INTO {_TABLE} VALUES (?,?,?,?,?,?)", (*row, crc(row)))
