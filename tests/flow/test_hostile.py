"""Flows as nobody should write them: huge, mixed up, of odd values, interrupted; each told for what it is."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from trueline import console
from trueline.errors import ClaimBroken, Counterexample, ElementFailed, FlowError, InputError, WrongLocation
from trueline.flow import Flow, nondet
from trueline.flow.values import frozen

WHY = nondet("any will do")
LONG = 10_000


def batches(change=lambda x: x):
    """A flow that hands out what it is sent, in pieces of any size."""
    flow = Flow("batches")
    p = flow.process("p")
    p.sink("out", p.source("in").map(change).batch(p.tick(), WHY).all_ticks())
    return flow


def sending(*values):
    """A body that sends values and waits for all of them."""

    def body(sim):
        sim.send("in", *values)
        sim.collect("out")

    return body


# --- huge -----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["stream", "value", "constant", "tick", "region"])
def test_a_chain_of_ten_thousand_operators_is_built_and_run(where):
    flow = Flow("long")
    p = flow.process("p")
    tick, point, source = p.tick(), p.local_align_point(), p.source("in")
    begin = {
        "stream": source,
        "value": source.count(),
        "constant": p.singleton(0),
        "tick": source.batch(tick, WHY),
        "region": source,
    }
    live = begin[where]
    for _ in range(LONG):
        live = live.map(lambda x: x + 1)
    if where == "value":
        live = live.snapshot(tick, WHY).all_ticks()
    elif where == "constant":
        live = source.batch(tick, WHY).cross_singleton(live).map(sum).all_ticks()
    elif where == "tick":
        live = live.all_ticks()
    elif where == "region":
        p.sink("acks", source.release_aligned(point))
        live = live.batch_aligned(tick, point, WHY).all_ticks()
    p.sink("out", live)
    assert flow.run({"in": [1]})["out"][-1] == LONG + 1


# --- odd values -----------------------------------------------------------------------


class Unequal:
    """It cannot be compared, nor hashed."""

    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("not comparable")


class Unwritable:
    """It can be neither hashed nor written down."""

    __hash__ = None

    def __init__(self):
        self.call = lambda: None


class Account:
    """A plain object: hashable by who it is, and changeable."""

    def __init__(self):
        self.balance = 0


@pytest.mark.parametrize("make", [lambda: np.arange(3), Unequal, Unwritable, Account, lambda: [float("nan")]])
def test_values_that_cannot_be_compared_are_no_fault_of_the_flow(make):
    assert batches().simulate(sending(make(), make())).executions == 2


def test_nan_is_like_nan_in_whatever_order_it_was_made():
    flow = Flow("sums")
    p = flow.process("p")
    total = p.source("in", ordered=False).fold_commutative(0.0, lambda a, x: a + x)
    p.sink("out", total.snapshot(p.tick(), WHY).all_ticks())
    assert flow.simulate(sending(1.0, float("nan"))).exhaustive


def raise_balance(account):
    account.balance += 1
    return account


def add_one(numbers):
    numbers += 1
    return numbers


@pytest.mark.parametrize(("make", "change"), [(Account, raise_balance), (lambda: np.arange(3), add_one)])
def test_a_change_of_a_plain_object_or_an_array_is_found(make, change):
    with pytest.raises(Counterexample) as found:
        batches(change).simulate(sending(make()))
    assert isinstance(found.value.__cause__, ClaimBroken)


def test_a_stand_in_for_a_list_is_no_tuple():
    assert frozen(([1],)) != frozen((("list", 1),))
    assert frozen(([1], {"a": {2}})) == frozen(([1], {"a": {2}}))


def collected(values, x):
    values.append(x)
    return values


def test_a_first_value_that_is_changed_is_nobody_elses():
    flow = Flow("lists")
    p = flow.process("p")
    tick, keyed = p.tick(), p.source("in").key_by(lambda x: x % 2)
    p.sink("out", keyed.fold([], collected).snapshot(tick, WHY).entries().all_ticks())
    assert [dict(flow.run({"in": [1, 2]}, seed)["out"]) for seed in (0, 1)] == [{0: [2], 1: [1]}] * 2


def test_a_first_value_that_cannot_be_made_is_told_with_its_line():
    flow = Flow("none")
    p = flow.process("p")
    p.sink("out", p.source("in").fold(lambda: 1 / 0, max).snapshot(p.tick(), WHY).all_ticks())
    with pytest.raises(ElementFailed, match=r"fold \(test_hostile.*ZeroDivisionError"):
        flow.start()


# --- mixed up -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mix",
    [
        lambda mine, theirs: mine.source("a").union(theirs.source("a")),
        lambda mine, theirs: mine.source("a").send(theirs),
        lambda mine, theirs: mine.source("a").batch(theirs.tick(), WHY),
        lambda mine, theirs: mine.source("a").release_aligned(theirs.local_align_point()),
    ],
)
def test_two_flows_do_not_mix(mix):
    with pytest.raises(WrongLocation, match=r"of flow 'mine' with .* of flow 'theirs'"):
        mix(Flow("mine").process("p"), Flow("theirs").process("p"))


def test_what_is_no_place_is_not_sent_to():
    with pytest.raises(InputError, match="'q', which is not a location"):
        Flow("f").process("p").source("in").send("q")


@pytest.mark.parametrize(("inputs", "text"), [([1, 2], "run is given"), ({"in": 5}, "'in' is given 5")])
def test_what_cannot_be_fed_is_refused(inputs, text):
    with pytest.raises(InputError, match=text):
        batches().run(inputs)


def test_a_generator_is_a_source_and_a_flow_runs_again():
    flow = batches()
    assert [flow.run({"in": (i for i in range(9))})["out"] for _ in range(2)] == [list(range(9))] * 2


# --- ticks that cannot run ------------------------------------------------------------


def remarks(flow):
    with console.use(console.SilentConsole()):
        return [each.text for each in flow.compile().regions.remarks if each.code == "never runs"]


def test_a_tick_that_waits_for_its_own_latest_is_warned_about():
    flow = Flow("waiting")
    p = flow.process("p")
    tick = p.tick("own")
    batch = p.source("in").batch(tick, WHY)
    p.sink("out", batch.cross_singleton(batch.count().latest().snapshot(tick, WHY)).all_ticks())
    (text,) = remarks(flow)
    assert "tick own" in text
    assert "waits for latest" in text
    assert "tick.state(init)" in text


def test_ticks_that_wait_for_each_other_are_warned_about_and_those_behind_them():
    flow = Flow("ring")
    p = flow.process("p")
    handle, back = p.forward_ref()
    first = back.batch(p.tick("one"), WHY).all_ticks()
    second = first.batch(p.tick("two"), WHY).all_ticks()
    handle.complete(second)
    p.sink("out", second.batch(p.tick("three"), WHY).all_ticks())
    assert len(remarks(flow)) == 3


def test_a_tick_that_reads_nothing_is_warned_about():
    flow = Flow("alone")
    p = flow.process("p")
    handle, value = p.tick().state(0)
    handle.complete(value.map(lambda x: x + 1))
    p.sink("out", value.all_ticks())
    (text,) = remarks(flow)
    assert "reads nothing" in text


def test_ticks_that_run_are_not_warned_about():
    flow = Flow("runs")
    p = flow.process("p")
    one, two, point = p.tick(), p.tick(), p.local_align_point()
    source = p.source("in")
    handle, back = p.forward_ref(ordered=False)
    seen = back.union(source).batch(one, WHY)
    latest = seen.count().latest()
    later = source.release_aligned(point).batch(two, WHY).cross_singleton(latest.snapshot(two, WHY))
    handle.complete(later.all_ticks().filter(lambda pair: False))
    p.sink("out", source.count().snapshot_aligned(p.tick(), point, WHY).all_ticks())
    assert remarks(flow) == []


# --- interrupted ----------------------------------------------------------------------


def test_a_flow_interrupted_in_the_middle_is_not_run_on():
    def interrupted(total, x):
        if x == 3:
            raise KeyboardInterrupt
        return total + x

    flow = Flow("stopped")
    p = flow.process("p")
    sums = p.source("in").key_by(lambda x: 0).fold(0, interrupted)
    p.sink("out", sums.snapshot(p.tick(), WHY).entries().all_ticks())
    live = flow.start()
    with pytest.raises(KeyboardInterrupt):
        live.send("in", 1, 2, 3, 4)
    with pytest.raises(FlowError, match="has failed before"):
        live.send("in", 1)


# --- asynchronous functions -------------------------------------------------------------


async def later(*given):
    return given


async def several(*given):
    yield given


class Later:
    async def __call__(self, *given):
        return given


ASYNCHRONOUS = {
    "a coroutine": later,
    "a generator": several,
    "a partial": partial(later, 1),
    "an object": Later(),
}


@pytest.mark.parametrize("fn", ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
def test_an_asynchronous_body_of_a_simulation_is_refused_by_name(fn):
    with pytest.raises(
        InputError, match=r"simulate at .* is given (later|several|Later), which is asynchron"
    ) as error:
        batches().simulate(fn)
    assert "without async" in error.value.remedy


@pytest.mark.parametrize("fn", ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
@pytest.mark.parametrize("where", ["map", "filter", "fold", "init", "merge", "demux", "state"])
def test_an_asynchronous_function_of_an_operator_is_refused_by_name(fn, where):
    flow = Flow("asynchronous")
    p, many = flow.process("p"), flow.cluster("many", 2)
    s = p.source("s")
    give = {
        "map": lambda: s.map(fn),
        "filter": lambda: s.filter(fn),
        "fold": lambda: s.fold(0, fn),
        "init": lambda: s.fold(fn, lambda a, b: a + b),
        "merge": lambda: s.fold_commutative(0, lambda a, b: a + b, fn),
        "demux": lambda: s.demux(many, fn),
        "state": lambda: p.tick().state(fn),
    }[where]
    with pytest.raises(InputError, match=r" is given (later|several|Later), which is asynchronous"):
        give()
