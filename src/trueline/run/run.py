"""A run: steps over keys, where later steps work ahead on values that earlier ones may still change."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from trueline.errors import InputError
from trueline.run.coordinator import Coordinator
from trueline.run.events import Observer
from trueline.run.executors import Executor, Threads
from trueline.run.failure import Failure
from trueline.run.journal import Journal
from trueline.run.journaling import Journaling
from trueline.run.report import Report
from trueline.run.step import Step
from trueline.run.watching import watchers


class Run:
    """Steps one after another over all keys; the result is as if each had waited for the one before.

    >>> from trueline.run import Run, Step
    >>> run = Run([Step(map=lambda key, value: value + 1), Step(map=lambda key, value: value * 2)])
    >>> run.execute({"a": 1, "b": 5})
    {'a': 4, 'b': 12}
    """

    def __init__(
        self,
        steps: Sequence[Step],
        workers: int = 8,
        *,
        executor: Executor | None = None,
        deliberate: bool = False,
        observers: Sequence[Observer] = (),
        journal: Journal | str | os.PathLike[str] | None = None,
        queue: int = 10_000,
    ) -> None:
        count: object = workers
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InputError(f"workers={workers!r}", remedy="give a whole number from 1 on")
        for step in steps:
            if not isinstance(step, Step):
                raise InputError(f"{step!r} is no step", remedy="give Step(map=…), or a subclass of Step")
        self.steps = tuple(steps)
        executor = executor or Threads(workers)
        if journal is not None:
            executor = Journaling(executor, journal if isinstance(journal, Journal) else Journal(journal))
        self._coordinator = Coordinator(
            self.steps, executor, deliberate=deliberate, observers=(*observers, *watchers())
        )
        self._room = threading.BoundedSemaphore(queue)
        self._thread: threading.Thread | None = None
        self._begun = False
        self._result: dict[Any, Any] | None = None
        self._error: BaseException | None = None

    # --- all at once ------------------------------------------------------------------

    def execute(self, inputs: Mapping[Any, Any]) -> dict[Any, Any]:
        """Run over these values in this thread; return the values of the keys that are there in the end."""
        self._begin()
        self._coordinator.inbox.feed(inputs)
        self._coordinator.inbox.close()
        found = self._coordinator.run()
        return {
            key: found[key]
            for key in (*(k for k in inputs if k in found), *(k for k in found if k not in inputs))
        }

    # --- while it goes on -------------------------------------------------------------

    def feed(self, key: Any, value: Any) -> None:
        """Add a key, or revise it; waits while too many have not been looked at yet."""
        if not self._begun:
            self._begin()
            self._thread = threading.Thread(target=self._work, name="trueline-run", daemon=True)
            self._thread.start()
        if self._error is not None:
            raise self._error
        self._coordinator.inbox.feed({key: value})

    def close(self) -> dict[Any, Any]:
        """Say that nothing more comes in, wait for the end, and return the result."""
        if self._thread is None:
            return self.execute({}) if not self._begun else dict(self._result or {})
        self._coordinator.inbox.close()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return dict(self._result or {})

    def wake(self) -> None:
        """Say that a step that was not ready may be."""
        self._coordinator.inbox.wake()

    def _work(self) -> None:
        try:
            self._result = self._coordinator.run()
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            self._error = error

    def _begin(self) -> None:
        if self._begun:
            raise InputError("a run runs once", remedy="make another")
        self._begun = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None and self._thread.is_alive():
            if error is not None:
                self._coordinator.inbox.queue.put(("raise", error))
                self._thread.join()
            else:
                self.close()

    # --- what came of it --------------------------------------------------------------

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures that were real: under `skip_key` and `skip_step` the run went on without them."""
        return tuple(self._coordinator.failures)

    @property
    def report(self) -> Report:
        """What was done, kept and thrown away, step by step."""
        return Report.of(self._coordinator)
