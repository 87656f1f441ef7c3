"""The bank: money moves between accounts, and the sum of all balances is nought; naive and aligned.

What is asserted is that every total that is ever shown is the total of some prefix of the transfers. With an
inner join of credits and debits it need not be nought: an account that was only paid is left out.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.flow.simulator.traces import outcomes
from trueline.errors import Counterexample
from trueline.flow import Flow, Machine, nondet

WHY = nondet("totals are shown as they come")


def transfers(count: int, simple: bool = False, accounts: int = 10) -> list[tuple[int, int]]:
    """Data A (random accounts, delayed) or data B (in order, each account pays the next)."""
    if simple:
        return [(n % accounts, (n + 1) % accounts) for n in range(count)]
    random = Random(42)
    rows = []
    for number in range(count):
        second = 60 * number // count
        delay = random.uniform(0, 10)
        rows.append(
            (second + delay, number, random.randint(0, accounts - 1), random.randint(0, accounts - 1))
        )
    return [(payer, payee) for _, _, payer, payee in sorted(rows)]


def added(balance: dict[int, int] | tuple, account: int) -> tuple:
    """A count per account, as a sorted tuple of pairs."""
    counts = dict(balance)
    counts[account] = counts.get(account, 0) + 1
    return tuple(sorted(counts.items()))


def total(credits_: tuple, debits: tuple) -> int:
    """The sum of credits − debits over accounts that have both: the benchmark's inner join."""
    paid = dict(debits)
    return sum(got - paid[account] for account, got in credits_ if account in paid)


def truths(rows) -> list[int]:
    """The total of every prefix."""
    credits_: tuple = ()
    debits: tuple = ()
    found = [0]
    for payer, payee in rows:
        credits_, debits = added(credits_, payee), added(debits, payer)
        found.append(total(credits_, debits))
    return found


def bank(aligned: bool) -> Flow:
    flow = Flow("bank")
    p = flow.process("bank")
    rows = p.source("transfers")
    credits_ = rows.fold((), lambda a, row: added(a, row[1]))
    debits = rows.fold((), lambda a, row: added(a, row[0]))
    tick = p.tick("showing")
    if aligned:
        point = p.local_align_point("books")
        both = [each.snapshot_aligned(tick, point, WHY) for each in (credits_, debits)]
    else:
        both = [each.snapshot(tick, WHY) for each in (credits_, debits)]
    p.sink("totals", both[0].zip(both[1]).map(lambda pair: total(*pair)).all_ticks())
    return flow


def shown(rows):
    def body(sim):
        sim.send("transfers", *rows)
        sim.quiesce()
        return tuple(sim.collect("totals"))

    return body


def follows(values, prefixes) -> bool:
    """Whether totals are those of prefixes, each at least as long as the one before."""
    at = 0
    for value in values:
        while at < len(prefixes) and prefixes[at] != value:
            at += 1
        if at == len(prefixes):
            return False
    return True


def test_the_data_are_those_of_the_benchmark():
    """15 of the first 29 prefixes of data A are not nought, and rightly so; of data B all are."""
    found = truths(transfers(100_000)[:29])[1:]
    assert sum(value != 0 for value in found) == 15
    assert {abs(value) for value in found} == {0, 1, 2}
    assert set(truths(transfers(60, simple=True))) == {0}


@pytest.mark.contract("align:A8")
@pytest.mark.parametrize("simple", [True, False])
def test_aligned_every_total_is_that_of_a_prefix(simple):
    rows = transfers(6, simple, accounts=2)
    found = outcomes(bank(aligned=True), shown(rows))
    assert len(found) > 1
    assert all(follows(values, truths(rows)) for values in found)


@pytest.mark.parametrize("simple", [True, False])
def test_naive_some_totals_are_of_no_prefix_at_all(simple):
    rows = transfers(4, simple, accounts=2)

    def body(sim):
        assert follows(shown(rows)(sim), truths(rows))

    with pytest.raises(Counterexample):
        bank(aligned=False).simulate(body)


def test_over_many_transfers_the_naive_totals_are_mostly_wrong_and_the_aligned_never():
    rows = transfers(400)
    right = truths(rows)
    wrong = {}
    for aligned in (True, False):
        random = Random(1)
        machine = Machine(bank(aligned).compile(), intermediates=True)
        for row in rows:
            machine.send("transfers", row)
            while machine.ready() and random.random() < 0.6:
                machine.fire(lambda ways, what, random=random: random.randrange(ways))
        while machine.ready():
            machine.fire()
        values = machine.outputs("totals")
        assert values[-1] == right[-1]
        wrong[aligned] = sum(value not in right for value in values), len(values)
        if aligned:
            assert follows(values, right)
    assert wrong[True][0] == 0
    assert wrong[False][0] > wrong[False][1] // 4
