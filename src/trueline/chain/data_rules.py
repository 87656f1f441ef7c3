"""Rules on data events: offsets, watermarks, checkpoints, source state (D1 to D9, R1, R8)."""

from __future__ import annotations

from trueline.chain.events import AddData, ExecuteTransform
from trueline.chain.findings import Findings, Rule, Step, breaks
from trueline.chain.link_rules import r6_events_fit_the_kind
from trueline.identity.multihash import Multihash

MAX_OFFSET = (1 << 63) - 1


def d8_add_data_is_not_empty(step: Step, event: AddData) -> Findings:
    if not (
        event.new_data or event.new_checkpoint or event.new_watermark is not None or event.new_source_state
    ):
        yield breaks(
            "D8", "AddData is empty: no data, checkpoint, watermark or source state", "do not append it"
        )


def d1_slices_follow_the_carried_offset(step: Step, event: AddData | ExecuteTransform) -> Findings:
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


def d2_an_interval_ends_after_it_starts(step: Step, event: AddData | ExecuteTransform) -> Findings:
    if event.new_data is None:
        return
    interval = event.new_data.offset_interval
    if interval.end < interval.start or interval.end > MAX_OFFSET:
        yield breaks(
            "D2",
            f"invalid offset interval [{interval.start}, {interval.end}]",
            f"end it between its start and {MAX_OFFSET}; a transaction without records has no newData",
        )


def d3_the_carried_offset_is_the_last(step: Step, event: AddData | ExecuteTransform) -> Findings:
    assert step.tail
    last = step.tail.last_offset
    if step.tail.data is not None and event.prev_offset != last:
        yield breaks(
            "D3",
            f"carried prevOffset {event.prev_offset} is not the last offset in the chain, {last}",
            f"plan from block {step.tail.head}: prevOffset is {last}",
        )


def r1_the_first_data_event_carries_nothing(step: Step, event: AddData | ExecuteTransform) -> Findings:
    assert step.tail
    if step.tail.data is None and event.prev_offset is not None:
        yield breaks(
            "R1",
            f"the first data event carries prevOffset {event.prev_offset}, but no record precedes it",
            "leave prevOffset out and start at offset 0",
        )


def d4_d5_the_watermark_stays(step: Step, event: AddData | ExecuteTransform) -> Findings:
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


def d6_t1_a_schema_precedes_data(step: Step, event: AddData | ExecuteTransform) -> Findings:
    assert step.tail
    if event.new_data and step.tail.schema is None:
        rule = "D6" if isinstance(event, AddData) else "T1"
        yield breaks(
            rule,
            "SetDataSchema event must be present before adding data, the chain has none",
            "append a SetDataSchema first, in the same commit",
        )


def d7_t9_the_checkpoint_is_the_last(step: Step, event: AddData | ExecuteTransform) -> Findings:
    assert step.tail
    if event.prev_checkpoint != step.tail.checkpoint:
        yield breaks(
            "D7" if isinstance(event, AddData) else "T9",
            f"prevCheckpoint {event.prev_checkpoint} is not the last checkpoint in the chain, "
            f"{step.tail.checkpoint}",
            f"start from checkpoint {step.tail.checkpoint}",
        )


def d9_add_data_advances_something(step: Step, event: AddData) -> Findings:
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


def r8_what_is_carried_is_not_lost(step: Step, event: AddData) -> Findings:
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
