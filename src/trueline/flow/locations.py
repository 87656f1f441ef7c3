"""Where a flow runs: processes, and clusters of members without promises to each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeVar, overload

from trueline.errors import InputError, WrongLocation
from trueline.flow.align_point import AlignPoint
from trueline.flow.collection import Collection, begin
from trueline.flow.graph import ClusterLocation, Graph, Location, ProcessLocation, Site, here
from trueline.flow.markers import AtLeastOnce, Bounded, ExactlyOnce, Ordered, Unbounded, Unordered
from trueline.flow.singletons import Singleton
from trueline.flow.streams import Stream
from trueline.flow.ticks import Handle, Tick

A = TypeVar("A")


class Building(Location):
    """What processes and clusters do alike: collections, ticks and align points begin here."""

    # --- where data begins and ends -----------------------------------------------------

    @overload
    def source(
        self,
        name: str,
        ordered: Literal[True] = True,
        schema: Any = None,
        *,
        at_least_once: Literal[False] = False,
    ) -> Stream[Any, Unbounded, Ordered, ExactlyOnce]: ...
    @overload
    def source(
        self, name: str, ordered: Literal[False], schema: Any = None, *, at_least_once: Literal[False] = False
    ) -> Stream[Any, Unbounded, Unordered, ExactlyOnce]: ...
    @overload
    def source(
        self, name: str, ordered: bool = True, schema: Any = None, *, at_least_once: bool
    ) -> Stream[Any, Unbounded, Unordered, AtLeastOnce]: ...
    def source(
        self, name: str, ordered: bool = True, schema: Any = None, *, at_least_once: bool = False
    ) -> Any:
        """A stream that is fed from outside, by name."""
        self.graph.claim("source", name)
        return begin(
            self, "source", name=name, ordered=ordered, once=not at_least_once, args={"schema": schema}
        )

    def sink(self, name: str, collection: Collection) -> None:
        """Output the elements of a stream under a name."""
        given: object = collection
        if not isinstance(given, Collection) or "stream" not in collection.shape:
            raise InputError(
                f"sink {name!r} at {here()} is given {collection!r}, which is not a stream",
                remedy="give a stream; .all_ticks() makes one of a value in a tick",
            )
        node = collection.node
        if node.location is not self or node.tick is not None:
            place = node.tick.name if node.tick else node.location.name
            raise WrongLocation(
                f"sink {name!r} of {self.name} at {here()} is given {node}, which is in {place}",
                remedy="leave a tick with .all_ticks(), bring a stream to this location with .send(…)",
                node=node,
            )
        self.graph.claim("sink", name)
        begin(
            self,
            "sink",
            name=name,
            inputs=(node,),
            ordered=node.ordered,
            once=node.once,
            shape=node.shape,
        )

    def singleton(self, value: A) -> Singleton[A, Bounded]:
        """A constant, the same in every tick of this place; it makes nothing shared (A34)."""
        return begin(self, "constant", shape="singleton", bounded=True, args={"value": value})  # type: ignore[no-any-return]

    def stream_of(self, values: Iterable[A]) -> Stream[A, Bounded, Ordered, ExactlyOnce]:
        """A stream of constants, complete from the beginning."""
        return begin(self, "constant", bounded=True, args={"value": tuple(values)})  # type: ignore[no-any-return]

    # --- time and agreement -------------------------------------------------------------

    def tick(self, name: str = "") -> Tick:
        """A clock of this place: what is read in it is of one moment."""
        return Tick(self, name or f"{self.name}.tick{len(self.graph.ticks)}", here())

    def local_align_point(self, name: str = "") -> AlignPoint:
        """A token: all that is read or released with it agrees on what it shares, on one machine."""
        return AlignPoint(self, name or f"{self.name}.point{len(self.graph.points)}", here())

    @overload
    def forward_ref(
        self, *, ordered: Literal[True] = True
    ) -> tuple[
        Handle[Stream[Any, Unbounded, Ordered, ExactlyOnce]], Stream[Any, Unbounded, Ordered, ExactlyOnce]
    ]: ...
    @overload
    def forward_ref(
        self, *, ordered: Literal[False]
    ) -> tuple[
        Handle[Stream[Any, Unbounded, Unordered, ExactlyOnce]], Stream[Any, Unbounded, Unordered, ExactlyOnce]
    ]: ...
    def forward_ref(self, *, ordered: bool = True) -> Any:
        """A stream that is defined later: (handle, stream); what is fed back arrives later (A23)."""
        stream = begin(self, "forward_ref", ordered=ordered)
        return Handle(stream.node), stream


class Process(Building, ProcessLocation):
    """One machine.

    >>> from trueline.flow import Flow, nondet
    >>> flow = Flow("greeting")
    >>> p = flow.process("my server")
    >>> names, tick = p.source("names"), p.tick("greeting")
    >>> hello = p.singleton("hello")
    >>> asked = names.batch(tick, nondet("greeted when they come"))
    >>> p.sink("greetings", asked.cross_singleton(hello).all_ticks())
    >>> more = p.stream_of(["Ann", "Ben"])
    >>> point = p.local_align_point("names")
    >>> handle, later = p.forward_ref()
    >>> handle.complete(names)
    >>> p.sink("later", later)
    >>> p.variable, flow.run({"names": ["Ann"]})["greetings"]
    ('my_server', [('Ann', 'hello')])
    """


class Cluster(Building, ClusterLocation):
    """Several machines that run the same, each for itself (A19).

    >>> from trueline.flow import Flow, nondet
    >>> flow = Flow("work")
    >>> p, workers = flow.process("p"), flow.cluster("workers", 2)
    >>> jobs = p.source("jobs").demux(workers, lambda job: job % 2)
    >>> workers.sink("log", workers.source("notes"))
    >>> tick, point = workers.tick(), workers.local_align_point()
    >>> batches = jobs.batch(tick, nondet("any piece")).cross_singleton(workers.singleton("done"))
    >>> more = workers.stream_of([1, 2])
    >>> handle, later = workers.forward_ref()
    >>> handle.complete(jobs)
    >>> workers.sink("later", later)
    >>> p.sink("done", batches.all_ticks().gather(p).values())
    >>> workers.variable, sorted(flow.run({"jobs": [1, 2]})["done"])
    ('workers', [(1, 'done'), (2, 'done')])
    """

    def __init__(self, graph: Graph, name: str, site: Site, size: int) -> None:
        given: object = size
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise InputError(
                f"size={size!r} is not a number of members", remedy="give an integer of at least 1"
            )
        super().__init__(graph, name, site, size)
