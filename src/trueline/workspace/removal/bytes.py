"""The bytes of what was removed: which objects they are, and their end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trueline.chain.chain import Chain
from trueline.chain.references import direct, references
from trueline.chain.store import Folder, Store
from trueline.identity.multihash import Multihash
from trueline.workspace.removal.record import Removals


def clear(chain: Chain, removals: Removals, *, after: int = -1, store: Store | None = None) -> int:
    """Delete what the removals recorded after a block number took; returns how many objects went.

    It may be done again, and elsewhere: `store` is another copy of the
    dataset. What is not there is passed over.
    """
    place = chain.store if store is None else store
    count = sum(place.delete(folder, name) for folder, name in _objects(chain, removals, after))
    # Also where there was nothing to delete: a cut may have left it unsynced the last time.
    place.sync()
    return count


def _objects(chain: Chain, removals: Removals, after: int) -> Iterator[tuple[Folder, Multihash]]:
    older = [removal for removal in removals.all if removal.sequence_number <= after]
    newer = removals.all[len(older) :]
    gone = max((removal.upto for removal in older if removal.upto is not None), default=-1)
    for removal in newer:
        if removal.upto is not None and removal.upto > gone:
            for block in chain.slice_blocks(gone + 1, removal.upto):
                for each in direct(block):
                    if each.folder is Folder.DATA and removals.is_gone(block, each):
                        yield each.folder, each.hash
            gone = removal.upto
        for loss in removal.losses:
            # Only a slice that lies where the record says: it may name whatever it likes.
            for block in chain.slice_blocks(loss.first, loss.last):
                data = block.data_event.new_data if block.data_event else None
                if data is not None and data.physical_hash == loss.slice and removals.hole(data) is not None:
                    yield Folder.DATA, loss.slice
    if newer:
        yield from _beside_slices(chain, removals)


def _beside_slices(chain: Chain, removals: Removals) -> Iterator[tuple[Folder, Multihash]]:
    """What no block needs any more beside slices: old state, replaced replacements, notes beside rows.

    A record may list anything; what a block that came after it names is needed.
    """
    if not any(removal.states or removal.objects for removal in removals.all):
        return
    listed = {name for removal in removals.all for name in removal.objects}
    gone: dict[tuple[Folder, Multihash], None] = {}
    needed: set[tuple[Folder, Multihash]] = set()
    for _, block in chain.walk():
        seen: set[Any] = set()
        for reference in references(block, chain.store, seen):
            if reference.folder is not Folder.CHECKPOINTS and reference.hash not in listed:
                continue
            place = (reference.folder, reference.hash)
            if removals.is_gone(block, reference):
                gone[place] = None
            else:
                needed.add(place)
    yield from (place for place in gone if place not in needed)
