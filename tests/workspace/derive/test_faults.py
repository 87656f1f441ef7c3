"""A pull that a fault stops at any durable operation is finished by the next one, hash for hash."""

from __future__ import annotations

import errno
import shutil

import pytest

from tests.examples import some
from tests.faults import DEADLY, DURABLE, WatchedFiles, failing, killed_at, watching
from tests.workspace.derive.recorded import at_noon, by_increments, of_one_version, recording, replaying
from tests.workspace.derive.test_pull import define, transfers
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
        shutil.copytree(self.template, self.folder / name)
        return self.folder / name

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


@pytest.fixture(scope="module")
def diamond(tmp_path_factory, spark):
    found = Diamond(tmp_path_factory.mktemp("diamond"), spark, stops=False)
    assert found.transactions == 3
    return found


@pytest.fixture(scope="module")
def operations(diamond):
    """What is done to files: as the workspace is opened, and by the pull."""
    files = WatchedFiles()
    with watching(files), at_noon(diamond.copy("watched")) as ws, replaying(diamond.results):
        opening = len(files.log)
        ws.pull(workers=1)
        names = [name for name, _ in files.log]
    return names[:opening], names[opening:]


@pytest.mark.sampled
def test_every_durable_operation_fails_once(diamond, operations):
    opening, pulling = operations
    count = sum(name in DURABLE for name in opening + pulling)
    assert count >= 50
    for number in some(range(1, count + 1), 16):
        assert diamond.fails_at(number)


def test_a_process_is_killed_at_one_operation_of_each_kind(diamond, operations):
    done = [name for name in operations[1] if name in DEADLY]
    kinds = {name: done.index(name) + 1 for name in done}
    assert {"link", "rename", "fsync", "write"} <= set(kinds)
    deed, results = "tests.workspace.derive.recorded:pulling", str(diamond.results)
    for torn, numbers in (("whole", sorted(kinds.values())), ("torn", [kinds["write"]])):
        for place in killed_at(deed, diamond.template, diamond.folder / torn, results, torn, numbers=numbers):
            diamond.check(place)
            with at_noon(place) as ws:
                assert ws.verify().ok


@pytest.mark.contract("derive:V17")
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
    number = 1
    while found.fails_at(number):
        number += 1
    assert number > 15


@pytest.mark.soak
def test_every_durable_operation_of_a_pull_that_stops_on_its_way_fails_once(tmp_path, spark):
    diamond = Diamond(tmp_path, spark, stops=True)
    assert diamond.transactions == 5
    number = 1
    while diamond.fails_at(number):
        number += 1
    assert number > 80
