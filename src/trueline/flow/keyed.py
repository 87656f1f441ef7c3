"""Keyed collections: a stream per key, a live value per key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from trueline.flow.collection import Collection
from trueline.flow.graph import AlignToken, Clock
from trueline.flow.markers import (
    AtLeastOnce,
    B_co,
    Bounded,
    ExactlyOnce,
    NonDet,
    O_co,
    Ordered,
    R_co,
    Unbounded,
    Unordered,
)

if TYPE_CHECKING:
    from trueline.flow.singletons import Optional
    from trueline.flow.streams import Stream

K_co = TypeVar("K_co", bound=Hashable, covariant=True)
V_co = TypeVar("V_co", covariant=True)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
U = TypeVar("U")
A = TypeVar("A")
B = TypeVar("B", bound=Unbounded)
R = TypeVar("R", bound=AtLeastOnce)


class KeyedStream(Collection, Generic[K_co, V_co, B_co, O_co, R_co]):
    """A stream per key: order is promised within a key, never between keys.

    >>> from trueline.flow import Flow, nondet
    >>> flow, why = Flow("sales"), nondet("an example")
    >>> p = flow.process("p")
    >>> sales, tick = p.source("sales").into_keyed(), p.tick()
    >>> p.sink("dear", sales.filter(lambda price: price > 5).map(lambda price: price * 2).entries())
    >>> p.sink("halves", sales.flat_map(lambda price: [price / 2] * 2).values())
    >>> p.sink("cities", sales.keys())
    >>> p.sink("different", sales.unique().entries())
    >>> p.sink("pairs", sales.join(sales).entries())
    >>> p.sink("all", sales.union(sales).entries())
    >>> totals = sales.fold(0, lambda total, price: total + price)
    >>> same = sales.fold_commutative(0, lambda total, price: total + price, lambda a, b: a + b)
    >>> most, counts = sales.reduce(max), sales.count()
    >>> p.sink("totals", totals.snapshot(tick, why).entries().all_ticks())
    >>> piece = sales.batch(tick, why)
    >>> p.sink("before", piece.defer_tick().all_ticks().entries())
    >>> point, now = p.local_align_point("seen"), p.tick()
    >>> shared = p.source("shared").into_keyed().aligned_at(point)
    >>> p.sink("seen", shared.batch_aligned(now, point, why).all_ticks().entries())
    >>> p.sink("acks", shared.release_aligned(point).entries())
    >>> flow.run({"sales": [("Bern", 9), ("Zug", 3)]})["dear"]
    [('Bern', 18)]
    """

    shape = "keyed stream"

    def map(self, f: Callable[[V_co], U]) -> KeyedStream[K_co, U, B_co, O_co, R_co]:
        """Every value, changed by `f`, under its key."""
        return self._next("map", fn=f)  # type: ignore[no-any-return]

    def filter(self, f: Callable[[V_co], bool]) -> KeyedStream[K_co, V_co, B_co, O_co, R_co]:
        """The values of which `f` is true."""
        return self._next("filter", fn=f)  # type: ignore[no-any-return]

    def flat_map(self, f: Callable[[V_co], Iterable[U]]) -> KeyedStream[K_co, U, B_co, O_co, R_co]:
        """What `f` makes of every value, under its key."""
        return self._next("flat_map", fn=f)  # type: ignore[no-any-return]

    def entries(self) -> Stream[tuple[K_co, V_co], B_co, Unordered, R_co]:
        """Pairs of key and value."""
        return self._next("entries", shape="stream", ordered=False)  # type: ignore[no-any-return]

    def values(self) -> Stream[V_co, B_co, Unordered, R_co]:
        """The values of all keys."""
        return self._next("values", shape="stream", ordered=False)  # type: ignore[no-any-return]

    def keys(self) -> Stream[K_co, B_co, Unordered, ExactlyOnce]:
        """Every key once. Keeps all it has seen (in a tick, of one execution)."""
        return self._next("keys", shape="stream", ordered=False, once=True)  # type: ignore[no-any-return]

    def unique(self) -> KeyedStream[K_co, V_co, B_co, O_co, ExactlyOnce]:
        """Every pair of key and value once. Keeps all it has seen (in a tick, of one execution)."""
        return self._next("unique", once=True)  # type: ignore[no-any-return]

    def fold(
        self: KeyedStream[K, V, B_co, Ordered, ExactlyOnce], init: A | Callable[[], A], f: Callable[[A, V], A]
    ) -> KeyedSingleton[K, A, B_co]:
        """A value per key: what `f(value, element)` makes of its elements in order."""
        self._needs_ordered("fold", "use .fold_commutative if the order makes no difference; ")
        self._needs_once("fold", "use .fold_commutative(…, idempotent=True) if repeats make no difference; ")
        return self._next("fold", fn=f, shape="keyed singleton", args={"init": init})  # type: ignore[no-any-return]

    def fold_commutative(
        self,
        init: A | Callable[[], A],
        f: Callable[[A, V_co], A],
        merge: Callable[[A, A], A] | None = None,
        *,
        idempotent: bool = False,
    ) -> KeyedSingleton[K_co, A, B_co]:
        """A value per key that no order of the elements changes; the simulator tests the claim."""
        if not idempotent:
            self._needs_once("fold_commutative", "say idempotent=True if repeats make no difference; ")
        args = {"init": init, "merge": merge, "commutative": True, "idempotent": idempotent}
        return self._next("fold", fn=f, shape="keyed singleton", args=args)  # type: ignore[no-any-return]

    def reduce(
        self, f: Callable[[V_co, V_co], V_co], *, commutative: bool = False, idempotent: bool = False
    ) -> KeyedSingleton[K_co, V_co, B_co]:
        """A value per key: a fold that begins with the key's first element."""
        if not commutative:
            self._needs_ordered("reduce", "say commutative=True if the order makes no difference; ")
        if not idempotent:
            self._needs_once("reduce", "say idempotent=True if repeats make no difference; ")
        args = {"commutative": commutative, "idempotent": idempotent}
        return self._next("reduce", fn=f, shape="keyed singleton", args=args)  # type: ignore[no-any-return]

    def count(self: KeyedStream[K, V, B_co, Unordered, ExactlyOnce]) -> KeyedSingleton[K, int, B_co]:
        """How many elements each key has."""
        self._needs_once("count")
        return self._next("count", shape="keyed singleton")  # type: ignore[no-any-return]

    def join(
        self: KeyedStream[K, V, B, Unordered, R], other: KeyedStream[K, U, B, Unordered, R]
    ) -> KeyedStream[K, tuple[V, U], B, Unordered, R]:
        """Every pair of values of one key. Outside ticks it keeps both sides."""
        return self._next("join", other, ordered=False)  # type: ignore[no-any-return]

    def union(
        self: KeyedStream[K, V, B, Unordered, R], other: KeyedStream[K, V, B, Unordered, R]
    ) -> KeyedStream[K, V, B, Unordered, R]:
        """The elements of both, in no promised order."""
        return self._next("union", other, ordered=False)  # type: ignore[no-any-return]

    def batch(
        self: KeyedStream[K, V, Unbounded, O_co, R_co], tick: Clock, reason: NonDet
    ) -> KeyedStream[K, V, Bounded, O_co, R_co]:
        """The next piece of every key's stream, in a tick; how long each is is chance."""
        return self._read("batch", tick, reason)  # type: ignore[no-any-return]

    def batch_aligned(
        self: KeyedStream[K, V, Unbounded, O_co, R_co], tick: Clock, point: AlignToken, reason: NonDet
    ) -> KeyedStream[K, V, Bounded, O_co, R_co]:
        """The next piece of every key's stream, cut where all reads of the point are cut (A8)."""
        return self._read("batch_aligned", tick, reason, point)  # type: ignore[no-any-return]

    def release_aligned(
        self: KeyedStream[K, V, Unbounded, O_co, R_co], point: AlignToken
    ) -> KeyedStream[K, V, Unbounded, O_co, R_co]:
        """The elements, each once all later reads of the point include what it was made from (A9)."""
        return self._release(point)  # type: ignore[no-any-return]

    def aligned_at(
        self: KeyedStream[K, V, Unbounded, O_co, R_co], point: AlignToken
    ) -> KeyedStream[K, V, Unbounded, O_co, R_co]:
        """The stream, named as what the point's uses share (A20)."""
        return self._tag(point)  # type: ignore[no-any-return]

    def all_ticks(self: KeyedStream[K, V, Bounded, O_co, R_co]) -> KeyedStream[K, V, Unbounded, O_co, R_co]:
        """What every execution of the tick has, one after another, outside."""
        self._needs_tick("all_ticks")
        return self._next("all_ticks", tick=None, bounded=False)  # type: ignore[no-any-return]

    def defer_tick(self: KeyedStream[K, V, Bounded, O_co, R_co]) -> KeyedStream[K, V, Bounded, O_co, R_co]:
        """What the execution before had; empty in the first."""
        self._needs_tick("defer_tick")
        return self._next("defer_tick")  # type: ignore[no-any-return]


class KeyedSingleton(Collection, Generic[K_co, V_co, B_co]):
    """A live map: keys appear, each with a value that may change.

    >>> from trueline.flow import Flow, nondet
    >>> flow, why = Flow("sales"), nondet("an example")
    >>> p = flow.process("p")
    >>> counts, tick = p.source("sales").into_keyed().count(), p.tick()
    >>> now = counts.map(lambda count: count * 10).filter(lambda count: count > 10).snapshot(tick, why)
    >>> p.sink("cities", now.keys().all_ticks())
    >>> p.sink("counts", now.values().all_ticks())
    >>> p.sink("both", now.join(now).entries().all_ticks())
    >>> p.sink("bern", now.get("Bern").all_ticks())
    >>> p.sink("before", now.defer_tick().entries().all_ticks())
    >>> point, then = p.local_align_point("seen"), p.tick()
    >>> shared = p.source("shared").into_keyed().count().aligned_at(point)
    >>> p.sink("seen", shared.snapshot_aligned(then, point, why).entries().all_ticks())
    >>> flow.run({"sales": [("Bern", 9), ("Bern", 3)]})["bern"][-1]
    20
    """

    shape = "keyed singleton"

    def map(self, f: Callable[[V_co], U]) -> KeyedSingleton[K_co, U, B_co]:
        """Every value, changed by `f`."""
        return self._next("map", fn=f)  # type: ignore[no-any-return]

    def filter(self, f: Callable[[V_co], bool]) -> KeyedSingleton[K_co, V_co, B_co]:
        """The keys of whose values `f` is true."""
        return self._next("filter", fn=f)  # type: ignore[no-any-return]

    def entries(self: KeyedSingleton[K, V, Bounded]) -> Stream[tuple[K, V], Bounded, Unordered, ExactlyOnce]:
        """Pairs of key and value."""
        self._needs_bounded("entries")
        return self._next("entries", shape="stream", ordered=False, once=True)  # type: ignore[no-any-return]

    def keys(self: KeyedSingleton[K, V, Bounded]) -> Stream[K, Bounded, Unordered, ExactlyOnce]:
        """The keys."""
        self._needs_bounded("keys")
        return self._next("keys", shape="stream", ordered=False, once=True)  # type: ignore[no-any-return]

    def values(self: KeyedSingleton[K, V, Bounded]) -> Stream[V, Bounded, Unordered, ExactlyOnce]:
        """The values."""
        self._needs_bounded("values")
        return self._next("values", shape="stream", ordered=False, once=True)  # type: ignore[no-any-return]

    def get(self: KeyedSingleton[K, V, Bounded], key: Hashable) -> Optional[V, Bounded]:
        """The value of one key, absent where it has none."""
        self._needs_bounded("get")
        return self._next("get", shape="optional", args={"key": key})  # type: ignore[no-any-return]

    def join(
        self: KeyedSingleton[K, V, Bounded], other: KeyedSingleton[K, U, Bounded]
    ) -> KeyedSingleton[K, tuple[V, U], Bounded]:
        """The values of the keys that both have."""
        self._needs_bounded("join")
        self._same_place("join", other)
        other._needs_bounded("join")
        return self._next("join", other)  # type: ignore[no-any-return]

    def snapshot(
        self: KeyedSingleton[K, V, Unbounded], tick: Clock, reason: NonDet
    ) -> KeyedSingleton[K, V, Bounded]:
        """Some version of every key, in a tick; never an older one than before."""
        return self._read("snapshot", tick, reason)  # type: ignore[no-any-return]

    def snapshot_aligned(
        self: KeyedSingleton[K, V, Unbounded],
        tick: Clock,
        point: AlignToken,
        reason: NonDet,
        side: Any = "after",
    ) -> KeyedSingleton[K, V, Bounded]:
        """The version that all reads of the point see (A8); `side="before"`: the one before it."""
        return self._read_version(tick, point, reason, side)  # type: ignore[no-any-return]

    def aligned_at(
        self: KeyedSingleton[K, V, Unbounded], point: AlignToken
    ) -> KeyedSingleton[K, V, Unbounded]:
        """The map, named as what the point's uses share (A20)."""
        return self._tag(point)  # type: ignore[no-any-return]

    def defer_tick(self: KeyedSingleton[K, V, Bounded]) -> KeyedSingleton[K, V, Bounded]:
        """What the execution before had; empty in the first."""
        self._needs_tick("defer_tick")
        return self._next("defer_tick")  # type: ignore[no-any-return]
