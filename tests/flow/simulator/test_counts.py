"""How many executions a program has: a simulator that looks at fewer has a hole, one at more wastes time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.flow.simulator import counters
from tests.flow.simulator.programs import MORE, PROGRAMS
from trueline.errors import Counterexample

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "simulator-counts.json").read_text("utf-8"))[
    "counts"
]


def test_every_program_of_the_file_is_here():
    assert {each["program"] for each in GOLDEN} == set(PROGRAMS)


@pytest.mark.parametrize("vector", GOLDEN, ids=lambda vector: vector["program"])
@pytest.mark.parametrize("mode", ["exhaustive", "deviations"])
def test_without_hashing_every_execution_is_counted(vector, mode):
    make, body = PROGRAMS[vector["program"]]
    found = make().simulate(body, mode=mode, hashing=False, max_deviations=None)
    assert (found.executions, found.exhaustive, found.pruned) == (vector["executions"], True, 0)


@pytest.mark.parametrize("name", MORE)
def test_the_counts_worked_out_by_hand_hold(name):
    make, body, executions = MORE[name]
    assert make().simulate(body, hashing=False).executions == executions


def test_the_naive_counter_answers_too_little_in_two_of_six_executions():
    answers = []

    def body(sim):
        sim.send("increments", "one")
        sim.next("acks")
        sim.send("queries", "how many?")
        answers.append(sim.next("answers")[1])

    assert counters.naive().simulate(body, hashing=False).executions == 6
    stale = next(each["stale_reads"] for each in GOLDEN if "stale_reads" in each)
    assert sorted(answers) == [0] * stale + [1] * 4


@pytest.mark.parametrize("name", PROGRAMS)
def test_hashing_sees_the_same_states_in_no_more_executions(name):
    make, body = PROGRAMS[name]
    plain = make().simulate(body, hashing=False)
    hashed = make().simulate(body)
    few = make().simulate(body, mode="deviations", max_deviations=None)
    assert hashed.exhaustive
    assert hashed.executions + hashed.pruned <= plain.executions
    assert (few.states, few.exhaustive) == (hashed.states, True)


def test_hashing_saves_what_leads_to_the_same_state():
    make, body, executions = MORE["batch of an ordered stream of 4: compositions"]
    found = make().simulate(body)
    # The states have let 0, 1, 2 or 3 elements through; how these were cut makes no difference afterwards.
    assert (found.states, found.executions, found.exhaustive) == (4, 4, True)
    assert found.executions + found.pruned < executions


def test_the_bug_of_the_naive_counter_is_found_within_ten_executions():
    for mode in ("exhaustive", "deviations", "fuzz"):
        runs = []

        def body(sim, runs=runs):
            runs.append(0)
            counters.write_then_read(sim)

        with pytest.raises(Counterexample):
            counters.naive().simulate(body, mode=mode, shrink=0)
        # One more tells it.
        assert len(runs) <= 10 + 1, mode
