"""Calls beside the caller: what they return, raise and survive."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

import trueline as tl
from trueline.chain.store.staging import in_background, wait_for_all


def test_what_a_call_returns_can_be_waited_for_again():
    call = in_background(divmod, 7, 2)
    assert call.result() == call.result() == (3, 1)


def test_what_a_call_raises_is_raised_where_it_is_waited_for():
    call = in_background(divmod, 7, 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            call.result()
    assert in_background(divmod, 7, 2).result() == (3, 1)


def test_calls_are_made_by_other_threads_and_at_the_same_time():
    together = threading.Barrier(3, timeout=30)
    calls = [in_background(together.wait) for _ in range(2)]
    assert {together.wait(), *(call.result() for call in calls)} == {0, 1, 2}


def test_more_calls_than_threads_wait_their_turn():
    assert [call.result() for call in [in_background(abs, -n) for n in range(500)]] == list(range(500))


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
        wait_for_all([in_background(fail, "first"), in_background(slow), in_background(fail, "second")])
    assert ended == [True]


def test_a_forked_child_has_threads_of_its_own():
    assert in_background(os.getpid).result() == os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(0 if in_background(os.getpid).result() == os.getpid() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_calls_are_made_while_python_ends(tmp_path):
    """Whoever commits in `atexit` finds no thread that could be started any more."""
    script = """
import atexit, pyarrow as pa, sys, trueline as tl
ds = tl.open(sys.argv[1], create=True).create("x")
ds.append(pa.table({"x": [1]}))
atexit.register(lambda: ds.append(pa.table({"x": [2]})))
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "ws")], check=True, timeout=100)
    with tl.open(tmp_path / "ws") as ws:
        assert ws["x"].info.rows == 2
