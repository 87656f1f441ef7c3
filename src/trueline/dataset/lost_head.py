"""A dataset whose head is gone, as opposed to the leftovers of a creation that never finished."""

from __future__ import annotations

from trueline.chain.block import Block
from trueline.chain.index import Index
from trueline.chain.index_rows import Damaged, Unusable
from trueline.chain.store.folders import Inside
from trueline.chain.store.store import Folder, Store
from trueline.errors import HeadMissing, TruelineError
from trueline.identity.multihash import Multihash


def is_lost(store: Store, index: Inside) -> bool:
    """Say whether a store without a head had one.

    A creation writes blocks of metadata only, and the index is written after
    the head: so data, or an index that knows a head, mean that one was lost.
    """
    for folder in (Folder.DATA, Folder.CHECKPOINTS):
        if next(iter(store.list(folder)), None) is not None:
            return True
    if not index.exists():
        return False
    known = Index(index)
    try:
        return known.tip() is not None
    except (Damaged, Unusable):
        return False
    finally:
        known.close()


def head_missing(store: Store) -> HeadMissing:
    """The error of a lost head that no index remembers, with the block that looks like the newest."""
    newest = newest_block(store)
    if newest is None:
        remedy = "restore refs/head from a copy of the dataset"
    else:
        remedy = (
            f"if nothing was removed on purpose, write into refs/head what looks like the newest: {newest}"
        )
    return HeadMissing(
        f"{store.location} has data but its head is missing; "
        + (f"the newest block found is {newest}" if newest else "no block was found"),
        remedy=remedy,
        last_known=newest,
    )


def newest_block(store: Store) -> Multihash | None:
    """Return the block with the highest number that no other continues; reads every block."""
    numbers: dict[Multihash, int] = {}
    continued: set[Multihash] = set()
    for stored in store.list(Folder.BLOCKS):
        try:
            block = Block.from_bytes(store.get(Folder.BLOCKS, stored.hash))
        except TruelineError:
            continue
        numbers[stored.hash] = block.sequence_number
        if block.prev_block_hash is not None:
            continued.add(block.prev_block_hash)
    ends = [name for name in numbers if name not in continued]
    return max(ends, key=lambda name: numbers[name], default=None)
