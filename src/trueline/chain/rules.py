"""The rules a block must keep to follow a chain, in the order they are reported.

Each rule is one function named after its contract; it yields what it found.
Rules marked strict go beyond what other implementations check: they refuse
what is appended here, and are findings in chains that came from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from trueline.chain.block import Block
from trueline.chain.events import (
    AddData,
    AddPushSource,
    DatasetKind,
    DisablePollingSource,
    DisablePushSource,
    ExecuteTransform,
    Seed,
    SetDataSchema,
    SetPollingSource,
    SetTransform,
)
from trueline.chain.tail import Tail
from trueline.errors import ChainError

if TYPE_CHECKING:
    from trueline.identity.dataset_id import DatasetId
    from trueline.identity.multihash import Multihash

STRICT = frozenset({"R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "H3", "S7"})
NEED_INPUTS = ("chain:R4", "chain:R5")
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
}
MAX_OFFSET = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a block breaks: which, how, and what would mend it."""

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
        """Return where a block stands on the present branch, None if it is not on it."""

    def last_offset_at(self, block: Multihash) -> int | None:
        """Return the dataset's last offset at a block of the present branch."""


@dataclass(frozen=True, slots=True)
class Step:
    """A block about to follow a chain, with what is known around it."""

    tail: Tail | None
    block: Block
    inputs: Mapping[DatasetId, InputChain] | None

    @property
    def kind(self) -> DatasetKind | None:
        return self.tail.dataset_kind if self.tail else None


def check(tail: Tail | None, block: Block, inputs: Mapping[DatasetId, InputChain] | None = None) -> Iterator[Finding]:
    """Yield every rule the block breaks, first the one that is reported."""
    step = Step(tail, block, inputs)
    for rule in _RULES[type(block.event)]:
        yield from rule(step, block.event)
        if rule in _LINK_RULES and (tail is None or isinstance(block.event, Seed)):
            # Without a place in the chain the rules below have nothing to hold it against.
            return


def not_checked(block: Block, inputs: Mapping[DatasetId, InputChain] | None) -> tuple[str, ...]:
    """Name the rules that could not be checked because an input's chain is not at hand."""
    if not isinstance(block.event, ExecuteTransform):
        return ()
    known = inputs or {}
    return NEED_INPUTS if any(taken.dataset_id not in known for taken in block.event.query_inputs) else ()


Findings = Iterator[Finding]


def _breaks(rule: str, problem: str, remedy: str) -> Finding:
    return Finding(f"chain:{rule}", problem, remedy)


# --- links ------------------------------------------------------------------


def c1_first_block_is_a_seed(step: Step, event: Any) -> Findings:
    if step.block.prev_block_hash is None and not isinstance(event, Seed):
        yield _breaks(
            "C1",
            f"the first block has to be a Seed, this one is {event.KIND} and names no previous block",
            "set prevBlockHash to the head, or begin the chain with a Seed",
        )


def c2_a_seed_is_the_first_block(step: Step, event: Any) -> Findings:
    if isinstance(event, Seed) and (step.block.prev_block_hash is not None or step.tail is not None):
        before = step.block.prev_block_hash or (step.tail.head if step.tail else None)
        yield _breaks("C2", f"a Seed cannot follow block {before}", "create a new dataset for a new Seed")


def c3_the_first_number_is_zero(step: Step, event: Any) -> Findings:
    number = step.block.sequence_number
    if step.block.prev_block_hash is None and number != 0:
        yield _breaks("C3", f"block sequence has to start with zero, not {number}", "number the Seed 0")


def c5_the_previous_block_exists(step: Step, event: Any) -> Findings:
    if step.tail is None and step.block.prev_block_hash is not None and not isinstance(event, Seed):
        yield _breaks(
            "C5",
            f"the previous block {step.block.prev_block_hash} does not exist: the chain is empty",
            "append the blocks before it first",
        )


def c4_numbers_follow_each_other(step: Step, event: Any) -> Findings:
    assert step.tail
    if step.block.sequence_number != step.tail.sequence_number + 1:
        yield _breaks(
            "C4",
            f"block {step.tail.head} with sequence number {step.tail.sequence_number} cannot be followed by "
            f"a block with sequence number {step.block.sequence_number}",
            f"number it {step.tail.sequence_number + 1}",
        )


def c6_system_time_does_not_go_back(step: Step, event: Any) -> Findings:
    assert step.tail
    if step.block.system_time < step.tail.system_time:
        yield _breaks(
            "C6",
            f"system time {step.block.system_time} is before {step.tail.system_time} of the block before it",
            "use a later time; check the clock of this machine",
        )


# --- data events ------------------------------------------------------------


def d8_add_data_is_not_empty(step: Step, event: AddData) -> Findings:
    if not (event.new_data or event.new_checkpoint or event.new_watermark is not None or event.new_source_state):
        yield _breaks("D8", "AddData is empty: no data, checkpoint, watermark or source state", "do not append it")


def t10_execute_transform_is_not_empty(step: Step, event: ExecuteTransform) -> Findings:
    if not (event.new_data or event.new_checkpoint or event.new_watermark is not None):
        yield _breaks(
            "T10",
            "ExecuteTransform is empty: no data, checkpoint or watermark",
            "write a checkpoint, so that an advance of the inputs alone is recorded",
        )


def d1_slices_follow_the_carried_offset(step: Step, event: AddData | ExecuteTransform) -> Findings:
    if event.new_data is None:
        return
    expected = 0 if event.prev_offset is None else event.prev_offset + 1
    start = event.new_data.offset_interval.start
    if start != expected:
        yield _breaks(
            "D1",
            f"expected the offset interval to start at {expected} but it starts at {start}",
            f"start the slice at {expected}: prevOffset is {event.prev_offset}",
        )


def d2_an_interval_ends_after_it_starts(step: Step, event: AddData | ExecuteTransform) -> Findings:
    if event.new_data is None:
        return
    interval = event.new_data.offset_interval
    if interval.end < interval.start or interval.end > MAX_OFFSET:
        yield _breaks(
            "D2",
            f"invalid offset interval [{interval.start}, {interval.end}]",
            f"end it between its start and {MAX_OFFSET}; a transaction without records has no newData",
        )


def d3_the_carried_offset_is_the_last(step: Step, event: AddData | ExecuteTransform) -> Findings:
    assert step.tail
    last = step.tail.last_offset
    if step.tail.data is not None and event.prev_offset != last:
        yield _breaks(
            "D3",
            f"carried prevOffset {event.prev_offset} is not the last offset in the chain, {last}",
            f"plan from block {step.tail.head}: prevOffset is {last}",
        )


def r1_the_first_data_event_carries_nothing(step: Step, event: AddData | ExecuteTransform) -> Findings:
    assert step.tail
    if step.tail.data is None and event.prev_offset is not None:
        yield _breaks(
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
        yield _breaks("D4", f"the watermark {before} was dropped", "carry it, or set a later one")
    elif now < before:
        yield _breaks("D5", f"the watermark goes back from {before} to {now}", f"keep {before} or set a later one")


def d6_t1_a_schema_precedes_data(step: Step, event: AddData | ExecuteTransform) -> Findings:
    assert step.tail
    if event.new_data and step.tail.schema is None:
        rule = "D6" if isinstance(event, AddData) else "T1"
        yield _breaks(
            rule,
            "SetDataSchema event must be present before adding data, the chain has none",
            "append a SetDataSchema first, in the same commit",
        )


def d7_t9_the_checkpoint_is_the_last(step: Step, event: AddData | ExecuteTransform) -> Findings:
    assert step.tail
    if event.prev_checkpoint != step.tail.checkpoint:
        yield _breaks(
            "D7" if isinstance(event, AddData) else "T9",
            f"prevCheckpoint {event.prev_checkpoint} is not the last checkpoint in the chain, {step.tail.checkpoint}",
            f"start from checkpoint {step.tail.checkpoint}",
        )


def d9_add_data_advances_something(step: Step, event: AddData) -> Findings:
    assert step.tail
    before = step.tail.data
    same_state = isinstance(before, AddData) and event.new_source_state == before.new_source_state
    if (
        event.new_data is None
        and _checkpoint(event) == step.tail.checkpoint
        and event.new_watermark == step.tail.watermark
        and (same_state or (before is None and event.new_source_state is None))
    ):
        yield _breaks(
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
        yield _breaks(
            "R8",
            f"an AddData without data drops the state of source {before.new_source_state.source_name!r}",
            "carry newSourceState unchanged",
        )
    if before.new_checkpoint and not event.new_checkpoint:
        yield _breaks(
            "R8",
            f"an AddData without data drops checkpoint {before.new_checkpoint.physical_hash}",
            "repeat the checkpoint in newCheckpoint",
        )


def t3_a_transform_is_defined(step: Step, event: ExecuteTransform) -> Findings:
    assert step.tail
    if step.tail.transform is None and not isinstance(step.tail.data, ExecuteTransform):
        yield _breaks("T3", "ExecuteTransform must be preceded by SetTransform, the chain has none", "append it first")


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
        yield _breaks(
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
            yield _breaks(
                "T4",
                f"invalid input block interval of {name}: ({taken.prev_block_hash}, {taken.new_block_hash}]",
                "leave newBlockHash out when there is no new block",
            )
        if taken.new_offset is not None and taken.new_offset == taken.prev_offset or _too_large(taken.new_offset):
            yield _breaks(
                "T5",
                f"invalid input offset interval of {name}: ({taken.prev_offset}, {taken.new_offset}]",
                "leave newOffset out when there is no new record",
            )
        if taken.new_offset is not None and taken.prev_offset is not None and taken.new_offset < taken.prev_offset:
            yield _breaks(
                "R3",
                f"the offset of input {name} goes back from {taken.prev_offset} to {taken.new_offset}",
                "an input is only read forward; rebuild the dataset if its input was reset",
            )
        unseen = "R2" if first else "R7" if last is None else ""
        if taken.prev_block_hash != last_block:
            yield _breaks(
                unseen or "T6",
                f"prevBlockHash {taken.prev_block_hash} of input {name} is not the last block taken, {last_block}",
                f"carry {last_block}",
            )
        if taken.prev_offset != last_offset:
            yield _breaks(
                unseen or "T7",
                f"prevOffset {taken.prev_offset} of input {name} is not the last offset taken, {last_offset}",
                f"carry {last_offset}",
            )
        if taken.new_offset is not None and taken.new_block_hash is None:
            yield _breaks(
                "T8",
                f"input {name} takes records up to {taken.new_offset} but no block",
                "set newBlockHash to the block the records end at",
            )


def t11_the_transform_advances_something(step: Step, event: ExecuteTransform) -> Findings:
    assert step.tail
    if (
        event.new_data is None
        and _checkpoint(event) == step.tail.checkpoint
        and event.new_watermark == step.tail.watermark
        and all(taken.new_block_hash is None for taken in event.query_inputs)
    ):
        yield _breaks(
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
            yield _breaks(
                "R4",
                f"({taken.prev_block_hash}, {taken.new_block_hash}] is not an interval of input {taken.dataset_id}: "
                f"{lost} is not on its chain, or not before its end",
                "the input was reset or comes from another copy; rebuild this dataset from it",
            )
            continue
        last = chain.last_offset_at(taken.new_block_hash)
        if taken.last_offset != last:
            yield _breaks(
                "R5",
                f"input {taken.dataset_id} ends at offset {last} at block {taken.new_block_hash}, "
                f"not at {taken.last_offset}",
                f"take it up to offset {last}",
            )


def r6_events_fit_the_kind(step: Step, event: Any) -> Findings:
    derivative = isinstance(event, SetTransform | ExecuteTransform)
    fitting = DatasetKind.Derivative if derivative else DatasetKind.Root
    if step.kind != fitting:
        assert step.kind is not None
        yield _breaks(
            "R6",
            f"{event.KIND} belongs into a {fitting.name} dataset, this one is {step.kind.name}",
            f"append it to a {fitting.name} dataset",
        )


def _checkpoint(event: AddData | ExecuteTransform) -> Multihash | None:
    return event.new_checkpoint.physical_hash if event.new_checkpoint else None


def _too_large(offset: int | None) -> bool:
    return offset is not None and offset > MAX_OFFSET


# --- definitions ------------------------------------------------------------


def s5_one_schema_for_reading(step: Step, event: AddPushSource | SetPollingSource) -> Findings:
    if event.read.ddl_schema is not None and event.read.schema is not None:
        yield _breaks("S5", "both read.ddlSchema and read.schema are given", "keep read.schema")


def s6_ethereum_logs_have_an_origin(step: Step, event: SetPollingSource) -> Findings:
    fetch = event.fetch
    if fetch.KIND == "EthereumLogs" and getattr(fetch, "chain_id", 0) is None and getattr(fetch, "node_url", 0) is None:
        yield _breaks("S6", "an EthereumLogs source has neither chainId nor nodeUrl", "give one of them")


def s1_the_source_is_new(step: Step, event: AddPushSource | SetPollingSource) -> Findings:
    assert step.tail
    if isinstance(event, AddPushSource):
        active: Any = step.tail.push.get(event.source_name)
    else:
        active = step.tail.polling
    if event == active:
        name = getattr(event, "source_name", "(polling)")
        yield _breaks("S1", f"the source {name!r} is identical to the active one", "do not append it")


def s2_no_polling_beside_push(step: Step, event: AddPushSource) -> Findings:
    assert step.tail
    if step.tail.polling is not None:
        yield _breaks(
            "S2",
            f"cannot add push source {event.source_name!r} while the polling source is active",
            "append DisablePollingSource first",
        )


def s4_no_push_beside_polling(step: Step, event: SetPollingSource) -> Findings:
    assert step.tail
    if step.tail.push:
        yield _breaks(
            "S4",
            f"cannot set a polling source while push sources are active: {', '.join(sorted(step.tail.push))}",
            "append DisablePushSource for each first",
        )


def s7_only_an_active_source_ends(step: Step, event: DisablePushSource | DisablePollingSource) -> Findings:
    assert step.tail
    if isinstance(event, DisablePollingSource):
        if step.tail.polling is None:
            yield _breaks("S7", "there is no active polling source to disable", "do not append it")
    elif event.source_name not in step.tail.push:
        active = ", ".join(sorted(step.tail.push)) or "none"
        yield _breaks("S7", f"there is no active push source {event.source_name!r}, active are: {active}", "check its name")


def x1_to_x4_queries_are_normalised(step: Step, event: Any) -> Findings:
    transform = event.transform if isinstance(event, SetTransform) else event.preprocess
    if transform is None:
        return
    queries = transform.queries or ()
    if transform.query is not None:
        yield _breaks("X1", "transform queries must be normalised: `query` is set", "write it as the one entry of queries")
    if not queries:
        yield _breaks("X2", "a transform must have at least one query", "add a query")
    elif queries[-1].alias is not None:
        yield _breaks(
            "X3", f"the last query has the alias {queries[-1].alias!r}", "remove it: the last query is the output"
        )
    for index, query in enumerate(queries[:-1]):
        if query.alias is None:
            yield _breaks("X4", f"query {index} of {len(queries)} has no alias", "name every query but the last")


def x5_to_x7_inputs_are_resolved(step: Step, event: SetTransform) -> Findings:
    from trueline.identity.dataset_id import DatasetId

    if not event.inputs:
        yield _breaks("X5", "a transform must have at least one input", "add the datasets its queries read")
    references = [source.dataset_ref for source in event.inputs]
    twice = sorted({name for name in references if references.count(name) > 1})
    if twice:
        yield _breaks("X6", f"the transform contains duplicate inputs: {', '.join(twice)}", "name each once")
    for source in event.inputs:
        if not source.dataset_ref.startswith("did:odf:") or source.alias is None or not _parses(DatasetId, source):
            yield _breaks(
                "X7",
                f"input {source.dataset_ref!r} (alias {source.alias!r}) is not resolved to a dataset id with an alias",
                "write the did:odf: id of the dataset and the name the queries use",
            )


def _parses(kind: Any, source: Any) -> bool:
    from trueline.errors import InputError

    try:
        return str(kind.parse(source.dataset_ref)) == source.dataset_ref
    except InputError:
        return False


def h1_to_h3_the_schema_may_follow(step: Step, event: SetDataSchema) -> Findings:
    from trueline.chain.evolution import schema_findings

    assert step.tail
    for rule, problem, remedy in schema_findings(step.tail.schema, event, step.tail.vocab):
        yield _breaks(rule, problem, remedy)


Rule = Callable[[Step, Any], Findings]

_BEGIN: tuple[Rule, ...] = (c1_first_block_is_a_seed, c2_a_seed_is_the_first_block, c3_the_first_number_is_zero)
_LINK: tuple[Rule, ...] = (c5_the_previous_block_exists, c4_numbers_follow_each_other, c6_system_time_does_not_go_back)
_LINK_RULES = frozenset({c5_the_previous_block_exists})
_OFFSETS: tuple[Rule, ...] = (d1_slices_follow_the_carried_offset, d2_an_interval_ends_after_it_starts)
_CARRIED: tuple[Rule, ...] = (
    r6_events_fit_the_kind,
    d4_d5_the_watermark_stays,
    d3_the_carried_offset_is_the_last,
    r1_the_first_data_event_carries_nothing,
    d6_t1_a_schema_precedes_data,
)


def _order(*alone: Rule, then: tuple[Rule, ...] = ()) -> tuple[Rule, ...]:
    """Rules on the event alone, then its link, then those that look at the chain."""
    return (*_BEGIN, *alone, *_LINK, *then)


_ADD_DATA = (*_CARRIED, d7_t9_the_checkpoint_is_the_last, d9_add_data_advances_something, r8_what_is_carried_is_not_lost)
_EXECUTE = (
    *_CARRIED,
    t3_a_transform_is_defined,
    t2_inputs_are_in_declared_order,
    t4_to_t8_inputs_continue,
    d7_t9_the_checkpoint_is_the_last,
    t11_the_transform_advances_something,
    r4_r5_intervals_lie_on_the_inputs,
)


class _Rules(dict[type, tuple[Rule, ...]]):
    """Rules by event; an event without rules of its own keeps those of every block."""

    def __missing__(self, event: type) -> tuple[Rule, ...]:
        return _order()


_RULES = _Rules(
    {
        AddData: _order(d8_add_data_is_not_empty, *_OFFSETS, then=_ADD_DATA),
        ExecuteTransform: _order(t10_execute_transform_is_not_empty, *_OFFSETS, then=_EXECUTE),
        AddPushSource: _order(
            s5_one_schema_for_reading,
            x1_to_x4_queries_are_normalised,
            then=(r6_events_fit_the_kind, s1_the_source_is_new, s2_no_polling_beside_push),
        ),
        SetPollingSource: _order(
            s5_one_schema_for_reading,
            s6_ethereum_logs_have_an_origin,
            x1_to_x4_queries_are_normalised,
            then=(r6_events_fit_the_kind, s1_the_source_is_new, s4_no_push_beside_polling),
        ),
        DisablePushSource: _order(then=(r6_events_fit_the_kind, s7_only_an_active_source_ends)),
        DisablePollingSource: _order(then=(r6_events_fit_the_kind, s7_only_an_active_source_ends)),
        SetTransform: _order(
            x1_to_x4_queries_are_normalised, x5_to_x7_inputs_are_resolved, then=(r6_events_fit_the_kind,)
        ),
        SetDataSchema: _order(then=(h1_to_h3_the_schema_may_follow,)),
    }
)
