"""Alignment held to its oracle: random programs, every execution explained by one cut or not at all."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from functools import cache

import pytest

from tests.flow.oracle import rules
from tests.flow.oracle.programs import Plan, Program, Variation, build, draw
from tests.flow.oracle.structure import expected, shared
from tests.flow.oracle.traces import TooLong, all_traces, can_end, check_walk, first_shown, sinks, trace
from trueline.errors import FlowError
from trueline.flow import Machine

SEEDS = range(800)
WALKS = 4
"""Schedules by chance per program."""


@pytest.fixture(autouse=True)
def _quiet():
    """Remarks about points that change nothing are right, and many."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@cache
def drawn(seed: int) -> Plan:
    return draw(seed)


@cache
def sound() -> tuple[Program, ...]:
    """The programs that compile."""
    programs = [build(drawn(seed)) for seed in SEEDS]
    return tuple(program for program in programs if expected(program.flow) is None)


def refused(program: Program) -> type[FlowError] | None:
    """The error a program is refused with, if it is."""
    try:
        program.flow.compile()
    except FlowError as error:
        return type(error)
    return None


def check_structure(program: Program) -> None:
    """Boundary, region and merged ticks are those of the rules, worked out apart from the compiler."""
    compiled = program.flow.compile()
    for found in compiled.regions.alignments:
        if len(found.instances) > 1:
            want = shared(program.flow, found.point)
            region = {n.id for n in [*want.inside, *want.boundary]}
            assert [n.id for n in found.boundary] == [n.id for n in want.boundary], program.plan.seed
            assert {n.id for n in found.region} == region, program.plan.seed
    made = sorted(sorted(tick.id for tick in group.ticks) for group in compiled.regions.groups)
    assert made == sorted(sorted(group.ticks) for group in program.groups), program.plan.seed


def check(seed: int, walks: int = WALKS) -> None:
    """One program: refused if and only if the rules say so, else right under some schedules by chance."""
    program = build(draw(seed))
    want = expected(program.flow)
    assert refused(program) is want, f"program {seed}"
    if want is None:
        check_structure(program)
        for walk in range(walks):
            try:
                if not check_walk(program, walk):
                    return
            except AssertionError as error:
                raise AssertionError(f"program {seed}, walk {walk}: {error}") from error


# --- what is drawn --------------------------------------------------------------------


def test_the_programs_reach_every_operator_in_every_zone():
    reached = set().union(*[rules.operators(program) for program in sound()])
    assert rules.wanted_operators() - reached == set()


def test_the_programs_reach_every_collection_with_every_promise():
    reached = set().union(*[rules.markers(program) for program in sound()])
    assert rules.wanted_markers() - reached == set()


def test_the_programs_reach_every_rule_of_the_compiler():
    reached = {name for program in sound() for name, holds in rules.RULES.items() if holds(program)}
    assert set(rules.RULES) - reached == set()
    errors = {expected(build(drawn(seed)).flow) for seed in SEEDS} - {None}
    assert {error.__name__ for error in errors} == rules.ERRORS


# --- what holds -----------------------------------------------------------------------


@pytest.mark.contract("align:A2")
@pytest.mark.contract("align:A4")
@pytest.mark.contract("align:A14")
@pytest.mark.contract("align:A15")
@pytest.mark.contract("align:A21")
@pytest.mark.contract("align:A25")
@pytest.mark.contract("align:A26")
def test_a_program_is_refused_if_and_only_if_the_rules_say_so():
    for seed in SEEDS:
        program = build(drawn(seed))
        assert refused(program) is expected(program.flow), f"program {seed}"


@pytest.mark.contract("align:A10")
@pytest.mark.contract("align:A16")
@pytest.mark.contract("align:A24")
@pytest.mark.contract("align:A32")
@pytest.mark.parametrize("flaw", rules.FLAWS)
def test_a_flaw_put_into_any_program_is_refused(flaw):
    error, put = rules.FLAWS[flaw]
    for program in sound()[:30]:
        if program.reads:
            with pytest.raises(error):
                put(build(program.plan))


@pytest.mark.contract("align:A4")
@pytest.mark.contract("align:A5")
@pytest.mark.contract("align:A6")
@pytest.mark.contract("align:A28")
def test_boundary_region_and_ticks_are_those_of_the_rules():
    for program in sound():
        check_structure(program)


@pytest.mark.contract("align:A7")
@pytest.mark.contract("align:A8")
@pytest.mark.contract("align:A9")
@pytest.mark.contract("align:A19")
@pytest.mark.contract("align:A27")
@pytest.mark.contract("align:A35")
@pytest.mark.contract("align:A36")
@pytest.mark.contract("align:A38")
@pytest.mark.contract("align:A39")
def test_one_cut_explains_every_execution_and_includes_all_that_was_acknowledged():
    looked = Counter(check_walk(program, walk) for program in sound() for walk in range(WALKS))
    assert looked[True] > 20 * looked[False], "the oracle gave up too often"


def sampled(program: Program, count: int) -> set:
    """Some (bare) traces of a program to which everything is sent at once."""
    found = set()
    for seed in range(count):
        machine = Machine(program.flow.compile())
        for source, member, element in program.plan.sent:
            machine.send(source, element, member=member)
        rng = random.Random(seed)
        while not machine.idle:
            machine.fire(lambda ways, _, rng=rng: rng.randrange(ways) if rng.random() < 0.5 else 0)
        found.add(trace(program, machine, bare=True))
    return found


def ends_among(program: Program, looser: Program, count: int = 3) -> bool:
    """Whether traces of a program are traces of a looser one; False if there are too many to look at."""
    for wanted in sampled(program, count):
        try:
            assert can_end(looser, wanted), f"program {program.plan.seed}: {wanted}"
        except TooLong:
            return False
    return True


@pytest.mark.contract("align:A41")
def test_what_an_aligned_program_does_it_could_do_without_alignment():
    looked = Counter()
    for program in sound()[:160]:
        if program.groups and program.plan.steady and not _has_pairs(program):
            loose = build(program.plan, Variation(without=frozenset(range(program.plan.points))))
            looked[ends_among(program, loose)] += 1
    assert looked[True] > 40, looked


@pytest.mark.contract("align:A41")
def test_one_use_more_of_a_point_only_takes_away():
    looked = Counter()
    for program in sound()[:160]:
        uses = [i for i, step in enumerate(program.plan.steps) if step.what in ("read", "release")]
        if program.groups and program.plan.steady and not _has_pairs(program) and len(uses) > 2:
            looser = build(program.plan, Variation(plain=frozenset(uses[-1:])))
            if expected(looser.flow) is None:
                looked[ends_among(program, looser, 2)] += 1
    assert looked[True] > 20, looked


def _has_pairs(program: Program) -> bool:
    return any(n.kind == "zip" and n.tick is None for n in program.flow.graph.nodes)


def whole(program: Program, most: int = 400) -> set | None:
    """All traces, or None where there are too many."""
    try:
        return all_traces(program, most)
    except TooLong:
        return None


@pytest.mark.contract("align:A12")
@pytest.mark.contract("align:A13")
@pytest.mark.contract("align:A17")
def test_a_point_that_changes_nothing_leaves_every_trace_as_it_was():
    looked = 0
    for program in sound():
        idle = frozenset(
            i
            for i, point in enumerate(program.flow.points)
            if len((each := shared(program.flow, point)).instances) < 2 or not each.reads
        )
        if not idle:
            continue
        plain = build(program.plan, Variation(without=idle))
        if (expected(plain.flow) is None) and (found := whole(program)) is not None:
            assert found == all_traces(plain, 20_000), program.plan.seed
            looked += 1
    assert looked > 15


@pytest.mark.contract("align:A40")
@pytest.mark.parametrize(
    "law",
    [
        Variation(spliced=1),
        Variation(shuffled=1),
        Variation(names="other "),
        Variation(spliced=2, shuffled=2),
    ],
    ids=["maps that change nothing", "another order of declarations", "other names", "all of it"],
)
def test_another_way_to_write_a_program_has_the_same_traces(law):
    looked = 0
    for program in sound()[::4]:
        if program.groups and (found := whole(program, 200)) is not None:
            other = build(program.plan, law)
            assert expected(other.flow) is None, program.plan.seed
            assert found == all_traces(other, 20_000), program.plan.seed
            looked += 1
    assert looked > 15


@pytest.mark.contract("align:A39")
def test_at_rest_an_aligned_program_has_what_the_unaligned_one_has():
    for program in sound():
        if program.plan.steady and not _has_pairs(program):
            loose = build(program.plan, Variation(without=frozenset(range(program.plan.points))))
            assert _last(program, 1) == _last(loose, 2), program.plan.seed


def _last(program: Program, seed: int) -> dict:
    """What a program has at rest: of values the last, of streams everything, in whatever pieces it came."""
    (found,) = sampled_once(program, seed)
    end = {}
    for name, member, values in found:
        node = program.reads.get(name)
        if name.startswith(("extra", "answer", "aside")):
            continue
        if node is not None and "stream" not in node.shape:
            end[name, member] = (first_shown(program, node), *values)[-1]
        else:
            all_ = values if node is None else [x for piece in values for x in piece]
            end[name, member] = sorted(all_, key=repr)
    return end


def sampled_once(program: Program, seed: int) -> list:
    machine = Machine(program.flow.compile())
    rng = random.Random(seed)
    for source, member, element in program.plan.sent:
        machine.send(source, element, member=member)
        if rng.random() < 0.5 and not machine.idle:
            machine.fire(lambda ways, _: rng.randrange(ways))
    while not machine.idle:
        machine.fire(lambda ways, _: rng.randrange(ways))
    return [trace(program, machine, bare=True)]


# --- interpreter and simulator --------------------------------------------------------


def simulated(program: Program, most: int = 3_000) -> set | None:
    """All traces by the simulator, everything sent at once; None where there are too many."""
    found = set()

    def body(sim):
        for source, member, element in program.plan.sent:
            sim.send(source, element, member=member)
        sim.quiesce()
        out = {end: tuple(sim.collect(end[0], member=end[1])) for end in sinks(program)}
        found.add(tuple((*end, values) for end, values in out.items()))

    explored = program.flow.simulate(body, max_executions=most, check=False)
    return found if explored.exhaustive else None


@pytest.mark.contract("align:A38")
@pytest.mark.filterwarnings("ignore::trueline.flow.simulator.NotExhaustive")
def test_what_the_interpreter_does_is_among_the_traces_of_the_simulator():
    looked = 0
    for program in sound()[::4]:
        if (known := whole(program, 150)) is None:
            continue
        found = simulated(program)
        if found is None:
            continue
        plain = {tuple((n, m, _sorted(program, n, v)) for n, m, v in each) for each in found}
        assert plain == known, program.plan.seed
        for seed in range(4):
            live = program.flow.start(seed=seed)
            for source, member, element in program.plan.sent:
                live.send(source, element, member=member)
            live.run_until_idle()
            assert trace(program, live.machine) in known, (program.plan.seed, seed)
        looked += 1
    assert looked > 15


def _sorted(program: Program, name: str, values: tuple) -> tuple:
    node = next(n for n in program.flow.graph.named("sink") if n.name == name)
    return values if node.ordered and node.shape == "stream" else tuple(sorted(values, key=repr))


# --- longer ---------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_more_programs_under_many_more_schedules(soak_minutes):
    end = time.monotonic() + soak_minutes * 60
    seed = random.randrange(2**31)
    while time.monotonic() < end:
        check(seed, walks=20)
        seed += 1
