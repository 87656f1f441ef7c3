"""Streams: elements that arrive one after another."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from trueline.errors import InputError, WrongLocation
from trueline.flow.collection import Collection, other_flow
from trueline.flow.graph import AlignToken, Clock, ClusterLocation, Location, ProcessLocation, here
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
    from trueline.flow.keyed import KeyedStream
    from trueline.flow.singletons import Optional, Singleton

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
U = TypeVar("U")
A = TypeVar("A")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
B = TypeVar("B", bound=Unbounded)
R = TypeVar("R", bound=AtLeastOnce)


class Stream(Collection, Generic[T_co, B_co, O_co, R_co]):
    """A growing sequence; in a tick, the piece of it that the tick was given.

    Operators keep nothing of what has passed, but these: `unique` keeps every element it has seen,
    `join` keeps both sides, outside ticks; `fold`, `reduce`, `count` keep their value.

    >>> from trueline.flow import Flow, nondet
    >>> flow, why = Flow("words"), nondet("an example")
    >>> p, other, many = flow.process("p"), flow.process("other"), flow.cluster("many", 2)
    >>> words, tick = p.source("words"), p.tick()
    >>> p.sink("upper", words.map(str.upper).filter(lambda word: word != "B").enumerate())
    >>> p.sink("letters", words.flat_map(list).unique())
    >>> p.sink("lengths", words.key_by(len).entries())
    >>> p.sink("ones", words.map(lambda word: (word, 1)).into_keyed().values())
    >>> p.sink("both", words.union(words.map(str.upper)).assume_ordering(why))
    >>> p.sink("merged", words.merge_ordered(p.source("more"), why))
    >>> p.sink("again", p.source("repeated", at_least_once=True).assume_exactly_once(why))
    >>> flow.run({"words": ["a", "b"]})["upper"]
    [(0, 'A')]

    In a tick it is the piece that the tick was given, outside a tick it has a value at any time:

    >>> piece = words.batch(tick, why)
    >>> p.sink("sorted", piece.sort().all_ticks())
    >>> p.sink("counted", piece.cross_singleton(piece.count()).all_ticks())
    >>> p.sink("before", piece.defer_tick().all_ticks())
    >>> text = words.fold("", lambda so_far, word: so_far + word)
    >>> letters = words.fold_commutative(0, lambda n, word: n + len(word), lambda a, b: a + b)
    >>> last, first, longest = words.last(), words.first(), words.reduce(max)
    >>> p.sink("text", text.snapshot(tick, why).all_ticks())

    It is sent to other machines, and its reads and releases are aligned by a point:

    >>> other.sink("sent", words.send(other))
    >>> many.sink("everywhere", words.broadcast(many))
    >>> many.sink("dealt", words.demux(many, lambda word: len(word) % 2))
    >>> p.sink("gathered", words.broadcast(many).gather(p).values())
    >>> point, now = p.local_align_point("seen"), p.tick()
    >>> shared = p.source("shared").aligned_at(point)
    >>> p.sink("seen", shared.batch_aligned(now, point, why).all_ticks())
    >>> p.sink("acks", shared.release_aligned(point))
    >>> sorted(flow.run({"words": ["a", "b"], "shared": [1]})["gathered"])
    ['a', 'a', 'b', 'b']
    """

    shape = "stream"

    # --- one element at a time ----------------------------------------------------------

    def map(self, f: Callable[[T_co], U]) -> Stream[U, B_co, O_co, R_co]:
        """Every element, changed by `f`."""
        return self._next("map", fn=f)  # type: ignore[no-any-return]

    def filter(self, f: Callable[[T_co], bool]) -> Stream[T_co, B_co, O_co, R_co]:
        """The elements of which `f` is true."""
        return self._next("filter", fn=f)  # type: ignore[no-any-return]

    def flat_map(self, f: Callable[[T_co], Iterable[U]]) -> Stream[U, B_co, O_co, R_co]:
        """What `f` makes of every element, one after another."""
        return self._next("flat_map", fn=f)  # type: ignore[no-any-return]

    def key_by(self, f: Callable[[T_co], K]) -> KeyedStream[K, T_co, B_co, O_co, R_co]:
        """The elements under the key that `f` gives them; keys must be hashable."""
        return self._next("key_by", fn=f, shape="keyed stream")  # type: ignore[no-any-return]

    def into_keyed(self: Stream[tuple[K, V], B_co, O_co, R_co]) -> KeyedStream[K, V, B_co, O_co, R_co]:
        """Pairs as keys and values."""
        return self._next("into_keyed", shape="keyed stream")  # type: ignore[no-any-return]

    def enumerate(
        self: Stream[T, B_co, Ordered, ExactlyOnce],
    ) -> Stream[tuple[int, T], B_co, Ordered, ExactlyOnce]:
        """Every element with its number, from 0; in a tick the numbers start at 0 again."""
        self._needs_ordered("enumerate")
        self._needs_once("enumerate")
        return self._next("enumerate")  # type: ignore[no-any-return]

    def unique(self) -> Stream[T_co, B_co, O_co, ExactlyOnce]:
        """Every element once. Keeps all it has seen (in a tick, of one execution)."""
        return self._next("unique", once=True)  # type: ignore[no-any-return]

    # --- all of them --------------------------------------------------------------------

    def fold(
        self: Stream[T, B_co, Ordered, ExactlyOnce], init: A | Callable[[], A], f: Callable[[A, T], A]
    ) -> Singleton[A, B_co]:
        """The value that `f(value, element)` makes of all elements in order; `init` is one or makes one."""
        self._needs_ordered("fold", "use .fold_commutative if the order makes no difference; ")
        self._needs_once("fold", "use .fold_commutative(…, idempotent=True) if repeats make no difference; ")
        return self._next("fold", fn=f, shape="singleton", args={"init": init})  # type: ignore[no-any-return]

    def fold_commutative(
        self,
        init: A | Callable[[], A],
        f: Callable[[A, T_co], A],
        merge: Callable[[A, A], A] | None = None,
        *,
        idempotent: bool = False,
    ) -> Singleton[A, B_co]:
        """A fold whose result no order of the elements changes (and, `idempotent`, no repeating of them).

        The simulator tests the claim; `merge` joins the values of two parts, where parts are folded apart.
        """
        if not idempotent:
            self._needs_once("fold_commutative", "say idempotent=True if repeats make no difference; ")
        args = {"init": init, "merge": merge, "commutative": True, "idempotent": idempotent}
        return self._next("fold", fn=f, shape="singleton", args=args)  # type: ignore[no-any-return]

    def reduce(
        self, f: Callable[[T_co, T_co], T_co], *, commutative: bool = False, idempotent: bool = False
    ) -> Optional[T_co, B_co]:
        """A fold that begins with the first element; absent while there is none."""
        if not commutative:
            self._needs_ordered("reduce", "say commutative=True if the order makes no difference; ")
        if not idempotent:
            self._needs_once("reduce", "say idempotent=True if repeats make no difference; ")
        args = {"commutative": commutative, "idempotent": idempotent}
        return self._next("reduce", fn=f, shape="optional", args=args)  # type: ignore[no-any-return]

    def count(self: Stream[T, B_co, Unordered, ExactlyOnce]) -> Singleton[int, B_co]:
        """How many there are."""
        self._needs_once("count")
        return self._next("count", shape="singleton")  # type: ignore[no-any-return]

    def first(self: Stream[T, B_co, Ordered, AtLeastOnce]) -> Optional[T, B_co]:
        """The first element; absent while there is none."""
        self._needs_ordered("first")
        return self._next("first", shape="optional")  # type: ignore[no-any-return]

    def last(self: Stream[T, B_co, Ordered, AtLeastOnce]) -> Optional[T, B_co]:
        """The last element; absent while there is none."""
        self._needs_ordered("last")
        return self._next("last", shape="optional")  # type: ignore[no-any-return]

    def sort(
        self: Stream[T, Bounded, Unordered, R], key: Callable[[T], Any] | None = None
    ) -> Stream[T, Bounded, Ordered, R]:
        """The elements in order of `key`, those of equal keys by their text."""
        self._needs_bounded("sort")
        return self._next("sort", fn=key, ordered=True)  # type: ignore[no-any-return]

    # --- with others --------------------------------------------------------------------

    def union(
        self: Stream[T, B, Unordered, R], other: Stream[T, B, Unordered, R]
    ) -> Stream[T, B, Unordered, R]:
        """The elements of both, in no promised order."""
        return self._next("union", other, ordered=False)  # type: ignore[no-any-return]

    def merge_ordered(
        self: Stream[T, B, Ordered, R], other: Stream[T, B, Ordered, R], reason: NonDet
    ) -> Stream[T, B, Ordered, R]:
        """The elements of both, each side in its order, interleaved as they happen to come."""
        self._needs_reason("merge_ordered", reason)
        self._same_place("merge_ordered", other)
        self._needs_ordered("merge_ordered")
        other._needs_ordered("merge_ordered")
        return self._next("merge_ordered", other, reason=reason)  # type: ignore[no-any-return]

    def cross_singleton(
        self, other: Singleton[U, Bounded] | Optional[U, Bounded]
    ) -> Stream[tuple[T_co, U], B_co, O_co, R_co]:
        """Every element with the value of a bounded singleton; nothing where an optional is absent."""
        self._same_place("cross_singleton", other)
        other._needs_bounded("cross_singleton")  # noqa: SLF001 a collection of the same family
        return self._next("cross_singleton", other, bounded=self.node.bounded)  # type: ignore[no-any-return]

    # --- chance -------------------------------------------------------------------------

    def assume_ordering(self, reason: NonDet) -> Stream[T_co, B_co, Ordered, R_co]:
        """The elements in the order in which they happen to come."""
        self._needs_reason("assume_ordering", reason)
        return self._next("assume_ordering", ordered=True, reason=reason)  # type: ignore[no-any-return]

    def assume_exactly_once(self, reason: NonDet) -> Stream[T_co, B_co, O_co, ExactlyOnce]:
        """The elements as they are, repeats taken for elements of their own."""
        self._needs_reason("assume_exactly_once", reason)
        return self._next("assume_exactly_once", once=True, reason=reason)  # type: ignore[no-any-return]

    def batch(
        self: Stream[T, Unbounded, O_co, R_co], tick: Clock, reason: NonDet
    ) -> Stream[T, Bounded, O_co, R_co]:
        """The next piece of the stream, in a tick; pieces follow each other, how long they are is chance."""
        return self._read("batch", tick, reason)  # type: ignore[no-any-return]

    # --- alignment ----------------------------------------------------------------------

    def batch_aligned(
        self: Stream[T, Unbounded, O_co, R_co], tick: Clock, point: AlignToken, reason: NonDet
    ) -> Stream[T, Bounded, O_co, R_co]:
        """The next piece of the stream, cut where all reads of the point are cut (A8)."""
        return self._read("batch_aligned", tick, reason, point)  # type: ignore[no-any-return]

    def release_aligned(
        self: Stream[T, Unbounded, O_co, R_co], point: AlignToken
    ) -> Stream[T, Unbounded, O_co, R_co]:
        """The elements, each once all later reads of the point include what it was made from (A9)."""
        return self._release(point)  # type: ignore[no-any-return]

    def aligned_at(
        self: Stream[T, Unbounded, O_co, R_co], point: AlignToken
    ) -> Stream[T, Unbounded, O_co, R_co]:
        """The stream, named as what the point's uses share; with one named, only named ones count (A20)."""
        return self._tag(point)  # type: ignore[no-any-return]

    # --- inside a tick ------------------------------------------------------------------

    def all_ticks(self: Stream[T, Bounded, O_co, R_co]) -> Stream[T, Unbounded, O_co, R_co]:
        """What every execution of the tick has, one after another, outside."""
        self._needs_tick("all_ticks")
        return self._next("all_ticks", tick=None, bounded=False)  # type: ignore[no-any-return]

    def defer_tick(self: Stream[T, Bounded, O_co, R_co]) -> Stream[T, Bounded, O_co, R_co]:
        """What the execution before had; empty in the first."""
        self._needs_tick("defer_tick")
        return self._next("defer_tick")  # type: ignore[no-any-return]

    # --- other machines -----------------------------------------------------------------

    def send(self: Stream[T, Unbounded, O_co, R_co], to: ProcessLocation) -> Stream[T, Unbounded, O_co, R_co]:
        """The stream on another process, some time later."""
        self._sendable("send", to, from_cluster=False)
        return self._next("send", location=to)  # type: ignore[no-any-return]

    def broadcast(
        self: Stream[T, Unbounded, O_co, R_co], to: ClusterLocation
    ) -> Stream[T, Unbounded, O_co, R_co]:
        """The stream on every member of a cluster, some time later."""
        self._sendable("broadcast", to, from_cluster=False)
        return self._next("broadcast", location=to)  # type: ignore[no-any-return]

    def demux(
        self: Stream[T, Unbounded, O_co, R_co], to: ClusterLocation, by: Callable[[T], int]
    ) -> Stream[T, Unbounded, O_co, R_co]:
        """Every element on the member of a cluster that `by` names, some time later."""
        self._sendable("demux", to, from_cluster=False)
        return self._next("demux", location=to, fn=by)  # type: ignore[no-any-return]

    def gather(
        self: Stream[T, Unbounded, O_co, R_co], to: ProcessLocation
    ) -> KeyedStream[int, T, Unbounded, O_co, R_co]:
        """What every member of a cluster has, on one process, under the member's number."""
        self._sendable("gather", to, from_cluster=True)
        return self._next("gather", location=to, shape="keyed stream")  # type: ignore[no-any-return]

    def _sendable(self, kind: str, to: Location, *, from_cluster: bool) -> None:
        node = self.node
        here_, there = node.location, to
        given: object = to
        if not isinstance(given, Location):
            raise InputError(
                f"{kind} at {here()} is given {to!r}, which is not a location",
                remedy="give a process or a cluster of this flow",
                node=node,
            )
        if there.graph is not here_.graph:
            raise other_flow(kind, node, there.name, there)
        self._outside(kind)
        to_cluster = kind in ("broadcast", "demux")
        if here_.is_cluster != from_cluster or there.is_cluster != to_cluster:
            raise WrongLocation(
                f"{kind} at {here()} cannot take {node} from {here_.name} to {there.name}",
                remedy="send goes from process to process, broadcast and demux from a process to a cluster, "
                "gather from a cluster to a process",
                node=node,
            )
        if node.bounded:
            self._needs(kind, "unbounded", holds=False, remedy="make the constant on the other location")
