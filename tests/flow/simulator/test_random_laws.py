"""Laws of alignment over random graphs: what it takes away, what it must not change, what it leaves."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.flow.simulator.graphs import Maker, Piece, Program
from trueline import console
from trueline.errors import NotPromised
from trueline.flow import Machine
from trueline.flow.compiled import CompiledFlow
from trueline.flow.simulator import drift

LIMIT = 1_500
SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True)
def _quietly():
    with console.use(console.CapturedConsole()):
        yield


class Small(Maker):
    """Small enough to look at every schedule: one tick, one or two uses' worth of operators."""

    ticks_at_most = 1
    things_beside = False
    before_the_cut = 0  # no plain read has that side
    identities = 0

    def grown(self, piece: Piece, steps: int) -> Piece:
        piece = super().grown(piece, min(steps, 1))
        for _ in range(self.identities):
            piece = piece.of(piece.live.map(lambda x: x))
        return piece

    def unaligned(self, piece: Piece) -> None:
        """Nobody else reads."""


class Rewritten(Small):
    """The same flow with a step that changes nothing behind every step."""

    identities = 1


class Alone(Small):
    """One use of a point, or releases only."""

    def around(self, shared: list[Piece], point) -> None:
        kind = self.random.choice(["batch", "snapshot", "release"])
        for _ in range(2 if kind == "release" else 1):
            self.use(self.grown(shared[0], 1), point, kind)


def behaviours(program: Program, *, aligned: bool = True):
    """What every sink can give, over all schedules of three elements; None where these are too many."""
    first, *others = program.sources
    sinks = [node.name for node in program.flow.graph.named("sink")]
    found = set()

    def body(sim):
        for number, source in enumerate([first, first, *others[:1]]):
            sim.send(source, ((source, number),))
        sim.quiesce()
        found.add(tuple(tuple(sim.collect(name)) for name in sinks))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *args, **options: None)
        faults = () if aligned else (drift(),)
        explored = program.flow.simulate(body, faults=faults, max_executions=LIMIT, check=False)
    return found if explored.exhaustive else None


def both(program: Program):
    """The behaviours with and without alignment; (None, None) where they cannot be compared."""
    try:
        apart = behaviours(program, aligned=False)
        return (None, None) if apart is None else (behaviours(program), apart)
    except NotPromised:  # a pair of live values exists only where it is aligned
        return None, None


def steady(trace):
    """A behaviour in which a value that is shown again unchanged is shown once."""
    return tuple(
        tuple(x for x, before in zip(out, (None, *out), strict=False) if x != before) for out in trace
    )


COMPARED: dict[str, int] = {}


def counted(law: str) -> None:
    COMPARED[law] = COMPARED.get(law, 0) + 1


@pytest.mark.contract("align:A41")
@settings(max_examples=40)
@given(SEEDS)
def test_A41_what_is_aligned_does_nothing_that_the_unaligned_could_not(seed):
    with_, without = both(Small(Random(seed), 2).make())
    if with_ is not None:
        counted("A41")
        # A merged tick also runs for its partner's input (A38), and then shows an unchanged value again.
        assert {steady(each) for each in with_} <= {steady(each) for each in without}


@pytest.mark.contract("align:A11", "align:A12", "align:A13")
@settings(max_examples=40)
@given(SEEDS)
def test_A11_to_A13_a_point_that_has_nothing_to_do_changes_nothing(seed):
    with_, without = both(Alone(Random(seed), 2).make())
    if with_ is not None:
        counted("A13")
        assert with_ == without


@pytest.mark.contract("align:A40", "align:A5")
@settings(max_examples=40)
@given(SEEDS)
def test_A40_steps_that_change_nothing_change_nothing(seed):
    try:
        plain = behaviours(Small(Random(seed), 2).make())
    except NotPromised:
        return
    if plain is not None:
        counted("A40")
        assert behaviours(Rewritten(Random(seed), 2).make()) == plain


@pytest.mark.contract("align:A39")
@settings(max_examples=100)
@given(SEEDS)
def test_A39_in_the_end_the_aligned_and_the_unaligned_have_seen_the_same(seed):
    program = Maker(Random(seed)).make()
    try:
        ignoring = frozenset(point.id for point in program.flow.points)
        layouts = [program.flow.compile(), CompiledFlow(program.flow, ignoring)]
    except NotPromised:
        return
    aligned, apart = (last(program, layout, seed) for layout in layouts)
    assert aligned == apart


def tags(elements) -> set:
    return {tag for element in elements for tag in element}


def last(program: Program, layout: CompiledFlow, seed: int) -> dict[str, set]:
    """What each use has shown when nothing is left to happen; of a snapshot, its last version."""
    random = Random(seed)
    machine = Machine(layout)
    latest: dict[str, set] = {}
    shown = {use.sink for use in program.uses}
    machine.observer = lambda firing: latest.update(
        {sink: tags(out) for sink, out in firing.outputs.items() if sink in shown}
    )
    for number in range(6):
        source = program.sources[number % len(program.sources)]
        machine.send(source, ((source, number),))
        while machine.ready() and random.random() < 0.7:
            machine.fire(lambda ways, what: random.randrange(ways))
    while machine.ready():
        machine.fire()
    found = {}
    for use in program.uses:
        if use.kind == "snapshot":
            found[use.sink] = latest.get(use.sink, set()) if use.side == "after" else set()
        else:
            found[use.sink] = tags(machine.outputs(use.sink))
    return found


def test_the_laws_were_looked_at_often_enough():
    """Graphs with too many schedules are left out; most must not be."""
    for seed in range(12):
        for made in (Small, Alone):
            if both(made(Random(seed), 2).make())[0] is not None:
                counted(made.__name__)
    assert COMPARED["Small"] >= 4
    assert COMPARED["Alone"] >= 6
