"""Align points: what several reads and releases share, to agree on what they rest on."""

from __future__ import annotations

from typing import Any, Self

from trueline.flow.compiled import compile_graph
from trueline.flow.explain import explain_point
from trueline.flow.graph import AlignToken, here
from trueline.flow.markers import NonDet
from trueline.flow.ticks import Tick


class AlignPoint(AlignToken):
    """All reads with one point see, in one execution, the same prefix of what they share; releases wait.

    The promise is local: on one machine, in every member of a cluster for itself.

    >>> from trueline.flow import Flow, Use, nondet
    >>> flow = Flow("counter")
    >>> p = flow.process("server")
    >>> increments, point = p.source("increments"), p.local_align_point("count")
    >>> p.sink("acks", increments.release_aligned(point))
    >>> with point.slice() as now:
    ...     seen = now.snapshot(increments.count(), nondet("any recent count"))
    ...     asked = now.batch(increments, nondet("any piece"))
    >>> p.sink("seen", seen.all_ticks())
    >>> p.sink("asked", asked.all_ticks())
    >>> [use.kind for use in point.uses], isinstance(point.uses[0], Use), len(point.instances)
    (['release_aligned', 'snapshot_aligned', 'batch_aligned'], True, 3)
    >>> "agrees on source 'increments'" in point.explain()
    True
    """

    def explain(self) -> str:
        """Boundary, region, merged ticks, and what is promised, in words."""
        return explain_point(compile_graph(self.location.graph), self)

    def slice(self) -> Slice:
        """A tick of its own for what is read with the point in one place."""
        return Slice(self)


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

    >>> with point.slice() as now:
    ...     piece = now.batch(p.source("more"), nondet("any piece"))
    """

    def __init__(self, point: AlignPoint) -> None:
        self.point = point
        name = f"{point.name}.slice{len(point.location.graph.ticks)}"
        self.tick = Tick(point.location, name, here())

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
