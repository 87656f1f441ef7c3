"""What frames read that is ours: it stays until no plan of Spark can read it any more, and then goes.

A frame of pyspark does not say when it goes, and what is made of it (a filter, a temporary view, a cached
table) does not keep it. What reads our files is a function that is part of the plan, and all plans made of a
plan share it as an object of Spark's JVM. So the JVM is asked, by weak references, whether it has dropped
these functions. It drops them when it collects garbage; we look whenever another frame is made, and what is
left goes with the process. Behind Connect the JVM cannot be asked: there all stays until the session is
stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trueline.spark.engines import engine_of
from trueline.spark.session import is_stopped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READING: Final = "MapInArrow"
_lock = threading.Lock()
_needed: list[Needed | NeededAfar] = []


@dataclass(frozen=True, eq=False)
class Needed:
    """Things that plans of a Spark read, and weak references to the functions in these plans."""

    context: Any
    things: tuple[object, ...]
    functions: tuple[Any, ...]

    @property
    def is_over(self) -> bool:
        """Whether nothing can read them any more: their Spark was stopped, or has dropped the functions."""
        if self.context._jsc is None:  # noqa: SLF001 (no public way says that a context was stopped)
            return True
        return all(each.refersTo(None) for each in self.functions)


@dataclass(frozen=True, eq=False)
class NeededAfar:
    """Things that plans of a session behind Connect read, of which nobody says when they go."""

    session: SparkSession
    things: tuple[object, ...]

    @property
    def is_over(self) -> bool:
        """Whether nothing can read them any more: the session was stopped."""
        return is_stopped(self.session)


def keep_for(frame: DataFrame, things: Sequence[object]) -> None:
    """Keep things as long as a frame, or anything that is made of it, may be read."""
    release_unneeded()
    if not things:
        return
    if engine_of(frame.sparkSession).is_connect:
        with _lock:
            _needed.append(NeededAfar(frame.sparkSession, tuple(things)))
        return
    context: Any = frame.sparkSession.sparkContext
    weak = context._jvm.java.lang.ref.WeakReference  # noqa: SLF001 (Python has no other way to the JVM)
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    functions = tuple(map(weak, _functions(plan)))
    with _lock:
        _needed.append(Needed(context, tuple(things), functions))


def release_unneeded() -> None:
    """Let go of what no plan reads any more."""
    with _lock:
        _needed[:] = [each for each in _needed if not each.is_over]


def _functions(plan: Any) -> list[Any]:
    """Return the functions of Python in a plan, as the JVM has them."""
    found, waiting = [], [plan]
    while waiting:
        node = waiting.pop()
        if node.nodeName() == _READING:
            found.append(node.functionExpr().func())
        children = node.children()
        waiting += [children.apply(place) for place in range(children.size())]
    return found
