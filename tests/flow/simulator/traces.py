"""All that can be seen of a flow: what each sink gives, in every schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trueline import console
from trueline.flow import Flow
from trueline.flow.simulator import drift

Trace = tuple[tuple[str, int, tuple[Any, ...]], ...]


def traces(
    flow: Flow, *sends: tuple[Any, ...], aligned: bool = True, members: int = 1, **options: Any
) -> set[Trace]:
    """Every behaviour of a flow that is sent these and left alone; (source, value, value …) each."""
    sinks = [(node.name, m) for node in flow.graph.named("sink") for m in range(node.location.size)]

    def body(sim: Any) -> Trace:
        for source, *values in sends:
            for member in range(members):
                sim.send(source, *values, member=member)
        sim.quiesce()
        return tuple((name, m, tuple(sim.collect(name, member=m))) for name, m in sinks)

    return outcomes(flow, body, faults=() if aligned else (drift(),), **options)


def outcomes(flow: Flow, body: Callable[[Any], Any], **options: Any) -> set[Any]:
    """Everything a body can return, over all schedules."""
    found: set[Any] = set()
    with console.use(console.CapturedConsole()):
        explored = flow.simulate(lambda sim: found.add(body(sim)), **options)
    assert explored.exhaustive, str(explored)
    return found
