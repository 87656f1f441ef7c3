"""What becomes of errors: none on values that will change, each real one told once, nothing left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from tests.architecture import ROOT
from tests.run.manual import Manual, Told, in_turn, run_by
from trueline.errors import RunFailed
from trueline.run import ERASED, Inline, Processes, Run, Step
from trueline.run.coordinator import Coordinator


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    before = set(threading.enumerate())
    yield
    assert {thread for thread in threading.enumerate() if thread not in before} == set()


def refuses(*keys, **options):
    """A step that raises on some keys and writes "!" behind the values of others."""

    def map_(key, value):
        if key in keys:
            raise LookupError(key)
        return value + "!"

    return Step(map=map_, **options)


def add(text, **options):
    return Step(map=lambda key, value: value + text, **options)


# --- errors on values that may still change -----------------------------------------------


@pytest.mark.contract("run:F29")
def test_an_error_on_a_value_that_changes_later_is_none():
    def number(key, value):
        return int(value) + 1

    told = Told()
    steps = [Step(map=lambda key, value: value.strip("€")), Step(map=number)]
    manual = Manual(in_turn((1, "a"), (0, "a")), workers=2)
    found, run = run_by(steps, manual, {"a": "€41"}, observers=[told])
    assert found == {"a": 42}
    assert manual.done[0] == (1, "a")
    assert told.of("raised", "failed") == [("raised", 1, "a")]
    assert run.failures == ()


@pytest.mark.contract("run:F29")
def test_an_error_on_a_value_that_stays_is_told_when_that_is_known():
    told = Told()
    manual = Manual(in_turn((1, "a"), (0, "a")), workers=2)
    run = Run([Step(map=lambda key, value: value), refuses("a")], executor=manual, observers=[told])
    with pytest.raises(RunFailed):
        run.execute({"a": "a"})
    assert told.of("raised", "unchanged", "failed") == [
        ("raised", 1, "a"),
        ("unchanged", 0, "a"),
        ("failed", 1, "a"),
    ]


@pytest.mark.contract("run:F29")
@pytest.mark.parametrize("between", [[], ["other"]])
def test_an_error_stays_when_the_same_value_comes_again(between):
    # It comes again with newer generations: nothing is worked on again, and nothing forgotten.
    coordinator = Coordinator([refuses("a")], Inline())
    coordinator.executor.start([], coordinator.inbox.post)
    coordinator._feed({"a": "a"}, final=False)
    assert coordinator._dispatch()
    coordinator._receive()
    assert list(coordinator.states[0].failed) == ["a"]
    for value in (*between, "a"):
        coordinator._feed({"a": value}, final=False)
    coordinator.inbox.close()
    coordinator.executor.stop()
    with pytest.raises(RunFailed) as raised:
        coordinator.run()
    assert raised.value.generations > (0,)
    assert len(coordinator.failures) == 1


@pytest.mark.contract("run:F29")
def test_match_is_not_asked_about_keys_that_are_gone():
    def match(key):
        if key == "b":
            raise LookupError(key)
        return True

    steps = [Step(map=lambda key, value: ERASED if key == "b" else value), add("1", match=match)]
    found, run = run_by(steps, Manual(in_turn(), workers=4), {"a": "a", "b": "b"})
    assert found == {"a": "a1"}
    assert run.failures == ()


# --- what is told -------------------------------------------------------------------------


@pytest.mark.contract("run:F29")
def test_a_failure_says_which_step_and_key_and_generations_and_what_was_raised():
    steps = [add("0"), refuses("b", name="repair")]
    run = Run(steps, executor=Inline(workers=1))
    with pytest.raises(RunFailed, match=r"step 1 \(repair\) failed on key 'b': LookupError: b") as raised:
        run.execute({"a": "a", "b": "b"})
    error = raised.value
    assert (error.step, error.name, error.key) == (1, "repair", "b")
    assert error.generations[0] > 0
    assert isinstance(error.__cause__, LookupError)
    assert error.cause is error.__cause__
    assert [(each.step, each.key, each.value, each.cause) for each in run.report.failures] == [
        (1, "b", "b0", error.cause)
    ]


KINDS = {
    "map": lambda raised: Step(map=lambda key, value: _raise(raised)),
    "flat_map": lambda raised: Step(flat_map=lambda key, value: _raise(raised)),
    "process": lambda raised: Step(process=lambda items: _raise(raised)),
    "match": lambda raised: Step(map=lambda key, value: value, match=lambda key: _raise(raised)),
    "match of many": lambda raised: Step(flat_map=lambda key, value: [], match=lambda key: _raise(raised)),
    "ready": lambda raised: Step(map=lambda key, value: value, ready=lambda: _raise(raised)),
}


def _raise(raised):
    raise raised("here")


@pytest.mark.contract("run:F29")
@pytest.mark.contract("run:F30")
@pytest.mark.parametrize("where", KINDS)
@pytest.mark.parametrize("raised", [ValueError, SystemExit, KeyboardInterrupt])
def test_whatever_is_raised_anywhere_reaches_the_caller_once_and_no_thread_is_left(where, raised):
    run = Run([add("0"), KINDS[where](raised), add("2")], workers=3)
    with pytest.raises(RunFailed if raised is ValueError else raised) as found:
        run.execute({key: key for key in "abcde"})
    assert isinstance(found.value.__cause__ if raised is ValueError else found.value, raised)
    if where not in {"match", "match of many"} or raised is ValueError:
        assert [type(each.cause) for each in run.failures] == [raised]
        assert run.failures[0].step == 1


@pytest.mark.contract("run:F29")
@pytest.mark.parametrize("what", ["accepted", "started", "changed", "step final"])
def test_a_watcher_that_raises_ends_the_run_and_leaves_no_thread(what):
    class Raises:
        def event(self, event):
            if event.what == what:
                raise OSError(what)

    with pytest.raises(OSError, match=what):
        Run([add("0"), add("1")], workers=3, observers=[Raises()]).execute({key: key for key in "abcde"})


@pytest.mark.contract("run:F29")
def test_a_step_that_raises_when_it_learns_that_its_work_is_of_no_use_ends_the_run():
    def superseded(key):
        raise OSError(key)

    second = Step(map=lambda key, value: value, superseded=superseded)
    manual = Manual(in_turn((0, "a")), workers=2)
    with pytest.raises(OSError, match="a"):
        run_by([add("0"), second], manual, {"a": "a"})


@pytest.mark.contract("run:F29")
def test_a_process_that_dies_is_told():
    run = Run([Step(map=_die)], executor=Processes(1))
    with pytest.raises(RunFailed, match="failed"):
        run.execute({"a": 1})
    assert len(run.failures) == 1


def _die(key, value):
    import os

    os._exit(3)


INTERRUPTED = """
import sys, threading
from trueline.run import Run, Step, current

inside = threading.Event()

def map_(key, value):
    inside.wait()
    print("begun", flush=True)
    while not current().superseded():
        threading.Event().wait(0.01)
    return value

run = Run([Step(map=map_)], workers=2)
try:
    {how}
except KeyboardInterrupt:
    print("interrupted", [each.name for each in threading.enumerate() if each.name != "MainThread"])
"""
EXECUTE = """inside.set()
    run.execute({"a": 1})"""
# The run has been told that nothing more comes in, so the main thread is where it waits for the end.
CLOSE = """run.feed("a", 1)
    close = run._coordinator.inbox.close
    run._coordinator.inbox.close = lambda: (close(), inside.set())
    run.close()"""
WITH = """with run:
        run.feed("a", 1)
        inside.set()
        threading.Event().wait()"""


@pytest.mark.contract("run:F29")
@pytest.mark.parametrize("how", [EXECUTE, CLOSE, WITH], ids=["execute", "close", "with"])
def test_ctrl_c_ends_a_run_and_leaves_no_thread(how):
    script = INTERRUPTED.replace("{how}", how)
    child = subprocess.Popen(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "begun\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=200)
    assert out == "interrupted []\n", err
    assert child.returncode == 0, err


# --- on_error -----------------------------------------------------------------------------


@pytest.mark.contract("run:F22")
@pytest.mark.parametrize("seed", range(20))
def test_a_step_that_is_skipped_has_done_nothing_to_any_key(seed):
    steps = [add("0"), refuses("d", on_error="skip_step", batch_size=1), add("2")]
    run = Run(steps, executor=Inline(seed, workers=4))
    assert run.execute({key: key for key in "abcdef"}) == {key: key + "02" for key in "abcdef"}
    assert [(each.step, each.key) for each in run.failures] == [(1, "d")]
    assert run.report.steps[1].skipped


@pytest.mark.contract("run:F23")
@pytest.mark.contract("run:F24")
def test_the_last_step_may_be_skipped_while_earlier_ones_have_much_to_do():
    # The last step ends on its first keys first; the run must not end with it, nor keep what it made.
    seen = []
    steps = [
        Step(map=lambda key, value: seen.append(key) or value, batch_size=1, concurrency=1),
        refuses(3, on_error="skip_step", batch_size=1),
    ]
    manual = Manual(lambda shown: max(range(len(shown)), key=lambda place: shown[place][0]), workers=3)
    inputs = {key: str(key) for key in range(20)}
    found, run = run_by(steps, manual, inputs)
    assert found == inputs
    assert sorted(seen) == list(range(20))
    assert len(run.failures) == 1


@pytest.mark.contract("run:F24")
def test_a_step_is_skipped_while_values_come_in():
    run = Run([refuses("b", on_error="skip_step"), add("1")], workers=2)
    with run:
        run.feed("a", "a")
        run.feed("b", "b", final=True)
        run.feed("c", "c")
        run.feed("a", "A")
        assert run.close() == {"a": "A1", "b": "b1", "c": "c1"}


@pytest.mark.contract("run:F25")
def test_what_a_skipped_step_was_still_at_changes_nothing():
    # Its batch on "slow" ends after the step was skipped, and would add a key.
    def flat_map(key, value):
        if key == "bad":
            raise LookupError(key)
        yield "new", value

    step = Step(flat_map=flat_map, on_error="skip_step", batch_size=1)
    manual = Manual(in_turn((0, "bad"), (0, "slow")), workers=2)
    found, _ = run_by([step, add("1")], manual, {"bad": "b", "slow": "s"})
    assert manual.done[:2] == [(0, "bad"), (0, "slow")]
    assert found == {"bad": "b1", "slow": "s1"}
    assert manual.useless


@pytest.mark.contract("run:F25")
def test_skipping_a_step_does_not_erase_a_key_it_wrote_over():
    def flat_map(key, value):
        if value == "bad":
            raise LookupError(key)
        yield "b", "written"

    step = Step(flat_map=flat_map, match=lambda key: key.startswith("a"), on_error="skip_step", batch_size=1)
    manual = Manual(in_turn((0, "a1"), (1, "b"), (0, "a2")), workers=3)
    found, _ = run_by([step, add("1")], manual, {"a1": "good", "a2": "bad", "b": "own"})
    assert found == {"a1": "good1", "a2": "bad1", "b": "own1"}


@pytest.mark.contract("run:F29")
def test_a_key_that_is_left_out_is_in_quarantine_and_not_in_the_result():
    run = Run([add("0"), refuses("b", on_error="skip_key"), add("2")], workers=3)
    assert run.execute({key: key for key in "abc"}) == {"a": "a0!2", "c": "c0!2"}
    assert {key: (each.step, each.value) for key, each in run.report.quarantine.items()} == {"b": (1, "b0")}


def test_a_key_that_is_left_out_may_be_written_by_a_later_one():
    def flat_map(key, value):
        if key == "b":
            raise LookupError(key)
        yield "b", value

    # c comes after b in the order of keys, a before it: b erases what a wrote, c writes it again.
    step = Step(flat_map=flat_map, on_error="skip_key")
    for inputs, left in (({"a": 1, "b": 2}, {"a": 1}), ({"b": 2, "c": 3}, {"b": 3, "c": 3})):
        assert Run([step], executor=Inline()).execute(inputs) == left


def test_a_step_that_is_given_all_at_once_is_asked_again_without_the_keys_it_fails_on():
    def total(items):
        yield None, "sum", sum(value for _, value in items)

    step = Step(process=total, eager=False, on_error="skip_key")
    run = Run([step], executor=Inline())
    assert run.execute({"a": 1, "b": "two", "c": 3}) == {"a": 1, "c": 3, "sum": 4}
    assert list(run.report.quarantine) == ["b"]


def test_a_step_that_fails_on_all_but_on_none_alone_fails_on_all():
    def process(items):
        if len(items) > 1:
            raise LookupError("too many")
        return []

    run = Run([Step(process=process, on_error="skip_key", batch_size=-1)], executor=Inline())
    assert run.execute({"a": 1, "b": 2}) == {}
    assert list(run.report.quarantine) == ["a", "b"]


def test_a_write_from_a_key_that_was_not_given_is_an_error():
    run = Run([Step(process=lambda items: [("z", "a", 1)])], executor=Inline())
    with pytest.raises(RunFailed, match="which it was not given"):
        run.execute({"a": 1})
    run = Run([Step(process=lambda items: [(None, "a", 1)])], executor=Inline())
    with pytest.raises(RunFailed, match="eager=False"):
        run.execute({"a": 1})


class Speechless(Exception):
    """Cannot say what it is about."""

    def __str__(self):
        raise ValueError("no words")

    __repr__ = __str__


class Nameless:
    """A key that cannot be shown."""

    def __repr__(self):
        raise ValueError("no name")


def _raise(error):
    raise error


@pytest.mark.contract("run:F29")
@pytest.mark.parametrize("key", ["a", Nameless()], ids=["key", "nameless key"])
def test_an_error_that_cannot_say_what_it_is_is_told_by_its_kind(key):
    run = Run([Step(map=lambda key, value: _raise(Speechless()))])
    with pytest.raises(RunFailed, match=r"failed on key .*: Speechless") as caught:
        run.execute({key: 1})
    assert type(caught.value.__cause__) is Speechless
    assert len(run.failures) == 1


@pytest.mark.parametrize(
    "step",
    [
        Step(flat_map=lambda key, value: [([value], 1)], on_error="skip_key"),
        Step(process=lambda items: [(key, [value], 1) for key, value in items], on_error="skip_key"),
        Step(process=lambda items: [([key], key, 1) for key, _ in items], on_error="skip_key"),
    ],
    ids=["flat_map", "process", "source"],
)
def test_a_write_to_what_cannot_be_a_key_is_the_mistake_of_the_key_it_came_from(step):
    run = Run([step])
    assert run.execute({"a": 1}) == {}
    assert type(run.report.quarantine["a"].cause) is TypeError
