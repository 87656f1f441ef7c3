"""Work cut into pieces: the protocol that Spark implements too, and the way without Spark."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Final, Protocol, TypeVar

from trueline import console
from trueline.errors import InputError, OutOfMemory, TaskFailed, TruelineError, check_memory

Descriptor = TypeVar("Descriptor")
Result = TypeVar("Result")

# Frames of a traceback that are kept: the last ones, where it happened.
_FRAMES: Final = 8


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
        `TaskFailed`. After an error no further result follows.
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
            for done in work(function, descriptors, label):
                bar.advance(sizes[done[0]])
                yield done

    def _in_turn(
        self, function: Callable[[Descriptor], Result], descriptors: Sequence[Descriptor], label: str
    ) -> Iterator[tuple[int, Result]]:
        for index, descriptor in enumerate(descriptors):
            try:
                result = function(descriptor)
            except Exception as error:
                raise failure(error, label=label, index=index) from error
            yield index, result

    def _on_threads(
        self, function: Callable[[Descriptor], Result], descriptors: Sequence[Descriptor], label: str
    ) -> Iterator[tuple[int, Result]]:
        """Keep two descriptors per thread under way, so that an early end leaves little undone."""
        coming = iter(enumerate(descriptors))
        under_way: dict[Future[Result], int] = {}
        with ThreadPoolExecutor(self.workers, thread_name_prefix="trueline-task") as pool:
            try:
                while True:
                    for index, descriptor in islice(coming, 2 * self.workers - len(under_way)):
                        under_way[pool.submit(function, descriptor)] = index
                    if not under_way:
                        return
                    for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                        index = under_way.pop(future)
                        error = future.exception()
                        if isinstance(error, Exception):
                            raise failure(error, label=label, index=index) from error
                        yield index, future.result()
            finally:
                for future in under_way:
                    future.cancel()


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
