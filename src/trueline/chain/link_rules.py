"""Rules on how a block continues the one before it (C1 to C6), and on where it may stand (R6)."""

from __future__ import annotations

from typing import Any

from trueline.chain.block import Block
from trueline.chain.events import DatasetKind, ExecuteTransform, Seed, SetTransform
from trueline.chain.findings import Findings, Rule, Step, breaks
from trueline.chain.store import Folder, Store
from trueline.chain.tail import Tail
from trueline.errors import ChainError, RefCASFailed

# A tuple: a union would be made anew for every block that is checked.
_OF_DERIVATIVES = (SetTransform, ExecuteTransform)


def c1_first_block_is_a_seed(step: Step, event: Any) -> Findings:
    if step.block.prev_block_hash is None and not isinstance(event, Seed):
        yield breaks(
            "C1",
            f"the first block has to be a Seed, this one is {event.KIND} and names no previous block",
            "set prevBlockHash to the head, or begin the chain with a Seed",
        )


def c2_a_seed_is_the_first_block(step: Step, event: Any) -> Findings:
    if isinstance(event, Seed) and (step.block.prev_block_hash is not None or step.tail is not None):
        before = step.block.prev_block_hash or (step.tail.head if step.tail else None)
        yield breaks("C2", f"a Seed cannot follow block {before}", "create a new dataset for a new Seed")


def c3_the_first_number_is_zero(step: Step, event: Any) -> Findings:
    number = step.block.sequence_number
    if step.block.prev_block_hash is None and number != 0:
        yield breaks("C3", f"block sequence has to start with zero, not {number}", "number the Seed 0")


def c5_the_previous_block_exists(step: Step, event: Any) -> Findings:
    if step.tail is None and step.block.prev_block_hash is not None and not isinstance(event, Seed):
        yield breaks(
            "C5",
            f"the previous block {step.block.prev_block_hash} does not exist: the chain is empty",
            "append the blocks before it first",
        )


def c4_numbers_follow_each_other(step: Step, event: Any) -> Findings:
    assert step.tail
    if step.block.sequence_number != step.tail.sequence_number + 1:
        yield breaks(
            "C4",
            f"block {step.tail.head} with sequence number {step.tail.sequence_number} cannot be followed by "
            f"a block with sequence number {step.block.sequence_number}",
            f"number it {step.tail.sequence_number + 1}",
        )


def c6_system_time_does_not_go_back(step: Step, event: Any) -> Findings:
    assert step.tail
    if step.block.system_time < step.tail.system_time:
        yield breaks(
            "C6",
            f"system time {step.block.system_time} is before {step.tail.system_time} of the block before it",
            "use a later time; check the clock of this machine",
        )


def r6_events_fit_the_kind(step: Step, event: Any) -> Findings:
    derivative = isinstance(event, _OF_DERIVATIVES)
    fitting = DatasetKind.Derivative if derivative else DatasetKind.Root
    if step.kind != fitting:
        assert step.kind is not None
        yield breaks(
            "R6",
            f"{event.KIND} belongs into a {fitting.name} dataset, this one is {step.kind.name}",
            f"append it to a {fitting.name} dataset",
        )


def check_link(store: Store, tail: Tail | None, block: Block) -> None:
    """Tell a block that continues something unknown (C5) from one that comes too late (C8)."""
    previous = block.prev_block_hash
    if tail is None or previous is None or previous == tail.head or isinstance(block.event, Seed):
        return
    if store.size(Folder.BLOCKS, previous) is None:
        raise ChainError(
            f"the previous block {previous} does not exist in {store.location}; the head is {tail.head}",
            remedy=f"append the blocks before it first, or continue {tail.head}",
            code="PrevBlockNotFound",
            rule="chain:C5",
        )
    raise RefCASFailed(
        f"the head is {tail.head}, not {previous} as the block expects",
        remedy="plan the transaction again from the new head",
        expected=previous,
        actual=tail.head,
    )


BEGIN: tuple[Rule, ...] = (
    c1_first_block_is_a_seed,
    c2_a_seed_is_the_first_block,
    c3_the_first_number_is_zero,
)
LINK: tuple[Rule, ...] = (
    c4_numbers_follow_each_other,
    c6_system_time_does_not_go_back,
)
