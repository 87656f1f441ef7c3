"""The operators of random programs: each a way to make the next collection, with functions of its own.

Elements are tuples of names; whatever is made of an element holds it, so that every value shows which
elements of which source it was made from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.flow.oracle.meanings import chance_above
from trueline.flow import nondet
from trueline.flow.collection import wrap

WHY = nondet("the oracle looks at every choice")


def weight(x: Any) -> int:
    """A number that depends on an element alone, the same in every process."""
    return sum(map(ord, repr(x)))


def inserted(value: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
    """A sorted tuple with one more."""
    return tuple(sorted((*value, x), key=repr))


def added(value: tuple[Any, ...], x: Any) -> tuple[Any, ...]:
    """A sorted tuple with one more, if it is not there."""
    return value if x in value else inserted(value, x)


def marked(x: Any) -> Any:
    """An element that has been round."""
    return ("round", x)


def unmarked(x: Any) -> bool:
    """Whether an element has not been round."""
    return not (isinstance(x, tuple) and x and x[0] == "round")


def both(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """Two sorted tuples as one."""
    return tuple(sorted(a + b, key=repr))


def later(a: Any, b: Any) -> Any:
    """The larger of two elements, by their text."""
    return max(a, b, key=repr)


def same(x: Any) -> Any:
    """An element as it is."""
    return x


def _fold(x: Any) -> Any:
    return x.fold((), inserted if chance_above(x.node) else lambda value, each: (*value, each))


def _fold_commutative(x: Any) -> Any:
    if x.node.once:
        return x.fold_commutative((), inserted, both)
    return x.fold_commutative((), added, idempotent=True)


def _reduce(x: Any) -> Any:
    fixed = x.node.ordered and x.node.once and not chance_above(x.node)
    return (
        x.reduce(lambda a, b: ("two", a, b)) if fixed else x.reduce(later, commutative=True, idempotent=True)
    )


def _come_round(x: Any) -> Any:
    """Every element comes round once."""
    handle, back = x.node.location.forward_ref(ordered=False)
    out = x.union(back)
    handle.complete(out.filter(unmarked).map(marked))
    return out


def _relay(x: Any) -> Any:
    """Through a tick of its own and out again: some time later."""
    return x.batch(x.node.location.tick(), WHY).all_ticks()


def _configured(x: Any) -> Any:
    """With the constant of the place: nothing is shared by that (A34)."""
    place = x.node.location
    known = [n for n in place.graph.named("constant") if n.location is place]
    return x.cross_singleton(wrap(known[0]) if known else place.singleton("config"))


ONE: dict[str, tuple[Callable[[Any], bool], Callable[[Any], Any]]] = {
    # of a stream
    "map": (lambda n: n.shape == "stream", lambda x: x.map(lambda e: ("m", e))),
    "filter": (lambda n: n.shape == "stream", lambda x: x.filter(lambda e: weight(e) % 3 != 0)),
    "flat_map": (
        lambda n: n.shape == "stream",
        lambda x: x.flat_map(lambda e: (("l", e), ("r", e)) if weight(e) % 2 else (e,)),
    ),
    "key_by": (lambda n: n.shape == "stream", lambda x: x.key_by(lambda e: weight(e) % 2)),
    "into_keyed": (
        lambda n: n.shape == "stream",
        lambda x: x.map(lambda e: (weight(e) % 2, e)).into_keyed(),
    ),
    "unique": (lambda n: "stream" in n.shape, lambda x: x.unique()),
    "enumerate": (
        lambda n: n.shape == "stream" and n.ordered and n.once and not chance_above(n),
        lambda x: x.enumerate(),
    ),
    "fold": (lambda n: "stream" in n.shape and n.ordered and n.once, _fold),
    "fold_commutative": (lambda n: "stream" in n.shape, _fold_commutative),
    "reduce": (lambda n: "stream" in n.shape, _reduce),
    "count": (lambda n: "stream" in n.shape and n.once, lambda x: x.count()),
    "first": (
        lambda n: n.shape == "stream" and n.ordered and not chance_above(n),
        lambda x: x.first(),
    ),
    "last": (
        lambda n: n.shape == "stream" and n.ordered and not chance_above(n),
        lambda x: x.last(),
    ),
    "assume_ordering": (
        lambda n: n.shape == "stream" and not n.ordered,
        lambda x: x.assume_ordering(WHY),
    ),
    "assume_exactly_once": (
        lambda n: n.shape == "stream" and not n.once,
        lambda x: x.assume_exactly_once(WHY),
    ),
    "relay": (lambda n: "stream" in n.shape, _relay),
    "come_round": (lambda n: n.shape == "stream" and n.once, _come_round),
    "configured": (lambda n: n.shape == "stream", _configured),
    # of a keyed stream
    "map_values": (lambda n: n.shape == "keyed stream", lambda x: x.map(lambda e: ("m", e))),
    "filter_values": (
        lambda n: n.shape == "keyed stream",
        lambda x: x.filter(lambda e: weight(e) % 3 != 0),
    ),
    "flat_map_values": (
        lambda n: n.shape == "keyed stream",
        lambda x: x.flat_map(lambda e: (e, ("r", e)) if weight(e) % 2 else ()),
    ),
    "entries": (lambda n: n.shape == "keyed stream", lambda x: x.entries()),
    "values": (lambda n: n.shape == "keyed stream", lambda x: x.values()),
    "keys": (lambda n: n.shape == "keyed stream", lambda x: x.keys()),
    # of a value, of a live map
    "map_value": (lambda n: "stream" not in n.shape, lambda x: x.map(lambda v: ("v", v))),
    "filter_value": (lambda n: "stream" not in n.shape, lambda x: x.filter(lambda v: weight(v) % 3 != 0)),
    "unwrap_or": (lambda n: n.shape == "optional", lambda x: x.unwrap_or("nobody")),
}

TWO: dict[str, tuple[Callable[[Any, Any], bool], Callable[[Any, Any], Any]]] = {
    "union": (lambda a, b: "stream" in a.shape and a.shape == b.shape, lambda x, y: x.union(y)),
    "merge_ordered": (
        lambda a, b: a.shape == b.shape == "stream" and a.ordered and b.ordered,
        lambda x, y: x.merge_ordered(y, WHY),
    ),
    "join": (lambda a, b: a.shape == b.shape == "keyed stream", lambda x, y: x.join(y)),
}


# --- inside a tick --------------------------------------------------------------------


def shown(x: Any) -> Any:
    """What a read gave in one execution, as one value: every execution shows it, empty or not."""
    shape = x.node.shape
    if shape == "singleton":
        return x.map(lambda v: ("is", v))
    if shape == "optional":
        return x.map(lambda v: ("is", v)).unwrap_or(("absent",))
    if shape != "stream":
        x = x.entries()
    if not x.node.once:
        x = x.assume_exactly_once(WHY)
    if x.node.ordered and not chance_above(x.node):
        return x.fold((), lambda value, e: (*value, e))
    return x.fold_commutative((), inserted)


def _counting(tick: Any, x: Any) -> Any:
    handle, before = tick.state(0)
    total = before.zip(x.map(same).unique().count()).map(sum)
    handle.complete(total)
    return x.cross_singleton(total).all_ticks()


def _remembering(tick: Any, x: Any) -> Any:
    handle, before = tick.optional_state()
    handle.complete(x.count())
    return x.cross_singleton(before.unwrap_or(-1)).all_ticks()


def _cycling(tick: Any, x: Any) -> Any:
    handle, before = tick.cycle(ordered=False)
    handle.complete(x.assume_exactly_once(WHY) if not x.node.once else x)
    return before.all_ticks()


def _referring(tick: Any, x: Any) -> Any:
    handle, ahead = tick.forward_ref(ordered=False)
    out = ahead.map(lambda e: ("ahead", e))
    handle.complete(x.unique())
    return out.all_ticks()


def _by_key(tick: Any, x: Any) -> Any:
    keyed = x.map(lambda e: (weight(e) % 2, e)).into_keyed()
    counts = keyed.unique().count()
    largest = x.key_by(weight).reduce(later, commutative=True, idempotent=True)
    found = counts.get(0).into_stream().map(lambda n: ("even", n))
    both_ = counts.join(counts.map(lambda n: n + 1)).filter(lambda pair: pair[0] > 0).entries()
    names = largest.keys().map(lambda k: ("key", k)).union(largest.values())
    return found.union(both_).union(names).all_ticks()


def _of_keys(tick: Any, x: Any) -> Any:
    keyed = x.key_by(lambda e: weight(e) % 2)
    pairs = keyed.join(keyed.flat_map(lambda e: (e,))).entries()
    return pairs.union(keyed.keys().map(lambda k: (k, "key"))).union(keyed.values()).all_ticks()


def _in_order(tick: Any, x: Any) -> Any:
    ordered = x.filter(lambda e: weight(e) % 5 != 0).unique().sort(weight)
    numbered = ordered.enumerate()
    merged = numbered.merge_ordered(x.unique().assume_ordering(WHY).map(lambda e: (-1, e)), WHY)
    return merged.all_ticks()


def _ends(tick: Any, x: Any) -> Any:
    ordered = x.flat_map(lambda e: (e, ("again", e))).sort(repr)
    ends = ordered.first().zip(ordered.last())
    return ends.all_ticks()


def _deferred(tick: Any, x: Any) -> Any:
    return x.defer_tick().all_ticks()


def _kept_latest(tick: Any, x: Any) -> Any:
    value = shown(x).latest()
    return value.snapshot(x.node.location.tick(), WHY).all_ticks()


STEADY = frozenset(["counting", "referring", "by_key", "of_keys", "in_order", "ends"])
"""Those whose output does not depend on how often a tick runs."""

WITHIN: dict[str, tuple[Callable[[Any], bool], Callable[[Any, Any], Any]]] = {
    "counting": (lambda n: n.shape == "stream", _counting),
    "remembering": (lambda n: n.shape == "stream" and n.once, _remembering),
    "cycling": (lambda n: n.shape == "stream", _cycling),
    "referring": (lambda n: n.shape == "stream", _referring),
    "by_key": (lambda n: n.shape == "stream", _by_key),
    "of_keys": (lambda n: n.shape == "stream", _of_keys),
    "in_order": (lambda n: n.shape == "stream", _in_order),
    "ends": (lambda n: n.shape == "stream", _ends),
    "deferred": (lambda n: "stream" in n.shape, _deferred),
    "deferred_value": (lambda n: n.shape in ("singleton", "optional"), _deferred),
    "deferred_map": (
        lambda n: n.shape == "keyed singleton",
        lambda t, x: x.defer_tick().entries().all_ticks(),
    ),
    "kept_latest": (lambda n: True, _kept_latest),
}
