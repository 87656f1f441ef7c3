"""Singletons and optionals: one value that may change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from trueline.flow.collection import Collection
from trueline.flow.graph import AlignToken, Clock
from trueline.flow.markers import B_co, Bounded, ExactlyOnce, NonDet, Ordered, Shape, Unbounded

if TYPE_CHECKING:
    from trueline.flow.streams import Stream

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
U = TypeVar("U")
B = TypeVar("B", bound=Unbounded)


class Single(Collection):
    """What singletons and optionals do alike."""

    shape: ClassVar[Shape] = "singleton"

    def _zip(self, other: Collection, shape: Any) -> Any:
        """Two values of one moment; of live ones, only between a boundary and an aligned read (A42)."""
        both = {self.node.shape, getattr(other, "shape", shape)}
        return self._next("zip", other, shape="optional" if "optional" in both else shape)

    def _all_ticks(self) -> Any:
        self._needs_tick("all_ticks")
        return self._next("all_ticks", shape="stream", tick=None, bounded=False, ordered=True, once=True)

    def _latest(self) -> Any:
        self._needs_tick("latest")
        return self._next("latest", tick=None, bounded=False)

    def _into_stream(self) -> Any:
        self._needs_bounded("into_stream")
        return self._next("into_stream", shape="stream", ordered=True, once=True)


class Singleton(Single, Generic[T_co, B_co]):
    """A value that is always there; unbounded, it changes while the flow runs.

    >>> from trueline.flow import Flow, nondet
    >>> flow, why = Flow("counting"), nondet("an example")
    >>> p = flow.process("p")
    >>> count, tick = p.source("words").count(), p.tick()
    >>> now = count.map(lambda n: n * 10).snapshot(tick, why)
    >>> p.sink("large", now.filter(lambda n: n > 10).all_ticks())
    >>> p.sink("pair", now.zip(now).all_ticks())
    >>> p.sink("both", now.cross_singleton(p.singleton("words")).all_ticks())
    >>> p.sink("stream", now.into_stream().all_ticks())
    >>> p.sink("before", now.defer_tick().all_ticks())
    >>> outside = now.latest()
    >>> point, then = p.local_align_point("seen"), p.tick()
    >>> shared = p.source("shared").count().aligned_at(point)
    >>> p.sink("seen", shared.snapshot_aligned(then, point, why).all_ticks())
    >>> flow.run({"words": ["a", "b"]})["both"][-1]
    (20, 'words')
    """

    shape = "singleton"

    def map(self, f: Callable[[T_co], U]) -> Singleton[U, B_co]:
        """The value, changed by `f`."""
        return self._next("map", fn=f)  # type: ignore[no-any-return]

    def filter(self, f: Callable[[T_co], bool]) -> Optional[T_co, B_co]:
        """The value while `f` is true of it."""
        return self._next("filter", fn=f, shape="optional")  # type: ignore[no-any-return]

    @overload
    def zip(self: Singleton[T, B], other: Singleton[U, B]) -> Singleton[tuple[T, U], B]: ...
    @overload
    def zip(self: Singleton[T, B], other: Optional[U, B]) -> Optional[tuple[T, U], B]: ...
    def zip(self, other: Any) -> Any:
        """Both values at one moment; of two live ones only where an align point makes them agree (A42)."""
        return self._zip(other, "singleton")

    def cross_singleton(
        self: Singleton[T, Bounded], other: Singleton[U, Bounded]
    ) -> Singleton[tuple[T, U], Bounded]:
        """Both values, in one tick."""
        self._needs_bounded("cross_singleton")
        return self._zip(other, "singleton")  # type: ignore[no-any-return]

    def snapshot(self: Singleton[T, Unbounded], tick: Clock, reason: NonDet) -> Singleton[T, Bounded]:
        """Some version of the value, in a tick; never an older one than before, and it may lag."""
        return self._read("snapshot", tick, reason)  # type: ignore[no-any-return]

    def snapshot_aligned(
        self: Singleton[T, Unbounded], tick: Clock, point: AlignToken, reason: NonDet, side: str = "after"
    ) -> Singleton[T, Bounded]:
        """The version that all reads of the point see (A8); `side="before"`: the one before it."""
        return self._read_version(tick, point, reason, side)  # type: ignore[no-any-return]

    def aligned_at(self: Singleton[T, Unbounded], point: AlignToken) -> Singleton[T, Unbounded]:
        """The value, named as what the point's uses share (A20)."""
        return self._tag(point)  # type: ignore[no-any-return]

    def into_stream(self: Singleton[T, Bounded]) -> Stream[T, Bounded, Ordered, ExactlyOnce]:
        """A stream of the one value."""
        return self._into_stream()  # type: ignore[no-any-return]

    def all_ticks(self: Singleton[T, Bounded]) -> Stream[T, Unbounded, Ordered, ExactlyOnce]:
        """The value of every execution, one after another, outside."""
        return self._all_ticks()  # type: ignore[no-any-return]

    def latest(self: Singleton[T, Bounded]) -> Singleton[T, Unbounded]:
        """The value of the last execution, outside, some time later: not aligned with the tick."""
        return self._latest()  # type: ignore[no-any-return]

    def defer_tick(self: Singleton[T, Bounded]) -> Optional[T, Bounded]:
        """The value of the execution before; absent in the first."""
        self._needs_tick("defer_tick")
        return self._next("defer_tick", shape="optional")  # type: ignore[no-any-return]


class Optional(Single, Generic[T_co, B_co]):
    """A value that may be absent.

    >>> from trueline.flow import Flow, nondet
    >>> flow, why = Flow("last"), nondet("an example")
    >>> p = flow.process("p")
    >>> last, tick = p.source("words").last(), p.tick()
    >>> now = last.map(str.upper).filter(lambda word: word != "B").snapshot(tick, why)
    >>> p.sink("word", now.unwrap_or("none").all_ticks())
    >>> p.sink("pair", now.zip(now).all_ticks())
    >>> p.sink("stream", now.into_stream().all_ticks())
    >>> p.sink("before", now.defer_tick().all_ticks())
    >>> outside = now.latest()
    >>> point, then = p.local_align_point("seen"), p.tick()
    >>> shared = p.source("shared").last().aligned_at(point)
    >>> p.sink("seen", shared.snapshot_aligned(then, point, why).all_ticks())
    >>> flow.run({"words": ["a"]})["word"][-1]
    'A'
    """

    shape = "optional"

    def map(self, f: Callable[[T_co], U]) -> Optional[U, B_co]:
        """The value, if there is one, changed by `f`."""
        return self._next("map", fn=f)  # type: ignore[no-any-return]

    def filter(self, f: Callable[[T_co], bool]) -> Optional[T_co, B_co]:
        """The value while `f` is true of it."""
        return self._next("filter", fn=f)  # type: ignore[no-any-return]

    def unwrap_or(self: Optional[T, B], value: T) -> Singleton[T, B]:
        """The value, or `value` while it is absent."""
        return self._next("unwrap_or", shape="singleton", args={"value": value})  # type: ignore[no-any-return]

    def zip(self: Optional[T, B], other: Singleton[U, B] | Optional[U, B]) -> Optional[tuple[T, U], B]:
        """Both values at one moment, absent where one is (A42)."""
        return self._zip(other, "optional")  # type: ignore[no-any-return]

    def snapshot(self: Optional[T, Unbounded], tick: Clock, reason: NonDet) -> Optional[T, Bounded]:
        """Some version of the value, in a tick; never an older one than before."""
        return self._read("snapshot", tick, reason)  # type: ignore[no-any-return]

    def snapshot_aligned(
        self: Optional[T, Unbounded], tick: Clock, point: AlignToken, reason: NonDet, side: str = "after"
    ) -> Optional[T, Bounded]:
        """The version that all reads of the point see (A8)."""
        return self._read_version(tick, point, reason, side)  # type: ignore[no-any-return]

    def aligned_at(self: Optional[T, Unbounded], point: AlignToken) -> Optional[T, Unbounded]:
        """The value, named as what the point's uses share (A20)."""
        return self._tag(point)  # type: ignore[no-any-return]

    def into_stream(self: Optional[T, Bounded]) -> Stream[T, Bounded, Ordered, ExactlyOnce]:
        """A stream of the value, if there is one."""
        return self._into_stream()  # type: ignore[no-any-return]

    def all_ticks(self: Optional[T, Bounded]) -> Stream[T, Unbounded, Ordered, ExactlyOnce]:
        """The values of the executions that have one, one after another, outside."""
        return self._all_ticks()  # type: ignore[no-any-return]

    def latest(self: Optional[T, Bounded]) -> Optional[T, Unbounded]:
        """The value of the last execution, outside, some time later: not aligned with the tick."""
        return self._latest()  # type: ignore[no-any-return]

    def defer_tick(self: Optional[T, Bounded]) -> Optional[T, Bounded]:
        """The value of the execution before; absent in the first."""
        self._needs_tick("defer_tick")
        return self._next("defer_tick")  # type: ignore[no-any-return]
