"""The alignment compiler: what is shared, where agreement begins, what runs as one, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture import ROOT
from tests.flow.handler_acks import acknowledge
from tests.flow.handler_answers import answer
from tests.flow.programs import WHY, bank, counter, traces
from trueline import console
from trueline.errors import (
    AsyncEdgeInRegion,
    InputError,
    NoSharedUpstream,
    NotAligned,
    NotPromised,
    ReentrantAlignment,
    SharedOnlyBehindNetwork,
    SynchronousCycle,
    WrongLocation,
)
from trueline.flow import Flow, Machine


def add(a, b):
    return a + b


def place(name="p"):
    flow = Flow("f")
    return flow, flow.process(name)


def alignment(flow, number=0):
    return flow.compile().regions.alignments[number]


def kinds(nodes):
    return [node.kind for node in nodes]


def codes(flow):
    return [(r.level, r.code) for r in flow.compile().regions.remarks]


def two_reads(p, stream, point, ticks=1):
    """A count and a sum of one stream, read with one point."""
    a = p.tick()
    b = a if ticks == 1 else p.tick()
    count = stream.count().snapshot_aligned(a, point, WHY)
    total = stream.fold(0, add).snapshot_aligned(b, point, WHY)
    p.sink(f"counts{point.name}", count.all_ticks())
    p.sink(f"totals{point.name}", total.all_ticks())


# --- core -----------------------------------------------------------------------------


@pytest.mark.contract("align:A1")
def test_two_uses_of_one_collection_in_one_tick_are_two_instances():
    flow, p = place()
    point, tick = p.local_align_point(), p.tick()
    count = p.source("s").count()
    for name in ("a", "b"):
        p.sink(name, count.snapshot_aligned(tick, point, WHY).all_ticks())
    assert len(point.uses) == 2
    assert kinds(alignment(flow).instances) == ["snapshot_aligned"] * 2


@pytest.mark.contract("align:A2", "align:A4")
def test_the_boundary_is_the_last_node_that_all_uses_share():
    flow, p = place()
    point = p.local_align_point()
    two_reads(p, p.source("s").map(abs).filter(bool), point)
    assert kinds(alignment(flow).boundary) == ["filter"]


@pytest.mark.contract("align:A4")
def test_uses_in_pairs_have_a_boundary_for_each_set_of_users():
    flow, p = place()
    point, tick = p.local_align_point(), p.tick()
    s = p.source("s")
    even = s.filter(lambda x: x % 2 == 0)
    for name, single in (("a", s.count()), ("b", even.count()), ("c", even.fold(0, add))):
        p.sink(name, single.snapshot_aligned(tick, point, WHY).all_ticks())
    assert kinds(alignment(flow).boundary) == ["source", "filter"]
    assert [hook.source.kind for hook in flow.compile().hooks] == ["source"]


@pytest.mark.contract("align:A3")
def test_what_is_received_may_be_shared_and_nothing_behind_it():
    flow, p = place()
    q = flow.process("q")
    point = q.local_align_point()
    two_reads(q, p.source("s").map(abs).send(q), point)
    assert kinds(alignment(flow).boundary) == ["send"]
    assert kinds(alignment(flow).region) == ["send", "count", "fold"]


@pytest.mark.contract("align:A5")
def test_the_region_holds_all_nodes_between_boundary_and_uses():
    flow = counter()
    assert kinds(alignment(flow).region) == ["source", "fold"]


@pytest.mark.contract("align:A5", "align:A40")
def test_a_map_before_or_after_the_fork_makes_no_difference():
    inputs = (("increments", (1, 1)), ("queries", ("q",)))

    def after():
        flow, p = place()
        tick, point = p.tick(), p.local_align_point()
        s = p.source("increments")
        p.sink("acks", s.map(lambda x: x + 0).release_aligned(point))
        seen = s.map(lambda x: x + 0).fold(0, add).snapshot_aligned(tick, point, WHY)
        asked = p.source("queries").batch(tick, WHY)
        p.sink("answers", asked.cross_singleton(seen).all_ticks())
        return flow

    plain = traces(counter(), *inputs)
    assert traces(counter(before=lambda s: s.map(lambda x: x + 0)), *inputs) == plain
    assert traces(after(), *inputs) == plain
    assert len(plain) > 1


@pytest.mark.contract("align:A6")
def test_ticks_of_one_point_run_as_one():
    flow, p = place()
    point = p.local_align_point()
    two_reads(p, p.source("s"), point, ticks=2)
    (unit,) = flow.compile().units
    assert [tick.name for tick in unit.ticks] == ["p.tick0", "p.tick1"]
    machine = Machine(flow.compile())
    machine.send("s", 5)
    machine.fire()
    assert machine.outputs("countsp.point0") == (1,)
    assert machine.outputs("totalsp.point0") == (5,)


@pytest.mark.contract("align:A7")
def test_the_only_hand_over_is_where_the_region_begins():
    hooks = counter().compile().hooks
    assert [(hook.source.name, hook.entry) for hook in hooks] == [("increments", True), ("queries", False)]


@pytest.mark.contract("align:A8")
def test_reads_of_one_execution_are_of_one_cut_and_cuts_never_go_back():
    flow, p = place()
    point, tick = p.local_align_point(), p.tick()
    s = p.source("s")
    batch = s.batch_aligned(tick, point, WHY)
    count = s.count().snapshot_aligned(tick, point, WHY)
    everything = s.fold((), lambda seen, x: (*seen, x)).snapshot_aligned(tick, point, WHY)
    joined = count.cross_singleton(everything).into_stream()
    p.sink("cuts", joined.all_ticks())
    p.sink("batches", batch.fold((), lambda seen, x: (*seen, x)).all_ticks())
    for cuts, batches in traces(flow, ("s", ("a", "b", "c"))):
        before = ()
        for (count_, seen), batch_ in zip(cuts, batches, strict=True):
            assert count_ == len(seen)
            assert seen == before + batch_  # the snapshot includes the batch
            before = seen
        assert before == ("a", "b", "c")


@pytest.mark.contract("align:A9")
def test_what_was_acknowledged_is_in_every_later_read():
    for ack in ("aligned", "plain"):
        machine = Machine(counter(ack=ack, read="aligned" if ack == "aligned" else "plain").compile())
        stale = 0
        machine.send("increments", 1)
        for first in machine.choices():
            machine.reset()
            machine.send("increments", 1)
            machine.fire(first)
            if not machine.outputs("acks"):
                continue
            machine.send("queries", "q")
            here = machine.snapshot()
            for choice in machine.choices():
                machine.restore(here)
                machine.fire(choice)
                stale += machine.outputs("answers") == (("q", 0),)
        assert (stale == 0) == (ack == "aligned")


@pytest.mark.contract("align:A9")
def test_a_release_leaves_only_when_the_execution_is_over():
    machine = Machine(counter().compile())
    machine.send("increments", 1)
    assert machine.outputs("acks") == ()
    machine.fire()
    assert machine.outputs("acks") == (1,)
    assert list(machine.cuts()["count"].values()) == [1]


@pytest.mark.contract("align:A10")
def test_aligned_reads_ask_for_a_reason_and_releases_do_not():
    _, p = place()
    point = p.local_align_point()
    s = p.source("s")
    s.release_aligned(point)
    with pytest.raises(TypeError):
        s.count().snapshot_aligned(p.tick(), point)
    with pytest.raises(InputError, match="reason"):
        s.batch_aligned(p.tick(), point, "because")


# --- points that change nothing -------------------------------------------------------


def plain_and_pointless(kind):
    """A flow with one use of a point, and the same without it."""
    found = []
    for aligned in (False, True):
        flow, p = place()
        point, tick = p.local_align_point(), p.tick()
        s = p.source("s")
        if kind == "release":
            p.sink("o", s.release_aligned(point) if aligned else s)
        elif kind == "batch":
            read = s.batch_aligned(tick, point, WHY) if aligned else s.batch(tick, WHY)
            p.sink("o", read.fold((), lambda a, x: (*a, x)).all_ticks())
        else:
            count = s.count()
            read = count.snapshot_aligned(tick, point, WHY) if aligned else count.snapshot(tick, WHY)
            p.sink("o", read.all_ticks())
        found.append(flow)
    return found


@pytest.mark.contract("align:A13", "align:A17")
@pytest.mark.parametrize("kind", ["batch", "snapshot", "release"])
def test_a_point_used_once_changes_nothing_and_says_so(kind):
    plain, pointless = plain_and_pointless(kind)
    inputs = ("s", (1, 2, 3))
    assert traces(pointless, inputs) == traces(plain, inputs)
    with console.use(console.CapturedConsole()) as seen:
        Flow.compile(plain_and_pointless(kind)[1])
    assert "changes nothing: it is used once" in seen.items[0].problem


@pytest.mark.contract("align:A12")
def test_a_release_that_no_read_waits_for_is_passed_on():
    flow, p = place()
    point = p.local_align_point()
    s = p.source("s")
    p.sink("a", s.release_aligned(point))
    p.sink("b", s.map(abs).release_aligned(point))
    machine = Machine(flow.compile())
    machine.send("s", 1)
    assert machine.outputs("a") == machine.outputs("b") == (1,)
    assert "nothing is read with it" in point.explain()


@pytest.mark.contract("align:A12", "align:A17")
@pytest.mark.parametrize("tagged", [False, True], ids=["found", "named"])
def test_a_point_that_is_only_released_is_warned_about_until_something_is_read_with_it(tagged):
    def make(read):
        flow, p = place()
        point = p.local_align_point("acks")
        s = p.source("s").aligned_at(point) if tagged else p.source("s")
        p.sink("a", s.release_aligned(point))
        p.sink("b", s.map(abs).release_aligned(point))
        if read:
            p.sink("c", s.count().snapshot_aligned(p.tick(), point, WHY).all_ticks())
        return flow

    with console.use(console.CapturedConsole()) as seen:
        make(read=False).compile()
    assert [(item.code, "'acks'" in item.problem) for item in seen.items] == [("only releases", True)]
    assert ".snapshot_aligned" in seen.items[0].problem
    assert codes(make(read=True)) == []


@pytest.mark.contract("align:A11", "align:A17")
def test_a_point_that_nothing_uses_is_warned_about():
    flow, p = place()
    p.sink("o", p.source("s"))
    p.local_align_point("idle")
    assert codes(flow) == [("warning", "unused")]
    assert traces(flow, ("s", (1,))) == {((1,),)}


# --- refusals -------------------------------------------------------------------------


@pytest.mark.contract("align:A14", "align:A17")
def test_uses_that_share_nothing_are_refused_with_what_each_rests_on():
    flow, p = place()
    point, tick = p.local_align_point("both"), p.tick()
    a, b = p.source("left").count(), p.source("right").count()
    p.sink("a", a.snapshot_aligned(tick, point, WHY).all_ticks())
    p.sink("b", b.snapshot_aligned(tick, point, WHY).all_ticks())
    with pytest.raises(NoSharedUpstream) as refused:
        flow.compile()
    text = str(refused.value)
    assert "'both'" in text
    assert "made from source 'left' (test_alignment.py:" in text
    assert "made from source 'right' (test_alignment.py:" in text
    assert refused.value.rule == "align:A14"


@pytest.mark.contract("align:A14", "align:A23")
def test_uses_that_meet_only_through_a_forward_reference_are_refused_with_that_word():
    flow, p = place()
    point, tick = p.local_align_point(), p.tick()
    handle, later = p.forward_ref()
    p.sink("a", later.count().snapshot_aligned(tick, point, WHY).all_ticks())
    s = p.source("s")
    p.sink("b", s.count().snapshot_aligned(tick, point, WHY).all_ticks())
    handle.complete(s.filter(lambda x: x > 9))
    with pytest.raises(NoSharedUpstream, match="only a forward reference leads to"):
        flow.compile()


@pytest.mark.contract("align:A15")
def test_sharing_only_behind_the_network_is_refused_with_node_and_edges():
    flow, p = place()
    q = flow.process("q")
    point, tick = q.local_align_point(), q.tick()
    s = p.source("s")
    for name in ("a", "b"):
        q.sink(name, s.send(q).count().snapshot_aligned(tick, point, WHY).all_ticks())
    with pytest.raises(SharedOnlyBehindNetwork, match="alignment is per machine") as refused:
        flow.compile()
    assert refused.value.node.name == "s"
    assert kinds(refused.value.edges) == ["send", "send"]


@pytest.mark.contract("align:A16")
def test_a_point_of_another_place_is_refused_at_the_call():
    flow, p = place()
    point = flow.process("q").local_align_point("elsewhere")
    s = p.source("s")
    for call in (
        lambda: s.release_aligned(point),
        lambda: s.batch_aligned(p.tick(), point, WHY),
        lambda: s.aligned_at(point),
        lambda: s.count().snapshot_aligned(p.tick(), point, WHY),
    ):
        with pytest.raises(WrongLocation, match="'elsewhere' of q") as refused:
            call()
        assert isinstance(refused.value, TypeError)


@pytest.mark.contract("align:A18")
def test_sharing_on_both_sides_of_the_network_aligns_here_and_says_what_it_does_not():
    flow, p = place()
    q = flow.process("q")
    point, tick = q.local_align_point(), q.tick()
    far, near = p.source("far"), q.source("near")
    for name in ("a", "b"):
        pairs = near.union(far.send(q))
        q.sink(name, pairs.count().snapshot_aligned(tick, point, WHY).all_ticks())
    assert ("info", "shared behind network") in codes(flow)
    assert [n.name for n in alignment(flow).boundary] == ["near"]


@pytest.mark.contract("align:A19")
def test_every_member_of_a_cluster_agrees_with_itself_only():
    flow = Flow("f")
    p, workers = flow.process("p"), flow.cluster("workers", size=2)
    point = workers.local_align_point()
    arrived = p.source("s").broadcast(workers)
    tick = workers.tick()
    count = arrived.count().snapshot_aligned(tick, point, WHY)
    total = arrived.fold(0, add).snapshot_aligned(tick, point, WHY)
    workers.sink("seen", count.cross_singleton(total).all_ticks())
    machine = Machine(flow.compile())
    machine.send("s", 1, 1)
    assert [unit.name for unit in machine.ready()] == ["workers.tick0[0]", "workers.tick0[1]"]
    machine.fire((0, 1))  # the first member takes one element only
    machine.fire((1, 0))
    assert machine.outputs("seen", member=0) == ((1, 1),)
    assert machine.outputs("seen", member=1) == ((2, 2),)
    assert "in each member for itself" in point.explain()


# --- said by hand ---------------------------------------------------------------------


@pytest.mark.contract("align:A20", "align:A22")
def test_a_tag_on_the_boundary_gives_what_is_found_without_it():
    inputs = (("increments", (1, 2)), ("queries", ("q",)))
    tagged = counter(tag=True)
    assert kinds(alignment(tagged).boundary) == ["aligned_at"]
    assert kinds(alignment(tagged).region) == ["aligned_at", "fold"]
    assert traces(tagged, *inputs) == traces(counter(), *inputs)


@pytest.mark.contract("align:A20")
def test_with_a_tag_nothing_else_is_traced():
    flow, p = place()
    point = p.local_align_point()
    two_reads(p, p.source("s").aligned_at(point).map(abs), point)
    assert kinds(alignment(flow).boundary) == ["aligned_at"]
    assert kinds(alignment(flow).region) == ["aligned_at", "map", "count", "fold"]


@pytest.mark.contract("align:A21")
def test_a_tag_that_reaches_one_use_is_warned_about_and_a_use_without_a_tag_refused():
    flow, p = place()
    point, tick = p.local_align_point(), p.tick()
    s = p.source("s")
    p.sink("a", s.aligned_at(point).count().snapshot_aligned(tick, point, WHY).all_ticks())
    p.sink("b", s.aligned_at(point).release_aligned(point))
    assert codes(flow).count(("warning", "lonely tag")) == 2
    p.sink("c", s.fold(0, add).snapshot_aligned(tick, point, WHY).all_ticks())
    with pytest.raises(NotAligned, match=r"made from none of the collections that \.aligned_at names"):
        flow.compile()


@pytest.mark.contract("align:A21")
def test_a_tag_before_the_network_edge_is_refused():
    flow, p = place()
    q = flow.process("q")
    point, tick = p.local_align_point(), p.tick()
    s = p.source("s").aligned_at(point)
    back = s.send(q).send(p)
    p.sink("a", s.release_aligned(point))
    p.sink("b", back.count().snapshot_aligned(tick, point, WHY).all_ticks())
    with pytest.raises(SharedOnlyBehindNetwork, match="put aligned_at behind the network edge"):
        flow.compile()


# --- edges ----------------------------------------------------------------------------


@pytest.mark.contract("align:A23")
def test_what_is_fed_back_belongs_to_a_later_cut():
    flow, p = place()
    point, tick = p.local_align_point(), p.tick()
    handle, back = p.forward_ref(ordered=False)
    s = p.source("s").union(back)
    count = s.count().snapshot_aligned(tick, point, WHY)
    released = s.release_aligned(point)
    handle.complete(released.filter(lambda x: x < 2).map(lambda x: x + 1))
    p.sink("counts", count.all_ticks())
    p.sink("out", released)
    assert kinds(alignment(flow).region) == ["union", "count"]
    machine = Machine(flow.compile())
    machine.send("s", 0)
    while not machine.idle:
        machine.fire()
    assert machine.outputs("counts") == (1, 2, 3)
    assert machine.outputs("out") == (0, 1, 2)


@pytest.mark.contract("align:A24")
def test_a_node_that_needs_its_own_result_of_the_same_execution_is_refused():
    flow, p = place()
    tick = p.tick()
    handle, ahead = tick.forward_ref(ordered=False)
    both = p.source("s").batch(tick, WHY).union(ahead)
    handle.complete(both)
    p.sink("o", both.all_ticks())
    with pytest.raises(SynchronousCycle, match=r"forward_ref \(test_alignment.py:\d+\) → union"):
        flow.compile()


@pytest.mark.contract("align:A25")
def test_what_leaves_a_point_and_comes_back_to_it_is_refused_with_the_way():
    flow, p = place()
    point, tick = p.local_align_point(), p.tick()
    s = p.source("s")
    out = s.batch_aligned(tick, point, WHY).all_ticks()
    p.sink("a", out.count().snapshot_aligned(tick, point, WHY).all_ticks())
    p.sink("b", s.release_aligned(point))
    with pytest.raises(ReentrantAlignment) as refused:
        flow.compile()
    assert kinds(refused.value.path) == ["batch_aligned", "all_ticks", "count", "snapshot_aligned"]


@pytest.mark.contract("align:A26")
@pytest.mark.parametrize("how", ["batch", "latest"])
def test_a_step_that_may_lag_inside_the_region_is_refused_with_its_name(how):
    flow, p = place()
    point, tick, other = p.local_align_point(), p.tick(), p.tick()
    s = p.source("s")
    if how == "batch":
        late = s.batch(other, WHY).all_ticks().count()
    else:
        late = s.count().snapshot(other, WHY).latest()
    p.sink("a", late.snapshot_aligned(tick, point, WHY).all_ticks())
    p.sink("b", s.release_aligned(point))
    with pytest.raises(AsyncEdgeInRegion, match="may lag") as refused:
        flow.compile()
    assert refused.value.edge.kind in ("batch", "snapshot")
    assert "source 's'" in str(refused.value)


@pytest.mark.contract("align:A27")
def test_the_side_before_the_cut_is_read_when_it_is_asked_for_by_name():
    flow, p = place()
    point, tick = p.local_align_point(), p.tick()
    s = p.source("s")
    new = s.batch_aligned(tick, point, WHY).fold((), lambda a, x: (*a, x))
    everything = s.fold((), lambda a, x: (*a, x))
    before = everything.snapshot_aligned(tick, point, WHY, side="before")
    after = everything.snapshot_aligned(tick, point, WHY)
    p.sink("o", before.cross_singleton(new).cross_singleton(after).all_ticks())
    for (shown,) in traces(flow, ("s", (1, 2, 3))):
        for (old, batch), now in shown:
            assert old + batch == now
        assert shown[-1][1] == (1, 2, 3)
    with pytest.raises(InputError, match="side='middle'"):
        everything.snapshot_aligned(tick, point, WHY, side="middle")


@pytest.mark.contract("align:A27")
def test_a_deferred_path_into_a_read_is_refused():
    flow, p = place()
    point, tick = p.local_align_point(), p.tick()
    s = p.source("s")
    late = s.batch(p.tick(), WHY).defer_tick().all_ticks()
    p.sink("a", late.count().snapshot_aligned(tick, point, WHY).all_ticks())
    p.sink("b", s.release_aligned(point))
    with pytest.raises(AsyncEdgeInRegion):
        flow.compile()


@pytest.mark.contract("align:A28")
def test_points_that_overlap_run_as_one_and_others_stay_apart():
    flow, p = place()
    s, other = p.source("s"), p.source("other")
    first, second, third = (p.local_align_point(name) for name in "abc")
    two_reads(p, s, first)
    two_reads(p, s, second)
    two_reads(p, other, third)
    groups = [[a.point.name for a in group.alignments] for group in flow.compile().regions.groups]
    assert groups == [["a", "b"], ["c"]]
    assert len(flow.compile().units) == 2
    assert "together with align point 'b', which overlaps" in first.explain()


@pytest.mark.contract("align:A28")
def test_points_that_have_nothing_in_common_make_every_pair_of_their_traces():
    def one(flow, p, name):
        point = p.local_align_point(name)
        two_reads(p, p.source(name), point)

    both, p = place()
    one(both, p, "a")
    one(both, p, "b")
    single, q = place("p")
    one(single, q, "a")
    alone = traces(single, ("a", (1, 2)))
    pairs = traces(both, ("a", (1, 2)), ("b", (1, 2)))
    assert pairs == {x + y for x in alone for y in alone}


@pytest.mark.contract("align:A28")
def test_points_that_share_a_tick_run_as_one():
    flow, p = place()
    tick = p.tick()
    for name in "ab":
        point = p.local_align_point(name)
        s = p.source(name)
        p.sink(f"x{name}", s.count().snapshot_aligned(tick, point, WHY).all_ticks())
        p.sink(f"y{name}", s.release_aligned(point))
    assert len(flow.compile().units) == 1


@pytest.mark.contract("align:A29")
def test_one_point_for_two_unrelated_groups_is_one_tick_and_a_warning():
    flow, p = place()
    point = p.local_align_point()
    tick = p.tick()
    for name in "ab":
        s = p.source(name)
        p.sink(f"x{name}", s.count().snapshot_aligned(tick, point, WHY).all_ticks())
        p.sink(f"y{name}", s.release_aligned(point))
    assert ("warning", "unrelated uses") in codes(flow)
    assert len(flow.compile().units) == 1


@pytest.mark.contract("align:A30")
def test_a_use_that_shares_nothing_runs_with_the_others_and_is_warned_about():
    flow, p = place()
    point, tick = p.local_align_point(), p.tick()
    s = p.source("s")
    p.sink("a", s.count().snapshot_aligned(tick, point, WHY).all_ticks())
    p.sink("b", s.release_aligned(point))
    p.sink("c", p.source("apart").release_aligned(point))
    assert ("warning", "orphan instance") in codes(flow)
    machine = Machine(flow.compile())
    machine.send("apart", "x")
    assert machine.outputs("c") == ()
    machine.fire()
    assert machine.outputs("c") == ("x",)


@pytest.mark.contract("align:A31")
def test_a_point_behind_the_release_of_another_is_a_tick_of_its_own():
    flow, p = place()
    first, second = p.local_align_point("first"), p.local_align_point("second")
    s = p.source("s")
    tick, other = p.tick(), p.tick()
    p.sink("a", s.count().snapshot_aligned(tick, first, WHY).all_ticks())
    released = s.release_aligned(first)
    p.sink("b", released.count().snapshot_aligned(other, second, WHY).all_ticks())
    p.sink("c", released.release_aligned(second))
    assert len(flow.compile().units) == 2
    assert kinds(alignment(flow, 1).boundary) == ["release_aligned"]
    machine = Machine(flow.compile())
    machine.send("s", "x")
    machine.fire()
    assert machine.outputs("c") == ()
    machine.fire()
    assert machine.outputs("c") == ("x",)


@pytest.mark.contract("align:A31")
def test_a_branch_through_another_points_release_is_refused():
    flow, p = place()
    first, second = p.local_align_point("first"), p.local_align_point("second")
    s = p.source("s")
    p.sink("a", s.count().snapshot_aligned(p.tick(), first, WHY).all_ticks())
    released = s.release_aligned(first)
    p.sink("b", released.count().snapshot_aligned(p.tick(), second, WHY).all_ticks())
    p.sink("c", s.release_aligned(second))
    with pytest.raises(AsyncEdgeInRegion) as refused:
        flow.compile()
    assert refused.value.edge.kind == "release_aligned"


@pytest.mark.contract("align:A32")
def test_what_is_inside_a_tick_cannot_be_aligned():
    _, p = place()
    point, tick = p.local_align_point(), p.tick()
    inside = p.source("s").batch(tick, WHY)
    with pytest.raises(WrongLocation, match="ticks do not nest"):
        inside.batch_aligned(tick, point, WHY)
    with pytest.raises(WrongLocation, match="inside"):
        inside.release_aligned(point)
    with pytest.raises(WrongLocation, match="ticks do not nest"):
        inside.count().snapshot_aligned(tick, point, WHY)


@pytest.mark.contract("align:A33")
def test_an_operator_with_inputs_of_two_regions_joins_them():
    flow, p = place()
    first, second = p.local_align_point("first"), p.local_align_point("second")
    a, b = p.source("a"), p.source("b")
    both = a.map(abs).union(b)
    p.sink("x", both.count().snapshot_aligned(p.tick(), first, WHY).all_ticks())
    p.sink("y", a.release_aligned(first))
    p.sink("z", b.release_aligned(second))
    p.sink("w", b.count().snapshot_aligned(p.tick(), second, WHY).all_ticks())
    assert len(flow.compile().regions.groups) == 1
    assert len(flow.compile().units) == 1


@pytest.mark.contract("align:A34")
def test_a_constant_is_nothing_to_share():
    flow, p = place()
    rate = p.singleton(2)
    point, tick = p.local_align_point(), p.tick()
    for name in "ab":
        scaled = p.source(name).cross_singleton(rate).map(lambda pair: pair[0] * pair[1])
        p.sink(f"o{name}", scaled.fold(0, add).snapshot_aligned(tick, point, WHY).all_ticks())
    with pytest.raises(NoSharedUpstream):
        flow.compile()


@pytest.mark.contract("align:A35")
def test_a_shared_value_is_read_once_for_all_absence_included():
    flow, p = place()
    point, tick = p.local_align_point(), p.tick()
    last = p.source("s").last()
    a = last.map(lambda x: ("a", x)).snapshot_aligned(tick, point, WHY).unwrap_or(("a", None))
    b = last.map(lambda x: ("b", x)).snapshot_aligned(tick, point, WHY).unwrap_or(("b", None))
    p.sink("o", a.cross_singleton(b).all_ticks())
    assert kinds(alignment(flow).boundary) == ["last"]
    found = traces(flow, ("s", (1, 2)))
    assert all(x == y for (shown,) in found for (_, x), (_, y) in shown)
    assert {shown[0] for (shown,) in found} == {(("a", value), ("b", value)) for value in (None, 1, 2)}


@pytest.mark.contract("align:A35")
def test_a_keyed_boundary_is_cut_key_by_key():
    flow, p = place()
    point, tick = p.local_align_point(), p.tick()
    keyed = p.source("s").key_by(lambda x: x[0])
    a = keyed.count().snapshot_aligned(tick, point, WHY)
    b = keyed.fold((), lambda seen, x: (*seen, x)).snapshot_aligned(tick, point, WHY)
    p.sink("o", a.join(b).entries().sort().fold((), lambda seen, x: (*seen, x)).all_ticks())
    found = traces(flow, ("s", ("a1", "b1", "a2")))
    firsts = {tuple((k, n) for k, (n, _) in shown[0]) for (shown,) in found}
    assert (("b", 1),) in firsts  # a later element of another key may be seen first
    assert all(n == len(seen) for (shown,) in found for cut in shown for _, (n, seen) in cut)


@pytest.mark.contract("align:A36")
def test_several_boundaries_make_any_combination_and_the_same_for_all():
    flow, p = place()
    point, tick = p.local_align_point(), p.tick()
    a, b = p.source("a"), p.source("b")
    reads = []
    for _ in range(2):
        pair = a.count().zip(b.count())
        reads.append(pair.snapshot_aligned(tick, point, WHY))
    p.sink("o", reads[0].cross_singleton(reads[1]).all_ticks())
    assert [n.name for n in alignment(flow).boundary] == ["a", "b"]
    found = traces(flow, ("a", (1,)), ("b", (1,)))
    assert all(x == y for (shown,) in found for x, y in shown)
    assert {shown[0][0] for (shown,) in found} == {(1, 0), (0, 1), (1, 1)}


@pytest.mark.contract("align:A37")
def test_a_third_consumer_of_what_is_shared_is_not_held_back():
    flow, p = place()
    point, tick = p.local_align_point(), p.tick()
    s = p.source("s")
    count = s.count()
    p.sink("seen", count.snapshot_aligned(tick, point, WHY).all_ticks())
    p.sink("acks", s.release_aligned(point))
    p.sink("log", s)
    p.sink("plain", count.snapshot(p.tick(), WHY).all_ticks())
    machine = Machine(flow.compile())
    machine.send("s", 1)
    assert machine.outputs("log") == (1,)
    assert machine.outputs("acks") == ()
    plain = next(i for i, unit in enumerate(machine.ready()) if unit.name == "p.tick1")
    machine.fire((plain, 0))
    assert machine.outputs("plain") == (1,)  # ahead of the aligned read
    assert machine.outputs("seen") == ()


@pytest.mark.contract("align:A38")
def test_the_tick_runs_when_any_of_its_inputs_has_something_new():
    machine = Machine(counter().compile())
    machine.send("queries", "q")
    machine.fire()
    assert machine.outputs("answers") == (("q", 0),)  # no increments came
    machine.send("increments", 1)
    machine.fire()
    assert machine.outputs("acks") == (1,)  # no queries came
    assert machine.idle


@pytest.mark.contract("align:A39")
def test_when_inputs_stop_all_is_released_and_the_end_is_the_same():
    inputs = (("increments", (1, 1)), ("queries", ("q",)))
    ends = []
    for flow in (counter(), counter(read="plain", ack="plain")):
        found = traces(flow, *inputs, sinks=("acks",))
        ends.append(found)
    assert ends[0] == ends[1] == {((1, 1),)}


@pytest.mark.contract("align:A40")
def test_identity_maps_second_forks_and_other_names_change_nothing():
    inputs = (("increments", (1, 2)), ("queries", ("q",)))
    plain = traces(counter(), *inputs)

    def same(x):
        return x

    def forked():
        flow, p = place("elsewhere")
        queries = p.source("queries")  # declared in another order
        point, tick = p.local_align_point("renamed"), p.tick("other")
        s = p.source("increments")

        def released(stream, point):
            return stream.map(same).release_aligned(point)

        p.sink("acks", released(s.map(same), point))
        seen = s.map(same).map(same).fold(0, add).map(same).snapshot_aligned(tick, point, WHY)
        p.sink("answers", queries.batch(tick, WHY).map(same).cross_singleton(seen).all_ticks())
        return flow

    assert traces(forked(), *inputs, sinks=("acks", "answers")) == plain


@pytest.mark.contract("align:A41")
def test_alignment_only_takes_traces_away():
    inputs = (("increments", (1, 2)), ("queries", ("q",)))
    naive = traces(counter(read="plain", ack="plain"), *inputs)
    half = traces(counter(ack="plain"), *inputs)
    full = traces(counter(), *inputs)
    assert full <= half <= naive
    two = (("transfers", (("a", "b", 1), ("b", "c", 1))), ("queries", ("q",)))
    assert traces(bank(True), *two) < traces(bank(False), *two)


@pytest.mark.contract("align:A42")
def test_two_live_values_are_a_pair_inside_a_region_only():
    flow, p = place()
    s = p.source("s")
    pair = s.count().zip(s.fold(0, add))
    point, tick = p.local_align_point(), p.tick()
    p.sink("pairs", pair.map(lambda both: both[1] - both[0]).snapshot_aligned(tick, point, WHY).all_ticks())
    p.sink("acks", s.release_aligned(point))
    assert all(set(shown) <= {0} for shown, _ in traces(flow, ("s", (1, 1, 1))))

    flow, p = place()
    s = p.source("s")
    pair = s.count().zip(s.fold(0, add))
    p.sink("pairs", pair.snapshot(p.tick(), WHY).all_ticks())
    with pytest.raises(NotPromised, match="snapshot_aligned") as refused:
        flow.compile()
    assert refused.value.rule == "align:A42"


@pytest.mark.contract("align:A42")
def test_a_function_in_a_region_never_sees_a_pair_of_two_cuts():
    seen = []
    flow, p = place()
    s = p.source("s")
    point, tick = p.local_align_point(), p.tick()
    pair = s.count().zip(s.fold(0, add)).map(lambda both: seen.append(both) or both)
    p.sink("pairs", pair.snapshot_aligned(tick, point, WHY).all_ticks())
    p.sink("acks", s.release_aligned(point))
    traces(flow, ("s", (1, 1, 1)))
    assert seen
    assert all(a == b for a, b in seen)


SAME = """
from tests.flow.test_alignment import place, two_reads, WHY
from tests.flow.programs import counter
from trueline.errors import TruelineError
from trueline.flow import Flow
flow = counter()
print(flow.explain())
flow, p = place()
point, tick = p.local_align_point("both"), p.tick()
for name in ("left", "right", "third"):
    p.sink(name, p.source(name).count().snapshot_aligned(tick, point, WHY).all_ticks())
try:
    flow.compile()
except TruelineError as error:
    print(error)
"""


@pytest.mark.contract("align:A43")
def test_diagnostics_are_the_same_in_every_process():
    said = {
        subprocess.run(
            [sys.executable, "-c", SAME],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(said) == 1
    assert "share nothing to agree on" in said.pop()


# --- words ----------------------------------------------------------------------------


def test_handlers_in_two_modules_agree_and_every_use_is_listed_with_file_and_line():
    flow, p = place()
    point = p.local_align_point("count")
    increments = p.source("increments")
    acknowledge(p, increments, point)
    answer(p, increments.fold(0, add), point)
    uses = point.uses
    assert [(Path(use.file).name, use.function, use.kind) for use in uses] == [
        ("handler_acks.py", "acknowledge", "release_aligned"),
        ("handler_answers.py", "answer", "snapshot_aligned"),
    ]
    for use in uses:
        line = Path(use.file).read_text(encoding="utf-8").splitlines()[use.line - 1]
        assert use.kind in line
        assert use.text == line.strip()
    inputs = (("increments", (1, 2)), ("queries", ("q",)))
    assert traces(flow, *inputs) == traces(counter(), *inputs)


def test_explain_says_boundary_region_ticks_and_promise():
    _, p = place("server")
    point = p.local_align_point("count")
    two_reads(p, p.source("s"), point, ticks=2)
    text = point.explain()
    assert "agrees on source 's' (test_alignment.py:" in text
    assert "moves into the tick: count (test_alignment.py:" in text
    assert "runs server.tick0 and server.tick1 as one tick" in text
    assert "promised: a consistent snapshot" in text
    assert "on this machine" in text


def test_a_slice_is_a_tick_that_need_not_be_named():
    flow, p = place()
    point = p.local_align_point("count")
    s = p.source("s")
    with point.slice() as now:
        count = now.snapshot(s.count(), WHY)
        batch = now.batch(s, WHY)
    p.sink("o", batch.cross_singleton(count).all_ticks())
    assert all(
        [n for _, n in shown][-1] == 2 and {x for x, _ in shown} == {"a", "b"}
        for (shown,) in traces(flow, ("s", ("a", "b")))
    )


def test_an_unused_point_is_warned_of_once_though_the_flow_grows():
    flow = Flow("growing")
    server = flow.process("server")
    server.local_align_point("idle")
    first = server.source("a", ordered=True)
    server.sink("b", first)
    with console.use(console.CapturedConsole()) as seen:
        flow.compile()
        flow.compile()
        server.sink("c", first)
        flow.compile()
    assert [item.code for item in seen.items] == ["unused"]
