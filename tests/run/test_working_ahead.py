"""Later steps begin before earlier ones have ended; what that costs is bounded."""

from __future__ import annotations

import threading

import pytest

from tests.run.manual import Manual, Told, in_turn, right_first, run_by
from trueline.run import Inline, Run, Step, current
from trueline.run.coordinator import Coordinator
from trueline.run.step_state import StepState


@pytest.mark.parametrize("changes", [False, True], ids=["kept", "thrown away"])
def test_a_later_step_starts_on_a_key_before_an_earlier_one_has_ended(changes):
    # Step 0 does not end before step 1 has begun: a run that waits would never end.
    ahead = threading.Event()
    order = []

    def first(key, value):
        assert ahead.wait(60)
        order.append("first ends")
        return value + "!" if changes else value

    def second(key, value):
        order.append(f"second begins on {value}")
        ahead.set()
        return value.upper()

    run = Run([Step(map=first), Step(map=second)], workers=2)
    found = run.execute({"a": "a"})
    assert order[:2] == ["second begins on a", "first ends"]
    step = run.report.steps[1]
    if changes:
        assert found == {"a": "A!"}
        assert order[2:] == ["second begins on a!"]
        assert (step.calls, step.kept, step.wasted) == (2, 1, 1)
    else:
        assert found == {"a": "A"}
        assert order[2:] == []
        assert (step.calls, step.kept, step.wasted) == (1, 1, 0)


def test_work_that_is_of_no_use_any_more_can_see_it_and_stop():
    # Step 1 goes on until its token says that nobody wants what it makes; step 0 waits for it to begin.
    ahead = threading.Event()
    stopped, told = [], []

    def second(key, value):
        if value == "old":
            ahead.set()
            while not current().superseded(key):
                threading.Event().wait(0.001)
            stopped.append(key)
        return value

    class Second(Step):
        def map(self, key, value):
            return second(key, value)

        def superseded(self, key):
            told.append(key)

    first = Step(map=lambda key, value: ahead.wait(60) and "new")
    assert Run([first, Second()], workers=2).execute({"a": "old"}) == {"a": "new"}
    assert stopped == told == ["a"]
    assert current() is None


def test_keys_of_a_batch_that_are_of_no_use_any_more_are_passed_over():
    seen = []
    steps = [
        Step(map=lambda key, value: value + "0" if key == "b" else value, batch_size=3),
        Step(map=lambda key, value: seen.append(value) or value, batch_size=3),
    ]
    manual = Manual(in_turn((0, "abc")), workers=2)
    found, run = run_by(steps, manual, {"a": "a", "b": "b", "c": "c"})
    assert found == {"a": "a", "b": "b0", "c": "c"}
    assert seen == ["a", "c", "b0"]
    assert manual.useless == []  # the batch as a whole was of use
    assert run.report.steps[1].wasted == 1


def test_executors_are_told_of_a_batch_that_nobody_wants():
    manual = Manual(in_turn((0, "a")), workers=2)
    run_by([Step(map=lambda key, value: 1), Step(map=lambda key, value: value)], manual, {"a": 0})
    assert manual.useless == [2]


# --- what it may cost ---------------------------------------------------------------------


def counting(count, **options):
    """Steps that change every value, and how often each was called for a key."""
    calls = {}

    def map_(index, key, value):
        calls[(index, key)] = calls.get((index, key), 0) + 1
        return (*value, index)

    steps = [
        Step(map=lambda key, value, index=index: map_(index, key, value), **options) for index in range(count)
    ]
    return steps, calls


@pytest.mark.contract("run:F21")
def test_one_worker_calls_each_step_once_for_each_key():
    steps, calls = counting(6)
    Run(steps, workers=1).execute(dict.fromkeys("abcdefgh", ()))
    assert set(calls.values()) == {1}
    assert len(calls) == 6 * 8


@pytest.mark.contract("run:F21")
@pytest.mark.parametrize("seed", range(20))
def test_many_workers_call_steps_no_more_than_the_sum_of_their_places(seed):
    steps, calls = counting(6)
    run = Run(steps, executor=Inline(seed, workers=8))
    assert run.execute(dict.fromkeys("abc", ())) == dict.fromkeys("abc", (0, 1, 2, 3, 4, 5))
    assert sum(calls.values()) <= 3 * 6 * 7 / 2
    assert all(calls[(index, key)] <= index + 1 for index, key in calls)


@pytest.mark.contract("run:F21")
@pytest.mark.parametrize("worth", [0.0, 0.25])
def test_the_worst_order_is_bounded_too(monkeypatch, worth):
    # From right to left, twelve steps that change everything would be called 2^12 - 1 times for a key.
    monkeypatch.setattr("trueline.run.finality.WORTH", worth)
    steps, calls = counting(12)
    coordinator = Coordinator(steps, Manual(right_first, workers=1))
    coordinator.order = lambda lines: list(reversed(lines))
    coordinator.inbox.feed({"a": ()})
    coordinator.inbox.close()
    assert coordinator.run() == {"a": tuple(range(12))}
    assert max(calls.values()) <= 4
    assert sum(calls.values()) <= 12 * 13 / 2


def test_a_step_waits_where_those_before_it_change_nearly_everything():
    # The first values are worked ahead on; when it shows that all change, the step waits for each.
    steps, calls = counting(2, batch_size=1)
    steps[0].concurrency = 1
    run = Run(steps, executor=Inline(3, workers=4))
    run.execute(dict.fromkeys(range(100), ()))
    assert run.report.steps[1].wasted < 30
    assert len(calls) == 200


def test_a_step_works_ahead_where_those_before_it_change_little():
    told = Told()
    steps = [Step(map=lambda key, value: value, concurrency=1, batch_size=1) for _ in range(3)]
    run = Run(steps, executor=Inline(3, workers=4), observers=[told])
    run.execute(dict.fromkeys(range(100), 0))
    ahead = sum(event.speculative for event in told.events if event.what == "started" and event.step == 2)
    assert ahead > 50
    assert run.report.steps[2].wasted == 0


def test_a_step_that_says_it_changes_everything_is_believed_before_it_has_run():
    steps, calls = counting(2)
    steps[0].change_rate = 1.0
    run_by(steps, Manual(right_first, workers=4), dict.fromkeys("abc", ()))
    assert set(calls.values()) == {1}


def test_keys_are_looked_at_once_when_they_are_set_aside_however_many_wait():
    # Looking at all that wait before each batch would take the square of their number.
    looked = []
    steps, _ = counting(2, batch_size=1)
    steps[0].change_rate = 1.0
    coordinator = Coordinator(steps, Inline(5, workers=3))
    due = coordinator.finality.due
    coordinator.finality.due = lambda line, keys: looked.extend(keys) or due(line, keys)
    coordinator.inbox.feed(dict.fromkeys(range(300), ()))
    coordinator.inbox.close()
    assert coordinator.run() == dict.fromkeys(range(300), (0, 1))
    assert len(looked) <= 3 * 300


@pytest.mark.contract("run:F17")
def test_no_more_batches_run_than_a_step_and_the_run_allow():
    lock = threading.Lock()
    running, most = [0, 0, 0], [0, 0, 0]
    both = threading.Barrier(2, timeout=60)

    def map_(index, value):
        with lock:
            running[index] += 1
            running[2] += 1
            most[index] = max(most[index], running[index])
            most[2] = max(most[2], running[2])
        if index == 1:
            both.wait()  # two of the second step do run at once
        with lock:
            running[index] -= 1
            running[2] -= 1
        return value

    steps = [
        Step(map=lambda key, value: map_(0, value), concurrency=1, batch_size=1),
        Step(map=lambda key, value: map_(1, value), concurrency=2, batch_size=1),
    ]
    Run(steps, workers=3).execute(dict.fromkeys(range(40), 0))
    assert most[0] == 1
    assert most[1] == 2
    assert most[2] <= 3


@pytest.mark.contract("run:F18")
@pytest.mark.parametrize(("batch_size", "sizes"), [(1, {1}), (2, {2}), (3, {3, 1}), (-1, {10})])
def test_a_batch_has_as_many_keys_as_the_step_says(batch_size, sizes):
    seen = []
    step = Step(process=lambda items: seen.append([key for key, _ in items]) or [], batch_size=batch_size)
    Run([step], executor=Inline(workers=2)).execute(dict.fromkeys(range(10), 0))
    assert {len(keys) for keys in seen} == sizes
    assert sorted(key for keys in seen for key in keys) == list(range(10))


@pytest.mark.contract("run:F18")
def test_batches_grow_where_a_key_takes_little_time():
    sizes = []
    step = Step(process=lambda items: sizes.append(len(items)) or [])
    Run([step], executor=Inline(1, workers=2)).execute(dict.fromkeys(range(1_000), 0))
    # With a seed a key is said to take a millisecond, and a batch is to take four.
    assert sizes[0] == 1
    assert max(sizes) == 4


@pytest.mark.contract("run:F18")
@pytest.mark.parametrize(
    ("pace", "size"), [(None, 1), (1e-7, 800), (1e-6, 300), (1e-5, 100), (1e-3, 4), (1, 1)]
)
def test_a_batch_is_shared_among_workers_unless_it_takes_too_little_and_is_never_too_long(pace, size):
    line = StepState(Step(map=lambda key, value: value), 0)
    line.deliver({key: ((0,), key) for key in range(800)})
    line.pace = pace
    assert len(line.take(line.size(workers=8))) == size
