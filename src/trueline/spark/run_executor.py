"""Runs on Spark: a batch is a job, a key a task; what is no longer needed is cancelled.

Values are references (`trueline.dataset.prepare.Rows`: a digest and a
place), never rows. A task writes to a place of its own and hands back the
reference; only the coordinator, which knows whether the value it was made from
is still the newest, puts it into the result. So nothing depends on a job
being cancelled in time, or on a task running once.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from trueline.errors import InputError, SparkFailed
from trueline.run.attempt import Attempt, Outcome, work
from trueline.run.executors import Post, free
from trueline.run.step import Step
from trueline.spark.errors import translated
from trueline.spark.packing import pack, unpack
from trueline.spark.progress import PACE
from trueline.spark.results import decode, encode, unreadable
from trueline.spark.session import SparkRoom, adopt, start
from trueline.spark.tasks import ARROW, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["Spark"]

# Of the scheduler: work on final values goes ahead of work that may be thrown away (pools.xml).
FINAL: Final = "trueline-final"
AHEAD: Final = "trueline-ahead"


class _Job:
    """An attempt that is under way: the tag of its Spark jobs, and the thread that waits for them."""

    def __init__(self, attempt: Attempt, tag: str) -> None:
        self.attempt = attempt
        self.tag = tag
        self.thread: threading.Thread | None = None

    @property
    def is_over(self) -> bool:
        """Whether its thread has ended."""
        return self.thread is not None and not self.thread.is_alive()

    def join(self, seconds: float) -> None:
        """Wait a while for it to end."""
        assert self.thread is not None
        self.thread.join(seconds)


class Spark:
    """Batches as jobs of a Spark, classic or Connect: `Run(steps, executor=Spark(session))`.

    Steps go to the tasks by their code, values are references or small
    plain values; a table is refused. `room` is a room or a session; without
    it that of this process is used.
    """

    # A job takes 0.1 to 0.4 s even when it does nothing: batches are made to outweigh that.
    batch_seconds: Final = 2.0

    def __init__(self, room: SparkRoom | SparkSession | None = None, workers: int = 4) -> None:
        if workers < 1:
            raise InputError(f"workers={workers!r} is less than 1", remedy="give at least 1")
        self.workers = workers
        self.room = room if isinstance(room, SparkRoom) else start() if room is None else adopt(room)
        self._post: Post | None = None
        self._jobs: dict[int, _Job] = {}  # used by the coordinator's thread alone
        self._run = ""

    def start(self, steps: Sequence[Step], post: Post) -> None:
        """Make ready for a run; what its jobs are called is its own."""
        self._post = free(self._post, post)
        self._run = uuid.uuid4().hex

    def tag(self, number: int) -> str:
        """Return the tag of the jobs of an attempt, by its number in the run."""
        return f"trueline-run-{self._run}-{number}"

    def submit(self, step: Step, attempt: Attempt, items: list[tuple[Any, Any]]) -> None:
        """Start a job in a thread of its own, which ends with it and takes its properties along."""
        self._look_after()
        job = _Job(attempt, self.tag(attempt.number))
        job.thread = self.room.engine.thread(partial(self._work, job, step, items))
        job.thread.start()
        self._jobs[attempt.number] = job

    def superseded(self, attempt: Attempt) -> None:
        """Cancel the jobs of an attempt."""
        job = self._jobs.get(attempt.number)
        if job is not None and not job.is_over:
            self._cancel(job)

    def _look_after(self) -> None:
        """Forget what has ended; cancel again what has not and is not needed.

        A cancel does nothing to a job that is only about to start.
        """
        self._jobs = {number: job for number, job in self._jobs.items() if not job.is_over}
        for job in self._jobs.values():
            if job.attempt.token.superseded():
                self._cancel(job)

    def _cancel(self, job: _Job) -> None:
        # Best effort: if it fails, the result is dropped anyway.
        try:
            self.room.engine.cancel(job.tag)
        except Exception:  # noqa: BLE001 (Spark may be gone, and the job with it)
            return

    def pump(self) -> bool:
        """The coordinator only coordinates."""
        return False

    def stop(self) -> None:
        """Cancel what still runs, and wait until it has ended."""
        jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            while not job.is_over:
                if job.attempt.token.superseded():
                    self._cancel(job)
                job.join(PACE)
        self._post = None

    # --- in the thread of a job ---------------------------------------------------------

    def _work(self, job: _Job, step: Step, items: list[tuple[Any, Any]]) -> None:
        post, attempt = self._post, job.attempt
        assert post is not None
        begun = time.perf_counter()
        found: Outcome | BaseException
        try:
            found = self._outcome(job, step, items)
            found.seconds = time.perf_counter() - begun
        except BaseException as error:  # noqa: BLE001 (the coordinator raises it where it is caught)
            # A failure of work that is no longer needed is ignored: most often it is the cancel.
            found = Outcome([], [], []) if attempt.token.superseded() else error
        post(attempt, found)

    def _outcome(self, job: _Job, step: Step, items: list[tuple[Any, Any]]) -> Outcome:
        """Run the job of a batch; a Spark that fails fails the run, not the step."""
        if job.attempt.token.superseded():
            return Outcome([], [], [])
        engine = self.room.engine
        label = f"{step.name or type(step).__name__}, batch {job.attempt.number}"
        try:
            engine.mark(job.tag, label, AHEAD if job.attempt.speculative else FINAL)
            with translated():
                return self._collected(step, items)
        finally:
            engine.clear(job.tag)

    def _collected(self, step: Step, items: list[tuple[Any, Any]]) -> Outcome:
        outcome = Outcome([], [], [(key, _no_reference(key)) for key, value in items if _is_rows(value)])
        good = [item for item in items if not _is_rows(item[1])]
        # A step that processes several keys at once has them in one task, others have a task for each.
        batches = [good] if step.kind == "process" else [[item] for item in good]
        batches = [batch for batch in batches if batch]
        packed = [pack(batch) for batch in batches]
        if not packed:
            return outcome
        count = len(packed)
        frame = self.room.session.range(0, count, 1, count).mapInArrow(_Task(pack(step), packed), SCHEMA)
        table = frame.toArrow()
        done = dict(zip(table["id"].to_pylist(), table["result"].to_pylist(), strict=True))
        if len(done) != count:
            raise SparkFailed(f"{count - len(done)} of {count} tasks returned no result", remedy="try again")
        for number, batch in enumerate(batches):
            one = _read_answer(done.get(number), [key for key, _ in batch])
            outcome.changed += one.changed
            outcome.writes += one.writes
            outcome.errors += one.errors
        return outcome


class _Task:
    """What a task does: finds its keys by number, works on them, hands back what came of it."""

    def __init__(self, step: bytes, packed: list[bytes]) -> None:
        self.step, self.packed = step, packed

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.record_batch([[number], [self._answer(number)]], schema=ARROW)

    def _answer(self, number: int) -> bytes:
        items = unpack(self.packed[number])
        keys = [key for key, _ in items]
        try:
            return _answer(self._one(items), keys)
        except InputError as error:
            # Which of the values is not plain is not known any more: it is the failure of each.
            return _answer(Outcome([], [], [(key, error) for key in keys]), keys)

    def _one(self, items: list[tuple[Any, Any]]) -> Outcome:
        outcome = work(unpack(self.step), items)
        wrong: list[tuple[Any, BaseException]] = [
            (key, _no_reference(key)) for key, value in outcome.changed if _is_rows(value)
        ]
        wrong += [(source, _no_reference(key)) for source, key, value in outcome.writes if _is_rows(value)]
        if wrong:
            return Outcome([], [], wrong)
        return outcome


# Keys of the batch are named by their places, so that the coordinator has its own ones back.


def _answer(outcome: Outcome, keys: list[Any]) -> bytes:
    """Return what came of a batch as bytes; values that are not plain are refused."""
    places = {key: place for place, key in enumerate(keys)}
    return encode(
        (
            [(places[key], value) for key, value in outcome.changed],
            [
                (places.get(source), places.get(key), None if key in places else key, value)
                for source, key, value in outcome.writes
            ],
            [(places[key], error) for key, error in outcome.errors],
        )
    )


def _read_answer(data: object, keys: list[Any]) -> Outcome:
    found = decode(data)
    try:
        changed, writes, errors = found
        return Outcome(
            [(keys[place], value) for place, value in changed],
            [
                (None if source is None else keys[source], new if place is None else keys[place], value)
                for source, place, new, value in writes
            ],
            [(keys[place], error) for place, error in errors if isinstance(error, Exception)],
        )
    except (TypeError, ValueError, IndexError):
        raise unreadable("it does not say what happened to the keys") from None


def _is_rows(value: object) -> bool:
    return isinstance(value, pa.Table | pa.RecordBatch)


def _no_reference(key: object) -> InputError:
    return InputError(
        f"the value of {key!r} is a table, and steps on Spark pass references, not tables",
        remedy="keep the rows with Rows.keep(table, scratch), and wrap steps on tables by on_rows(step)",
        code="NotAReference",
    )
