"""Readers between any two durable operations of a pull, and after a pull that broke off at any of them."""

from __future__ import annotations

import errno

import pytest

import trueline as tl
from tests.faults import DURABLE, WatchedFiles, failing, watching
from tests.workspace.snapshot.bank import VIEWS, Bank
from tests.workspace.snapshot.local import Local
from tests.workspace.snapshot.operations import Operations
from trueline.errors import TruelineError


def puller(bank, workspace):
    """Somebody else who pulls the same datasets."""
    other = Local(workspace)
    other.functions, other.schemas = bank.functions, bank.schemas
    return other


def bring(bank, workspace, *, by_pulls):
    """Bring all to the newest cut: straight there, or by a real pull, with all that it does besides."""
    other = puller(bank, workspace)
    if not by_pulls:
        other.pull(*VIEWS)
        return
    with other.computing():
        workspace.pull(*VIEWS, workers=1)


class Reader:
    """Reads snapshots and heads, and holds every snapshot against what its own cut has to give."""

    def __init__(self, bank, workspace):
        self.bank, self.workspace = bank, workspace
        self.last, self.readings, self.torn = -1, 0, 0
        self.read()

    def read(self):
        self.readings += 1
        with self.workspace.snapshot(*VIEWS) as snap:
            offset = snap.cut["transfers"]
            assert offset >= self.last, "it went back"
            if offset > self.last:
                expected = self.bank.expected(offset)
                assert {name: snap[name].to_arrow().to_pylist() for name in VIEWS} == expected
            self.last = offset
        heads = {self.workspace[name].chain.tail().data.query_inputs[0].last_offset for name in VIEWS[:2]}
        self.torn += len(heads) > 1


@pytest.mark.contract("cut:P13")
@pytest.mark.parametrize("by_pulls", [False, True])
def test_readers_between_any_two_operations_of_a_pull_see_one_state(bank, by_pulls):
    bank.transfer(2)
    bank.pull(*VIEWS)
    with tl.open(bank.workspace.location) as quiet:
        reader = Reader(bank, quiet)

        def before(_number, name, _args):
            if name in DURABLE:
                files.before = None  # what the reader itself does is not watched
                reader.read()
                files.before = before

        files = WatchedFiles()
        bank.transfer(2)
        with watching(files), tl.open(bank.workspace.location) as watched:
            files.before = before
            bring(bank, watched, by_pulls=by_pulls)
            files.before = None
        reader.read()
        assert reader.last == 3
        assert reader.readings > 50
        assert reader.torn > 0, "the heads differed meanwhile"


@pytest.mark.contract("cut:P13")
@pytest.mark.parametrize("by_pulls", [False, True])
def test_readers_between_any_two_operations_on_an_object_store_see_one_state(tmp_path, monkeypatch, by_pulls):
    """The same where every operation is a request, and a pull that breaks off at some of them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    place = f"memory://schedules/{tmp_path.name}"
    with tl.open(place, create=True) as workspace, tl.open(place) as quiet:
        bank, operations = Bank(workspace), Operations(monkeypatch)
        bank.transfer(2)
        bank.pull(*VIEWS)
        reader = Reader(bank, quiet)

        def pulling():
            with tl.open(place) as watched:
                bring(bank, watched, by_pulls=by_pulls)

        def before():
            operations.before = None  # what the reader itself does is not watched
            reader.read()
            operations.before = before

        for _ in range(5):
            bank.transfer(2)
            operations.before = before
            pulling()
            operations.before = None
            reader.read()
            assert reader.last == bank.made - 1
            assert reader.readings > 50
            if reader.torn:
                break  # a thread of the pull may have passed the moment while another one read
        assert reader.torn > 0, "the heads differed meanwhile"
        for at in range(3, reader.readings, 20):
            bank.transfer(1)
            operations.run(pulling, at, dies=True)
            reader.read()
            pulling()
            reader.read()
            assert reader.last == bank.made - 1


def crashes(bank, every, *, by_pulls=False):
    """Break a pull off at one operation after the other, read, and let the next pull finish."""
    bank.transfer(2)
    bank.pull(*VIEWS)
    broken, at = 0, 1
    with tl.open(bank.workspace.location) as quiet:
        reader = Reader(bank, quiet)
        while True:
            bank.transfer(1)
            files = failing(at, errno.EIO, only=DURABLE)
            with watching(files), tl.open(bank.workspace.location) as watched:
                try:
                    bring(bank, watched, by_pulls=by_pulls)
                except (TruelineError, OSError):
                    broken += 1
            reader.read()
            with tl.open(bank.workspace.location) as again:
                bring(bank, again, by_pulls=by_pulls)
            reader.read()
            assert reader.last == bank.made - 1
            if not files.failed:
                return broken
            at += every


@pytest.mark.contract("cut:P13")
def test_a_pull_that_breaks_off_anywhere_is_harmless_to_readers(bank):
    assert crashes(bank, every=9) > 5


@pytest.mark.contract("cut:P13")
def test_a_real_pull_that_breaks_off_anywhere_is_harmless_to_readers(bank):
    assert crashes(bank, every=9, by_pulls=True) > 5


@pytest.mark.soak
@pytest.mark.contract("cut:P13")
@pytest.mark.parametrize("by_pulls", [False, True])
def test_a_pull_that_breaks_off_at_each_operation_is_harmless_to_readers(bank, by_pulls):
    assert crashes(bank, every=1, by_pulls=by_pulls) > 50
