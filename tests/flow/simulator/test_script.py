"""Decisions that a test prescribes: they name values, skip nothing, and say when they cannot be kept."""

from __future__ import annotations

import pytest

from tests.flow.simulator import counters
from tests.flow.simulator.programs import WHY, batch_and_snapshot, batch_of_ordered, batch_of_unordered
from trueline.errors import SimulationError
from trueline.flow import Flow


def test_the_bug_is_written_down_as_a_schedule():
    """The counterexample of the naive counter, decision by decision."""

    def body(sim):
        queries, count = sim.at("whatever others"), sim.at("any count")
        sim.send("increments", "one")
        sim.next("acks")
        sim.send("queries", "q")
        queries.release("q")
        count.reveal(0)
        assert sim.next("answers") == ("q", 0)
        count.pause()

    found = counters.naive().simulate(body)
    assert (found.executions, found.exhaustive) == (1, True)


def test_decisions_on_different_operators_are_one_execution_and_a_second_on_one_begins_another():
    def body(sim):
        batch, total = sim.at(".batch(tick"), sim.at("fold(0")
        sim.send("in", 1, 2)
        batch.release(1)
        total.reveal(0)
        batch.release(2)
        total.reveal(3)
        assert sim.collect("out", 2) == [(1, 0), (2, 3)]

    assert batch_and_snapshot().simulate(body, hashing=False).executions == 1


def test_pinning_one_operator_explores_the_rest():
    seen = set()

    def body(sim):
        batch = sim.at(".batch(tick")
        sim.send("in", 1, 2)
        batch.release(1, 2)
        seen.add(sim.collect("out", 2)[0][1])
        batch.pause()

    batch_and_snapshot().simulate(body, hashing=False)
    assert seen == {0, 1, 3}


def test_what_is_held_without_a_decision_is_an_error():
    def body(sim):
        batch = sim.at("batch")
        sim.send("in", 1, 2)
        batch.release(1)
        sim.next("out")
        sim.next("out")

    with pytest.raises(SimulationError, match=r"holds \[2\]") as refused:
        batch_of_ordered().simulate(body)
    assert refused.value.code == "NoDecision"


def test_a_paused_operator_holds_what_it_has():
    def body(sim):
        batch = sim.at("batch").pause()
        sim.send("in", 1)
        sim.quiesce()
        assert sim.collect("out") == []
        batch.resume().release(1)
        assert sim.next("out") == 1

    assert batch_of_ordered().simulate(body).executions == 1


def test_a_decision_that_can_never_be_kept_is_told_at_its_line():
    def body(sim):
        batch = sim.at("batch")
        sim.send("in", 1)
        batch.release(2)
        sim.quiesce()

    with pytest.raises(SimulationError, match=r"release\(2\) at test_script.py:\d+") as refused:
        batch_of_ordered().simulate(body)
    assert refused.value.code == "CannotBeHonoured"


def test_an_unordered_batch_is_named_by_its_elements():
    def body(sim):
        batch = sim.at("batch")
        sim.send("in", 1, 2, 3, 4)
        batch.release(4, 2).release(1).release(3)
        assert sim.collect("out", 4) == [1, 2, 3, 4]

    assert batch_of_unordered().simulate(body, hashing=False).executions == 1


def test_keys_are_cut_one_by_one():
    flow = Flow("keyed")
    p = flow.process("p")
    tick = p.tick()
    words = p.source("in").key_by(lambda x: x[0])
    p.sink("out", words.batch(tick, WHY).entries().all_ticks())
    p.sink("counts", words.count().snapshot(tick, WHY).entries().all_ticks())

    def body(sim):
        pieces, counts = sim.at(".batch(tick"), sim.at(".snapshot(tick")
        sim.send("in", "a1", "a2", "b1")
        pieces.release(("a", "a1"))
        counts.reveal(("b", 1))
        pieces.release(("a", "a2"), ("b", "b1"))
        counts.release(("a", 2))
        sim.quiesce()
        assert sim.collect("out") == [("a", "a1"), ("a", "a2"), ("b", "b1")]
        assert sim.collect("counts") == [("a", 2), ("b", 1), ("b", 1)]

    assert flow.simulate(body, hashing=False).executions == 1


@pytest.mark.parametrize("words", ["nothing like it", ""])
def test_words_that_name_no_operator_or_many_are_refused(words):
    with pytest.raises(SimulationError, match="not one") as refused:
        batch_and_snapshot().simulate(lambda sim: sim.at(words))
    assert "nothing" in str(refused.value) or "these are" in str(refused.value)
