"""What every operator means on whole collections, written apart from the operators that flows run.

A stream is a list, a keyed stream a list of pairs, a value itself or ABSENT, a live map a dict. `meaning`
works out a node from what some nodes upstream are said to hold: a cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trueline.flow.graph import FlowNode, Graph
from trueline.flow.markers import ABSENT

World = Mapping[int, Any]
"""Node → what it holds."""

SAME = frozenset(
    [
        *("assume_ordering", "assume_exactly_once", "aligned_at", "release_aligned", "send", "broadcast"),
        *("batch", "batch_aligned", "all_ticks", "into_keyed", "entries"),
    ]
)
BY_CHANCE = frozenset(["assume_ordering", "merge_ordered"])


def meaning(graph: Graph, node: FlowNode, world: World, member: int = 0) -> Any:
    """What a node holds where others hold what the world says."""
    if node.id in world:
        return world[node.id]
    if node.kind == "forward_ref":
        return _come_round(graph, node, world, member)
    if node.kind == "constant":
        value = node.args["value"]
        return list(value) if node.shape == "stream" else value
    ins = [meaning(graph, each, world, member) for each in node.inputs]
    if node.kind in SAME:
        return ins[0]
    if node.kind == "demux":
        return [x for x in ins[0] if node.fn(x) == member]
    return _OPERATORS[node.kind](node, *ins)


def _come_round(graph: Graph, node: FlowNode, world: World, member: int) -> list[Any]:
    """What is fed back, until no more comes."""
    held: list[Any] = []
    while True:
        more = meaning(graph, graph.cycles[node.id], {**world, node.id: held}, member)
        if len(more) == len(held):
            return more
        held = more


def normal(node: FlowNode, value: Any) -> Any:
    """A value so that equal ones compare equal, whatever order was nobody's promise."""
    if node.shape == "keyed singleton":
        return tuple(sorted(value.items(), key=repr))
    if node.shape in ("singleton", "optional"):
        return value
    keyed = node.shape == "keyed stream"
    return tuple(value) if is_fixed(node) and not keyed else tuple(sorted(value, key=repr))


def is_fixed(node: FlowNode) -> bool:
    """Whether the order of a stream is the same in every run."""
    return node.ordered and not chance_above(node)


def chance_above(node: FlowNode) -> bool:
    """Whether some order was picked by chance on the way to a node."""
    return node.kind in BY_CHANCE or any(chance_above(source) for source in node.inputs)


# --- the operators --------------------------------------------------------------------


def _map(node: FlowNode, held: Any) -> Any:
    shape = node.inputs[0].shape
    if shape == "stream":
        return [node.fn(x) for x in held]
    if shape == "keyed stream":
        return [(k, node.fn(x)) for k, x in held]
    if shape == "keyed singleton":
        return {k: node.fn(x) for k, x in held.items()}
    return held if held is ABSENT else node.fn(held)


def _filter(node: FlowNode, held: Any) -> Any:
    shape = node.inputs[0].shape
    if shape == "stream":
        return [x for x in held if node.fn(x)]
    if shape == "keyed stream":
        return [(k, x) for k, x in held if node.fn(x)]
    if shape == "keyed singleton":
        return {k: x for k, x in held.items() if node.fn(x)}
    return held if held is not ABSENT and node.fn(held) else ABSENT


def _flat_map(node: FlowNode, held: Any) -> Any:
    if node.shape == "stream":
        return [y for x in held for y in node.fn(x)]
    return [(k, y) for k, x in held for y in node.fn(x)]


def _one(node: FlowNode, items: list[Any]) -> Any:
    """A fold and its kin over the elements of one stream or key."""
    if node.kind == "count":
        return len(items)
    if node.kind == "first":
        return items[0] if items else ABSENT
    if node.kind == "last":
        return items[-1] if items else ABSENT
    if node.kind == "fold":
        init = node.args["init"]
        value = init() if callable(init) else init
        rest = items
    else:
        if not items:
            return ABSENT
        value, *rest = items
    for x in rest:
        value = node.fn(value, x)
    return value


def _gathered(node: FlowNode, held: Any) -> Any:
    if node.inputs[0].shape == "stream":
        return _one(node, held)
    return {k: _one(node, [x for key, x in held if key == k]) for k, _ in held}


def _keys(node: FlowNode, held: Any) -> Any:
    return list(dict.fromkeys([k for k, _ in held]))


def _zip(node: FlowNode, a: Any, b: Any) -> Any:
    return ABSENT if ABSENT in (a, b) else (a, b)


_OPERATORS: dict[str, Any] = {
    "map": _map,
    "filter": _filter,
    "flat_map": _flat_map,
    "key_by": lambda node, held: [(node.fn(x), x) for x in held],
    "values": lambda node, held: [x for _, x in held],
    "keys": _keys,
    "unique": lambda node, held: list(dict.fromkeys(held)),
    "enumerate": lambda node, held: list(enumerate(held)),
    "fold": _gathered,
    "reduce": _gathered,
    "count": _gathered,
    "first": _gathered,
    "last": _gathered,
    "unwrap_or": lambda node, held: node.args["value"] if held is ABSENT else held,
    "zip": _zip,
    "union": lambda node, a, b: a + b,
    "merge_ordered": lambda node, a, b: a + b,
    "join": lambda node, a, b: [(k, (x, y)) for k, x in a for key, y in b if key == k],
    "cross_singleton": lambda node, held, value: [(x, value) for x in held],
}
