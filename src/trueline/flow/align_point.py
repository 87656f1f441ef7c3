"""Align points: the token that several reads and releases share, to agree on what they rest on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from trueline.errors import InputError, WrongLocation
from trueline.flow.graph import ALIGNED, Node, Site, here
from trueline.flow.markers import NonDet

if TYPE_CHECKING:
    from trueline.flow.locations import Location, Tick


@dataclass(frozen=True)
class Use:
    """One use of an align point (A1): what it is, of what, where."""

    kind: str
    of: str
    file: str
    line: int
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.of} at {Site(self.file, self.line)} in {self.function}"


class AlignPoint:
    """All reads with one point see, in one execution, the same prefix of what they share; releases wait.

    The promise is local: on one machine, in every member of a cluster for itself.
    """

    def __init__(self, location: Location, name: str, site: Site) -> None:
        self.location = location
        self.name = name
        self.site = site
        self.id = len(location.flow.points)
        location.flow.points.append(self)

    def __repr__(self) -> str:
        return f"<AlignPoint {self.name}>"

    @property
    def instances(self) -> list[Node]:
        """Its reads and releases, in the order they were written."""
        return [n for n in self.location.flow.graph.nodes if n.point is self and n.kind in ALIGNED]

    @property
    def uses(self) -> list[Use]:
        """Every place in the source that uses it, with file and line."""
        return [
            Use(n.kind, str(n.inputs[0]), n.site.file, n.site.line, n.site.function, n.site.text)
            for n in self.location.flow.graph.nodes
            if n.point is self
        ]

    def explain(self) -> str:
        """Boundary, region, merged ticks, and what is promised, in words."""
        from trueline.flow.explain import explain_point

        return explain_point(self.location.flow.compile(), self)

    def slice(self) -> Slice:
        """A tick of its own for what is read with the point in one place."""
        return Slice(self)

    @staticmethod
    def check(point: Any, kind: str, node: Node) -> None:
        """Refuse what is no point, or one of another place (A16)."""
        if not isinstance(point, AlignPoint):
            raise InputError(
                f"{kind} at {here()} is given {point!r} for an align point",
                remedy="give process.local_align_point()",
            )
        if point.location.flow is not node.location.flow:
            from trueline.flow.collection import other_flow

            raise other_flow(kind, node, node.location.flow.name, point.name, point.location.flow.name)
        if point.location is not node.location:
            raise WrongLocation(
                f"{kind} at {here()} uses align point {point.name!r} of {point.location.name} ({point.site}) "
                f"on {node}, which is on {node.location.name}: an align point holds on one machine",
                remedy=f"make one there: {node.location.variable}.local_align_point()",
                node=node,
                rule="align:A16",
            )

    @staticmethod
    def check_side(side: str) -> None:
        """Refuse a side of the cut that is none (A27)."""
        if side not in ("after", "before"):
            raise InputError(
                f"side={side!r}", remedy="give 'after' (includes what this execution takes) or 'before'"
            )


class Slice:
    """A tick that one place needs, with the point's reads at hand.

    >>> from trueline.flow import Flow, nondet
    >>> p = Flow("counter").process("server")
    >>> point = p.local_align_point("count")
    >>> count = p.source("increments").count()
    >>> with point.slice() as now:
    ...     seen = now.snapshot(count, nondet("any recent count"))
    >>> seen
    <singleton: bounded; snapshot_aligned (...) on server>
    """

    def __init__(self, point: AlignPoint) -> None:
        self.point = point
        self.tick: Tick = point.location.tick(f"{point.name}.slice{len(point.location.flow.ticks)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def batch(self, stream: Any, reason: NonDet) -> Any:
        """The next piece of a stream, aligned."""
        return stream.batch_aligned(self.tick, self.point, reason)

    def snapshot(self, single: Any, reason: NonDet, side: str = "after") -> Any:
        """The version of a value, aligned."""
        return single.snapshot_aligned(self.tick, self.point, reason, side)
