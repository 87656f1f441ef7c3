"""Random graphs with random align points, held to the oracle; and the oracle held to planted bugs."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.flow.simulator.graphs import MISTAKES, Mistakes, program
from tests.flow.simulator.oracle import examine
from tests.flow.simulator.planted import PLANTED
from trueline import console, errors
from trueline.errors import FlowError
from trueline.flow.operators import INCREMENTAL
from trueline.flow.tick_operators import WHOLE

SEEDS = 300


@pytest.fixture(autouse=True)
def _quietly():
    """Remarks are counted here, not read."""
    with console.use(console.SilentConsole()):
        yield


@pytest.mark.contract("align:A8", "align:A9", "align:A36", "align:A37", "align:A39")
@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1))
def test_reads_agree_cuts_grow_and_what_was_released_is_in_every_later_read(seed):
    try:
        made = program(seed)
        made.flow.compile()
    except errors.NotPromised as error:
        if error.rule != "align:A42":  # a pair of which only one half is aligned is rightly refused
            raise
    else:
        examine(made, seed)


def reached(seeds):
    """What the generator reaches: kinds of nodes, shapes, promises, remarks and errors."""
    found = set()
    for seed in seeds:
        made = program(seed)
        for node in made.flow.graph.nodes:
            found |= {("kind", node.kind), ("shape", node.shape)}
            found |= {("bounded", node.bounded), ("ordered", node.ordered), ("once", node.once)}
            found |= {("place", node.location.name), ("side", node.args.get("side"))}
        try:
            compiled = made.flow.compile()
        except FlowError as error:
            found.add(("error", type(error).__name__))
            continue
        found |= {("remark", remark.code) for remark in compiled.regions.remarks}
        found |= {("zone", zone) for zone, _, _ in compiled.wires}
        found |= {("hook", type(hook).__name__) for hook in compiled.hooks}
        found.add(("groups", len(compiled.regions.groups)))
        found |= {("merged", len(group.alignments) > 1) for group in compiled.regions.groups}
    return found


def test_the_generator_reaches_every_operator_collection_marker_and_rule():
    found = reached(range(SEEDS))
    found |= {("error", mistaken(seed)) for seed in range(len(MISTAKES))}
    operators = set(INCREMENTAL) | set(WHOLE) | {"source", "constant", "batch", "snapshot"}
    assert {kind for what, kind in found if what == "kind"} == operators
    expected = {("shape", s) for s in ("stream", "keyed stream", "singleton", "optional", "keyed singleton")}
    expected |= {(promise, yes) for promise in ("bounded", "ordered", "once") for yes in (True, False)}
    expected |= {("place", name) for name in ("home", "away", "crew")}
    expected |= {("side", "before"), ("side", "after"), ("groups", 2), ("merged", True), ("merged", False)}
    expected |= {("zone", "async"), ("zone", "region"), ("zone", "tick")}
    expected |= {("hook", f"{h}Hook") for h in ("Prefix", "Subset", "Value", "KeyedValue")}
    expected |= {("remark", code) for code in ("orphan instance", "unrelated uses", "lonely tag")}
    refused = "NoSharedUpstream SharedOnlyBehindNetwork NotAligned ReentrantAlignment AsyncEdgeInRegion"
    refused += " NotPromised SynchronousCycle Unfinished WrongLocation"
    expected |= {("error", name) for name in refused.split()}
    assert expected - found == set()


def mistaken(seed):
    """Make a flow with a mistake and compile it: it must be refused for what is wrong with it."""
    make = MISTAKES[seed % len(MISTAKES)]
    maker = Mistakes(Random(seed))
    with pytest.raises(FlowError) as refused:
        maker.expected = make(maker)
        maker.flow.compile()
    found = type(refused.value).__name__
    assert found == maker.expected, make.__name__
    assert "graphs.py:" in str(refused.value), "it names source lines"
    return found


@pytest.mark.contract("align:A14", "align:A15", "align:A16", "align:A21", "align:A24")
@pytest.mark.contract("align:A25", "align:A26", "align:A34", "align:A42")
@settings(max_examples=100)
@given(st.integers(0, 2**32 - 1))
def test_mistakes_are_refused_for_what_is_wrong_with_them(seed):
    mistaken(seed)


def first_wrong(seeds):
    """The first seed whose graph is not run, or whose mistake is not refused, as it should be."""
    for seed in seeds:
        made = program(seed)
        try:
            made.flow.compile()
        except FlowError:
            continue  # a compiler that refuses what is right is not what is looked for here
        try:
            examine(made, seed, runs=2)
            mistaken(seed)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 (a right compiler does none of it)
            return seed, error
    return None


def test_without_a_bug_nothing_is_found():
    assert first_wrong(range(SEEDS)) is None


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug, monkeypatch):
    PLANTED[bug](monkeypatch)
    assert first_wrong(range(SEEDS)) is not None


def test_ten_bugs_and_more_are_planted():
    assert len(PLANTED) >= 10
