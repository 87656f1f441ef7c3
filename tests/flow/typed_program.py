"""Read by mypy, not run: a right program, and mistakes with the error each must give (`# error: …`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

from trueline.flow import (
    Bounded,
    ExactlyOnce,
    Flow,
    KeyedSingleton,
    Ordered,
    Singleton,
    Stream,
    Unbounded,
    Unordered,
    nondet,
)

if TYPE_CHECKING:
    flow = Flow("typed")
    p = flow.process("p")
    tick = p.tick()
    point = p.local_align_point()
    numbers: Stream[int, Unbounded, Ordered, ExactlyOnce] = p.source("numbers")
    loose: Stream[int, Unbounded, Unordered, ExactlyOnce] = p.source("loose", ordered=False)
    why = nondet("typed")

    # --- right ----------------------------------------------------------------------------

    assert_type(numbers.count(), Singleton[int, Unbounded])
    assert_type(numbers.map(str), Stream[str, Unbounded, Ordered, ExactlyOnce])
    assert_type(numbers.batch(tick, why), Stream[int, Bounded, Ordered, ExactlyOnce])
    assert_type(numbers.count().snapshot_aligned(tick, point, why), Singleton[int, Bounded])
    assert_type(numbers.key_by(str).count(), KeyedSingleton[str, int, Unbounded])
    assert_type(numbers.key_by(str).values(), Stream[int, Unbounded, Unordered, ExactlyOnce])
    assert_type(
        numbers.batch(tick, why).cross_singleton(numbers.count().snapshot(tick, why)),
        Stream[tuple[int, int], Bounded, Ordered, ExactlyOnce],
    )
    assert_type(
        loose.assume_ordering(why).enumerate(), Stream[tuple[int, int], Unbounded, Ordered, ExactlyOnce]
    )
    p.sink("right", numbers.release_aligned(point))

    # --- wrong ----------------------------------------------------------------------------

    numbers.batch(tick)  # error: call-arg
    numbers.batch(tick, "because")  # error: arg-type
    numbers.count().snapshot(tick)  # error: call-arg
    loose.fold(0, lambda a, b: a + b)  # error: misc
    loose.enumerate()  # error: misc
    loose.first()  # error: misc
    numbers.cross_singleton(numbers.count())  # error: arg-type
    numbers.count().into_stream()  # error: misc
    numbers.sort()  # error: misc
    numbers.all_ticks()  # error: misc
    numbers.map(str).map(abs)  # error: arg-type
    numbers.release_aligned(tick)  # error: arg-type
    loose.key_by(str).fold(0, lambda a, b: a + b)  # error: misc
    numbers.merge_ordered(loose, why)  # error: arg-type
