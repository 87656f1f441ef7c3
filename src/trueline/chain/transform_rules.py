"""Rules on what a derivative takes from its inputs (T2 to T11, R2 to R5, R7)."""

from __future__ import annotations

from trueline.chain.data_rules import CARRIED, MAX_OFFSET, checkpoint_of, d7_t9_the_checkpoint_is_the_last
from trueline.chain.events import ExecuteTransform
from trueline.chain.findings import Findings, Rule, Step, breaks


def t10_execute_transform_is_not_empty(step: Step, event: ExecuteTransform) -> Findings:
    if not (event.new_data or event.new_checkpoint or event.new_watermark is not None):
        yield breaks(
            "T10",
            "ExecuteTransform is empty: no data, checkpoint or watermark",
            "write a checkpoint, so that an advance of the inputs alone is recorded",
        )


def t3_a_transform_is_defined(step: Step, event: ExecuteTransform) -> Findings:
    assert step.tail
    if step.tail.transform is None and not isinstance(step.tail.data, ExecuteTransform):
        yield breaks(
            "T3", "ExecuteTransform must be preceded by SetTransform, the chain has none", "append it first"
        )


def t2_inputs_are_in_declared_order(step: Step, event: ExecuteTransform) -> Findings:
    """Also R7: after a new SetTransform its inputs count, not those of the last query."""
    assert step.tail
    given = [str(taken.dataset_id) for taken in event.query_inputs]
    transform = step.tail.transform
    if transform is not None:
        declared = [source.dataset_ref for source in transform.inputs]
    elif isinstance(step.tail.data, ExecuteTransform):
        declared = [str(taken.dataset_id) for taken in step.tail.data.query_inputs]
    else:
        return
    if given != declared:
        yield breaks(
            "T2",
            f"inputs must be listed in the order of SetTransform: {declared}, not {given}",
            "list every declared input once, in declared order, also those without news",
        )


def t4_to_t8_inputs_continue(step: Step, event: ExecuteTransform) -> Findings:
    """T4 to T8 with R2, R3 and R7: each input, found by its id, goes on where it stood."""
    assert step.tail
    first = not isinstance(step.tail.data, ExecuteTransform)
    before = step.tail.taken
    for taken in event.query_inputs:
        name = taken.dataset_id
        last = before.get(name)
        last_block, last_offset = (last.last_block, last.last_offset) if last else (None, None)
        if taken.new_block_hash is not None and taken.new_block_hash == taken.prev_block_hash:
            yield breaks(
                "T4",
                f"invalid input block interval of {name}: ({taken.prev_block_hash}, {taken.new_block_hash}]",
                "leave newBlockHash out when there is no new block",
            )
        if (taken.new_offset is not None and taken.new_offset == taken.prev_offset) or (
            taken.new_offset or 0
        ) > MAX_OFFSET:
            yield breaks(
                "T5",
                f"invalid input offset interval of {name}: ({taken.prev_offset}, {taken.new_offset}]",
                "leave newOffset out when there is no new record",
            )
        if (
            taken.new_offset is not None
            and taken.prev_offset is not None
            and taken.new_offset < taken.prev_offset
        ):
            yield breaks(
                "R3",
                f"the offset of input {name} goes back from {taken.prev_offset} to {taken.new_offset}",
                "an input is only read forward; rebuild the dataset if its input was reset",
            )
        unseen = "R2" if first else "R7" if last is None else ""
        if taken.prev_block_hash != last_block:
            yield breaks(
                unseen or "T6",
                f"prevBlockHash {taken.prev_block_hash} of input {name} is not the last block taken, "
                f"{last_block}",
                f"carry {last_block}",
            )
        if taken.prev_offset != last_offset:
            yield breaks(
                unseen or "T7",
                f"prevOffset {taken.prev_offset} of input {name} is not the last offset taken, {last_offset}",
                f"carry {last_offset}",
            )
        if taken.new_offset is not None and taken.new_block_hash is None:
            yield breaks(
                "T8",
                f"input {name} takes records up to {taken.new_offset} but no block",
                "set newBlockHash to the block the records end at",
            )


def t11_the_transform_advances_something(step: Step, event: ExecuteTransform) -> Findings:
    assert step.tail
    if (
        event.new_data is None
        and checkpoint_of(event) == step.tail.checkpoint
        and event.new_watermark == step.tail.watermark
        and all(taken.new_block_hash is None for taken in event.query_inputs)
    ):
        yield breaks(
            "T11",
            "ExecuteTransform neither has data nor advances inputs, checkpoint or watermark",
            "do not append it: nothing happened",
        )


def r4_r5_intervals_lie_on_the_inputs(step: Step, event: ExecuteTransform) -> Findings:
    for taken in event.query_inputs:
        chain = (step.inputs or {}).get(taken.dataset_id)
        if chain is None or taken.new_block_hash is None:
            continue
        end = chain.sequence_of(taken.new_block_hash)
        begin = -1 if taken.prev_block_hash is None else chain.sequence_of(taken.prev_block_hash)
        if end is None or begin is None or begin >= end:
            lost = taken.new_block_hash if end is None else taken.prev_block_hash
            yield breaks(
                "R4",
                f"({taken.prev_block_hash}, {taken.new_block_hash}] is not an interval of input "
                f"{taken.dataset_id}: "
                f"{lost} is not on its chain, or not before its end",
                "the input was reset or comes from another copy; rebuild this dataset from it",
            )
            continue
        last = chain.last_offset_at(taken.new_block_hash)
        if taken.last_offset != last:
            yield breaks(
                "R5",
                f"input {taken.dataset_id} ends at offset {last} at block {taken.new_block_hash}, "
                f"not at {taken.last_offset}",
                f"take it up to offset {last}",
            )


EXECUTE_TRANSFORM: tuple[Rule, ...] = (
    *CARRIED,
    t3_a_transform_is_defined,
    t2_inputs_are_in_declared_order,
    t4_to_t8_inputs_continue,
    d7_t9_the_checkpoint_is_the_last,
    t11_the_transform_advances_something,
    r4_r5_intervals_lie_on_the_inputs,
)
