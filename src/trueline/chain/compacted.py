"""Larger files that hold the records of many small slices again: known to the private index alone.

No block names them, no hash covers them, and `push` and `clone` pass them over. Readers take them where they
are there; without them, or without the index, the slices are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from trueline.chain.chain import Chain
from trueline.chain.index_rows import Damaged, Unusable, crc
from trueline.chain.store.store import Folder
from trueline.identity.multihash import Multihash

_TABLE: Final = "compacted"
_CREATE: Final = (
    f"CREATE TABLE IF NOT EXISTS {_TABLE}(first INTEGER PRIMARY KEY, last INTEGER NOT NULL, "
    "block BLOB NOT NULL, hash BLOB NOT NULL, size INTEGER NOT NULL, crc INTEGER NOT NULL)"
)


@dataclass(frozen=True, slots=True)
class CompactFile:
    """The records with the offsets `first` to `last`, as they are up to `block`, in one file."""

    first: int
    last: int
    block: Multihash
    hash: Multihash
    size: int

    @property
    def rows(self) -> int:
        """How many records it holds."""
        return self.last - self.first + 1


def compact_files(chain: Chain) -> list[CompactFile]:
    """Return the files that the index knows, by offset, that are there and whose block is on the branch.

    A block's hash covers all before it, so the records of such a file are those of the slices.
    """
    found = []
    for file in known_files(chain):
        if chain.entry(file.block) is None:
            continue
        if chain.store.size(Folder.DATA, file.hash) == file.size:
            found.append(file)
    return found


def known_files(chain: Chain) -> list[CompactFile]:
    """Return the files that the index knows, by offset; a row that does not check out counts as none."""
    index = chain._index
    found = []
    with suppress(Damaged, Unusable):
        if index._rows("SELECT 1 FROM sqlite_master WHERE name = ?", _TABLE):
            columns = "first, last, block, hash, size, crc"
            for row in index._rows(f"SELECT {columns} FROM {_TABLE} ORDER BY first"):
                first, last, block, name, size, check = row
                if crc(tuple(row[:-1])) == check:
                    names = Multihash.sha3_256(block), Multihash.sha3_256(name)
                    found.append(CompactFile(first, last, *names, size))
    return found


def keep_files(chain: Chain, files: Iterable[CompactFile]) -> None:
    """Let the index know these files and no others; forgetting them costs only time."""
    with suppress(Damaged, Unusable), chain._index._writing() as connection:
        connection.execute(_CREATE)
        connection.execute(f"DELETE FROM {_TABLE}")
        for file in files:
            row = (file.first, file.last, file.block.digest, file.hash.digest, file.size)
            connection.execute(f"INSERT INTO {_TABLE} VALUES (?,?,?,?,?,?)", (*row, crc(row)))


def remove_files(chain: Chain) -> None:
    """Forget all files and delete them: records that are to go are in them too."""
    known = known_files(chain)
    if not known:
        return
    keep_files(chain, ())
    for file in known:
        chain.store.delete(Folder.DATA, file.hash)
    chain.store.sync()
