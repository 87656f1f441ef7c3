"""The smallest programs of what random ones have found."""

from __future__ import annotations

import pytest

from tests.flow.oracle.operations import WHY
from trueline.flow import Flow, Machine


def _torn() -> tuple[Flow, object]:
    """All uses rest on `long`, the last they share; `both` also takes `words`, past it."""
    flow = Flow("words")
    p = flow.process("server")
    tick, point = p.tick(), p.local_align_point("words")
    words = p.source("words")
    long = words.filter(lambda word: len(word) > 3)
    both = long.union(words)
    p.sink("long", long.batch_aligned(tick, point, WHY).count().all_ticks())
    p.sink("both", both.batch_aligned(tick, point, WHY).count().all_ticks())
    return flow, point


@pytest.mark.contract("align:A8")
@pytest.mark.contract("align:A4")
def test_what_goes_past_the_last_shared_node_is_of_the_same_cut():
    flow, _ = _torn()
    machine = Machine(flow.compile())
    machine.send("words", "align", "release")
    seen = set()
    for choice in machine.choices():
        again = Machine(flow.compile())
        again.send("words", "align", "release")
        again.fire(choice)
        seen.add((again.outputs("long"), again.outputs("both")))
    assert seen == {((1,), (2,)), ((2,), (4,))}, "every word is seen by both or by none"


@pytest.mark.contract("align:A40")
@pytest.mark.parametrize("spliced", [False, True])
def test_points_that_only_share_a_tick_are_cut_each_for_itself_however_they_are_written(spliced):
    flow = Flow("two points")
    p = flow.process("server")
    tick, one, two = p.tick(), p.local_align_point("one"), p.local_align_point("two")
    last = p.source("words").last()
    named = (last.map(lambda word: word) if spliced else last).unwrap_or("nobody")
    for number in range(2):
        p.sink(f"last{number}", last.snapshot_aligned(tick, one, WHY).all_ticks())
        p.sink(f"named{number}", named.snapshot_aligned(tick, two, WHY).all_ticks())
    (unit,) = flow.compile().units
    assert [hook.source.kind for hook in unit.hooks] == ["last", "unwrap_or"]


@pytest.mark.contract("align:A28")
def test_points_that_share_only_where_agreement_begins_run_as_one():
    flow = Flow("a common beginning")
    p = flow.process("server")
    words = p.source("words")
    for number in range(2):
        tick, point = p.tick(), p.local_align_point(f"point{number}")
        long = words.filter(lambda word: len(word) > 3)
        both = long.union(words)
        p.sink(f"long{number}", long.batch_aligned(tick, point, WHY).all_ticks())
        p.sink(f"both{number}", both.batch_aligned(tick, point, WHY).all_ticks())
        p.sink(f"acks{number}", both.release_aligned(point))
    (unit,) = flow.compile().units
    assert [hook.source.kind for hook in unit.hooks] == ["source"]
