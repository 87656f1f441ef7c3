"""Transactions: no cut falls between their appends, whoever records it and whenever."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

import trueline as tl
from tests.architecture import ROOT
from tests.chain.histories import dataset_id
from tests.workspace.cuts.lake import SECOND, Lake, Watched, offsets
from trueline.chain import Instant
from trueline.errors import CorruptionError, InputError, OutcomeUnknown, StorageReadOnly, StoreError
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.cuts.transaction import IntentState, transaction
from trueline.workspace.locations import place_of
from trueline.workspace.small_objects import FolderObjects
from trueline.workspace.snapshot import histories
from trueline.workspace.snapshot.find import read_together

pytestmark = pytest.mark.contract("cut:P2")


@pytest.fixture
def pair(quick):
    """Two roots with ten records each, at cut 1."""
    a, b = quick.root("a"), quick.root("b")
    quick.append(a)
    quick.append(b)
    log = quick.log()
    assert log.record([a, b]).number == 1
    return quick, a, b, log


def test_an_open_transaction_holds_its_roots_and_a_closed_one_is_passed_as_a_whole(lake):
    a, b, log = lake.root("a"), lake.root("b"), lake.log()
    lake.append(a)
    lake.append(b)
    with lake.transaction(a, b):
        assert offsets(log.record([a, b]), a, b) == [9, 9]
        lake.append(a)
        assert offsets(log.record([a, b]), a, b) == [9, 9]
        assert offsets(lake.log().record([a]), a, b) == [9, 9]
        lake.append(b)
        assert offsets(lake.log().record([b]), a, b) == [9, 9]
    # Who asks for one of them gets both.
    assert offsets(lake.log().record([a]), a, b) == [19, 19]
    assert log.intents.read() == {}
    assert [offsets(cut, a, b) for cut in log.cuts()] == [[9, 9], [19, 19]]


def test_roots_without_data_are_held_without_a_position(quick):
    a, b, log = quick.root("a"), quick.root("b"), quick.log()
    with quick.transaction(a, b):
        quick.append(a)
        assert log.record([a, b]).number == 0
        quick.append(b)
    assert offsets(log.record([b]), a, b) == [9, 9]


def test_a_root_that_joins_later_is_held_from_then_on(pair):
    lake, a, b, log = pair
    with lake.transaction() as joined:
        assert log.intents.read() == {}
        joined.join(a)
        lake.append(a)
        lake.append(b)
        assert offsets(log.record([a, b]), a, b) == [9, 19], "it was not of the transaction"
        joined.join(b)
        joined.join(b)
        lake.append(b)
        assert offsets(log.record([a, b]), a, b) == [9, 19]
    assert offsets(log.record([a]), a, b) == [19, 29]


def test_others_go_on_beside_a_transaction(pair):
    lake, a, b, log = pair
    c = lake.root("c")
    with lake.transaction(a, b):
        lake.append(a)
        lake.append(c)
        cut = log.record([a, b, c])
        assert offsets(cut, a, b, c) == [9, 9, 9]
        lake.append(b)


def test_what_a_cut_has_passed_is_not_taken_back(pair):
    """Its roots are looked at before the intent is there: a cut may pass them in between."""
    lake, a, b, log = pair
    held = lake.transaction(a, b)
    real = lake.objects

    def between(verb, name):
        if verb == "swap" and name == "transactions":
            watched.before = None
            lake.append(a)
            assert offsets(lake.log(real).record([a]), a, b) == [19, 9]

    watched = lake.objects = Watched(real, between)
    held = lake.transaction(a, b)
    with held:
        lake.append(b)
        assert offsets(lake.log(real).record([a, b]), a, b) == [19, 9]
    assert offsets(log.record([a, b]), a, b) == [19, 19]


@pytest.mark.parametrize("steps", ["close", "begin", "all"])
def test_a_transaction_that_begins_or_ends_while_heads_are_read_is_not_torn(pair, steps):
    lake, a, b, log = pair
    held = lake.transaction(a, b)
    if steps == "close":
        held.__enter__()
        lake.append(a)
    seen: list[object] = []

    def meanwhile(name):
        seen.append(name)
        if len(seen) != 2:
            return
        lake.meanwhile = None
        if steps != "close":
            held.__enter__()
            lake.append(a)
        if steps != "begin":
            lake.append(b)
            held.close()

    # Between the looks at the two heads: chains are asked for first, so it hooks the second head's read.
    first, second = sorted([a, b])
    store = lake.roots[second].store
    real = store.head

    def head(ref="head"):
        store.head = real
        seen.append(first)
        meanwhile(second)
        return real(ref)

    store.head = head
    cut = log.record([a, b])
    assert offsets(cut, a, b) == [9, 9]
    held.close()
    if steps == "begin":
        assert offsets(lake.log().record([a, b]), a, b) == [19, 9], "it closed without the second append"
    else:
        assert offsets(lake.log().record([a]), a, b) == [19, 19]


def test_one_that_was_passed_and_forgotten_while_heads_were_read_takes_the_number(pair):
    lake, a, b, log = pair
    second = sorted([a, b])[1]
    store = lake.roots[second].store
    real = store.head

    def head(ref="head"):
        store.head = real
        with lake.transaction(a, b):
            lake.append(a)
            lake.append(b)
        assert offsets(lake.log().record([a]), a, b) == [19, 19]
        assert lake.log().intents.read() == {}
        return real(ref)

    store.head = head
    assert offsets(log.record([a, b]), a, b) == [19, 19]
    assert [offsets(cut, a, b) for cut in log.cuts()] == [[9, 9], [19, 19]]


def test_a_closed_one_that_shares_a_root_with_an_open_one_is_held_as_a_whole(pair):
    lake, a, b, log = pair
    c = lake.root("c")
    lake.append(c)
    log.record([c])
    first, second = lake.transaction(a, b), lake.transaction(b, c)
    first.__enter__()
    lake.append(a)
    second.__enter__()
    lake.append(b)
    lake.append(c)
    first.close()
    assert offsets(log.record([a, b, c]), a, b, c) == [9, 9, 9]
    lake.append(b)
    second.close()
    assert offsets(log.record([a]), a, b, c) == [19, 29, 19], "both, by way of b"


def test_what_a_transaction_that_fails_has_appended_stays_and_the_next_cut_names_it(pair):
    lake, a, b, log = pair
    with pytest.raises(KeyError), lake.transaction(a, b) as held:
        lake.append(a)
        raise KeyError
    assert [each.id for each in log.intents.unfinished()] == [held.id]
    cut = log.record([a])
    assert (offsets(cut, a, b), cut.broken) == ([19, 9], (held.id,))


def test_one_that_fails_before_it_has_appended_is_not_named(pair):
    lake, a, b, log = pair
    with pytest.raises(KeyError), lake.transaction(a, b):
        raise KeyError
    assert log.intents.unfinished() == ()
    lake.append(a)
    assert (log.record([a]).broken, log.intents.read()) == ((), {})


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("failed", [False, True])
def test_one_that_a_store_did_not_let_close_is_closed_again(pair, failed, is_lost):
    """The first answer of the store is an error, whether it has done what was asked or not."""
    lake, a, b, log = pair
    held = lake.transaction(a, b)
    held.__enter__()
    lake.append(a)
    swap = held._intents._objects.swap

    def refused(*asked):
        if is_lost:
            swap(*asked)
        raise StoreError("no answer", remedy="try again")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held._intents._objects, "swap", refused)
        with pytest.raises(StoreError):
            held.close(failed=failed)
    assert bool(log.intents.holding([a])) is not is_lost
    with pytest.raises(InputError, match="is closed"):
        held.join(lake.root("c"))
    held.close()
    cut = log.record([a])
    assert (offsets(cut, a, b), cut.broken) == ([19, 9], (held.id,) if failed else ())
    held.close()


def test_what_cannot_be_joined_is_refused(pair):
    lake, a, _, _ = pair
    with lake.transaction(a) as held:
        with pytest.raises(InputError) as caught:
            held.join(dataset_id("nowhere"))
        assert caught.value.code == "NoSuchRoot"
    with pytest.raises(InputError):
        held.join(a)
    for seconds in (0, -1, 1e9, float("nan")):
        with pytest.raises(InputError):
            lake.transaction(a, seconds=seconds)


# --- those that expire --------------------------------------------------------------------


def test_one_that_expired_is_reported_and_the_first_cut_that_passes_it_names_it(pair):
    lake, a, b, log = pair
    c = lake.root("c")
    lake.append(c)
    held = lake.transaction(a, b, seconds=60)
    held.__enter__()
    lake.append(a)
    lake.clock.forward(59)
    assert log.intents.unfinished() == ()
    assert offsets(log.record([a, b]), a, b) == [9, 9]
    lake.clock.forward(2)
    assert [each.id for each in log.intents.unfinished()] == [held.id]
    assert log.record([c]).broken == (), "it does not pass it"
    assert [each.id for each in log.intents.unfinished()] == [held.id]
    torn = log.record([a])
    assert (offsets(torn, a, b), torn.broken) == ([19, 9], (held.id,))
    lake.append(b)
    with pytest.raises(OutcomeUnknown) as caught:
        held.close()
    assert (caught.value.code, caught.value.transaction) == ("TransactionExpired", held.id)
    after = lake.log().record([a, b])
    assert (offsets(after, a, b), after.broken) == ([19, 19], ())
    assert log.intents.read() == {}
    assert log.cut(torn.number).broken == (held.id,)


def test_it_is_named_once_even_if_who_named_it_died(pair):
    lake, a, b, log = pair
    held = lake.transaction(a, b, seconds=60)
    held.__enter__()
    lake.append(a)
    lake.clock.forward(61)
    assert log.record([a]).broken == (held.id,)
    assert held.id in log.intents.read(), "the next cut forgets it"
    for _ in range(3):
        lake.append(b)
        assert lake.log().record([b]).broken == ()
    assert log.intents.read() == {}


def test_one_that_is_renewed_lives_on(pair):
    lake, a, b, log = pair
    with lake.transaction(a, b, seconds=60) as held:
        lake.append(a)
        for _ in range(5):
            lake.clock.forward(50)
            assert held.renew()
            assert offsets(log.record([a, b]), a, b) == [9, 9]
        lake.append(b)
    assert offsets(log.record([a, b]), a, b) == [19, 19]


def test_it_is_renewed_by_itself(pair):
    lake, a, _, _ = pair
    renewed, real = threading.Event(), lake.clock

    def clock():
        if threading.current_thread().name == "trueline-transaction":
            renewed.set()
        return real()

    lake.clock = clock
    with lake.transaction(a, seconds=0.05):
        assert renewed.wait(60)


def test_one_that_was_marked_as_expired_cannot_come_back(pair):
    lake, a, b, log = pair
    held = lake.transaction(a, seconds=60)
    held.__enter__()
    lake.clock.forward(61)
    log.record([a, b])
    assert log.intents.read()[held.id].state is IntentState.BROKEN
    assert not held.renew()
    with pytest.raises(OutcomeUnknown):
        held.join(b)
    with pytest.raises(KeyError) as caught, held:
        raise KeyError
    assert "expired" in caught.value.__notes__[0]


def test_one_that_was_over_but_that_nobody_noticed_is_closed_as_usual(pair):
    lake, a, b, log = pair
    with lake.transaction(a, b, seconds=60):
        lake.append(a)
        lake.clock.forward(600)
        lake.append(b)
    cut = log.record([a])
    assert (offsets(cut, a, b), cut.broken) == ([19, 19], ())


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value["transactions"][0].update(id="x"),
        lambda value: value["transactions"][0].update(state="asleep"),
        lambda value: value["transactions"][0].update(seconds=-1),
        lambda value: value["transactions"][0].update(seconds=True),
        lambda value: value["transactions"][0].update(roots=[]),
        lambda value: value["transactions"][0].pop("renewed"),
        lambda value: value["transactions"].append(value["transactions"][0]),
        lambda value: value.update(transactions={}),
        lambda value: value.update(format="other"),
    ],
)
def test_a_damaged_document_is_named_and_nothing_is_recorded(pair, change):
    lake, a, b, log = pair
    held = lake.transaction(a, b)
    held.__enter__()
    value = json.loads(lake.objects.read("transactions").raw)
    change(value)
    lake.objects.put("transactions", json.dumps(value).encode())
    lake.append(a)
    with pytest.raises(CorruptionError) as caught:
        log.record([a])
    assert caught.value.code == "CutsDamaged"
    assert caught.value.path.endswith("/transactions")
    assert log.newest().number == 1


def test_fields_of_a_later_version_are_kept(pair):
    lake, a, _, _ = pair
    with lake.transaction(a) as held:
        value = json.loads(lake.objects.read("transactions").raw)
        value["transactions"][0]["later"] = [1]
        lake.objects.put("transactions", json.dumps(value).encode())
        held.renew()
        assert json.loads(lake.objects.read("transactions").raw)["transactions"][0]["later"] == [1]


# --- any schedule -------------------------------------------------------------------------


class Bank:
    """Transactions and recorders that step at random, also in the middle of each other's steps.

    Every transaction appends one record to each of its roots; what a cut shows of it is known from the
    offsets after its appends.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lake = Lake(place_of(f"memory://bank-{seed}-{self.random.random()}/x").cuts())
        self.roots = [self.lake.root(f"r{n}") for n in range(3)]
        for name in self.roots:
            self.lake.append(name, 1)
        self.open: list[tuple[object, list]] = []
        self.done: list[dict] = []
        self.appended: dict[str, dict] = {}
        self.depth = 0
        for name in self.roots:
            store = self.lake.roots[name].store
            real = store.head

            def head(ref="head", real=real):
                self.interrupted()
                return real(ref)

            store.head = head

    def interrupted(self) -> None:
        """Somebody else does something in between."""
        if self.depth < 2 and self.random.random() < 0.3:
            self.step()

    def step(self) -> None:
        self.depth += 1
        try:
            self.random.choice([self.begin, self.append, self.append, self.append, self.record])()
        finally:
            self.depth -= 1

    def begin(self) -> None:
        if len(self.open) < 3:
            roots = self.random.sample(self.roots, self.random.choice([2, 2, 3]))
            held = self.lake.transaction(*roots)
            held.__enter__()
            self.open.append((held, roots))

    def append(self) -> None:
        if not self.open or self.random.random() < 0.2:
            self.lone()
            return
        held, left = self.open.pop(self.random.randrange(len(self.open)))
        name = left.pop()
        self.add(name)
        self.appended.setdefault(held.id, {})[name] = self.lake.roots[name].last_offset
        if left:
            self.open.append((held, left))
        else:
            held.close()
            self.done.append(self.appended.pop(held.id))

    def lone(self) -> None:
        self.add(self.random.choice(self.roots))

    def add(self, name) -> None:
        depth, self.depth = self.depth, 9
        self.lake.append(name, 1)
        self.depth = depth

    def record(self) -> None:
        wanted = self.random.sample(self.roots, self.random.choice([1, 2, 3]))

        def before(_verb, _name):
            self.interrupted()

        self.lake.log(Watched(self.lake.objects, before)).record(wanted)

    def check(self) -> None:
        cuts = list(self.lake.log().cuts())
        assert [cut.number for cut in cuts] == list(range(1, len(cuts) + 1))
        for cut in cuts:
            for of in self.done:
                shown = {name in cut and cut[name].offset >= end for name, end in of.items()}
                assert len(shown) == 1, (cut, of)
        for before, after in pairwise(cuts):
            assert all(after[name].offset >= before[name].offset for name in before.positions)
            assert after != before
            assert (after.reset, after.broken) == (frozenset(), ())


def scheduled(seed):
    """One schedule, which everything is passed after; returns how many cuts and transactions there were."""
    bank = Bank(seed)
    for _ in range(25):
        bank.step()
    bank.depth = 9  # nobody interrupts from here on
    for held, left in bank.open:
        for name in left:
            bank.add(name)
            bank.appended.setdefault(held.id, {})[name] = bank.lake.roots[name].last_offset
        held.close()
        bank.done.append(bank.appended.pop(held.id))
    last = bank.lake.log().record(bank.roots)
    heads = [bank.lake.roots[name].last_offset for name in bank.roots]
    assert offsets(last, *bank.roots) == heads, f"seed {seed}: everything is passed in the end"
    assert bank.lake.log().intents.read() == {}, f"seed {seed}"
    try:
        bank.check()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}") from error
    return last.number, len(bank.done)


@pytest.mark.contract("cut:P3")
def test_no_schedule_tears_a_transaction_or_takes_a_cut_back():
    cuts, finished = zip(*map(scheduled, range(150)), strict=True)
    assert sum(cuts) > 500
    assert sum(finished) > 300


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.contract("cut:P3")
def test_no_schedule_does_for_long(soak_minutes):
    seed, end = random.SystemRandom().randrange(1 << 40), time.monotonic() + 60 * soak_minutes
    while time.monotonic() < end:
        scheduled(seed)
        seed += 1


# --- in a workspace, and across processes ---------------------------------------------------

OTHER = """
import sys
import pyarrow as pa, trueline as tl
from trueline.workspace.cuts.transaction import transaction
with tl.open(sys.argv[1]) as ws:
    with transaction(ws, "debits", "credits"):
        ws["debits"].append(pa.table({"x": [-5]}))
        print("half", flush=True)
        sys.stdin.readline()
        ws["credits"].append(pa.table({"x": [5]}))
print("done", flush=True)
"""


def test_a_transaction_of_another_process_holds_its_roots(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws:
        roots = [ws.create(name).id for name in ("debits", "credits")]
        command = [sys.executable, "-c", OTHER, str(tmp_path / "ws")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as other:
            assert other.stdout.readline() == "half\n"
            log = CutLog.of(ws)
            assert ws["debits"].info.rows == 1
            assert log.record(roots).number == 0
            other.stdin.write("\n")
            other.stdin.flush()
            assert other.stdout.readline() == "done\n"
        assert other.returncode == 0
        assert offsets(log.record(roots[:1]), *roots) == [0, 0]


def test_a_process_that_died_holds_its_roots_until_it_expires(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws:
        roots = [ws.create(name).id for name in ("debits", "credits")]
        command = [sys.executable, "-c", OTHER, str(tmp_path / "ws")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as other:
            assert other.stdout.readline() == "half\n"
            other.kill()
        log = CutLog.of(ws)
        assert log.record(roots).number == 0
        later = tl.chain.Instant.now() + 301 * 10**9
        late = CutLog(ws._location.cuts(), log._chain_of, lambda: tl.chain.Instant(later))
        (dead,) = late.intents.unfinished()
        cut = late.record(roots)
        assert (offsets(cut, *roots), cut.broken) == ([0, -1], (dead.id,))


def test_a_transaction_takes_the_roots_of_what_is_named(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws:
        ds = ws.create("debits")
        with transaction(ws, "debits") as held:
            assert set(CutLog.of(ws).intents.read()[held.id].roots) == {ds.id}


# --- of a workspace -----------------------------------------------------------------------


def test_appends_join_the_transaction_they_are_made_in(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws, tl.open(tmp_path / "other", create=True) as elsewhere:
        orders, lines, stock = (ws.create(name) for name in ("orders", "lines", "stock"))
        log = CutLog.of(ws)
        everything = [orders.id, lines.id, stock.id]
        with ws.transaction("orders") as entered:
            elsewhere.create("orders").append([{"id": 1}])
            orders.append([{"id": 1}])
            assert log.record(everything).number == 0
            lines.append([{"order": 1}])
            assert log.record(everything).number == 0
            assert log.intents.read()[entered.id].roots.keys() == {orders.id, lines.id}
        stock.append([{"n": 1}])
        assert log.record([orders.id]).positions.keys() == {orders.id, lines.id}
        with pytest.raises(InputError, match="is closed"):
            entered.join(stock.id)
        orders.append([{"id": 2}])
        assert log.intents.read() == {}, "what is appended later joins nothing"


def test_appends_of_other_threads_are_held_where_their_datasets_are_named(tmp_path):
    """An append joins the transaction that its own thread is in: other threads are in none."""
    with tl.open(tmp_path / "ws", create=True) as ws, ThreadPoolExecutor(1) as pool:
        orders, lines = ws.create("orders"), ws.create("lines")

        def append():
            pool.submit(orders.append, [{"id": 1}]).result()
            between = ws.snapshot("orders", "lines").cut
            pool.submit(lines.append, [{"order": 1}]).result()
            return between

        with ws.transaction():
            assert append() == {"orders": 0, "lines": None}
            assert CutLog.of(ws).intents.read() == {}, "nothing has joined"
        with ws.transaction("orders", "lines") as entered:
            assert append() == {"orders": 0, "lines": 0}
            assert CutLog.of(ws).intents.read()[entered.id].roots.keys() == {orders.id, lines.id}
        CutLog.of(ws).record([orders.id])
        with ws.transaction() as entered:
            entered.join(orders.id, lines.id)
            assert append() == {"orders": 1, "lines": 1}
        assert ws.snapshot("orders", "lines").cut == {"orders": 2, "lines": 2}


def test_a_snapshot_of_roots_shows_a_transaction_as_a_whole_or_not_at_all(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws, tl.open(tmp_path / "ws") as other:
        orders, lines = ws.create("orders"), ws.create("lines")
        seen = []

        def look():
            with other.snapshot("orders", "lines") as snap:
                seen.append((*snap.cut.values(), *(snap[name].count() for name in snap)))

        for number in range(3):
            with ws.transaction("orders"):
                look()
                orders.append([{"id": number}])
                look()
                lines.append([{"order": number}, {"order": number}])
                look()
            look()
            CutLog.of(ws).record([orders.id])
            look()
        expected = [(None, None, 0, 0), (0, 1, 1, 2), (1, 3, 2, 4), (2, 5, 3, 6)]
        assert seen == [at for n in range(3) for at in [*[expected[n]] * 3, *[expected[n + 1]] * 2]]


@pytest.mark.parametrize("when", range(6))
def test_a_transaction_between_two_looks_of_a_snapshot_is_not_shown_in_part(tmp_path, monkeypatch, when):
    """Somebody begins and ends a transaction, and records a cut, while heads are looked at."""
    with tl.open(tmp_path / "ws", create=True) as ws, tl.open(tmp_path / "ws") as other:
        orders, lines = ws.create("orders"), ws.create("lines")
        steps = iter(range(100))
        seen = histories._seen

        def looking(dataset, moment):
            if next(steps) == when:
                with ws.transaction():
                    orders.append([{"id": 1}])
                    lines.append([{"order": 1}])
                CutLog.of(ws).record([orders.id, lines.id])
            return seen(dataset, moment)

        monkeypatch.setattr(histories, "_seen", looking)
        with other.snapshot("orders", "lines") as snap:
            assert set(snap.cut.values()) in ({None}, {0})


DAY = "2099-01-01T"


def at_times(ws, clock):
    """A function that sets the clock of a workspace to a time of a day."""

    def at(time):
        clock[0] = Instant.parse(f"{DAY}{time}Z")

    ws.clock = lambda: clock[0]
    return at


@pytest.mark.parametrize("recorded", [False, True])
def test_a_snapshot_at_a_time_shows_a_transaction_as_a_whole_or_not_at_all(tmp_path, recorded):
    with tl.open(tmp_path / "ws", create=True) as ws:
        at = at_times(ws, [Instant.now()])
        at("09:00:00")
        orders, lines = ws.create("orders"), ws.create("lines")
        orders.append([{"id": 0}])
        for minute in (0, 10):
            with ws.transaction():
                at(f"10:{minute:02}:00")
                orders.append([{"id": minute}])
                at(f"10:{minute:02}:05")
                lines.append([{"order": minute}])
            if recorded:
                CutLog.of(ws).record([orders.id])
        at("11:00:00")
        lines.append([{"order": 10}])
        at("12:00:00")
        if recorded:
            CutLog.of(ws).record([orders.id, lines.id])
        shown = {
            time: tuple(ws.snapshot("orders", "lines", at=f"{DAY}{time}Z").cut.values())
            for time in ("09:30:00", "10:00:02", "10:10:02", "11:30:00")
        }
        read = read_together(ws, ("orders", "lines"), f"{DAY}10:00:02Z")
        # Without cuts it is not known where one transaction ends and the next begins.
        between = (1, 0) if recorded else (0, None)
        assert shown == {
            "09:30:00": (0, None),
            "10:00:02": (0, None),
            "10:10:02": between,
            "11:30:00": (2, 2),
        }
        assert tuple(read.cut.values()) == (0, None)
        assert ws.snapshot("orders", at=f"{DAY}10:00:02Z").cut == {"orders": 1}, "alone it is not torn"


def test_roots_without_transactions_are_at_a_time_what_they_were(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws:
        at = at_times(ws, [Instant.now()])
        at("09:00:00")
        orders, lines = ws.create("orders"), ws.create("lines")
        for hour in (10, 12):
            at(f"{hour}:00:00")
            orders.append([{"id": 0}])
            lines.append([{"order": 0}])
        at("13:00:00")
        for each in (None, CutLog.of(ws).record([orders.id, lines.id])):
            assert ws.snapshot("orders", "lines", at=f"{DAY}11:00:00Z").cut == {"orders": 0, "lines": 0}, each


def test_one_that_did_not_finish_is_shown_at_a_time_as_it_is_shown_now(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws:
        at = at_times(ws, [Instant.now()])
        at("09:00:00")
        orders, _ = ws.create("orders"), ws.create("lines")
        at("10:00:00")
        held = expiring(ws, orders)
        at("10:01:00")
        assert ws.snapshot("orders", "lines", at=f"{DAY}10:00:30Z").cut == {"orders": None, "lines": None}
        at("11:00:00")
        assert ws.snapshot("orders", "lines", at=f"{DAY}10:00:30Z").cut == {"orders": 0, "lines": None}
        assert CutLog.of(ws).record([orders.id]).broken == (held.id,)
        assert ws.snapshot("orders", "lines", at=f"{DAY}10:00:30Z").cut == {"orders": 0, "lines": None}


def expiring(ws, orders):
    """A transaction that has appended to the first of two roots, and whose owner sleeps."""
    held = ws.transaction("orders", "lines")
    held.__enter__()
    held._stop.set()
    orders.append([{"id": 1}])
    return held


def test_the_owner_of_one_that_a_reader_has_passed_is_told(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws, tl.open(tmp_path / "ws") as other:
        orders, lines = ws.create("orders"), ws.create("lines")
        held = expiring(ws, orders)
        other.clock = lambda: Instant(Instant.now() + 301 * SECOND)
        assert other.snapshot("orders", "lines").cut == {"orders": 0, "lines": None}
        lines.append([{"order": 1}])
        assert not held.renew()
        with pytest.raises(OutcomeUnknown, match="has expired"):
            held.__exit__(None, None, None)
        assert CutLog.of(ws).record([orders.id]).broken == (held.id,)


def test_a_reader_who_cannot_tell_the_owner_of_one_that_is_over_does_not_pass_it(tmp_path, monkeypatch):
    with tl.open(tmp_path / "ws", create=True) as ws, tl.open(tmp_path / "ws") as other:
        orders, lines = ws.create("orders"), ws.create("lines")
        held = expiring(ws, orders)
        other.clock = lambda: Instant(Instant.now() + 301 * SECOND)

        def refused(self, name, kept, data):
            raise StorageReadOnly("nobody can write here", remedy="work on a copy")

        with monkeypatch.context() as patched:
            patched.setattr(FolderObjects, "swap", refused)
            assert other.snapshot("orders", "lines").cut == {"orders": None, "lines": None}
        lines.append([{"order": 1}])
        held.__exit__(None, None, None)
        assert other.snapshot("orders", "lines").cut == {"orders": 0, "lines": 0}


def test_one_that_expired_no_longer_holds_snapshots_and_is_named_by_the_pull(tmp_path, spark):
    with tl.open(tmp_path / "ws", create=True, spark=spark) as ws:
        orders, lines = ws.create("orders"), ws.create("lines")
        orders.append([{"id": 0}])
        lines.append([{"order": 0}])
        ws.derive("joined", "select o.id, l.order from orders o join lines l on o.id = l.order")
        ws.pull()
        held = ws.transaction("orders", "lines")
        held.__enter__()
        held._stop.set()  # its process died
        orders.append([{"id": 1}])
        assert ws.snapshot("orders", "lines").cut == {"orders": 0, "lines": 0}
        assert ws.pull()["joined"].told.startswith("held by transaction ")
        ws.clock = lambda: Instant(Instant.now() + 301 * SECOND)
        assert ws.snapshot("orders", "lines").cut == {"orders": 1, "lines": 0}
        done = ws.pull()["joined"]
        assert done.broken == (held.id,)
        assert f"cut 2 may show a part of transactions that did not finish: {held.id[:8]}" in done.told
        assert done.to_dict()["broken"] == [held.id]
        with pytest.raises(OutcomeUnknown, match="has expired"):
            held.__exit__(None, None, None)
