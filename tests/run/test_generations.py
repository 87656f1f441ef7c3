"""Generations: what is newer wins, at every step, in every schedule."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from tests.examples import some
from tests.run.manual import Manual, Told, in_turn, run_by
from tests.run.schedules import wrong
from tests.run.watched import Watched
from trueline.run import Step
from trueline.run.attempt import Attempt
from trueline.run.generations import initial, stamped
from trueline.run.step_state import StepState


@pytest.mark.contract("run:F1")
@pytest.mark.contract("run:F2")
@pytest.mark.contract("run:F3")
@pytest.mark.contract("run:F4")
@pytest.mark.contract("run:F8")
@pytest.mark.contract("run:F9")
@pytest.mark.contract("run:F12")
@pytest.mark.contract("run:F13")
@pytest.mark.contract("run:F14")
@pytest.mark.contract("run:F15")
@pytest.mark.contract("run:F16")
@pytest.mark.contract("run:F17")
@pytest.mark.contract("run:F18")
@pytest.mark.sampled
@pytest.mark.parametrize("first", some(range(0, 10_000, 1_250), 2))
def test_every_move_of_every_schedule_keeps_what_generations_and_final_bits_promise(first):
    assert [found for seed in range(first, first + 1_250) if (found := wrong(seed, Watched))] == []


def test_a_value_that_came_in_has_zeros_and_a_changed_one_zeros_to_the_right_of_the_step():
    assert initial(3) == (0, 0, 0)
    assert stamped((5, 2, 0), 1, 7) == (5, 7, 0)


@pytest.mark.contract("run:F5")
@pytest.mark.parametrize("gens", [(0, 0), (1, 0), (2, 0)])
def test_what_is_not_newer_changes_nothing(gens):
    line = StepState(Step(map=lambda key, value: value), 1)
    line.deliver({"a": ((2, 0), "new")})
    line.accept(line.take(1))
    found = line.deliver({"a": (gens, "old")})
    assert found is None
    assert line.is_idle
    assert line.accepted == {"a": ((2, 0), "new")}


@pytest.mark.contract("run:F6")
@pytest.mark.parametrize("order", list(permutations([(0, 0), (1, 0), (2, 0)])))
def test_of_several_values_of_a_key_only_the_newest_is_worked_on(order):
    line = StepState(Step(map=lambda key, value: value), 1)
    for gens in order:
        line.deliver({"a": (gens, gens[0])})
    assert line.take(3) == {"a": ((2, 0), 2)}
    assert line.is_idle


@pytest.mark.contract("run:F7")
@pytest.mark.parametrize("newer_first", [True, False])
def test_of_two_batches_on_one_key_the_one_on_the_newer_value_counts_whichever_ends_first(newer_first):
    # Step 1 begins on what came in, step 0 changes it, step 1 begins again: both of its batches run.
    older = 0 if newer_first else 1
    choices = iter([0])

    def choose(shown):
        first = next(choices, None)
        if first is not None:
            return shown.index((0, "a"))
        running = [place for place, (step, _) in enumerate(shown) if step == 1]
        return running[-1 if not older else 0]

    manual = Manual(choose, workers=2)
    steps = [Step(map=lambda key, value: value + "0"), Step(map=lambda key, value: value + "1")]
    found, run = run_by(steps, manual, {"a": "a"})
    assert manual.done == [(0, "a"), (1, "a"), (1, "a")]
    assert found == {"a": "a01"}
    assert run.report.steps[1].calls == 2
    assert run.report.steps[1].wasted == 1


@pytest.mark.contract("run:F10")
def test_what_does_not_change_is_not_told():
    told = Told()
    found, run = run_by(
        [Step(map=lambda key, value: value) for _ in range(4)],
        Manual(in_turn(), workers=4),
        {key: [key] for key in "abc"},
        observers=[told],
    )
    assert found == {"a": ["a"], "b": ["b"], "c": ["c"]}
    assert not told.of("changed", "superseded", "restamped")
    assert [step.calls for step in run.report.steps] == [3, 3, 3, 3]


@pytest.mark.contract("run:F11")
def test_a_step_that_makes_the_same_again_does_not_make_later_ones_work_again():
    # Step 0 changes the value after the others have worked; step 1 makes the same of both.
    counted = []
    steps = [
        Step(map=lambda key, value: value + 1),
        Step(map=lambda key, value: "constant"),
        Step(map=lambda key, value: counted.append(value) or value),
    ]
    told = Told()
    manual = Manual(in_turn((1, "a"), (2, "a"), (2, "a"), (0, "a")), workers=4)
    found, _ = run_by(steps, manual, {"a": 1}, observers=[told])
    assert found == {"a": "constant"}
    assert counted.count("constant") == 1
    assert ("restamped", 2, "a") in told.of("restamped")


@pytest.mark.contract("run:F11")
def test_work_that_runs_on_an_equal_value_goes_on_under_the_newer_generations():
    line = StepState(Step(map=lambda key, value: value), 1)
    line.deliver({"a": ((1, 0), [1])})
    line.accept(line.take(1))
    attempt = Attempt(1, 1, 1, {"a": line.accepted["a"]})
    line.attempts.append(attempt)
    found = line.deliver({"a": ((2, 0), [1])})
    assert found.lost == []
    assert not line.pending
    assert attempt.items == line.accepted == {"a": ((2, 0), [1])}
    found = line.deliver({"a": ((3, 0), [2])})
    assert found.lost == [(attempt, ["a"])]
    assert line.pending == {"a": ((3, 0), [2])}


@pytest.mark.parametrize(
    ("value", "made"), [(1, 1.0), (1, True), (0.0, -0.0), ([1], [1.0]), ({"a": 1, "b": 2}, {"b": 2, "a": 1})]
)
def test_values_that_compare_equal_and_are_not_the_same_are_handed_on(value, made):
    found, _ = run_by([Step(map=lambda key, value: made)], Manual(in_turn()), {"a": value})
    assert repr(found["a"]) == repr(made)


class Undecided:
    """Compares as nothing does."""

    def __eq__(self, other):
        raise ValueError("which element?")

    __hash__ = None


def test_values_that_cannot_be_compared_count_as_changed():
    for made in (Undecided(), np.array([1, 2])):
        steps = [Step(map=lambda key, value, made=made: made), Step(map=lambda key, value: value)]
        found, run = run_by(steps, Manual(in_turn(), workers=2), {"a": np.array([1, 2])})
        assert found["a"] is made
        assert run.failures == ()


def test_none_is_a_value():
    steps = [Step(map=lambda key, value: None), Step(map=lambda key, value: [value])]
    found, _ = run_by(steps, Manual(in_turn(), workers=2), {"a": 1, "b": None})
    assert found == {"a": [None], "b": [None]}


def test_a_digest_tells_values_apart_where_a_step_has_one():
    seen = []
    steps = [
        Step(map=lambda key, value: {"digest": "same", "place": "new"}, digest=lambda value: value["digest"]),
        Step(map=lambda key, value: seen.append(value["place"]) or value),
    ]
    found, _ = run_by(steps, Manual(in_turn()), {"a": {"digest": "same", "place": "old"}})
    assert found["a"]["place"] == "old"
    assert seen == ["old"]


def test_an_attempt_is_useless_when_none_of_its_keys_is_wanted():
    attempt = Attempt(1, 0, 1, {"a": ((0,), 1), "b": ((0,), 2)})
    attempt.supersede(["a"])
    assert (attempt.token.superseded("a"), attempt.token.superseded("b"), attempt.is_useless) == (
        True,
        False,
        False,
    )
    attempt.supersede(["b"])
    assert attempt.is_useless
    assert attempt.token.superseded()
