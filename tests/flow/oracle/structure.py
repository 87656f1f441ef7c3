"""What the alignment rules say of a graph, worked out by brute force: to hold the compiler to.

Nothing of the compiler is used here: users are found by walking forward from every node (A2 to A5).
"""

from __future__ import annotations

from dataclasses import dataclass

from trueline.errors import (
    AsyncEdgeInRegion,
    FlowError,
    NoSharedUpstream,
    NotAligned,
    NotPromised,
    ReentrantAlignment,
    SharedOnlyBehindNetwork,
)
from trueline.flow import AlignPoint, Flow
from trueline.flow.graph import NETWORK, FlowNode, Graph

LATER = frozenset(
    ["batch", "snapshot", "batch_aligned", "snapshot_aligned", "release_aligned", "all_ticks", "latest"]
)
READS = frozenset(["batch_aligned", "snapshot_aligned"])


class Walks:
    """Forward walks over a flow's graph; feedback is never walked."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = graph.nodes
        self.consumers: dict[int, list[FlowNode]] = {n.id: [] for n in self.nodes}
        for node in self.nodes:
            for source in node.inputs:
                self.consumers[source.id].append(node)
        self._reached: dict[tuple[int, bool], set[int]] = {}

    def reach(self, node: FlowNode, *, network: bool) -> set[int]:
        """All nodes below a node; a walk goes through a network edge only if asked to (A3)."""
        if (node.id, network) not in self._reached:
            self._reached[node.id, network] = found = set()
            for after in self.consumers[node.id]:
                if network or after.kind not in NETWORK:
                    found |= {after.id} | self.reach(after, network=network)
        return self._reached[node.id, network]

    def at_once(self, node: FlowNode) -> set[int]:
        """All nodes below a node that have what it has as soon as it has it."""
        found: set[int] = set()
        for after in self.consumers[node.id]:
            if after.kind not in NETWORK and after.kind not in LATER:
                found |= {after.id} | self.at_once(after)
        return found


@dataclass
class Shared:
    """What one or several points make one cut of."""

    instances: list[FlowNode]
    boundary: list[FlowNode]
    inside: list[FlowNode]
    """The nodes behind the boundary that lead to a use."""

    @property
    def handed(self) -> list[FlowNode]:
        """Where data is handed over: each of these has one cut per execution (A7)."""
        within = {n.id for n in self.inside}
        found = {
            source.id: source
            for node in [*self.inside, *self.instances]
            for source in node.inputs
            if source.id not in within and not source.constant
        }
        return [found[i] for i in sorted(found)]

    @property
    def reads(self) -> list[FlowNode]:
        """Its reads."""
        return [n for n in self.instances if n.kind in READS]

    @property
    def ticks(self) -> set[int]:
        """The ticks of its reads."""
        return {n.tick.id for n in self.reads}


def shared(flow: Flow, point: AlignPoint) -> Shared:
    """Instances, boundary and what is between of one point (A1, A2, A4, A5, A20)."""
    walks = Walks(flow.graph)
    instances = [n for n in flow.graph.nodes if n.point is point and n.kind != "aligned_at"]
    ids = {n.id for n in instances}
    users = {n.id: walks.reach(n, network=False) & ids for n in flow.graph.nodes}
    tags = [n for n in flow.graph.nodes if n.point is point and n.kind == "aligned_at"]
    if tags:
        boundary = [n for n in tags if users[n.id]]
    else:
        common = [n for n in flow.graph.nodes if len(users[n.id]) > 1 and not n.constant]
        boundary = [n for n in common if not any(users[m.id] == users[n.id] for m in walks.consumers[n.id])]
    while True:
        below = {i for n in boundary for i in walks.reach(n, network=False)}
        inside = [n for n in flow.graph.nodes if n.id in below and n.id not in ids and users[n.id]]
        found = Shared(instances, boundary, inside)
        torn = [] if tags or not boundary else _torn(walks, found)
        if not torn:
            return found
        boundary = sorted([*boundary, *torn], key=lambda n: n.id)


def _torn(walks: Walks, found: Shared) -> list[FlowNode]:
    """The last nodes that reach two places of hand-over at once: uses would see two cuts of them (A8)."""
    handed = {n.id for n in found.handed}
    ways = {n.id: (walks.at_once(n) | {n.id}) & handed for n in walks.nodes if not n.constant}
    torn = [n for n in walks.nodes if len(ways.get(n.id, ())) > 1]
    ids = {n.id for n in torn}
    return [n for n in torn if not any(m.id in ids for m in walks.consumers[n.id])]


def expected(flow: Flow) -> type[FlowError] | None:
    """Which error the rules ask for, if any; of several, that of the first point."""
    walks = Walks(flow.graph)
    for point in flow.points:
        found = shared(flow, point)
        if len(found.instances) > 1:
            error = _expected_of(walks, found)
            if error is not None:
                return error
    for node in flow.graph.nodes:
        if node.kind == "zip" and node.tick is None and not _paired(flow, node):
            return NotPromised
    return None


def _expected_of(walks: Walks, found: Shared) -> type[FlowError] | None:
    ids = {n.id for n in found.instances}
    if any(walks.reach(n, network=False) & ids for n in found.instances):
        return ReentrantAlignment  # A25
    point = found.instances[0].point
    tags = [n for n in walks.nodes if n.point is point and n.kind == "aligned_at"]
    for instance in found.instances:
        if tags:
            far = [n for n in tags if instance.id in walks.reach(n, network=True)]
            near = [n for n in tags if instance.id in walks.reach(n, network=False)]
            if far != near:
                return SharedOnlyBehindNetwork  # A21
            if not near:
                return NotAligned  # A21
    if not found.boundary:
        far = [n for n in walks.nodes if not n.constant and len(walks.reach(n, network=True) & ids) > 1]
        return SharedOnlyBehindNetwork if far else NoSharedUpstream  # A15, A14
    if any(n.kind in LATER or n.tick is not None for n in found.inside):
        return AsyncEdgeInRegion  # A26
    return None


def _paired(flow: Flow, node: FlowNode) -> bool:
    """Whether a zip of live values stands where one cut makes both (A42)."""
    return any(node.id in {n.id for n in group.inside} for group in groups(flow))


def groups(flow: Flow) -> list[Shared]:
    """The points that change something, those that overlap or share a tick as one (A12, A13, A28)."""
    found = [each for each in (shared(flow, point) for point in flow.points) if _works(each)]
    merged = True
    while merged:
        merged = False
        for i, a in enumerate(found):
            for j in range(i + 1, len(found)):
                if _overlap(a, found[j]):
                    found[i] = _joined(a, found.pop(j))
                    merged = True
                    break
            if merged:
                break
    return found


def _works(each: Shared) -> bool:
    return len(each.instances) > 1 and bool(each.reads)


def _overlap(a: Shared, b: Shared) -> bool:
    """Whether they share nodes or a tick, or one takes in what is of the other's region (A28, A33)."""
    regions = [{n.id for n in [*each.inside, *each.boundary]} for each in (a, b)]
    handed = [{n.id for n in each.handed} for each in (a, b)]
    crossing = (handed[0] & regions[1]) | (handed[1] & regions[0])
    return bool(regions[0] & regions[1]) or bool(a.ticks & b.ticks) or bool(crossing)


def _joined(a: Shared, b: Shared) -> Shared:
    def both(x: list[FlowNode], y: list[FlowNode]) -> list[FlowNode]:
        return sorted({n.id: n for n in [*x, *y]}.values(), key=lambda n: n.id)

    return Shared(both(a.instances, b.instances), both(a.boundary, b.boundary), both(a.inside, b.inside))
