"""The rules a block must keep to follow a chain, in the order they are reported.

Rules on what defines a dataset (S, X, H), and on what a derivative takes (T, R).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trueline.chain.block import Block
from trueline.chain.events import (
    AddData,
    AddPushSource,
    DisablePollingSource,
    DisablePushSource,
    ExecuteTransform,
    Seed,
    SetDataSchema,
    SetPollingSource,
    SetTransform,
)
from trueline.chain.head_state import Tail
from trueline.chain.rule import (
    ADD_DATA,
    BEGIN,
    CARRIED,
    LINK,
    MAX_OFFSET,
    OFFSETS,
    Finding,
    Findings,
    InputChain,
    NextBlock,
    Rule,
    breaks,
    c5_the_previous_block_exists,
    checkpoint_of,
    d7_t9_the_checkpoint_is_the_last,
    d8_add_data_is_not_empty,
    r6_events_fit_the_kind,
)
from trueline.chain.schema import schema_findings
from trueline.chain.sources import FetchEthereumLogs
from trueline.errors import InputError
from trueline.identity.dataset_id import DatasetId


def s5_one_schema_for_reading(step: NextBlock, event: AddPushSource | SetPollingSource) -> Findings:
    if event.read.ddl_schema is not None and event.read.schema is not None:
        yield breaks("S5", "both read.ddlSchema and read.schema are given", "keep read.schema")


def s6_ethereum_logs_have_an_origin(step: NextBlock, event: SetPollingSource) -> Findings:
    fetch = event.fetch
    if isinstance(fetch, FetchEthereumLogs) and fetch.chain_id is None and fetch.node_url is None:
        yield breaks("S6", "an EthereumLogs source has neither chainId nor nodeUrl", "give one of them")


def s1_the_source_is_new(step: NextBlock, event: AddPushSource | SetPollingSource) -> Findings:
    assert step.tail
    if isinstance(event, AddPushSource):
        active: Any = step.tail.push.get(event.source_name)
    else:
        active = step.tail.polling
    if event == active:
        name = getattr(event, "source_name", "(polling)")
        yield breaks("S1", f"the source {name!r} is identical to the active one", "do not append it")


def s2_no_polling_beside_push(step: NextBlock, event: AddPushSource) -> Findings:
    assert step.tail
    if step.tail.polling is not None:
        yield breaks(
            "S2",
            f"cannot add push source {event.source_name!r} while the polling source is active",
            "append DisablePollingSource first",
        )


def s4_no_push_beside_polling(step: NextBlock, event: SetPollingSource) -> Findings:
    assert step.tail
    if step.tail.push:
        yield breaks(
            "S4",
            f"cannot set a polling source while push sources are active: {', '.join(sorted(step.tail.push))}",
            "append DisablePushSource for each first",
        )


def s7_only_an_active_source_ends(
    step: NextBlock, event: DisablePushSource | DisablePollingSource
) -> Findings:
    assert step.tail
    if isinstance(event, DisablePollingSource):
        if step.tail.polling is None:
            yield breaks("S7", "there is no active polling source to disable", "do not append it")
    elif event.source_name not in step.tail.push:
        active = ", ".join(sorted(step.tail.push)) or "none"
        yield breaks(
            "S7",
            f"there is no active push source {event.source_name!r}, active are: {active}",
            "check its name",
        )


def x1_to_x4_queries_are_normalised(step: NextBlock, event: Any) -> Findings:
    transform = event.transform if isinstance(event, SetTransform) else event.preprocess
    if transform is None:
        return
    queries = transform.queries or ()
    if transform.query is not None:
        yield breaks(
            "X1",
            "transform queries must be normalised: `query` is set",
            "write it as the one entry of queries",
        )
    if not queries:
        yield breaks("X2", "a transform must have at least one query", "add a query")
    elif queries[-1].alias is not None:
        yield breaks(
            "X3",
            f"the last query has the alias {queries[-1].alias!r}",
            "remove it: the last query is the output",
        )
    for index, query in enumerate(queries[:-1]):
        if query.alias is None:
            yield breaks(
                "X4", f"query {index} of {len(queries)} has no alias", "name every query but the last"
            )


def x5_to_x7_inputs_are_resolved(step: NextBlock, event: SetTransform) -> Findings:
    if not event.inputs:
        yield breaks("X5", "a transform must have at least one input", "add the datasets its queries read")
    references = [source.dataset_ref for source in event.inputs]
    twice = sorted({name for name in references if references.count(name) > 1})
    if twice:
        yield breaks("X6", f"the transform contains duplicate inputs: {', '.join(twice)}", "name each once")
    for source in event.inputs:
        if source.alias is None or not _is_dataset_id(source.dataset_ref):
            yield breaks(
                "X7",
                f"input {source.dataset_ref!r} (alias {source.alias!r}) is not a dataset id with an alias",
                "write the did:odf: id of the dataset and the name the queries use",
            )


def _is_dataset_id(reference: str) -> bool:
    try:
        return DatasetId.parse(reference) == reference
    except InputError:
        return False


def h1_to_h3_the_schema_may_follow(step: NextBlock, event: SetDataSchema) -> Findings:
    assert step.tail
    for rule, problem, remedy in schema_findings(step.tail.schema, event, step.tail.vocab):
        yield breaks(rule, problem, remedy)


def t10_execute_transform_is_not_empty(step: NextBlock, event: ExecuteTransform) -> Findings:
    if not (event.new_data or event.new_checkpoint or event.new_watermark is not None):
        yield breaks(
            "T10",
            "ExecuteTransform is empty: no data, checkpoint or watermark",
            "write a checkpoint, so that an advance of the inputs alone is recorded",
        )


def t3_a_transform_is_defined(step: NextBlock, event: ExecuteTransform) -> Findings:
    assert step.tail
    if step.tail.transform is None and not isinstance(step.tail.data, ExecuteTransform):
        yield breaks(
            "T3", "ExecuteTransform must be preceded by SetTransform, the chain has none", "append it first"
        )


def t2_inputs_are_in_declared_order(step: NextBlock, event: ExecuteTransform) -> Findings:
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
            "list every declared input once, in declared order, also those with nothing new",
        )


def t4_to_t8_inputs_continue(step: NextBlock, event: ExecuteTransform) -> Findings:
    """T4 to T8 with R2, R3 and R7: each input, found by its id, continues where it was."""
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


def t11_the_transform_advances_something(step: NextBlock, event: ExecuteTransform) -> Findings:
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


def r4_r5_intervals_lie_on_the_inputs(step: NextBlock, event: ExecuteTransform) -> Findings:
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


NEED_INPUTS = ("chain:R4", "chain:R5")


def check(
    tail: Tail | None, block: Block, inputs: Mapping[DatasetId, InputChain] | None = None
) -> Iterator[Finding]:
    """Yield every rule the block breaks, first the one that is reported."""
    step, event = NextBlock(tail, block, inputs), block.event
    alone, placed = _RULES[type(event)]
    for rule in alone:
        yield from rule(step, event)
    # Without a place in the chain the other rules have nothing to compare it with.
    if tail is not None and not isinstance(event, Seed):
        for rule in placed:
            yield from rule(step, event)


def not_checked(block: Block, inputs: Mapping[DatasetId, InputChain] | None) -> tuple[str, ...]:
    """Name the rules that could not be checked because an input's chain is not available."""
    if not isinstance(block.event, ExecuteTransform):
        return ()
    known = inputs or {}
    return NEED_INPUTS if any(taken.dataset_id not in known for taken in block.event.query_inputs) else ()


Rules = tuple[tuple[Rule, ...], tuple[Rule, ...]]


def _order(*alone: Rule, then: tuple[Rule, ...] = ()) -> Rules:
    """Rules on the event alone and on whether it continues a chain; then those that look at the chain."""
    return (*BEGIN, *alone, c5_the_previous_block_exists), (*LINK, *then)


class _Rules(dict[type, Rules]):
    """Rules by event; an event without rules of its own keeps those of every block."""

    def __missing__(self, event: type) -> Rules:
        return _order()


_RULES = _Rules(
    {
        AddData: _order(d8_add_data_is_not_empty, *OFFSETS, then=ADD_DATA),
        ExecuteTransform: _order(t10_execute_transform_is_not_empty, *OFFSETS, then=EXECUTE_TRANSFORM),
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
