"""Ticks: the clocks of a location, with the state that goes from one execution to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from trueline.errors import InputError, Unfinished, WrongLocation
from trueline.flow.collection import Collection, begin
from trueline.flow.graph import Clock, FlowNode, here
from trueline.flow.markers import ABSENT, Bounded, ExactlyOnce, Unordered
from trueline.flow.singletons import Optional, Singleton
from trueline.flow.streams import Stream

A = TypeVar("A")
L = TypeVar("L", bound=Collection)


@dataclass(eq=False)
class Handle(Generic[L]):
    """The open end of a forward reference or cycle: `complete` it with the collection it refers to.

    >>> from trueline.flow import Flow, nondet
    >>> flow = Flow("countdown")
    >>> p = flow.process("p")
    >>> handle, back = p.forward_ref(ordered=False)
    >>> numbers = p.source("numbers").union(back)
    >>> handle.complete(numbers.filter(lambda n: n > 0).map(lambda n: n - 1))
    >>> p.sink("all", numbers)
    >>> sorted(flow.run({"numbers": [2]})["all"])
    [0, 1, 2]
    """

    node: FlowNode

    def complete(self, collection: L) -> None:
        """Say what the reference refers to."""
        cycles = self.node.location.graph.cycles
        want, got = self.node, getattr(collection, "node", None)
        if got is None:
            raise InputError(
                f"complete at {here()} is given {collection!r}, which is not a collection",
                remedy="give a collection",
            )
        if want.id in cycles:
            raise Unfinished(
                f"{want} is completed a second time at {here()}", remedy="complete it once", node=want
            )
        if got.location is not want.location or (got.tick is not want.tick and not got.constant):
            raise WrongLocation(
                f"{want} on {want.location.name} is completed at {here()} with {got}, which is on another "
                "location or in another tick",
                remedy="complete it with a collection of its own location and tick",
                nodes=(want, got),
            )
        # Order and repeats are promises about elements; a value has none, whatever it was made of.
        less = (want.ordered and not got.ordered) or (want.once and not got.once)
        weaker = got.shape != want.shape or ("stream" in want.shape and less)
        if weaker and not (want.shape == "optional" and got.shape == "singleton"):
            raise InputError(
                f"{want} promises {want.promises}, and is completed at {here()} with {collection!r}",
                remedy="make the reference with ordered=False, or complete it with a stream that promises as "
                "much: .assume_ordering(nondet(…)), .unique()",
                nodes=(want, got),
            )
        cycles[want.id] = got


class Tick(Clock):
    """A clock of one place. An execution takes its reads, runs to its end, then hands out what it made.

    >>> from trueline.flow import Flow, nondet
    >>> flow, why = Flow("sums"), nondet("an example")
    >>> p = flow.process("p")
    >>> tick = p.tick()
    >>> numbers = p.source("numbers").batch(tick, why)
    >>> keep, total = tick.state(0)
    >>> new = total.cross_singleton(numbers.fold(0, lambda a, b: a + b)).map(sum)
    >>> keep.complete(new)
    >>> p.sink("totals", new.all_ticks())
    >>> before, earlier = tick.cycle()
    >>> before.complete(numbers)
    >>> later, same = tick.forward_ref()
    >>> later.complete(numbers)
    >>> last, value = tick.optional_state()
    >>> last.complete(numbers.last())
    >>> p.sink("earlier", earlier.all_ticks())
    >>> p.sink("same", same.all_ticks())
    >>> p.sink("value", value.all_ticks())
    >>> flow.run({"numbers": [1, 2, 3]})["totals"][-1]
    6
    """

    def forward_ref(
        self, *, ordered: bool = True
    ) -> tuple[Handle[Stream[Any, Bounded, Unordered, ExactlyOnce]], Stream[Any, Bounded, Any, ExactlyOnce]]:
        """A stream of this tick that is completed later, with what it has in the same execution."""
        stream = begin(self.location, "forward_ref", tick=self, bounded=True, ordered=ordered)
        return Handle(stream.node), stream

    def cycle(
        self, *, ordered: bool = True
    ) -> tuple[Handle[Stream[Any, Bounded, Unordered, ExactlyOnce]], Stream[Any, Bounded, Any, ExactlyOnce]]:
        """A stream of the execution before: (handle, what it was completed with in the execution before)."""
        stream = begin(self.location, "cycle", tick=self, bounded=True, ordered=ordered)
        return Handle(stream.node), stream

    def state(self, init: A | Callable[[], A]) -> tuple[Handle[Singleton[A, Bounded]], Singleton[A, Bounded]]:
        """A value kept from execution to execution: (handle for the next, the one of now)."""
        value = begin(self.location, "state", tick=self, bounded=True, shape="singleton", args={"init": init})
        return Handle(value.node), value

    def optional_state(self) -> tuple[Handle[Optional[Any, Bounded]], Optional[Any, Bounded]]:
        """A value kept from execution to execution, absent in the first."""
        args = {"init": ABSENT}
        value = begin(self.location, "state", tick=self, bounded=True, shape="optional", args=args)
        return Handle(value.node), value
