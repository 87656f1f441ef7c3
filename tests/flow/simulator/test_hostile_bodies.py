"""Test bodies and options that go wrong: refused, or told as what they are."""

from __future__ import annotations

import pytest

from trueline.errors import Counterexample, InputError, SimulationError
from trueline.flow import Flow, nondet

WHY = nondet("any will do")


def pieces():
    flow = Flow("pieces")
    p = flow.process("p")
    p.sink("sizes", p.source("words").batch(p.tick(), WHY).count().all_ticks())
    return flow


def whole(sim):
    sim.send("words", 1, 2, 3)
    assert sum(sim.collect("sizes")) == 3


@pytest.mark.parametrize("mode", ["exhaustive", "deviations", "fuzz"])
@pytest.mark.parametrize("budget", [0, -1, 1.5, "all", True])
def test_a_budget_that_is_none_is_refused(mode, budget):
    with pytest.raises(InputError, match="max_executions="):
        pieces().simulate(whole, mode, max_executions=budget)


@pytest.mark.parametrize("option", ["max_steps", "max_deviations", "shrink"])
def test_a_bound_below_nought_is_refused(option):
    with pytest.raises(InputError, match=f"{option}=-1"):
        pieces().simulate(whole, **{option: -1})


@pytest.mark.parametrize("line", ["1 9", "0 0 0 0 0 1", 5, "one"])
def test_a_line_of_another_test_is_refused(line):
    with pytest.raises(SimulationError) as refused:
        pieces().simulate(whole, replay=line)
    assert refused.value.code == "LineDoesNotFit"


def test_what_pytest_raises_is_a_finding_with_its_trace():
    def body(sim):
        sim.send("words", 1, 2)
        if sim.collect("sizes") != [2]:
            pytest.fail("in two pieces")

    with pytest.raises(Counterexample, match="in two pieces") as found:
        pieces().simulate(body)
    assert found.value.choices == (1,)


def test_a_skipped_test_is_skipped():
    with pytest.raises(pytest.skip.Exception):
        pieces().simulate(lambda sim: pytest.skip("not today"))


def test_ctrl_c_ends_a_search_at_once():
    runs = []

    def body(sim):
        runs.append(1)
        whole(sim)
        if len(runs) == 3:
            raise KeyboardInterrupt

    flow = pieces()
    with pytest.raises(KeyboardInterrupt):
        flow.simulate(body)
    assert len(runs) == 3
    assert flow.simulate(whole, hashing=False).executions == 4


def test_a_body_that_catches_everything_does_not_catch_the_end_of_its_execution():
    gone_on = []

    def body(sim):
        sim.send("words", 1)
        try:
            sim.fork(lambda: None)
        except Exception:  # noqa: BLE001 (what careless tests do)
            gone_on.append("caught")
        sim.collect("sizes")

    assert pieces().simulate(body).executions == 2
    assert gone_on == []


def lists():
    flow = Flow("lists")
    p = flow.process("p")
    seen = p.source("in").map(lambda x: x).fold(list, lambda values, x: [*values, *x])
    p.sink("out", seen.snapshot(p.tick(), WHY).all_ticks())
    return flow


def test_a_body_may_change_what_it_sent_and_what_it_read():
    ends = set()

    def body(sim):
        mine = [1]
        sim.send("in", mine, [2])
        mine.append("mine")
        first = sim.next("out")
        first.append("mine")
        sim.send("in", [3])
        ends.add(tuple(sim.collect("out")[-1]))

    assert lists().simulate(body, hashing=False).exhaustive
    assert ends == {(1, 2, 3)}


def test_a_simulation_inside_another_is_its_own():
    def body(sim):
        whole(sim)
        assert pieces().simulate(whole, hashing=False).executions == 4

    assert pieces().simulate(body, hashing=False).executions == 4
