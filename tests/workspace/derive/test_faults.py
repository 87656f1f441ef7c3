"""A pull that a fault stops at any durable operation is finished by the next one, hash for hash."""

from __future__ import annotations

import errno
import shutil
from functools import partial

import pytest

from tests.examples import some
from tests.faults import DEADLY, DURABLE, WatchedFiles, failing, killed_at, watching
from tests.workspace.derive.recorded import at_noon, by_increments, of_one_version, recording, replaying
from tests.workspace.derive.small_slices import slices_by_commit, slices_of
from tests.workspace.derive.test_pull import define, rows, transfers
from trueline.chain.checkpoint import derived_checkpoint
from trueline.errors import OutcomeUnknown, PullError, RetryError
from trueline.workspace.derive.strategies import keyed

pytestmark = pytest.mark.contract("derive:V21")


def history(ws):
    return {ds.name: [str(name) for name, _ in ds.blocks()] for ds in ws.datasets()}


def logical(ws):
    """The logical hashes of all slices, in order."""
    data = [block.data_event for ds in ws.datasets() for _, block in ds.blocks()]
    return [event.new_data.logical_hash for event in data if event is not None and event.new_data is not None]


def contents(ws):
    return {ds.name: ds.view().to_arrow().to_pylist() for ds in ws.datasets() if ds.kind == "derived"}


class Diamond:
    """A workspace before a pull, the results of it, and what it leaves if nothing goes wrong."""

    recording, replaying = staticmethod(recording), staticmethod(replaying)

    def __init__(self, folder, spark, *, stops):
        self.template, self.results = folder / "template", folder / "results"
        self.results.mkdir()
        self.stops = stops
        with at_noon(self.template, create=True, spark=spark) as ws:
            transfers(ws, (1, "a", 5.0), (2, "b", -2.0))
            self.begin(ws)
        self.folder = folder
        with at_noon(self.copy("recorded"), spark=spark) as ws, self.recording(self.results):
            ws.pull(workers=1)
            computed = logical(ws)
        with at_noon(self.copy("undisturbed")) as ws, self.replaying(self.results):
            self.transactions = sum(len(each.commits) for each in ws.pull(workers=1))
            self.history, self.contents = history(ws), contents(ws)
            self.lengths = {name: len(blocks) for name, blocks in self.history.items()}
            assert logical(ws) == computed

    def begin(self, ws):
        """Do what comes before the pull."""
        define(ws)
        if self.stops:
            ws.pull()
            transfers(ws, (3, "a", -1.0))
            ws.pull("credits")
            transfers(ws, (4, "b", 9.0), (1, "a", 6.0))

    def copy(self, name):
        """Return a copy of the workspace before the pull."""
        shutil.copytree(self.template, self.folder / name)
        return self.folder / name

    def operations(self):
        """What is done to files: as the workspace is opened, and by the pull."""
        files = WatchedFiles()
        with watching(files), at_noon(self.copy("watched")) as ws, self.replaying(self.results):
            opening = len(files.log)
            ws.pull(workers=1)
            log = list(files.log)
        return log[:opening], log[opening:]

    def fail_at_some(self, count, among=None):
        """Let so many of the durable operations fail (all in `make soak`), in copies; return their number."""
        opening, self.log_of_pull = self.operations()
        durable = [each for each in opening + self.log_of_pull if each[0] in DURABLE]
        for number in some(range(1, len(durable) + 1) if among is None else among(durable), count):
            assert self.fails_at(number)
        return len(durable)

    def check(self, place):
        """The next pull finishes it: nothing twice, nothing lost."""
        with at_noon(place) as ws, self.replaying(self.results):
            ws.pull()
            assert contents(ws) == self.contents
            found = history(ws)
            # Who is where decides about stops, and the fault has left some further than they were.
            same = {name: len(blocks) for name, blocks in found.items()} == self.lengths
            assert found == self.history if same or not self.stops else ws.verify().ok
            assert all(not each.commits for each in ws.pull())

    def fails_at(self, number):
        """Do the pull in a copy, where an operation fails; say whether there was one of that number."""
        place = self.copy(f"failed-{number}")
        files = failing(number, errno.ENOSPC, only=DURABLE)
        with watching(files), at_noon(place) as ws, self.replaying(self.results):
            try:
                ws.pull(workers=1)
            except (PullError, RetryError, OutcomeUnknown):
                assert files.failed
        if files.failed:
            self.check(place)
        shutil.rmtree(place)
        return files.failed


class Increment(Diamond):
    """One dataset before a pull by the increment, which merges accumulators and adds a generation of them."""

    recording = replaying = staticmethod(by_increments)

    def begin(self, ws):
        define(ws, "credits")
        # A group that is not touched: the others are put beside it.
        transfers(ws, (5, "z", 7.0))
        with of_one_version():
            ws.pull()
        transfers(ws, (1, "a", 6.0), (3, "c", 1.0))


class FirstBuild(Diamond):
    """One dataset before its first pull, which makes the accumulators of all groups."""

    recording = staticmethod(partial(recording, state=True))
    replaying = staticmethod(partial(replaying, state=True))

    def begin(self, ws):
        define(ws, "credits")

    def check(self, place):
        """What was kept is there: the next pull goes on from it."""
        super().check(place)
        with at_noon(place) as ws, by_increments(None):
            transfers(ws, (1, "a", 6.0), (3, "c", 1.0))
            ws.pull()
            assert rows(ws, "credits") == {"a": 6.0, "c": 1.0}


class OfSmallSlices(Diamond):
    """The diamond with results of several slices each."""

    def begin(self, ws):
        amounts = enumerate((4.0, -3.0, 6.0, -1.0, 2.5, -7.0), 3)
        transfers(ws, *((number, "cdefgh"[number - 3], amount) for number, amount in amounts))
        super().begin(ws)


@pytest.fixture(scope="module")
def diamond(tmp_path_factory, spark):
    found = Diamond(tmp_path_factory.mktemp("diamond"), spark, stops=False)
    assert found.transactions == 3
    return found


@pytest.fixture(scope="module")
def operations(diamond):
    return diamond.operations()


@pytest.mark.sampled
def test_every_durable_operation_fails_once(diamond, operations):
    opening, pulling = operations
    count = sum(name in DURABLE for name, _ in opening + pulling)
    assert count >= 50
    for number in some(range(1, count + 1), 16):
        assert diamond.fails_at(number)


def test_a_process_is_killed_at_one_operation_of_each_kind(diamond, operations):
    done = [name for name, _ in operations[1] if name in DEADLY]
    kinds = {name: done.index(name) + 1 for name in done}
    assert {"link", "rename", "fsync", "write"} <= set(kinds)
    deed, results = "tests.workspace.derive.recorded:pulling", str(diamond.results)
    for torn, numbers in (("whole", sorted(kinds.values())), ("torn", [kinds["write"]])):
        for place in killed_at(deed, diamond.template, diamond.folder / torn, results, torn, numbers=numbers):
            diamond.check(place)
            with at_noon(place) as ws:
                assert ws.verify().ok


@pytest.mark.contract("derive:V17")
@pytest.mark.sampled
def test_every_durable_operation_of_an_increment_fails_once(tmp_path, spark):
    found = Increment(tmp_path, spark, stops=False)
    assert found.transactions == 1
    assert {row["account"]: row["total"] for row in found.contents["credits"]} == {
        "a": 6.0,
        "c": 1.0,
        "z": 7.0,
    }
    with at_noon(tmp_path / "undisturbed") as ws:
        left = derived_checkpoint(ws["credits"].chain.store, ws["credits"].chain.tail().data)
    kept = [file for file in left.state if file.notes["state"] == left.more[keyed.KEPT]]
    assert len({file.notes["generation"] for file in kept}) == 2
    assert found.fail_at_some(10) > 15


@pytest.mark.contract("derive:V17")
@pytest.mark.sampled
def test_every_durable_operation_of_a_first_pull_that_builds_state_fails_once(tmp_path, spark):
    found = FirstBuild(tmp_path, spark, stops=False)
    assert found.fail_at_some(8) > 20
    with at_noon(tmp_path / "undisturbed") as ws:
        left = derived_checkpoint(ws["credits"].chain.store, ws["credits"].chain.tail().data)
    assert any(file.notes["state"] == left.more[keyed.KEPT] for file in left.state)


@pytest.mark.contract("derive:V13")
@pytest.mark.sampled
def test_a_fault_between_the_slices_of_a_commit(tmp_path, spark):
    with slices_of(2):
        found = OfSmallSlices(tmp_path, spark, stops=False)
        with at_noon(tmp_path / "undisturbed") as ws:
            counts = {name: slices_by_commit(ws[name]) for name in ("credits", "debits", "balances")}
            named = {str(each) for name in counts for each in physical_hashes(ws[name])}
        assert counts == {"credits": [2], "debits": [2], "balances": [4]}

        def between_slices(operations):
            """Return the numbers of those that give a slice its name."""
            found = [at for at, (_, given) in enumerate(operations, 1) if named.intersection(map(str, given))]
            assert len(found) >= 8
            return found

        found.fail_at_some(4, between_slices)
        done = [each for each in found.log_of_pull if each[0] in DEADLY]
        deed, results = "tests.workspace.derive.recorded:pulling_small_slices", str(found.results)
        numbers = some(between_slices(done), 2)
        for place in killed_at(deed, found.template, tmp_path / "killed", results, "whole", numbers=numbers):
            found.check(place)


def physical_hashes(dataset):
    data = [block.data_event for _, block in dataset.blocks()]
    return [each.new_data.physical_hash for each in data if each is not None and each.new_data is not None]


@pytest.mark.soak
def test_every_durable_operation_of_a_pull_that_stops_on_its_way_fails_once(tmp_path, spark):
    diamond = Diamond(tmp_path, spark, stops=True)
    assert diamond.transactions == 5
    number = 1
    while diamond.fails_at(number):
        number += 1
    assert number > 80
