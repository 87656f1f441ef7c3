"""A dataset as it is at the end of a commit: columns, key, and what is named there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from trueline.chain.chain import Chain
from trueline.chain.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointFile
from trueline.chain.datatypes import DataSchema
from trueline.chain.head_state import Position, Tail
from trueline.chain.schema import fields_of, is_hidden, to_arrow
from trueline.chain.sources import MergeLedger, MergeSnapshot, MergeStrategy
from trueline.chain.store.store import Folder
from trueline.dataset.definition import key_equality_at
from trueline.dataset.derivation import derivation_at
from trueline.dataset.remove.record import Removals, removals_of
from trueline.dataset.state import State
from trueline.errors import InputError, ObjectMissing
from trueline.identity.multihash import Multihash
from trueline.kernel.key_encoding import MergeKey
from trueline.lazy import kept_property
from trueline.view.origin import Origin


class ChainOfEvents(Chain):
    """A chain whose state is made from its events, whatever state its checkpoints name.

    State is a cache: whoever changed rows may have changed it to match.
    """

    state_at: Callable[[Standing], State | None]


@dataclass(frozen=True)
class Standing:
    """What a reader needs to know of a dataset at one position; found by a few block reads."""

    name: str
    chain: Chain
    tail: Tail
    position: Position

    @classmethod
    def of(cls, name: str, chain: Chain, position: Position) -> Standing:
        """Look at a position."""
        return cls(name, chain, chain.tail_at(position.block), position)

    @property
    def vocab(self) -> Any:
        """The names of the system columns."""
        return self.tail.vocab

    @property
    def last_offset(self) -> int:
        """The last offset, −1 if there is no record."""
        return -1 if self.position.offset is None else self.position.offset

    @kept_property
    def schema(self) -> pa.Schema:
        """All columns, the system's first."""
        if self.tail.schema is None:
            return pa.schema([])
        return to_arrow(DataSchema(fields_of(self.tail.schema)), annotated=True)

    @kept_property
    def given_columns(self) -> tuple[str, ...]:
        """The columns people gave, the event time among them if it was declared."""
        system = self.vocab.names if self.vocab.event_time_column is None else self.vocab.names[:3]
        return tuple(name for name in self.schema.names if name not in system)

    @kept_property
    def hidden_columns(self) -> frozenset[str]:
        """The columns that readers leave out."""
        fields = () if self.tail.schema is None else fields_of(self.tail.schema)
        return frozenset(field.name for field in fields if is_hidden(field))

    @kept_property
    def data_columns(self) -> tuple[str, ...]:
        """The columns people gave and did not hide."""
        return tuple(name for name in self.given_columns if name not in self.hidden_columns)

    @property
    def merge(self) -> MergeStrategy | None:
        """The merge strategy in force, None if nothing was declared."""
        if (derivation := derivation_at(self.tail)) is not None:
            return MergeSnapshot(derivation.key)
        return self.tail.merge

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row, none for append."""
        return tuple(getattr(self.merge, "primary_key", ()))

    @kept_property
    def merge_key(self) -> MergeKey:
        """The same, and which of their values are equal."""
        return MergeKey(self.key, key_equality_at(self.tail))

    @property
    def is_keyed(self) -> bool:
        """Whether later events replace earlier ones of the same key."""
        return self.tail.replaces_rows

    @property
    def is_ledger(self) -> bool:
        """Whether there is one record for each key."""
        return isinstance(self.merge, MergeLedger)

    @kept_property
    def removals(self) -> Removals:
        """What was removed from the dataset, whenever that was."""
        return removals_of(self.chain)

    def removed(self, first: int = 0) -> int:
        """Say how many of the records from an offset on are gone; commits begin there."""
        return self.removals.count(self.last_offset) - self.removals.count(first - 1)

    def origin(self, after: Multihash | None = None, first: int = 0) -> dict[str, Origin]:
        """Say what a view from here rests on."""
        block, offset = self.position
        since = None if after is None else str(after)
        gone = self.removed(first) if self.removals else 0
        return {self.name: Origin(self.name, str(self.tail.dataset_id), str(block), offset, since, gone)}

    @kept_property
    def state(self) -> State | None:
        """The state kept at this commit; None if there is none, or not all of it is there.

        State is a cache: a reader that finds it gone computes the rows from the events.
        """
        if isinstance(self.chain, ChainOfEvents):
            return self.chain.state_at(self)
        if self.tail.checkpoint is None:
            return None
        store = self.chain.store
        try:
            raw = store.get(Folder.CHECKPOINTS, self.tail.checkpoint, limit=MAX_CHECKPOINT_BYTES)
            state = State.open(store, CheckpointFile.from_bytes(raw), encoding=self.merge_key.encoding)
        except (ObjectMissing, InputError):
            return None
        there = all(store.size(Folder.CHECKPOINTS, file.hash) == file.size for file in state.files)
        return state if state.generations and there else None
