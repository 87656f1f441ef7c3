"""Operators inside a tick: each works on the whole collections of one execution.

A wire carries the tuple of a stream, the value of a singleton (or ABSENT), the dict of a keyed singleton.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trueline.flow.claims import order_makes_no_difference
from trueline.flow.compiled import PlacedOperator
from trueline.flow.graph import FlowNode
from trueline.flow.markers import ABSENT
from trueline.flow.operators import (
    MakeOperator,
    Operator,
    Wired,
    check_keyed,
    elementwise,
    first_value,
    keyed,
    pair,
    pair_up,
    start,
    step,
)


def _of(work: Callable[..., Any]) -> MakeOperator:
    """An operator that is a function of its inputs."""

    def make(op: PlacedOperator, wiring: Wired) -> Operator:
        o = op.out
        if len(op.ins) == 1:
            (i,) = op.ins

            def run(w: list[Any], s: list[Any]) -> None:
                w[o] = work(w[i])

        else:
            i, j = op.ins

            def run(w: list[Any], s: list[Any]) -> None:
                w[o] = work(w[i], w[j])

        return run

    return make


def _of_node(make_work: Callable[[FlowNode, Wired], Callable[..., Any]]) -> MakeOperator:
    """An operator whose function depends on the node."""
    return lambda op, wiring: _of(make_work(op.node, wiring))(op, wiring)


def _elementwise(node: FlowNode, wiring: Wired) -> Callable[..., Any]:
    work = elementwise(node, wiring.function(node))
    shape = node.inputs[0].shape
    if "stream" in shape:
        return lambda new: tuple(work(new))
    if shape == "keyed singleton":
        return lambda new: {k: v for k, v in work(new.items()) if v is not ABSENT}
    return lambda value: work((value,))[0]


def _key_by(node: FlowNode, wiring: Wired) -> Callable[..., Any]:
    change = keyed(node, wiring.function(node))
    return lambda new: tuple([change(x) for x in new])


def _into_keyed(node: FlowNode, wiring: Wired) -> Callable[..., Any]:
    change = pair(node)
    return lambda new: tuple([change(x) for x in new])


def _fold(node: FlowNode, wiring: Wired) -> Callable[..., Any]:
    into = step(node, wiring.function(node) if node.fn else None)
    tested = wiring.check and node.args.get("commutative", False)
    if node.inputs[0].shape == "keyed stream":

        def by_key(new: tuple[Any, ...]) -> dict[Any, Any]:
            values: dict[Any, Any] = {}
            if tested:
                check_keyed(node, into, values, new)
            for key, x in new:
                values[key] = into(values[key] if key in values else first_value(node), x)
            return values

        return by_key

    def whole(new: tuple[Any, ...]) -> Any:
        value = first_value(node)
        if tested:
            order_makes_no_difference(node, into, value, new, lambda: first_value(node))
        for x in new:
            value = into(value, x)
        return value

    return whole


def _entries(node: FlowNode, wiring: Wired) -> Callable[..., Any]:
    if node.inputs[0].shape == "keyed stream":
        return lambda new: new
    return lambda new: tuple(new.items())


def _values(node: FlowNode, wiring: Wired) -> Callable[..., Any]:
    if node.inputs[0].shape == "keyed stream":
        return lambda new: tuple([x for _, x in new])
    return lambda new: tuple(new.values())


def _keys(node: FlowNode, wiring: Wired) -> Callable[..., Any]:
    if node.inputs[0].shape == "keyed stream":
        return lambda new: tuple(dict.fromkeys([k for k, _ in new]))
    return tuple


def _join(node: FlowNode, wiring: Wired) -> Callable[..., Any]:
    if node.shape == "keyed singleton":
        return lambda a, b: {k: (a[k], b[k]) for k in a if k in b}

    def work(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        right: dict[Any, list[Any]] = {}
        for k, y in b:
            right.setdefault(k, []).append(y)
        return tuple([(k, (x, y)) for k, x in a for y in right.get(k, ())])

    return work


def _itself(x: Any) -> Any:
    return x


def _sort(node: FlowNode, wiring: Wired) -> Callable[..., Any]:
    key: Callable[[Any], Any] = wiring.function(node) if node.fn else _itself
    return lambda new: tuple(sorted(new, key=lambda x: (key(x), repr(x))))


def _cross(node: FlowNode, wiring: Wired) -> Callable[..., Any]:
    return lambda new, value: () if value is ABSENT else tuple([(x, value) for x in new])


def _unwrap_or(node: FlowNode, wiring: Wired) -> Callable[..., Any]:
    value = node.args["value"]
    return lambda x: value if x is ABSENT else x


def _into_stream(node: FlowNode, wiring: Wired) -> Callable[..., Any]:
    return lambda value: () if value is ABSENT else (value,)


def _get(node: FlowNode, wiring: Wired) -> Callable[..., Any]:
    key = node.args["key"]
    return lambda values: values.get(key, ABSENT)


def assume_ordering(op: PlacedOperator, wiring: Wired) -> Operator:
    """Any order of the elements that a tick (or a region) was given."""
    (i,), o, node = op.ins, op.out, op.node
    if node.inputs[0].ordered:  # nothing is left to chance
        return _of(lambda new: new)(op, wiring)

    def run(w: list[Any], s: list[Any]) -> None:
        left = list(w[i])
        order = []
        while len(left) > 1:
            order.append(left.pop(wiring.choose(len(left), node)))
        w[o] = (*order, *left)

    return run


def merge_ordered(op: PlacedOperator, wiring: Wired) -> Operator:
    """Any interleaving of the elements that a tick (or a region) was given."""
    (i, j), o, node = op.ins, op.out, op.node

    def run(w: list[Any], s: list[Any]) -> None:
        left, right = w[i], w[j]
        merged = []
        while left and right:
            if wiring.choose(2, node):
                merged.append(right[0])
                right = right[1:]
            else:
                merged.append(left[0])
                left = left[1:]
        w[o] = (*merged, *left, *right)

    return run


def _kept(op: PlacedOperator, wiring: Wired) -> Operator:
    """What an execution left for the next: read here, written when it is over."""
    (i,), o, slot, node = op.ins, op.out, op.slot, op.node
    wiring.begin(slot, _empty(node))
    wiring.at_end(op, lambda w, s: s.__setitem__(slot, w[i]))

    def run(w: list[Any], s: list[Any]) -> None:
        w[o] = s[slot]

    return run


def _empty(node: FlowNode) -> Any:
    """What a cycle, a state or a deferred collection holds in the first execution."""
    if node.kind == "state":
        return start(node.args["init"])
    if "stream" in node.shape:
        return ()
    return {} if node.shape == "keyed singleton" else ABSENT


def _yielded(op: PlacedOperator, wiring: Wired) -> Operator:
    (i,), o = op.ins, op.out
    if "stream" in op.node.inputs[0].shape:
        return _of(lambda new: new)(op, wiring)
    keep_absent = op.node.kind == "latest"

    def run(w: list[Any], s: list[Any]) -> None:
        w[o] = (w[i],) if keep_absent or w[i] is not ABSENT else ()

    return run


WHOLE: dict[str, MakeOperator] = {
    "map": _of_node(_elementwise),
    "filter": _of_node(_elementwise),
    "flat_map": _of_node(_elementwise),
    "key_by": _of_node(_key_by),
    "into_keyed": _of_node(_into_keyed),
    "entries": _of_node(_entries),
    "values": _of_node(_values),
    "keys": _of_node(_keys),
    "unique": _of(lambda new: tuple(dict.fromkeys(new))),
    "enumerate": _of(lambda new: tuple(enumerate(new))),
    "fold": _of_node(_fold),
    "reduce": _of_node(_fold),
    "count": _of_node(_fold),
    "first": _of_node(_fold),
    "last": _of_node(_fold),
    "sort": _of_node(_sort),
    "union": _of(lambda a, b: a + b),
    "join": _of_node(_join),
    "cross_singleton": _of_node(_cross),
    "zip": _of(pair_up),
    "unwrap_or": _of_node(_unwrap_or),
    "into_stream": _of_node(_into_stream),
    "get": _of_node(_get),
    "assume_ordering": assume_ordering,
    "merge_ordered": merge_ordered,
    "assume_exactly_once": _of(lambda new: new),
    "forward_ref": _of(lambda new: new),
    "cycle": _kept,
    "state": _kept,
    "defer_tick": _kept,
    "all_ticks": _yielded,
    "latest": _yielded,
}
