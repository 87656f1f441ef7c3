"""What is final, when: step by step, and key by key where keys do not touch each other."""

from __future__ import annotations

import pytest

from tests.run.manual import Manual, Told, in_turn, run_by
from tests.run.sequential import Kinds, random_run, sequential
from trueline.run import ERASED, Inline, Run, Step


def add(text, **options):
    return Step(map=lambda key, value: value + text, **options)


@pytest.mark.contract("run:F16")
def test_a_step_that_is_not_eager_begins_a_key_when_it_is_final_not_when_all_are():
    # Step 0 is done with a and still at b: step 1 begins a.
    manual = Manual(in_turn((0, "a"), (1, "a"), (0, "b"), (1, "b")), workers=3)
    found, run = run_by([add("0", batch_size=1), add("1", eager=False)], manual, {"a": "a", "b": "b"})
    assert found == {"a": "a01", "b": "b01"}
    assert manual.done == [(0, "a"), (1, "a"), (0, "b"), (1, "b")]
    assert run.report.steps[1].calls == 2


@pytest.mark.contract("run:F16")
@pytest.mark.parametrize("batch_size", [1, 2, -1])
@pytest.mark.parametrize("eager", [True, False])
def test_a_step_that_is_not_eager_gets_each_key_once_in_every_schedule(batch_size, eager):
    for seed in range(60):
        steps, inputs = random_run(seed, Kinds(errors=False, whole=False))
        seen = []
        last = Step(
            map=lambda key, value, seen=seen: seen.append(key) or value, eager=False, batch_size=batch_size
        )
        between = Step(map=lambda key, value: value, eager=eager)
        run = Run([*steps, between, last], executor=Inline(seed, workers=4))
        found = run.execute(inputs)
        assert sorted(seen) == sorted(found), f"seed {seed}"


@pytest.mark.contract("run:F16")
def test_keys_wait_for_a_whole_step_that_may_write_them():
    # Step 0 may yet write b from a: step 1 must not begin b before it has.
    steps = [
        Step(flat_map=lambda key, value: [("b", "written")] if key == "a" else [], batch_size=1),
        add("1", eager=False),
    ]
    manual = Manual(in_turn((0, "b"), (1, "b"), (0, "a")), workers=3)
    found, _ = run_by(steps, manual, {"a": "a", "b": "b"})
    assert found == {"a": "a1", "b": "written1"}
    assert manual.done[:2] == [(0, "b"), (0, "a")]


@pytest.mark.contract("run:F16")
@pytest.mark.contract("run:F22")
def test_keys_wait_for_a_whole_step_that_may_be_skipped():
    # Step 0 is done with a, fails on b and is skipped: a was not final though step 0 was done with it.
    def fails_on_b(key, value):
        if key == "b":
            raise ValueError(key)
        return value + "0"

    steps = [Step(map=fails_on_b, on_error="skip_step", batch_size=1), add("1", eager=False)]
    manual = Manual(in_turn((0, "a"), (1, "a"), (0, "b")), workers=3)
    found, run = run_by(steps, manual, {"a": "a", "b": "b"})
    assert found == {"a": "a1", "b": "b1"}
    assert manual.done[:2] == [(0, "a"), (0, "b")]
    assert run.report.steps[1].calls == 2


@pytest.mark.contract("run:F20")
@pytest.mark.parametrize("options", [{"deliberate": True}, {"eager": False}])
def test_deliberate_runs_and_steps_that_are_not_eager_work_once_on_each_key(options):
    deliberate = options.pop("deliberate", False)
    for seed in range(40):
        calls = []
        steps = [
            Step(map=lambda key, value, i=i, calls=calls: calls.append(i) or value + str(i), **options)
            for i in range(4)
        ]
        run = Run(steps, executor=Inline(seed, workers=5), deliberate=deliberate)
        inputs = {key: key for key in "abcde"}
        assert run.execute(inputs) == sequential(steps, inputs)
        assert len(calls) == 2 * 4 * 5  # the oracle's too
        assert [step.wasted for step in run.report.steps] == [0, 0, 0, 0]


@pytest.mark.contract("run:F20")
def test_a_deliberate_run_begins_a_step_when_the_one_before_has_ended():
    seen = []
    steps = [Step(map=lambda key, value, i=i: seen.append(i) or value, batch_size=1) for i in range(3)]
    Run(steps, executor=Inline(3, workers=4), deliberate=True).execute({key: key for key in "abcd"})
    assert seen == [0] * 4 + [1] * 4 + [2] * 4


@pytest.mark.contract("run:F12")
@pytest.mark.contract("run:F15")
def test_each_key_is_told_to_be_final_once_at_each_step_and_before_the_step_is():
    told = Told()
    steps = [add("0", batch_size=1), Step(flat_map=lambda key, value: [(key, value + "1")]), add("2")]
    Run(steps, executor=Inline(5, workers=3), observers=[told]).execute({"a": "a", "b": "b"})
    for index in range(3):
        finals = [event for event in told.of("key final", "step final") if event[1] == index]
        assert sorted(finals[:-1], key=str) == [("key final", index, "a"), ("key final", index, "b")]
        assert finals[-1] == ("step final", index, None)


def test_a_key_is_final_at_a_step_before_the_step_is():
    told = Told()
    manual = Manual(in_turn((0, "a"), (0, "b")), workers=2)
    run_by([add("0", batch_size=1)], manual, {"a": "a", "b": "b"}, observers=[told])
    assert told.of("changed", "key final", "step final") == [
        ("changed", 0, "a"),
        ("key final", 0, "a"),
        ("changed", 0, "b"),
        ("key final", 0, "b"),
        ("step final", 0, None),
    ]


@pytest.mark.contract("run:F30")
def test_no_steps_give_back_what_came_in_and_no_keys_give_nothing():
    assert Run([]).execute({"a": 1, "b": ERASED}) == {"a": 1}
    assert Run([add("0"), add("1", eager=False)]).execute({}) == {}
    assert Run([Step(process=lambda items: [(None, "sum", 0)], eager=False)]).execute({}) == {}


@pytest.mark.contract("run:F30")
def test_two_hundred_steps_over_fifty_keys_end_with_every_change():
    # Default settings: an engine that forwards too late loses changes here, or hangs.
    steps = [Step(map=lambda key, value: value + 1) for _ in range(200)]
    assert Run(steps).execute(dict.fromkeys(range(50), 0)) == dict.fromkeys(range(50), 200)


@pytest.mark.contract("run:F19")
@pytest.mark.parametrize("batch_size", [None, -1, 10])
def test_many_keys_in_large_batches_lose_nothing(batch_size):
    steps = [Step(map=lambda key, value: value + 1, batch_size=batch_size) for _ in range(5)]
    assert Run(steps, workers=2).execute(dict.fromkeys(range(2_000), 0)) == dict.fromkeys(range(2_000), 5)


def test_a_run_runs_once():
    run = Run([add("0")])
    run.execute({"a": "a"})
    with pytest.raises(ValueError, match="runs once"):
        run.execute({"a": "a"})
