"""Flows and align points in words."""

from __future__ import annotations

from typing import Final

from trueline.flow.compiled import CompiledFlow, LooseUnit, TickUnit
from trueline.flow.graph import ALIGNED_READS, AlignToken, FlowNode

KEEPS: Final = {
    "fold": "one value",
    "reduce": "one value",
    "count": "one number",
    "first": "one value",
    "last": "one value",
    "enumerate": "one number",
    "zip": "two values",
    "unique": "every element it has seen",
    "keys": "every key it has seen",
    "join": "both sides whole",
    "cycle": "what the last execution left",
    "state": "one value",
    "defer_tick": "what the last execution left",
    "batch": "what has arrived and was not yet taken",
    "snapshot": "versions not yet passed, and the one shown",
    "assume_ordering": "what has arrived and was not yet ordered",
    "merge_ordered": "what has arrived and was not yet merged",
    "release_aligned": "nothing: what waits, waits where the region begins",
    "sink": "what was not yet collected",
}


def keeps(node: FlowNode) -> str:
    """What an operator holds between one element and the next."""
    kept = KEEPS.get(node.kind, "nothing")
    if node.tick is not None and node.kind in (
        "fold",
        "reduce",
        "count",
        "unique",
        "keys",
        "join",
        "enumerate",
    ):
        return "nothing: it starts again in every execution"
    if node.tick is not None and node.kind in ("first", "last", "zip", "merge_ordered", "assume_ordering"):
        return "nothing: it starts again in every execution"
    if node.shape == "keyed singleton" and node.tick is None and node.kind in KEEPS:
        kept += " per key"
    return kept


def explain_flow(compiled: CompiledFlow) -> str:
    """Every operator: where it runs, what is promised, what it keeps, why a choice is right."""
    graph = compiled.graph
    lines = [f"flow {graph.name}: {len(graph.nodes)} operators"]
    for location in graph.locations:
        size = f", {location.size} members" if location.is_cluster else ""
        lines.append(f"{location.name}{size}")
        nodes = [node for node in graph.nodes if node.location is location]
        lines += [f"  {node.id:3} {_line(compiled, node)}" for node in nodes]
    units = [unit for unit in compiled.units if unit.member == 0]
    lines += [f"fires: {_unit(unit)}" for unit in units]
    lines += [explain_point(compiled, point) for point in graph.points]
    return "\n".join(lines)


def _line(compiled: CompiledFlow, node: FlowNode) -> str:
    inputs = ", ".join(str(source.id) for source in node.inputs)
    if node.id in compiled.graph.cycles:
        inputs = f"comes back from {compiled.graph.cycles[node.id].id}"
    where = f" in {node.tick.name}" if node.tick else ""
    why = f"; chance, because: {node.reason.why}" if node.reason else ""
    return f"{node.label}({inputs}){where} at {node.site}: {node.promises}; keeps {keeps(node)}{why}"


def _unit(unit: TickUnit | LooseUnit) -> str:
    if isinstance(unit, LooseUnit):
        return f"{unit.name}, when something has arrived"
    reads = ", ".join(str(hook.source) for hook in unit.hooks) or "nothing"
    return f"{unit.name}, when something is new in {reads}"


def explain_point(compiled: CompiledFlow, point: AlignToken) -> str:
    """Boundary, region, merged ticks and what is promised, in words."""
    found = next(a for a in compiled.regions.alignments if a.point is point)
    lines = [f"align point {point.name!r} on {point.location.name} ({point.site})"]
    lines += [f"  used by {use}" for use in point.uses]
    remarks = [r for r in compiled.regions.remarks if repr(point.name) in r.text]
    if found.noop:
        lines.append(f"  changes nothing: {found.noop}")
        return "\n".join(lines + [f"  {r.level}: {r.text}" for r in remarks])
    group = next(g for g in compiled.regions.groups if found in g.alignments)
    inside = [n for n in found.region if n not in found.boundary]
    lines.append(f"  agrees on {_names(found.boundary)}: one cut of each per execution, for every use")
    lines.append(f"  moves into the tick: {_names(inside) or 'nothing, the uses read it directly'}")
    ticks = [tick.name for tick in group.ticks]
    if len(ticks) > 1:
        lines.append(f"  runs {' and '.join(ticks)} as one tick")
    else:
        lines.append(f"  runs in {ticks[0]}")
    others = [a.point.name for a in group.alignments if a.point is not point]
    if others:
        lines.append(f"  together with align point {', '.join(map(repr, others))}, which overlaps")
    lines += _promises(found.instances, point)
    return "\n".join(lines + [f"  {r.level}: {r.text}" for r in remarks])


def _promises(instances: list[FlowNode], point: AlignToken) -> list[str]:
    reads = [n for n in instances if n.kind in ALIGNED_READS]
    lines = [
        "  promised: a consistent snapshot: one cut for all reads of an execution, and cuts never go back"
    ]
    if any(n.args.get("side") == "before" for n in reads):
        lines.append("  promised: a read of side 'before' is made from the cut of the execution before")
    if any(n.kind == "release_aligned" for n in instances):
        lines.append("  promised: what is released is in every later read (read your acknowledged writes)")
    where = "in each member for itself" if point.location.is_cluster else "on this machine"
    lines.append(f"  promised {where}; nothing about others, behind the network")
    return lines


def _names(nodes: list[FlowNode]) -> str:
    return ", ".join(str(node) for node in nodes)
