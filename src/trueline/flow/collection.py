"""What all live collections share: a node, the making of the next one, and the checks of what is promised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from trueline.errors import InputError, NotPromised, WrongLocation
from trueline.flow.graph import AlignToken, Clock, FlowNode, Location, here
from trueline.flow.markers import NonDet, Shape

_CLASSES: dict[str, type[Collection]] = {}


def wrap(node: FlowNode) -> Any:
    """The collection of a node's shape; the caller gives it its type."""
    return _CLASSES[node.shape](node)


def begin(location: Location, kind: str, **parts: Any) -> Any:
    """The collection of a node that has no inputs; the caller gives it its type."""
    defaults: dict[str, Any] = {
        "inputs": (),
        "location": location,
        "tick": None,
        "shape": "stream",
        "bounded": False,
        "ordered": True,
        "once": True,
    }
    return wrap(location.graph.add(kind=kind, **{**defaults, **parts}))


def other_flow(kind: str, node: FlowNode, place: str, there: Location) -> WrongLocation:
    """The error for what belongs to two flows."""
    flow, other = node.location.graph.name, there.graph.name
    return WrongLocation(
        f"{kind} at {here()} mixes {node} of flow {flow!r} with {place} of flow {other!r}",
        remedy="make both in one flow; between flows, send what a sink of one gives to a source of the other",
        node=node,
    )


class Collection:
    """A collection whose elements arrive or whose value changes while the flow runs."""

    shape: ClassVar[Shape]

    def __init__(self, node: FlowNode) -> None:
        self.node = node

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _CLASSES[cls.shape] = cls

    def __repr__(self) -> str:
        return f"<{self.node.promises}; {self.node} on {self.node.location.name}>"

    def _next(
        self,
        kind: str,
        *others: Collection,
        shape: Shape | None = None,
        fn: Callable[..., Any] | None = None,
        args: Mapping[str, Any] | None = None,
        reason: NonDet | None = None,
        **changed: Any,
    ) -> Any:
        """The collection that an operator makes of this one (and others of the same place)."""
        node = self.node
        if fn is not None and not callable(fn):
            raise InputError(
                f"{kind} at {here()} is given {fn!r}, which is not a function",
                remedy="give a function of the element",
                node=kind,
            )
        for other in others:
            self._same_place(kind, other)
        promises = {
            "location": node.location,
            "tick": next((each.node.tick for each in (self, *others) if each.node.tick), None),
            "bounded": all(each.node.bounded for each in (self, *others)),
            "ordered": node.ordered,
            "once": all(each.node.once for each in (self, *others) if "stream" in each.shape),
        }
        return wrap(
            node.location.graph.add(
                kind=kind,
                inputs=(node, *(other.node for other in others)),
                shape=shape or node.shape,
                fn=fn,
                args=args or {},
                reason=reason,
                **{**promises, **changed},
            )
        )

    # --- checks -------------------------------------------------------------------------

    def _same_place(self, kind: str, other: Collection) -> None:
        given: object = other
        if not isinstance(given, Collection):
            raise InputError(
                f"{kind} at {here()} is given {other!r}, which is not a collection",
                remedy="give a collection of this flow",
            )
        a, b = self.node, other.node
        if a.location.graph is not b.location.graph:
            raise other_flow(kind, a, str(b), b.location)
        if a.location is not b.location:
            raise WrongLocation(
                f"{kind} at {here()} joins {a} on {a.location.name} with {b} on {b.location.name}: "
                "both must be on one location",
                remedy=f"send one of them first, for example .send({a.location.variable})",
                nodes=(a, b),
            )
        if a.tick is not b.tick and not (a.constant or b.constant):
            names = [node.tick.name if node.tick else "outside every tick" for node in (a, b)]
            raise WrongLocation(
                f"{kind} at {here()} joins {a}, {names[0]}, with {b}, {names[1]}: both must be in one tick",
                remedy="read both in the same tick with .batch or .snapshot, or leave it with .all_ticks()",
                nodes=(a, b),
            )

    def _needs(self, kind: str, promise: str, *, holds: bool, remedy: str) -> None:
        if not holds:
            node = self.node
            needed, but = {
                "bounded": ("a bounded {}", "may still grow or change"),
                "unbounded": ("an unbounded {}", "is bounded"),
                "ordered": ("an ordered {}", "does not promise an order of its elements"),
                "exactly once": ("a {} that is delivered exactly once", "may deliver an element again"),
            }[promise]
            raise NotPromised(
                f"{kind} at {here()} needs {needed.format(node.shape)}, but {node} {but}",
                remedy=remedy,
                node=node,
                rule=promise,
            )

    def _needs_bounded(self, kind: str) -> None:
        read = "snapshot" if self.node.shape in ("singleton", "optional", "keyed singleton") else "batch"
        self._needs(
            kind,
            "bounded",
            holds=self.node.bounded,
            remedy=f"read it in a tick: .{read}(tick, nondet('why any choice is right'))",
        )

    def _needs_ordered(self, kind: str, instead: str = "") -> None:
        self._needs(
            kind,
            "ordered",
            holds=self.node.ordered,
            remedy=f"{instead}.assume_ordering(nondet('why any order is right')) picks an order by chance",
        )

    def _needs_once(self, kind: str, instead: str = "") -> None:
        self._needs(
            kind,
            "exactly once",
            holds=self.node.once,
            remedy=f"{instead}.unique() drops repeated elements",
        )

    def _needs_tick(self, kind: str) -> Clock:
        tick = self.node.tick
        if tick is None:
            raise WrongLocation(
                f"{kind} at {here()} needs a collection in a tick, but {self.node} is outside every tick",
                remedy="read it in a tick first with .batch or .snapshot",
                node=self.node,
            )
        return tick

    def _needs_reason(self, kind: str, reason: NonDet) -> None:
        if not isinstance(reason, NonDet):
            raise InputError(
                f"{kind} at {here()} depends on timing and needs a reason, but is given {reason!r}",
                remedy="give nondet('why any choice is right here')",
            )

    def _read(
        self, kind: str, tick: Clock, reason: NonDet, point: AlignToken | None = None, **args: Any
    ) -> Any:
        """The read of a prefix or a version into a tick."""
        node = self.node
        if not isinstance(tick, Clock):
            raise InputError(
                f"{kind} at {here()} is given {tick!r}, which is not a tick", remedy="give process.tick()"
            )
        self._needs_reason(kind, reason)
        if node.tick is not None:
            raise WrongLocation(
                f"{kind} at {here()} reads {node}, which is inside {node.tick.name}: ticks do not nest",
                remedy="use it as it is, or leave the tick first with .all_ticks() or .latest()",
                node=node,
            )
        if tick.location.graph is not node.location.graph:
            raise other_flow(kind, node, tick.name, tick.location)
        if tick.location is not node.location:
            raise WrongLocation(
                f"{kind} at {here()} reads {node} on {node.location.name} in a tick of {tick.location.name}",
                remedy=f"make a tick of {node.location.name}: {node.location.variable}.tick()",
                node=node,
            )
        if node.bounded:
            raise NotPromised(
                f"{kind} at {here()} reads {node}, which is bounded: there is nothing to choose",
                remedy="use it in the tick as it is",
                node=node,
                rule="unbounded",
            )
        if point is not None:
            self._needs_point(kind, point)
        return self._next(kind, reason=reason, tick=tick, bounded=True, point=point, args=args)

    def _read_version(self, tick: Clock, point: AlignToken, reason: NonDet, side: str) -> Any:
        """The aligned read of a live value, on one side of the cut (A27)."""
        if side not in ("after", "before"):
            raise InputError(
                f"side={side!r} is not a side of the cut",
                remedy="give 'after' (includes what this execution takes) or 'before'",
            )
        return self._read("snapshot_aligned", tick, reason, point, side=side)

    def _release(self, point: AlignToken) -> Any:
        self._needs_point("release_aligned", point)
        self._outside("release_aligned")
        return self._next("release_aligned", point=point)

    def _tag(self, point: AlignToken) -> Any:
        self._needs_point("aligned_at", point)
        self._outside("aligned_at")
        return self._next("aligned_at", point=point)

    def _needs_point(self, kind: str, point: AlignToken) -> None:
        """Refuse what is not an align point, or one of another place (A16)."""
        node = self.node
        given: object = point
        if not isinstance(given, AlignToken):
            raise InputError(
                f"{kind} at {here()} is given {point!r}, which is not an align point",
                remedy="give process.local_align_point()",
            )
        if point.location.graph is not node.location.graph:
            raise other_flow(kind, node, point.name, point.location)
        if point.location is not node.location:
            raise WrongLocation(
                f"{kind} at {here()} uses align point {point.name!r} of {point.location.name} ({point.site}) "
                f"on {node}, which is on {node.location.name}: an align point holds on one machine",
                remedy=f"make one there: {node.location.variable}.local_align_point()",
                node=node,
                rule="align:A16",
            )

    def _outside(self, kind: str) -> None:
        if self.node.tick is not None:
            raise WrongLocation(
                f"{kind} at {here()} is given {self.node}, which is inside {self.node.tick.name}",
                remedy="use it on a collection outside ticks; in a tick all reads are of one moment already",
                node=self.node,
            )
