"""Several processes on one bank, on files and on an object store: each is interrupted at each operation.

At an operation of one, another does all of its work, which may itself be interrupted by a third; then the
first goes on, or is dead. After each of that everything that can be read is compared with its own cut.
"""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.snapshot.bank import VIEWS, Bank
from tests.workspace.snapshot.local import Local
from tests.workspace.snapshot.operations import Operations
from trueline.chain.instant import Instant
from trueline.errors import WaitTimeout
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.derive.rest import left_at
from trueline.workspace.pull.going import GoingTo
from trueline.workspace.snapshot import wait
from trueline.workspace.snapshot.agree import agree

pytestmark = pytest.mark.contract("cut:P2", "cut:P13")
ALL = (*VIEWS, "paired")


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
        self.readings = self.torn = self.broken = self.late = self.acks = 0
        workspace.clock = self.now
        self.transact()
        self.everybody()

    def now(self):
        return Instant(Instant.now() + self.late)

    def transact(self):
        with self.workspace.transaction("transfers", "fees"):
            commit = self.transfer(1)
            self.workspace["fees"].append([{"id": self.made}])
        return commit

    def elsewhere(self, deed):
        """Do something as another process: who is interrupted holds locks of its own."""
        here = self.workspace
        with tl.open(here.location) as other:
            self.workspace, other.clock = other, self.now
            try:
                getattr(self, deed)()
            finally:
                self.workspace = here

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

    def pairers(self):
        self.puller().pull("paired")

    def late_debtors(self):
        """More is appended before the debits are pulled, so that they go further."""
        self.transact()
        self.debtors()

    def acked(self):
        """Append, and look whether it is visible; whoever reads after that, wherever, has to see it."""
        commit = self.transact()
        try:
            commit.wait("credits", "debits", timeout=0).close()
        except WaitTimeout:
            return
        self.acks += 1
        with tl.open(self.workspace.location) as fresh, fresh.snapshot("credits", "debits") as snap:
            assert snap.cut["transfers"] >= commit.offsets[-1], "it was acknowledged too early"

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


FILES, OBJECTS = "files", "object store"


@contextmanager
def opened(kind, place, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    where = tmp_path / "ws" if place == FILES else f"memory://together/{tmp_path.name}"
    with tl.open(where, create=True) as workspace:
        if place == FILES:
            workspace.config.set("storage.durable", "false")
        yield kind(workspace)


@pytest.fixture(params=[FILES, OBJECTS])
def branches(request, tmp_path, monkeypatch):
    with opened(Branches, request.param, tmp_path, monkeypatch) as found:
        yield found


class Pulls(Branches):
    """The same by real pulls, with their stops: there is always a common cut, not older than the laggard."""

    def everybody(self):
        self.pulled(*ALL)

    def creditors(self):
        self.pulled("credits")

    def debtors(self):
        self.pulled("debits")

    def pairers(self):
        self.pulled("paired")

    def pulled(self, *names):
        # Who is interrupted holds locks of its own process.
        with self.computing(), tl.open(self.workspace.location) as elsewhere:
            elsewhere.clock = self.now
            elsewhere.pull(*names, workers=1)

    def read(self):
        super().read()
        for names in (ALL, ("credits", "debits"), ("credits", "paired")):
            laggard = min(self.rests_at(name) for name in names)
            with self.workspace.snapshot(*names) as snap:
                assert snap.cut["transfers"] >= laggard, f"{names} are read at an older cut than the laggard"

    def rests_at(self, name):
        chain = self.workspace[name].chain
        return left_at(chain, chain.tail()).origin.roots[self.workspace["transfers"].id].offset


@pytest.fixture(params=[FILES, OBJECTS])
def pulls(request, tmp_path, monkeypatch):
    with opened(Pulls, request.param, tmp_path, monkeypatch) as found:
        yield found


PULLS = [
    ("creditors", "late_debtors"),
    ("late_debtors", "creditors"),
    ("everybody", "transact"),
    ("everybody", "read"),
    ("everybody", "sweep"),
    ("sweep", "creditors"),
    ("pairers", "late_debtors"),
    ("late_debtors", "pairers"),
    ("transact", "everybody"),
    ("read", "everybody"),
    ("acked", "creditors"),
    ("everybody", "acked"),
]
# Those of `make test`: what differs between stores is little.
FEW_PULLS = [(FILES, *pair) for pair in PULLS[:-1]] + [(OBJECTS, *PULLS[0]), (OBJECTS, *PULLS[-1])]
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
    ("acked", "creditors"),
    ("acked", "everybody"),
    ("everybody", "acked"),
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


# Those of `make test`: all on files, what an object store does otherwise on some.
FEW_PAIRS = [(FILES, *pair) for pair in PAIRS] + [(OBJECTS, *pair) for pair in PAIRS[::4]]


@pytest.mark.parametrize(("branches", "outer", "inner"), FEW_PAIRS, indirect=["branches"])
def test_nothing_is_torn_whoever_interrupts_whom(branches, monkeypatch, outer, inner):
    operations = Operations(monkeypatch)
    branches.transact()
    step = operations.run(getattr(branches, outer)) // 4 + 1
    assert interrupt(branches, operations, outer, inner, every=step, first=step // 2) > 2


@pytest.mark.parametrize(("pulls", "outer", "inner"), FEW_PULLS, indirect=["pulls"])
def test_real_pulls_leave_a_common_cut_that_is_not_older_than_the_laggard(pulls, monkeypatch, outer, inner):
    operations = Operations(monkeypatch)
    pulls.transact()
    step = operations.run(getattr(pulls, outer)) // 4 + 1
    assert interrupt(pulls, operations, outer, inner, every=step, first=step // 2) > 2


THREE = [("creditors", "late_debtors", "pairers"), ("pairers", "creditors", "late_debtors")]


@pytest.mark.parametrize("pulls", [FILES], indirect=True)
@pytest.mark.parametrize("names", THREE)
def test_three_real_pulls_inside_of_each_other_leave_one_too(pulls, monkeypatch, names):
    inside_of_each_other(pulls, Operations(monkeypatch), names, places=3)


def inside_of_each_other(pulls, operations, names, *, places):
    """The second pulls at an operation of the first, and the third at one of the second; some of them die."""
    works = [partial(pulls.elsewhere, name) for name in names]
    pulls.transact()
    first, second = (operations.run(work) for work in works[:2])
    for number, at in enumerate(range(1, first, first // places)):
        for then in range(1, second, second // places):
            dies, too = (number + then) % 3 == 1, (number + then) % 3 == 2
            pulls.transact()
            inner = partial(operations.run, works[1], then, works[2], dies=too)
            operations.run(works[0], at, inner, dies=dies)
            pulls.read()
            pulls.settle()


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("names", THREE)
def test_three_real_pulls_inside_of_each_other_at_more_places(pulls, monkeypatch, names):
    inside_of_each_other(pulls, Operations(monkeypatch), names, places=20)


@pytest.mark.contract("cut:P9")
@pytest.mark.parametrize("branches", [OBJECTS], indirect=True)
def test_a_write_is_acknowledged_when_it_is_visible(branches, monkeypatch):
    interrupt(branches, Operations(monkeypatch), "acked", "everybody", every=8)
    assert branches.acks > 0


@pytest.mark.contract("cut:P9")
@pytest.mark.parametrize("branches", [FILES], indirect=True)
def test_a_wait_that_believes_the_log_of_cuts_acknowledges_too_early(branches, monkeypatch):
    def recorded(workspace, dataset, root, commit, asked):
        at = CutLog.of(workspace).newest().positions[root]
        return agree(workspace, asked) if at.offset >= commit.offsets[-1] else None

    monkeypatch.setattr(wait, "_including", recorded)
    with pytest.raises(AssertionError, match="acknowledged too early"):
        interrupt(branches, Operations(monkeypatch), "acked", "creditors", every=5)


@pytest.mark.parametrize("pulls", [FILES], indirect=True)
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


PULLERS = ("creditors", "debtors", "late_debtors", "pairers")
DEEDS = ("everybody", *PULLERS, "transact", "read", "sweep", "acked")
# Writers of one dataset take turns, and who is interrupted holds its turn; so do real pulls of one dataset.
TURNS = [{"transact", "acked"}, {"transact", "late_debtors"}, {"acked", "late_debtors"}]
TURNS_OF_PULLS = [*TURNS, {"debtors", "late_debtors"}, *({"everybody", each} for each in PULLERS)]


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("place", [FILES, OBJECTS])
@pytest.mark.parametrize("kind", [Branches, Pulls])
def test_nothing_is_torn_at_random_for_long(kind, place, tmp_path, monkeypatch, soak_minutes):
    operations, end = Operations(monkeypatch), time.monotonic() + 60 * soak_minutes
    seed = random.SystemRandom().randrange(1 << 40)
    chance = random.Random(seed)
    with opened(kind, place, tmp_path, monkeypatch) as found:
        try:
            while time.monotonic() < end:
                at_random(found, operations, chance)
        except BaseException as error:
            error.add_note(f"again: chance = random.Random({seed})")
            raise


def at_random(branches, operations, chance):
    """Let three things happen inside of each other, and the outer two die at times."""
    turns = TURNS_OF_PULLS if isinstance(branches, Pulls) else TURNS
    names = chance.sample(DEEDS, 3)
    while any(them <= set(names) for them in turns):
        names = chance.sample(DEEDS, 3)
    first, second, third = (partial(branches.elsewhere, name) for name in names)
    at, then = chance.randint(1, 120), chance.randint(1, 120)
    dies, too = chance.random() < 0.3, chance.random() < 0.3
    branches.transact()
    operations.run(first, at, lambda: operations.run(second, then, third, dies=too), dies=dies)
    branches.read()
    branches.settle()


@pytest.mark.parametrize("kind", [Branches, Pulls])
def test_nothing_is_torn_at_random(kind, tmp_path, monkeypatch):
    operations, chance = Operations(monkeypatch), random.Random(15)
    with opened(kind, FILES, tmp_path, monkeypatch) as found:
        for _ in range(6):
            at_random(found, operations, chance)
