"""A run: steps over keys, where later steps work ahead on values that earlier ones may still change."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from trueline.errors import InputError
from trueline.run.attempt import current
from trueline.run.coordinator import Coordinator
from trueline.run.events import Observer
from trueline.run.executors import Executor, Threads
from trueline.run.failure import Failure
from trueline.run.inbox import Gate
from trueline.run.journal import Journal
from trueline.run.journal_executor import JournalExecutor
from trueline.run.keys import named
from trueline.run.notify import watchers
from trueline.run.report import RunReport
from trueline.run.step import Step


class Run:
    """Steps one after another over all keys; the result is as if each had waited for the one before.

    `execute` runs over values that are there; `feed` and `close` let values come in while it goes on. At
    most `queue` values that were fed are on their way at a time: `feed` waits while there are more.

    >>> from trueline.run import Run, Step
    >>> run = Run([Step(map=lambda key, value: value + 1), Step(map=lambda key, value: value * 2)])
    >>> run.execute({"a": 1, "b": 5})
    {'a': 4, 'b': 12}

    >>> run.failures, run.report.steps[0].calls
    ((), 2)
    >>> live = Run([Step(map=lambda key, value: value + 1)])
    >>> live.feed("a", 1)
    >>> live.revise("a", 5, final=True)
    >>> live.wake()
    >>> live.close()
    {'a': 6}
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
        _check_count("workers", workers)
        _check_count("queue", queue)
        for step in steps:
            if not isinstance(step, Step):
                raise InputError(f"{step!r} is not a step", remedy="give Step(map=…), or a subclass of Step")
            step.check()
        self.steps = tuple(steps)
        executor = executor or Threads(workers)
        if journal is not None:
            executor = JournalExecutor(
                executor, journal if isinstance(journal, Journal) else Journal(journal)
            )
        self._gate = Gate(queue)
        self._coordinator = Coordinator(
            self.steps,
            executor,
            deliberate=deliberate,
            observers=(*observers, *watchers()),
            gate=self._gate,
        )
        self._lock = threading.Lock()  # over who begins, closes, and what was fed
        self._final: dict[Any, bool] = {}
        self._thread: threading.Thread | None = None
        # Waited for instead of the thread: in Python 3.11 a `join` that Ctrl-C breaks off takes the thread
        # for ended.
        self._over = threading.Event()
        self._begun = False
        self._closed = False
        self._result: dict[Any, Any] = {}
        self._error: BaseException | None = None
        self._raised = False

    # --- all at once ------------------------------------------------------------------

    def execute(self, inputs: Mapping[Any, Any]) -> dict[Any, Any]:
        """Run over these values in this thread; return the values of the keys that are there in the end."""
        with self._lock:
            if self._begun:
                raise InputError("this run was started before", remedy="make another Run: each runs once")
            self._begun = self._closed = True
        self._coordinator.inbox.feed(inputs)
        self._coordinator.inbox.close()
        self._result = self._coordinator.run()
        return self._result

    # --- while it goes on -------------------------------------------------------------

    def feed(self, key: Any, value: Any, *, final: bool = False) -> None:
        """Add a key, or revise it; waits while too many values are on their way.

        A `final` value is promised not to be revised: steps that wait for final values need not wait for
        the end to begin it. ERASED takes a key back. Steps themselves must not feed their run.
        """
        self._check_outside()
        self._gate.enter()
        try:
            self._take_in(key, value, final=final)
        except BaseException:
            self._gate.turn_back()
            raise

    def _take_in(self, key: Any, value: Any, *, final: bool) -> None:
        with self._lock:
            self._check_open()
            if self._final.get(key, False):
                raise InputError(
                    f"key {named(key)} was fed with final=True and cannot be revised",
                    remedy="feed a key without final=True while it may still change",
                )
            self._final[key] = final
            if not self._begun:
                # As a daemon it does not keep a process alive that ended without closing the run.
                thread = threading.Thread(target=self._work, name="trueline-run", daemon=True)
                thread.start()
                self._begun, self._thread = True, thread
            self._coordinator.inbox.feed({key: value}, final=final)

    def revise(self, key: Any, value: Any, *, final: bool = False) -> None:
        """Give a key that was fed another value; what was made of the old one is dropped."""
        with self._lock:
            if key not in self._final:
                raise InputError(
                    f"key {named(key)} was not fed, so it cannot be revised",
                    remedy="use feed: it adds a key, and revises one that was fed",
                )
        self.feed(key, value, final=final)

    def close(self) -> dict[Any, Any]:
        """Say that nothing more comes in, wait for the end, and return the result."""
        self._check_outside()
        with self._lock:
            first, self._closed = not self._closed, True
            thread = self._thread
        if thread is None:
            return self.execute({}) if not self._begun else dict(self._result)
        try:
            if first:
                self._coordinator.inbox.close()
            self._over.wait()
        except BaseException as error:
            self._abort(thread, error)
            raise
        thread.join()
        self._raise()
        return dict(self._result)

    def wake(self) -> None:
        """Say that a step that was not ready may be; any thread may say so."""
        self._coordinator.inbox.wake()

    def _work(self) -> None:
        try:
            self._result = self._coordinator.run()
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            self._error = error
        finally:
            self._gate.open()
            self._over.set()

    def _check_outside(self) -> None:
        """Steps that wait for their own run would wait for ever."""
        token = current()
        if token is not None and self._coordinator.is_at(token):
            raise InputError(
                "a step called feed or close of its own run",
                remedy="yield other keys from flat_map or process instead",
            )

    def _check_open(self) -> None:
        self._raise()
        if self._closed:
            raise InputError("the run is closed", remedy="make another run for what comes later")

    def _raise(self) -> None:
        """Raise what ended the run, once; after that, that it has failed."""
        if self._error is None:
            return
        if self._raised:
            raise InputError(
                "the run has failed", remedy="see run.failures, and make another Run"
            ) from self._error
        self._raised = True
        raise self._error

    def _abort(self, thread: threading.Thread, error: BaseException) -> None:
        self._raised = True
        self._coordinator.inbox.abort(error)
        self._over.wait()
        thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread = self._thread
        if thread is None:
            return
        if error is not None:
            self._abort(thread, error)
        elif not self._closed:
            self.close()

    # --- what came of it --------------------------------------------------------------

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures that were real: under `skip_key` and `skip_step` the run went on without them."""
        return tuple(self._coordinator.failures)

    @property
    def report(self) -> RunReport:
        """What was done, kept and thrown away, step by step."""
        return RunReport.of(self._coordinator)


def _check_count(name: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(
            f"{name}={count!r} is not a positive integer", remedy="give an integer of at least 1"
        )
