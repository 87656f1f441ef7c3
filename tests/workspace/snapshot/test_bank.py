"""The bank at a size: 100,000 transfers, updated by pulls, and read a thousand times meanwhile."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.computed_here import computing
from tests.workspace.snapshot.bank import VIEWS, Bank, balanced, total

COMMITS, ROWS = 10, 10_000
# After each pull the writer waits for so many readings; others come while it pulls.
READINGS = 25


def transfers(start):
    ids = pa.array(range(start, start + ROWS))
    sender = pa.array([number % 10 for number in range(ROWS)])
    receiver = pa.array([(number + 1) % 10 for number in range(ROWS)])
    return pa.table({"id": ids, "sender": sender, "receiver": receiver, "amount": pa.array([1] * ROWS)})


def summed(table, column):
    found = table.group_by(column).aggregate([("amount", "sum")]).sort_by(column)
    return pa.table({"account": found[column], "amount": found["amount_sum"]})


def computed(name, inputs):
    """What a pull of the bank computes, by tables."""
    if name in ("credits", "debits"):
        return summed(inputs["transfers"], "receiver" if name == "credits" else "sender")
    rows = {alias: table.to_pylist() for alias, table in inputs.items()}
    return pa.Table.from_pylist(balanced(**rows) if name == "balances" else total(**rows))


class Dashboard:
    """Reads the newest of each table and a snapshot; what a commit shows is read once."""

    def __init__(self):
        self.readings = self.naive = self.torn = 0
        self.cuts, self.shown = set(), {}
        self.changed = threading.Condition()
        self.is_over = False

    def read(self, ws):
        self.naive += self.is_wrong(ws, {name: ws[name].head for name in VIEWS})
        with ws.snapshot(*VIEWS) as snap:
            count = snap.cut["transfers"] + 1
            self.torn += self.is_wrong(ws, {name: at.block for name, at in snap.positions.items()}, count)
        with self.changed:
            self.cuts.add(count)
            self.readings += 1
            self.changed.notify_all()

    def is_wrong(self, ws, heads, count=None):
        for key in heads.items():
            if key not in self.shown:
                self.shown[key] = {
                    tuple(row.values()) for row in ws[key[0]].view(key[1]).to_arrow().to_pylist()
                }
        made = {name: dict(self.shown[name, block]) for name, block in heads.items()}
        money = sum(made["credits"].values())
        is_whole = money == sum(made["debits"].values()) and count in (None, money)
        net = {account: credit - made["debits"][account] for account, credit in made["credits"].items()}
        return not is_whole or made["balances"] != net or made["total"] != {1: 0}

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
    assert dashboard.naive > 0, "the newest of each have to disagree at times, or nothing was shown"
    assert len(dashboard.cuts) > COMMITS // 2, "and snapshots to move on"
