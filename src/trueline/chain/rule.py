"""What a rule of the chain is, and the rules on how a block continues the one before it: links and data.

C1 to C6, R6, R8; D1 to D9, R1; removals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from trueline.chain.block import Block
from trueline.chain.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointFile, is_ours
from trueline.chain.events import AddData, DatasetKind, ExecuteTransform, Seed, SetTransform
from trueline.chain.head_state import Tail
from trueline.chain.store.store import Folder, Store
from trueline.errors import ChainError, CorruptionError, InputError, RefCASFailed
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash

STRICT = frozenset({"R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "H3", "S7", "guard:G7"})
CODES = {
    "C1": "FirstBlockMustBeSeed",
    "C2": "AppendingSeedBlockToNonEmptyChain",
    "C3": "SequenceIntegrity",
    "C4": "SequenceIntegrity",
    "C5": "PrevBlockNotFound",
    "C6": "SystemTimeIsNotMonotonic",
    "C9": "BlockNotFound",
    "D1": "OffsetsAreNotSequential",
    "D4": "WatermarkIsNotMonotonic",
    "D5": "WatermarkIsNotMonotonic",
    "D8": "NoOpEvent",
    "D9": "NoOpEvent",
    "T10": "NoOpEvent",
    "T11": "NoOpEvent",
    "S1": "NoOpEvent",
    "H1": "NoOpEvent",
    "R4": "InvalidInputInterval",
    "guard:G7": "RemovalBeyondTheChain",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a block breaks: which, how, and what would fix it."""

    rule: str
    problem: str
    remedy: str

    @property
    def code(self) -> str:
        """The name of the error."""
        return CODES.get(self.rule.removeprefix("chain:"), "InvalidEvent")

    @property
    def strict(self) -> bool:
        """Whether only what is appended here must keep the rule."""
        return self.rule.removeprefix("chain:") in STRICT

    def error(self) -> ChainError:
        """As the error that refuses the block."""
        return ChainError(self.problem, remedy=self.remedy, code=self.code, rule=self.rule)


class InputChain(Protocol):
    """What the rules ask of the chain of an input."""

    def sequence_of(self, block: Multihash) -> int | None:
        """Return the number of a block on the present branch, None if it is not on it."""

    def last_offset_at(self, block: Multihash) -> int | None:
        """Return the dataset's last offset at a block of the present branch."""


class NextBlock(NamedTuple):
    """A block about to follow a chain, with what is known around it."""

    tail: Tail | None
    block: Block
    inputs: Mapping[DatasetId, InputChain] | None

    @property
    def kind(self) -> DatasetKind | None:
        return self.tail.dataset_kind if self.tail else None


Findings = Iterator[Finding]
Rule = Callable[[NextBlock, Any], Findings]


def breaks(rule: str, problem: str, remedy: str) -> Finding:
    """Say that a rule is broken."""
    return Finding(f"chain:{rule}", problem, remedy)


# A tuple: a union would be built again for every block that is checked.
_OF_DERIVATIVES = (SetTransform, ExecuteTransform)


def c1_first_block_is_a_seed(step: NextBlock, event: Any) -> Findings:
    if step.block.prev_block_hash is None and not isinstance(event, Seed):
        yield breaks(
            "C1",
            f"the first block has to be a Seed, this one is {event.KIND} and names no previous block",
            "set prevBlockHash to the head, or begin the chain with a Seed",
        )


def c2_a_seed_is_the_first_block(step: NextBlock, event: Any) -> Findings:
    if isinstance(event, Seed) and (step.block.prev_block_hash is not None or step.tail is not None):
        before = step.block.prev_block_hash or (step.tail.head if step.tail else None)
        yield breaks("C2", f"a Seed cannot follow block {before}", "create a new dataset for a new Seed")


def c3_the_first_number_is_zero(step: NextBlock, event: Any) -> Findings:
    number = step.block.sequence_number
    if step.block.prev_block_hash is None and number != 0:
        yield breaks("C3", f"block sequence has to start with zero, not {number}", "number the Seed 0")


def c5_the_previous_block_exists(step: NextBlock, event: Any) -> Findings:
    if step.tail is None and step.block.prev_block_hash is not None and not isinstance(event, Seed):
        yield breaks(
            "C5",
            f"the previous block {step.block.prev_block_hash} does not exist: the chain is empty",
            "append the blocks before it first",
        )


def c4_numbers_follow_each_other(step: NextBlock, event: Any) -> Findings:
    assert step.tail
    if step.block.sequence_number != step.tail.sequence_number + 1:
        yield breaks(
            "C4",
            f"block {step.tail.head} with sequence number {step.tail.sequence_number} cannot be followed by "
            f"a block with sequence number {step.block.sequence_number}",
            f"number it {step.tail.sequence_number + 1}",
        )


def c6_system_time_does_not_go_back(step: NextBlock, event: Any) -> Findings:
    assert step.tail
    if step.block.system_time < step.tail.system_time:
        yield breaks(
            "C6",
            f"system time {step.block.system_time} is before {step.tail.system_time} of the block before it",
            "use a later time; check the clock of this machine",
        )


def r6_events_fit_the_kind(step: NextBlock, event: Any) -> Findings:
    derivative = isinstance(event, _OF_DERIVATIVES)
    fitting = DatasetKind.Derivative if derivative else DatasetKind.Root
    if step.kind != fitting:
        assert step.kind is not None
        yield breaks(
            "R6",
            f"{event.KIND} belongs in a {fitting.name} dataset, this one is {step.kind.name}",
            f"append it to a {fitting.name} dataset",
        )


def check_link(store: Store, tail: Tail | None, block: Block) -> None:
    """Distinguish a block that continues something unknown (C5) from one that comes too late (C8)."""
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


MAX_OFFSET = (1 << 63) - 1


def d8_add_data_is_not_empty(step: NextBlock, event: AddData) -> Findings:
    if not (
        event.new_data or event.new_checkpoint or event.new_watermark is not None or event.new_source_state
    ):
        yield breaks(
            "D8", "AddData is empty: no data, checkpoint, watermark or source state", "do not append it"
        )


def d1_slices_follow_the_carried_offset(step: NextBlock, event: AddData | ExecuteTransform) -> Findings:
    if event.new_data is None:
        return
    expected = 0 if event.prev_offset is None else event.prev_offset + 1
    start = event.new_data.offset_interval.start
    if start != expected:
        yield breaks(
            "D1",
            f"expected the offset interval to start at {expected} but it starts at {start}",
            f"start the slice at {expected}: prevOffset is {event.prev_offset}",
        )


def d2_an_interval_ends_after_it_starts(step: NextBlock, event: AddData | ExecuteTransform) -> Findings:
    if event.new_data is None:
        return
    interval = event.new_data.offset_interval
    if interval.end < interval.start or interval.end > MAX_OFFSET:
        yield breaks(
            "D2",
            f"invalid offset interval [{interval.start}, {interval.end}]",
            f"end it between its start and {MAX_OFFSET}; a transaction without records has no newData",
        )


def d3_the_carried_offset_is_the_last(step: NextBlock, event: AddData | ExecuteTransform) -> Findings:
    assert step.tail
    last = step.tail.last_offset
    if step.tail.data is not None and event.prev_offset != last:
        yield breaks(
            "D3",
            f"carried prevOffset {event.prev_offset} is not the last offset in the chain, {last}",
            f"plan from block {step.tail.head}: prevOffset is {last}",
        )


def r1_the_first_data_event_carries_nothing(step: NextBlock, event: AddData | ExecuteTransform) -> Findings:
    assert step.tail
    if step.tail.data is None and event.prev_offset is not None:
        yield breaks(
            "R1",
            f"the first data event carries prevOffset {event.prev_offset}, but no record precedes it",
            "leave prevOffset out and start at offset 0",
        )


def d4_d5_the_watermark_stays(step: NextBlock, event: AddData | ExecuteTransform) -> Findings:
    assert step.tail
    before, now = step.tail.watermark, event.new_watermark
    if before is None:
        return
    if now is None:
        yield breaks("D4", f"the watermark {before} was dropped", "carry it, or set a later one")
    elif now < before:
        yield breaks(
            "D5", f"the watermark goes back from {before} to {now}", f"keep {before} or set a later one"
        )


def d6_t1_a_schema_precedes_data(step: NextBlock, event: AddData | ExecuteTransform) -> Findings:
    assert step.tail
    if event.new_data and step.tail.schema is None:
        rule = "D6" if isinstance(event, AddData) else "T1"
        yield breaks(
            rule,
            "SetDataSchema event must be present before adding data, the chain has none",
            "append a SetDataSchema first, in the same commit",
        )


def d7_t9_the_checkpoint_is_the_last(step: NextBlock, event: AddData | ExecuteTransform) -> Findings:
    assert step.tail
    if event.prev_checkpoint != step.tail.checkpoint:
        yield breaks(
            "D7" if isinstance(event, AddData) else "T9",
            f"prevCheckpoint {event.prev_checkpoint} is not the last checkpoint in the chain, "
            f"{step.tail.checkpoint}",
            f"start from checkpoint {step.tail.checkpoint}",
        )


def d9_add_data_advances_something(step: NextBlock, event: AddData) -> Findings:
    assert step.tail
    before = step.tail.data
    same_state = isinstance(before, AddData) and event.new_source_state == before.new_source_state
    if (
        event.new_data is None
        and checkpoint_of(event) == step.tail.checkpoint
        and event.new_watermark == step.tail.watermark
        and (same_state or (before is None and event.new_source_state is None))
    ):
        yield breaks(
            "D9",
            "AddData neither has data nor advances checkpoint, watermark or source state",
            "do not append it: nothing happened",
        )


def r8_what_is_carried_is_not_lost(step: NextBlock, event: AddData) -> Findings:
    assert step.tail
    before = step.tail.data
    if event.new_data is not None or not isinstance(before, AddData):
        return
    if before.new_source_state and not event.new_source_state:
        yield breaks(
            "R8",
            f"an AddData without data drops the state of source {before.new_source_state.source_name!r}",
            "carry newSourceState unchanged",
        )
    if before.new_checkpoint and not event.new_checkpoint:
        yield breaks(
            "R8",
            f"an AddData without data drops checkpoint {before.new_checkpoint.physical_hash}",
            "repeat the checkpoint in newCheckpoint",
        )


def checkpoint_of(event: AddData | ExecuteTransform) -> Multihash | None:
    """Return the checkpoint an event leaves."""
    return event.new_checkpoint.physical_hash if event.new_checkpoint else None


OFFSETS: tuple[Rule, ...] = (d1_slices_follow_the_carried_offset, d2_an_interval_ends_after_it_starts)
CARRIED: tuple[Rule, ...] = (
    r6_events_fit_the_kind,
    d4_d5_the_watermark_stays,
    d3_the_carried_offset_is_the_last,
    r1_the_first_data_event_carries_nothing,
    d6_t1_a_schema_precedes_data,
)
ADD_DATA: tuple[Rule, ...] = (
    *CARRIED,
    d7_t9_the_checkpoint_is_the_last,
    d9_add_data_advances_something,
    r8_what_is_carried_is_not_lost,
)


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
