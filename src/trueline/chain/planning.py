"""The next transaction, prepared from one block (RFC-014)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trueline.chain.block import Block
from trueline.chain.events import AddData, Event, ExecuteTransform, ExecuteTransformInput
from trueline.chain.instant import Instant
from trueline.chain.tail import Position, Tail
from trueline.errors import InputError
from trueline.identity.dataset_id import DatasetId


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
    """Return the half-open intervals from where each declared input stood to where it is now."""
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
