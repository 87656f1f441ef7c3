"""Acknowledged writes: a commit is waited for until every dataset that is named shows it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import trueline as tl
from tests.workspace.snapshot.bank import VIEWS, Bank, summed
from trueline.errors import CutGone, InputError, NothingShared, WaitTimeout
from trueline.workspace.snapshot.wait import WATCHER, ReachWatcher

ROOT = Path(__file__).parents[3]


def rows(view):
    return view.to_arrow().to_pylist()


@pytest.mark.contract("cut:P9")
def test_a_commit_is_visible_when_all_that_are_named_are_at_rest_with_it(bank):
    first = bank.transfer(2)
    bank.pull(*VIEWS)
    assert first.wait("credits", timeout=0).cut == {"transfers": 1}
    second = bank.transfer(2)
    cut = bank.record(*VIEWS)
    with pytest.raises(WaitTimeout):
        second.wait("credits", "debits", timeout=0)  # the cut is recorded, but nobody has moved
    bank.tell(cut, "credits")
    assert second.wait("credits", timeout=0).cut == {"transfers": 3}
    with pytest.raises(WaitTimeout):
        second.wait("credits", "debits", timeout=0)
    bank.follow("debits", cut, at_rest=False)
    with pytest.raises(WaitTimeout):
        second.wait("credits", "debits", timeout=0)
    bank.tell(cut, "debits")
    snap = second.wait("credits", "debits", timeout=0)
    assert {name: rows(snap[name]) for name in snap} == {n: bank.expected(3)[n] for n in snap}
    bank.tell(cut, "balances", "total")
    assert list(second.wait(timeout=0)) == sorted(VIEWS), "all that are computed from it"
    assert rows(first.wait("total", timeout=0)["total"]) == [{"id": 1, "amount": 0}]


@pytest.mark.contract("cut:P9", "cut:P11")
def test_many_wait_by_one_thread_and_wake_when_it_is_visible(bank):
    bank.transfer(1)
    bank.pull(*VIEWS)
    commit = bank.transfer(1)
    with ThreadPoolExecutor(12) as pool:
        waiting = [pool.submit(commit.wait, "credits", "debits") for _ in range(12)]
        while not WATCHER.spots or next(iter(WATCHER.spots.values())).waiting < 12:
            threading.Event().wait(0.001)
        watchers = [each for each in threading.enumerate() if each.name == "trueline-wait"]
        assert len(watchers) == 1
        assert not any(each.done() for each in waiting)
        bank.tell(bank.record(*VIEWS), "credits", "debits")
        assert {each.result(60).cut["transfers"] for each in waiting} == {1}
    watchers[0].join(60)
    assert not WATCHER.spots, "it ends when nobody waits"


@pytest.mark.contract("cut:P10")
def test_a_wait_that_times_out_says_who_lags_and_whether_anybody_pulls(bank):
    bank.transfer(1)
    bank.pull("credits")
    bank.transfer(1)
    commit = bank.transfer(1)
    with pytest.raises(WaitTimeout, match="is committed, but not visible yet") as caught:
        commit.wait("credits", "debits", timeout=0)
    assert caught.value.lagging == ("credits", "debits")
    assert caught.value.pulled == ()
    assert "'credits' (2 commits behind, nobody is pulling it)" in caught.value.problem
    assert "'debits' (not pulled yet, nobody is pulling it)" in caught.value.problem
    assert caught.value.remedy == "pull 'credits', 'debits', then wait again"
    assert isinstance(caught.value, TimeoutError)
    with bank.workspace["debits"].chain.store.lease(), pytest.raises(WaitTimeout) as caught:
        commit.wait("debits", timeout="0s")
    assert caught.value.pulled == ("debits",)
    assert bank.workspace["transfers"].head == commit.block, "the write stays"


@pytest.mark.contract("cut:P10")
def test_a_wait_for_what_does_not_rest_on_the_commit_too_says_who_lags(bank):
    ws = bank.workspace
    ws.create("weather").append([{"t": 20.5}])
    bank.transfer(1)
    bank.pull("credits")
    with pytest.raises(WaitTimeout) as caught:
        bank.transfer(1).wait("credits", "weather", timeout=0)
    assert caught.value.lagging == ("credits",)
    fees = ws.create("fees")
    with ws.transaction():
        commit = bank.transfer(1)
        fees.append([{"fee": 1}])
        with pytest.raises(WaitTimeout) as caught:
            commit.wait("transfers", "fees", timeout=0)
    assert commit.wait("transfers", "fees", timeout=0).cut == {"transfers": 2, "fees": 0}


@pytest.mark.contract("cut:P10", "cut:P2")
def test_a_wait_and_a_pull_say_which_transaction_holds_a_commit_back(bank):
    ws = bank.workspace
    ws.create("fees")
    bank.transfer(1)
    bank.pull("credits", "debits")
    with bank.computing(), ws.transaction("transfers") as open_one:
        commit = bank.transfer(1)
        with pytest.raises(WaitTimeout) as caught:
            commit.wait("credits", timeout=0)
        held = f"held by transaction {open_one.id[:8]} until 2"
        assert (
            f"'credits' (1 commit behind, nobody is pulling it); 'transfers' is {held}"
            in caught.value.problem
        )
        assert caught.value.held_by[0].startswith(f"transaction {open_one.id[:8]}")
        assert caught.value.remedy == "end that transaction, then pull 'credits' and wait again"
        pulled = ws.pull("credits")["credits"]
        assert pulled.told.startswith(held)
        assert pulled.to_dict()["held_by"] == list(caught.value.held_by)
        with pytest.raises(WaitTimeout) as caught:
            commit.wait("transfers", "fees", timeout=0)
        assert caught.value.remedy == "end that transaction, then wait again", "nobody pulls a root"
    with bank.computing():
        assert ws.pull("credits")["credits"].held_by == ()
    with ws.transaction("transfers"):
        assert commit.wait("credits", timeout=0).cut == {"transfers": 1}
        with pytest.raises(WaitTimeout) as caught:
            commit.wait("debits", timeout=0)
        assert caught.value.held_by == (), "it began after the commit"


@pytest.mark.contract("cut:P10")
def test_a_wait_sees_a_pull_that_has_begun_before_it_writes(bank):
    bank.transfer(1)
    bank.pull(*VIEWS)
    commit, seen = bank.transfer(1), []

    def waited(transfers):
        with pytest.raises(WaitTimeout) as caught:
            commit.wait("credits", "balances", timeout=0)
        seen.append(caught.value)
        return summed("receiver")(transfers)

    bank.functions["credits"] = waited
    with bank.computing():
        bank.workspace.pull("balances")
    (error,) = seen
    assert error.pulled == ("credits", "balances")
    assert "'balances' (1 commit behind, a pull of it has begun and not ended)" in error.problem
    assert error.remedy == "wait again; if the process of the pull has died, pull 'credits', 'balances' first"
    assert commit.wait("credits", "balances", timeout=0).cut == {"transfers": 1}


@pytest.mark.contract("cut:P10")
def test_a_commit_is_found_again_by_its_key_after_a_restart(bank):
    ws = bank.workspace
    made = ws["transfers"].append(
        [{"id": 1, "sender": 1, "receiver": 2, "amount": 1}], idempotency_key="order 17"
    )
    bank.made = 1
    bank.transfer(1)
    with tl.open(ws.location) as again:
        found = again["transfers"].commit(idempotency_key="order 17")
        assert found == made
        with pytest.raises(WaitTimeout):
            found.wait("credits", timeout=0)
        bank.pull("credits")
        assert found.wait("credits", timeout=0).cut == {"transfers": 1}
        with pytest.raises(InputError, match="no commit of 'transfers' has the idempotency key"):
            again["transfers"].commit(idempotency_key="order 18")


def test_what_cannot_be_waited_for_is_refused_at_once(bank):
    ws = bank.workspace
    ws.create("weather").append([{"t": 20.5}])
    first, commit = bank.transfer(1), bank.transfer(1)
    bank.pull("credits")
    with pytest.raises(NothingShared, match="nothing of them is made from 'transfers'"):
        commit.wait("weather", timeout=5)
    with pytest.raises(InputError, match="is not of a workspace that is open here"):
        pickle.loads(pickle.dumps(commit)).wait("credits")
    ws["transfers"].chain.reset(first.block)
    with pytest.raises(CutGone):
        commit.wait("transfers", timeout=5)
    assert next(ws["transfers"].log()).wait("transfers", timeout=0).cut == {"transfers": 0}


def test_a_place_that_does_not_answer_is_looked_at_again():
    watcher, looks = ReachWatcher(), []

    def look():
        looks.append(None)
        if len(looks) < 3:
            raise OSError("no answer")
        return len(looks)

    with watcher.watching("here", look) as spot:
        watcher.wait(spot, 0, 60)
        assert spot.version == 1
    assert watcher.spots == {}


READER = """
import json, sys, trueline as tl
for line in sys.stdin:
    with tl.open(line.strip()) as ws, ws.snapshot("transfers", "credits", "debits") as snap:
        rows = {name: snap[name].to_arrow().to_pylist() for name in snap}
        print(json.dumps([snap.cut["transfers"], rows]), flush=True)
"""
PULLER = """
import sys, trueline as tl
from tests.workspace.snapshot.bank import Bank
for line in sys.stdin:
    with tl.open(line.strip()) as ws:
        bank = Bank(ws)
        with bank.computing():
            print(ws.pull("credits", "debits")["debits"].rows, flush=True)
"""
# A workspace has so many commits, since each of them is computed from all before it here.
COMMITS = 20
# By pulls of this process, by pulls of another, and by a puller that moves one head after the other.
HERE, ELSEWHERE, BY_HAND = range(3)


class Other:
    """A process that does something with the workspace that is written to it, and answers by a line."""

    def __init__(self, script):
        paths = os.pathsep.join(["src", "."] + [each for each in sys.path if each])
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = [sys.executable, "-c", script]
        self.process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, **pipes)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()

    def ask(self, workspace):
        self.process.stdin.write(f"{workspace.location}\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        assert line, "the process has died"
        return json.loads(line)


def acknowledged(folder, times):
    """Append, wait, and let a reader in another process read after each wait."""
    with Other(READER) as reader, Other(PULLER) as puller:
        for number in range(times // COMMITS):
            with tl.open(folder / str(number), create=True) as workspace:
                workspace.config.set("storage.durable", "false")
                _acknowledge(Bank(workspace), reader, puller, number % 3)


def _acknowledge(bank, reader, puller, how):
    def pull():
        if how == HERE:
            bank.workspace.pull("credits", "debits")
        elif how == BY_HAND:
            bank.tell(bank.record(*VIEWS), "credits", "debits")
        else:
            puller.ask(bank.workspace)
            puller.answer()

    with bank.computing():
        for _ in range(COMMITS):
            commit = bank.transfer(1)
            pulling = threading.Thread(target=pull)
            pulling.start()
            commit.wait("credits", "debits", timeout=60)
            reader.ask(bank.workspace)
            offset, found = reader.answer()
            assert offset >= commit.offsets.start
            amounts = [row["amount"] for row in found.pop("transfers")]
            assert amounts == list(range(1, offset + 2)), "and the rows are those of the cut"
            assert found == {name: bank.expected(offset)[name] for name in ("credits", "debits")}
            pulling.join()


@pytest.mark.contract("cut:P9")
def test_a_reader_in_another_process_sees_what_was_waited_for(tmp_path):
    acknowledged(tmp_path, 60)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.contract("cut:P9")
def test_a_reader_in_another_process_sees_it_ten_thousand_times(tmp_path):
    acknowledged(tmp_path, 10_000)
