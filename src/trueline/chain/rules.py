"""The rules a block must keep to follow a chain, in the order they are reported.

Each rule is one function named after its contract; it yields what it found.
Rules marked strict go beyond what other implementations check: they refuse
what is appended here, and are findings in chains that came from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trueline.chain.block import Block
from trueline.chain.data_rules import ADD_DATA, OFFSETS, d8_add_data_is_not_empty
from trueline.chain.definition_rules import (
    h1_to_h3_the_schema_may_follow,
    s1_the_source_is_new,
    s2_no_polling_beside_push,
    s4_no_push_beside_polling,
    s5_one_schema_for_reading,
    s6_ethereum_logs_have_an_origin,
    s7_only_an_active_source_ends,
    x1_to_x4_queries_are_normalised,
    x5_to_x7_inputs_are_resolved,
)
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
from trueline.chain.findings import Finding, InputChain, Rule, Step
from trueline.chain.link_rules import BEGIN, LINK, c5_the_previous_block_exists, r6_events_fit_the_kind
from trueline.chain.tail import Tail
from trueline.chain.transform_rules import EXECUTE_TRANSFORM, t10_execute_transform_is_not_empty
from trueline.identity.dataset_id import DatasetId

NEED_INPUTS = ("chain:R4", "chain:R5")


def check(
    tail: Tail | None, block: Block, inputs: Mapping[DatasetId, InputChain] | None = None
) -> Iterator[Finding]:
    """Yield every rule the block breaks, first the one that is reported."""
    step, event = Step(tail, block, inputs), block.event
    alone, placed = _RULES[type(event)]
    for rule in alone:
        yield from rule(step, event)
    # Without a place in the chain the other rules have nothing to hold it against.
    if tail is not None and not isinstance(event, Seed):
        for rule in placed:
            yield from rule(step, event)


def not_checked(block: Block, inputs: Mapping[DatasetId, InputChain] | None) -> tuple[str, ...]:
    """Name the rules that could not be checked because an input's chain is not at hand."""
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
