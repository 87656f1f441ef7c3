"""A flow laid out to run: which operators run when data arrives, which in a tick, where choices are made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Final, Literal

from trueline import console
from trueline.errors import NotPromised, SynchronousCycle, Unfinished
from trueline.flow.graph import (
    ALIGNED,
    ALIGNED_READS,
    NETWORK,
    READS,
    YIELDS,
    Clock,
    FlowNode,
    Graph,
    Location,
)
from trueline.flow.hooks import Hook, ValueHook, hook_class
from trueline.flow.regions import Group, Regions, Remark, arrows, find_regions

Zone = Literal["async", "region", "tick"]
Key = tuple[Zone, int, int]
"""Zone, node, member: one wire, and one operator that writes it."""


@dataclass(eq=False)
class PlacedOperator:
    """One operator in one zone of one member."""

    zone: Zone
    node: FlowNode
    member: int
    ins: tuple[int, ...]
    out: int
    slot: int = -1


@dataclass(eq=False)
class TickUnit:
    """What fires together: one tick, or several that alignment made one (A6)."""

    name: str
    member: int
    location: Location
    ticks: list[Clock]
    group: Group | None
    hooks: list[Hook] = field(default_factory=list)
    ops: list[PlacedOperator] = field(default_factory=list)
    outs: list[int] = field(default_factory=list)
    """Wires of the asynchronous side that are filled when it has run."""


@dataclass(eq=False)
class LooseUnit:
    """A choice outside every tick: an order, an interleaving, which elements have arrived in a fold."""

    name: str
    node: FlowNode
    member: int
    slot: int
    out: int
    state: int = -1


Unit = TickUnit | LooseUnit


class CompiledFlow:
    """The layout: wires carry what is new, slots keep what stays, units are where chance comes in."""

    def __init__(self, graph: Graph, ignoring: frozenset[int] = frozenset()) -> None:
        self.graph = graph
        self._refuse_unfinished()
        self.regions: Regions = find_regions(graph, ignoring)
        self._group: dict[int, Group] = {}
        """Use of a point that is at work → its group."""
        self._inside: dict[int, Group] = {}
        """Node of a region → its group."""
        for group in self.regions.groups:
            self._group |= {n.id: group for n in group.instances}
            self._inside |= {n.id: group for n in group.region}
        self._refuse_torn_pairs()
        self.wires: dict[Key, int] = {}
        self.slots = 0
        self.hooks: list[Hook] = []
        self.units: list[Unit] = []
        self.ops: dict[Key, PlacedOperator] = {}
        self.sources: dict[tuple[str, int], int] = {}
        self.sinks: dict[tuple[str, int], int] = {}
        self.hook_on: dict[int, list[Hook]] = {}
        """Asynchronous wire → the hooks that wait there."""
        self._lay_async()
        self._lay_ticks()
        self._lay_edges()
        self._mark_newest()
        self.regions.remarks += never_run(self.graph, [u for u in self.units if isinstance(u, TickUnit)])

    def __repr__(self) -> str:
        ticks = len([u for u in self.units if isinstance(u, TickUnit)])
        words = f"{len(self.graph.nodes)} nodes, {ticks} tick{'s' * (ticks != 1)}"
        return f"<CompiledFlow {self.graph.name}: {words}>"

    # --- checks -------------------------------------------------------------------------

    def _refuse_unfinished(self) -> None:
        for node in self.graph.nodes:
            if node.kind in ("forward_ref", "cycle", "state") and node.id not in self.graph.cycles:
                raise Unfinished(
                    f"nothing completes {node} on {node.location.name}",
                    remedy="call .complete(…) of the handle that came with it",
                    node=node,
                )

    def _refuse_torn_pairs(self) -> None:
        """Two live values are a pair only where one cut made both (A42)."""
        for node in self.graph.named("zip"):
            live = [n for n in node.inputs if not n.bounded]
            if len(live) > 1 and node.id not in self._inside:
                raise NotPromised(
                    f"{node} pairs two live values of different moments: {live[0]} and {live[1]}",
                    remedy="read the pair with .snapshot_aligned(tick, point, nondet(…)), "
                    "or take a .snapshot of each in one tick",
                    node=node,
                    rule="align:A42",
                )
            if len(live) > 1 and self._is_async(node):
                raise NotPromised(
                    f"{node} pairs two live values, and is used both with an align point and without",
                    remedy="use it with the align point only",
                    node=node,
                    rule="align:A42",
                )

    # --- who runs where -----------------------------------------------------------------

    def _active(self, node: FlowNode) -> bool:
        """Whether it is a use of a point that changes something."""
        return node.id in self._group

    def _is_async(self, node: FlowNode) -> bool:
        """Whether anything outside regions needs the node."""
        if not hasattr(self, "_needed"):
            self._needed = self._find_needed()
        return node.id in self._needed

    def _find_needed(self) -> set[int]:
        """The nodes that run as their data arrives: all that sinks, hooks and references rest on."""
        needed: set[int] = set()
        todo = list(self.graph.named("sink"))
        todo += [n for n in self.graph.cycles.values() if n.tick is None and not n.constant]
        for node in self.graph.nodes:
            if (node.kind in READS or node.kind in ALIGNED_READS) and not self._active(node):
                todo.append(node.inputs[0])
        for group in self.regions.groups:
            todo += self.entries(group)
        while todo:
            node = todo.pop()
            if node.id in needed or node.constant:
                continue
            needed.add(node.id)
            if node.kind not in YIELDS and not self._active(node):
                todo += node.inputs
        return needed

    def entries(self, group: Group) -> list[FlowNode]:
        """The nodes whose output is handed to a region: its beginning, and what else comes in (A7)."""
        interior = self.interior(group)
        inside = {n.id for n in interior}
        found: dict[int, FlowNode] = {}
        for node in [*interior, *group.instances]:
            for source in node.inputs:
                if source.id not in inside and (not source.constant or "stream" in source.shape):
                    found[source.id] = source
        return [found[i] for i in sorted(found)]

    def interior(self, group: Group) -> list[FlowNode]:
        """The region's nodes that run inside the tick: all but those where it begins."""
        inside: set[int] = set()
        for each in group.alignments:
            region, bounds = {n.id for n in each.region}, {n.id for n in each.boundary}
            inside |= {
                n.id
                for n in each.region
                if n.id not in bounds
                or (n.kind not in NETWORK and any(source.id in region for source in n.inputs))
            }
        return [n for n in group.region if n.id in inside]

    # --- laying out ---------------------------------------------------------------------

    def wire(self, zone: Zone, node: FlowNode, member: int) -> int:
        """The number of a wire."""
        return self.wires.setdefault((zone, node.id, member), len(self.wires))

    def slot(self) -> int:
        """The number of a new slot."""
        self.slots += 1
        return self.slots - 1

    def _op(self, zone: Zone, node: FlowNode, member: int, ins: Iterable[int]) -> PlacedOperator:
        op = PlacedOperator(zone, node, member, tuple(ins), self.wire(zone, node, member), self.slot())
        self.ops[zone, node.id, member] = op
        return op

    def _lay_async(self) -> None:
        for node in self.graph.nodes:
            if not self._is_async(node):
                continue
            for member in range(node.location.size):
                if node.kind in YIELDS or self._active(node) or node.kind in ("source", "forward_ref"):
                    self.wire("async", node, member)
                else:
                    self._op("async", node, member, self._async_inputs(node, member))
                if node.kind == "source":
                    self.sources[node.name, member] = self.wire("async", node, member)
                if node.kind == "sink":
                    self.sinks[node.name, member] = self.ops["async", node.id, member].slot
                if is_loose(node):
                    op = self.ops["async", node.id, member]
                    self.units.append(
                        LooseUnit(
                            _member_name(str(node), node.location, member),
                            node,
                            member,
                            op.slot,
                            op.out,
                            self.slot(),
                        )
                    )

    def _async_inputs(self, node: FlowNode, member: int) -> list[int]:
        if node.kind == "gather":
            return [self.wire("async", node.inputs[0], m) for m in range(node.inputs[0].location.size)]
        if node.kind in NETWORK:
            return [self.wire("async", node.inputs[0], 0)]
        return [self.wire("async", source, member) for source in node.inputs]

    def _lay_ticks(self) -> None:
        joined = {tick.id: group for group in self.regions.groups for tick in group.ticks}
        done: list[Group] = []
        for tick in self.graph.ticks:
            group = joined.get(tick.id)
            if group is None:
                self._lay_tick([tick], None)
            elif group not in done:
                done.append(group)
                self._lay_tick(group.ticks, group)

    def _lay_tick(self, ticks: list[Clock], group: Group | None) -> None:
        nodes = self._tick_order(ticks)
        if not nodes:
            return
        location = ticks[0].location
        name = " + ".join(tick.name for tick in ticks)
        for member in range(location.size):
            unit = TickUnit(_member_name(name, location, member), member, location, ticks, group)
            if group is not None:
                self._lay_region(unit, group, member)
            for node in nodes:
                if node.kind in READS or (node.kind in ALIGNED_READS and not self._active(node)):
                    source = node.inputs[0]
                    self._hook(unit, node, source, member, self.wire("tick", node, member), entry=False)
                elif node.kind in ALIGNED_READS:
                    continue
                else:
                    ins = [self.wire("tick", source, member) for source in node.inputs]
                    if node.id in self.graph.cycles:
                        ins = [self.wire("tick", self.graph.cycles[node.id], member)]
                    unit.ops.append(self._op("tick", node, member, ins))
            self.units.append(unit)

    def _lay_region(self, unit: TickUnit, group: Group, member: int) -> None:
        for source in self.entries(group):
            self._hook(unit, source, source, member, self.wire("region", source, member), entry=True)
        for node in self.interior(group):
            ins = [self.wire("region", source, member) for source in node.inputs]
            unit.ops.append(self._op("region", node, member, ins))
        for node in group.instances:
            op = PlacedOperator(
                "region", node, member, (self.wire("region", node.inputs[0], member),), -1, self.slot()
            )
            zone: Zone = "async" if node.kind == "release_aligned" else "tick"
            op.out = self.wire(zone, node, member)
            self.ops["region", node.id, member] = op
            unit.ops.append(op)
            if zone == "async" and self._is_async(node):
                unit.outs.append(op.out)

    def _hook(
        self, unit: TickUnit, node: FlowNode, source: FlowNode, member: int, out: int, *, entry: bool
    ) -> None:
        hook = hook_class(source)(node, source, member, self.slot(), out, entry)
        unit.hooks.append(hook)
        self.hooks.append(hook)
        self.hook_on.setdefault(self.wire("async", source, member), []).append(hook)

    def _lay_edges(self) -> None:
        """What leaves a tick, and when it is handed on."""
        for unit in self.units:
            if not isinstance(unit, TickUnit):
                continue
            inside = {tick.id for tick in unit.ticks}
            for node in self.graph.nodes:
                if node.kind in YIELDS and self._is_async(node):
                    tick = node.inputs[0].tick
                    if tick is not None and tick.id in inside:
                        ins = (self.wire("tick", node.inputs[0], unit.member),)
                        op = PlacedOperator(
                            "tick", node, unit.member, ins, self.wire("async", node, unit.member)
                        )
                        unit.ops.append(op)
                        unit.outs.append(op.out)

    def _tick_order(self, ticks: list[Clock]) -> list[FlowNode]:
        """The nodes of a tick, each after what it needs in the same execution."""
        ids = {tick.id for tick in ticks}
        nodes = {n.id: n for n in self.graph.nodes if n.tick is not None and n.tick.id in ids}
        needs: dict[int, list[int]] = {}
        for node in nodes.values():
            sources = list(node.inputs)
            if node.kind == "forward_ref":
                sources = [self.graph.cycles[node.id]]
            if node.kind == "defer_tick":
                sources = []
            needs[node.id] = [s.id for s in sources if s.id in nodes]
        sorter: TopologicalSorter[int] = TopologicalSorter()
        for i in sorted(needs):
            sorter.add(i, *needs[i])
        try:
            order = list(sorter.static_order())
        except CycleError as error:
            way = [nodes[i] for i in reversed(error.args[1])]
            raise SynchronousCycle(
                f"in tick {ticks[0].name} a node needs its own result of the same execution: {arrows(way)}",
                remedy="use the result of the execution before: tick.cycle(), tick.state() or .defer_tick()",
                path=tuple(way),
                rule="align:A24",
            ) from None
        return [nodes[i] for i in order]

    def _mark_newest(self) -> None:
        """Where one reader follows a choice about arrival, that choice already leads to older versions."""
        readers: dict[int, list[PlacedOperator]] = {}
        for op in self.ops.values():
            if op.zone == "async":
                for wire in op.ins:
                    readers.setdefault(wire, []).append(op)
        for unit in self.units:
            if not isinstance(unit, LooseUnit) or unit.node.kind not in ("fold", "reduce"):
                continue
            reached = [unit.out]
            found: list[Hook] = []
            plain = True
            for wire in reached:
                found += self.hook_on.get(wire, [])
                for op in readers.get(wire, ()):
                    plain &= op.node.kind in ("map", "filter", "unwrap_or")
                    if not plain:
                        break
                    reached.append(op.out)
            if plain and len(found) == 1 and isinstance(found[0], ValueHook):
                found[0].newest = True


def is_loose(node: FlowNode) -> bool:
    """Whether a node outside ticks is a choice by itself (the order or the set of what has arrived)."""
    if node.kind == "merge_ordered":
        return True
    if node.kind == "assume_ordering":
        return not node.inputs[0].ordered
    return bool(
        node.kind in ("fold", "reduce") and node.args.get("commutative") and not node.inputs[0].ordered
    )


def _member_name(name: str, location: Location, member: int) -> str:
    return f"{name}[{member}]" if location.is_cluster else name


# --- which ticks can ever run ---------------------------------------------------------

_ALWAYS: Final = frozenset({"source", "constant", "fold", "count", "reduce", "first", "last"})
"""They have something from the beginning, or get it from outside."""


def never_run(graph: Graph, units: list[TickUnit]) -> list[Remark]:
    """A warning for each tick that nothing can start: it reads nothing, or a value that comes from itself."""
    reach = _Reach(graph, [unit for unit in units if unit.member == 0])
    return [_remark(unit, reach.fed) for unit in reach.units if id(unit) not in reach.running]


class _Reach:
    """The nodes that may ever have something, and the ticks that may run: the least such sets.

    Nodes are looked at in the order of writing, so one pass is enough but for what is fed back.
    """

    def __init__(self, graph: Graph, units: list[TickUnit]) -> None:
        self.units = units
        self.fed: set[int] = set()
        self.running: set[int] = set()
        self._cycles = graph.cycles
        self._of_tick = {tick.id: unit for unit in units for tick in unit.ticks}
        self._of_point = {
            a.point.id: unit for unit in units if unit.group is not None for a in unit.group.alignments
        }
        before = -1
        while before < len(self.fed):
            before = len(self.fed)
            for node in graph.nodes:
                if node.id not in self.fed and self._has(node):
                    self.fed.add(node.id)
        for unit in units:
            self._runs(unit)

    def _has(self, node: FlowNode) -> bool:
        if node.kind in _ALWAYS or node.constant or node.shape == "keyed singleton":
            return True
        tick = node.inputs[0].tick if node.kind in YIELDS else node.tick
        if tick is not None:
            return self._runs(self._of_tick.get(tick.id))
        if node.kind in ALIGNED and node.point is not None and node.point.id in self._of_point:
            return self._runs(self._of_point[node.point.id])
        if node.id in self._cycles:
            return self._cycles[node.id].id in self.fed
        needs = all if node.kind == "zip" else any
        return needs(source.id in self.fed for source in node.inputs)

    def _runs(self, unit: TickUnit | None) -> bool:
        if unit is None:
            return False
        if id(unit) not in self.running:
            waits = any(isinstance(h, ValueHook) and h.source.id not in self.fed for h in unit.hooks)
            if not waits and any(hook.source.id in self.fed for hook in unit.hooks):
                self.running.add(id(unit))
        return id(unit) in self.running


def _remark(unit: TickUnit, fed: set[int]) -> Remark:
    missing = [hook.source for hook in unit.hooks if hook.source.id not in fed]
    if missing:
        why = f"it waits for {missing[0]}, which has no value before this tick has run"
        remedy = "begin with a value: tick.state(init) has one in the first execution"
    else:
        why = "it reads nothing that could start it"
        remedy = "read a stream or a live value in it"
    text = f"tick {unit.name} ({unit.ticks[0].site}) never runs: {why}; {remedy}"
    return Remark("warning", "never runs", text)


def compile_graph(graph: Graph) -> CompiledFlow:
    """Lay a graph out once for as long as it stays as it is; its warnings go to the console."""
    version = (len(graph.nodes), len(graph.cycles))
    known, compiled = graph.memo.get("compiled", (None, None))
    if compiled is None or known != version:
        compiled = CompiledFlow(graph)
        graph.memo["compiled"] = (version, compiled)
        for remark in compiled.regions.remarks:
            if remark.level == "warning":
                console.current().warn(remark.text, code=remark.code)
    return compiled  # type: ignore[no-any-return]
