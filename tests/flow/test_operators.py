"""Every operator, outside ticks, in a region and inside a tick; what each keeps; what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.flow.programs import WHY, traces
from trueline.errors import (
    ClaimBroken,
    ElementFailed,
    EndlessLoop,
    InputError,
    NotPromised,
    Unfinished,
    WrongLocation,
)
from trueline.flow import (
    Bounded,
    ExactlyOnce,
    Flow,
    KeyedSingleton,
    Machine,
    Ordered,
    Singleton,
    Stream,
    nondet,
)


def add(a, b):
    return a + b


def place(name="p"):
    flow = Flow("f")
    return flow, flow.process(name)


def collected(values):
    return values.fold((), lambda seen, x: (*seen, x))


# operator → what it makes of the stream 3, 1, 3, 2 as a stream; the keyed ones by parity
PER_ELEMENT = {
    "map": (lambda s: s.map(lambda x: x * 10), [30, 10, 30, 20]),
    "filter": (lambda s: s.filter(lambda x: x > 1), [3, 3, 2]),
    "flat_map": (lambda s: s.flat_map(lambda x: [x] * x), [3, 3, 3, 1, 3, 3, 3, 2, 2]),
    "unique": (lambda s: s.unique(), [3, 1, 2]),
    "enumerate": (lambda s: s.enumerate(), [(0, 3), (1, 1), (2, 3), (3, 2)]),
    "entries": (lambda s: s.key_by(lambda x: x % 2).entries(), [(1, 3), (1, 1), (1, 3), (0, 2)]),
    "values": (lambda s: s.key_by(lambda x: x % 2).map(str).values(), ["3", "1", "3", "2"]),
    "keys": (lambda s: s.key_by(lambda x: x % 2).keys(), [1, 0]),
    "keyed filter": (lambda s: s.key_by(lambda x: x % 2).filter(lambda x: x > 2).entries(), [(1, 3), (1, 3)]),
    "keyed flat_map": (
        lambda s: s.key_by(lambda x: x % 2).flat_map(lambda x: "ab"[: x - 1]).entries(),
        [(1, "a"), (1, "b"), (1, "a"), (1, "b"), (0, "a")],
    ),
    "keyed unique": (lambda s: s.key_by(lambda x: x % 2).unique().entries(), [(1, 3), (1, 1), (0, 2)]),
    "into_keyed": (lambda s: s.map(lambda x: (x, -x)).into_keyed().values(), [-3, -1, -3, -2]),
    "union": (lambda s: s.union(s.map(lambda x: -x)), [3, 1, 3, 2, -3, -1, -3, -2]),
    "join": (
        lambda s: s.key_by(lambda x: x).join(s.filter(lambda x: x < 3).key_by(lambda x: x)).entries(),
        [(1, (1, 1)), (2, (2, 2))],
    ),
    "assume_exactly_once": (lambda s: s.assume_exactly_once(WHY), [3, 1, 3, 2]),
    "assume_ordering": (lambda s: s.assume_ordering(WHY), [3, 1, 3, 2]),
}
INPUT = (3, 1, 3, 2)


@pytest.mark.parametrize("name", PER_ELEMENT)
@pytest.mark.parametrize("cuts", [(4,), (1, 3), (2, 2), (1, 1, 1, 1)])
def test_an_operator_outside_ticks_gives_the_same_for_every_split_of_its_input(name, cuts):
    apply, expected = PER_ELEMENT[name]
    flow, p = place()
    p.sink("o", apply(p.source("s")))
    machine = Machine(flow.compile())
    at = 0
    for size in cuts:
        machine.send("s", *INPUT[at : at + size])
        at += size
        while not machine.idle:
            machine.fire()
    assert sorted(machine.outputs("o"), key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("name", PER_ELEMENT)
def test_an_operator_inside_a_tick_gives_the_same_for_the_whole_batch(name):
    apply, expected = PER_ELEMENT[name]
    flow, p = place()
    p.sink("o", apply(p.source("s").batch(p.tick(), WHY)).all_ticks())
    machine = Machine(flow.compile())
    machine.send("s", *INPUT)
    machine.fire()
    assert sorted(machine.outputs("o"), key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("name", PER_ELEMENT)
def test_an_operator_inside_a_region_gives_the_same_however_it_is_cut(name):
    apply, expected = PER_ELEMENT[name]
    flow, p = place()
    point = p.local_align_point()
    s = p.source("s")
    p.sink("o", apply(s).release_aligned(point))
    p.sink("n", s.count().snapshot_aligned(p.tick(), point, WHY).all_ticks())
    machine = Machine(flow.compile())
    machine.send("s", *INPUT)
    machine.fire((3,))  # one element first
    while not machine.idle:
        machine.fire()
    assert sorted(machine.outputs("o"), key=repr) == sorted(expected, key=repr)
    assert machine.outputs("n") == (1, 4)


SINGLES = {
    "fold": (lambda s: s.fold(0, add), 9),
    "fold of a factory": (lambda s: s.fold(list, lambda seen, x: [*seen, x]), [3, 1, 3, 2]),
    "fold_commutative": (lambda s: s.fold_commutative(0, add, add), 9),
    "reduce": (lambda s: s.reduce(max).unwrap_or(0), 3),
    "count": (lambda s: s.count(), 4),
    "first": (lambda s: s.first().unwrap_or(None), 3),
    "last": (lambda s: s.last().unwrap_or(None), 2),
    "map": (lambda s: s.count().map(lambda n: n * 2), 8),
    "filter": (lambda s: s.count().filter(lambda n: n > 9).unwrap_or("none"), "none"),
    "optional map": (lambda s: s.last().map(lambda x: -x).filter(lambda x: x < 0).unwrap_or(0), -2),
}
KEYED = {
    "fold": (lambda k: k.fold(0, add), {1: 7, 0: 2}),
    "fold_commutative": (lambda k: k.fold_commutative(0, add, add), {1: 7, 0: 2}),
    "reduce": (lambda k: k.reduce(max), {1: 3, 0: 2}),
    "count": (lambda k: k.count(), {1: 3, 0: 1}),
    "map": (lambda k: k.count().map(lambda n: -n), {1: -3, 0: -1}),
    "filter": (lambda k: k.count().filter(lambda n: n > 1), {1: 3}),
}


@pytest.mark.parametrize("name", SINGLES)
def test_a_value_ends_the_same_snapshot_aligned_or_inside_a_tick(name):
    apply, expected = SINGLES[name]
    for read in ("snapshot", "aligned", "inside"):
        flow, p = place()
        tick, point = p.tick(), p.local_align_point()
        s = p.source("s")
        if read == "snapshot":
            value = apply(s).snapshot(tick, WHY)
        elif read == "aligned":
            p.sink("acks", s.release_aligned(point))
            value = apply(s).snapshot_aligned(tick, point, WHY)
        else:
            value = apply(s.batch(tick, WHY))
        p.sink("o", value.all_ticks())
        machine = Machine(flow.compile(), check=True)
        machine.send("s", *INPUT)
        while not machine.idle:
            machine.fire()
        assert machine.outputs("o")[-1] == expected, read


@pytest.mark.parametrize("name", KEYED)
def test_a_live_map_ends_the_same_snapshot_aligned_or_inside_a_tick(name):
    apply, expected = KEYED[name]
    for read in ("snapshot", "aligned", "inside"):
        flow, p = place()
        tick, point = p.tick(), p.local_align_point()
        s = p.source("s")
        keyed = s.key_by(lambda x: x % 2)
        if read == "snapshot":
            value = apply(keyed).snapshot(tick, WHY)
        elif read == "aligned":
            p.sink("acks", s.release_aligned(point))
            value = apply(keyed).snapshot_aligned(tick, point, WHY)
        else:
            value = apply(keyed.batch(tick, WHY))
        p.sink("o", collected(value.entries().sort()).all_ticks())
        machine = Machine(flow.compile(), check=True)
        machine.send("s", *INPUT)
        while not machine.idle:
            machine.fire()
        assert dict(machine.outputs("o")[-1]) == expected, read


def test_a_live_map_inside_a_tick_gives_keys_values_one_value_and_joins():
    flow, p = place()
    tick = p.tick()
    keyed = p.source("s").batch(tick, WHY).key_by(lambda x: x % 2)
    counts, sums = keyed.count(), keyed.fold(0, add)
    p.sink("keys", collected(counts.keys().sort()).all_ticks())
    p.sink("values", collected(counts.values().sort()).all_ticks())
    p.sink("odd", counts.get(1).unwrap_or(0).all_ticks())
    p.sink("none", counts.get(7).all_ticks())
    p.sink("joined", collected(counts.join(sums.filter(lambda n: n > 2)).entries().sort()).all_ticks())
    machine = Machine(flow.compile())
    machine.send("s", *INPUT)
    machine.fire()
    shown = [machine.outputs(name) for name in ("keys", "values", "odd", "none", "joined")]
    assert shown == [((0, 1),), ((1, 3),), (3,), (), (((1, (3, 7)),),)]


@given(st.lists(st.integers(0, 3), max_size=6), st.data())
def test_unguarded_operators_give_the_same_for_all_splits(values, data):
    """Eager execution: what comes out does not depend on how the input was cut."""
    outputs = []
    for _ in range(2):
        flow, p = place()
        s = p.source("s")
        keyed = s.unique().enumerate().map(lambda pair: (pair[1], pair[0])).into_keyed()
        p.sink("o", keyed.join(s.flat_map(range).key_by(lambda x: x)).entries())
        machine = Machine(flow.compile())
        left = list(values)
        while left:
            size = data.draw(st.integers(1, len(left)))
            machine.send("s", *left[:size])
            left = left[size:]
        outputs.append(sorted(machine.outputs("o")))
    assert outputs[0] == outputs[1]


# --- ticks ----------------------------------------------------------------------------


def test_batches_follow_each_other_and_lose_nothing():
    flow, p = place()
    p.sink("o", collected(p.source("s").batch(p.tick(), WHY)).all_ticks())
    found = traces(flow, ("s", (1, 2, 3)))
    assert found == {
        (((1, 2, 3),),),
        (((1,), (2, 3)),),
        (((1, 2), (3,)),),
        (((1,), (2,), (3,)),),
    }


def test_a_snapshot_may_skip_and_lag_and_never_goes_back():
    flow, p = place()
    p.sink("o", p.source("s").count().snapshot(p.tick(), WHY).all_ticks())
    found = {shown for (shown,) in traces(flow, ("s", (1, 1)))}
    assert found == {(0, 1, 2), (0, 2), (1, 2), (2,)}


def test_a_snapshot_repeats_when_the_tick_runs_for_another_reason():
    flow, p = place()
    tick = p.tick()
    seen = p.source("s").count().snapshot(tick, WHY)
    p.sink("o", p.source("q").batch(tick, WHY).cross_singleton(seen).all_ticks())
    machine = Machine(flow.compile())
    for _ in range(2):
        machine.send("q", "q")
        machine.fire()
    assert machine.outputs("o") == (("q", 0), ("q", 0))


def test_defer_tick_shows_the_execution_before():
    flow, p = place()
    batch = p.source("s").batch(p.tick(), WHY)
    p.sink("o", collected(batch.defer_tick()).all_ticks())
    p.sink("n", batch.count().defer_tick().unwrap_or(-1).all_ticks())
    machine = Machine(flow.compile())
    for value in "abc":
        machine.send("s", value)
        machine.fire()
    assert machine.outputs("o") == ((), ("a",), ("b",))
    assert machine.outputs("n") == (-1, 1, 1)


def test_state_and_cycles_come_round_one_execution_later():
    flow, p = place()
    tick = p.tick()
    batch = p.source("s").batch(tick, WHY)
    handle, total = tick.state(0)
    now = total.cross_singleton(batch.fold(0, add)).map(lambda both: both[0] + both[1])
    handle.complete(now)
    again, before = tick.cycle(ordered=False)
    again.complete(batch)
    p.sink("totals", now.all_ticks())
    p.sink("before", collected(before.sort()).all_ticks())
    machine = Machine(flow.compile())
    for value in (1, 2, 3):
        machine.send("s", value)
        machine.fire()
    assert machine.outputs("totals") == (1, 3, 6)
    assert machine.outputs("before") == ((), (1,), (2,))


def test_a_cycle_through_defer_tick_is_no_synchronous_one():
    flow, p = place()
    tick = p.tick()
    handle, ahead = tick.forward_ref(ordered=False)
    both = p.source("s").batch(tick, WHY).union(ahead.defer_tick())
    handle.complete(both)
    p.sink("o", both.count().all_ticks())
    machine = Machine(flow.compile())
    for value in (1, 2, 3):
        machine.send("s", value)
        machine.fire()
    assert machine.outputs("o") == (1, 2, 3)


def test_a_first_execution_shows_some_version_of_every_value_it_reads():
    flow, p = place()
    tick = p.tick()
    s = p.source("s")
    count = s.count().snapshot(tick, WHY)
    p.sink("o", s.batch(tick, WHY).cross_singleton(count).all_ticks())
    machine = Machine(flow.compile())
    machine.send("s", "a", "b")
    assert len(machine.choices()) == 3 * 3  # none, one or both elements; version 0, 1 or 2
    machine.fire((2, 0))
    assert machine.outputs("o") == (("a", 0), ("b", 0))
    assert len(machine.choices()) == 2  # a newer version; to show the same again is no reason to run


def test_a_forward_reference_inside_a_tick_is_of_the_same_execution():
    flow, p = place()
    tick = p.tick()
    handle, ahead = tick.forward_ref()
    p.sink("o", collected(ahead).all_ticks())
    handle.complete(p.source("s").batch(tick, WHY).map(lambda x: x * 2))
    machine = Machine(flow.compile())
    machine.send("s", 1, 2)
    machine.fire()
    assert machine.outputs("o") == ((2, 4),)


def test_latest_is_not_there_before_the_first_execution_and_holds_its_reader_back():
    flow, p = place()
    first, second = p.tick("first"), p.tick("second")
    last = p.source("s").batch(first, WHY).count().latest()
    p.sink("o", p.source("q").batch(second, WHY).cross_singleton(last.snapshot(second, WHY)).all_ticks())
    machine = Machine(flow.compile())
    machine.send("q", "q")
    assert machine.idle
    machine.send("s", 1)
    machine.fire()
    machine.fire()
    assert machine.outputs("o") == (("q", 1),)


def test_a_cycle_outside_ticks_runs_to_its_end():
    flow, p = place()
    handle, back = p.forward_ref(ordered=False)
    all_ = p.source("s").union(back).unique()
    handle.complete(all_.map(lambda x: x // 2))
    p.sink("o", all_)
    machine = Machine(flow.compile())
    machine.send("s", 9)
    assert machine.outputs("o") == (9, 4, 2, 1, 0)


def test_merge_ordered_keeps_the_order_of_each_side():
    flow, p = place()
    p.sink("o", p.source("a").merge_ordered(p.source("b"), WHY))
    found = {shown for (shown,) in traces(flow, ("a", (1, 2)), ("b", (3,)))}
    assert found == {(1, 2, 3), (1, 3, 2), (3, 1, 2)}
    inside, q = place()
    tick = q.tick()
    merged = q.source("a").batch(tick, WHY).merge_ordered(q.source("b").batch(tick, WHY), WHY)
    q.sink("o", collected(merged).all_ticks())
    assert ((1, 3, 2),) in {shown for (shown,) in traces(inside, ("a", (1, 2)), ("b", (3,)))}


def test_assume_ordering_reaches_every_order():
    flow, p = place()
    p.sink("o", p.source("s", ordered=False).assume_ordering(WHY))
    assert len(traces(flow, ("s", (1, 2, 3)))) == 6


def test_a_fold_of_unordered_elements_may_have_seen_any_of_them():
    flow, p = place()
    total = p.source("s", ordered=False).fold_commutative(frozenset(), lambda s, x: s | {x})
    p.sink("o", total.snapshot(p.tick(), WHY).all_ticks())
    seen = {version for (shown,) in traces(flow, ("s", (1, 2, 3))) for version in shown}
    assert len(seen) == 8


# --- places ---------------------------------------------------------------------------


def test_streams_go_between_processes_and_members():
    flow = Flow("f")
    p, q, workers = flow.process("p"), flow.process("q"), flow.cluster("workers", size=3)
    spread = p.source("s").demux(workers, by=lambda x: x % 3)
    q.sink("o", spread.map(lambda x: x * 10).gather(q).entries())
    everyone = p.source("t").broadcast(workers)
    workers.sink("heard", everyone)
    machine = Machine(flow.compile())
    machine.send("s", 1, 2, 3)
    machine.send("t", "x")
    assert sorted(machine.outputs("o")) == [(0, 30), (1, 10), (2, 20)]
    assert [machine.outputs("heard", member=m) for m in range(3)] == [("x",)] * 3


def test_members_have_sources_of_their_own():
    flow = Flow("f")
    workers = flow.cluster("workers", size=2)
    workers.sink("o", workers.source("s").map(str))
    machine = Machine(flow.compile())
    machine.send("s", 1, member=1)
    assert (machine.outputs("o", 0), machine.outputs("o", 1)) == ((), ("1",))
    with pytest.raises(InputError, match="member 2"):
        machine.send("s", 1, member=2)


def test_a_wrong_member_is_refused_with_the_element():
    flow = Flow("f")
    p, workers = flow.process("p"), flow.cluster("workers", size=2)
    workers.sink("o", p.source("s").demux(workers, by=lambda x: x))
    machine = Machine(flow.compile())
    with pytest.raises(InputError, match="sends 7 to member 7, but the cluster has 2 members"):
        machine.send("s", 7)


# --- markers --------------------------------------------------------------------------


def unordered(p):
    return p.source("u", ordered=False)


@pytest.mark.parametrize(
    ("make", "rule", "remedy"),
    [
        (lambda p: unordered(p).fold(0, add), "ordered", "fold_commutative"),
        (lambda p: unordered(p).enumerate(), "ordered", "assume_ordering"),
        (lambda p: unordered(p).first(), "ordered", "assume_ordering"),
        (lambda p: unordered(p).last(), "ordered", "assume_ordering"),
        (lambda p: unordered(p).reduce(max), "ordered", "commutative=True"),
        (lambda p: unordered(p).merge_ordered(p.source("o"), WHY), "ordered", "assume_ordering"),
        (lambda p: p.source("o").merge_ordered(unordered(p), WHY), "ordered", "assume_ordering"),
        (lambda p: p.source("r", at_least_once=True).count(), "exactly once", "unique"),
        (lambda p: p.source("r", at_least_once=True).fold(0, add), "exactly once", "idempotent=True"),
        (
            lambda p: p.source("r", at_least_once=True).fold_commutative(0, add),
            "exactly once",
            "idempotent=True",
        ),
        (lambda p: p.source("s").sort(), "bounded", "batch"),
        (lambda p: p.source("s").cross_singleton(p.source("t").count()), "bounded", "snapshot"),
        (lambda p: p.source("s").count().into_stream(), "bounded", "snapshot"),
        (lambda p: p.source("s").key_by(abs).count().entries(), "bounded", "snapshot"),
        (lambda p: p.singleton(1).snapshot(p.tick(), WHY), "unbounded", "as it is"),
        (lambda p: p.source("s").key_by(abs).values().fold(0, add), "ordered", "fold_commutative"),
    ],
)
def test_a_missing_promise_is_named_with_collection_rule_remedy_and_lines(make, rule, remedy):
    _, p = place()
    with pytest.raises(NotPromised) as refused:
        make(p)
    text = str(refused.value)
    assert refused.value.rule == rule
    assert remedy in refused.value.remedy
    assert text.count("test_operators.py:") == 2  # the operator, and the collection it was given
    assert isinstance(refused.value, TypeError)


def test_unique_makes_repeats_harmless_and_at_least_once_is_passed_on():
    _, p = place()
    s = p.source("s", at_least_once=True)
    assert not s.map(abs).node.once
    assert s.unique().count().node.kind == "count"
    assert s.fold_commutative(0, max, idempotent=True).node.kind == "fold"
    assert not p.source("t").union(s).node.once


def test_collections_can_be_written_as_types_when_the_program_runs():
    assert Stream[int, Bounded, Ordered, ExactlyOnce].__args__[0] is int
    assert Singleton[int, Bounded].__args__ == (int, Bounded)
    assert KeyedSingleton[str, int, Bounded].__args__[:2] == (str, int)


def test_weaker_promises_follow_from_operators():
    _, p = place()
    s = p.source("s")
    assert not s.union(p.source("t")).node.ordered
    assert not s.key_by(abs).values().node.ordered
    assert s.map(abs).node.ordered
    assert repr(s.union(s)) == "<stream: unbounded, unordered; " + repr(s.union(s)).split("; ")[1]


# --- bad input ------------------------------------------------------------------------


def test_places_and_ticks_do_not_mix():
    flow, p = place()
    q = flow.process("q")
    a, b = p.source("a"), q.source("b")
    with pytest.raises(WrongLocation, match=r"source 'a' \(test_operators.py:\d+\) on p with source 'b'"):
        a.union(b)
    with pytest.raises(WrongLocation, match="both must be in one tick"):
        a.batch(p.tick(), WHY).union(a.batch(p.tick(), WHY))
    with pytest.raises(WrongLocation, match="make a tick of p"):
        a.batch(q.tick(), WHY)
    with pytest.raises(WrongLocation, match="bring a stream to this location"):
        q.sink("o", a)
    with pytest.raises(WrongLocation, match="send goes from process to process"):
        a.broadcast(q)
    with pytest.raises(WrongLocation, match="needs a collection in a tick"):
        a.all_ticks()


@pytest.mark.parametrize("why", ["", "   ", None, 3])
def test_a_reason_that_is_none_is_refused(why):
    with pytest.raises(InputError, match="gives no reason"):
        nondet(why)


def test_names_are_given_once():
    flow, p = place()
    p.source("s")
    with pytest.raises(InputError, match=r"source 's' .* exists already"):
        p.source("s")
    with pytest.raises(InputError, match="exists already"):
        flow.process("p")


def test_unfinished_references_are_refused_with_their_line():
    flow, p = place()
    _, later = p.forward_ref()
    p.sink("o", later)
    with pytest.raises(Unfinished, match=r"nothing completes forward_ref \(test_operators.py"):
        flow.compile()


def test_a_reference_is_completed_once_and_with_what_it_promised():
    flow, p = place()
    handle, _ = p.forward_ref()
    with pytest.raises(InputError, match="ordered=False"):
        handle.complete(p.source("u", ordered=False))
    with pytest.raises(WrongLocation):
        handle.complete(flow.process("q").source("s"))
    handle.complete(p.source("right"))
    with pytest.raises(Unfinished, match="a second time"):
        handle.complete(p.source("t"))


def test_a_function_that_raises_is_named_with_its_element_and_nothing_has_changed():
    flow, p = place()
    p.sink("o", p.source("s").batch(p.tick(), WHY).map(lambda x: 1 // x).all_ticks())
    machine = Machine(flow.compile())
    machine.send("s", 0)
    before = machine.snapshot()
    with pytest.raises(ElementFailed, match=r"map \(test_operators.py:\d+\) on p raised ZeroDivisionError"):
        machine.fire()
    assert machine.snapshot() == before


def test_a_function_that_changes_its_input_is_found():
    flow, p = place()
    p.sink("o", p.source("s").map(lambda x: x.append(1) or x))
    with pytest.raises(ClaimBroken, match=r"changes its input: \[\] became \[1\]"):
        Machine(flow.compile(), check=True).send("s", [])


@pytest.mark.parametrize("where", ["arriving", "region", "tick", "keyed"])
def test_a_fold_that_is_not_commutative_is_found_wherever_it_runs(where):
    flow, p = place()
    s = p.source("s", ordered=False)
    tick, point = p.tick(), p.local_align_point()

    def newest(_, x):
        return x

    if where == "arriving":
        p.sink("o", s.fold_commutative(0, newest).snapshot(tick, WHY).all_ticks())
    elif where == "keyed":
        p.sink(
            "o", s.key_by(lambda _: 1).fold_commutative(0, newest).snapshot(tick, WHY).entries().all_ticks()
        )
    elif where == "tick":
        p.sink("o", s.batch(tick, WHY).fold_commutative(0, newest).all_ticks())
    else:
        p.sink("o", s.fold_commutative(0, newest).snapshot_aligned(tick, point, WHY).all_ticks())
        p.sink("acks", s.release_aligned(point))
    machine = Machine(flow.compile(), check=True)
    machine.send("s", 1, 2)
    with pytest.raises(ClaimBroken, match=r"said to be commutative, but \[1, 2\] gives 2, \[2, 1\] gives 1"):
        while not machine.idle:
            machine.fire()


def test_a_merge_that_differs_and_a_fold_that_counts_repeats_are_found():
    for args, words in (
        ({"merge": lambda a, _: a}, "merge that differs"),
        ({"idempotent": True}, "said to be idempotent"),
    ):
        flow, p = place()
        total = p.source("s", ordered=False).fold_commutative(0, add, **args)
        p.sink("o", total.snapshot(p.tick(), WHY).all_ticks())
        machine = Machine(flow.compile(), check=True)
        machine.send("s", 1, 2)
        with pytest.raises(ClaimBroken, match=words):
            machine.fire()


def test_keys_must_be_hashable():
    flow, p = place()
    p.sink("o", p.source("s").key_by(lambda x: [x]).entries())
    with pytest.raises(InputError, match=r"key_by .* gives the key \[1\], which is not hashable"):
        Machine(flow.compile()).send("s", 1)
    flow, p = place()
    p.sink("o", p.source("s").into_keyed().entries())
    with pytest.raises(InputError, match="give pairs of key and value"):
        Machine(flow.compile()).send("s", 1)


def test_a_loop_without_end_is_reported():
    flow, p = place()
    handle, back = p.forward_ref(ordered=False)
    all_ = p.source("s").union(back)
    handle.complete(all_.map(lambda x: x + 1))
    p.sink("o", all_.filter(lambda x: x < 0))
    with pytest.raises(EndlessLoop, match=r"forward_ref .* without end"):
        Machine(flow.compile()).send("s", 0)


def test_unknown_names_and_wrong_things_are_refused():
    flow, p = place()
    p.sink("o", p.source("s"))
    machine = Machine(flow.compile())
    with pytest.raises(InputError, match="sources: s"):
        machine.send("t", 1)
    with pytest.raises(InputError, match="sinks: o"):
        machine.outputs("x")
    with pytest.raises(InputError, match="nothing is ready"):
        machine.fire()
    with pytest.raises(InputError, match="give a function"):
        p.source("t").map("upper")
    with pytest.raises(InputError, match="give a collection"):
        p.source("v").union([1])
    with pytest.raises(InputError, match="give a stream"):
        p.sink("x", p.source("w").count())
    with pytest.raises(InputError, match="at least 1"):
        flow.cluster("none", size=0)
    with pytest.raises(InputError, match="choice 5 where there are"):
        replay = Machine(_batching().compile())
        replay.send("s", 1, 2)
        replay.fire((5,))


def _batching():
    flow, p = place()
    p.sink("o", p.source("s").batch(p.tick(), WHY).all_ticks())
    return flow


def test_a_source_that_nothing_reads_takes_what_it_is_sent():
    flow, p = place()
    p.source("unread")
    machine = Machine(flow.compile())
    machine.send("unread", 1)
    assert machine.idle


def test_constants_are_there_from_the_beginning():
    flow, p = place()
    p.sink("o", p.source("s").union(p.stream_of([1, 2]).map(lambda x: x * 10)))
    tick = p.tick()
    rate = p.singleton(3).map(lambda x: x + 1)
    p.sink("r", p.source("q").batch(tick, WHY).cross_singleton(rate).all_ticks())
    machine = Machine(flow.compile())
    machine.send("q", "q")
    machine.fire()
    assert (machine.outputs("o"), machine.outputs("r")) == ((10, 20), (("q", 4),))


def test_a_constant_stream_inside_a_region_arrives_once_and_is_cut_like_others():
    flow, p = place()
    point, tick = p.local_align_point(), p.tick()
    s = p.source("s")
    both = s.union(p.stream_of([10, 20]))
    p.sink("o", both.release_aligned(point))
    p.sink("n", both.count().zip(s.count()).snapshot_aligned(tick, point, WHY).all_ticks())
    found = traces(flow, ("s", (1,)))
    assert {released for released, _ in found} == {(1, 10, 20)}
    assert {counts[-1] for _, counts in found} == {(3, 1)}


@pytest.mark.parametrize("inside", [True, False])
def test_an_order_chosen_before_or_inside_a_region_is_the_same_for_all(inside):
    flow, p = place()
    point, tick = p.local_align_point(), p.tick()
    s = p.source("s", ordered=False)
    ordered = s.assume_ordering(WHY)
    p.sink("o", ordered.release_aligned(point))
    p.sink("n", collected(ordered).snapshot_aligned(tick, point, WHY).all_ticks())
    if inside:  # the fork is before the choice, so the choice is inside
        p.sink("c", s.count().snapshot_aligned(tick, point, WHY).all_ticks())
    zones = {op.zone for op in flow.compile().ops.values() if op.node.kind == "assume_ordering"}
    assert zones == ({"region"} if inside else {"async"})
    found = traces(flow, ("s", (1, 2)))
    assert {released for released, *_ in found} == {(1, 2), (2, 1)}
    assert all(shown[-1] == released for released, shown, *_ in found)
