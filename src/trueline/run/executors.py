"""Where batches are worked on: in this thread by a seed, in threads, in processes; Spark has its own."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

from trueline.errors import InputError
from trueline.run.attempt import Attempt, Outcome, work
from trueline.run.keys import named
from trueline.run.purity import checked
from trueline.run.step import Step

Post: TypeAlias = Callable[[Attempt, Outcome | BaseException], None]


class Executor(Protocol):
    """Works on batches and posts what came of each, once; the coordinator alone decides what it is worth.

    One to whom a batch costs much says in `batch_seconds` how long a batch is to take.

    >>> executor = Inline(seed=1, workers=2)
    >>> executor.workers, executor.start([], post=print), executor.pump()
    (2, None, False)
    >>> from trueline.run.attempt import Attempt
    >>> attempt, step = Attempt(1, 0, {}, ()), Step(map=lambda key, value: value + 1)
    >>> executor.submit(step, attempt, [("a", 1)])
    >>> executor.superseded(attempt)
    >>> executor.stop()
    """

    @property
    def workers(self) -> int:
        """How many batches it works on at once."""

    def start(self, steps: Sequence[Step], post: Post) -> None:
        """Begin; `post` may be called from any thread."""

    def submit(self, step: Step, attempt: Attempt, items: list[tuple[Any, Any]]) -> None:
        """Work on a batch, now or soon."""

    def superseded(self, attempt: Attempt) -> None:
        """Called when a batch is superseded; stopping it is optional."""

    def pump(self) -> bool:
        """Do some work in the coordinator's thread, if this executor works there; return whether it did."""

    def stop(self) -> None:
        """End: when it returns nothing runs any more."""


class Threads:
    """Batches in threads of this process.

    >>> from trueline.run import Run
    >>> Run([Step(map=lambda key, value: value + 1)], executor=Threads(workers=2)).execute({"a": 1})
    {'a': 2}
    """

    def __init__(self, workers: int = 8) -> None:
        self.workers = workers
        self._tasks: SimpleQueue[tuple[Step, Attempt, list[tuple[Any, Any]]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._post: Post | None = None
        self._asked = 0
        self._ended: list[int] = []  # each thread counts in its own place

    def start(self, steps: Sequence[Step], post: Post) -> None:
        """Threads are started as work comes."""
        self._post = free(self._post, post)

    def submit(self, step: Step, attempt: Attempt, items: list[tuple[Any, Any]]) -> None:
        """Hand a batch to the next thread that is free, or to a new one."""
        self._asked += 1
        number = len(self._threads)
        if number < self.workers and self._asked - sum(self._ended) > number:
            self._ended.append(0)
            # As a daemon it does not keep the process alive, should a second Ctrl-C break off the waiting.
            thread = threading.Thread(
                target=self._run, args=(number,), name=f"trueline-run-{number}", daemon=True
            )
            thread.start()
            self._threads.append(thread)
        self._tasks.put((step, attempt, items))

    def _run(self, number: int) -> None:
        assert self._post is not None
        while (task := self._tasks.get()) is not None:
            step, attempt, items = task
            start = time.perf_counter()
            found: Outcome | BaseException
            try:
                found = work(step, items, attempt.token)
                found.seconds, found.worker = time.perf_counter() - start, number
            except BaseException as error:  # noqa: BLE001 (the coordinator raises it where it is caught)
                found = error
            self._ended[number] += 1
            self._post(attempt, found)
            del step, attempt, items, task, found

    def superseded(self, attempt: Attempt) -> None:
        """Its token says so already."""

    def pump(self) -> bool:
        """The coordinator only coordinates."""
        return False

    def stop(self) -> None:
        """Let every thread end what it is at, and join it."""
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._ended.clear()
        self._asked = 0
        self._post = None


class Inline:
    """Batches in the coordinator's thread, in an order that a seed decides: the same again for the same seed.

    It pretends to have several workers: batches are begun, and end in any
    order. With `check` each batch is done twice, and steps that change what
    they are given, or give another result, are reported as errors.

    >>> from trueline.run import Run
    >>> steps = [Step(map=lambda key, value: value + 1)]
    >>> Run(steps, executor=Inline(seed=7, workers=3, check=True)).execute({"a": 1})
    {'a': 2}
    """

    def __init__(self, seed: int | None = None, workers: int = 1, *, check: bool = False) -> None:
        self.workers = workers
        self._random = None if seed is None else random.Random(seed)  # noqa: S311 (schedules, not secrets)
        self._check = check
        self._waiting: list[tuple[Step, Attempt, list[tuple[Any, Any]]]] = []
        self._post: Post | None = None

    def start(self, steps: Sequence[Step], post: Post) -> None:
        """Nothing to start."""
        self._post = free(self._post, post)

    def submit(self, step: Step, attempt: Attempt, items: list[tuple[Any, Any]]) -> None:
        """Keep it until it is its turn."""
        self._waiting.append((step, attempt, items))

    def superseded(self, attempt: Attempt) -> None:
        """Its token says so already."""

    def pump(self) -> bool:
        """Do one of the batches that were begun."""
        if not self._waiting:
            return False
        assert self._post is not None
        place = self._random.randrange(len(self._waiting)) if self._random else 0
        step, attempt, items = self._waiting.pop(place)
        start = time.perf_counter()
        outcome = checked(step, items, attempt.token) if self._check else work(step, items, attempt.token)
        outcome.seconds = time.perf_counter() - start if self._random is None else 0.001 * len(items)
        self._post(attempt, outcome)
        return True

    def stop(self) -> None:
        """Forget what was not done."""
        self._waiting.clear()
        self._post = None


class Processes:
    """Batches in processes; steps are sent once to each, keys and values with every batch, by pickle.

    >>> executor = Processes(workers=2)  # Run(steps, executor=executor), with steps of a module
    >>> executor.workers
    2
    """

    def __init__(self, workers: int = 2) -> None:
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._post: Post | None = None

    def start(self, steps: Sequence[Step], post: Post) -> None:
        """Start the pool; processes come as work does."""
        try:
            sent = pickle.dumps(list(steps))
        except Exception as error:
            raise InputError(
                f"the steps cannot be sent to another process: {error}",
                remedy="define functions and classes of steps in a module, or use threads",
            ) from error
        self._post = free(self._post, post)
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(self.workers, context, _arrive, (sent,))

    def submit(self, step: Step, attempt: Attempt, items: list[tuple[Any, Any]]) -> None:
        """Send a batch to the next process that is free."""
        assert self._pool is not None
        post = self._post
        assert post is not None

        def ended(done: Future[Outcome]) -> None:
            if not done.cancelled():
                post(attempt, done.exception() or _returned(done.result(), attempt))

        try:
            self._pool.submit(_elsewhere, attempt.index, items).add_done_callback(ended)
        except BrokenProcessPool as error:  # another batch has ended its process
            post(attempt, error)

    def superseded(self, attempt: Attempt) -> None:
        """What runs elsewhere runs on; its result is dropped."""

    def pump(self) -> bool:
        """The coordinator only coordinates."""
        return False

    def stop(self) -> None:
        """End the processes, after the batches they are at."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._post = None


def free(busy: Post | None, post: Post) -> Post:
    """Return where to post results, if the executor is free: it works for one run at a time."""
    if busy is not None:
        raise InputError("the executor works for another run", remedy="give each run an executor of its own")
    return post


def _returned(outcome: Outcome, attempt: Attempt) -> Outcome | BaseException:
    """What came back from a process; a key that is not equal to its copy cannot be matched."""
    named_in = {key for key, _ in (*outcome.changed, *outcome.errors)} | {each[0] for each in outcome.writes}
    strange = [key for key in named_in if key is not None and key not in attempt.items]
    if not strange:
        return outcome
    return InputError(
        f"key {named(strange[0])} is not equal to its copy that comes back from another process",
        remedy="use keys that compare by what they hold, or threads",
    )


_steps: list[Step] = []
_unread: list[str] = []  # why the steps are not there


def _arrive(sent: bytes) -> None:
    """Begin in another process: Ctrl-C there is for the coordinator to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _steps[:] = pickle.loads(sent)  # noqa: S301 (sent by the process that started this one)
    except Exception as error:  # noqa: BLE001 (whatever a step's module raises; reported when work comes)
        _unread.append(f"{type(error).__name__}: {error}")


def _elsewhere(index: int, items: list[tuple[Any, Any]]) -> Outcome:
    if _unread:
        raise InputError(
            f"the steps cannot be read in another process: {_unread[0]}",
            remedy="define functions and classes of steps in a module that can be imported, or use threads",
        )
    start = time.perf_counter()
    outcome = work(_steps[index], items)
    outcome.errors = [(key, sendable(error)) for key, error in outcome.errors]
    return replace(outcome, seconds=time.perf_counter() - start, worker=os.getpid())


def sendable(error: BaseException) -> BaseException:
    """An error as it arrives in the other process; one that cannot be pickled is sent as text."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 (made in the line itself)
    except Exception:  # noqa: BLE001 (whatever an error's own pickling raises)
        return RuntimeError("".join(traceback.format_exception(error)))
    return error
