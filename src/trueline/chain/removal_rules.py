"""The rule on removals: one names only records that exist at its block (guard:G7).

A removal is a data event without rows whose checkpoint holds its record. What
it may name can be judged from its block alone: the event carries the last
offset of the dataset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from trueline.chain.block import Block
from trueline.chain.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointFile, is_ours
from trueline.chain.findings import Finding
from trueline.chain.store import Folder, Store
from trueline.errors import CorruptionError, InputError
from trueline.identity.multihash import Multihash

NOTE: Final = "removal"
RULE: Final = "guard:G7"


def removal_beyond(store: Store, block: Block) -> Finding | None:
    """Say that a block records the removal of records that do not exist there, None if it does not.

    The checkpoint is read only for an event without rows that brings a new one, which is rare.
    """
    event = block.data_event
    if event is None or event.new_data is not None or event.new_checkpoint is None:
        return None
    name = event.new_checkpoint.physical_hash
    if name == event.prev_checkpoint:
        return None
    try:
        raw = store.get(Folder.CHECKPOINTS, name, limit=MAX_CHECKPOINT_BYTES)
        if Multihash.of(raw) != name or not is_ours(raw):
            return None
        note = CheckpointFile.from_bytes(raw).notes.get(NOTE)
    except (CorruptionError, InputError):
        return None  # what is missing or damaged is reported as such, and removes nothing
    # A checkpoint is carried by the blocks that follow; the record belongs to the one that made it.
    if not isinstance(note, Mapping) or note.get("sequence_number") != block.sequence_number:
        return None
    problem = beyond(note, event.last_offset)
    return None if problem is None else Finding(RULE, problem, _remedy(event.last_offset))


def beyond(note: Mapping[str, Any], last: int | None) -> str | None:
    """Say which offsets a record of a removal names that are not in a dataset ending at `last`."""
    end = -1 if last is None else last
    for first, stop, count in _spans(note):
        if not (0 <= first <= stop <= end and count <= stop - first + 1):
            there = "the dataset has no record there" if last is None else f"{last} is the last one there"
            return f"the removal names {count} records at the offsets {first} to {stop}, and {there}"
    return None


def _spans(note: Mapping[str, Any]) -> Iterator[tuple[int, int, int]]:
    """The offsets a record names, with how many records are gone there; the rest is left out."""
    upto = note.get("upto")
    if type(upto) is int:
        yield 0, upto, upto + 1
    slices = note.get("slices")
    for item in slices if isinstance(slices, list) else ():
        offsets = item.get("offsets") if isinstance(item, Mapping) else None
        if isinstance(offsets, list) and len(offsets) == 2 and all(type(each) is int for each in offsets):
            rows = item.get("rows")
            yield offsets[0], offsets[1], rows if type(rows) is int else 0


def _remedy(last: int | None) -> str:
    if last is None:
        return "there is nothing to remove: do not append it"
    return f"name offsets up to {last}, in slices the chain has, or remove records with drop_data"
