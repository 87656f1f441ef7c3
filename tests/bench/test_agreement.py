"""The bank of the bench: what goes wrong with its readings is raised to those who wait for them."""

from __future__ import annotations

from itertools import permutations

import pytest

from bench.agreement import BANK, Dashboard, Ledger, does_not_fit, transfers
from trueline.errors import InputError


def test_readings_that_failed_end_the_bank(tmp_path):
    dashboard = Dashboard(tmp_path / "nowhere")
    with pytest.raises(InputError), dashboard.reading():
        while dashboard.lacks(4):
            dashboard.is_over.wait(0.001)
    assert dashboard.is_over.is_set()
    with pytest.raises(InputError), dashboard.reading():
        pass  # nobody waited


@pytest.mark.contract("cut:P13")
def test_each_table_of_the_bank_is_judged_at_each_cut():
    counts = [1_500, 3_000, 3_010, 3_020, 250_000, 260_130, 1_000_000, 1_000_010]
    ledger = Ledger()
    at = {count: ledger.at(count) for count in counts}
    assert at == {count: added_up(count) for count in counts}
    assert ledger.at(1_500) == at[1_500], "a cut that goes back is added up again"
    for here, there in permutations(at.values(), 2):
        assert not does_not_fit(here)
        for name in BANK:
            assert here[name] != there[name], "a table of another cut would not be seen"
            assert does_not_fit(here | {name: there[name]})


def added_up(count):
    """The tables after so many transfers, by Arrow."""
    table = transfers(0, count)
    made = {}
    for name, column, called in (("credits", "receiver", "credit"), ("debits", "sender", "debit")):
        sums = table.group_by(column).aggregate([("amount", "sum")]).sort_by(column)
        pairs = zip(sums[column].to_pylist(), sums["amount_sum"].to_pylist(), strict=True)
        made[name] = [{"account": account, called: amount} for account, amount in pairs]
    assert len(made["credits"]) == len(made["debits"]) == 10
    amounts = [c["credit"] - d["debit"] for c, d in zip(made["credits"], made["debits"], strict=True)]
    made["balances"] = [{"account": account, "amount": amount} for account, amount in enumerate(amounts)]
    owed = sum(amount for amount in amounts if amount > 0)
    return made | {"total": [{"id": 1, "amount": sum(amounts), "owed": owed}]}
