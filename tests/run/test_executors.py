"""Where batches are worked on makes no difference to what comes of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from itertools import count

import pytest

from tests.run.sequential import sequential
from trueline.errors import InputError, RunFailed
from trueline.run import Inline, Processes, Run, Step, Threads, current


class Double(Step):
    """Steps for other processes are defined in a module."""

    def map(self, key, value):
        return value * 2


class Where(Step):
    def flat_map(self, key, value):
        yield f"{key} was in", os.getpid() != value


class Total(Step):
    eager = False

    def process(self, items):
        yield None, "sum", sum(value for _, value in items)


class Refuses(Step):
    on_error = "skip_key"

    def map(self, key, value):
        if key == "b":
            raise Strange(key, "and more")
        return value


class Strange(Exception):
    """An error that cannot be read back from its pickle."""

    def __init__(self, one, two):
        super().__init__(one)


@pytest.mark.contract("run:F19")
def test_processes_threads_and_this_thread_give_the_same():
    steps = [Double(), Refuses(), Double(eager=False), Total()]
    inputs = {key: number for number, key in enumerate("abcdef")}
    expected = Run(steps, executor=Inline()).execute(inputs)
    assert expected["sum"] == 4 * (2 + 3 + 4 + 5)
    for executor in (Threads(3), Processes(2)):
        run = Run(steps, executor=executor)
        assert run.execute(inputs) == expected
        assert list(run.report.quarantine) == ["b"]
    assert isinstance(run.failures[0].cause, RuntimeError)
    assert "Strange" in str(run.failures[0].cause)


def test_processes_are_other_processes():
    found = Run([Where()], executor=Processes(1)).execute({"a": os.getpid()})
    assert found["a was in"] is True


def test_steps_that_cannot_be_sent_are_refused_before_anything_is_done():
    with pytest.raises(InputError, match="cannot be sent") as raised:
        Run([Step(map=lambda key, value: value)], executor=Processes(1)).execute({"a": 1})
    assert "use threads" in raised.value.remedy


def test_threads_are_started_as_work_needs_them():
    names = set()

    def map_(key, value):
        names.add(threading.current_thread().name)
        return value

    Run([Step(map=map_, concurrency=1)], workers=8).execute(dict.fromkeys(range(100), 0))
    assert names == {"trueline-run-0"}


NUMBERS = count()


@pytest.mark.parametrize(
    ("step", "what"),
    [
        (Step(map=lambda key, value: value.append(1) or value), "changed the value it was given for 'a'"),
        (Step(flat_map=lambda key, value: value.append(1) or []), "changed the value it was given for 'a'"),
        (Step(map=lambda key, value: next(NUMBERS)), "gave another result for 'a' the second time"),
        (Step(flat_map=lambda key, value: [("b", next(NUMBERS))]), "gave another result for 'a'"),
        (
            Step(process=lambda items: [(None, "b", next(NUMBERS))], eager=False),
            "gave another result for 'a'",
        ),
    ],
)
def test_a_step_that_is_no_function_is_found_out(step, what):
    with pytest.raises(RunFailed, match=what) as raised:
        Run([step], executor=Inline(check=True)).execute({"a": [0]})
    assert raised.value.cause.code == "ImpureStep"


def test_a_step_that_raises_once_and_not_again_is_found_out():
    tries = []

    def map_(key, value):
        tries.append(key)
        if len(tries) % 2:
            raise LookupError(key)
        return value

    with pytest.raises(RunFailed, match="another result"):
        Run([Step(map=map_)], executor=Inline(check=True)).execute({"a": 1})


class Held:
    """A value that compares by what it is, not by what it holds."""

    def __init__(self, value):
        self.value = value


def test_values_that_compare_by_identity_are_looked_into():
    step = Step(map=lambda key, value: Held(value.value + 1))
    assert Run([step], executor=Inline(check=True)).execute({"a": Held(1)})["a"].value == 2
    step = Step(map=lambda key, value: setattr(value, "value", 2) or value)
    with pytest.raises(RunFailed, match="changed the value"):
        Run([step], executor=Inline(check=True)).execute({"a": Held(1)})


def test_steps_that_are_functions_pass():
    steps = [
        Step(map=lambda key, value: [*value, key]),
        Step(flat_map=lambda key, value: [(key * 2, value)]),
        Step(process=lambda items: [(None, "all", [key for key, _ in items])], eager=False),
    ]
    inputs = {key: [key] for key in "abc"}
    assert Run(steps, executor=Inline(7, workers=3, check=True)).execute(inputs) == sequential(steps, inputs)


async def _later(key, value):
    return value


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "defines none of map"),
        ({"map": len, "flat_map": len}, "defines map and flat_map"),
        ({"map": len, "nonsense": 1}, "'nonsense' is not an argument"),
        ({"map": len, "batch_size": 0}, "batch_size=0"),
        ({"map": len, "concurrency": -1}, "concurrency=-1"),
        ({"map": len, "concurrency": True}, "concurrency=True"),
        ({"map": len, "on_error": "ignore"}, "on_error='ignore'"),
        ({"map": len, "ready": True}, "ready=True"),
        ({"map": len, "name": 5}, "name=5"),
        ({"map": len, "change_rate": 1.5}, "change_rate=1.5"),
        ({"map": _later}, "asynchronous"),
    ],
)
def test_a_step_that_cannot_be_run_is_refused(given, what):
    with pytest.raises(InputError, match=what):
        Step(**given)


def test_a_step_may_have_a_constructor_of_its_own_and_be_changed_before_it_runs():
    class Own(Step):
        def __init__(self, text):
            self.text = text

        def map(self, key, value):
            return value + self.text

    step = Own("!")
    assert Run([step], executor=Inline()).execute({"a": "a"}) == {"a": "a!"}
    step.concurrency = 0
    with pytest.raises(InputError, match="concurrency=0"):
        Run([step])


@pytest.mark.parametrize(("given", "what"), [({"workers": 0}, "workers=0"), ({"queue": 0}, "queue=0")])
def test_a_run_needs_somebody_to_work_and_room(given, what):
    with pytest.raises(InputError, match=what):
        Run([], **given)
    with pytest.raises(InputError, match="is not a step"):
        Run([len])


@pytest.mark.parametrize(
    "executor", [Threads(2), Inline(), Processes(1)], ids=["threads", "inline", "processes"]
)
def test_an_executor_works_for_one_run_at_a_time_and_then_for_another(executor):
    executor.start([], lambda attempt, outcome: None)
    with pytest.raises(InputError, match="works for another run"):
        Run([Step(map=_double)], executor=executor).execute({"a": 1})
    executor.stop()
    for _ in range(2):
        assert Run([Step(map=_double)], executor=executor).execute({"a": 1}) == {"a": 2}


def _double(key, value):
    return value * 2


def test_a_run_inside_a_step_leaves_the_step_its_token():
    seen = []

    def outer(key, value):
        before = current()
        found = Run([Step(map=_double)], executor=Inline()).execute({"a": value})
        seen.append(before is not None and current() is before)
        return found["a"]

    assert Run([Step(map=outer)]).execute({"a": 1}) == {"a": 2}
    assert seen == [True]


@dataclass(eq=False)
class Itself:
    """A key that equals nothing but itself."""

    number: int


def test_keys_that_are_others_in_another_process_are_told():
    with pytest.raises(InputError, match="not equal to its copy"):
        Run([Step(map=_double)], executor=Processes(1)).execute({Itself(1): 1})


def test_steps_that_cannot_be_read_in_another_process_are_told(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from trueline.errors import InputError\n"
        "from trueline.run import Processes, Run, Step\n"
        "if __name__ == '__main__':\n"
        "    def only_here(key, value): return value\n"
        "    try:\n"
        "        Run([Step(map=only_here)], executor=Processes(1)).execute({'a': 1})\n"
        "    except InputError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert "cannot be read in another process" in done.stdout
    assert "only_here" in done.stdout
