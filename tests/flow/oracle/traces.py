"""Ways through a program: one by chance, all there are, or whether one leads to a given end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from tests.flow.oracle.cuts import Cuts, TooMany, told
from tests.flow.oracle.meanings import meaning, normal
from tests.flow.oracle.programs import Program
from trueline.flow import Machine
from trueline.flow.graph import FlowNode

Trace = tuple[tuple[str, int, tuple[Any, ...]], ...]
"""Sink, member, what came out of it: what someone outside can tell."""
STEPS = 300


class TooLong(Exception):
    """There are too many states to look at all of them."""


def sinks(program: Program) -> list[tuple[str, int]]:
    """Every sink of every member, in a fixed order."""
    return sorted(
        (node.name, m) for node in program.flow.graph.named("sink") for m in range(node.location.size)
    )


# --- one way --------------------------------------------------------------------------


def check_walk(program: Program, seed: int) -> bool:
    """Run one schedule by chance and hold every execution to the oracle; False if it has too many cuts."""
    machine = Machine(program.flow.compile())
    rng = random.Random(seed)
    try:
        watched = [
            Cuts(program, group, member) for group in program.groups for member in range(program.members)
        ]
    except TooMany:
        return False
    ends = sinks(program)
    before = dict.fromkeys(ends, 0)
    lazy = rng.choice([0.2, 0.5, 0.8])

    def choose(ways: int, _: Any) -> int:
        return rng.randrange(ways) if rng.random() < lazy else 0

    def look() -> None:
        out = {end: machine.outputs(*end) for end in ends}
        for cuts in watched:
            new = {s: out[s, cuts.member][before[s, cuts.member] :] for s in cuts.reads}
            cuts.see(new, {s: out[s, cuts.member] for s in cuts.acks})
        before.update({end: len(values) for end, values in out.items()})

    left = list(program.plan.sent)
    for _ in range(STEPS):
        if left and (machine.idle or rng.random() < 0.4):
            source, member, element = left.pop(0)
            machine.send(source, element, member=member)
        elif machine.idle:
            break
        else:
            machine.fire(choose)
        look()
    assert machine.idle, "a program does not come to rest"
    assert not left
    for cuts in watched:
        cuts.end({s: machine.outputs(s, cuts.member) for s in cuts.acks})
    return True


# --- all ways -------------------------------------------------------------------------


def trace(program: Program, machine: Any, *, bare: bool = False) -> Trace:
    """What came out, so that runs that nobody can tell apart are equal.

    `bare`: an execution that showed a read nothing new does not count, since a tick may run for another's
    sake (A38), and need not run before something is new.
    """
    found = []
    for name, member in sinks(program):
        out = machine.outputs(name, member)
        found.append((name, member, _told(program, name, out, bare=bare)))
    return tuple(found)


def _told(program: Program, name: str, out: tuple[Any, ...], *, bare: bool) -> tuple[Any, ...]:
    node = next(n for n in program.flow.graph.named("sink") if n.name == name)
    if bare and name in program.reads:
        if "stream" in program.reads[name].shape:
            out = tuple(x for x in out if x)
        else:  # nor does showing the first version: it makes a plain snapshot run, an aligned one not
            first = first_shown(program, program.reads[name])
            out = tuple(x for before, x in pairwise((first, *out)) if before != x)
    return out if node.ordered and node.shape == "stream" else tuple(sorted(out, key=repr))


def first_shown(program: Program, read: FlowNode) -> Any:
    """What a read of a value shows before anything was sent."""
    nothing: dict[int, list[Any]] = {node.id: [] for node in program.flow.graph.named("source")}
    source = read.inputs[0]
    return told(read, normal(source, meaning(program.flow.graph, source, nothing)))


def start(program: Program) -> Machine:
    """A machine to which everything has been sent."""
    machine = Machine(program.flow.compile())
    for source, member, element in program.plan.sent:
        machine.send(source, element, member=member)
    return machine


def all_traces(program: Program, most: int = 2_000, *, bare: bool = False) -> set[Trace]:
    """Every trace of a program to which everything is sent at once; at most so many firings are tried."""
    machine = start(program)
    return {trace(program, machine, bare=bare) for _ in _ends(machine, most)}


def can_end(program: Program, wanted: Trace, most: int = 3_000) -> bool:
    """Whether some way through a program ends in a (bare) trace; looks only where it still can."""
    machine = start(program)
    goal = {(name, member): values for name, member, values in wanted}

    def promising() -> bool:
        now = trace(program, machine, bare=True)
        return all(_begins(goal[name, member], values) for name, member, values in now)

    return any(trace(program, machine, bare=True) == wanted for _ in _ends(machine, most, promising))


def _ends(machine: Machine, most: int, promising: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Put a machine into every state in which it can come to rest, each once."""
    seen, todo, fired = {machine.key()}, [machine.snapshot()], 0
    while todo:
        state = todo.pop()
        machine.restore(state)
        if machine.idle:
            yield
            continue
        new = []
        for _ in _firings(machine, state):
            fired += 1
            if fired > most:
                raise TooLong(most)
            key = machine.key()
            if key not in seen and promising():
                new.append(machine.snapshot())
            seen.add(key)
        todo += reversed(new)  # the eager one first


def _firings(machine: Machine, state: Any) -> Iterator[None]:
    """Fire the next unit in every way there is, from one state."""
    line: list[int] = []
    while True:
        machine.restore(state)
        asked: list[tuple[int, int]] = []

        def choose(ways: int, _: Any, line: list[int] = line, asked: list[tuple[int, int]] = asked) -> int:
            choice = line[len(asked)] if len(asked) < len(line) else 0
            asked.append((choice, ways))
            return choice

        machine.fire(choose)
        yield
        while asked and asked[-1][0] == asked[-1][1] - 1:
            asked.pop()
        if not asked:
            return
        line = [*(choice for choice, _ in asked[:-1]), asked[-1][0] + 1]


def _begins(whole: tuple[Any, ...], part: tuple[Any, ...]) -> bool:
    """Whether a sink can still come to hold the whole; where order is promised, less than that may pass."""
    return whole[: len(part)] == part or Counter(part) <= Counter(whole)
