"""Classic and Connect behind one adapter: threads, tags, cancelling."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from trueline.spark.progress import Counter, Handled, Tracked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_POOL: Final = "spark.scheduler.pool"
# Bytes that are brought to the driver by one job, where partitions are smaller.
_AT_ONCE: Final = 16 << 20
_MOST_BYTES: Final = "spark.driver.maxResultSize"


class SessionAdapter(ABC):
    """What differs between the two kinds of session."""

    is_connect: bool

    def __init__(self, session: Any) -> None:
        self.session = session

    @abstractmethod
    def thread(self, work: Callable[[], None]) -> threading.Thread:
        """Return a thread that has inherited the caller's properties (scheduler pool, job group, tags)."""

    @abstractmethod
    def mark(self, tag: str, label: str, pool: str | None = None) -> None:
        """Tag and describe the jobs of the current thread, which is one of ours and ends with the job.

        They run in a `pool` of the scheduler, where one can be reached.
        """

    @abstractmethod
    def clear(self, tag: str) -> None:
        """Clear what `mark` has set in the current thread."""

    @abstractmethod
    def cancel(self, tag: str) -> None:
        """Cancel the jobs with a tag, in any thread."""

    @abstractmethod
    def values(self, frame: Any, sizes: Mapping[int, int] | None = None) -> Iterator[bytes]:
        """Yield the values of a frame of one binary column, a few MiB or a partition at a time.

        `sizes` says how many bytes partitions have, if that is known; those without any have none.
        """

    @abstractmethod
    def numbers(self, count: int, parts: int) -> DataFrame:
        """Return the numbers of the pieces that tasks read, in so many partitions; no job is started.

        What tasks make of a few numbers may be anything. Spark has to know that: it sends what it takes for
        small to all executors, through the driver (exchange:E2).
        """

    @abstractmethod
    def counter(self, tag: str, thread: threading.Thread) -> Counter:
        """Return something that counts the tasks of the jobs with a tag, run by a thread."""


def engine_of(session: SparkSession) -> SessionAdapter:
    """Return the adapter for a session."""
    connect = type(session).__module__.startswith("pyspark.sql.connect")
    return Connect(session) if connect else Classic(session)


# --- classic ------------------------------------------------------------------------


class Classic(SessionAdapter):
    """A session whose JVM this process can reach."""

    is_connect = False

    def thread(self, work: Callable[[], None]) -> threading.Thread:
        from pyspark import InheritableThread

        return InheritableThread(target=work, daemon=True)

    def mark(self, tag: str, label: str, pool: str | None = None) -> None:
        context = self.session.sparkContext
        # Tags of the session itself cannot be cancelled from another thread; those of the context can.
        context.addJobTag(tag)
        context.setInterruptOnCancel(True)
        context.setJobDescription(label)
        if pool is not None:
            context.setLocalProperty(_POOL, pool)

    def clear(self, tag: str) -> None:
        context = self.session.sparkContext
        context.removeJobTag(tag)
        for name in (_POOL, "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)

    def cancel(self, tag: str) -> None:
        self.session.sparkContext.cancelJobsWithTag(tag)

    def values(self, frame: Any, sizes: Mapping[int, int] | None = None) -> Iterator[bytes]:
        # The frame's own `toLocalIterator` unpickles what executors send, and runs a job for each partition.
        rows = frame._jdf.toJavaRDD()  # noqa: SLF001 (no public way has the rows as the JVM has them)
        if sizes is not None:
            for parts in self._ahead([partial(self._partitions, rows, each) for each in together(sizes)]):
                yield from (bytes(row.get(0)) for part in parts for row in part)
            return
        count, first, at_once = rows.getNumPartitions(), 0, 1
        while first < count:
            numbers = range(first, min(first + at_once, count))
            try:
                parts = self._partitions(rows, numbers)
            except Exception as error:
                if at_once == 1 or _MOST_BYTES not in str(error):
                    raise
                # Together they are more than Spark lets a driver have; one by one they may not be.
                at_once = 1
                continue
            size = 0
            for part in parts:
                for row in part:
                    value = bytes(row.get(0))
                    size += len(value)
                    yield value
            first = numbers.stop
            # Small partitions come several in a job, so many that they are about as large as the limit.
            at_once = max(1, min(2 * at_once, _AT_ONCE * len(numbers) // max(size, 1)))

    def _ahead(self, jobs: Sequence[Callable[[], Any]]) -> Iterator[Any]:
        """Yield the results of jobs; the next one runs while one is read."""
        coming = _Started(self, jobs[0]) if jobs else None
        for number in range(len(jobs)):
            assert coming is not None
            found = coming.get()
            coming = _Started(self, jobs[number + 1]) if number + 1 < len(jobs) else None
            try:
                yield found
            except GeneratorExit:
                if coming is not None:
                    coming.thread.join()
                raise

    def _partitions(self, rows: Any, numbers: Sequence[int]) -> Any:
        """Return the rows of some partitions, by one job."""
        gateway = self.session.sparkContext._gateway  # noqa: SLF001 (arrays of Java are made by it only)
        wanted = gateway.new_array(gateway.jvm.int, len(numbers))
        for place, number in enumerate(numbers):
            wanted[place] = number
        return rows.collectPartitions(wanted)

    def numbers(self, count: int, parts: int) -> DataFrame:
        from pyspark.sql import DataFrame

        # A range is as large as its numbers; of rows that are an RDD Spark does not know how large they are.
        java = self.session._jsparkSession  # noqa: SLF001 (PySpark has them for Python's rows only)
        made = java.range(0, count, 1, max(1, parts))
        rows = java.internalCreateDataFrame(made.queryExecution().toRdd(), made.schema(), False)
        return DataFrame(rows, self.session)

    def counter(self, tag: str, thread: threading.Thread) -> Counter:
        return Tracked(self.session.sparkContext, tag)


class _Started:
    """A job that was started by a thread, which has the properties of the one that made it."""

    def __init__(self, engine: SessionAdapter, job: Callable[[], Any]) -> None:
        self._job = job
        self._answer: Any = None
        self._error: BaseException | None = None
        self.thread = engine.thread(self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._job()
        except BaseException as error:  # noqa: BLE001 (handed to the one who asks for the answer)
            self._error = error

    def get(self) -> Any:
        """Wait for what it found."""
        self.thread.join()
        if self._error is not None:
            raise self._error
        return self._answer


def together(sizes: Mapping[int, int]) -> list[list[int]]:
    """Return partitions that are fetched by one job each time: several, unless they have too many bytes.

    >>> together({0: 9 << 20, 1: 7 << 20, 4: 1, 5: 20 << 20})
    [[0, 1], [4], [5]]
    """
    found: list[list[int]] = []
    held = 0
    for number in sorted(sizes):
        if not found or held + sizes[number] > _AT_ONCE:
            found.append([])
            held = 0
        found[-1].append(number)
        held += sizes[number]
    return found


# --- Connect ------------------------------------------------------------------------


class Connect(SessionAdapter):
    """A session whose JVM is elsewhere."""

    is_connect = True

    def thread(self, work: Callable[[], None]) -> threading.Thread:
        from pyspark import InheritableThread

        return InheritableThread(target=work, session=self.session, daemon=True)

    def mark(self, tag: str, label: str, pool: str | None = None) -> None:
        self.session.addTag(tag)

    def clear(self, tag: str) -> None:
        self.session.removeTag(tag)

    def cancel(self, tag: str) -> None:
        self.session.interruptTag(tag)

    def values(self, frame: Any, sizes: Mapping[int, int] | None = None) -> Iterator[bytes]:
        # Here rows come as Arrow, from one job whose tasks run ahead of the reader.
        del sizes
        return (bytes(value) for (value,) in frame.toLocalIterator())

    def numbers(self, count: int, parts: int) -> DataFrame:
        # No size can be said here; where it matters, a join by a shuffle is asked for.
        made: DataFrame = self.session.range(0, count, 1, max(1, parts))
        return made

    def counter(self, tag: str, thread: threading.Thread) -> Counter:
        return Handled(self.session, thread)
