"""Records that an input lost for good: what follows it loses them too, whatever its strategy."""

from __future__ import annotations

import pytest

import trueline as tl
from tests.workspace.derive.following import follow_all
from trueline.dataset.derivation import derivation_at
from trueline.workspace.derive import follow, strategies

QUERIES = {
    "large": ("stateless", "select id, amount from transfers where amount > 1", "id"),
    "balances": ("keyed", "select account, sum(amount) as total from transfers group by account", "account"),
    "ranked": ("recompute", "select id, row_number() over (order by id) as at from transfers", "id"),
}


def transfers(*ids):
    return [{"id": number, "account": "ab"[number % 2], "amount": float(number)} for number in ids]


def shown(workspace):
    return {
        name: sorted(tuple(row.values()) for row in workspace[name].view().to_arrow().to_pylist())
        for name in QUERIES
    }


def expected(*ids):
    totals = {account: sum(map(float, found)) for account, found in _by_account(ids).items()}
    return {
        "large": [(number, float(number)) for number in ids if number > 1],
        "balances": sorted(totals.items()),
        "ranked": [(number, at) for at, number in enumerate(ids, 1)],
    }


def _by_account(ids):
    return {account: found for at, account in enumerate("ab") if (found := [i for i in ids if i % 2 == at])}


@pytest.fixture
def reasons(monkeypatch):
    """By which strategy each dataset came where it is, and why by no better one."""
    found, advance = {}, strategies.advance_by

    def noted(given):
        made = advance(given)
        found[given.dataset.name] = (made.strategy, made.reason)
        return made

    monkeypatch.setattr(follow, "advance_by", noted)
    return found


@pytest.mark.contract("derive:V1")
@pytest.mark.contract("derive:V17")
def test_records_removed_from_an_input_leave_what_follows_it(spark_workspace, reasons):
    ws = spark_workspace
    source = ws.create("transfers", merge=tl.merge.upsert("id"))
    source.append(transfers(1, 2, 3, 4, 5))
    # Before the first pull: the increments that follow know nothing of it.
    source.drop_data(where="id = 5", reason="asked to")
    for name, (strategy, text, key) in QUERIES.items():
        assert derivation_at(ws.derive(name, text, key=key).chain.tail()).strategy == strategy
    follow_all(ws, list(QUERIES))
    source.append(transfers(6))
    follow_all(ws, list(QUERIES))
    assert reasons == {
        "large": ("stateless", ""),
        "balances": ("keyed", ""),
        "ranked": ("recompute", "window"),
    }
    assert shown(ws) == expected(1, 2, 3, 4, 6)

    # After it, and nothing else happened.
    source.drop_data(where="id = 3", reason="asked to")
    follow_all(ws, list(QUERIES))
    removed = ("recompute", "records_removed")
    assert (reasons["large"], reasons["balances"]) == (removed, removed)
    assert shown(ws) == expected(1, 2, 4, 6)

    # Between two appends that are pulled together.
    source.append(transfers(7))
    source.drop_data(where="id = 4", reason="asked to")
    source.append(transfers(8))
    follow_all(ws, list(QUERIES))
    assert (reasons["large"], reasons["balances"]) == (removed, removed)
    assert shown(ws) == expected(1, 2, 6, 7, 8)

    source.append(transfers(9))
    follow_all(ws, list(QUERIES))
    assert (reasons["large"], reasons["balances"]) == (("stateless", ""), ("keyed", ""))
    assert shown(ws) == expected(1, 2, 6, 7, 8, 9)
    report = ws.verify(*QUERIES, replay="head")
    assert (report.problems, report.replayed) == ((), 3)
