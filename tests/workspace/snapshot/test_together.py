"""Several processes on one bank, on files and on an object store: each is interrupted at each operation.

At an operation of one, another does all of its work, which may itself be interrupted by a third; then the
first goes on, or is dead. After each of that everything that can be read is compared with its own cut.
"""

from __future__ import annotations

import random
import time

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.snapshot.bank import VIEWS, Bank
from tests.workspace.snapshot.local import Local
from trueline.chain.instant import Instant
from trueline.chain.store.file import FileStore
from trueline.chain.store.object import ObjectStore
from trueline.errors import RetryError
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.derive.rest import left_at
from trueline.workspace.pull.going import GoingTo
from trueline.workspace.small_objects import FolderObjects, UrlObjects

pytestmark = pytest.mark.contract("cut:P2", "cut:P13")
STORES = dict.fromkeys((FileStore, ObjectStore), ("put", "sync", "move_head", "delete", "head"))
SMALL = dict.fromkeys((FolderObjects, UrlObjects), ("read", "put", "put_new", "swap", "remove", "names"))
ALL = (*VIEWS, "paired")


class Died(BaseException):
    """A process is gone; nothing of it runs any more."""


class Operations:
    """Calls `before` at each operation on a store."""

    def __init__(self, monkeypatch):
        self.before, self.is_inside = None, False
        for kind, names in {**STORES, **SMALL}.items():
            for name in names:
                monkeypatch.setattr(kind, name, self.watched(getattr(kind, name)))

    def watched(self, operation):
        def called(*args, **kwargs):
            # What an operation itself does is part of it: it may hold a lock. Snapshots that are forgotten
            # give their leases back whenever Python collects them.
            is_lease = operation.__name__ == "remove" and str(args[-1]).startswith("pinned/")
            if self.is_inside or is_lease:
                return operation(*args, **kwargs)
            if self.before is not None:
                self.before()
            self.is_inside = True
            try:
                return operation(*args, **kwargs)
            finally:
                self.is_inside = False

        return called

    def run(self, work, at=None, meanwhile=lambda: None, *, dies=False):
        """Do some work; before its operation number `at` something else happens, and it may die of that.

        Says how many operations there were.
        """
        outer, self.before = self.before, None
        count = 0

        def before():
            nonlocal count
            count += 1
            if at is not None and (count == at or (dies and count > at)):
                self.before = None
                if count == at:
                    meanwhile()
                if dies:
                    self.before = before
                    raise Died
                self.before = before

        self.before = before
        try:
            work()
        except (Died, RetryError):
            pass  # who loses a race pulls again
        finally:
            self.before = outer
        return count


def paired(transfers, fees):
    return [{"id": 1, "transfers": len(transfers), "fees": len(fees)}]


class Branches(Bank):
    """A bank with a fee for each transfer, appended together; and what everybody does to it."""

    def __init__(self, workspace):
        super().__init__(workspace)
        workspace.create("fees", schema=pa.schema({"id": pa.int64()}))
        kinds = {"id": pa.int64(), "transfers": pa.int64(), "fees": pa.int64()}
        self.derive("paired", ("transfers", "fees"), paired, kinds)
        self.last = -1
        self.readings = self.torn = self.broken = self.late = 0
        workspace.clock = self.now
        self.transact()
        self.everybody()

    def now(self):
        return Instant(Instant.now() + self.late)

    def transact(self):
        with self.workspace.transaction("transfers", "fees"):
            self.transfer(1)
            self.workspace["fees"].append([{"id": self.made}])

    def puller(self):
        other = Local(self.workspace)
        other.functions, other.schemas = self.functions, self.schemas
        return other

    def everybody(self):
        self.puller().pull(*ALL)

    def creditors(self):
        self.puller().pull("credits")

    def debtors(self):
        self.puller().pull("debits")

    def sweep(self):
        self.workspace.gc(older_than=0)

    def read(self):
        """Read all; a cut never goes back, and shows what the definitions make of it."""
        self.readings += 1
        with self.workspace.snapshot(*ALL) as snap:
            offset = snap.cut["transfers"]
            assert offset >= self.last, "a snapshot went back"
            if offset > self.last:
                expected = self.expected(offset)
                assert {name: snap[name].to_arrow().to_pylist() for name in VIEWS} == expected
                (both,) = snap["paired"].to_arrow().to_pylist()
                assert (both["transfers"], both["fees"]) == (offset + 1, snap.cut["fees"] + 1)
                if both["transfers"] != both["fees"] + self.broken:
                    named = [cut for cut in CutLog.of(self.workspace).cuts() if cut.broken]
                    assert named, "a cut shows a part of a transaction, and does not say so"
                    self.broken = both["transfers"] - both["fees"]
            self.last = offset
        heads = {self.workspace[name].chain.tail().data.query_inputs[0].last_offset for name in VIEWS[:2]}
        self.torn += len(heads) > 1

    def settle(self):
        """Let the time of dead transactions be over, and pull: all that was appended is there."""
        self.made = self.workspace["transfers"].chain.tail().next_offset
        self.late += 301 * 10**9
        self.everybody()
        self.read()
        assert self.last == self.made - 1


@pytest.fixture(params=["files", "object store"])
def branches(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    where = tmp_path / "ws" if request.param == "files" else f"memory://together/{tmp_path.name}"
    with tl.open(where, create=True) as workspace:
        if request.param == "files":
            workspace.config.set("storage.durable", "false")
        yield Branches(workspace)


class Pulls(Branches):
    """The same by real pulls, with their stops: there is always a common cut, not older than the laggard."""

    def everybody(self):
        self.pulled(*ALL)

    def creditors(self):
        self.pulled("credits")

    def late_debtors(self):
        """More is appended before the debits are pulled, so that they go further."""
        self.transact()
        self.pulled("debits")

    def pulled(self, *names):
        # Who is interrupted holds locks of its own process.
        with self.computing(), tl.open(self.workspace.location) as elsewhere:
            elsewhere.clock = self.now
            elsewhere.pull(*names)

    def read(self):
        super().read()
        for names in (ALL, ("credits", "debits"), ("credits", "paired")):
            laggard = min(self.rests_at(name) for name in names)
            with self.workspace.snapshot(*names) as snap:
                assert snap.cut["transfers"] >= laggard, f"{names} are read at an older cut than the laggard"

    def rests_at(self, name):
        chain = self.workspace[name].chain
        return left_at(chain, chain.tail()).origin.roots[self.workspace["transfers"].id].offset


@pytest.fixture
def pulls(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as workspace:
        workspace.config.set("storage.durable", "false")
        yield Pulls(workspace)


PULLS = [
    ("creditors", "late_debtors"),
    ("late_debtors", "creditors"),
    ("everybody", "transact"),
    ("everybody", "read"),
    ("transact", "everybody"),
    ("read", "everybody"),
]
PAIRS = [
    ("everybody", "creditors"),
    ("everybody", "transact"),
    ("everybody", "read"),
    ("everybody", "sweep"),
    ("creditors", "debtors"),
    ("transact", "everybody"),
    ("read", "everybody"),
    ("sweep", "everybody"),
    ("sweep", "read"),
]


def interrupt(branches, operations, outer, inner, *, every, first=1):
    """Interrupt one by the other, before each `every`th operation; every second time the first one dies."""
    at, dies, runs = first, False, 0
    while True:
        branches.transact()
        work, other = getattr(branches, outer), getattr(branches, inner)
        count = operations.run(work, at, other, dies=dies and outer != "sweep")
        runs += 1
        branches.read()
        branches.settle()
        if count < at:
            return runs
        at, dies = at + every, not dies


@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_nothing_is_torn_whoever_interrupts_whom(branches, monkeypatch, outer, inner):
    operations = Operations(monkeypatch)
    branches.transact()
    step = operations.run(getattr(branches, outer)) // 4 + 1
    assert interrupt(branches, operations, outer, inner, every=step, first=step // 2) > 2


@pytest.mark.parametrize(("outer", "inner"), PULLS)
def test_real_pulls_leave_a_common_cut_that_is_not_older_than_the_laggard(pulls, monkeypatch, outer, inner):
    operations = Operations(monkeypatch)
    pulls.transact()
    step = operations.run(getattr(pulls, outer)) // 6 + 1
    assert interrupt(pulls, operations, outer, inner, every=step, first=step // 2) > 2


def test_pulls_that_do_not_say_where_they_go_leave_an_older_one(pulls, monkeypatch):
    monkeypatch.setattr(GoingTo, "read", lambda _: [])
    operations = Operations(monkeypatch)
    pulls.transact()
    step = operations.run(pulls.creditors) // 6 + 1
    with pytest.raises(AssertionError, match="older cut than the laggard"):
        interrupt(pulls, operations, "creditors", "late_debtors", every=step, first=step // 2)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("outer", "inner"), PULLS)
def test_real_pulls_leave_one_at_each_operation(pulls, monkeypatch, outer, inner):
    assert interrupt(pulls, Operations(monkeypatch), outer, inner, every=1) > 10


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_nothing_is_torn_at_each_operation(branches, monkeypatch, outer, inner):
    assert interrupt(branches, Operations(monkeypatch), outer, inner, every=1) > 10
    if (outer, inner) == ("everybody", "read"):
        assert branches.torn > 0, "heads differed meanwhile, or nothing was shown"


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_nothing_is_torn_at_random_for_long(branches, monkeypatch, soak_minutes):
    operations, end = Operations(monkeypatch), time.monotonic() + 60 * soak_minutes
    seed = random.SystemRandom().randrange(1 << 40)
    chance = random.Random(seed)
    names = ("everybody", "creditors", "debtors", "transact", "read", "sweep")
    while time.monotonic() < end:
        # Three that differ: appends to one dataset take turns, and who is interrupted holds its turn.
        first, second, third = (getattr(branches, name) for name in chance.sample(names, 3))
        at, then = chance.randint(1, 120), chance.randint(1, 120)
        dies, too = chance.random() < 0.3, chance.random() < 0.3
        branches.transact()
        operations.run(
            first, at, lambda w=second, t=then, o=third, d=too: operations.run(w, t, o, dies=d), dies=dies
        )
        branches.read()
        branches.settle()
