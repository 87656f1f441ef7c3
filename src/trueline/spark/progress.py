"""How far a job is: tasks done of tasks known, for the console's bar on a terminal and in a notebook."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any, Final, NamedTuple

from trueline import console

# Seconds between two looks at a job. A look costs about 2 ms.
PACE: Final = 0.2


class Counted(NamedTuple):
    """How many tasks of a job are done, and how many are known of."""

    done: int
    total: int


class Counter(ABC):
    """Counts tasks while a job runs; `close` when it is over."""

    @abstractmethod
    def count(self) -> Counted | None:
        """Return the counts so far, None if nothing is known."""

    def close(self) -> None:  # noqa: B027 (most have nothing to release)
        """Stop counting."""


class Tracked(Counter):
    """Asks Spark's status tracker."""

    def __init__(self, context: Any, tag: str) -> None:
        self._jobs = context._jsc.sc().statusTracker()  # noqa: SLF001 (Python's has no tags)
        self._stages = context.statusTracker()
        self._tag = tag

    def count(self) -> Counted | None:
        done = total = 0
        for job in self._jobs.getJobIdsForTag(self._tag):
            info = self._stages.getJobInfo(job)
            for stage in (self._stages.getStageInfo(each) for each in (info.stageIds if info else ())):
                if stage is not None:
                    done += stage.numCompletedTasks
                    total += stage.numTasks
        return Counted(done, total) if total else None


class Handled(Counter):
    """Listens to what the server reports; a handler hears every operation of its session."""

    def __init__(self, session: Any, thread: threading.Thread) -> None:
        self._session = session
        self._thread = thread
        self._last: Counted | None = None
        session.registerProgressHandler(self._handle)

    def _handle(self, stages: Any, **_: Any) -> None:
        if threading.current_thread() is self._thread and stages:
            done = sum(stage.num_completed_tasks for stage in stages)
            self._last = Counted(done, sum(stage.num_tasks for stage in stages))

    def count(self) -> Counted | None:
        return self._last

    def close(self) -> None:
        self._session.removeProgressHandler(self._handle)


def follow(thread: threading.Thread, counter: Counter, bar: console.Progress, total: int | None) -> int:
    """Move the bar until the thread ends; return what is left of it, for tasks that end between two looks."""
    shown, expected = 0, total
    while thread.is_alive():
        thread.join(PACE)
        counted = counter.count() if thread.is_alive() else None
        if counted is None:
            continue
        if counted.total != expected and total is None:
            expected = counted.total
            bar.expect(expected)
        if counted.done > shown:
            bar.advance(counted.done - shown)
            shown = counted.done
    return max(0, (expected or 0) - shown)
