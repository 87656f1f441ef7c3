"""Work cut into pieces, in this process."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueline import console
from trueline.errors import HashMismatch, InputError, TaskFailed
from trueline.kernel.tasks import InlineTasks


@given(st.lists(st.integers(), max_size=40), st.integers(1, 4))
def test_every_index_comes_once_with_its_result(numbers, workers):
    found = list(InlineTasks(workers).map(lambda n: n + 1, numbers, label="t"))
    assert sorted(index for index, _ in found) == list(range(len(numbers)))
    assert all(result == numbers[index] + 1 for index, result in found)


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_of_ours_comes_out_as_it_is(workers):
    def refuse(number):
        if number == 2:
            raise HashMismatch("damaged", remedy="restore it", number=number)
        return number

    with pytest.raises(HashMismatch) as caught:
        list(InlineTasks(workers).map(refuse, range(5), label="t"))
    assert caught.value.number == 2


@pytest.mark.parametrize("workers", [1, 3])
def test_any_other_exception_names_the_task_and_the_place(workers):
    with pytest.raises(TaskFailed) as caught:
        list(InlineTasks(workers).map(lambda n: 1 / n, [1, 1, 0], label="dividing"))
    error = caught.value
    assert (error.label, error.index, error.error) == ("dividing", 2, "ZeroDivisionError")
    assert error.problem.startswith("dividing: task 2 failed: ZeroDivisionError: division by zero")
    assert "1 / n" in error.traceback
    assert "test_tasks.py" in error.problem
    assert "workspace/tasks.py" not in error.traceback.replace("tests/workspace", "")


def test_an_exception_that_ends_the_process_is_not_wrapped():
    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(InlineTasks().map(stop, [1], label="t"))
    with pytest.raises(KeyboardInterrupt):
        list(InlineTasks(2).map(stop, [1, 2], label="t"))


def test_results_come_before_the_rest_is_begun():
    begun = []
    work = InlineTasks().map(begun.append, range(100), label="t")
    next(work)
    assert begun == [0]
    work.close()
    assert begun == [0]


def test_threads_run_side_by_side_and_few_are_begun_ahead():
    both = threading.Barrier(2, timeout=20)
    begun = []

    def meet(number):
        begun.append(number)
        if number < 2:
            both.wait()
        return number

    work = InlineTasks(2).map(meet, range(1000), label="t")
    next(work)
    work.close()
    assert len(begun) <= 8


@pytest.mark.parametrize("workers", [2, 3])
def test_of_several_that_fail_the_first_is_named_whichever_was_faster(workers):
    second_failed = threading.Event()

    def refuse(number):
        if number == 1:
            second_failed.wait(20)
        elif number == 2:
            second_failed.set()
        if number in (1, 2):
            raise HashMismatch("damaged", remedy="restore it", number=number)
        return number

    found = []
    with pytest.raises(HashMismatch) as caught:
        found.extend(InlineTasks(workers).map(refuse, range(100), label="t"))
    assert caught.value.number == 1


@given(st.sets(st.integers(0, 19), min_size=1), st.integers(1, 4))
def test_what_comes_before_the_first_failure_has_a_result(bad, workers):
    def refuse(number):
        if number in bad:
            raise HashMismatch("damaged", remedy="restore it", number=number)
        return number

    found = {}
    with pytest.raises(HashMismatch) as caught:
        found.update(InlineTasks(workers).map(refuse, range(20), label="t"))
    assert caught.value.number == min(bad)
    assert set(range(min(bad))) <= set(found)


def test_progress_counts_every_piece():
    with console.use(console.CapturedConsole()) as seen:
        list(InlineTasks().map(abs, [-1, 2, -3], label="counting"))
    [work] = seen.work
    assert (work.label, work.total, work.done, work.closed) == ("counting", 3, 3, True)


def test_no_workers_is_refused():
    with pytest.raises(InputError):
        InlineTasks(0)
