"""Removing records: the record of it first, then the bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from trueline.chain.block import CURRENT, CommitRecord
from trueline.chain.chain import Chain
from trueline.chain.checkpoint import VERSION, CheckpointFile, StateFile
from trueline.chain.events import Checkpoint, DatasetKind, Event
from trueline.chain.head_state import Tail, next_add_data, next_block, next_execute_transform
from trueline.chain.instant import Instant
from trueline.chain.references import direct, references
from trueline.chain.rule import NOTE
from trueline.chain.store.store import Folder, Store
from trueline.dataset.at import resolve
from trueline.dataset.commit import commit_at
from trueline.dataset.counts import counted_rows
from trueline.dataset.dataset_at import Standing
from trueline.dataset.read.events import Events
from trueline.dataset.read.slice_reader import SliceFile
from trueline.dataset.remove.record import (
    NUMBERS,
    Loss,
    Removal,
    Removals,
    read_checkpoint,
    removals_of,
    token,
)
from trueline.dataset.remove.select import Chosen, Condition, Offsets, choose, state_without, write_rest
from trueline.dataset.state.state import State
from trueline.errors import InputError, RefCASFailed
from trueline.identity.multihash import Multihash
from trueline.view.expressions import condition

MAX_REASON: Final = 1000
Where = str | Callable[[pa.RecordBatch], pa.Array]
Listener = Callable[[str, Chain, Removal], None]
_LISTENERS: Final[list[Listener]] = []


@dataclass(frozen=True, slots=True)
class Removed:
    """What a removal did: the commit that records it (None if no record was meant), rows, slices, objects."""

    dataset: str
    block: Multihash | None
    reason: str
    rows: int = 0
    slices: int = 0
    objects: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for programs."""
        return {name: getattr(self, name) for name in self.__slots__}


def on_removal(listener: Listener) -> Listener:
    """Have a function called for every removal, after its bytes are gone: name, chain and record."""
    _LISTENERS.append(listener)
    return listener


def drop_data(
    name: str,
    chain: Chain,
    *,
    upto: object = None,
    where: Where | None = None,
    reason: str,
    parameters: Mapping[str, object] | None = None,
    clock: Callable[[], Instant] | None = None,
) -> Removed:
    """Remove records: those up to a position, or those a condition means.

    The removal is recorded durably before the first byte goes; a crash in
    between leaves bytes that `gc` clears and that nothing reads any more.
    """
    if (upto is None) == (where is None):
        raise InputError("drop_data takes upto or where, one of them", remedy="say which records to remove")
    if not 0 < len(str(reason).strip()) <= MAX_REASON:
        raise InputError(
            f"the reason is {reason!r:.80}",
            remedy=f"say in 1 to {MAX_REASON} characters why: it stays in the chain for good",
            code="NoReason",
        )
    while True:
        with chain.store.turn(), chain.store.lease():
            plan = _Plan(name, chain, reason, clock or Instant.now)
            try:
                done = plan.by_offset(upto) if where is None else plan.by_condition(where, parameters or {})
            except RefCASFailed:
                continue  # someone who takes no turns
        if done.block is not None:
            _tell(name, chain)
        return done


def _tell(name: str, chain: Chain) -> None:
    removal = removals_of(chain).all[-1]
    for listener in _LISTENERS:
        listener(name, chain, removal)


class _Plan:
    """One removal, planned from one head."""

    def __init__(self, name: str, chain: Chain, reason: str, clock: Callable[[], Instant]) -> None:
        tail = chain.tail()
        assert tail is not None
        self.name = name
        self.chain = chain
        self.reason = reason
        self.clock = clock
        self.tail: Tail = tail
        self.standing = Standing.of(name, chain, tail.position)
        self.before: Removals = removals_of(chain)
        self.offset = self.standing.vocab.offset

    # --- which ----------------------------------------------------------------

    def by_offset(self, upto: object) -> Removed:
        """Remove the records up to an offset, or up to the end of a commit."""
        last = self._last(upto)
        if last < 0:
            return Removed(self.name, None, self.reason)
        events = Events(self.standing, (self.offset,))
        whole, cut = -1, None
        # Slices are dense: only the one that holds the offset can be cut.
        for entry in events.entries(last, last):
            whole, cut = (entry.last, None) if entry.last == last else (entry.first - 1, entry)
        losses = []
        if cut is not None:
            file = events.file(cut)
            gone = self._offsets(file, last)
            if len(gone):
                losses.append(self._loss(file, gone))
        return self._record(losses, whole if whole >= 0 else None, last)

    def _last(self, upto: object) -> int:
        if isinstance(upto, int) and not isinstance(upto, bool | Instant):
            last = self.standing.last_offset
            if not 0 <= upto <= last:
                raise InputError(
                    f"there is no record with offset {upto}",
                    remedy="the dataset has no records" if last < 0 else f"give an offset from 0 to {last}",
                    code="BadPosition",
                )
            return int(upto)
        try:
            found = resolve(self.chain, upto).offset
        except InputError as error:
            # Old records of a young dataset: there are none, which is what was wanted.
            if error.code != "BeforeTheBeginning":
                raise
            return -1
        return -1 if found is None else found

    def _offsets(self, file: SliceFile, last: int) -> Offsets:
        """The offsets of a slice up to one of them, those that are still there."""
        schema = pa.schema([self.standing.schema.field(self.offset)])
        parts = [np.asarray(batch.column(0)) for batch in file.read(schema, self.offset, first=0, last=last)]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def by_condition(self, where: Where, parameters: Mapping[str, object]) -> Removed:
        """Remove the records a condition means."""
        chosen = choose(self.standing, self._condition(where, parameters))
        events = Events(self.standing, (self.offset,))
        losses = []
        for block, gone in chosen.slices.items():
            data = self.chain.block(block).data_event
            assert data
            assert data.new_data
            interval = data.new_data.offset_interval
            (entry,) = events.entries(interval.start, interval.start)
            losses.append(self._loss(events.file(entry), gone))
        return self._record(losses, None, chosen, self._bad_cells(chosen))

    def _bad_cells(self, chosen: Chosen) -> tuple[Multihash, ...]:
        """The texts that could not be read when the chosen records came: whose they are is not known."""
        commits = (commit_at(self.name, self.chain, block) for block in chosen.slices)
        return tuple(dict.fromkeys(c.bad_cells_file for c in commits if c.bad_cells_file is not None))

    def _condition(self, where: Where, parameters: Mapping[str, object]) -> Condition:
        if not isinstance(where, str):
            return Condition(tuple(self.standing.schema.names), where)
        found = condition(where, self.standing.schema, parameters)
        return Condition(found.columns, found.mask)

    # --- what is left -----------------------------------------------------------

    def _loss(self, file: SliceFile, gone: Offsets) -> Loss:
        """Stage what stays of a slice."""
        left = file.rows - len(gone)
        kept = write_rest(file, self.offset, gone) if left else None
        lost = file.last - file.first + 1 - left
        return Loss(file.data.physical_hash, file.first, file.last, lost, kept)

    def _superseded(self, losses: list[Loss], upto: int | None) -> tuple[Multihash, ...]:
        """Replacements of earlier removals that are of no use any more."""
        anew = {loss.slice for loss in losses}
        return tuple(
            dict.fromkeys(
                loss.replacement.hash
                for removal in self.before.all
                for loss in removal.losses
                if loss.replacement is not None
                and (loss.slice in anew or (upto is not None and loss.last <= upto))
            )
        )

    # --- the record ---------------------------------------------------------------

    def _record(
        self,
        losses: list[Loss],
        upto: int | None,
        gone: Chosen | int,
        beside: tuple[Multihash, ...] = (),
    ) -> Removed:
        """Append the commit that says what goes, then let it go."""
        tail, chain = self.tail, self.chain
        if upto is not None and self.before.count(upto) == upto + 1:
            upto = None
        if not losses and upto is None:
            return Removed(self.name, None, self.reason)
        checkpoint = self._checkpoint_in_force()
        states = state_without(chain.store, checkpoint, gone)
        removal = Removal(
            self._number(),
            tail.sequence_number + 1,
            self.reason,
            0,
            upto,
            tuple(losses),
            (*self._superseded(losses, upto), *beside),
            any("state" in file.notes for file in (checkpoint.files if checkpoint else ())),
        )
        everything = self.standing.last_offset
        after = Removals.joined([*self.before.all, removal]).count(everything)
        removal = replace(removal, rows=after - self.before.count(everything))
        self._append(removal, self._checkpoint(checkpoint, removal, states), _rows_of(chain, states))
        if (after_it := chain.tail()) is not None:
            counted_rows(chain, after_it)
        recorded = removals_of(chain)
        count = clear(chain, recorded, after=tail.sequence_number)
        head = chain.head
        return Removed(self.name, head, self.reason, removal.rows, self._touched(removal), count)

    def _number(self) -> int:
        """The number of this removal: the next whose key is not used."""
        number = len(self.before.all) + 1
        while self.chain.token(token(number)) is not None:
            number += 1
        return number

    def _touched(self, removal: Removal) -> int:
        """How many slices lost something."""
        whole = 0
        if removal.upto is not None:
            first = max((r.upto for r in self.before.all if r.upto is not None), default=-1) + 1
            whole = sum(1 for _ in self.chain.slices(first, removal.upto))
        return whole + len(removal.losses)

    def _checkpoint_in_force(self) -> CheckpointFile | None:
        name = self.tail.checkpoint
        if name is None:
            return None
        found = read_checkpoint(self.chain.store, name)
        if found is None:
            raise InputError(
                f"the checkpoint {name} of dataset {self.name!r} is another engine's, or damaged",
                remedy="a removal would replace it: verify the dataset first",
                code="ForeignCheckpoint",
                checkpoint=name,
            )
        return found

    def _checkpoint(
        self, before: CheckpointFile | None, removal: Removal, states: list[StateFile]
    ) -> Checkpoint:
        """Stage the checkpoint: what is carried, the new states, the record and its replacements."""
        notes = {key: value for key, value in (before.notes if before else {}).items() if key != "commit"}
        numbers = [each.sequence_number for each in (*self.before.all, removal)]
        notes |= {NOTE: removal.to_note(), NUMBERS: numbers}
        kept = [loss.replacement for loss in removal.losses if loss.replacement is not None]
        version = before.version if before else VERSION
        raw = CheckpointFile((*states, *kept), notes, version).to_bytes()
        return Checkpoint(self.chain.store.put(Folder.CHECKPOINTS, raw), len(raw))

    def _append(self, removal: Removal, checkpoint: Checkpoint, current: int | None) -> None:
        tail = self.tail
        event: Event
        if tail.dataset_kind is DatasetKind.Root:
            said = {"reason": removal.reason, "rows": removal.rows}
            notes: dict[str, Any] = {"idempotency_key": token(removal.number), NOTE: said}
            if current is not None and tail.replaces_rows:
                notes[CURRENT] = current
            record = CommitRecord(notes=notes)
            event = next_add_data(tail, new_checkpoint=checkpoint, extra=record.to_extra())
        else:
            event = next_execute_transform(tail, {}, new_checkpoint=checkpoint)
        # A time of its own for every commit: neighbours with equal times are one commit.
        time = Instant(max(self.clock(), tail.system_time + 1))
        self.chain.append(next_block(tail, event, time))


def _rows_of(chain: Chain, states: list[StateFile]) -> int | None:
    """Say how many rows a state of one generation keeps, None if there is no state."""
    state = State.open(chain.store, CheckpointFile(tuple(states)))
    rows = [info.rows for generation in state.generations for info in generation]
    return sum(rows) if len(state.generations) == 1 else None


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
