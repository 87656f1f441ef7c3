"""What the next block must continue from: the events in force at a block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from trueline.chain.block import Block
from trueline.chain.events import (
    AddData,
    AddPushSource,
    DatasetKind,
    DisablePollingSource,
    DisablePushSource,
    Event,
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
from trueline.chain.sources import (
    MergeChangelogStream,
    MergeSnapshot,
    MergeStrategy,
    MergeUpsertStream,
)
from trueline.errors import InputError
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash

NO_PUSH: Mapping[str, AddPushSource] = MappingProxyType({})
DEFAULT_VOCAB = SetVocab()
_DATA = (AddData, ExecuteTransform)


class Position(NamedTuple):
    """The end of a commit: a block, and the last offset of the dataset there (None: no record yet).

    >>> position = Position(Multihash.of(b"a block"), 9)
    >>> position.to_dict()["offset"], Position.of(position.to_dict()) == position
    (9, True)
    """

    block: Multihash
    offset: int | None

    def to_dict(self) -> dict[str, str | int | None]:
        """Return it as plain values."""
        return {"block": str(self.block), "offset": self.offset}

    @classmethod
    def of(cls, value: object) -> Position:
        """Read what `to_dict` gave; what is not of that form raises."""
        if not isinstance(value, Mapping) or set(value) != {"block", "offset"}:
            raise InputError("a position is not {block, offset}", remedy="give both")
        block, offset = value["block"], value["offset"]
        if offset is not None and (type(offset) is not int or not 0 <= offset < 1 << 64):
            raise InputError(f"{offset!r:.80} is not an offset", remedy="give a whole number from 0, or null")
        return cls(Multihash.parse(block), offset)


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
    redefined: bool = False
    """Whether SetTransform came after the last commit of the transform, so that a rebuild may follow (R9)."""

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
        """The position of a reader of the whole chain."""
        return Position(self.head, self.last_offset)

    @property
    def taken(self) -> dict[DatasetId, ExecuteTransformInput]:
        """What the last transaction had taken from each input."""
        if isinstance(self.data, ExecuteTransform):
            return {taken.dataset_id: taken for taken in self.data.query_inputs}
        return {}

    @property
    def merge(self) -> MergeStrategy | None:
        """The merge strategy in force, None if nothing was declared."""
        source: Any = self.push.get("default") or next(iter(self.push.values()), None) or self.polling
        return None if source is None else source.merge

    @property
    def replaces_rows(self) -> bool:
        """Whether later events replace earlier ones, so that there are fewer rows than events."""
        if self.transform is not None:
            return self.transform.transform.is_ours
        return isinstance(self.merge, MergeSnapshot | MergeChangelogStream | MergeUpsertStream)

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
        case AddData():
            return moved
        case ExecuteTransform():
            return moved._replace(redefined=False) if tail.redefined and not event.is_part else moved
        case SetDataSchema():
            return moved._replace(schema=event)
        case SetVocab():
            return moved._replace(vocab=event)
        case SetAttachments():
            return moved._replace(attachments=event)
        case SetTransform():
            return moved._replace(transform=event, redefined=True)
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


def next_block(tail: Tail | None, event: Event, system_time: Instant | None = None) -> Block:
    """Link an event to a tail; a clock that went back is held at the time of the block before."""
    now = Instant.now() if system_time is None else system_time
    if tail is None:
        return Block(system_time=now, sequence_number=0, event=event)
    return Block(
        system_time=max(now, tail.system_time),
        prev_block_hash=tail.head,
        sequence_number=tail.sequence_number + 1,
        event=event,
    )


def next_add_data(tail: Tail, **new: Any) -> AddData:
    """Fill in what an AddData carries from the last one: offset, checkpoint, watermark, source state.

    `new` holds what this transaction adds (`new_data`, `new_watermark` …);
    what it does not mention stays in force.
    """
    before = tail.data if isinstance(tail.data, AddData) else AddData()
    carried = {
        "new_checkpoint": before.new_checkpoint,
        "new_watermark": before.new_watermark,
        "new_source_state": before.new_source_state,
    }
    return AddData(prev_checkpoint=tail.checkpoint, prev_offset=tail.last_offset, **(carried | new))


def next_inputs(tail: Tail, positions: Mapping[DatasetId, Position]) -> tuple[ExecuteTransformInput, ...]:
    """Return the half-open intervals from where each declared input was to where it is now."""
    if tail.transform is None:
        raise InputError("the dataset has no transform", remedy="append SetTransform first")
    taken = tail.taken
    return tuple(
        _interval(taken.get(name), name, positions.get(name))
        for name in (DatasetId.parse(source.dataset_ref) for source in tail.transform.inputs)
    )


def _interval(
    last: ExecuteTransformInput | None, name: DatasetId, position: Position | None
) -> ExecuteTransformInput:
    block, offset = (last.last_block, last.last_offset) if last else (None, None)
    if position is None or position.block == block:
        return ExecuteTransformInput(name, block, None, offset, None)
    new_offset = position.offset if position.offset != offset else None
    return ExecuteTransformInput(name, block, position.block, offset, new_offset)


def next_execute_transform(
    tail: Tail, positions: Mapping[DatasetId, Position], **new: Any
) -> ExecuteTransform:
    """Fill in what an ExecuteTransform carries and takes; `new` holds what it adds."""
    before = tail.data if isinstance(tail.data, ExecuteTransform) else None
    carried = {
        "new_checkpoint": before.new_checkpoint if before else None,
        "new_watermark": before.new_watermark if before else None,
    }
    return ExecuteTransform(
        query_inputs=next_inputs(tail, positions),
        prev_checkpoint=tail.checkpoint,
        prev_offset=tail.last_offset,
        **(carried | new),
    )


def linked(tail: Tail | None, events: Iterable[Event], system_time: Instant) -> list[Block]:
    """Link the events of one commit to a tail; all have the same time."""
    blocks: list[Block] = []
    for event in events:
        blocks.append(next_block(tail, event, system_time))
        tail = follow(tail, blocks[-1])
    return blocks
