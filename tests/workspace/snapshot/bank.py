"""The bank: transfers, and views of them whose sums cannot differ at one state of the world."""

from __future__ import annotations

import pyarrow as pa

from tests.workspace.snapshot.local import Local


def summed(column):
    """A function: the sum of amounts by a column of transfers."""

    def compute(transfers):
        found = {}
        for row in transfers:
            found[row[column]] = found.get(row[column], 0) + row["amount"]
        return [{"account": account, "amount": amount} for account, amount in sorted(found.items())]

    return compute


def balanced(credits, debits):  # noqa: A002 (the names of datasets)
    """Credits less debits by account; an account may have only one of them."""
    found = {row["account"]: row["amount"] for row in credits}
    for row in debits:
        found[row["account"]] = found.get(row["account"], 0) - row["amount"]
    return [{"account": account, "amount": amount} for account, amount in sorted(found.items())]


def total(balances):
    return [{"id": 1, "amount": sum(row["amount"] for row in balances)}]


TRANSFERS = pa.schema({name: pa.int64() for name in ("id", "sender", "receiver", "amount")})
AMOUNTS = {"account": pa.int64(), "amount": pa.int64()}
VIEWS = ("credits", "debits", "balances", "total")


class Bank(Local):
    """Transfers between ten accounts, and what is derived from them: the total is always zero.

    A bank that is there already is taken up.
    """

    def __init__(self, workspace):
        super().__init__(workspace)
        self.made = 0
        if "transfers" not in workspace:
            workspace.create("transfers", schema=TRANSFERS)
        self.derive("credits", ("transfers",), summed("receiver"), AMOUNTS)
        self.derive("debits", ("transfers",), summed("sender"), AMOUNTS)
        self.derive("balances", ("credits", "debits"), balanced, AMOUNTS)
        self.derive("total", ("balances",), total, {"id": pa.int64(), "amount": pa.int64()})

    def transfer(self, count=1):
        """Append transfers: each moves one more than the one before."""
        numbers = range(self.made, self.made + count)
        self.made += count
        rows = [{"id": n, "sender": n % 10, "receiver": (n + 1) % 10, "amount": n + 1} for n in numbers]
        return self.workspace["transfers"].append(pa.Table.from_pylist(rows))

    def expected(self, offset):
        """What each view holds after the transfers up to an offset."""
        count = 0 if offset is None else offset + 1
        rows = [{"sender": n % 10, "receiver": (n + 1) % 10, "amount": n + 1} for n in range(count)]
        made = {"credits": summed("receiver")(rows), "debits": summed("sender")(rows)}
        made["balances"] = balanced(**made)
        return made | {"total": total(made["balances"])}
