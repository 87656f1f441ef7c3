"""The programs of `simulator-counts.json`: how many executions each has is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.flow.simulator import counters
from trueline.flow import Flow, nondet

WHY = nondet("the test looks at every choice")


def batch_of_ordered() -> Flow:
    flow = Flow("batch")
    p = flow.process("p")
    p.sink("out", p.source("in").batch(p.tick(), WHY).all_ticks())
    return flow


def batch_of_unordered() -> Flow:
    flow = Flow("unordered batch")
    p = flow.process("p")
    p.sink("out", p.source("in", ordered=False).batch(p.tick(), WHY).all_ticks())
    return flow


def ordered_in_the_tick() -> Flow:
    flow = Flow("unordered batch, ordered in its tick")
    p = flow.process("p")
    p.sink("out", p.source("in", ordered=False).batch(p.tick(), WHY).assume_ordering(WHY).all_ticks())
    return flow


def snapshot_of_a_fold() -> Flow:
    flow = Flow("snapshot")
    p = flow.process("p")
    total = p.source("in").fold(0, lambda a, x: a + x)
    p.sink("out", total.snapshot(p.tick(), WHY).all_ticks())
    return flow


def batch_and_snapshot() -> Flow:
    flow = Flow("batch and snapshot")
    p = flow.process("p")
    tick = p.tick()
    words = p.source("in")
    total = words.fold(0, lambda a, x: a + x).snapshot(tick, WHY)
    p.sink("out", words.batch(tick, WHY).cross_singleton(total).all_ticks())
    return flow


def batch_and_constant() -> Flow:
    flow = Flow("batch and a fold of nothing")
    p = flow.process("p")
    tick = p.tick()
    nothing = p.source("never").count().snapshot(tick, WHY)
    p.sink("out", p.source("in").batch(tick, WHY).cross_singleton(nothing).all_ticks())
    return flow


def ordered_outside() -> Flow:
    flow = Flow("an order outside ticks")
    p = flow.process("p")
    p.sink("out", p.source("in", ordered=False).assume_ordering(WHY))
    return flow


def merged() -> Flow:
    flow = Flow("two streams merged")
    p = flow.process("p")
    p.sink("out", p.source("in").merge_ordered(p.source("other"), WHY))
    return flow


def all_of(*values: Any, other: tuple[Any, ...] = ()) -> Callable[[Any], None]:
    """A body that sends values and waits for everything."""

    def body(sim: Any) -> None:
        sim.send("in", *values)
        if other:
            sim.send("other", *other)
        sim.quiesce()

    return body


PROGRAMS: dict[str, tuple[Callable[[], Flow], Callable[[Any], None]]] = {
    "batch of an unordered stream holding 1,2,3,4, one hook": (batch_of_unordered, all_of(1, 2, 3, 4)),
    "snapshot of a fold over the ordered stream 1,2,3,4": (snapshot_of_a_fold, all_of(1, 2, 3, 4)),
    "batch of the ordered stream 1,2 crossed with a snapshot of its own fold, same tick, unaligned": (
        batch_and_snapshot,
        all_of(1, 2),
    ),
    "aligned counter: write, await ack, read": (counters.aligned, counters.write_then_read),
    "aligned counter: write and read concurrently": (counters.aligned, counters.write_and_read),
    "naive counter: write, await ack, read": (counters.naive, counters.write_then_look),
}

# Asserted upstream or worked out by hand (reference section 4.4), beside those of the file.
MORE: dict[str, tuple[Callable[[], Flow], Callable[[Any], None], int]] = {
    "batch of an ordered stream of 4: compositions": (batch_of_ordered, all_of(1, 2, 3, 4), 8),
    "unordered batch with an order in its tick: 4! * 2^3": (ordered_in_the_tick, all_of(1, 2, 3, 4), 192),
    "batch of 4 beside a value that never changes": (batch_and_constant, all_of(1, 2, 3, 4), 16),
    "an order outside ticks of 3": (ordered_outside, all_of(1, 2, 3), 6),
    "two and two merged": (merged, all_of(1, 2, other=(3, 4)), 6),
}
