"""What the next block must continue from: the events in force at a block."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from trueline.chain.block import Block
from trueline.chain.events import (
    AddData,
    AddPushSource,
    DatasetKind,
    DisablePollingSource,
    DisablePushSource,
    ExecuteTransform,
    ExecuteTransformInput,
    Seed,
    SetAttachments,
    SetDataSchema,
    SetPollingSource,
    SetTransform,
    SetVocab,
)
from trueline.chain.instant import Instant
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash

NO_PUSH: Mapping[str, AddPushSource] = MappingProxyType({})
DEFAULT_VOCAB = SetVocab()
_DATA = (AddData, ExecuteTransform)


class Position(NamedTuple):
    """The end of a commit: a block, and the last offset of the dataset there (None: no record yet)."""

    block: Multihash
    offset: int | None


class Tail(NamedTuple):
    """The state a chain is in after a block; it holds events, not the way there.

    Everything the rules ask of history is here (RFC-014: the last data event
    carries offset, watermark, checkpoint, source state and input positions),
    so validating and planning read no further block.
    """

    head: Multihash
    sequence_number: int
    system_time: Instant
    dataset_id: DatasetId
    dataset_kind: DatasetKind
    data: AddData | ExecuteTransform | None = None
    schema: SetDataSchema | None = None
    vocab: SetVocab = DEFAULT_VOCAB
    transform: SetTransform | None = None
    polling: SetPollingSource | None = None
    push: Mapping[str, AddPushSource] = NO_PUSH
    attachments: SetAttachments | None = None

    @property
    def last_offset(self) -> int | None:
        """The last offset of the dataset, None if it has no record yet."""
        return self.data.last_offset if self.data else None

    @property
    def next_offset(self) -> int:
        """The offset the next record gets."""
        last = self.last_offset
        return 0 if last is None else last + 1

    @property
    def watermark(self) -> Instant | None:
        """The watermark in force."""
        return self.data.new_watermark if self.data else None

    @property
    def checkpoint(self) -> Multihash | None:
        """The checkpoint the next transaction starts from."""
        return self.data.new_checkpoint.physical_hash if self.data and self.data.new_checkpoint else None

    @property
    def position(self) -> Position:
        """Where a reader of the whole chain stands."""
        return Position(self.head, self.last_offset)

    @property
    def taken(self) -> dict[DatasetId, ExecuteTransformInput]:
        """What the last transaction had taken from each input."""
        if isinstance(self.data, ExecuteTransform):
            return {taken.dataset_id: taken for taken in self.data.query_inputs}
        return {}

    def after(self, block: Block) -> Tail:
        """Return the tail one block on."""
        return follow(self, block)


def follow(tail: Tail | None, block: Block) -> Tail:
    """Fold a block into the tail before it; None before the first, which must be a Seed."""
    event = block.event
    if tail is None:
        assert isinstance(event, Seed), "the rules let only a Seed begin a chain"
        return Tail(
            block.hash, block.sequence_number, block.system_time, event.dataset_id, event.dataset_kind
        )
    data = event if isinstance(event, _DATA) else tail.data
    moved = tail._replace(
        head=block.hash, sequence_number=block.sequence_number, system_time=block.system_time, data=data
    )
    match event:
        case AddData() | ExecuteTransform():
            return moved
        case SetDataSchema():
            return moved._replace(schema=event)
        case SetVocab():
            return moved._replace(vocab=event)
        case SetAttachments():
            return moved._replace(attachments=event)
        case SetTransform():
            return moved._replace(transform=event)
        case SetPollingSource():
            return moved._replace(polling=event)
        case DisablePollingSource():
            return moved._replace(polling=None)
        case AddPushSource():
            return moved._replace(push=MappingProxyType({**tail.push, event.source_name: event}))
        case DisablePushSource():
            rest = {name: source for name, source in tail.push.items() if name != event.source_name}
            return moved._replace(push=MappingProxyType(rest))
    return moved
