"""What a failure tells: the assertion, the way there with source lines, and one line that repeats it."""

from __future__ import annotations

import pickle
import xml.etree.ElementTree as ET

import pytest

from tests.flow.simulator import counters
from trueline.errors import Counterexample, SimulationError
from trueline.flow import Flow, nondet
from trueline.flow.simulator.choices import deviations, trimmed
from trueline.flow.simulator.search import plainness, shrink


def failing(make=counters.naive, body=counters.write_then_read, **options):
    with pytest.raises(Counterexample) as found:
        make().simulate(body, **options)
    return found.value


def test_the_text_says_what_failed_where_and_how_to_repeat_it():
    error = failing()
    text = str(error)
    assert "('how many?', 0)" in text
    assert 'assert sim.next("answers") == ("how many?", 1)' in text
    for line in (
        "1  the test sends to 'increments': 'one'",
        "2  the test reads 'acks': 'one'",
        "4  answering runs (execution 1)  ← not the eager choice",
        "count = increments.count().snapshot(tick, VERSION)",
        "releasing snapshot: 0 (1 newer held back)",
        f"free to, because: {counters.VERSION.why}",
        "releasing items: ['how many?']",
        "==> answers: [('how many?', 0)]",
        "1 deviation from the eager schedule",
        'flow.simulate(body, replay="1")',
    ):
        assert line in text, line
    assert "counters.py:" in text
    assert isinstance(error, AssertionError)
    assert isinstance(error.__cause__, AssertionError)


def test_every_execution_shows_its_cut():
    def body(sim):
        sim.send("increments", "one", "two")
        sim.send("queries", "how many?")
        assert sim.next("answers")[1] != 1

    error = failing(counters.aligned, body)
    (run,) = [each for each in error.trace.executions if any(sink == "answers" for sink, _ in each.emitted)]
    assert run.points == ("count",)
    assert run.cut == (("source 'increments'", "1"), ("source 'queries'", "1"))
    assert "cut of 'count': source 'increments' 1, source 'queries' 1" in str(error)
    assert run.releases[0].reason == counters.VERSION.why, (
        "the reason of the read that the choice is made for"
    )


def test_a_tick_that_is_not_aligned_shows_its_cut_too():
    (run,) = failing().trace.executions
    assert [at for _, at in run.cut] == ["1", "1"]
    assert "cut: " in str(failing())


def test_an_order_that_was_chosen_inside_a_tick_is_told():
    flow = Flow("order")
    p = flow.process("p")
    mixed = p.source("in", ordered=False).batch(p.tick(), nondet("pieces"))
    p.sink("out", mixed.assume_ordering(nondet("any order")).all_ticks())

    def body(sim):
        sim.send("in", 1, 2, 3)
        assert sim.collect("out", 3) != [2, 3, 1]

    text = str(failing(lambda: flow, body, replay="0 1 1"))
    assert "assume_ordering: takes next: 2 of 3, 2 of 2" in text
    assert "free to, because: any order" in text


@pytest.mark.parametrize("mode", ["exhaustive", "deviations", "fuzz"])
def test_the_line_repeats_the_failure(mode):
    error = failing(mode=mode)
    with pytest.raises(Counterexample) as again:
        error.replay()
    assert (again.value.choices, again.value.trace) == (error.choices, error.trace)
    line = error.trace.line
    with pytest.raises(Counterexample) as by_hand:
        counters.naive().simulate(counters.write_then_read, replay=line)
    assert by_hand.value.choices == error.choices


def test_a_line_that_passes_says_so_and_is_never_exhaustive():
    found = counters.naive().simulate(counters.write_then_read, replay="")
    assert (found.executions, found.exhaustive) == (1, False)


@pytest.mark.parametrize("line", ["7", "x", [-1]])
def test_a_line_that_does_not_fit_is_refused(line):
    with pytest.raises(SimulationError, match="line") as refused:
        counters.naive().simulate(counters.write_then_read, replay=line)
    assert refused.value.code == "LineDoesNotFit"


def test_the_picture_is_well_formed_and_shows_every_event():
    trace = failing().trace
    picture = ET.fromstring(trace.svg())
    words = " ".join("".join(each.itertext()) for each in picture.iter() if each.tag.endswith("text"))
    for word in ("the test", "answering", "increments ← ['one']", "execution 1", "✗ AssertionError"):
        assert word in words
    assert "<svg" in trace._repr_html_()
    assert "To run it again" in trace._repr_html_()


def test_what_is_sent_cannot_break_the_picture():
    def body(sim):
        sim.send("increments", "<&'\"]]>\x00")
        sim.next("acks")
        raise ValueError("<b>")

    error = failing(counters.naive, body)
    ET.fromstring(error.trace.svg())
    assert "<b>" not in error._repr_html_()


def test_a_counterexample_crosses_processes():
    error = failing()
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.choices, again.trace) == (str(error), error.choices, error.trace)


def test_a_function_that_raises_is_a_counterexample_that_names_it():
    flow = Flow("divide")
    p = flow.process("p")
    p.sink(
        "out",
        p.source("in").batch(p.tick(), nondet("pieces")).count().map(lambda n: 1 // (n - 1)).all_ticks(),
    )

    def body(sim):
        sim.send("in", "a", "b")
        sim.quiesce()

    error = failing(lambda: flow, body)
    assert "ZeroDivisionError" in str(error)
    assert "test_trace.py" in str(error)
    assert deviations(error.choices) == 1


# --- shrinking ------------------------------------------------------------------------------


def test_a_line_shrinks_to_one_deviation_where_one_suffices():
    line = shrink([3, 1, 0, 2, 2, 1, 4], lambda line: tuple(line) if 2 in line else None)
    assert line == (2,)


def test_shrinking_keeps_what_is_needed_and_counts_its_runs():
    runs = []

    def fails(line):
        runs.append(line)
        padded = [*line, *[0] * 9]
        return trimmed(line) if padded[1] and padded[3] else None

    line = shrink([1, 2, 3, 4, 5, 6], fails, limit=300)
    assert (line, len(runs) <= 300) == ((0, 1, 0, 1), True)


def test_plainer_is_fewer_deviations_then_shorter_then_smaller():
    lines = [(0, 0, 1), (3,), (1, 1), (1,), (), (0, 2)]
    assert sorted(lines, key=plainness) == [(), (1,), (3,), (0, 2), (0, 0, 1), (1, 1)]


@pytest.mark.parametrize("mode", ["exhaustive", "fuzz"])
def test_a_failure_found_far_away_is_told_by_the_smallest_deviation(mode):
    """Depth first finds it where the last choices differ; what is told is one deviation all the same."""

    def body(sim):
        for number in range(4):
            sim.send("increments", number)
            sim.next("acks")
            sim.send("queries", number)
            assert sim.next("answers")[1] >= number

    error = failing(counters.naive, body, mode=mode, max_executions=5_000)
    assert deviations(error.choices) <= 2
    few = failing(counters.naive, body, mode="deviations")
    assert deviations(few.choices) == deviations(error.choices)
