"""The bank workload: every balance that is shown is that of one prefix of the transfers, or is not."""

from __future__ import annotations

import random
from functools import cache

import pytest

from trueline.errors import Counterexample
from trueline.flow import Flow, nondet

READ = nondet("the oracle compares what is shown with every prefix")


def in_order(count: int) -> list[tuple[int, int, int]]:
    """Transfers without delay: from one account to the next (data B)."""
    return [(i % 10, (i % 10 + 1) % 10, 1) for i in range(count)]


def delayed(count: int) -> list[tuple[int, int, int]]:
    """Transfers that arrive up to ten seconds late, self-transfers among them (data A)."""
    rng = random.Random(42)
    rows = []
    for i in range(count):
        delay = rng.uniform(0, 10)
        rows.append((60 * i // count + delay, i, (rng.randint(0, 9), rng.randint(0, 9), 1)))
    return [row for _, _, row in sorted(rows)]


def totals(transfers: list[tuple[int, int, int]]) -> list[int]:
    """The sum of the joined balances after each transfer, by plain Python."""
    credits_: dict[int, int] = {}
    debits: dict[int, int] = {}
    found = []
    for giver, taker, amount in transfers:
        credits_[taker] = credits_.get(taker, 0) + amount
        debits[giver] = debits.get(giver, 0) + amount
        found.append(sum(credits_[k] - debits[k] for k in credits_ if k in debits))
    return found


def test_the_data_are_those_of_the_benchmark():
    """15 of the first 29 prefixes of data A are not nought, and rightly so; of data B all are."""
    found = totals(delayed(100_000)[:29])
    assert sum(value != 0 for value in found) == 15
    assert {abs(value) for value in found} == {0, 1, 2}
    assert set(totals(in_order(60))) == {0}


def plus(total: int, amount: int) -> int:
    return total + amount


def bank(*, aligned: bool) -> Flow:
    """Credits and debits by account, joined to balances, summed; a total per query."""
    flow = Flow("bank")
    p = flow.process("bank")
    tick, point = p.tick("reading"), p.local_align_point("balance")
    transfers = p.source("transfers")
    credits_ = transfers.map(lambda t: (t[1], t[2])).into_keyed().fold(0, plus)
    debits = transfers.map(lambda t: (t[0], t[2])).into_keyed().fold(0, plus)
    if aligned:
        p.sink("acks", transfers.release_aligned(point))
        both = [each.snapshot_aligned(tick, point, READ) for each in (credits_, debits)]
    else:
        p.sink("acks", transfers)
        both = [each.snapshot(tick, READ) for each in (credits_, debits)]
    balances = both[0].join(both[1]).map(lambda pair: pair[0] - pair[1]).entries()
    shown = balances.fold_commutative((), lambda held, pair: tuple(sorted((*held, pair))))
    p.sink("balances", p.source("queries").batch(tick, READ).cross_singleton(shown).all_ticks())
    return flow


@cache
def of_prefixes(transfers: tuple[tuple[int, int, int], ...]) -> dict:
    """The balances of every prefix, by plain Python, and the length of the shortest prefix that has them.

    The inner join leaves out an account that has only credits, so a total of nought is no invariant of small
    prefixes: what is shown is compared with the prefixes themselves.
    """
    credits_: dict[int, int] = {}
    debits: dict[int, int] = {}
    found = {(): 0}
    for n, (giver, taker, amount) in enumerate(transfers, 1):
        credits_[taker] = credits_.get(taker, 0) + amount
        debits[giver] = debits.get(giver, 0) + amount
        found.setdefault(tuple(sorted((k, credits_[k] - debits[k]) for k in credits_ if k in debits)), n)
    return found


def wrong(flow: Flow, transfers: list, seeds: range) -> tuple[int, int]:
    """How many of the balances that come out are those of no prefix, and how many there are."""
    oracle = of_prefixes(tuple(transfers))
    shown = []
    for seed in seeds:
        live, rng = flow.start(seed=seed), random.Random(seed)
        for number, transfer in enumerate(transfers):
            live.send("transfers", transfer)
            if rng.random() < 0.3:
                live.send("queries", number)
            for _ in range(rng.randrange(3)):
                live.step()
        live.run_until_idle()
        shown += [balances for _, balances in live.take("balances")]
    return sum(balances not in oracle for balances in shown), len(shown)


@pytest.mark.contract("align:A8")
@pytest.mark.parametrize("data", [in_order, delayed])
def test_aligned_balances_are_always_those_of_a_prefix_and_naive_ones_often_not(data):
    transfers = data(300)
    bad, count = wrong(bank(aligned=True), transfers, range(4))
    assert (bad, count > 200) == (0, True)
    bad, count = wrong(bank(aligned=False), transfers, range(4))
    assert bad > count // 10, f"{bad} of {count}"


def all_shown_are_of_prefixes(sim) -> None:
    transfers = ((0, 1, 1), (1, 0, 2))
    sim.send("transfers", *transfers)
    sim.send("queries", "one", "two")
    oracle, before = of_prefixes(transfers), 0
    for _ in range(2):
        _, balances = sim.next("balances")
        assert balances in oracle, f"{balances} are the balances of no prefix"
        assert oracle[balances] >= before, "cuts go back"
        before = oracle[balances]


@pytest.mark.contract("align:A8")
def test_under_every_schedule_aligned_balances_are_those_of_a_prefix():
    assert bank(aligned=True).simulate(all_shown_are_of_prefixes).exhaustive
    with pytest.raises(Counterexample, match="the balances of no prefix"):
        bank(aligned=False).simulate(all_shown_are_of_prefixes, mode="deviations")


def acknowledged_is_in_the_balance(sim) -> None:
    sim.send("transfers", (0, 1, 1), (1, 0, 2))
    for _ in range(2):
        sim.next("acks")
    sim.send("queries", "now")
    assert sim.next("balances")[1] == ((0, 1), (1, -1))


@pytest.mark.contract("align:A9")
def test_an_acknowledged_transfer_is_in_every_later_balance():
    assert bank(aligned=True).simulate(acknowledged_is_in_the_balance).exhaustive
    with pytest.raises(Counterexample):
        bank(aligned=False).simulate(acknowledged_is_in_the_balance, mode="deviations")
