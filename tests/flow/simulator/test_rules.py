"""The rules of alignment, as far as they say what a flow does: each over all its schedules."""

from __future__ import annotations

import pytest

from tests.flow.simulator import counters
from tests.flow.simulator.traces import outcomes, traces
from trueline.flow import Flow, nondet

WHY = nondet("the test looks at every choice")


def place(name: str = "flow"):
    flow = Flow(name)
    return flow, flow.process("p")


def total(a, x):
    return a + x


# --- agreement ------------------------------------------------------------------------------


def two_reads(first_tick: str = "a", second_tick: str = "a", *, aligned: bool = True):
    """A stream read twice: as pieces, and as the sum of all pieces so far."""
    flow, p = place()
    ticks = {name: p.tick(name) for name in dict.fromkeys((first_tick, second_tick))}
    numbers, point = p.source("in"), p.local_align_point("both")
    one, two = ticks[first_tick], ticks[second_tick]
    if aligned:
        piece = numbers.batch_aligned(one, point, WHY)
        whole = numbers.fold(0, total).snapshot_aligned(two, point, WHY)
    else:
        piece, whole = numbers.batch(one, WHY), numbers.fold(0, total).snapshot(two, WHY)
    p.sink("pieces", piece.fold(0, total).all_ticks())
    p.sink("wholes", whole.all_ticks())
    return flow


def running(values):
    sums, now = [], 0
    for value in values:
        now += value
        sums.append(now)
    return tuple(sums)


@pytest.mark.contract("align:A8")
def test_A8_a_snapshot_includes_the_batch_of_its_execution_and_nothing_beyond():
    for trace in traces(two_reads(), ("in", 1, 2, 4)):
        seen = {name: values for name, _, values in trace}
        assert seen["wholes"] == running(seen["pieces"])


@pytest.mark.contract("align:A6")
def test_A6_reads_in_two_ticks_agree_as_in_one():
    assert traces(two_reads("a", "b"), ("in", 1, 2, 4)) == traces(two_reads("a", "a"), ("in", 1, 2, 4))


@pytest.mark.contract("align:A7")
def test_A7_there_is_one_choice_for_each_boundary_node():
    """Two reads of one stream have as many schedules as one: the ways to cut it."""

    def body(sim):
        sim.send("in", 1, 2, 4, 8)
        sim.quiesce()

    assert two_reads("a", "b").simulate(body, hashing=False).executions == 8


@pytest.mark.contract("align:A5")
def test_A5_moving_a_step_across_the_fork_changes_nothing():
    def made(before: bool):
        flow, p = place()
        tick, point = p.tick(), p.local_align_point()
        numbers = p.source("in")
        numbers = numbers.map(lambda x: 10 * x) if before else numbers
        later = numbers if before else numbers.map(lambda x: 10 * x)
        p.sink("acks", later.release_aligned(point))
        p.sink("sums", later.fold(0, total).snapshot_aligned(tick, point, WHY).all_ticks())
        return flow

    assert traces(made(True), ("in", 1, 2, 3)) == traces(made(False), ("in", 1, 2, 3))


@pytest.mark.contract("align:A9")
def test_A9_what_was_released_is_in_every_later_read():
    flow = counters.aligned()

    def body(sim):
        sim.send("increments", 1, 2, 3)
        for acknowledged in (1, 2, 3):
            sim.next("acks")
            sim.send("queries", "q")
            assert sim.next("answers")[1] >= acknowledged

    assert flow.simulate(body).exhaustive


@pytest.mark.contract("align:A1")
def test_A1_two_uses_that_share_tick_and_collection_are_two():
    """One use alone changes nothing; a second of the same collection in the same tick does."""
    flow, p = place()
    tick, point, numbers = p.tick(), p.local_align_point(), p.source("in")
    for name in ("one", "two"):
        p.sink(name, numbers.batch_aligned(tick, point, WHY).fold(0, total).all_ticks())
    for trace in traces(flow, ("in", 1, 2, 4)):
        assert trace[0][2] == trace[1][2]
    apart = traces(flow, ("in", 1, 2, 4), aligned=False)
    assert any(trace[0][2] != trace[1][2] for trace in apart)


# --- where nothing changes ------------------------------------------------------------------


@pytest.mark.contract("align:A12")
def test_A12_a_release_without_reads_is_nothing():
    def made(with_point: bool):
        flow, p = place()
        point, numbers = p.local_align_point(), p.source("in")
        for name in ("one", "two"):
            p.sink(name, numbers.release_aligned(point) if with_point else numbers)
        p.sink("pieces", numbers.batch(p.tick(), WHY).count().all_ticks())
        return flow

    assert traces(made(True), ("in", 1, 2, 3)) == traces(made(False), ("in", 1, 2, 3))


@pytest.mark.contract("align:A13", "align:A17")
@pytest.mark.parametrize("kind", ["batch", "snapshot"])
def test_A13_one_read_and_no_release_is_a_plain_read(kind):
    def made(with_point: bool):
        flow, p = place()
        tick, point, numbers = p.tick(), p.local_align_point(), p.source("in")
        if kind == "batch":
            read = numbers.batch_aligned(tick, point, WHY) if with_point else numbers.batch(tick, WHY)
        else:
            sums = numbers.fold(0, total)
            read = sums.snapshot_aligned(tick, point, WHY) if with_point else sums.snapshot(tick, WHY)
        p.sink("out", read.all_ticks())
        p.sink("again", p.source("other").batch(tick, WHY).count().all_ticks())
        return flow

    sends = [("in", 1, 2), ("other", "a")]
    assert traces(made(True), *sends) == traces(made(False), *sends)


@pytest.mark.contract("align:A11")
def test_A11_a_point_that_nothing_uses_changes_nothing():
    flow = two_reads(aligned=False)
    before = traces(flow, ("in", 1, 2))
    flow.locations[0].local_align_point("unused")
    assert traces(two_reads(aligned=False), ("in", 1, 2)) == before


# --- refinement -----------------------------------------------------------------------------


@pytest.mark.contract("align:A41")
def test_A41_alignment_only_takes_schedules_away():
    sends = [("increments", 1, 2), ("queries", "q")]
    assert traces(counters.aligned(), *sends) <= traces(counters.naive(), *sends)
    both = traces(two_reads("a", "b"), ("in", 1, 2))
    assert both < traces(two_reads("a", "b", aligned=False), ("in", 1, 2))
    assert both < traces(two_reads("a", "b"), ("in", 1, 2), aligned=False)


@pytest.mark.contract("align:A41")
def test_A41_every_further_use_of_a_point_takes_more_away():
    def made(uses: int):
        flow, p = place()
        tick, point, numbers = p.tick(), p.local_align_point(), p.source("in")
        for number in range(3):
            read = numbers.batch_aligned(tick, point, WHY) if number < uses else numbers.batch(tick, WHY)
            p.sink(f"out{number}", read.count().all_ticks())
        return flow

    found = [traces(made(uses), ("in", 1, 2)) for uses in (1, 2, 3)]
    assert found[2] < found[1] < found[0]


@pytest.mark.contract("align:A40")
def test_A40_ways_of_writing_the_same_make_no_difference():
    def answering(p, queries, count, tick, point):
        seen = count.snapshot_aligned(tick, point, WHY)
        p.sink("answers", queries.batch(tick, WHY).cross_singleton(seen).all_ticks())

    def made(way: str):
        flow, p = place("renamed" if way == "renamed" else "counter")
        if way == "declared the other way round":
            queries, increments = p.source("queries"), p.source("increments")
        else:
            increments, queries = p.source("increments"), p.source("queries")
        tick, point = p.tick(way), p.local_align_point(way)
        acked = counted = increments
        if way == "identity maps":
            acked, counted = increments.map(lambda x: x), increments.map(lambda x: x).map(lambda x: x)
        if way == "two forks":
            fork = increments.map(lambda x: x)
            acked, counted = fork, fork.map(lambda x: x)
        if way == "the reader first":
            answering(p, queries, counted.count(), tick, point)
            p.sink("acks", acked.release_aligned(point))
        else:
            p.sink("acks", acked.release_aligned(point))
            answering(p, queries, counted.count(), tick, point)
        return flow

    sends = [("increments", 1, 2), ("queries", "q")]
    ways = [
        "as it is",
        "identity maps",
        "two forks",
        "renamed",
        "the reader first",
        "declared the other way round",
    ]
    found = [{frozenset(trace) for trace in traces(made(way), *sends)} for way in ways]
    assert all(each == found[0] for each in found)


@pytest.mark.contract("align:A22")
def test_A22_naming_the_boundary_is_finding_it():
    sends = [("increments", 1, 2), ("queries", "q")]
    assert traces(counters.aligned(), *sends) == traces(counters.aligned_at(), *sends)


# --- when it runs ---------------------------------------------------------------------------


@pytest.mark.contract("align:A38")
def test_A38_queries_are_answered_without_increments_and_acks_leave_without_queries():
    def only_queries(sim):
        sim.send("queries", "q")
        assert sim.next("answers") == ("q", 0)

    def only_increments(sim):
        sim.send("increments", 1)
        assert sim.next("acks") == 1

    for body in (only_queries, only_increments):
        assert counters.aligned().simulate(body).exhaustive


@pytest.mark.contract("align:A39")
def test_A39_in_the_end_everything_is_released_and_equals_what_is_not_aligned():
    def last(trace):
        seen = {name: values for name, _, values in trace}
        return sum(seen["pieces"]), seen["wholes"][-1]

    found = {last(trace) for trace in traces(two_reads("a", "b"), ("in", 1, 2, 4))}
    assert found == {last(trace) for trace in traces(two_reads("a", "b", aligned=False), ("in", 1, 2, 4))}
    assert found == {(7, 7)}
    for trace in traces(counters.aligned(), ("increments", 1, 2, 3)):
        assert ("acks", 0, (1, 2, 3)) in trace


@pytest.mark.contract("align:A37")
def test_A37_a_reader_that_is_not_aligned_may_be_ahead_or_behind_and_is_never_held_up():
    flow, p = place()
    tick, apart, point = p.tick("together"), p.tick("apart"), p.local_align_point()
    numbers = p.source("in")
    p.sink("one", numbers.batch_aligned(tick, point, WHY).count().all_ticks())
    p.sink("two", numbers.fold(0, total).snapshot_aligned(tick, point, WHY).all_ticks())
    p.sink("third", numbers.batch(apart, WHY).all_ticks())

    def body(sim):
        sim.send("in", 1)
        first = sim.next("third")
        return first, sim.settle()

    assert outcomes(flow, body) == {(1, True), (1, False)}


# --- several of everything ------------------------------------------------------------------


@pytest.mark.contract("align:A36")
def test_A36_two_sources_are_cut_in_any_combination_but_in_one_for_all():
    flow, p = place()
    tick, point = p.tick(), p.local_align_point()
    a, b = p.source("a"), p.source("b")
    for name in ("one", "two"):
        both = a.fold(0, total).zip(b.fold(0, total))
        p.sink(name, both.snapshot_aligned(tick, point, WHY).all_ticks())
    combinations = set()
    for trace in traces(flow, ("a", 1, 2), ("b", 10)):
        assert trace[0][2] == trace[1][2]
        combinations |= set(trace[0][2])
    assert combinations == {(x, y) for x in (0, 1, 3) for y in (0, 10)} - {(0, 0)}


@pytest.mark.contract("align:A28")
def test_A28_two_points_without_anything_in_common_stay_apart():
    def one(p, name):
        tick, point, numbers = p.tick(), p.local_align_point(), p.source(name)
        p.sink(f"{name} acks", numbers.release_aligned(point))
        p.sink(f"{name} sums", numbers.fold(0, total).snapshot_aligned(tick, point, WHY).all_ticks())

    flow, p = place()
    one(p, "a")
    one(p, "b")
    alone = {}
    for name in ("a", "b"):
        single, q = place()
        one(q, name)
        alone[name] = traces(single, (name, 1, 2))
    product = {(*left, *right) for left in alone["a"] for right in alone["b"]}
    assert traces(flow, ("a", 1, 2), ("b", 1, 2)) == product


@pytest.mark.contract("align:A28", "align:A33")
def test_A28_points_that_overlap_run_as_one():
    flow, p = place()
    one, two = p.tick("one"), p.tick("two")
    a, b = p.local_align_point("a"), p.local_align_point("b")
    numbers = p.source("in")
    sums = numbers.fold(0, total)
    p.sink("acks", numbers.release_aligned(a))
    p.sink("first", sums.snapshot_aligned(one, a, WHY).all_ticks())
    p.sink("second", sums.snapshot_aligned(two, b, WHY).all_ticks())
    p.sink("pieces", numbers.batch_aligned(two, b, WHY).fold(0, total).all_ticks())
    assert len(flow.compile().regions.groups) == 1
    for trace in traces(flow, ("in", 1, 2, 4)):
        seen = {name: values for name, _, values in trace}
        assert seen["first"] == seen["second"] == running(seen["pieces"])


@pytest.mark.contract("align:A19")
def test_A19_members_of_a_cluster_agree_each_with_itself_only():
    flow = Flow("cluster")
    crew = flow.cluster("crew", 2)
    tick, point, numbers = crew.tick(), crew.local_align_point(), crew.source("in")
    crew.sink("pieces", numbers.batch_aligned(tick, point, WHY).fold(0, total).all_ticks())
    crew.sink("sums", numbers.fold(0, total).snapshot_aligned(tick, point, WHY).all_ticks())
    found = traces(flow, ("in", 1, 2), members=2)
    ways = set()
    for trace in found:
        seen = {(name, member): values for name, member, values in trace}
        for member in (0, 1):
            assert seen["sums", member] == running(seen["pieces", member])
        ways.add((seen["pieces", 0], seen["pieces", 1]))
    assert ways == {(a, b) for a in ((3,), (1, 2)) for b in ((3,), (1, 2))}


@pytest.mark.contract("align:A35")
def test_A35_a_live_value_is_read_once_for_all_absent_included():
    flow, p = place()
    tick, point = p.tick(), p.local_align_point()
    newest = p.source("in").last()
    for name in ("one", "two"):
        read = newest.map(lambda x: x).snapshot_aligned(tick, point, WHY)
        p.sink(name, read.unwrap_or("absent").all_ticks())
    found = traces(flow, ("in", 1, 2))
    assert all(trace[0][2] == trace[1][2] for trace in found)
    assert {trace[0][2][0] for trace in found} >= {"absent", 1, 2}


@pytest.mark.contract("align:A35")
def test_A35_a_keyed_stream_is_cut_key_by_key():
    flow, p = place()
    tick, point = p.tick(), p.local_align_point()
    keyed = p.source("in").key_by(lambda x: x[0])
    p.sink("pieces", keyed.batch_aligned(tick, point, WHY).values().sort().fold("", total).all_ticks())
    counts = keyed.fold("", total).snapshot_aligned(tick, point, WHY)
    p.sink("wholes", counts.values().sort().fold("", total).all_ticks())
    found = traces(flow, ("in", "a1", "b1", "a2"))
    firsts = {trace[0][2][0] for trace in found}
    # b1 may be in the first cut without a1, though it came later; a2 never without a1.
    assert firsts == {"a1", "b1", "a1b1", "a1a2", "a1a2b1"}
    for trace in found:
        assert sorted("".join(trace[0][2])) == sorted(trace[1][2][-1])


@pytest.mark.contract("align:A27")
def test_A27_the_side_before_the_cut_is_what_the_execution_before_saw_after_it():
    flow, p = place()
    tick, point, numbers = p.tick(), p.local_align_point(), p.source("in")
    sums = numbers.fold(0, total)
    p.sink("before", sums.snapshot_aligned(tick, point, WHY, side="before").all_ticks())
    p.sink("after", sums.snapshot_aligned(tick, point, WHY).all_ticks())
    for trace in traces(flow, ("in", 1, 2, 4)):
        before, after = trace[0][2], trace[1][2]
        assert before == (0, *after[:-1])


@pytest.mark.contract("align:A23")
def test_A23_what_is_fed_back_belongs_to_a_later_cut():
    flow, p = place()
    tick, point = p.tick(), p.local_align_point()
    handle, back = p.forward_ref()
    numbers = p.source("in").merge_ordered(back, WHY)
    p.sink("sums", numbers.fold(0, total).snapshot_aligned(tick, point, WHY).all_ticks())
    acked = numbers.release_aligned(point)
    p.sink("acks", acked)
    handle.complete(acked.filter(lambda x: x < 100).map(lambda x: 100 * x))
    for trace in traces(flow, ("in", 1, 2)):
        acks, sums = trace[1][2], trace[0][2]
        assert sorted(acks) == [1, 2, 100, 200]
        assert acks.index(1) < acks.index(100)
        assert sums[-1] == 303


@pytest.mark.contract("align:A31")
def test_A31_a_second_region_behind_a_release_is_handed_over_anew():
    flow, p = place()
    one, two = p.tick("one"), p.tick("two")
    a, b = p.local_align_point("a"), p.local_align_point("b")
    numbers = p.source("in")
    p.sink("sums", numbers.fold(0, total).snapshot_aligned(one, a, WHY).all_ticks())
    acked = numbers.release_aligned(a)
    p.sink("again", acked.release_aligned(b))
    p.sink("acked", acked.fold(0, total).snapshot_aligned(two, b, WHY).all_ticks())

    def body(sim):
        sim.send("in", 1, 2)
        sim.next("again")
        sim.quiesce()
        return tuple(sim.collect("sums")), tuple(sim.collect("acked"))

    found = outcomes(flow, body)
    assert {(sums[-1], acked[-1]) for sums, acked in found} == {(3, 3)}
    assert len({sums for sums, _ in found} - {(3,)}) > 0


@pytest.mark.contract("align:A42")
def test_A42_a_pair_of_live_values_in_a_region_is_never_torn():
    flow, p = place("balance")
    tick, point = p.tick(), p.local_align_point()
    transfers = p.source("transfers")
    credits_, debits = transfers.fold(0, total), transfers.fold(0, total)
    balance = credits_.zip(debits).map(lambda pair: pair[0] - pair[1])
    p.sink("balance", balance.snapshot_aligned(tick, point, WHY).all_ticks())
    p.sink("acks", transfers.release_aligned(point))
    assert {trace[0][2] for trace in traces(flow, ("transfers", 5, 7))} == {(0,), (0, 0)}
