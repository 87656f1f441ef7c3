"""The bank at a size: 100,000 transfers, updated by pulls, and read a thousand times meanwhile."""

from __future__ import annotations

import threading
from itertools import combinations

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.computed_here import computing
from tests.workspace.snapshot.bank import VIEWS, Bank, balanced

COMMITS, ROWS = 10, 10_000
# After each pull the writer waits for so many readings; others come while it pulls.
READINGS = 25


def transfers(start):
    """Transfers whose amounts do not even out: what each view holds is different after each commit."""
    ids = range(start, start + ROWS)
    sender = pa.array([number % 10 for number in ids])
    receiver = pa.array([(number + 1) % 10 for number in ids])
    amount = pa.array([number % 1013 + 1 for number in ids])
    return pa.table({"id": pa.array(ids), "sender": sender, "receiver": receiver, "amount": amount})


def summed(table, column):
    found = table.group_by(column).aggregate([("amount", "sum")]).sort_by(column)
    return pa.table({"account": found[column], "amount": found["amount_sum"]})


def totals(balances):
    """What all accounts hold together, which is nothing, and what is owed to those that hold something."""
    amounts = [row["amount"] for row in balances]
    return [{"id": 1, "amount": sum(amounts)}, {"id": 2, "amount": sum(n for n in amounts if n > 0)}]


def computed(name, inputs):
    """What a pull of the bank computes, by tables."""
    if name in ("credits", "debits"):
        return summed(inputs["transfers"], "receiver" if name == "credits" else "sender")
    rows = {alias: table.to_pylist() for alias, table in inputs.items()}
    return pa.Table.from_pylist(balanced(**rows) if name == "balances" else totals(**rows))


def from_scratch(count):
    """What the views hold after the first transfers, added up one by one."""
    made = {name: dict.fromkeys(range(10), 0) for name in ("credits", "debits", "balances")}
    for number in range(count):
        amount, sender, receiver = number % 1013 + 1, number % 10, (number + 1) % 10
        made["credits"][receiver] += amount
        made["debits"][sender] += amount
        made["balances"][receiver] += amount
        made["balances"][sender] -= amount
    owed = sum(amount for amount in made["balances"].values() if amount > 0)
    return made | {"total": {1: 0, 2: owed}}


class Dashboard:
    """Reads the newest of each table and a snapshot; what a commit shows is read once.

    `naive` counts the readings of the newest in which a table does not fit those that it is computed from.
    """

    def __init__(self):
        self.readings = self.torn = 0
        self.naive = dict.fromkeys(("debits", "balances", "total"), 0)
        self.expected = {count: from_scratch(count) for count in range(ROWS, COMMITS * ROWS + 1, ROWS)}
        self.cuts, self.shown = set(), {}
        self.changed = threading.Condition()
        self.is_over = False

    def read(self, ws):
        newest = self.look(ws, {name: ws[name].head for name in VIEWS})
        net = {each: credit - newest["debits"][each] for each, credit in newest["credits"].items()}
        self.naive["debits"] += sum(net.values()) != 0
        self.naive["balances"] += newest["balances"] != net
        self.naive["total"] += newest["total"][2] != sum(max(0, n) for n in newest["balances"].values())
        with ws.snapshot(*VIEWS) as snap:
            count = snap.cut["transfers"] + 1
            made = self.look(ws, {name: at.block for name, at in snap.positions.items()})
            self.torn += made != self.expected[count]
        with self.changed:
            self.cuts.add(count)
            self.readings += 1
            self.changed.notify_all()

    def look(self, ws, heads):
        for key in heads.items():
            if key not in self.shown:
                rows = ws[key[0]].view(key[1]).to_arrow().to_pylist()
                self.shown[key] = dict(tuple(row.values()) for row in rows)
        return {name: self.shown[name, block] for name, block in heads.items()}

    def wait(self, readings):
        with self.changed:
            self.changed.wait_for(lambda: self.readings >= readings or self.is_over)

    def end(self):
        with self.changed:
            self.is_over = True
            self.changed.notify_all()


@pytest.mark.contract("cut:P13")
def test_a_thousand_readings_of_100_000_transfers_show_no_money_that_is_not_there(tmp_path):
    dashboard, failed = Dashboard(), []
    for one, other in combinations(dashboard.expected.values(), 2):
        assert all(one[name] != other[name] for name in VIEWS), "one table of another cut would not be seen"

    def update(ws):
        try:
            for number in range(1, COMMITS):
                ws["transfers"].append(transfers(number * ROWS))
                for name in VIEWS:
                    ws.pull(name)
                    dashboard.wait(dashboard.readings + READINGS)
            dashboard.wait(1000)
        except BaseException as error:  # noqa: BLE001 (shown by the test)
            failed.append(error)

    with tl.open(tmp_path / "ws", create=True) as ws, computing(computed):
        ws.config.set("storage.durable", "false")
        Bank(ws)
        ws["transfers"].append(transfers(0))
        ws.pull()
        writer = threading.Thread(target=update, args=(ws,))
        writer.start()
        try:
            with tl.open(tmp_path / "ws") as other:
                while writer.is_alive():
                    dashboard.read(other)
        finally:
            dashboard.end()
            writer.join()
        assert not failed, failed
        assert ws["transfers"].view().count() == COMMITS * ROWS == 100_000
    assert dashboard.readings >= 1000
    assert dashboard.torn == 0
    assert min(dashboard.naive.values()) > 0, "the newest of each have to disagree, or nothing was shown"
    assert len(dashboard.cuts) > COMMITS // 2, "and snapshots to move on"
