"""What was removed from a dataset on purpose, as its chain records it.

A removal is a commit without rows. Its record is in the checkpoint file
it leaves (DESIGN decision 10), which also lists, by hash, the replacements of
slices that lost some of their rows. So gc, push and clone follow them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from trueline.chain.block import Block
from trueline.chain.chain import Chain
from trueline.chain.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointFile, StateFile, is_ours
from trueline.chain.events import DatasetKind, DataSlice
from trueline.chain.references import Reference
from trueline.chain.rule import NOTE, beyond
from trueline.chain.store.store import Folder, Store
from trueline.errors import CorruptionError, InputError
from trueline.identity.multihash import Multihash

NUMBERS: Final = "removals"
REPLACES: Final = "replaces"
_PREFIX: Final = "trueline/removal/"
# Records are read whenever a dataset is; named by their content, they are the same everywhere.
_READ: Final[dict[Multihash, CheckpointFile]] = {}
_AT_MOST: Final = 1024
_SMALL: Final = 64 << 10


def token(number: int) -> str:
    """The idempotency key of a root's n-th removal: so the index finds each without a walk."""
    return f"{_PREFIX}{number}"


@dataclass(frozen=True, slots=True)
class Loss:
    """A slice, from offset `first` to `last`, that lost `rows` of its rows in all.

    What is left of it is in `replacement`, a Parquet file like the slice.
    """

    slice: Multihash
    first: int
    last: int
    rows: int
    replacement: StateFile | None


@dataclass(frozen=True, slots=True)
class Removal:
    """One removal: why, how much, and from which slices.

    Slices that end at or before `upto` are gone whole. With `states`, the
    files of state that earlier checkpoints name are gone too. `objects` are
    replacements that newer ones took the place of, and notes beside rows.
    """

    number: int
    sequence_number: int
    reason: str
    rows: int
    upto: int | None = None
    losses: tuple[Loss, ...] = ()
    objects: tuple[Multihash, ...] = ()
    states: bool = False

    def to_note(self) -> dict[str, Any]:
        """Return the record as a checkpoint holds it."""
        return {
            "number": self.number,
            "sequence_number": self.sequence_number,
            "reason": self.reason,
            "rows": self.rows,
            "upto": self.upto,
            "slices": [
                {
                    "hash": str(loss.slice),
                    "offsets": [loss.first, loss.last],
                    "rows": loss.rows,
                    "replacement": str(loss.replacement.hash) if loss.replacement else None,
                }
                for loss in self.losses
            ],
            "objects": [str(name) for name in self.objects],
            "states": self.states,
        }

    @classmethod
    def of(cls, checkpoint: CheckpointFile) -> Self | None:
        """Read the record a checkpoint holds, None if it holds none that can be read."""
        note = checkpoint.notes.get(NOTE)
        files = {file.hash: file for file in checkpoint.files if REPLACES in file.notes}
        try:
            return cls._read(note, files) if isinstance(note, Mapping) else None
        except (KeyError, TypeError, ValueError):
            return None

    @classmethod
    def _read(cls, note: Mapping[str, Any], files: Mapping[Multihash, StateFile]) -> Self:
        losses = []
        for item in note["slices"]:
            kept = item["replacement"]
            replacement = None if kept is None else files[Multihash(kept)]
            first, last = map(_whole, item["offsets"])
            losses.append(Loss(Multihash(item["hash"]), first, last, _whole(item["rows"]), replacement))
        upto = note["upto"]
        return cls(
            _whole(note["number"]),
            _whole(note["sequence_number"]),
            str(note["reason"]),
            _whole(note["rows"]),
            None if upto is None else _whole(upto),
            tuple(losses),
            tuple(Multihash(name) for name in note["objects"]),
            note["states"] is True,
        )


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


@dataclass(frozen=True, slots=True)
class Hole:
    """What a slice is missing: how many rows, why, and where the others are (None: none are left)."""

    rows: int
    reason: str
    number: int
    replacement: StateFile | None = None


@dataclass(frozen=True, slots=True)
class Removals:
    """All removals of a dataset together, oldest first."""

    all: tuple[Removal, ...] = ()
    _losses: Mapping[Multihash, tuple[Loss, Removal]] = field(default_factory=dict)
    _objects: Mapping[Multihash, int] = field(default_factory=dict)
    _kept: frozenset[Multihash] = frozenset()
    _upto: int = -1
    _states_before: int = -1

    @classmethod
    def joined(cls, removals: Sequence[Removal]) -> Self:
        """Let later records take the place of earlier ones."""
        losses: dict[Multihash, tuple[Loss, Removal]] = {}
        objects: dict[Multihash, int] = {}
        for removal in removals:
            losses |= {loss.slice: (loss, removal) for loss in removal.losses}
            objects |= dict.fromkeys(removal.objects, removal.sequence_number)
        return cls(
            tuple(removals),
            losses,
            objects,
            frozenset(loss.replacement.hash for loss, _ in losses.values() if loss.replacement),
            max((r.upto for r in removals if r.upto is not None), default=-1),
            max((r.sequence_number for r in removals if r.states), default=-1),
        )

    def __bool__(self) -> bool:
        return bool(self.all)

    def count(self, last: int) -> int:
        """Say how many records with offsets up to the end of a slice are gone."""
        whole = min(last, self._upto) + 1
        for loss, _ in self._losses.values():
            if self._upto < loss.last <= last:
                # Its beginning may be among those that are gone anyway.
                whole += loss.rows - max(0, self._upto - loss.first + 1)
        return whole

    def hole(self, data: DataSlice) -> Hole | None:
        """Say what is missing of a slice, None if nothing is."""
        interval = data.offset_interval
        if interval.end <= self._upto:
            why = next(r for r in self.all if r.upto is not None and r.upto >= interval.end)
            return Hole(interval.end - interval.start + 1, why.reason, why.number)
        found = self._losses.get(data.physical_hash)
        if found is None:
            return None
        loss, removal = found
        if (loss.first, loss.last) != (interval.start, interval.end):
            return None  # of no slice of this chain
        return Hole(loss.rows, removal.reason, removal.number, loss.replacement)

    def of_object(self, block: Block, name: Multihash) -> Removal | None:
        """Return the removal that took what a block noted beside its rows, None if none did."""
        event = block.data_event
        last = event.last_offset if event is not None else None
        for removal in self.all:
            if removal.sequence_number > block.sequence_number and (
                name in removal.objects
                or (removal.upto is not None and last is not None and last <= removal.upto)
            ):
                return removal
        return None

    def is_gone(self, block: Block, reference: Reference) -> bool:
        """Say whether the bytes of something a block refers to were removed.

        What a block after a removal names is there again, whatever was removed before.
        """
        number, event = block.sequence_number, block.data_event
        if self._objects.get(reference.hash, -1) > number:
            return True
        if reference.folder is Folder.DATA and event is not None:
            if event.new_data is not None and event.new_data.physical_hash == reference.hash:
                return self.hole(event.new_data) is not None
            # What a commit noted beside its rows, cells that could not be read, goes with all of them.
            return event.last_offset is not None and event.last_offset <= self._upto
        is_old_state = reference.role == "state" and number < self._states_before
        return is_old_state and reference.hash not in self._kept


NONE: Final = Removals()


def removals_of(chain: Chain) -> Removals:
    """Return what was removed from a dataset, by a few block reads for each removal."""
    found = [removal for block in _blocks(chain) if (removal := recorded(chain.store, block)) is not None]
    return Removals.joined(found) if found else NONE


def _blocks(chain: Chain) -> Iterator[Block]:
    tail = chain.tail()
    if tail is None:
        return
    if tail.dataset_kind is DatasetKind.Root:
        number = 1
        while (block := chain.token(token(number))) is not None:
            yield block
            number += 1
        return
    # ExecuteTransform has no room for a key: the checkpoint in force lists where removals are.
    checkpoint = read_checkpoint(chain.store, tail.checkpoint) if tail.checkpoint else None
    for listed in (checkpoint.notes.get(NUMBERS) if checkpoint else None) or ():
        entry = chain.entry_number(listed) if type(listed) is int else None
        if entry is not None:
            yield chain.block(entry.hash)


def carried_removals(store: Store, name: Multihash | None) -> dict[str, Any]:
    """Return what the checkpoint of a derived dataset has to take over from the one before it."""
    before = read_checkpoint(store, name) if name is not None else None
    numbers = before.notes.get(NUMBERS) if before is not None else None
    return {NUMBERS: numbers} if numbers else {}


def recorded(store: Store, block: Block) -> Removal | None:
    """Return the removal a block records, None if it records none, or one that is lost or forged."""
    event = block.data_event
    if event is None or event.new_data is not None or event.new_checkpoint is None:
        return None
    checkpoint = read_checkpoint(store, event.new_checkpoint.physical_hash)
    removal = Removal.of(checkpoint) if checkpoint is not None else None
    # A checkpoint is carried by the blocks that follow; the record belongs to the one that made it.
    if removal is None or removal.sequence_number != block.sequence_number:
        return None
    # One that names records yet to come would swallow them (guard:G7); `verify` reports it.
    return removal if beyond(removal.to_note(), event.last_offset) is None else None


def read_checkpoint(store: Store, name: Multihash) -> CheckpointFile | None:
    """Read a checkpoint of ours, None if it is another engine's, damaged or not there."""
    if name in _READ:
        return _READ[name]
    try:
        raw = store.get(Folder.CHECKPOINTS, name, limit=MAX_CHECKPOINT_BYTES)
        found = CheckpointFile.from_bytes(raw) if Multihash.of(raw) == name and is_ours(raw) else None
    except (CorruptionError, InputError):
        return None
    if found is not None and len(raw) <= _SMALL:
        if len(_READ) >= _AT_MOST:
            _READ.clear()
        _READ[name] = found
    return found
