"""Calls beside the caller: what they return, raise and survive."""

from __future__ import annotations

import os
import threading

import pytest

from trueline.chain.store.staging import aside, wait_for_all


def test_what_a_call_returns_can_be_waited_for_again():
    errand = aside(divmod, 7, 2)
    assert errand.wait() == errand.wait() == (3, 1)


def test_what_a_call_raises_is_raised_where_it_is_waited_for():
    errand = aside(divmod, 7, 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            errand.wait()
    assert aside(divmod, 7, 2).wait() == (3, 1)


def test_calls_are_made_by_other_threads_and_at_the_same_time():
    together = threading.Barrier(3, timeout=30)
    errands = [aside(together.wait) for _ in range(2)]
    assert {together.wait(), *(errand.wait() for errand in errands)} == {0, 1, 2}


def test_more_calls_than_threads_wait_their_turn():
    assert [errand.wait() for errand in [aside(abs, -n) for n in range(500)]] == list(range(500))


def test_all_calls_have_ended_when_the_first_error_is_raised():
    go, ended = threading.Event(), []

    def slow():
        go.wait(30)
        ended.append(True)

    def fail(name):
        if name == "second":
            go.set()
        raise OSError(name)

    with pytest.raises(OSError, match="first"):
        wait_for_all([aside(fail, "first"), aside(slow), aside(fail, "second")])
    assert ended == [True]


def test_a_forked_child_has_threads_of_its_own():
    assert aside(os.getpid).wait() == os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(0 if aside(os.getpid).wait() == os.getpid() else 1)
    assert os.waitpid(child, 0)[1] == 0
