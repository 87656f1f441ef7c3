"""What was counted of commits that do not record it: kept in the private index, so that it is counted once.

Commits of keyed datasets record how many rows are current and what they did to them, those of derived ones
in their checkpoints. Those of earlier versions and of other writers do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from trueline.chain.block import KINDS
from trueline.chain.chain import Chain
from trueline.chain.checkpoint import COUNTS, DerivedCheckpoint, derived_checkpoint
from trueline.chain.events import ExecuteTransform
from trueline.chain.index_rows import Damaged, Unusable, crc
from trueline.errors import TruelineError
from trueline.identity.multihash import Multihash

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


def noted_counts(inserts: int, updates: int, deletes: int, current: int | None) -> dict[str, Any]:
    """Return what a derived commit notes of what it did, in its checkpoint: its block has no room for it."""
    by_kind = dict(zip(KINDS, (inserts, updates, deletes), strict=True))
    return {COUNTS: by_kind | ({} if current is None else {"current": current})}


def derived_counts(left: DerivedCheckpoint | None) -> Counts:
    """Return what a derived commit notes of what it did; nothing if it does not.

    >>> derived_counts(None)
    Counts(current=None, inserts=None, updates=0, deletes=0)
    """
    noted = left.more.get(COUNTS) if left is not None else None
    values: list[Any] = []
    if isinstance(noted, Mapping):
        values = [noted.get(name) for name in ("current", *KINDS)]
    if not values or not all(type(value) is int and value >= 0 for value in values):
        return Counts()
    return Counts(*values)


def left_by(chain: Chain, event: object) -> DerivedCheckpoint | None:
    """Read what a derived commit left; None if it left nothing, or what it left is gone or damaged."""
    if not isinstance(event, ExecuteTransform):
        return None
    try:
        return derived_checkpoint(chain.store, event)
    except TruelineError:
        return None


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
