"""A test body may ask what it likes; what would hide schedules is explored twice, or refused."""

from __future__ import annotations

import itertools
import warnings

import pytest

from tests.flow.simulator import counters
from tests.flow.simulator.programs import (
    WHY,
    all_of,
    batch_of_ordered,
    batch_of_unordered,
    snapshot_of_a_fold,
)
from trueline.errors import ClaimBroken, Counterexample, EndlessLoop, InputError, SimulationError
from trueline.flow import Flow, nondet
from trueline.flow.simulator import NotExhaustive

# --- seeing that nothing comes ----------------------------------------------------------------


def test_a_check_of_absence_splits_the_execution_and_the_other_half_goes_on():
    ways = []

    def body(sim):
        sim.send("in", 1, 2)
        sim.fork(lambda: ways.append(sim.collect("out")))
        ways.append(sim.collect("out", 2))

    found = batch_of_ordered().simulate(body, hashing=False)
    # Two schedules, each once with the check and once without.
    assert (found.executions, ways) == (4, [[1, 2]] * 4)


def test_at_rest_absence_costs_nothing():
    def body(sim):
        sim.send("in", 1)
        assert sim.next("out") == 1
        sim.assert_no_more("out")
        sim.send("in", 2)
        assert sim.next("out") == 2

    assert batch_of_ordered().simulate(body, hashing=False).executions == 1


def test_a_failing_check_of_absence_is_told_as_what_it_is():
    def body(sim):
        sim.send("in", 1, 2)
        assert sim.next("out") == 1
        sim.assert_no_more("out")

    with pytest.raises(Counterexample, match="where nothing more was expected"):
        batch_of_ordered().simulate(body)


def test_reading_after_absence_was_seen_and_more_was_sent_is_refused():
    def body(sim):
        sim.send("in", 1, 2)
        sim.collect("out")
        sim.send("in", 3)
        sim.next("out")

    with pytest.raises(SimulationError, match="absent") as refused:
        batch_of_ordered().simulate(body)
    assert refused.value.code == "Poisoned"


def test_a_barrier_makes_it_sound_again():
    def body(sim):
        sim.send("in", 1, 2)
        assert sim.collect("out") == [1, 2]
        sim.quiesce()
        sim.send("in", 3)
        assert sim.next("out") == 3

    assert batch_of_ordered().simulate(body).exhaustive


def test_try_next_gives_a_default_at_rest_and_taints_only_if_it_had_to_wait():
    def free(sim):
        assert sim.try_next("out", "none") == "none"
        sim.send("in", 1)
        assert sim.try_next("out") == 1
        assert sim.try_next("out") is None
        sim.send("in", 2)
        assert sim.next("out") == 2

    assert batch_of_ordered().simulate(free).exhaustive

    def waits(sim):
        sim.send("queries", "q")
        assert sim.try_next("acks") is None
        sim.send("increments", 1)
        sim.next("acks")

    with pytest.raises(SimulationError) as refused:
        counters.aligned().simulate(waits)
    assert refused.value.code == "Poisoned"


def test_settling_says_whether_anything_is_under_way():
    def body(sim):
        assert sim.settle()
        sim.send("in", 1)
        assert not sim.settle()
        sim.next("out")
        assert sim.settle()

    assert batch_of_ordered().simulate(body).executions == 1


def test_waiting_for_what_never_comes_fails():
    def body(sim):
        sim.send("in", 1)
        sim.collect("out", 2)

    with pytest.raises(Counterexample, match="gives 1 elements, not 2"):
        batch_of_ordered().simulate(body)
    with pytest.raises(Counterexample, match="come to rest"):
        batch_of_ordered().simulate(lambda sim: sim.next("out"))


# --- order ----------------------------------------------------------------------------------


def test_of_an_unordered_sink_any_element_that_is_there_may_be_next():
    first = set()

    def body(sim):
        sim.send("in", 1, 2, 3)
        first.add(sim.next("out"))

    batch_of_unordered().simulate(body)
    assert first == {1, 2, 3}


def test_of_an_unordered_sink_what_is_there_at_once_may_come_in_any_order():
    flow = Flow("echo")
    p = flow.process("p")
    p.sink("out", p.source("in", ordered=False))
    seen = set()

    def body(sim):
        sim.send("in", 1, 2, 3)
        seen.add((sim.next("out"), sim.next("out")))

    assert flow.simulate(body).exhaustive
    assert seen == set(itertools.permutations((1, 2, 3), 2))


def test_of_an_unordered_sink_exactly_so_many_are_collected_sorted():
    def body(sim):
        sim.send("in", 10, 9, 2)
        assert sim.collect("out", 3) == [2, 9, 10]

    assert batch_of_unordered().simulate(body).exhaustive

    def few(sim):
        sim.send("in", 3, 1, 2)
        sim.collect("out", 2)

    with pytest.raises(Counterexample, match="gives 3 elements, not 2"):
        batch_of_unordered().simulate(few)


# --- what the test takes for granted ----------------------------------------------------------


def test_what_assume_rules_out_is_set_aside_and_counted():
    def body(sim):
        sim.send("in", 1, 2, 3)
        sim.assume(sim.next("out") == 6)

    found = snapshot_of_a_fold().simulate(body, hashing=False)
    assert (found.executions, found.discarded, found.exhaustive) == (1, 3, True)


def test_setting_everything_aside_is_not_passed_over():
    def body(sim):
        sim.send("in", 1)
        sim.next("out")
        sim.assume(False)

    with pytest.warns(NotExhaustive, match="every one"):
        batch_of_ordered().simulate(body)


# --- budgets --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["exhaustive", "deviations"])
def test_a_search_that_was_cut_short_says_so_and_is_not_exhaustive(mode):
    with pytest.warns(NotExhaustive, match="NOT every schedule"):
        found = batch_of_ordered().simulate(
            all_of(*range(8)), mode=mode, hashing=False, max_executions=10, max_deviations=None
        )
    assert (found.exhaustive, found.executions) == (False, 10)
    assert "NOT every schedule (stopped after 10 executions" in str(found)


def test_a_search_out_of_time_says_so():
    with pytest.warns(NotExhaustive, match="0 seconds"):
        found = batch_of_ordered().simulate(all_of(*range(12)), hashing=False, max_seconds=0)
    assert not found.exhaustive


def test_a_budget_that_just_suffices_is_enough():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = batch_of_ordered().simulate(all_of(1, 2, 3, 4), hashing=False, max_executions=8)
    assert found.exhaustive


def test_a_bound_on_deviations_is_said_and_counts_every_line_once():
    whole = batch_of_ordered().simulate(
        all_of(*range(8)), mode="deviations", hashing=False, max_deviations=None
    )
    assert (whole.executions, whole.exhaustive) == (128, True)
    part = batch_of_ordered().simulate(all_of(*range(8)), mode="deviations", hashing=False, max_deviations=1)
    assert (part.executions, part.exhaustive, part.deviations) == (8, False, 1)
    assert "at most 1 deviations" in str(part)


def test_fuzzing_is_never_exhaustive_and_repeats_with_its_seed():
    def run(seed):
        seen = []

        def body(sim):
            sim.send("in", *range(10))
            sim.quiesce()
            seen.append(tuple(sim.collect("out")))

        found = snapshot_of_a_fold().simulate(body, mode="fuzz", seed=seed, max_executions=20)
        assert not found.exhaustive
        return seen

    assert run(7) == run(7)
    assert run(7) != run(8)


# --- from one execution to the next -------------------------------------------------------------


def test_a_state_is_known_only_with_the_answers_that_led_to_it():
    """The flow is in the same state, but the test is not: what it has read makes the difference."""

    def body(sim):
        sim.send("in", 1, 2)
        first = value = sim.next("out")
        while value != 3:
            value = sim.next("out")
        sim.send("in", 4)
        sim.next("out")
        assert first != 1

    with pytest.raises(Counterexample, match="reads 'out': 1"):
        snapshot_of_a_fold().simulate(body)


def test_what_one_execution_saw_does_not_taint_the_next():
    def body(sim):
        sim.send("in", 1, 2)
        if sim.next("out") == 3:
            sim.send("in", 4, 8)
            sim.collect("out")
        else:
            sim.send("in", 4)
            sim.next("out")

    assert snapshot_of_a_fold().simulate(body, hashing=False).exhaustive


def test_shrinking_keeps_to_the_failure_that_was_found():
    def body(sim):
        sim.send("in", 1, 2)
        first = sim.next("out")
        if first != 3:
            raise KeyError("another one, that is plainer")
        sim.send("in", 4, 8)
        if sim.next("out") != 15:
            raise ValueError("the one that is found first")

    with pytest.raises(Counterexample, match="found first") as found:
        snapshot_of_a_fold().simulate(body)
    assert found.value.choices == (0, 1)
    with pytest.raises(Counterexample, match="that is plainer"):
        snapshot_of_a_fold().simulate(body, mode="deviations")


# --- what cannot be explored ------------------------------------------------------------------


def test_a_body_that_never_reads_is_refused():
    with pytest.raises(SimulationError, match="reads nothing") as refused:
        batch_of_ordered().simulate(lambda sim: sim.send("in", 1))
    assert refused.value.code == "NothingRead"


def test_a_body_with_a_memory_is_refused():
    numbers = itertools.count()

    def body(sim):
        sim.send("in", 1, 2, 3)
        sim.next("out")
        if next(numbers) % 2:
            sim.quiesce()
        else:
            sim.collect("out", 2)

    with pytest.raises(SimulationError) as refused:
        batch_of_ordered().simulate(body, hashing=False)
    assert refused.value.code == "NotRepeatable"


def test_a_function_with_a_memory_is_noticed():
    numbers = itertools.count()
    flow = Flow("memory")
    p = flow.process("p")
    p.sink(
        "out",
        p.source("in").flat_map(lambda x: [x] * (1 + next(numbers) % 2)).batch(p.tick(), WHY).all_ticks(),
    )

    def body(sim):
        sim.send("in", 1, 2, 3)
        sim.collect("out")

    with pytest.raises(SimulationError) as refused:
        flow.simulate(body, mode="deviations", hashing=False)
    assert refused.value.code in ("NotRepeatable", "LineDoesNotFit")


def test_a_function_that_changes_its_input_is_told_with_its_line():
    flow = Flow("changes")
    p = flow.process("p")
    p.sink("out", p.source("in").batch(p.tick(), WHY).map(lambda x: x.append(1) or x).all_ticks())

    def body(sim):
        sim.send("in", [])
        sim.next("out")

    with pytest.raises(Counterexample, match="changes its input") as found:
        flow.simulate(body)
    assert isinstance(found.value.__cause__, ClaimBroken)
    assert "test_soundness.py" in str(found.value)


def test_a_claim_of_commutativity_is_tested():
    flow = Flow("not commutative")
    p = flow.process("p")
    text = p.source("in", ordered=False).fold_commutative("", lambda a, x: a + x)
    p.sink("out", text.snapshot(p.tick(), WHY).all_ticks())

    def body(sim):
        sim.send("in", "a", "b")
        sim.quiesce()

    with pytest.raises(Counterexample, match="commutative"):
        flow.simulate(body)


def test_a_flow_that_never_comes_to_rest_is_stopped_and_told():
    flow = Flow("round and round")
    p = flow.process("p")
    handle, back = p.forward_ref()
    tick = p.tick()
    out = back.merge_ordered(p.source("in"), nondet("whichever")).batch(tick, WHY).all_ticks()
    handle.complete(out)
    p.sink("out", out)

    def body(sim):
        sim.send("in", 1)
        sim.quiesce()

    with pytest.raises(Counterexample, match="still has work to do") as found:
        flow.simulate(body, hashing=False, max_steps=50, shrink=10)
    assert isinstance(found.value.__cause__, EndlessLoop)


@pytest.mark.parametrize(
    ("options", "text"),
    [({"mode": "random"}, "mode='random'"), ({"faults": ["crash"]}, "not a fault")],
)
def test_options_that_mean_nothing_are_refused(options, text):
    with pytest.raises(InputError, match=text):
        batch_of_ordered().simulate(all_of(1), **options)


@pytest.mark.parametrize("body", [lambda sim: sim.send("nowhere", 1), lambda sim: sim.next("nowhere")])
def test_a_name_the_flow_does_not_have_is_misuse_not_a_finding(body):
    with pytest.raises(InputError, match="nowhere") as refused:
        batch_of_ordered().simulate(body)
    assert not isinstance(refused.value, Counterexample)


def test_what_is_no_function_is_no_body():
    with pytest.raises(InputError, match="not a test body"):
        batch_of_ordered().simulate("write, then read")
