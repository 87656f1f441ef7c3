"""Remedies of flows and of their simulator."""

from __future__ import annotations

from typing import Any

from tests.remedies.story import Scene, done, keywords, piece, story
from trueline.errors import Counterexample, TruelineError
from trueline.flow import Flow, Machine, nondet
from trueline.flow import simulator as faults

WHY = nondet("a story")


def place() -> tuple[Flow, Any]:
    """A flow and its one process."""
    flow = Flow("f")
    return flow, flow.process("p")


def add(a: int, b: int) -> int:
    return a + b


def call(collection: Any, text: str, **names: Any) -> Any:
    """Call on a collection what a remedy writes behind a dot."""
    return done(f"collection{text}", collection=collection, nondet=nondet, WHY=WHY, **names)


def raises(body: Any) -> Any:
    """Make a body of a simulation raise its own error instead of a counterexample's."""

    def doing() -> object:
        try:
            return body()
        except Counterexample as error:
            if isinstance(error.__cause__, TruelineError):
                raise error.__cause__ from None
            raise

    return doing


@story("flow.claims", "use .assume_ordering(nondet(…)).fold(…), or fix the function")
def a_fold_that_is_not_commutative(scene: Scene) -> None:
    def run(fold: str) -> None:
        flow, p = place()
        source = p.source("s", ordered=False)
        total = call(source, fold, newest=lambda _, x: x)
        p.sink("o", total.snapshot(p.tick(), WHY).all_ticks())
        machine = Machine(flow.compile(), check=True)
        machine.send("s", 1, 2)
        while machine.ready():
            machine.fire()

    remedy = scene.refused(lambda: run(".fold_commutative(0, newest)"))
    text = piece(remedy, r"\.assume_ordering\(nondet\(…\)\)\.fold\(…\)")
    run(text.replace("…", "'any'", 1).replace("…", "0, newest", 1))


@story(
    "flow.collection",
    "send one of them first, for example .send({a.location.variable})",
    "read both in the same tick with .batch or .snapshot, or leave it with .all_ticks()",
)
def collections_of_two_places(scene: Scene) -> None:
    flow, p = place()
    q = flow.process("q")
    here, there = p.source("a"), q.source("b")
    remedy = scene.refused(lambda: here.union(there))
    arrived = call(there, piece(remedy, r"\.send\(\w+\)"), p=p)
    assert here.union(arrived) is not None
    tick = p.tick()
    batch = here.batch(tick, WHY)
    remedy = scene.refused(lambda: here.union(batch))
    assert batch.union(call(arrived, f"{piece(remedy, r'[.]batch')}(tick, WHY)", tick=tick)) is not None
    assert here.union(call(batch, piece(remedy, r"\.all_ticks\(\)"))) is not None
    count = here.count()
    assert call(count, f"{piece(remedy, r'[.]snapshot')}(tick, WHY)", tick=tick) is not None


@story(
    "flow.collection",
    "read it in a tick: .{read}(tick, nondet('why any choice is right'))",
    "read it in a tick first with .batch or .snapshot",
    "give nondet('why any choice is right here')",
    "give process.tick()",
    "use it as it is, or leave the tick first with .all_ticks() or .latest()",
    "make a tick of {node.location.name}: {node.location.variable}.tick()",
)
def reads_into_a_tick(scene: Scene) -> None:
    flow, p = place()
    tick, stream = p.tick(), p.source("a")
    remedy = scene.refused(stream.sort)
    assert call(stream, piece(remedy, r"\.batch\(.*\)"), tick=tick).sort() is not None
    remedy = scene.refused(stream.all_ticks)
    assert call(stream, f"{piece(remedy, r'[.]batch')}(tick, WHY)", tick=tick).all_ticks() is not None
    remedy = scene.refused(lambda: stream.batch(tick, "any"))
    assert stream.batch(tick, done(piece(remedy, r"nondet\(.*\)"), nondet=nondet)) is not None
    remedy = scene.refused(lambda: stream.batch("tick", WHY))
    assert stream.batch(done(piece(remedy, r"process\.tick\(\)"), process=p), WHY) is not None
    counted = stream.batch(tick, WHY).count()
    remedy = scene.refused(lambda: counted.snapshot(p.tick(), WHY))
    assert call(counted, piece(remedy, r"\.latest\(\)")).snapshot(p.tick(), WHY) is not None
    assert call(counted, piece(remedy, r"\.all_ticks\(\)")).batch(p.tick(), WHY) is not None
    q = flow.process("q")
    remedy = scene.refused(lambda: stream.batch(q.tick(), WHY))
    assert stream.batch(done(piece(remedy, r"\w+\.tick\(\)"), p=p), WHY) is not None


@story(
    "flow.collection",
    "{instead}.assume_ordering(nondet('why any order is right')) picks an order by chance",
    "{instead}.unique() drops repeated elements",
)
def promises_that_a_stream_does_not_make(scene: Scene) -> None:
    _, p = place()
    mixed = p.source("a", ordered=False)
    remedy = scene.refused(lambda: mixed.fold(0, add))
    assert call(mixed, piece(remedy, r"use (\.fold_commutative)") + "(0, add)", add=add) is not None
    assert call(mixed, piece(remedy, r"\.assume_ordering\(.*?'\)\)")).fold(0, add) is not None
    again = p.source("b", at_least_once=True)
    remedy = scene.refused(lambda: again.fold(0, add))
    text = piece(remedy, r"use (\.fold_commutative\(.*?\))").replace("…", "0, max")
    assert call(again, text) is not None
    assert call(again, piece(remedy, r"\.unique\(\)")).fold(0, add) is not None
    remedy = scene.refused(lambda: mixed.reduce(add))
    assert mixed.reduce(add, **keywords(remedy, r"say (\w+=True)")) is not None


@story(
    "flow.collection",
    "give process.local_align_point()",
    "make one there: {node.location.variable}.local_align_point()",
)
def align_points_of_another_place(scene: Scene) -> None:
    flow, p = place()
    stream = p.source("a")
    remedy = scene.refused(lambda: stream.release_aligned("point"))
    point = done(piece(remedy, r"process\.local_align_point\(\)"), process=p)
    assert stream.release_aligned(point) is not None
    remedy = scene.refused(lambda: stream.release_aligned(flow.process("q").local_align_point()))
    assert stream.release_aligned(done(piece(remedy, r"\w+\.local_align_point\(\)"), p=p)) is not None


@story("flow.compiled", "call .complete(…) of the handle that came with it")
def a_reference_that_nothing_completes(scene: Scene) -> None:
    flow, p = place()
    handle, back = p.forward_ref()
    p.sink("o", back)
    remedy = scene.refused(flow.compile)
    text = piece(remedy, r"\.complete\(…\)").replace("…", "source")
    done(f"handle{text}", handle=handle, source=p.source("s"))
    assert flow.compile() is not None


@story(
    "flow.compiled",
    "read the pair with .snapshot_aligned(tick, point, nondet(…)), or take a .snapshot of each in one tick",
)
def a_pair_of_two_moments(scene: Scene) -> None:
    def made(read: Any) -> Any:
        flow, p = place()
        s = p.source("s")
        point, tick = p.local_align_point(), p.tick()
        p.sink("acks", s.release_aligned(point))
        p.sink("pairs", read(s.count(), s.fold(0, add), tick, point).all_ticks())
        return flow.compile()

    remedy = scene.refused(lambda: made(lambda a, b, tick, point: a.zip(b).snapshot(tick, WHY)))
    aligned = piece(remedy, r"\.snapshot_aligned\(.*?\)\)").replace("…", "'any'")
    assert made(lambda a, b, tick, point: call(a.zip(b), aligned, tick=tick, point=point))
    each = piece(remedy, r"a (\.snapshot) of") + "(tick, WHY)"
    assert made(lambda a, b, tick, point: call(a, each, tick=tick).zip(call(b, each, tick=tick)))


@story("flow.compiled", "use the result of the execution before: tick.cycle(), tick.state() or .defer_tick()")
def a_node_that_needs_its_own_result(scene: Scene) -> None:
    def made(way: str) -> Any:
        flow, p = place()
        tick = p.tick()
        batch = p.source("s").batch(tick, WHY)
        if way.startswith("tick.state"):
            handle, ahead = done(way.replace("()", "(0)"), tick=tick)
            total = batch.count().zip(ahead).map(sum)
            handle.complete(total)
            p.sink("o", total.all_ticks())
            return flow.compile()
        handle, ahead = done(way, tick=tick) if way.startswith("tick.cycle") else tick.forward_ref()
        both = batch.chain(ahead) if hasattr(batch, "chain") else batch.union(ahead).assume_ordering(WHY)
        handle.complete(call(both, way) if way.startswith(".") else both)
        p.sink("o", both.all_ticks())
        return flow.compile()

    remedy = scene.refused(lambda: made(""))
    for way in (r"tick\.cycle\(\)", r"tick\.state\(\)", r"\.defer_tick\(\)"):
        assert made(piece(remedy, way))


@story("flow.interpreter", "name the sources: run({'source': values})")
@story("flow.machine", "send something first, or ask ready()")
def a_run_without_names(scene: Scene) -> None:
    flow, p = place()
    p.sink("o", p.source("source").batch(p.tick(), WHY).all_ticks())
    remedy = scene.refused(lambda: flow.run([1, 2]))
    assert done("flow." + piece(remedy, r"run\(.*\)"), flow=flow, values=[1, 2]) == {"o": [1, 2]}
    machine = Machine(flow.compile())
    remedy = scene.refused(machine.fire)
    assert done("machine." + piece(remedy, r"ready\(\)"), machine=machine) == []
    machine.send("source", 1)
    machine.fire()


@story(
    "flow.locations",
    "give a stream; .all_ticks() makes one of a value in a tick",
    "leave a tick with .all_ticks(), bring a stream to this location with .send(…)",
)
def sinks_of_what_is_not_a_stream_here(scene: Scene) -> None:
    flow, p = place()
    q, tick, source = flow.process("q"), p.tick(), p.source("s")
    value = source.batch(tick, WHY).count()
    remedy = scene.refused(lambda: p.sink("a", value))
    p.sink("a", call(value, piece(remedy, r"\.all_ticks\(\)")))
    remedy = scene.refused(lambda: p.sink("b", source.batch(tick, WHY)))
    p.sink("b", call(source.batch(tick, WHY), piece(remedy, r"\.all_ticks\(\)")))
    remedy = scene.refused(lambda: q.sink("c", source))
    q.sink("c", call(source, piece(remedy, r"\.send\(…\)").replace("…", "q"), q=q))
    assert flow.compile() is not None


@story("flow.machine", "feed back fewer: filter what is done, or drop repeats with .unique()")
def a_loop_without_end(scene: Scene) -> None:
    def run(fewer: str) -> None:
        flow, p = place()
        handle, back = p.forward_ref(ordered=False)
        everything = p.source("s").union(back)
        handle.complete(call(everything.map(lambda x: (x + 1) % 3), fewer))
        p.sink("o", everything)
        Machine(flow.compile()).send("s", 0)

    remedy = scene.refused(lambda: run(""))
    run(piece(remedy, r"\.unique\(\)"))
    run(f".{piece(remedy, 'filter')}(lambda x: x > 1)")


@story("flow.regions", "align what is made from one stream, or use .batch and .snapshot")
def uses_that_share_nothing(scene: Scene) -> None:
    def made(read: str, *names: str) -> Any:
        flow, p = place()
        point, tick = p.local_align_point(), p.tick()
        sources = {name: p.source(name) for name in sorted(set(names))}
        for number, name in enumerate(names):
            p.sink(str(number), call(sources[name].count(), read, tick=tick, point=point).all_ticks())
        return flow.compile()

    remedy = scene.refused(lambda: made(".snapshot_aligned(tick, point, WHY)", "a", "b"))
    assert made(f"{piece(remedy, r'and ([.]snapshot)')}(tick, WHY)", "a", "b")
    assert made(".snapshot_aligned(tick, point, WHY)", "a", "a")


@story(
    "flow.regions",
    "put aligned_at behind the network edge, where the uses are",
    "add .aligned_at(point) to what it is made from, or remove every .aligned_at(point): the compiler then "
    "finds what the uses share",
)
def uses_that_no_tag_reaches(scene: Scene) -> None:
    def sent(before: str, behind: str) -> Any:
        flow, p = place()
        q = flow.process("q")
        point, tick = p.local_align_point(), p.tick()
        s = call(p.source("s"), before, point=point)
        back = call(s.send(q).send(p), behind, point=point)
        p.sink("a", (s if before else back).release_aligned(point))
        p.sink("b", back.count().snapshot_aligned(tick, point, WHY).all_ticks())
        return flow.compile()

    remedy = scene.refused(lambda: sent(".aligned_at(point)", ""))
    assert sent("", f".{piece(remedy, 'aligned_at')}(point)")

    def tagged(one: str, other: str) -> Any:
        flow, p = place()
        point, tick, s = p.local_align_point(), p.tick(), p.source("s")
        p.sink("a", call(s, one, point=point).count().snapshot_aligned(tick, point, WHY).all_ticks())
        p.sink("b", call(s, other, point=point).fold(0, add).snapshot_aligned(tick, point, WHY).all_ticks())
        return flow.compile()

    remedy = scene.refused(lambda: tagged(".aligned_at(point)", ""))
    tag = piece(remedy, r"add (\.aligned_at\(point\))")
    assert tagged(tag, tag)
    assert tagged("", "")


@story(
    "flow.regions",
    "read it with the point's own .batch_aligned or .snapshot_aligned, or fork after it instead of before",
)
def a_step_that_may_lag(scene: Scene) -> None:
    def made(read: str, after: bool = False) -> Any:
        flow, p = place()
        point, tick, s = p.local_align_point(), p.tick(), p.source("s")
        if read:
            p.sink("a", call(s, read, tick=tick, point=point).all_ticks())
            p.sink("b", s.release_aligned(point))
            return flow.compile()
        late = s.batch(p.tick(), WHY).all_ticks()
        p.sink("a", late.count().snapshot_aligned(tick, point, WHY).all_ticks())
        p.sink("b", (late if after else s).release_aligned(point))
        return flow.compile()

    remedy = scene.refused(lambda: made(""))
    assert made(f"{piece(remedy, r'[.]batch_aligned')}(tick, point, WHY)")
    assert made(f".count(){piece(remedy, r'[.]snapshot_aligned')}(tick, point, WHY)")
    assert piece(remedy, "fork after it")
    assert made("", after=True)


@story(
    "flow.ticks",
    "make the reference with ordered=False, or complete it with a stream that promises as much: "
    ".assume_ordering(nondet(…)), .unique()",
)
def a_reference_that_promises_more(scene: Scene) -> None:
    _, p = place()
    mixed = p.source("s", ordered=False)
    handle, _ = p.forward_ref()
    remedy = scene.refused(lambda: handle.complete(mixed))
    handle.complete(call(mixed, piece(remedy, r"\.assume_ordering\(.*?\)\)").replace("…", "'any'")))
    other, _ = p.forward_ref(**keywords(remedy, r"(ordered=False)"))
    other.complete(mixed)
    third, _ = p.forward_ref()
    again = p.source("again", at_least_once=True)
    scene.refused(lambda: third.complete(again))
    third.complete(call(again, piece(remedy, r"\.unique\(\)")))


# --- the simulator ------------------------------------------------------------------------


def batches() -> Flow:
    """A flow that hands on what it is given, in batches."""
    flow, p = place()
    p.sink("out", p.source("in").batch(p.tick(), WHY).all_ticks())
    return flow


@story("flow.simulator.faults", "give redelivery(…), crash(…) or drift(…) of trueline.flow.simulator")
def a_fault_that_is_not_one(scene: Scene) -> None:
    def body(sim: Any) -> None:
        sim.send("in", 1)
        sim.quiesce()

    remedy = scene.refused(lambda: batches().simulate(body, faults=["crash"]))
    for name in ("redelivery", "crash"):
        fault = done("faults." + piece(remedy, rf"{name}\(…\)").replace("…", ""), faults=faults)
        batches().simulate(body, faults=[fault])
    assert callable(getattr(faults, piece(remedy, r"or (drift)")))


@story("flow.simulator.runner", "look for a loop that feeds itself, or allow more with max_steps=")
def a_flow_that_takes_many_steps(scene: Scene) -> None:
    def body(sim: Any) -> None:
        for number in range(6):
            sim.send("in", number)
            assert sim.next("out") == number

    remedy = scene.refused(raises(lambda: batches().simulate(body, max_steps=3)))
    batches().simulate(body, **{piece(remedy, r"(\w+)=$"): 1000})


@story("flow.simulator.script", "prescribe a decision, or .pause() it")
def a_script_without_a_decision(scene: Scene) -> None:
    def body(pause: str) -> Any:
        def run(sim: Any) -> None:
            batch = sim.at("batch")
            sim.send("in", 1, 2)
            batch.release(1)
            assert sim.next("out") == 1
            done(f"batch{pause}", batch=batch)
            sim.quiesce()

        return run

    remedy = scene.refused(raises(lambda: batches().simulate(body(""))))
    batches().simulate(body(piece(remedy, r"\.pause\(\)")))


@story(
    "flow.simulator.simulate",
    "read what comes out: sim.next, sim.collect, or sim.quiesce to let everything happen",
)
def a_body_that_reads_nothing(scene: Scene) -> None:
    def body(read: str) -> Any:
        def run(sim: Any) -> None:
            sim.send("in", 1)
            done(read, sim=sim)

        return run

    remedy = scene.refused(lambda: batches().simulate(body("None")))
    for name, given in (("next", "('out')"), ("collect", "('out')"), ("quiesce", "()")):
        batches().simulate(body(piece(remedy, rf"sim\.{name}") + given))


@story(
    "flow.simulator.simulation",
    "check absence with sim.assert_no_more(…) or sim.fork(…), which explore both, or say with sim.quiesce() "
    "that a phase is over",
)
def a_read_after_something_was_absent(scene: Scene) -> None:
    def body(check: str) -> Any:
        def run(sim: Any) -> None:
            sim.send("in", 1)
            if "no_more" in check:
                assert sim.next("out") == 1
            elif "fork" not in check:
                sim.collect("out")
            done(check, sim=sim)
            sim.send("in", 3)
            sim.next("out")

        return run

    remedy = scene.refused(raises(lambda: batches().simulate(body("None"))))
    batches().simulate(body(piece(remedy, r"sim\.quiesce\(\)")))
    batches().simulate(body(piece(remedy, r"sim\.assert_no_more\(…\)").replace("…", "'out'")))
    batches().simulate(body(piece(remedy, r"sim\.fork\(…\)").replace("…", "lambda: sim.collect('out')")))
