"""What a block refers to: the one registry that verify, gc, push and clone follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trueline.chain.block import Block, record_of
from trueline.chain.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointFile, is_ours
from trueline.chain.events import AddData, ExecuteTransform
from trueline.chain.store.store import Folder, Store
from trueline.errors import CorruptionError, InputError
from trueline.identity.multihash import Multihash


@dataclass(frozen=True, slots=True)
class Reference:
    """An object something needs; `role` says what it is, in words for messages."""

    folder: Folder
    hash: Multihash
    size: int | None
    role: str


Refers = Callable[[Any], Iterator[Reference]]
Expands = Callable[[bytes], Iterator[Reference]]
_REFERS: dict[type, list[Refers]] = {}
_EXPANDS: dict[Folder, list[Expands]] = {}


def refers(*events: type) -> Callable[[Refers], Refers]:
    """Register what an event refers to."""

    def register(function: Refers) -> Refers:
        for event in events:
            _REFERS.setdefault(event, []).append(function)
        return function

    return register


def expands(folder: Folder) -> Callable[[Expands], Expands]:
    """Register what an object of a folder refers to in turn."""

    def register(function: Expands) -> Expands:
        _EXPANDS.setdefault(folder, []).append(function)
        return function

    return register


@refers(AddData, ExecuteTransform)
def _slice_and_checkpoint(event: AddData | ExecuteTransform) -> Iterator[Reference]:
    if event.new_data:
        yield Reference(Folder.DATA, event.new_data.physical_hash, event.new_data.size, "slice")
    if event.new_checkpoint:
        yield Reference(
            Folder.CHECKPOINTS, event.new_checkpoint.physical_hash, event.new_checkpoint.size, "checkpoint"
        )


@refers(AddData)
def _noted_objects(event: AddData) -> Iterator[Reference]:
    """What the record of a commit names, such as the list of its bad cells."""
    noted = (record_of(event).notes or {}).get("objects")
    for role, item in noted.items() if isinstance(noted, Mapping) else ():
        size = item.get("size") if isinstance(item, Mapping) else None
        try:
            name = Multihash.parse(str(item["hash"])) if isinstance(item, Mapping) else None
        except (InputError, KeyError):
            continue  # not ours
        if name is not None:
            known = size if type(size) is int and size >= 0 else None
            yield Reference(Folder.DATA, name, known, str(role)[:80].replace("_", " "))


@expands(Folder.CHECKPOINTS)
def _state_files(raw: bytes) -> Iterator[Reference]:
    if is_ours(raw):
        for file in CheckpointFile.from_bytes(raw).files:
            yield Reference(Folder.CHECKPOINTS, file.hash, file.size, "state")


def direct(block: Block) -> Iterator[Reference]:
    """Yield what a block names itself."""
    for function in _REFERS.get(type(block.event), ()):
        yield from function(block.event)


def references(block: Block, store: Store, seen: set[Any] | None = None) -> Iterator[Reference]:
    """Yield everything a block needs, each object once; `seen` is the memory the blocks of a chain share.

    Only checkpoints are opened, and only those small enough to be lists; one
    that is missing or damaged is yielded and not followed. One that is whole
    but not understood raises `InputError`: what it lists must not be taken for
    unneeded.
    """
    seen = set() if seen is None else seen
    waiting = list(direct(block))
    while waiting:
        reference = waiting.pop()
        place = (reference.folder, reference.hash)
        if place not in seen:
            seen.add(place)
            yield reference
        # What one checkpoint lists as a state file may be a checkpoint of its own elsewhere.
        if reference.role == "checkpoint" and (*place, "followed") not in seen:
            seen.add((*place, "followed"))
            waiting.extend(_listed(reference, store))


def _listed(reference: Reference, store: Store) -> list[Reference]:
    """Return what a checkpoint lists."""
    if (reference.size or 0) > MAX_CHECKPOINT_BYTES:
        return []
    try:
        raw = store.get(reference.folder, reference.hash, limit=MAX_CHECKPOINT_BYTES)
    except CorruptionError:
        return []
    if Multihash.of(raw) != reference.hash:
        return []
    try:
        return [listed for function in _EXPANDS.get(reference.folder, ()) for listed in function(raw)]
    except InputError as error:
        raise InputError(f"{reference.role} {reference.hash}: {error.problem}", remedy=error.remedy) from None
