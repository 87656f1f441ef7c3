"""The alignment compiler: what the uses of a point share, where agreement begins, which ticks become one.

Rules A1 to A7, A11 to A36 of the alignment contracts; every walk goes in the order of writing, so the same
flow gives the same words (A43).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trueline.errors import (
    AsyncEdgeInRegion,
    NoSharedUpstream,
    NotAligned,
    ReentrantAlignment,
    SharedOnlyBehindNetwork,
)
from trueline.flow.graph import ALIGNED_READS, NETWORK, READS, YIELDS, AlignToken, Clock, FlowNode, Graph

ASYNC = READS | YIELDS | ALIGNED_READS | {"release_aligned"}
"""Steps that hand over some time later."""


@dataclass(frozen=True)
class Remark:
    """A warning or a note of the compiler; the flow runs all the same."""

    level: str
    code: str
    text: str


@dataclass
class Alignment:
    """What the compiler found for one point."""

    point: AlignToken
    instances: list[FlowNode]
    boundary: list[FlowNode] = field(default_factory=list)
    region: list[FlowNode] = field(default_factory=list)
    orphans: list[FlowNode] = field(default_factory=list)
    noop: str = ""
    """Why the point changes nothing, if so."""


@dataclass
class Group:
    """Points and ticks that run as one (A6, A28)."""

    alignments: list[Alignment]
    ticks: list[Clock]

    @property
    def region(self) -> list[FlowNode]:
        """The nodes of all its regions, in the order of writing."""
        return sorted({n.id: n for a in self.alignments for n in a.region}.values(), key=lambda n: n.id)

    @property
    def boundary(self) -> list[FlowNode]:
        """The nodes where agreement begins."""
        return sorted({n.id: n for a in self.alignments for n in a.boundary}.values(), key=lambda n: n.id)

    @property
    def instances(self) -> list[FlowNode]:
        """All reads and releases."""
        return sorted([n for a in self.alignments for n in a.instances], key=lambda n: n.id)


@dataclass
class Regions:
    """The whole result."""

    alignments: list[Alignment]
    groups: list[Group]
    remarks: list[Remark]


def upstream(
    graph: Graph, node: FlowNode, *, network: bool = False, feedback: bool = False
) -> dict[int, FlowNode]:
    """All that a node rests on, itself not counted; a walk stops at a network receive (A3)."""
    found: dict[int, FlowNode] = {}
    todo = [node]
    while todo:
        at = todo.pop()
        sources = list(at.inputs) if network or at.kind not in NETWORK else []
        if feedback and at.id in graph.cycles:
            sources.append(graph.cycles[at.id])
        for source in sources:
            if source.id not in found:
                found[source.id] = source
                todo.append(source)
    return found


def path(start: FlowNode, end: FlowNode) -> list[FlowNode]:
    """A shortest way from one node down to another, without network and feedback."""
    back: dict[int, FlowNode | None] = {end.id: None}
    todo = [end]
    for at in todo:
        if at is start:
            break
        for source in at.inputs if at.kind not in NETWORK else ():
            if source.id not in back:
                back[source.id] = at
                todo.append(source)
    way, at_ = [start], back.get(start.id)
    while at_ is not None:
        way.append(at_)
        at_ = back[at_.id]
    return way


def arrows(nodes: list[FlowNode]) -> str:
    """A path in words."""
    return " → ".join(str(node) for node in nodes)


class _Find:
    """Sets that are joined; the representative is the smallest."""

    def __init__(self) -> None:
        self.parent: dict[Any, Any] = {}

    def root(self, key: Any) -> Any:
        self.parent.setdefault(key, key)
        while self.parent[key] != key:
            key = self.parent[key]
        return key

    def union(self, a: Any, b: Any) -> None:
        low, high = sorted((self.root(a), self.root(b)))
        self.parent[high] = low


def find_regions(graph: Graph, ignoring: frozenset[int] = frozenset()) -> Regions:
    """Work out all points of a flow; those that are ignored change nothing."""
    remarks: list[Remark] = []
    alignments = [
        _align(graph, point, remarks)
        if point.id not in ignoring
        else Alignment(point, point.instances, noop="it is ignored")
        for point in graph.points
    ]
    return Regions(alignments, _groups(graph, alignments), remarks)


def _align(graph: Graph, point: AlignToken, remarks: list[Remark]) -> Alignment:
    instances = point.instances
    found = Alignment(point, instances)
    if len(instances) < 2:
        found.noop = "it is used once" if instances else "nothing uses it"
        code = "single use" if instances else "unused"
        remarks.append(
            Remark(
                "warning", code, f"align point {point.name!r} ({point.site}) changes nothing: {found.noop}"
            )
        )
        return found
    above = {i.id: upstream(graph, i) for i in instances}
    _refuse_reentrance(point, instances, above)
    if any(n.point is point for n in graph.named("aligned_at")):
        found.boundary = _explicit(graph, point, instances, above, remarks)
    else:
        found.boundary = _implicit(graph, point, instances, above, remarks)
    found.region = _between(found.boundary, instances, above)
    _refuse_asynchrony(graph, point, found, above)
    bounds = {n.id for n in found.boundary}
    found.orphans = [i for i in instances if not bounds & set(above[i.id])]
    remarks.extend(
        Remark(
            "warning",
            "orphan instance",
            f"{orphan} of align point {point.name!r} shares nothing with its other uses: "
            "it runs with them, but agreement is not promised for it",
        )
        for orphan in found.orphans
    )
    _remark_on_groups(point, instances, bounds, above, remarks)
    if not any(i.kind in ALIGNED_READS for i in instances):
        found.noop = "nothing is read with it, so a release has nothing to wait for"
    return found


def _users(
    instances: list[FlowNode], above: dict[int, dict[int, FlowNode]]
) -> dict[int, tuple[FlowNode, list[int]]]:
    """Which uses rest on each node that is not constant (A2, A34)."""
    users: dict[int, tuple[FlowNode, list[int]]] = {}
    for instance in instances:
        for node in above[instance.id].values():
            if not node.constant:
                users.setdefault(node.id, (node, []))[1].append(instance.id)
    return users


def _implicit(
    graph: Graph,
    point: AlignToken,
    instances: list[FlowNode],
    above: dict[int, dict[int, FlowNode]],
    remarks: list[Remark],
) -> list[FlowNode]:
    """The last nodes that uses share (A4)."""
    users = _users(instances, above)
    shared = {i: (node, used) for i, (node, used) in sorted(users.items()) if len(used) > 1}
    wide = {i.id: upstream(graph, i, network=True) for i in instances}
    far = {i: each for i, each in sorted(_users(instances, wide).items()) if len(each[1]) > 1}
    if not shared:
        _refuse_sharing_nothing(graph, point, instances, far)
    consumers = graph.consumers()
    boundary = [
        node
        for i, (node, used) in shared.items()
        if not any(users.get(m.id, (m, []))[1] == used for m in consumers[i])
    ]
    covered = [set(used) for node, used in shared.values() if node.kind in NETWORK]
    for i, (node, used) in far.items():
        if i not in users and not any(set(used) <= cover for cover in covered):
            remarks.append(
                Remark(
                    "info",
                    "shared behind network",
                    f"uses of align point {point.name!r} also share {node} on {node.location.name}, "
                    "behind the network: they do not agree on that, alignment is per machine",
                )
            )
            break
    return _whole(graph, boundary, instances, above)


def _whole(
    graph: Graph, boundary: list[FlowNode], instances: list[FlowNode], above: dict[int, dict[int, FlowNode]]
) -> list[FlowNode]:
    """The boundary, and what would else come to the uses by it and past it, in two cuts (A8, A40).

    Of `long = words.filter(…)` and `words.union(long)`, all uses rest on `long`, the last they share; but the
    union would take `words` by a cut of its own. So `words` is where agreement begins.
    """
    consumers = graph.consumers()
    while True:
        region = _between(boundary, instances, above)
        ids, bounds = {n.id for n in region}, {n.id for n in boundary}
        behind = [
            n
            for n in region
            if n.id not in bounds or (n.kind not in NETWORK and any(source.id in ids for source in n.inputs))
        ]
        inside = {n.id for n in behind}
        handed = {
            source.id: source
            for node in [*behind, *instances]
            for source in node.inputs
            if source.id not in inside and not source.constant
        }
        ways: dict[int, set[int]] = {}
        for i, node in handed.items():
            for each in [node, *_at_once(node)]:
                if not each.constant:
                    ways.setdefault(each.id, set()).add(i)
        torn = {i for i, into in ways.items() if len(into) > 1 and i not in bounds}
        last = [graph.nodes[i] for i in sorted(torn) if not any(m.id in torn for m in consumers[i])]
        if not last:
            return sorted(boundary, key=lambda n: n.id)
        boundary = [*boundary, *last]


def _at_once(node: FlowNode) -> list[FlowNode]:
    """All that a node rests on without anything in between that hands over later."""
    found: dict[int, FlowNode] = {}
    todo = [node]
    for at in todo:
        for source in at.inputs if at.kind not in NETWORK | ASYNC else ():
            if source.id not in found:
                found[source.id] = source
                todo.append(source)
    return list(found.values())


def _refuse_sharing_nothing(
    graph: Graph, point: AlignToken, instances: list[FlowNode], far: dict[int, tuple[FlowNode, list[int]]]
) -> None:
    if far:
        node = far[max(far)][0]
        edges = sorted(
            {
                n.id: n
                for i in instances
                for n in upstream(graph, i).values()
                if n.kind in NETWORK and node.id in upstream(graph, n, network=True)
            }.items()
        )
        raise SharedOnlyBehindNetwork(
            f"the uses of align point {point.name!r} ({point.site}) share only {node} on "
            f"{node.location.name}, behind the network edge {', '.join(str(n) for _, n in edges)}: "
            "alignment is per machine",
            remedy="send the stream once and fork it after it has arrived",
            point=point.name,
            node=node,
            edges=tuple(n for _, n in edges),
        )
    around = _users(instances, {i.id: upstream(graph, i, network=True, feedback=True) for i in instances})
    looped = [node for _, (node, used) in sorted(around.items()) if len(used) > 1]
    lines = [
        f"\n    {i} is made from "
        + (", ".join(str(n) for n in _roots(upstream(graph, i, network=True).values())) or "nothing")
        for i in instances
    ]
    why = f"; only a forward reference leads to {looped[0]}, which is a later cut" if looped else ""
    raise NoSharedUpstream(
        f"the uses of align point {point.name!r} ({point.site}) share nothing to agree on{why}:"
        f"{''.join(lines)}",
        remedy="align what is made from one stream, or use .batch and .snapshot",
        point=point.name,
        instances=tuple(instances),
    )


def _roots(nodes: Any) -> list[FlowNode]:
    return sorted((n for n in nodes if not n.inputs), key=lambda n: n.id)


def _explicit(
    graph: Graph,
    point: AlignToken,
    instances: list[FlowNode],
    above: dict[int, dict[int, FlowNode]],
    remarks: list[Remark],
) -> list[FlowNode]:
    """The nodes named by `aligned_at` (A20, A21)."""
    tags = [n for n in graph.named("aligned_at") if n.point is point]
    for instance in instances:
        wide = upstream(graph, instance, network=True)
        for tag in tags:
            if tag.id in wide and tag.id not in above[instance.id]:
                edge = next(
                    n
                    for n in wide.values()
                    if n.kind in NETWORK and tag.id in upstream(graph, n, network=True)
                )
                raise SharedOnlyBehindNetwork(
                    f"{tag} names what align point {point.name!r} agrees on, but {instance} gets it through "
                    f"the network edge {edge}: alignment is per machine",
                    remedy="put aligned_at behind the network edge, where the uses are",
                    point=point.name,
                    node=tag,
                    edges=(edge,),
                )
        if not any(tag.id in above[instance.id] for tag in tags):
            raise NotAligned(
                f"{instance} uses align point {point.name!r}, but is made from none of the collections that "
                f".aligned_at names for it: {', '.join(str(tag) for tag in tags)}",
                remedy="add .aligned_at(point) to what it is made from, or remove every .aligned_at(point): "
                "the compiler then finds what the uses share",
                point=point.name,
                node=instance,
            )
    for tag in tags:
        reached = sum(tag.id in above[i.id] for i in instances)
        if reached < 2:
            uses = "one use" if reached else "no use"
            remarks.append(
                Remark("warning", "lonely tag", f"{tag} reaches {uses} of align point {point.name!r}")
            )
    return [tag for tag in tags if any(tag.id in above[i.id] for i in instances)]


def _between(
    boundary: list[FlowNode], instances: list[FlowNode], above: dict[int, dict[int, FlowNode]]
) -> list[FlowNode]:
    """The boundary, and every node on a way from it to a use (A5)."""
    region: dict[int, FlowNode] = {}
    bounds = {n.id for n in boundary}
    for instance in instances:
        inside: set[int] = set()
        for node in sorted(above[instance.id].values(), key=lambda n: n.id):
            fed = node.kind not in NETWORK and any(source.id in inside for source in node.inputs)
            if node.id in bounds or fed:
                inside.add(node.id)
                region[node.id] = node
    return [region[i] for i in sorted(region)]


def _refuse_reentrance(
    point: AlignToken, instances: list[FlowNode], above: dict[int, dict[int, FlowNode]]
) -> None:
    for late in instances:
        for early in instances:
            if early.id in above[late.id]:
                way = path(early, late)
                raise ReentrantAlignment(
                    f"the output of {early} comes back to {late}, another use of align point {point.name!r}: "
                    f"{arrows(way)}",
                    remedy="stay inside the tick, or use another align point for the second part",
                    point=point.name,
                    path=tuple(way),
                )


def _refuse_asynchrony(
    graph: Graph, point: AlignToken, found: Alignment, above: dict[int, dict[int, FlowNode]]
) -> None:
    bounds, region = {n.id for n in found.boundary}, {n.id for n in found.region}
    for node in found.region:
        entered = any(source.id in region for source in node.inputs)
        if (node.kind in ASYNC and (entered or node.id not in bounds)) or node.tick is not None:
            start = next(b for b in found.boundary if b is node or b.id in upstream(graph, node))
            instance = next(i for i in found.instances if node.id in above[i.id])
            way = path(start, instance)
            edge = next((n for n in way[1:-1] if n.kind in ASYNC), node)
            raise AsyncEdgeInRegion(
                f"{edge} may lag, and is between {start}, shared by the uses of align point {point.name!r}, "
                f"and {instance}: {arrows(way)}",
                remedy="read it with the point's own .batch_aligned or .snapshot_aligned, "
                "or fork after it instead of before",
                point=point.name,
                edge=edge,
                path=tuple(way),
            )


def _remark_on_groups(
    point: AlignToken,
    instances: list[FlowNode],
    bounds: set[int],
    above: dict[int, dict[int, FlowNode]],
    remarks: list[Remark],
) -> None:
    """Say where one point joins uses that have nothing to do with each other (A29)."""
    find = _Find()
    for instance in instances:
        for bound in sorted(bounds & set(above[instance.id])):
            find.union(("b", bound), ("i", instance.id))
    parts = {find.root(("i", i.id)) for i in instances if bounds & set(above[i.id])}
    if len(parts) > 1:
        remarks.append(
            Remark(
                "warning",
                "unrelated uses",
                f"align point {point.name!r} is used by {len(parts)} groups that share nothing with each "
                "other: all run as one tick; a point for each would leave them apart",
            )
        )


def _groups(graph: Graph, alignments: list[Alignment]) -> list[Group]:
    """Join points that overlap, and their ticks, until nothing overlaps (A6, A28, A33)."""
    find = _Find()
    live = [a for a in alignments if not a.noop]
    owner: dict[int, int] = {}
    for a in live:
        find.root(("p", a.point.id))
        for instance in a.instances:
            if instance.kind in ALIGNED_READS and instance.tick is not None:
                find.union(("p", a.point.id), ("t", instance.tick.id))
        for node in a.region:
            if node.id in owner:
                find.union(("p", a.point.id), ("p", owner[node.id]))
            owner[node.id] = a.point.id
    for a in live:
        bounds, region = {n.id for n in a.boundary}, {n.id for n in a.region}
        inside = [n for n in a.region if n.id not in bounds or any(s.id in region for s in n.inputs)]
        for node in [*inside, *a.instances]:
            for source in node.inputs:
                if source.id in owner:
                    find.union(("p", a.point.id), ("p", owner[source.id]))
    groups: dict[Any, Group] = {}
    for a in live:
        groups.setdefault(find.root(("p", a.point.id)), Group([], [])).alignments.append(a)
    for tick in graph.ticks:
        root = find.root(("t", tick.id))
        if root in groups:
            groups[root].ticks.append(tick)
    return list(groups.values())
