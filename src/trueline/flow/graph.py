"""The core of a flow: its nodes, and the locations, clocks and align points that nodes name.

It is plain data and imports no other module of `flow` but the markers. Collections build nodes; the compiler,
the operators, the interpreter and the simulator read them.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from trueline.errors import FlowError, InputError
from trueline.flow.markers import NonDet, Shape

_HERE: Final = str(Path(__file__).parent)


@dataclass(frozen=True)
class Site:
    """A line of source code, such as the one that made a node."""

    file: str
    line: int
    function: str = ""

    @property
    def text(self) -> str:
        """The text of the line, empty where the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        # The last part of the path, so that a trace does not depend on where the project lies.
        return f"{self.file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{self.line}"


def here() -> Site:
    """The nearest line of the caller's own code."""
    frame = sys._getframe(1)  # noqa: SLF001 the documented way to a caller's line without building a traceback
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


# --- what nodes name ------------------------------------------------------------------


class Location:
    """Where nodes run: one machine, or several that run the same."""

    is_cluster = False

    def __init__(self, graph: Graph, name: str, site: Site, size: int = 1) -> None:
        self.graph = graph
        self.name = name
        self.site = site
        self.size = size
        graph.locations.append(self)

    @property
    def variable(self) -> str:
        """The name as one would write it in code."""
        return "".join(c if c.isalnum() else "_" for c in self.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class ProcessLocation(Location):
    """One machine."""


class ClusterLocation(Location):
    """Several machines that run the same, each for itself (A19)."""

    is_cluster = True


class Clock:
    """The clock of a tick: nodes that have it run in the same execution."""

    def __init__(self, location: Location, name: str, site: Site) -> None:
        self.location = location
        self.name = name
        self.site = site
        self.id = len(location.graph.ticks)
        location.graph.ticks.append(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


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


class AlignToken:
    """What several reads and releases name, to agree on what they share."""

    def __init__(self, location: Location, name: str, site: Site) -> None:
        self.location = location
        self.name = name
        self.site = site
        self.id = len(location.graph.points)
        location.graph.points.append(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def instances(self) -> list[FlowNode]:
        """Its reads and releases, in the order they were written."""
        return [n for n in self.location.graph.nodes if n.point is self and n.kind in ALIGNED]

    @property
    def uses(self) -> list[Use]:
        """Every place in the source that uses it, with file and line."""
        return [
            Use(n.kind, str(n.inputs[0]), n.site.file, n.site.line, n.site.function, n.site.text)
            for n in self.location.graph.nodes
            if n.point is self
        ]


# --- nodes ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FlowNode:
    """One operator: what it does, to which nodes, where it runs and what is promised of its result."""

    id: int
    kind: str
    inputs: tuple[FlowNode, ...]
    location: Location
    tick: Clock | None
    shape: Shape
    bounded: bool
    ordered: bool
    once: bool
    site: Site
    fn: Callable[..., Any] | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    reason: NonDet | None = None
    point: AlignToken | None = None
    name: str = ""

    @property
    def label(self) -> str:
        """What people call it: its name, or its kind."""
        return f"{self.kind} {self.name!r}" if self.name else self.kind

    @property
    def constant(self) -> bool:
        """Whether it is complete from the beginning, outside every tick (A34)."""
        return self.bounded and self.tick is None

    @property
    def promises(self) -> str:
        """Its shape and what is promised of it, such as "stream: unbounded, ordered"."""
        words = ["bounded" if self.bounded else "unbounded"]
        if "stream" in self.shape:
            words += ["ordered" if self.ordered else "unordered"]
            words += [] if self.once else ["at least once"]
        return f"{self.shape}: {', '.join(words)}"

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


@dataclass(eq=False)
class Graph:
    """The nodes of a flow in the order they were written, and what its forward references lead to."""

    name: str
    nodes: list[FlowNode] = field(default_factory=list)
    cycles: dict[int, FlowNode] = field(default_factory=dict)
    """Forward reference → the node that completes it."""
    locations: list[Location] = field(default_factory=list)
    ticks: list[Clock] = field(default_factory=list)
    points: list[AlignToken] = field(default_factory=list)
    memo: dict[str, Any] = field(default_factory=dict)
    """What was derived from the graph, for those who derive it to keep."""
    _names: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, **parts: Any) -> FlowNode:
        """Make the next node; its site is the caller's line."""
        node = FlowNode(id=len(self.nodes), site=parts.pop("site", None) or here(), **parts)
        self.nodes.append(node)
        return node

    def consumers(self) -> dict[int, list[FlowNode]]:
        """Who reads each node, in the order of writing, feedback not counted."""
        found: dict[int, list[FlowNode]] = {node.id: [] for node in self.nodes}
        for node in self.nodes:
            for source in node.inputs:
                found[source.id].append(node)
        return found

    def named(self, kind: str) -> Iterator[FlowNode]:
        """The nodes of one kind."""
        return (node for node in self.nodes if node.kind == kind)

    def claim(self, what: str, name: str) -> None:
        """Keep the names of locations, of sources and of sinks unique."""
        given: object = name
        if not isinstance(given, str) or not given:
            raise InputError(f"{name!r} is not a name for a {what}", remedy="give a non-empty string")
        if (what, name) in self._names:
            raise FlowError(
                f"{what} {name!r} at {here()} exists already: it was made at {self._names[what, name]}",
                remedy="give it another name",
                name=name,
            )
        self._names[what, name] = str(here())


class HasGraph(Protocol):
    """A flow, as those see it who only read its graph."""

    @property
    def graph(self) -> Graph:
        """Its nodes."""
