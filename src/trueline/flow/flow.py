"""A flow: the places, the graph over them, and the ways to run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from trueline.errors import InputError
from trueline.flow.align_point import AlignPoint
from trueline.flow.compiled import CompiledFlow, compile_graph
from trueline.flow.explain import explain_flow
from trueline.flow.graph import Graph, here
from trueline.flow.interpreter import Inputs, Interpreter, run
from trueline.flow.locations import Cluster, Process
from trueline.flow.simulator import Exploration, Simulation
from trueline.flow.simulator.simulate import Mode, simulate
from trueline.flow.ticks import Tick


class Flow:
    """A program over live collections, written once and run in process, simulated, or on datasets.

    >>> from trueline.flow import Flow, nondet
    >>> flow = Flow("counter")
    >>> server = flow.process("server")
    >>> count = server.source("increments").count()
    >>> tick = server.tick()
    >>> seen = count.snapshot(tick, nondet("any recent count"))
    >>> asked = server.source("queries").batch(tick, nondet("asked when it is asked"))
    >>> server.sink("answers", asked.cross_singleton(seen).all_ticks())
    >>> flow.compile()
    <CompiledFlow counter: 8 nodes, 1 tick>

    >>> [tick.name for tick in flow.ticks], flow.points, flow.cluster("workers", 3).name
    (['server.tick0'], [], 'workers')
    >>> flow.explain().splitlines()[0]
    'flow counter: 8 operators'
    >>> live = flow.start(seed=1)
    >>> def test(sim):
    ...     sim.send("queries", "how many?")
    ...     assert sim.next("answers") == ("how many?", 0)
    >>> flow.simulate(test).exhaustive
    True
    """

    def __init__(self, name: str) -> None:
        given: object = name
        if not isinstance(given, str) or not given:
            raise InputError(f"{name!r} is not a name for a flow", remedy="give a non-empty string")
        self.name = name
        self.graph = Graph(name)
        self.locations: list[Process | Cluster] = []

    def __repr__(self) -> str:
        return f"<Flow {self.name}: {len(self.graph.nodes)} nodes>"

    @property
    def ticks(self) -> list[Tick]:
        """Its ticks, in the order they were written."""
        return cast("list[Tick]", self.graph.ticks)

    @property
    def points(self) -> list[AlignPoint]:
        """Its align points, in the order they were written."""
        return cast("list[AlignPoint]", self.graph.points)

    def process(self, name: str) -> Process:
        """One machine."""
        self.graph.claim("location", name)
        place = Process(self.graph, name, here())
        self.locations.append(place)
        return place

    def cluster(self, name: str, size: int = 2) -> Cluster:
        """Several machines that run the same, each for itself."""
        self.graph.claim("location", name)
        place = Cluster(self.graph, name, here(), size)
        self.locations.append(place)
        return place

    def compile(self) -> CompiledFlow:
        """Check the whole graph, align what is to be aligned, and lay out how it runs."""
        return compile_graph(self.graph)

    def simulate(
        self, body: Callable[[Simulation], object], mode: Mode = "exhaustive", **options: Any
    ) -> Exploration:
        """Run a test under every schedule the flow may run under; raises `Counterexample` if one breaks it.

        `mode` is "exhaustive", "deviations" (few departures from the eager schedule first) or "fuzz";
        `trueline.flow.simulator.simulate` lists the options.
        """
        return simulate(self, body, mode, **options)

    def start(self, seed: int = 0) -> Interpreter:
        """Run it in this process, step by step; the same seed and input give the same run."""
        return Interpreter(self.compile(), seed)

    def run(self, inputs: Inputs, seed: int = 0) -> dict[str, list[Any]]:
        """Feed all inputs, run to rest, and return what came out of every sink, of all members together.

        An input is named by its source, on a cluster by (source, member).

        >>> from trueline.flow import Flow
        >>> flow = Flow("doubling")
        >>> p = flow.process("p")
        >>> p.sink("out", p.source("in").map(lambda x: 2 * x))
        >>> flow.run({"in": [1, 2, 3]})
        {'out': [2, 4, 6]}
        """
        return run(self.compile(), inputs, seed)

    def explain(self) -> str:
        """Every operator, where it runs, what is promised of it, what it keeps."""
        return explain_flow(self.compile())
