"""Work cut into pieces: the protocol that Spark implements too, and the way without Spark."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from typing import Final, Protocol, TypeVar

from trueline import console
from trueline.errors import InputError, OutOfMemory, TaskFailed, TruelineError, check_memory

Descriptor = TypeVar("Descriptor")
Result = TypeVar("Result")

# Frames of a traceback that are kept: the last ones, where it happened.
_FRAMES: Final = 8
# Seconds between two looks at how far tasks are.
_PACE = 0.1


class Tasks(Protocol):
    """Something that applies a function to many small descriptors.

    The function reads and writes by itself; only descriptors go in and small results come out. It may run
    more than once for one descriptor (Spark retries and speculates), so it must be idempotent: content-
    addressed writes are. It is a function of a module, descriptors can be pickled, and results are plain data
    or of the types that `trueline.spark.results` lists: what comes back is read without running anything.
    """

    def map(
        self, function: Callable[[Descriptor], Result], descriptors: Sequence[Descriptor], *, label: str
    ) -> Iterator[tuple[int, Result]]:
        """Yield (index, result), each index exactly once, in any order.

        A `TruelineError` raised by the function comes out as it is, with its fields; anything else as
        `TaskFailed`. After an error no further result follows. In this process the error is that of the first
        descriptor that fails, and what comes before it has been yielded.
        """


def measured(descriptors: Sequence[object]) -> tuple[str, list[int]]:
    """Say how large each piece of work is, in bytes or rows where all of them know it, else one by one.

    >>> measured([1, 2])
    ('', [1, 1])
    """
    for attribute, unit in (("size", "bytes"), ("rows", "rows")):
        sizes = [getattr(each, attribute, None) for each in descriptors]
        known = [size for size in sizes if type(size) is int]
        if sizes and len(known) == len(sizes) and sum(known):
            return f", {unit}", known
    return "", [1] * len(descriptors)


class TaskProgress:
    """How far a task is: the bytes it has read and the rows it has made so far.

    >>> work = TaskProgress()
    >>> work.advance(size=10, rows=2)
    >>> work.size, work.rows
    (10, 2)
    """

    __slots__ = ("_moved", "rows", "size")

    def __init__(self, moved: Callable[[], None] | None = None) -> None:
        self.size = self.rows = 0
        self._moved = moved

    def advance(self, *, size: int = 0, rows: int = 0) -> None:
        """Say that more bytes were read, or more rows made."""
        self.size += size
        self.rows += rows
        if self._moved is not None:
            self._moved()


class _Running(threading.local):
    """The task that a thread works on."""

    progress: TaskProgress | None = None


_running = _Running()


def task_progress() -> TaskProgress:
    """Return the progress of the task that this thread works on; where none is followed, one of no effect."""
    return _running.progress or TaskProgress()


@contextmanager
def following(progress: TaskProgress) -> Iterator[TaskProgress]:
    """Let what this thread does be the progress of one task.

    >>> with following(TaskProgress()) as work:
    ...     task_progress().advance(rows=3)
    >>> work.rows
    3
    """
    before = _running.progress
    _running.progress = progress
    try:
        yield progress
    finally:
        _running.progress = before


class _Followed:
    """Shows how far all tasks are; drawn by the thread that waits for them, for a console has one user."""

    def __init__(self, bar: console.Progress, label: str, unit: str, sizes: list[int]) -> None:
        self._bar, self._label, self._sizes = bar, f"{label}{unit}", sizes
        self._in_bytes = unit == ", bytes"
        self._under_way: dict[int, TaskProgress] = {}
        self._size = self._rows = self._shown = 0
        self._thread, self._drawn = threading.get_ident(), time.monotonic()

    def run(self, function: Callable[[Descriptor], Result], index: int, descriptor: Descriptor) -> Result:
        """Do one task in this thread."""
        self._under_way[index] = TaskProgress(self.look)
        with following(self._under_way[index]):
            return function(descriptor)

    def done(self, index: int) -> None:
        """Take note of a task that is done."""
        self._size += self._sizes[index]
        self._rows += self._under_way.pop(index).rows
        self.draw()

    def look(self) -> None:
        """Draw if that is due, and this thread may."""
        if threading.get_ident() == self._thread and time.monotonic() - self._drawn >= _PACE:
            self.draw()

    def draw(self) -> None:
        """Show how much is done."""
        self._drawn = time.monotonic()
        tasks = list(self._under_way.items())
        size = self._size
        if self._in_bytes:
            # Bytes may be read twice: a task has no more than it said.
            size += sum(min(each.size, self._sizes[index]) for index, each in tasks)
        if size > self._shown:
            self._bar.advance(size - self._shown)
            self._shown = size
        rows = self._rows + sum(each.rows for _, each in tasks)
        if rows:
            self._bar.describe(f"{self._label}, {rows:,} rows")


class InlineTasks:
    """Tasks in this process: one after another, or on a few threads (Arrow and hashing release the GIL).

    >>> sorted(InlineTasks(workers=2).map(abs, [-3, 2, -1], label="counting"))
    [(0, 3), (1, 2), (2, 1)]
    """

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise InputError(f"{workers} workers are too few", remedy="give 1 or more")
        self.workers = workers

    def map(
        self, function: Callable[[Descriptor], Result], descriptors: Sequence[Descriptor], *, label: str
    ) -> Iterator[tuple[int, Result]]:
        """Yield (index, result), each index exactly once."""
        work = self._in_turn if self.workers == 1 or len(descriptors) < 2 else self._on_threads
        unit, sizes = measured(descriptors)
        with console.current().progress(f"{label}{unit}", sum(sizes)) as bar:
            followed = _Followed(bar, label, unit, sizes)
            for index, result in work(function, descriptors, label, followed):
                followed.done(index)
                yield index, result

    def _in_turn(
        self,
        function: Callable[[Descriptor], Result],
        descriptors: Sequence[Descriptor],
        label: str,
        followed: _Followed,
    ) -> Iterator[tuple[int, Result]]:
        for index, descriptor in enumerate(descriptors):
            try:
                result = followed.run(function, index, descriptor)
            except Exception as error:
                raise failure(error, label=label, index=index) from error
            yield index, result

    def _on_threads(
        self,
        function: Callable[[Descriptor], Result],
        descriptors: Sequence[Descriptor],
        label: str,
        followed: _Followed,
    ) -> Iterator[tuple[int, Result]]:
        """Keep two descriptors per thread under way, so that an early end leaves little undone.

        Of several that fail the first in order is raised, whichever thread was faster: what was begun before
        one that failed is waited for, and nothing more is begun.
        """
        coming: Iterator[tuple[int, Descriptor]] = enumerate(descriptors)
        under_way: dict[Future[Result], int] = {}
        failed: tuple[int, Exception] | None = None
        with ThreadPoolExecutor(self.workers, thread_name_prefix="trueline-task") as pool:
            try:
                while True:
                    for index, descriptor in islice(coming, 2 * self.workers - len(under_way)):
                        under_way[pool.submit(followed.run, function, index, descriptor)] = index
                    if not under_way:
                        break
                    followed.look()
                    for future in wait(under_way, _PACE, return_when=FIRST_COMPLETED).done:
                        index = under_way.pop(future)
                        error = future.exception()
                        if not isinstance(error, Exception):
                            yield index, future.result()
                        elif failed is None or index < failed[0]:
                            failed = index, error
                    if failed is not None:
                        coming = iter(())
                        for future in [each for each, index in under_way.items() if index > failed[0]]:
                            future.cancel()
                            del under_way[future]
            finally:
                for future in under_way:
                    future.cancel()
        if failed is not None:
            raise failure(failed[1], label=label, index=failed[0]) from failed[1]


def apply(
    tasks: Tasks, function: Callable[[Descriptor], Result], descriptor: Descriptor, *, label: str
) -> Result:
    """Apply a function to one descriptor where the tasks run; in this process as it is.

    >>> apply(InlineTasks(), abs, -3, label="counting")
    3
    """
    if isinstance(tasks, InlineTasks):
        return function(descriptor)
    ((_, result),) = tasks.map(function, [descriptor], label=label)
    return result


def failure(error: Exception, *, label: str, index: int) -> TruelineError:
    r"""Return what a task's exception comes out as: itself if it is ours, else a `TaskFailed`.

    >>> str(failure(ZeroDivisionError("by zero"), label="writing slices", index=3))
    'writing slices: task 3 failed: ZeroDivisionError: by zero\n  → see the attribute traceback'
    """
    if isinstance(error, TruelineError):
        return error
    try:
        check_memory(error, label)
    except OutOfMemory as lacking:
        return lacking
    frames = traceback.extract_tb(error.__traceback__)
    shown = [frame for frame in frames if frame.filename != __file__][-_FRAMES:]
    place = f" ({shown[-1].filename}, line {shown[-1].lineno})" if shown else ""
    return TaskFailed(
        f"{label}: task {index} failed: {type(error).__name__}: {error}{place}",
        remedy="see the attribute traceback",
        label=label,
        index=index,
        error=type(error).__name__,
        traceback="".join(traceback.format_list(shown)) + f"{type(error).__name__}: {error}",
    )
