"""Keys that are added, erased and written from others: the newest values decide, in the order of keys."""

from __future__ import annotations

import pytest

from tests.run.manual import Manual, in_turn, left_first, right_first, run_by
from trueline.run import ERASED, Inline, Run, Step
from trueline.run.keys import in_order


def add(text, **options):
    return Step(map=lambda key, value: value + text, **options)


@pytest.mark.contract("run:F26")
@pytest.mark.parametrize("choose", [left_first, right_first])
def test_an_erased_key_is_not_in_the_result_and_no_map_sees_it(choose):
    seen = []
    steps = [
        Step(map=lambda key, value: ERASED if key == "a" else value),
        Step(map=lambda key, value: seen.append(value) or value.upper()),
    ]
    found, _ = run_by(steps, Manual(choose, workers=4), {"a": "a", "b": "b"})
    assert found == {"b": "B"}
    assert ERASED not in seen


@pytest.mark.contract("run:F26")
@pytest.mark.parametrize("choose", [left_first, right_first])
def test_an_erased_key_can_be_added_again_by_a_later_step(choose):
    steps = [
        Step(map=lambda key, value: ERASED if key == "a" else value, batch_size=1),
        Step(flat_map=lambda key, value: [("a", "again")] if key == "b" else [], batch_size=1),
        add("!", batch_size=1),
    ]
    found, _ = run_by(steps, Manual(choose, workers=6), {"a": "a", "b": "b"})
    assert found == {"a": "again!", "b": "b!"}


@pytest.mark.contract("run:F27")
def test_a_key_made_from_a_value_that_was_replaced_is_not_in_the_result():
    # Step 1 renames what it is given; it has worked on the old value before step 0 changed it.
    steps = [
        Step(map=lambda key, value: "new"),
        Step(flat_map=lambda key, value: [(f"x-{value}", value), (key, ERASED)]),
        add("!"),
    ]
    manual = Manual(in_turn((1, "a"), (2, "x-old"), (0, "a")), workers=4)
    found, _ = run_by(steps, manual, {"a": "old"})
    assert manual.done[:2] == [(1, "a"), (2, "x-old")]
    assert found == {"x-new": "new!"}


@pytest.mark.contract("run:F28")
@pytest.mark.parametrize("choose", [left_first, right_first])
def test_a_write_from_another_key_beats_earlier_steps_and_loses_to_later_ones(choose):
    steps = [
        Step(map=lambda key, value: value + "0" if key == "b" else value, batch_size=1),
        Step(flat_map=lambda key, value: [("b", "from a")] if key == "a" else [], batch_size=1),
        Step(map=lambda key, value: value + "2" if key == "b" else value, batch_size=1),
    ]
    found, _ = run_by(steps, Manual(choose, workers=6), {"a": "a", "b": "b"})
    assert found == {"a": "a", "b": "from a2"}


@pytest.mark.contract("run:F4")
@pytest.mark.contract("run:F28")
@pytest.mark.parametrize("first", ["a", "b"])
def test_a_key_that_is_written_before_its_own_value_is_accepted_keeps_the_write(first):
    steps = [
        Step(flat_map=lambda key, value: [("b", "from a")] if key == "a" else [], batch_size=1),
        add("!"),
    ]
    found, _ = run_by(steps, Manual(in_turn((0, first), (1, "b")), workers=4), {"a": "a", "b": "b"})
    assert found == {"a": "a!", "b": "from a!"}


def test_of_several_keys_that_write_one_the_last_in_their_order_wins():
    step = Step(flat_map=lambda key, value: [("out", value)], batch_size=1)
    for seed in range(10):
        found = Run([step], executor=Inline(seed, workers=3)).execute({10: "ten", 9: "nine", 2: "two"})
        assert found["out"] == "ten"


@pytest.mark.parametrize(
    ("keys", "ordered"),
    [
        (["b", "a", "c"], ["a", "b", "c"]),
        ([10, 9.5, True], [True, 9.5, 10]),
        (["b", 10, "a", 9, None], [9, 10, None, "a", "b"]),
        ([("b", 1), ("a", 2)], [("a", 2), ("b", 1)]),
        (
            [frozenset("ba"), frozenset("a"), frozenset("c")],
            [frozenset("ab"), frozenset("a"), frozenset("c")],
        ),
    ],
)
def test_keys_have_one_order_whatever_order_they_come_in(keys, ordered):
    assert in_order(keys) == in_order(reversed(keys)) == ordered


def test_a_step_that_is_given_all_keys_gets_them_once_in_order_and_writes_after_the_others():
    given = []

    def process(items):
        given.append([key for key, _ in items])
        yield "z", "sum", "of one"
        yield None, "sum", sum(value for _, value in items)

    steps = [
        Step(map=lambda key, value: value + 1, batch_size=1),
        Step(process=process, eager=False),
        Step(map=lambda key, value: -value if key == "sum" else value),
    ]
    for seed in range(10):
        given.clear()
        run = Run(steps, executor=Inline(seed, workers=4))
        assert run.execute({"z": 1, "b": 2, "a": 3}) == {"z": 2, "b": 3, "a": 4, "sum": -9}
        assert given == [["a", "b", "z"]]


def test_results_come_in_the_order_values_came_in_then_keys_that_were_added_in_theirs():
    step = Step(flat_map=lambda key, value: [(f"{key}{key}", value)])
    assert list(Run([step], workers=4).execute({"b": 1, "c": 2, "a": 3})) == ["b", "c", "a", "aa", "bb", "cc"]
