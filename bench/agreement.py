"""Tables that agree: a bank read while it is updated, when writes are visible, what recording cuts costs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
import pyarrow as pa

import trueline as tl
from bench.machine import lacks_bytes
from bench.run import Run
from bench.table import Row, Value, duration
from bench.timing import Samples, settle, timed
from trueline.chain.store.file import FileStore
from trueline.workspace.cuts.log import CutLog

ROWS: Final = {"tiny": 3_000, "quick": 1_000_000, "normal": 10_000_000, "full": 10_000_000}
READINGS: Final = {"tiny": 4, "quick": 1_000, "normal": 1_000, "full": 1_000}
COMMITS: Final = {"tiny": 2, "quick": 10, "normal": 10, "full": 10}
ACCOUNTS: Final = 10
BYTES_OF_A_ROW: Final = 40
VIEWS: Final = {"tiny": (1, 2), "quick": (1, 5, 20), "normal": (1, 5, 20), "full": (1, 5, 20)}
ROOTS: Final = {"tiny": (5, 20), "quick": (5, 500), "normal": (5, 500), "full": (5, 500)}
ROUNDS: Final = {"tiny": 2, "quick": 5, "normal": 10, "full": 10}
FEW: Final = 5
BESIDE: Final = 1.5
BANK: Final = {
    "credits": "select receiver as account, sum(amount) as credit from transfers group by receiver",
    "debits": "select sender as account, sum(amount) as debit from transfers group by sender",
    "balances": "select coalesce(c.account, d.account) as account, "
    "coalesce(credit, 0) - coalesce(debit, 0) as amount "
    "from credits c full outer join debits d on c.account = d.account",
    "total": "select 1 as id, sum(amount) as amount, sum(greatest(amount, 0)) as owed from balances",
}


def transfers(start: int, count: int) -> pa.Table:
    """Return transfers in order, each to the next account (data B of streaming-consistency).

    Each moves one more than the one before: equal amounts even out, and every balance is zero at every cut.
    """
    ids = np.arange(start, start + count)
    sender = ids % ACCOUNTS
    columns = {"id": ids, "sender": sender, "receiver": (sender + 1) % ACCOUNTS}
    return pa.table({**columns, "amount": ids + 1})


# --- the bank -------------------------------------------------------------------------------------


Table = list[dict[str, int]]


@dataclass
class Ledger:
    """What each table of the bank holds at a cut, added up from the first transfer by numpy, not by Spark.

    Cuts go forwards, as a rule: then only what came since the one before is added.
    """

    count: int = 0
    credit: Any = field(default_factory=lambda: np.zeros(ACCOUNTS, np.int64))
    debit: Any = field(default_factory=lambda: np.zeros(ACCOUNTS, np.int64))

    def at(self, count: int) -> dict[str, Table]:
        """Return the tables after so many transfers."""
        if count < self.count:
            self.count, self.credit, self.debit = 0, np.zeros_like(self.credit), np.zeros_like(self.debit)
        new = transfers(self.count, count - self.count)
        amounts = new["amount"].to_numpy()
        for column, made in (("receiver", self.credit), ("sender", self.debit)):
            # As floats, which are exact below 2^53: ten million transfers move 5·10¹³.
            sums = np.bincount(new[column].to_numpy(), weights=amounts, minlength=ACCOUNTS)
            np.add(made, sums.astype(np.int64), out=made)
        self.count = count
        net = self.credit - self.debit
        return {
            "credits": _by_account("credit", self.credit, self.credit > 0),
            "debits": _by_account("debit", self.debit, self.debit > 0),
            "balances": _by_account("amount", net, (self.credit > 0) | (self.debit > 0)),
            "total": [{"id": 1, "amount": int(net.sum()), "owed": int(net[net > 0].sum())}],
        }


def _by_account(column: str, sums: Any, is_there: Any) -> Table:
    return [{"account": int(each), column: int(sums[each])} for each in np.flatnonzero(is_there)]


@dataclass
class Dashboard:
    """Reads the bank again and again while others update it: the newest of each table, and a snapshot.

    The newest are wrong where one does not fit another; a snapshot is torn where any table is not what all
    transfers up to its cut add up to. What ended the reading is `failed`, and raised to those who wait for
    readings.
    """

    place: Path
    readings: int = 0
    naive: int = 0
    torn: int = 0
    taken: list[float] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)
    failed: BaseException | None = None
    ledger: Ledger = field(default_factory=Ledger)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read in a thread of its own until the end."""
        reader = threading.Thread(target=self.run)
        reader.start()
        try:
            yield
        finally:
            self.is_over.set()
            reader.join()
        self.lacks(0)

    def lacks(self, least: int) -> bool:
        """Say whether there are fewer readings than that."""
        if self.failed is not None:
            raise self.failed
        return self.readings < least

    def run(self) -> None:
        try:
            with tl.open(self.place) as workspace:
                while not self.is_over.is_set():
                    self.read(workspace)
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            self.failed = error

    def read(self, workspace: tl.Workspace) -> None:
        self.naive += does_not_fit(_rows({name: workspace[name].view() for name in BANK}))
        start = perf_counter()
        with workspace.snapshot(*BANK) as snap:
            self.taken.append(perf_counter() - start)
            found = _rows({name: snap[name] for name in BANK})
            self.torn += found != self.ledger.at((snap.cut["transfers"] or 0) + 1)
        self.readings += 1


def _rows(views: dict[str, Any]) -> dict[str, Table]:
    found = {name: view.to_arrow().to_pylist() for name, view in views.items()}
    return {name: sorted(table, key=lambda row: next(iter(row.values()))) for name, table in found.items()}


def does_not_fit(found: dict[str, Table]) -> bool:
    """Say whether tables show money that is not there: one is not what others add up to."""
    credit = {row["account"]: row["credit"] for row in found["credits"]}
    debit = {row["account"]: row["debit"] for row in found["debits"]}
    net = {name: credit.get(name, 0) - debit.get(name, 0) for name in credit | debit}
    balances = {row["account"]: row["amount"] for row in found["balances"]}
    owed = sum(max(amount, 0) for amount in balances.values())
    total = [{"id": 1, "amount": sum(balances.values()), "owed": owed}]
    return sum(net.values()) != 0 or balances != net or found["total"] != total


def bank(run: Run) -> Iterator[Row]:
    rows, least = ROWS[run.scale.name], READINGS[run.scale.name]
    size = rows // COMMITS[run.scale.name]
    if missing := lacks_bytes(run.folder, 3 * rows * BYTES_OF_A_ROW):
        yield Row("bank", f"{rows:,} transfers", note=f"bank was not measured: {missing}")
        return
    place = run.folder / "bank"
    with tl.open(place, create=True) as workspace:
        dataset = workspace.create("transfers")
        dataset.append(transfers(0, size))
        for name, query in BANK.items():
            workspace.derive(name, query, key="id" if name == "total" else "account")
        with run.doing("computing the first commit"):
            workspace.pull()
        dashboard = Dashboard(place)
        start, number = perf_counter(), size
        with dashboard.reading():
            # So many readings while something is under way, beyond the rows if need be.
            while dashboard.lacks(least) or number < rows:
                count = size if number < rows else ACCOUNTS
                dataset.append(transfers(number, count))
                number += count
                for name in BANK:
                    workspace.pull(name)
        seconds = perf_counter() - start
    yield Row(
        "bank",
        f"{number:,} transfers in {seconds:.0f} s, {dashboard.readings:,} readings meanwhile: wrong totals",
        Value(f"{dashboard.torn:,} by snapshots", {"torn": dashboard.torn, "readings": dashboard.readings}),
        Value(f"{dashboard.naive:,} by the newest of each", {"naive": dashboard.naive}),
        goal="0, beside more",
        met=dashboard.torn == 0 and dashboard.naive > 0,
    )
    yield Row(
        "bank", "a snapshot of four tables, while they are updated", duration(Samples(tuple(dashboard.taken)))
    )


# --- when a write is visible ------------------------------------------------------------------------


def visible(run: Run) -> Iterator[Row]:
    counts = VIEWS[run.scale.name]
    with tl.open(run.folder / "visible", create=True) as workspace:
        dataset = workspace.create("transfers")
        dataset.append(transfers(0, 1_000))
        names = [f"view{number}" for number in range(max(counts))]
        for number, name in enumerate(names):
            workspace.derive(
                name,
                f"select sender, sum(amount + {number}) as n from transfers group by sender",
                key="sender",
            )
        with run.doing(f"computing {len(names)} views"):
            workspace.pull()
        start = 1_000
        for count in counts:
            own, whole = [], []
            for _ in range(ROUNDS[run.scale.name] + 1):
                pulled: list[float] = []
                begun = perf_counter()
                commit = dataset.append(transfers(start, 100))
                appended = perf_counter() - begun
                puller = threading.Thread(target=_pull, args=(workspace, names[:count], pulled))
                puller.start()
                commit.wait(*names[:count]).close()
                whole.append(perf_counter() - begun)
                puller.join()
                own.append(appended + pulled[0])
                start += 100
            yield _latency(count, Samples(tuple(whole[1:])), Samples(tuple(own[1:])))


def _pull(workspace: tl.Workspace, names: list[str], taken: list[float]) -> None:
    taken.append(timed(lambda: workspace.pull(*names)))


def _latency(count: int, whole: Samples, own: Samples) -> Row:
    ratio = whole.median / own.median
    what = (
        f"from before the append until it is visible in {count} view{'s' * (count != 1)}, "
        "beside that append and that pull by themselves"
    )
    return Row("visible", what, duration(whole), duration(own), ratio, f"≤ {BESIDE}", ratio <= BESIDE)


# --- recording cuts ---------------------------------------------------------------------------------


def cuts(run: Run) -> Iterator[Row]:
    few, many = ROOTS[run.scale.name]
    with _roots(run, few) as small, _roots(run, many) as large:
        settle()
        actions: dict[str, Callable[[], float]] = {
            "few": small.record,
            "of many": lambda: large.record(FEW),
            "many": lambda: large.record(many),
        }
        heads = {name: _heads(action) for name, action in actions.items()}
        rounds = range(2 * ROUNDS[run.scale.name])
        found = [{name: action() for name, action in actions.items()} for _ in rounds]
    taken = {name: Samples(tuple(each[name] for each in found)) for name in actions}
    yield _recorded(f"{FEW} roots of {many:,}", heads["of many"], taken["of many"], taken["few"], few)
    yield _recorded(f"{many:,} roots, all of them", heads["many"], taken["many"], taken["few"], few)


def _recorded(what: str, heads: int, ours: Samples, beside: Samples, few: int) -> Row:
    return Row(
        "cuts",
        f"record a cut of {what} ({heads:,} heads read)",
        duration(ours),
        duration(beside, f"{few} of {few}: "),
        ours.median / beside.median,
        note="cuts: one of the roots has moved; a pull records one cut, whatever it computes.",
    )


@dataclass
class _Roots:
    workspace: tl.Workspace
    names: list[str]
    moved: int = 0

    def record(self, count: int = FEW) -> float:
        """Return how long it takes after one of them has moved: without that nothing is put."""
        self.moved += 1
        self.workspace["root0"].append(transfers(self.moved, 1))
        roots = [self.workspace[name].id for name in self.names[:count]]
        log = CutLog.of(self.workspace)
        return timed(lambda: log.record(roots))


@contextmanager
def _roots(run: Run, count: int) -> Iterator[_Roots]:
    place = run.folder / f"roots-{count}"
    with tl.open(place, create=True) as workspace:
        workspace.config.set("storage.durable", False)
        names = [f"root{number}" for number in range(count)]
        with run.doing(f"writing {count:,} roots"):
            for name in names:
                workspace.create(name).append(transfers(0, 10))
    with tl.open(place) as workspace:
        yield _Roots(workspace, names)


def _heads(action: Callable[[], object]) -> int:
    """How many heads an action reads, each counted once: that of the append before it is among them."""
    asked, head = [], FileStore.head

    def counting(store: FileStore, ref: str = "head") -> Any:
        asked.append(store)
        return head(store, ref)

    FileStore.head = counting  # type: ignore[method-assign]
    try:
        action()
    finally:
        FileStore.head = head  # type: ignore[method-assign]
    return len(set(map(id, asked)))
