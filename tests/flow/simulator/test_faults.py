"""Faults to explore: an element delivered again, a crash and its replay, views that drift apart."""

from __future__ import annotations

import pytest

from tests.flow.simulator import counters
from tests.flow.simulator.programs import WHY
from trueline.errors import Counterexample, InputError, SimulationError
from trueline.flow import Flow
from trueline.flow.simulator import crash, drift, redelivery


def counting(unique: bool) -> Flow:
    flow = Flow("counting")
    p = flow.process("p")
    words = p.source("in")
    p.sink("out", (words.unique() if unique else words).count().snapshot(p.tick(), WHY).all_ticks())
    return flow


def counts_two(sim):
    sim.send("in", "a", "b")
    sim.quiesce()
    assert sim.collect("out")[-1] == 2


def test_a_count_is_wrong_when_an_element_comes_again():
    assert counting(unique=False).simulate(counts_two).exhaustive
    with pytest.raises(Counterexample, match="again") as found:
        counting(unique=False).simulate(counts_two, faults=[redelivery()])
    assert "'in' delivers" in str(found.value)


def test_dropping_repeats_mends_it_in_every_schedule():
    assert counting(unique=True).simulate(counts_two, faults=[redelivery(limit=2)]).exhaustive


def test_an_element_may_come_again_after_everything_rested():
    seen = set()

    def body(sim):
        sim.send("in", "a")
        sim.assume(sim.next("out") == 1)
        at_rest = sim.settle()
        sim.quiesce()
        seen.add((at_rest, tuple(sim.collect("out"))))

    counting(unique=False).simulate(body, hashing=False, faults=[redelivery("in")])
    assert (True, ()) in seen
    assert (True, (2,)) in seen


def test_a_crash_between_two_outputs_delivers_the_first_twice():
    seen = set()

    def body(sim):
        sim.send("in", 1, 2)
        sim.quiesce()
        seen.add(tuple(sim.collect("out")))

    flow = Flow("pieces")
    p = flow.process("p")
    p.sink("out", p.source("in").batch(p.tick(), WHY).all_ticks())
    assert flow.simulate(body, hashing=False, faults=[crash()]).exhaustive
    # Crashed never; after one or two outputs of the whole piece; after either of two pieces of one.
    assert seen == {(1, 2), (1, 1, 2), (1, 2, 1, 2), (1, 2, 2)}


@pytest.mark.contract("align:A9")
def test_after_a_crash_acknowledgements_come_late_or_twice_but_never_early():
    def body(sim):
        sim.send("increments", "one")
        assert sim.next("acks") == "one"
        sim.send("queries", "how many?")
        assert sim.next("answers") == ("how many?", 1)

    assert counters.aligned().simulate(body, faults=[crash(limit=2)]).exhaustive


@pytest.mark.contract("align:A8")
def test_where_the_point_is_not_honoured_views_drift_apart():
    assert counters.aligned().simulate(counters.write_then_read).exhaustive
    with pytest.raises(Counterexample):
        counters.aligned().simulate(counters.write_then_read, faults=[drift("count")])
    with pytest.raises(Counterexample):
        counters.aligned().simulate(counters.write_then_read, faults=[drift()])


def test_a_fault_repeats_with_its_line():
    with pytest.raises(Counterexample) as found:
        counting(unique=False).simulate(counts_two, faults=[redelivery()])
    with pytest.raises(Counterexample) as again:
        counting(unique=False).simulate(counts_two, faults=[redelivery()], replay=found.value.trace.line)
    assert again.value.trace == found.value.trace


@pytest.mark.parametrize("fault", [redelivery("nowhere"), drift("nowhere")])
def test_a_fault_of_what_is_not_there_is_refused(fault):
    with pytest.raises(SimulationError, match="nowhere"):
        counters.aligned().simulate(counters.write_then_read, faults=[fault])


@pytest.mark.parametrize("limit", [0, -1, True, 1.5])
def test_a_limit_is_a_whole_number(limit):
    with pytest.raises(InputError, match="limit"):
        crash(limit)
