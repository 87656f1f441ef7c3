"""Values that come in while a run goes on: added, revised, taken back, held back."""

from __future__ import annotations

import threading

import pytest

from tests.run.manual import Told
from tests.run.sequential import random_feed, random_run, sequential
from trueline.errors import InputError, RunFailed
from trueline.run import ERASED, Inline, NotWoken, Run, Step
from trueline.run.coordinator import Coordinator
from trueline.run.inbox import Gate


def add(text, **options):
    return Step(map=lambda key, value: value + text, **options)


def left():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("trueline-run")]


def test_what_is_fed_comes_out_as_if_it_had_been_there_from_the_start():
    run = Run([add("0"), add("1", eager=False), add("2")], workers=3)
    for key in "abc":
        run.feed(key, key)
    assert run.close() == {"a": "a012", "b": "b012", "c": "c012"}
    assert run.close() == {"a": "a012", "b": "b012", "c": "c012"}
    assert left() == []


def test_a_value_that_is_fed_again_replaces_the_old_one_and_all_that_was_made_of_it():
    # The old value was through all steps before the new one came, and had added a key.
    through = threading.Event()

    class Watch:
        def event(self, event):
            if event.what == "unchanged" and event.step == 1:
                through.set()

    steps = [
        Step(flat_map=lambda key, value: [(f"of {value}", value)]),
        Step(map=lambda key, value: value),
    ]
    with Run(steps, workers=2, observers=[Watch()]) as run:
        run.feed("a", "old")
        assert through.wait(60)
        run.revise("a", "new")
        assert run.close() == {"a": "new", "of new": "new"}


def test_a_key_can_be_taken_back():
    with Run([add("0")], workers=2) as run:
        run.feed("a", "a")
        run.feed("b", "b")
        run.feed("a", ERASED)
        assert run.close() == {"b": "b0"}


@pytest.mark.contract("run:F3")
def test_revised_values_have_greater_generations_than_all_made_of_older_ones():
    told = Told()
    coordinator = Coordinator([add("0"), add("1")], Inline(), observers=[told])
    for value in ("a", "b", "c"):
        coordinator.inbox.feed({"k": value})
    coordinator.inbox.close()
    assert coordinator.run() == {"k": "c01"}
    taken = [event.gens for event in told.events if event.what == "accepted" and event.step == 0]
    assert taken == sorted(taken)
    assert all(not any(gens[1:]) for gens in taken)


def test_a_final_value_is_begun_by_steps_that_wait_before_the_run_is_closed():
    seen = threading.Event()
    step = Step(map=lambda key, value: seen.set() or value, eager=False)
    with Run([add("0"), step], workers=2) as run:
        run.feed("a", "a", final=True)
        assert seen.wait(60)
        with pytest.raises(InputError, match="was fed with final=True"):
            run.feed("a", "b")
        assert run.close() == {"a": "a0"}


def test_a_run_says_what_cannot_be_fed():
    run = Run([add("0")])
    with pytest.raises(InputError, match="was not fed"):
        run.revise("a", "a")
    run.feed("a", "a")
    run.close()
    with pytest.raises(InputError, match="closed"):
        run.feed("b", "b")
    with pytest.raises(InputError, match="runs once"):
        run.execute({})
    assert Run([add("0")]).close() == {}


def test_many_may_feed_at_once():
    run = Run([add("0"), add("1")], workers=4, queue=3)
    run.feed("first", "x")

    def feed(start):
        for number in range(start, start + 50):
            run.feed(number, str(number))

    threads = [threading.Thread(target=feed, args=(start,)) for start in (0, 50, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = run.close()
    assert found == {"first": "x01", **{number: f"{number}01" for number in range(150)}}


@pytest.mark.contract("run:F19")
def test_whatever_is_fed_and_revised_to_threads_ends_as_the_last_values_do_one_step_after_another():
    for seed in range(200):
        steps, inputs = random_run(seed)
        fed = random_feed(seed, inputs)
        run = Run(steps, workers=1 + seed % 4, queue=1 + seed % 3)
        for key, value, final in fed:
            run.feed(key, value, final=final)
        assert run.close() == sequential(steps, {key: value for key, value, _ in fed}), f"seed {seed}"


# --- held back ----------------------------------------------------------------------------


class Waits(threading.Condition):
    """Says that somebody waits."""

    def __init__(self):
        super().__init__()
        self.waits = threading.Event()

    def wait(self, timeout=None):
        self.waits.set()
        return super().wait(timeout)


def test_who_feeds_waits_while_enough_is_on_its_way():
    gate = Gate(2)
    gate._condition = Waits()
    gate.enter()
    gate.enter()
    entered = threading.Thread(target=gate.enter)
    entered.start()
    assert gate._condition.waits.wait(60)
    gate.leave(handled=2, backlog=2)  # both are in, neither is done: no room
    assert entered.is_alive()
    gate.leave(handled=2, backlog=1)
    entered.join(60)
    assert not entered.is_alive()


def test_a_run_holds_no_more_than_its_queue():
    # The only worker is at the first value until whoever feeds has to wait.
    gate_is_full = Waits()
    most = []

    def map_(key, value):
        assert gate_is_full.waits.wait(60)
        most.append(len(run._coordinator.fed))
        return value

    run = Run([Step(map=map_, batch_size=1)], workers=1, queue=5)
    run._gate._condition = gate_is_full
    for number in range(50):
        run.feed(number, number)
    assert len(run.close()) == 50
    assert most[0] <= 5


def test_steps_that_wait_for_the_end_hold_nobody_back():
    run = Run([add("0", eager=False), add("1", eager=False)], workers=2, queue=2)
    for number in range(20):
        run.feed(number, str(number))
    assert len(run.close()) == 20


@pytest.mark.parametrize("deliberate", [True, False])
def test_deliberate_runs_hold_nobody_back_for_later_steps(deliberate):
    run = Run([add("0"), add("1")], workers=2, queue=2, deliberate=deliberate)
    for number in range(20):
        run.feed(number, str(number))
    assert run.close() == {number: f"{number}01" for number in range(20)}


@pytest.mark.contract("run:F29")
def test_who_is_held_back_is_told_when_the_run_fails():
    def refuse(key, value):
        raise LookupError(key)

    run = Run([Step(map=refuse, batch_size=1)], workers=1, queue=1)
    with pytest.raises(RunFailed, match="LookupError"):
        for number in range(1000):
            run.feed(number, number, final=True)
    with pytest.raises(InputError, match="has failed"):
        run.feed("more", 1)
    with pytest.raises(InputError, match="has failed"):
        run.close()
    assert len(run.failures) == 1
    assert left() == []


@pytest.mark.contract("run:F29")
def test_an_error_where_values_come_from_ends_the_run():
    with pytest.raises(OSError, match="gone"), Run([add("0")], workers=2) as run:
        run.feed("a", "a")
        raise OSError("gone")
    assert left() == []


# --- ready --------------------------------------------------------------------------------


@pytest.mark.contract("run:F30")
def test_a_step_that_is_not_ready_is_looked_past_until_it_is_woken_and_nobody_polls():
    # The licence is there when the last step has worked ahead on all keys.
    asked, ahead = [], []
    licence = threading.Event()

    def ready():
        asked.append(1)
        return licence.is_set()

    def last(key, value):
        ahead.append(key)
        if len(ahead) == 3:
            licence.set()
            run.wake()
        return value

    run = Run([Step(map=lambda key, value: value, ready=ready), Step(map=last)], workers=2)
    assert run.execute({"a": 1, "b": 2, "c": 3}) == {"a": 1, "b": 2, "c": 3}
    assert ahead == ["a", "b", "c"]
    assert 2 <= len(asked) < 30


@pytest.mark.contract("run:F30")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_step_that_becomes_ready_without_being_woken_is_begun_with_a_warning_that_names_it(workers):
    asked = iter([False, False])

    def ready():
        return next(asked, True)

    run = Run([Step(map=lambda key, value: value + 1, ready=ready, name="licensed")], workers=workers)
    run._coordinator.patience = 0.001
    with pytest.warns(NotWoken, match=r"'licensed'.*run\.wake\(\)"):
        found = run.execute({"a": 1})
    assert found == {"a": 2}


@pytest.mark.contract("run:F30")
def test_a_step_that_is_woken_in_time_is_not_warned_about(recwarn):
    ready = threading.Event()
    waits = Step(map=lambda key, value: value + 1, ready=ready.is_set, name="licensed")
    run = Run([waits])
    run.feed("a", 1)
    ready.set()
    run.wake()
    assert run.close() == {"a": 2}
    assert [warning.message for warning in recwarn] == []


@pytest.mark.contract("run:F30")
def test_a_step_whose_ready_raises_while_nothing_else_goes_on_fails_the_run():
    asked = iter([False])

    def ready():
        if next(asked, True):
            raise LookupError("no licence")
        return False

    run = Run([Step(map=lambda key, value: value, ready=ready, name="licensed", on_error="skip_step")])
    run._coordinator.patience = 0.001
    assert run.execute({"a": 1}) == {"a": 1}
    assert [type(failure.cause) for failure in run.failures] == [LookupError]


def test_what_is_refused_takes_no_room():
    run = Run([add("0")], queue=1)
    run.feed("a", "", final=True)
    for key, kind in (("a", InputError), ([], TypeError)):
        for _ in range(3):
            with pytest.raises(kind):
                run.feed(key, "")
    run.feed("b", "")
    assert run.close() == {"a": "0", "b": "0"}


@pytest.mark.parametrize("ask", ["feed", "close"])
def test_a_step_that_feeds_or_closes_its_own_run_is_told_and_does_not_wait_for_itself(ask):
    def reach(key, value):
        run.feed("b", value) if ask == "feed" else run.close()

    run = Run([Step(map=reach)])
    run.feed("a", 1)
    with pytest.raises(RunFailed, match="of its own run"):
        run.close()


def test_a_step_may_feed_a_run_of_its_own():
    def inner(key, value):
        with Run([add("1")]) as run:
            run.feed(key, value)
            return run.close()[key]

    assert Run([Step(map=inner)]).execute({"a": "0"}) == {"a": "01"}


def test_a_run_that_was_executed_still_has_its_result():
    run = Run([add("0")])
    assert run.execute({"a": ""}) == run.close() == {"a": "0"}
