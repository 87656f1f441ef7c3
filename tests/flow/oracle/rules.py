"""What a set of random programs has reached: operators, collections, markers, rules; and flaws to refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.flow.oracle.operations import WHY
from tests.flow.oracle.programs import Program
from tests.flow.oracle.structure import READS, Shared, Walks, shared
from trueline.errors import FlowError, InputError, SynchronousCycle, WrongLocation
from trueline.flow.graph import NETWORK

OPERATORS_OUTSIDE = frozenset(
    [
        "map",
        "filter",
        "flat_map",
        "key_by",
        "into_keyed",
        "entries",
        "values",
        "keys",
        "unique",
        "enumerate",
        "fold",
        "reduce",
        "count",
        "first",
        "last",
        "unwrap_or",
        "union",
        "cross_singleton",
        "join",
        "assume_ordering",
        "assume_exactly_once",
        "merge_ordered",
        "aligned_at",
        "send",
        "broadcast",
        "demux",
        "gather",
        "sink",
        "release_aligned",
    ]
)
OPERATORS_IN_REGIONS = (
    OPERATORS_OUTSIDE - frozenset(["send", "broadcast", "demux", "gather", "sink"])
) | frozenset(["zip", "batch_aligned", "snapshot_aligned", "release_aligned"])
OPERATORS_IN_TICKS = frozenset(
    [
        "map",
        "filter",
        "flat_map",
        "key_by",
        "into_keyed",
        "entries",
        "values",
        "keys",
        "unique",
        "enumerate",
        "fold",
        "reduce",
        "count",
        "first",
        "last",
        "sort",
        "union",
        "join",
        "cross_singleton",
        "zip",
        "unwrap_or",
        "into_stream",
        "get",
        "assume_ordering",
        "merge_ordered",
        "assume_exactly_once",
        "forward_ref",
        "cycle",
        "state",
        "defer_tick",
        "all_ticks",
        "latest",
    ]
)
OTHERS = frozenset(["source", "constant", "forward_ref", "batch", "snapshot"])


def operators(program: Program) -> set[tuple[str, str]]:
    """Zone and kind of every operator a compiled program runs."""
    found = {(op.zone, op.node.kind) for op in program.flow.compile().ops.values()}
    found |= {
        ("tick", node.kind) for node in program.flow.graph.nodes if node.kind in ("all_ticks", "latest")
    }
    return found | {("any", node.kind) for node in program.flow.graph.nodes if node.kind in OTHERS}


def wanted_operators() -> set[tuple[str, str]]:
    """All there are."""
    return (
        {("async", kind) for kind in OPERATORS_OUTSIDE}
        | {("region", kind) for kind in OPERATORS_IN_REGIONS}
        | {("tick", kind) for kind in OPERATORS_IN_TICKS}
        | {("any", kind) for kind in OTHERS}
    )


def markers(program: Program) -> set[tuple[Any, ...]]:
    """Kinds of collection, with what is promised of them."""
    found: set[tuple[Any, ...]] = set()
    for node in program.flow.graph.nodes:
        promised = (node.ordered, node.once) if "stream" in node.shape else ()
        found.add((node.shape, node.bounded, *promised))
    return found


def wanted_markers() -> set[tuple[Any, ...]]:
    """All there are."""
    yes_no = (True, False)
    streams = {
        (shape, bounded, ordered, once)
        for shape in ("stream", "keyed stream")
        for bounded in yes_no
        for ordered in yes_no
        for once in yes_no
    }
    return streams | {(s, b) for s in ("singleton", "optional", "keyed singleton") for b in yes_no}


# --- rules ----------------------------------------------------------------------------


def _some(test: Callable[[Shared], Any]) -> Callable[[Program], bool]:
    """A rule that shows in one of the groups that work."""
    return lambda program: any(test(each) for each in program.groups)


def _codes(program: Program) -> set[str]:
    return {remark.code for remark in program.flow.compile().regions.remarks}


def _points(program: Program) -> list[Shared]:
    return [shared(program.flow, point) for point in program.flow.points]


def _tagged(program: Program) -> bool:
    return any(n.kind == "aligned_at" for g in program.groups for n in g.boundary)


def _fed_back(program: Program) -> bool:
    return any(
        n.kind == "forward_ref"
        and n.tick is None
        and Walks(program.flow.graph).reach(n, network=False) & _ids(g)
        for n in program.flow.graph.nodes
        for g in program.groups
    )


def _ids(group: Shared) -> set[int]:
    return {n.id for n in group.instances}


def _third_reader(group: Shared) -> bool:
    """Someone reads, without the point, what the point's uses share (A37)."""
    graph = group.instances[0].location.graph
    consumers = Walks(graph).consumers
    within = {n.id for n in group.inside} | _ids(group)
    return any(m.id not in within for n in group.boundary for m in consumers[n.id])


RULES: dict[str, Callable[[Program], bool]] = {
    "A1 two uses of one collection": _some(
        lambda g: len({n.inputs[0].id for n in g.instances}) < len(g.instances)
    ),
    "A3 a network receive is shared": _some(lambda g: any(n.kind in NETWORK for n in g.boundary)),
    "A4 several nodes are the last that are shared": _some(lambda g: len(g.boundary) > 1),
    "A5 something stands between": _some(lambda g: g.inside),
    "A6 ticks become one": _some(lambda g: len(g.ticks) > 1),
    "A6 three ticks become one": _some(lambda g: len(g.ticks) > 2),
    "A7 something comes in from the side": _some(lambda g: len(g.handed) > len(g.boundary)),
    "A8 a batch and a snapshot": _some(lambda g: {n.kind for n in g.reads} == READS),
    "A9 a release beside a read": _some(lambda g: len(g.instances) > len(g.reads)),
    "A12 only releases": lambda p: any(len(s.instances) > 1 and not s.reads for s in _points(p)),
    "A13 one read and no release": lambda p: any(len(s.instances) == len(s.reads) == 1 for s in _points(p)),
    "A17 used once": lambda p: "single use" in _codes(p),
    "A18 shared here and behind the network": lambda p: "shared behind network" in _codes(p),
    "A19 on a cluster": lambda p: p.plan.cluster and bool(p.groups),
    "A20 named by hand": _tagged,
    "A21 a tag that reaches fewer than two uses": lambda p: "lonely tag" in _codes(p),
    "A23 what comes round": _fed_back,
    "A27 the side before the cut": _some(lambda g: any(n.args.get("side") == "before" for n in g.reads)),
    "A28 two points as one": _some(lambda g: len({n.point.id for n in g.instances}) > 1),
    "A28 two points apart": lambda p: len(p.groups) > 1,
    "A29 unrelated uses of one point": lambda p: "unrelated uses" in _codes(p),
    "A30 an orphan": lambda p: "orphan instance" in _codes(p),
    "A31 a point behind another's release": lambda p: any(
        n.kind == "release_aligned" for g in p.groups for n in g.handed
    ),
    "A34 a constant on the way": _some(lambda g: any(s.constant for n in g.inside for s in n.inputs)),
    "A35 a live value is shared": _some(
        lambda g: any(n.shape in ("singleton", "optional") for n in g.boundary)
    ),
    "A35 a keyed stream is shared": _some(lambda g: any(n.shape == "keyed stream" for n in g.boundary)),
    "A35 a live map is shared": _some(lambda g: any(n.shape == "keyed singleton" for n in g.boundary)),
    "A36 a cut of several streams": _some(lambda g: len(g.handed) > 1),
    "A37 a third reader without the point": _some(_third_reader),
    "A42 a pair of live values": _some(lambda g: any(n.kind == "zip" for n in g.inside)),
}
ERRORS = frozenset(
    [
        "NoSharedUpstream",
        "SharedOnlyBehindNetwork",
        "AsyncEdgeInRegion",
        "ReentrantAlignment",
        "NotAligned",
        "NotPromised",
    ]
)


# --- flaws ----------------------------------------------------------------------------


def _elsewhere(program: Program) -> None:
    read = next(iter(program.reads.values()))
    program_of(read).batch_aligned(read.tick, program.flow.process("elsewhere").local_align_point(), WHY)


def program_of(read: Any) -> Any:
    """A stream at the place of a read."""
    return read.location.source("another")


def _nested(program: Program) -> None:
    read = next(iter(program.reads.values()))
    point = read.location.local_align_point("inner")
    program_of(read).batch(read.tick, WHY).batch_aligned(read.location.tick(), point, WHY)


def _without_a_reason(program: Program) -> None:
    read = next(iter(program.reads.values()))
    program_of(read).batch_aligned(read.tick, read.location.local_align_point("unguarded"), "because")


def _around(program: Program) -> None:
    read = next(iter(program.reads.values()))
    handle, back = read.tick.forward_ref(ordered=False)
    handle.complete(program_of(read).batch(read.tick, WHY).union(back).map(lambda e: e))
    program.flow.compile()


FLAWS: dict[str, tuple[type[FlowError | InputError], Callable[[Program], None]]] = {
    "A10 an aligned read without a reason": (InputError, _without_a_reason),
    "A16 a point of another place": (WrongLocation, _elsewhere),
    "A24 a node that needs its own result": (SynchronousCycle, _around),
    "A32 an aligned read inside a tick": (WrongLocation, _nested),
}
