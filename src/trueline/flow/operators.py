"""Operators outside ticks: each takes what is new on its input wires and writes what is new on its own.

A wire carries a tuple of new elements; of a live value, of its new versions; of a live map, of (key, value)
changes. Regions use the same operators, inside a tick and with the last version only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from trueline.errors import InputError
from trueline.flow.claims import order_makes_no_difference
from trueline.flow.compiled import PlacedOperator
from trueline.flow.graph import FlowNode
from trueline.flow.hooks import Choose, updated
from trueline.flow.markers import ABSENT, NOTHING
from trueline.flow.values import copied, is_fixed

Operator = Callable[[list[Any], list[Any]], None]
"""An operator at work: called with all wires and all slots."""


class Wired(Protocol):
    """What operators ask while they are made, and the order-making ones while they work."""

    intermediates: bool
    check: bool
    choose: Choose

    def begin(self, slot: int, value: Any) -> None:
        """Say what a slot holds at the beginning."""

    def at_end(self, op: PlacedOperator, run: Operator) -> None:
        """Do something when an execution of the operator's tick is over."""

    def own(self, state: dict[Any, Any]) -> dict[Any, Any]:
        """A map that an operator may change."""

    def function(self, node: FlowNode) -> Callable[..., Any]:
        """A node's function."""

    def initial_value(self, node: FlowNode) -> Any:
        """The first version of a live value."""

    def begun(self, node: FlowNode) -> Any:
        """The value of a fold before any element."""


MakeOperator = Callable[[PlacedOperator, Wired], Operator]


def start(init: Any) -> Any:
    """A value to begin a fold with: a new one, or a copy where it could be changed; no two share it."""
    if callable(init):
        return init()
    return init if is_fixed(init) else copied(init)


def elementwise(node: FlowNode, fn: Callable[..., Any]) -> Callable[[tuple[Any, ...]], list[Any]]:
    """How map, filter and flat_map work on a tuple of new things, by shape of the input."""
    shape, kind = node.inputs[0].shape, node.kind
    if shape == "stream":
        return {
            "map": lambda new: [fn(x) for x in new],
            "filter": lambda new: [x for x in new if fn(x)],
            "flat_map": lambda new: [y for x in new for y in fn(x)],
        }[kind]
    if shape == "keyed stream":
        return {
            "map": lambda new: [(k, fn(x)) for k, x in new],
            "filter": lambda new: [(k, x) for k, x in new if fn(x)],
            "flat_map": lambda new: [(k, y) for k, x in new for y in fn(x)],
        }[kind]
    if shape == "keyed singleton":
        return {
            "map": lambda new: [(k, x if x is ABSENT else fn(x)) for k, x in new],
            "filter": lambda new: [(k, x if x is not ABSENT and fn(x) else ABSENT) for k, x in new],
        }[kind]
    return {
        "map": lambda new: [x if x is ABSENT else fn(x) for x in new],
        "filter": lambda new: [x if x is not ABSENT and fn(x) else ABSENT for x in new],
    }[kind]


def _elementwise(op: PlacedOperator, wiring: Wired) -> Operator:
    work = elementwise(op.node, wiring.function(op.node))
    (i,), o = op.ins, op.out

    def run(w: list[Any], s: list[Any]) -> None:
        new = w[i]
        if new:
            w[o] = tuple(work(new))

    return run


def _each(change: Callable[[Any], Any]) -> MakeOperator:
    """An operator that changes every element in a fixed way."""

    def make(op: PlacedOperator, wiring: Wired) -> Operator:
        (i,), o = op.ins, op.out

        def run(w: list[Any], s: list[Any]) -> None:
            new = w[i]
            if new:
                w[o] = tuple([change(x) for x in new])

        return run

    return make


def _same(op: PlacedOperator, wiring: Wired) -> Operator:
    (i,), o = op.ins, op.out

    def run(w: list[Any], s: list[Any]) -> None:
        w[o] = w[i]

    return run


def keyed(node: FlowNode, key: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, Any]]:
    """An element under its key, if that can be one."""

    def change(x: Any) -> tuple[Any, Any]:
        k = key(x)
        try:
            hash(k)
        except TypeError:
            raise InputError(
                f"{node} gives the key {k!r}, which is not hashable",
                remedy="use strings, numbers or tuples of them as keys",
                node=node,
            ) from None
        return (k, x)

    return change


def _key_by(op: PlacedOperator, wiring: Wired) -> Operator:
    return _each(keyed(op.node, wiring.function(op.node)))(op, wiring)


def pair(node: FlowNode) -> Callable[[Any], tuple[Any, Any]]:
    """An element that is said to be a pair of key and value."""
    check = keyed(node, lambda x: x[0])

    def change(x: Any) -> tuple[Any, Any]:
        if not isinstance(x, tuple) or len(x) != 2:
            raise InputError(
                f"{node} is given {x!r}, which is not a pair", remedy="give pairs of key and value", node=node
            )
        check(x)
        return x

    return change


def _into_keyed(op: PlacedOperator, wiring: Wired) -> Operator:
    return _each(pair(op.node))(op, wiring)


def _seen(op: PlacedOperator, wiring: Wired, pick: Callable[[Any], Any]) -> Operator:
    (i,), o, slot = op.ins, op.out, op.slot
    wiring.begin(slot, {})

    def run(w: list[Any], s: list[Any]) -> None:
        new = w[i]
        if new:
            seen = s[slot]
            fresh = {x: None for x in map(pick, new) if x not in seen}
            if fresh:
                s[slot] = seen = wiring.own(seen)
                seen.update(fresh)
            w[o] = tuple(fresh)

    return run


def _unique(op: PlacedOperator, wiring: Wired) -> Operator:
    return _seen(op, wiring, lambda x: x)


def _keys(op: PlacedOperator, wiring: Wired) -> Operator:
    return _seen(op, wiring, lambda x: x[0])


def _enumerate(op: PlacedOperator, wiring: Wired) -> Operator:
    (i,), o, slot = op.ins, op.out, op.slot
    wiring.begin(slot, 0)

    def run(w: list[Any], s: list[Any]) -> None:
        new = w[i]
        if new:
            w[o] = tuple(enumerate(new, s[slot]))
            s[slot] += len(new)

    return run


# --- values ---------------------------------------------------------------------------


def step(node: FlowNode, fn: Callable[..., Any] | None) -> Callable[[Any, Any], Any]:
    """One element into the value of a fold, reduce, count, first or last."""
    if node.kind == "count":
        return lambda value, _: value + 1
    if node.kind == "first":
        return lambda value, x: x if value is ABSENT else value
    if node.kind == "last":
        return lambda _, x: x
    assert fn is not None
    if node.kind == "reduce":
        return lambda value, x: x if value is ABSENT else fn(value, x)
    return fn


def first_value(node: FlowNode) -> Any:
    """The value before any element."""
    if node.kind == "fold":
        return start(node.args["init"])
    return 0 if node.kind == "count" else ABSENT


def check_keyed(
    node: FlowNode, into: Callable[..., Any], values: dict[Any, Any], new: tuple[Any, ...]
) -> None:
    """Test key by key that the order of the elements makes no difference."""
    groups: dict[Any, list[Any]] = {}
    for key, x in new:
        groups.setdefault(key, []).append(x)
    for key, items in groups.items():
        value = values[key] if key in values else first_value(node)
        order_makes_no_difference(node, into, value, tuple(items), lambda: first_value(node))


def _fold(op: PlacedOperator, wiring: Wired) -> Operator:
    node = op.node
    if node.inputs[0].shape == "keyed stream":
        return _keyed_fold(op, wiring)
    into = step(node, wiring.function(node) if node.fn else None)
    (i,), o, slot = op.ins, op.out, op.slot
    wiring.begin(slot, wiring.begun(node))
    every = wiring.intermediates and op.zone == "async"
    tested = wiring.check and node.args.get("commutative", False)

    def run(w: list[Any], s: list[Any]) -> None:
        new = w[i]
        if not new:
            return
        value = s[slot]
        if tested:
            order_makes_no_difference(node, into, value, new, lambda: first_value(node))
        if every:
            versions = []
            for x in new:
                value = into(value, x)
                versions.append(value)
            w[o] = tuple(versions)
        else:
            for x in new:
                value = into(value, x)
            w[o] = (value,)
        s[slot] = value

    return run


def _keyed_fold(op: PlacedOperator, wiring: Wired) -> Operator:
    node = op.node
    into = step(node, wiring.function(node) if node.fn else None)
    (i,), o, slot = op.ins, op.out, op.slot
    wiring.begin(slot, {})
    every = wiring.intermediates and op.zone == "async"
    tested = wiring.check and node.args.get("commutative", False)

    def run(w: list[Any], s: list[Any]) -> None:
        new = w[i]
        if not new:
            return
        if tested:
            check_keyed(node, into, s[slot], new)
        values = wiring.own(s[slot])
        changes = []
        for key, x in new:
            values[key] = into(values[key] if key in values else first_value(node), x)
            changes.append((key, values[key]))
        w[o] = tuple(changes) if every else tuple(dict(changes).items())
        s[slot] = values

    return run


def _unwrap_or(op: PlacedOperator, wiring: Wired) -> Operator:
    value = op.node.args["value"]
    return _each(lambda x: value if x is ABSENT else x)(op, wiring)


def pair_up(a: Any, b: Any) -> Any:
    """Two values as one, absent where one is."""
    if a is NOTHING or b is NOTHING:
        return NOTHING
    return ABSENT if a is ABSENT or b is ABSENT else (a, b)


def _zip(op: PlacedOperator, wiring: Wired) -> Operator:
    (i, j), o, slot = op.ins, op.out, op.slot
    a, b = op.node.inputs
    wiring.begin(slot, (wiring.initial_value(a), wiring.initial_value(b)))

    def run(w: list[Any], s: list[Any]) -> None:
        left = () if a.constant else w[i]
        right = () if b.constant else w[j]
        if left or right:
            now = (left[-1] if left else s[slot][0], right[-1] if right else s[slot][1])
            s[slot] = now
            both = pair_up(*now)
            if both is not NOTHING:
                w[o] = (both,)

    return run


# --- two streams ----------------------------------------------------------------------


def _union(op: PlacedOperator, wiring: Wired) -> Operator:
    (i, j), o = op.ins, op.out

    def run(w: list[Any], s: list[Any]) -> None:
        w[o] = w[i] + w[j]

    return run


def _cross(op: PlacedOperator, wiring: Wired) -> Operator:
    (i, _), o = op.ins, op.out
    value = wiring.initial_value(op.node.inputs[1])

    def run(w: list[Any], s: list[Any]) -> None:
        new = w[i]
        if new and value is not ABSENT:
            w[o] = tuple([(x, value) for x in new])

    return run


def _join(op: PlacedOperator, wiring: Wired) -> Operator:
    (i, j), o, slot = op.ins, op.out, op.slot
    wiring.begin(slot, ({}, {}))

    def run(w: list[Any], s: list[Any]) -> None:
        new_left, new_right = w[i], w[j]
        if not new_left and not new_right:
            return
        left, right = s[slot]
        pairs = [(k, (x, y)) for k, x in new_left for y in right.get(k, ())]
        left = _kept(wiring, left, new_left)
        pairs += [(k, (x, y)) for k, y in new_right for x in left.get(k, ())]
        s[slot] = (left, _kept(wiring, right, new_right))
        w[o] = tuple(pairs)

    return run


def _kept(
    wiring: Wired, side: dict[Any, tuple[Any, ...]], new: tuple[tuple[Any, Any], ...]
) -> dict[Any, tuple[Any, ...]]:
    if not new:
        return side
    more = wiring.own(side)
    for key, x in new:
        more[key] = (*more.get(key, ()), x)
    return more


# --- wirings and edges ---------------------------------------------------------------


def _demux(op: PlacedOperator, wiring: Wired) -> Operator:
    (i,), o, member, node = op.ins, op.out, op.member, op.node
    by, size = wiring.function(node), node.location.size

    def run(w: list[Any], s: list[Any]) -> None:
        new = w[i]
        if new:
            mine = []
            for x in new:
                to = by(x)
                if not isinstance(to, int) or not 0 <= to < size:
                    raise InputError(
                        f"{node} sends {x!r} to member {to!r}, but the cluster has {size} members",
                        remedy=f"name a member from 0 to {size - 1}",
                        node=node,
                    )
                if to == member:
                    mine.append(x)
            w[o] = tuple(mine)

    return run


def _gather(op: PlacedOperator, wiring: Wired) -> Operator:
    ins, o = op.ins, op.out

    def run(w: list[Any], s: list[Any]) -> None:
        w[o] = tuple([(m, x) for m, i in enumerate(ins) for x in w[i]])

    return run


def _sink(op: PlacedOperator, wiring: Wired) -> Operator:
    (i,), slot = op.ins, op.slot
    wiring.begin(slot, ())

    def run(w: list[Any], s: list[Any]) -> None:
        if w[i]:
            s[slot] += w[i]

    return run


# --- uses of an align point, inside their tick ----------------------------------------


def _snapshot_aligned(op: PlacedOperator, wiring: Wired) -> Operator:
    (i,), o, slot = op.ins, op.out, op.slot
    source = op.node.inputs[0]
    many = source.shape == "keyed singleton"
    before = op.node.args["side"] == "before"
    wiring.begin(slot, {} if many else wiring.initial_value(source))

    def run(w: list[Any], s: list[Any]) -> None:
        new, old = w[i], s[slot]
        if new:
            s[slot] = updated(old, new) if many else new[-1]
        w[o] = old if before else s[slot]

    return run


INCREMENTAL: dict[str, MakeOperator] = {
    "map": _elementwise,
    "filter": _elementwise,
    "flat_map": _elementwise,
    "key_by": _key_by,
    "into_keyed": _into_keyed,
    "entries": _same,
    "values": _each(lambda x: x[1]),
    "keys": _keys,
    "unique": _unique,
    "enumerate": _enumerate,
    "fold": _fold,
    "reduce": _fold,
    "count": _fold,
    "first": _fold,
    "last": _fold,
    "unwrap_or": _unwrap_or,
    "zip": _zip,
    "union": _union,
    "cross_singleton": _cross,
    "join": _join,
    "assume_ordering": _same,
    "assume_exactly_once": _same,
    "aligned_at": _same,
    "send": _same,
    "broadcast": _same,
    "demux": _demux,
    "gather": _gather,
    "sink": _sink,
    "batch_aligned": _same,
    "release_aligned": _same,
    "snapshot_aligned": _snapshot_aligned,
}
