"""`flow.simulate`: run a test under many schedules, and show the plainest one that breaks it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Literal

from trueline.errors import Counterexample, InputError, SimulationError
from trueline.flow.compiled import CompiledFlow, compile_graph
from trueline.flow.graph import Graph, HasGraph
from trueline.flow.simulator.choices import Follow, deviations, parsed, trimmed, written
from trueline.flow.simulator.faults import Fault, Faults
from trueline.flow.simulator.runner import Body, Runner
from trueline.flow.simulator.search import (
    Budget,
    Ending,
    Exploration,
    FailingLine,
    NotExhaustive,
    bounded,
    exhaustive,
    fuzz,
    smallest,
)
from trueline.flow.simulator.trace import Trace
from trueline.flow.simulator.tracer import Tracer, where

Mode = Literal["exhaustive", "deviations", "fuzz"]
EXECUTIONS = {"exhaustive": 200_000, "deviations": 200_000, "fuzz": 1_000}


def simulate(
    flow: HasGraph,
    body: Body,
    mode: Mode = "exhaustive",
    *,
    hashing: bool = True,
    replay: str | Sequence[int] | None = None,
    faults: Iterable[Fault] = (),
    max_executions: int | None = None,
    max_seconds: float | None = None,
    max_deviations: int | None = 3,
    max_steps: int = 10_000,
    seed: int | None = None,
    check: bool = True,
    shrink: int = 2_000,
) -> Exploration:
    """Run `body` under every schedule (or those a mode looks at); raises `Counterexample` if one breaks it.

    >>> from trueline.flow import Flow, nondet
    >>> flow = Flow("pieces")
    >>> server = flow.process("server")
    >>> pieces = server.source("words").batch(server.tick(), nondet("pieces of any size"))
    >>> server.sink("sizes", pieces.count().all_ticks())
    >>> def body(sim):
    ...     sim.send("words", "one", "two", "three")
    ...     assert sum(sim.collect("sizes")) == 3
    >>> print(simulate(flow, body, hashing=False))
    exhaustive: 4 executions: every schedule
    """
    if not callable(body):
        raise InputError(
            f"{body!r} is not a test body", remedy="give a function of one argument, the simulation"
        )
    if mode not in EXECUTIONS:
        raise InputError(f"mode={mode!r} is not a mode", remedy=f"give one of {', '.join(EXECUTIONS)}")
    _refuse_counts(
        max_executions=max_executions,
        max_deviations=max_deviations,
        max_steps=max_steps,
        shrink=shrink,
    )
    graph = flow.graph
    trouble = Faults(faults, graph)
    drifting = trouble.drifting(graph)
    compiled = CompiledFlow(graph, ignoring=drifting) if drifting else compile_graph(graph)
    runner = Runner(compiled, body, trouble, steps=max_steps, check=check)
    if replay is not None:
        return _replayed(graph, runner, parsed(replay))
    # A fuzzer would have to keep every state it has ever seen, to find out that this one is not new.
    runner.states = set() if hashing and mode != "fuzz" else None
    limit = EXECUTIONS[mode] if max_executions is None else max_executions
    budget = Budget(limit, max_seconds, max_deviations if mode == "deviations" else None)
    try:
        if mode == "fuzz":
            found = fuzz(runner, budget, seed)
        else:
            found = (exhaustive if mode == "exhaustive" else bounded)(runner, budget)
    except FailingLine as failing:
        line = smallest(runner, failing, shrink)
        ending, trace, _ = _told(graph, runner, line)
        raise _counterexample(runner, graph, line, ending, trace) from ending.error
    _be_loud(graph, runner, found, mode)
    return found


LEAST = {"max_executions": 1, "max_deviations": 0, "max_steps": 1, "shrink": 0}


def _refuse_counts(**counts: int | None) -> None:
    """Refuse budgets of nothing: a search that looks at nothing finds nothing."""
    for name, count in counts.items():
        given: object = count
        whole = isinstance(given, int) and not isinstance(given, bool)
        if given is not None and (not whole or given < LEAST[name]):  # type: ignore[operator]
            raise InputError(f"{name}={count!r}", remedy=f"give an integer of at least {LEAST[name]}")


def _be_loud(graph: Graph, runner: Runner, found: Exploration, mode: Mode) -> None:
    if not runner.reads:
        raise SimulationError(
            f"the body reads nothing of flow {graph.name!r}, so there was nothing to explore",
            remedy="read what comes out: sim.next, sim.collect, or sim.quiesce to let everything happen",
            code="NothingRead",
        )
    if not found.executions and found.discarded:
        text = f"flow {graph.name!r}: assume set every one of {found.discarded:,} executions aside"
        warnings.warn(text, NotExhaustive, stacklevel=4)
    if found.stopped.startswith("stopped") and mode != "fuzz":
        text = f"flow {graph.name!r}: {found}; max_executions, max_seconds or mode='deviations' reach further"
        warnings.warn(text, NotExhaustive, stacklevel=4)


def _replayed(graph: Graph, runner: Runner, line: tuple[int, ...]) -> Exploration:
    """Run one line; it fails as it failed, or passes."""
    ending, trace, asked = _told(graph, runner, line)
    if ending.outcome == "failed":
        raise _counterexample(runner, graph, line, ending, trace) from ending.error
    if len(trimmed(line)) > asked:
        raise SimulationError(
            f"the line has {len(trimmed(line))} choices, but the test ended after {asked}",
            remedy="simulate it again: the flow or the test has changed since the line was printed",
            code="LineDoesNotFit",
        )
    return Exploration("replay", int(ending.outcome == "passed"), 0, exhaustive=False, stopped="one schedule")


def _told(graph: Graph, runner: Runner, line: Sequence[int]) -> tuple[Ending, Trace, int]:
    """Run a line and write down what happens, and how many choices there were."""
    tracer = runner.tracer = Tracer(runner.machine)
    runner.machine.observer = tracer.fired
    follow = Follow(line)
    try:
        ending = runner.execute(follow)
    finally:
        runner.tracer = runner.machine.observer = None
    error = ending.error
    failure = f"{type(error).__name__}: {error}" if error is not None else ""
    taken = trimmed(follow.values)
    trace = Trace(
        graph.name,
        tuple(tracer.events),
        failure,
        where(error) if error is not None else None,
        written(taken),
        deviations(taken),
    )
    return ending, trace, len(follow.values)


def _counterexample(
    runner: Runner, graph: Graph, line: tuple[int, ...], ending: Ending, trace: Trace
) -> Counterexample:
    if ending.outcome != "failed":
        return Counterexample(
            f"flow {graph.name!r} failed under the schedule {written(line)!r}, but not when it was run again",
            remedy="let the body and the functions of the flow depend on their arguments only",
            code="NotRepeatable",
            choices=line,
            trace=trace,
            again=lambda: None,
        )

    def again() -> None:
        _replayed(graph, runner, line)

    return Counterexample(trace.text(), choices=line, trace=trace, again=again)
