"""The graph of a flow: nodes that never change, each knowing where in the source it was written."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trueline.flow.markers import NonDet, Shape

if TYPE_CHECKING:
    from trueline.flow.align_point import AlignPoint
    from trueline.flow.locations import Location, Tick

_HERE: Final = str(Path(__file__).parent)


@dataclass(frozen=True)
class Site:
    """The line that made a node."""

    file: str
    line: int
    function: str = ""

    @property
    def text(self) -> str:
        """What stands there."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


def here() -> Site:
    """The nearest line of the caller's own code."""
    frame = sys._getframe(1)  # noqa: SLF001 the documented way to a caller's line without building a traceback
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


@dataclass(frozen=True, eq=False)
class Node:
    """One operator: what it does, to which nodes, where it runs and what is promised of its result."""

    id: int
    kind: str
    inputs: tuple[Node, ...]
    location: Location
    tick: Tick | None
    shape: Shape
    bounded: bool
    ordered: bool
    once: bool
    site: Site
    fn: Callable[..., Any] | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    reason: NonDet | None = None
    point: AlignPoint | None = None
    name: str = ""

    @property
    def label(self) -> str:
        """What people call it: its name, or its kind."""
        return f"{self.kind} {self.name!r}" if self.name else self.kind

    @property
    def constant(self) -> bool:
        """Whether it is complete from the beginning, outside every tick (A34)."""
        return self.bounded and self.tick is None

    def __str__(self) -> str:
        return f"{self.label} ({self.site})"

    def __repr__(self) -> str:
        return f"<Node {self.id} {self}>"


# How data goes into a node; every other kind takes it at once.
NETWORK: Final = frozenset({"send", "broadcast", "demux", "gather"})
READS: Final = frozenset({"batch", "snapshot"})
YIELDS: Final = frozenset({"all_ticks", "latest"})
ALIGNED_READS: Final = frozenset({"batch_aligned", "snapshot_aligned"})
ALIGNED: Final = ALIGNED_READS | {"release_aligned"}


@dataclass
class Graph:
    """The nodes of a flow in the order they were written, and what its forward references lead to."""

    nodes: list[Node] = field(default_factory=list)
    cycles: dict[int, Node] = field(default_factory=dict)
    """Forward reference → the node that completes it."""

    def add(self, **parts: Any) -> Node:
        """Make the next node; its site is the caller's line."""
        node = Node(id=len(self.nodes), site=parts.pop("site", None) or here(), **parts)
        self.nodes.append(node)
        return node

    def consumers(self) -> dict[int, list[Node]]:
        """Who reads each node, in the order of writing, feedback not counted."""
        found: dict[int, list[Node]] = {node.id: [] for node in self.nodes}
        for node in self.nodes:
            for source in node.inputs:
                found[source.id].append(node)
        return found

    def named(self, kind: str) -> Iterator[Node]:
        """The nodes of one kind."""
        return (node for node in self.nodes if node.kind == kind)
