"""A chapter of the demo: tables of a bank that are updated one by one, read where they agree."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trueline
from trueline.errors import EnvironmentMissing

if TYPE_CHECKING:
    from trueline import View
    from trueline.console import Console
    from trueline.workspace import Workspace

_QUERIES = {
    "credits": "select receiver as account, sum(amount) as credit from transfers group by receiver",
    "debits": "select sender as account, sum(amount) as debit from transfers group by sender",
    "balances": "select coalesce(c.account, d.account) as account, "
    "coalesce(credit, 0) - coalesce(debit, 0) as amount "
    "from credits c full outer join debits d on c.account = d.account",
    "total": "select 1 as id, sum(amount) as amount from balances",
}
# Who pulls what, one after the other.
_PULLS = ("credits", "debits", "total")


def read_bank(console: Console, folder: Path) -> dict[str, Any] | None:
    """Update the tables of a bank one by one and read them in between; None where there is no Spark."""
    with trueline.open(folder, create=True) as workspace:
        try:
            _prepare(workspace)
        except EnvironmentMissing as missing:
            console.say(f"  left out, as there is no Spark here: {missing.problem}", "faint")
            return None
        dashboard = _Dashboard(console, workspace)
        commit = _transfer(workspace, 1)
        dashboard.read(f"{commit.rows} transfers come in")
        for name in _PULLS:
            workspace.pull(name)
            dashboard.read(f"{name} pulled")
        with commit.wait(*_QUERIES) as seen:
            console.say(f"  the last transfers are visible in all tables, at {seen.shown_cut}", "good")
        return dashboard.facts


def _prepare(workspace: Workspace) -> None:
    workspace.create("transfers", merge=trueline.merge.ledger("id"))
    _transfer(workspace, 0)
    for name, query in _QUERIES.items():
        workspace.derive(name, query, key="id" if name == "total" else "account")
    workspace.pull()


def _transfer(workspace: Workspace, number: int) -> Any:
    """Move money between ten accounts a hundred times."""
    ids = range(100 * number, 100 * number + 100)
    rows = [
        {"id": n, "sender": n * 7 % 10, "receiver": (n * 7 + 1 + n % 9) % 10, "amount": n % 50} for n in ids
    ]
    return workspace["transfers"].append(rows)


@dataclass
class _Dashboard:
    """Shows credits less debits, which are the same money: from the newest tables, and from a snapshot."""

    console: Console
    workspace: Workspace
    readings: int = 0
    naive: list[int] = field(default_factory=list)
    agreed: list[int] = field(default_factory=list)

    def read(self, when: str) -> None:
        newest = _money({name: self.workspace[name].view() for name in _QUERIES})
        with self.workspace.snapshot(*_QUERIES) as snap:
            agreed = _money({name: snap[name] for name in _QUERIES})
            cut = snap.shown_cut
        self.readings += 1
        self.naive.append(newest)
        self.agreed.append(agreed)
        shown = f"  {when:<22} newest of each {newest:+7,}"
        self.console.say(f"{shown}   snapshot {agreed:+d}, at {cut}", "bad" if newest else "faint")

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "readings": self.readings,
            "naive wrong": sum(map(bool, self.naive)),
            "snapshots wrong": sum(map(bool, self.agreed)),
        }


def _money(views: dict[str, View]) -> int:
    """How much money appears: zero if the tables show one state of the world."""
    credit, debit, balance, total = (
        sum(views[name].to_arrow()[column].to_pylist())
        for name, column in (
            ("credits", "credit"),
            ("debits", "debit"),
            ("balances", "amount"),
            ("total", "amount"),
        )
    )
    return int(abs(credit - debit) or abs(credit - debit - balance) or abs(balance - total))
