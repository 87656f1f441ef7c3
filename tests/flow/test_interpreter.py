"""The interpreter: one run per seed, among those the simulator explores, keeping nothing that has passed."""

from __future__ import annotations

import asyncio

import pytest

from tests.flow.programs import WHY, bank, counter, traces
from trueline.errors import ElementFailed, EndlessLoop, FlowError, InputError
from trueline.flow import Flow, Machine
from trueline.flow.values import frozen

INPUTS = {"increments": [1, 2], "queries": ["q", "r"]}


def unordered_mix():
    """A flow with choices of every sort."""
    flow = Flow("mix")
    p = flow.process("p")
    tick = p.tick()
    s = p.source("s", ordered=False)
    total = s.fold_commutative(0, lambda a, b: a + b).snapshot(tick, WHY)
    firsts = s.assume_ordering(WHY).merge_ordered(p.source("t"), WHY)
    keyed = s.key_by(lambda x: x % 2).batch(tick, WHY)
    p.sink("totals", total.all_ticks())
    p.sink("order", firsts)
    p.sink("keyed", keyed.entries().all_ticks())
    return flow


PROGRAMS = {
    "aligned counter": (counter, INPUTS),
    "naive counter": (lambda: counter(read="plain", ack="plain"), INPUTS),
    "bank": (bank, {"transfers": [("a", "b", 1), ("b", "c", 2)], "queries": ["q"]}),
    "naive bank": (lambda: bank(False), {"transfers": [("a", "b", 1)], "queries": ["q"]}),
    "mix": (unordered_mix, {"s": [1, 2], "t": [9]}),
}


def shown(flow, outputs):
    ordered = {node.name: node.ordered and node.shape == "stream" for node in flow.graph.named("sink")}
    return tuple(
        frozen(tuple(values) if ordered[name] else tuple(sorted(values, key=repr)))
        for name, values in outputs.items()
    )


@pytest.mark.contract("align:A38")
@pytest.mark.parametrize("name", PROGRAMS)
def test_whatever_the_interpreter_shows_is_among_the_explored_traces(name):
    make, inputs = PROGRAMS[name]
    flow = make()
    allowed = traces(flow, *((source, tuple(values)) for source, values in inputs.items()))
    found = {shown(flow, flow.run(inputs, seed=seed)) for seed in range(200)}
    assert found <= allowed
    assert (len(found) > 1) == (name != "bank")  # the aligned bank can only show 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_seed_gives_the_same_run(name):
    make, inputs = PROGRAMS[name]
    for seed in range(5):
        assert make().run(inputs, seed=seed) == make().run(inputs, seed=seed)


def test_seeds_differ_in_their_choices_not_only_in_when_input_comes():
    shown_ = set()
    for seed in range(20):
        live = counter().start(seed=seed)
        live.send("queries", *"abc")
        live.send("increments", 1, 1)
        live.run_until_idle()
        shown_.add(live.take("answers"))
    assert (("a", 2), ("b", 2), ("c", 2)) in shown_  # the eager run
    assert len(shown_) > 3


@pytest.mark.contract("align:A39")
def test_everything_is_acknowledged_and_answered_in_the_end():
    for seed in range(50):
        outputs = counter().run(INPUTS, seed=seed)
        assert outputs["acks"] == [1, 2]
        assert [q for q, _ in outputs["answers"]] == ["q", "r"]


def test_the_aligned_bank_shows_zero_at_every_reading_and_the_naive_one_does_not():
    transfers = [(f"a{i % 3}", f"a{(i + 1) % 3}", 1) for i in range(60)]
    inputs = {"transfers": transfers, "queries": range(40)}
    aligned = [total for seed in range(10) for total in bank().run(inputs, seed=seed)["totals"]]
    naive = [total for seed in range(10) for total in bank(False).run(inputs, seed=seed)["totals"]]
    assert set(aligned) == {0}
    assert set(naive) > {0}


def test_members_are_fed_by_number_and_collected_together():
    flow = Flow("f")
    workers = flow.cluster("workers", size=2)
    workers.sink("o", workers.source("s").map(str))
    outputs = flow.run({("s", 0): [1, 2], ("s", 1): [3]}, seed=4)
    assert sorted(outputs["o"]) == ["1", "2", "3"]
    with pytest.raises(InputError, match="member 5"):
        flow.run({("s", 5): [1]})


def test_steps_are_taken_one_at_a_time_and_stop_at_rest():
    live = counter().start(seed=3)
    assert not live.step()
    live.send("increments", 1)
    assert live.take("acks") == ()
    assert live.step()
    assert live.take("acks") == (1,)
    assert not live.step()
    assert live.run_until_idle() == 0
    assert live.steps == 1


def test_firings_can_be_watched_with_their_cuts():
    live = counter().start()
    seen = []
    live.watch(seen.append)
    live.send("increments", 1, 1)
    live.run_until_idle()
    cuts = [next(iter(firing.cuts["count"].values())) for firing in seen]
    assert cuts == sorted(cuts)
    assert cuts[-1] == 2
    assert [x for firing in seen for x in firing.outputs.get("acks", ())] == [1, 1]


def test_readers_wait_among_other_tasks():
    async def story():
        live = counter().start(seed=1)

        async def client(number):
            live.send("increments", 1)
            await live.next("acks")
            live.send("queries", number)
            return await live.next("answers")

        first = await client("one")
        waiting = asyncio.create_task(live.next("acks"))
        await asyncio.sleep(0)
        live.send("increments", 5)
        assert await waiting == 5
        live.send("increments", 7, 8)
        found = []
        async for value in live.elements("acks"):
            found.append(value)
            if len(found) == 2:
                break
        return first, found

    first, found = asyncio.run(story())
    assert first == ("one", 1)
    assert found == [7, 8]


def test_a_flow_that_failed_is_not_run_on():
    flow = Flow("f")
    p = flow.process("p")
    p.sink("o", p.source("s").map(lambda x: 1 // x))
    live = flow.start()
    live.send("s", 1)
    with pytest.raises(ElementFailed):
        live.send("s", 0)
    with pytest.raises(FlowError, match="has failed before"):
        live.send("s", 1)
    fresh = flow.start()
    with pytest.raises(InputError, match="no source"):
        fresh.send("nowhere", 1)
    fresh.send("s", 1)
    assert fresh.take("o") == (1,)


def test_a_flow_that_never_rests_is_reported():
    flow = Flow("f")
    p = flow.process("p")
    handle, back = p.forward_ref(ordered=False)
    batch = p.source("s").union(back).batch(p.tick(), WHY)
    handle.complete(batch.all_ticks())
    p.sink("o", batch.filter(lambda _: False).all_ticks())
    live = flow.start()
    live.send("s", 1)
    with pytest.raises(EndlessLoop, match=r"still has work to do after 100 steps; ready now: p.tick0"):
        live.run_until_idle(limit=100)


# --- what is kept ---------------------------------------------------------------------


def size(value):
    """How many things a slot holds."""
    if isinstance(value, dict):
        return len(value) + sum(size(each) for each in value.values() if isinstance(each, tuple))
    if isinstance(value, tuple):
        return sum(size(each) if isinstance(each, (tuple, dict)) else 1 for each in value)
    return 1


def everything():
    """One of each operator, those that keep what has passed marked in their names."""
    flow = Flow("all")
    p, q = flow.process("p"), flow.process("q")
    tick, point = p.tick(), p.local_align_point()
    s = p.source("s")
    mapped = s.map(lambda x: x + 1).filter(lambda x: x % 2).flat_map(lambda x: (x,)).enumerate()
    p.sink("sent", mapped.map(lambda pair: pair[1]).send(q).send(p).union(s))
    count, total = s.count(), s.fold(0, lambda a, b: a + b)
    keyed = s.key_by(lambda x: x % 10)
    p.sink("sums", keyed.fold(0, lambda a, b: a + b).snapshot_aligned(tick, point, WHY).entries().all_ticks())
    p.sink("pairs", count.zip(total).snapshot_aligned(tick, point, WHY).all_ticks())
    p.sink("acks", s.release_aligned(point))
    p.sink("last", s.last().snapshot(p.tick(), WHY).all_ticks())
    p.sink("ordered", s.merge_ordered(p.source("t"), WHY).filter(lambda x: x < 0))
    batch = s.batch(p.tick(), WHY)
    p.sink("deferred", batch.defer_tick().count().all_ticks())
    p.sink("any", s.fold_commutative(0, max, idempotent=True).snapshot(p.tick(), WHY).all_ticks())
    p.sink("few", keyed.keys().union(s.map(lambda x: x % 7).unique()))
    return flow


def test_a_million_elements_leave_nothing_behind():
    flow = everything()
    live = flow.start(seed=1)
    piece, most, acks = 20_000, 0, 0
    for at in range(0, 1_000_000, piece):
        live.send("s", *range(at, at + piece))
        most = max(most, *(size(value) for _, value in live.machine.kept()))
        live.run_until_idle()
        acks += len(live.take("acks"))
        for sink, _ in flow.compile().sinks:
            live.take(sink)
        held = {str(node): size(value) for node, value in live.machine.kept() if node.kind != "defer_tick"}
        assert max(held.values()) <= 40, held
    assert acks == 1_000_000
    assert most <= 4 * piece


def test_operators_that_keep_what_has_passed_say_so():
    flow = Flow("f")
    p = flow.process("p")
    s = p.source("s")
    p.sink("unique", s.unique())
    p.sink("join", s.key_by(abs).join(s.key_by(abs)).entries())
    p.sink("keys", s.key_by(abs).keys())
    live = flow.start()
    live.send("s", *range(1000))
    kept = {node.kind for node, value in live.machine.kept() if size(value) >= 1000 and node.kind != "sink"}
    assert kept == {"unique", "join", "keys"}
    text = flow.explain()
    for words in ("keeps every element it has seen", "keeps both sides whole", "keeps every key it has seen"):
        assert words in text
    assert "map" not in text or "keeps nothing" in text


def test_state_changed_in_place_gives_what_copied_state_gives():
    inputs = (5, 3, 5, 8, 3)
    found = []
    for in_place in (False, True):
        flow = Flow("f")
        p = flow.process("p")
        s = p.source("s")
        keyed = s.key_by(lambda x: x % 3)
        p.sink("u", s.unique())
        p.sink("j", keyed.join(keyed).entries())
        p.sink("f", keyed.fold(0, lambda a, b: a + b).snapshot(p.tick(), WHY).entries().all_ticks())
        machine = Machine(flow.compile(), in_place=in_place)
        for x in inputs:
            machine.send("s", x)
            while not machine.idle:
                machine.fire()
        found.append([machine.outputs(name) for name in "ujf"])
    assert found[0] == found[1]
