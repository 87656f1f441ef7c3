"""Where a flow runs: processes, clusters of members without promises to each other, and their ticks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from trueline.errors import InputError, Unfinished, WrongLocation
from trueline.flow.align_point import AlignPoint
from trueline.flow.collection import Collection, wrap
from trueline.flow.graph import Node, Site, here
from trueline.flow.keyed import KeyedStream
from trueline.flow.markers import ABSENT, AtLeastOnce, Bounded, ExactlyOnce, Ordered, Unbounded, Unordered
from trueline.flow.singletons import Optional, Singleton
from trueline.flow.streams import Stream

if TYPE_CHECKING:
    from trueline.flow.flow import Flow

A = TypeVar("A")
L = TypeVar("L", bound=Collection)


@dataclass(eq=False)
class Handle(Generic[L]):
    """The open end of a forward reference or cycle: `complete` it with the collection it stands for."""

    node: Node
    location: Location

    def complete(self, collection: L) -> None:
        """Say what the reference stands for."""
        cycles = self.location.flow.graph.cycles
        want, got = self.node, getattr(collection, "node", None)
        if got is None:
            raise InputError(f"complete at {here()} is given {collection!r}", remedy="give a collection")
        if want.id in cycles:
            raise Unfinished(
                f"{want} is completed a second time at {here()}", remedy="complete it once", node=want
            )
        if got.location is not want.location or (got.tick is not want.tick and not got.constant):
            raise WrongLocation(
                f"{want} on {want.location.name} is completed at {here()} with {got}, which is elsewhere",
                remedy="complete it with a collection of its own place",
                nodes=(want, got),
            )
        # Order and repeats are promises about elements; a value has none, whatever it was made of.
        less = (want.ordered and not got.ordered) or (want.once and not got.once)
        weaker = got.shape != want.shape or ("stream" in want.shape and less)
        if weaker and not (want.shape == "optional" and got.shape == "singleton"):
            raise InputError(
                f"{want} promises {wrap(want)!r}, and is completed at {here()} with {collection!r}",
                remedy="make the reference with what its collection can promise: ordered=…, at_least_once=…",
                nodes=(want, got),
            )
        self.location.flow.graph.cycles[want.id] = got


class Location:
    """One place of a flow."""

    is_cluster = False
    size = 1

    def __init__(self, flow: Flow, name: str, site: Site) -> None:
        self.flow = flow
        self.name = name
        self.site = site

    @property
    def variable(self) -> str:
        """The name as one would write it in code."""
        return "".join(c if c.isalnum() else "_" for c in self.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def add(self, kind: str, **parts: Any) -> Any:
        """Make a collection that begins here."""
        defaults: dict[str, Any] = {
            "inputs": (),
            "location": self,
            "tick": None,
            "shape": "stream",
            "bounded": False,
            "ordered": True,
            "once": True,
        }
        return wrap(self.flow.graph.add(kind=kind, **{**defaults, **parts}))

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
        self.flow.claim("source", name)
        return self.add("source", name=name, ordered=ordered, once=not at_least_once, args={"schema": schema})

    def sink(self, name: str, collection: Collection) -> None:
        """Hand the elements of a stream out, by name."""
        given: object = collection
        if not isinstance(given, Collection) or "stream" not in collection.shape:
            raise InputError(
                f"sink {name!r} at {here()} is given {collection!r}",
                remedy="give a stream; of a value in a tick, .all_ticks() is one",
            )
        node = collection.node
        if node.location is not self or node.tick is not None:
            place = node.tick.name if node.tick else node.location.name
            raise WrongLocation(
                f"sink {name!r} of {self.name} at {here()} is given {node} of {place}",
                remedy="leave the tick with .all_ticks(), send what is elsewhere with .send(…)",
                node=node,
            )
        self.flow.claim("sink", name)
        self.add("sink", name=name, inputs=(node,), ordered=node.ordered, once=node.once, shape=node.shape)

    def singleton(self, value: A) -> Singleton[A, Bounded]:
        """A constant, the same in every tick of this place; it makes nothing shared (A34)."""
        return self.add("constant", shape="singleton", bounded=True, args={"value": value})  # type: ignore[no-any-return]

    def stream_of(self, values: Iterable[A]) -> Stream[A, Bounded, Ordered, ExactlyOnce]:
        """A stream of constants, complete from the beginning."""
        return self.add("constant", bounded=True, args={"value": tuple(values)})  # type: ignore[no-any-return]

    # --- time and agreement -------------------------------------------------------------

    def tick(self, name: str = "") -> Tick:
        """A clock of this place: what is read in it is of one moment."""
        return Tick(self, name or f"{self.name}.tick{len(self.flow.ticks)}", here())

    def local_align_point(self, name: str = "") -> AlignPoint:
        """A token: all that is read or released with it agrees on what it shares, on one machine."""
        return AlignPoint(self, name or f"{self.name}.point{len(self.flow.points)}", here())

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
        """A stream that is said later: (handle, stream); what is fed back arrives later (A23)."""
        stream = self.add("forward_ref", ordered=ordered)
        return Handle(stream.node, self), stream


class Process(Location):
    """One machine."""


class Cluster(Location):
    """Several machines that run the same, each for itself (A19)."""

    is_cluster = True

    def __init__(self, flow: Flow, name: str, site: Site, size: int) -> None:
        given: object = size
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise InputError(f"a cluster of {size!r} members", remedy="give a whole number from 1 on")
        super().__init__(flow, name, site)
        self.size = size


class Tick:
    """A clock of one place. An execution takes its reads, runs to its end, then hands out what it made."""

    def __init__(self, location: Location, name: str, site: Site) -> None:
        self.location = location
        self.name = name
        self.site = site
        self.id = len(location.flow.ticks)
        location.flow.ticks.append(self)

    def __repr__(self) -> str:
        return f"<Tick {self.name}>"

    def forward_ref(
        self, *, ordered: bool = True
    ) -> tuple[Handle[Stream[Any, Bounded, Unordered, ExactlyOnce]], Stream[Any, Bounded, Any, ExactlyOnce]]:
        """A stream of this tick that is said later, in the same execution."""
        stream = self.location.add("forward_ref", tick=self, bounded=True, ordered=ordered)
        return Handle(stream.node, self.location), stream

    def cycle(
        self, *, ordered: bool = True
    ) -> tuple[Handle[Stream[Any, Bounded, Unordered, ExactlyOnce]], Stream[Any, Bounded, Any, ExactlyOnce]]:
        """A stream that comes round: (handle, what it was completed with in the execution before)."""
        stream = self.location.add("cycle", tick=self, bounded=True, ordered=ordered)
        return Handle(stream.node, self.location), stream

    def state(self, init: A | Callable[[], A]) -> tuple[Handle[Singleton[A, Bounded]], Singleton[A, Bounded]]:
        """A value kept from execution to execution: (handle for the next, the one of now)."""
        value = self.location.add("state", tick=self, bounded=True, shape="singleton", args={"init": init})
        return Handle(value.node, self.location), value

    def optional_state(self) -> tuple[Handle[Optional[Any, Bounded]], Optional[Any, Bounded]]:
        """A value kept from execution to execution, absent in the first."""
        args = {"init": ABSENT}
        value = self.location.add("state", tick=self, bounded=True, shape="optional", args=args)
        return Handle(value.node, self.location), value


__all__ = ["Cluster", "Handle", "KeyedStream", "Location", "Process", "Tick"]
