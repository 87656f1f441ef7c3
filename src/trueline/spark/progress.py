"""How far a job is: what its tasks have done of what is known, for the console's bar."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from trueline import console

# Seconds between two looks at a job. A look costs about 2 ms.
PACE: Final = 0.2


class Counted(NamedTuple):
    """How many tasks of a job are done, how many are known of, and how many rows they have read."""

    done: int
    total: int
    rows: int = 0


class Counter(ABC):
    """Counts tasks while a job runs; `close` when it is over."""

    @abstractmethod
    def count(self) -> Counted | None:
        """Return the counts so far, None if nothing is known."""

    def close(self) -> None:  # noqa: B027 (most have nothing to release)
        """Stop counting."""


class Tracked(Counter):
    """Asks Spark's status tracker for tasks, and the store behind its web page for rows."""

    def __init__(self, context: Any, tag: str) -> None:
        # Python's own tracker has neither tags nor rows.
        scala = context._jsc.sc()  # noqa: SLF001
        self._jobs, self._store = scala.statusTracker(), scala.statusStore
        self._stages = context.statusTracker()
        self._tag = tag

    def count(self) -> Counted | None:
        try:
            return self._count()
        except Exception:  # noqa: BLE001 (a JVM that is gone: what the job raises says it)
            return None

    def _count(self) -> Counted | None:
        done = total = rows = 0
        for job in self._jobs.getJobIdsForTag(self._tag):
            info = self._stages.getJobInfo(job)
            for number in info.stageIds if info else ():
                stage = self._stages.getStageInfo(number)
                if stage is not None:
                    done += stage.numCompletedTasks
                    total += stage.numTasks
                    rows += self._rows(number)
        return Counted(done, total, rows) if total else None

    def _rows(self, stage: int) -> int:
        """Return how many rows the stage has read from its sources; 0 where that is not to be had."""
        try:
            return int(self._store().lastStageAttempt(stage).inputRecords())
        except Exception:  # noqa: BLE001 (the store is Spark's own affair: it may change, or be forbidden)
            return 0


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


class Shown:
    """Moves a bar by what a job has done.

    `sizes` is how large its tasks are, if known; then the bar counts these, else tasks, and rows are those
    that Spark has read.
    """

    def __init__(self, bar: console.Progress, label: str, sizes: Sequence[int] | None = None) -> None:
        self._bar, self._label = bar, label
        # Spark says how many tasks are done and not which: it is at least the smallest ones.
        self._least = None if sizes is None else list(accumulate(sorted(sizes), initial=0))
        self._expected = 0 if self._least is None else self._least[-1]
        self._done = self._rows = 0

    def look(self, counted: Counted) -> None:
        """Show how far the job is."""
        done = counted.done
        if self._least is not None:
            done = self._least[min(done, len(self._least) - 1)]
        elif counted.total != self._expected:
            self._expected = counted.total
            self._bar.expect(counted.total)
        if self._least is None and counted.rows > self._rows:
            self._rows = counted.rows
            self._bar.describe(f"{self._label}, {counted.rows:,} rows")
        if done > self._done:
            self._bar.advance(done - self._done)
            self._done = done

    def finish(self) -> None:
        """Show that all is done: tasks may end between two looks."""
        self._bar.advance(max(0, self._expected - self._done))


def follow(thread: threading.Thread, counter: Counter, shown: Shown) -> None:
    """Move the bar until the thread ends."""
    while thread.is_alive():
        thread.join(PACE)
        counted = counter.count() if thread.is_alive() else None
        if counted is not None:
            shown.look(counted)
