"""How a process learns that something was reached: hints, of others too, and what happens without them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise

import pytest

from tests.architecture import ROOT
from trueline.errors import WaitTimeout
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.snapshot import wait
from trueline.workspace.snapshot.wait import ReachWatcher, WatchedPlace

PULLER = """
import sys, trueline as tl
with tl.open(sys.argv[1]) as ws:
    commit = next(ws["transfers"].log())
    try:
        commit.wait("credits", timeout=0.01)
    except tl.errors.WaitTimeout as error:
        print(*error.lagging, "pyspark" in sys.modules, flush=True)
    from tests.workspace.snapshot.bank import Bank
    bank = Bank(ws)
    for line in sys.stdin:
        bank.tell(bank.record("credits"), "credits")
"""


@contextmanager
def one_who_waits(commit, *names):
    """Wait in a thread of its own; gives what will be the snapshot, once it is being waited for."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(commit.wait, *names, timeout=60)
        until(lambda: waiting.done() or wait.WATCHER.spots)
        yield waiting
        waiting.result(60).close()


def until(is_so):
    while not is_so():
        threading.Event().wait(0.001)


@pytest.mark.contract("cut:P9", "cut:P11")
def test_what_another_process_pulls_is_waited_for_without_spark_there_or_here(bank):
    bank.transfer(1)
    bank.pull("credits")
    commit = bank.transfer(1)
    command = [sys.executable, "-c", PULLER, bank.workspace.location]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as puller:
        assert puller.stdout.readline() == "credits False\n", "it has waited too, and not by Spark"
        with one_who_waits(commit, "credits") as waiting:
            assert not waiting.done()
            puller.stdin.write("go\n")
            puller.stdin.close()
            assert waiting.result(60).cut == {"transfers": 1}


@pytest.mark.contract("cut:P9")
def test_a_hint_that_is_not_true_wakes_and_is_not_believed(bank, monkeypatch):
    bank.transfer(1)
    bank.pull("credits")
    commit = bank.transfer(1)
    cut, log, looks, look = bank.record("credits"), CutLog.of(bank.workspace), [], wait._including

    def looking(*args):
        looks.append(look(*args))
        return looks[-1]

    monkeypatch.setattr(wait, "_including", looking)
    monkeypatch.setattr(wait, "_LOOK_ANYWAY", 3600)
    with one_who_waits(commit, "credits") as waiting:
        (spot,) = wait.WATCHER.spots.values()
        until(lambda: spot.version)
        before = len(looks)
        log.put_reached(cut.number, bank.workspace["credits"].id)
        until(lambda: len(looks) > before)
        assert not waiting.done()
        assert looks == [None] * len(looks)
        log.put_reached(cut.number, bank.workspace["debits"].id)
        bank.tell(bank.record("credits"), "credits", "balances")
    with pytest.raises(WaitTimeout):
        commit.wait("debits", timeout=0)


@pytest.mark.contract("cut:P9")
def test_a_hint_that_was_lost_costs_time_alone(bank, monkeypatch):
    monkeypatch.setattr(wait, "_LOOK_ANYWAY", 0.02)
    bank.transfer(1)
    bank.pull("credits")
    commit = bank.transfer(1)
    cut = bank.record("credits")
    with one_who_waits(commit, "credits") as waiting:
        bank.follow("credits", cut)
        assert waiting.result(60).cut == {"transfers": 1}
    assert CutLog.of(bank.workspace).reached(cut.number) == frozenset()


class Clock(threading.Condition):
    """A clock that moves on by what is waited for it."""

    def __init__(self):
        super().__init__()
        self.time = 0.0

    def monotonic(self):
        return self.time

    def wait(self, timeout=None):
        self.time += timeout
        return True


@pytest.mark.contract("cut:P11")
def test_a_place_is_looked_at_ever_less_often_while_nothing_happens(monkeypatch):
    clock, looks = Clock(), []
    monkeypatch.setattr(wait, "time", clock)
    watcher = ReachWatcher(_changed=clock)

    def look():
        looks.append(clock.time)
        if len(looks) == 60:
            del watcher.spots["here"]
        return len(looks) // 40

    watcher.spots["here"] = WatchedPlace(look)
    watcher._watch()  # as its thread does
    pauses = [after - before for before, after in pairwise(looks)]
    quiet, again = pauses[1:39], pauses[39:]
    for first in (pauses[0], again[0]):
        assert first == pytest.approx(wait._FIRST_PAUSE)
    for few in (quiet, again):
        grown = [min(pause * wait._GROWTH, wait._LONGEST_PAUSE) for pause in few]
        assert few[1:] == pytest.approx(grown[:-1])
    assert quiet[-1] == pytest.approx(wait._LONGEST_PAUSE)
    assert looks[38] > 0.5 * 26, "thirty seconds take some sixty looks, not thousands"


def test_a_forked_child_waits_though_a_thread_of_its_parent_held_the_lock():
    watcher, held, forked = ReachWatcher(), threading.Event(), threading.Event()

    def hold():
        with watcher.watching("there", int), watcher._changed:
            held.set()
            forked.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if not child:
        signal.alarm(20)  # it would hang
        with watcher.watching("here", lambda: "seen") as spot:
            watcher.wait(spot, 0, 60)
            os._exit(0 if list(watcher.spots) == ["here"] and spot.version else 1)
    forked.set()
    assert os.waitpid(child, 0)[1] == 0
    holder.join()
    assert watcher.spots == {}
