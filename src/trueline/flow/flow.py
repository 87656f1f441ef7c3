"""A flow: the places, the graph over them, and the ways to run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trueline import console
from trueline.errors import FlowError, InputError
from trueline.flow.graph import Graph, here
from trueline.flow.locations import Cluster, Process, Tick

if TYPE_CHECKING:
    from collections.abc import Callable

    from trueline.flow.align_point import AlignPoint
    from trueline.flow.compiled import CompiledFlow
    from trueline.flow.interpreter import Inputs, Interpreter
    from trueline.flow.simulator import Exploration, Simulation
    from trueline.flow.simulator.simulate import Mode


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
    """

    def __init__(self, name: str) -> None:
        given: object = name
        if not isinstance(given, str) or not given:
            raise InputError(f"a flow named {name!r}", remedy="give it a name")
        self.name = name
        self.graph = Graph()
        self.locations: list[Process | Cluster] = []
        self.ticks: list[Tick] = []
        self.points: list[AlignPoint] = []
        self._names: dict[tuple[str, str], str] = {}
        self._compiled: tuple[tuple[int, int], CompiledFlow] | None = None

    def __repr__(self) -> str:
        return f"<Flow {self.name}: {len(self.graph.nodes)} nodes>"

    def process(self, name: str) -> Process:
        """One machine."""
        self.claim("location", name)
        place = Process(self, name, here())
        self.locations.append(place)
        return place

    def cluster(self, name: str, size: int = 2) -> Cluster:
        """Several machines that run the same, each for itself."""
        self.claim("location", name)
        place = Cluster(self, name, here(), size)
        self.locations.append(place)
        return place

    def claim(self, what: str, name: str) -> None:
        """Keep names of one sort apart."""
        given: object = name
        if not isinstance(given, str) or not given:
            raise InputError(f"a {what} named {name!r}", remedy="give it a name")
        if (what, name) in self._names:
            raise FlowError(
                f"{what} {name!r} at {here()} is there already, from {self._names[what, name]}",
                remedy="give it another name",
                name=name,
            )
        self._names[what, name] = str(here())

    def compile(self) -> CompiledFlow:
        """Check the whole graph, align what is to be aligned, and lay out how it runs."""
        from trueline.flow.compiled import CompiledFlow

        version = (len(self.graph.nodes), len(self.graph.cycles))
        if self._compiled is None or self._compiled[0] != version:
            self._compiled = (version, CompiledFlow(self))
            for remark in self._compiled[1].regions.remarks:
                if remark.level == "warning":
                    console.current().warn(remark.text, code=remark.code)
        return self._compiled[1]

    def simulate(
        self, body: Callable[[Simulation], object], mode: Mode = "exhaustive", **options: Any
    ) -> Exploration:
        """Run a test under every schedule the flow may run under; raises `Counterexample` if one breaks it.

        `mode` is "exhaustive", "deviations" (few departures from the eager schedule first) or "fuzz";
        `trueline.flow.simulator.simulate` lists the options.
        """
        from trueline.flow.simulator.simulate import simulate

        return simulate(self, body, mode, **options)

    def start(self, seed: int = 0) -> Interpreter:
        """Run it in this process, step by step; the same seed and input give the same run."""
        from trueline.flow.interpreter import Interpreter

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
        from trueline.flow.interpreter import run

        return run(self.compile(), inputs, seed)

    def explain(self) -> str:
        """Every operator, where it runs, what is promised of it, what it keeps."""
        from trueline.flow.explain import explain_flow

        return explain_flow(self.compile())
