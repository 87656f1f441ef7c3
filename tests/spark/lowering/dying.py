"""Work whose executor is killed once in the middle of it, by the work itself: SIGKILL, as a power cut would.

It is a module of its own, so that executors import it: what a driver's `__main__` has travels by value.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from trueline.spark.lowering.layout import Layout
from trueline.spark.lowering.lowered import TaskWork

_EXECUTOR = b"CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Death:
    """Kills an executor at each of some places, the first time work comes there."""

    folder: Path
    places: tuple[str, ...]

    def at(self, place: str) -> None:
        """Kill the executor this runs on, if it is the time and the place."""
        if place not in self.places:
            return
        try:
            os.close(os.open(self.folder / place, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(executor(), signal.SIGKILL)
        # This process ends with it; nothing that was made may come out before.
        signal.pause()

    @property
    def happened(self) -> list[str]:
        """Where executors were killed."""
        return [place for place in self.places if (self.folder / place).exists()]


def executor() -> int:
    """Return the process of the executor that runs this task: one of those this one was started by."""
    number = os.getpid()
    while number > 1:
        if _EXECUTOR in Path(f"/proc/{number}/cmdline").read_bytes():
            return number
        status = Path(f"/proc/{number}/status").read_text()
        number = int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1])
    raise AssertionError("this does not run on an executor")


class DyingWork(TaskWork):
    """What a task of a view does, dying after its first rows: while it reads, or after an exchange."""

    death: Death

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, also to a task that writes them."""
        for batch in super().rows(batches):
            yield batch
            self.death.at("exchanged" if isinstance(self.given, Layout) else "reading")


@dataclass(frozen=True)
class DyingRows:
    """Hands on rows that a shuffle has brought into order, dying in the middle of it."""

    death: Death

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            self.death.at("ranges")


@dataclass(frozen=True)
class DyingFunction:
    """What tasks do for each descriptor, dying when one is done and nobody was told."""

    function: Callable[[Any], Any]
    death: Death

    def __call__(self, descriptor: Any) -> Any:
        result = self.function(descriptor)
        self.death.at("tasks")
        return result


@dataclass(frozen=True)
class Stalling:
    """Hands on rows; the first attempt of the first partition waits until a second one is through.

    Without a speculative duplicate it waits for ever.
    """

    pipe: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        is_first, is_stalling = context.attemptNumber() == 0, context.partitionId() == 0
        for number, batch in enumerate(batches):
            if is_stalling and is_first and number == 0:
                self.pipe.read_bytes()
            yield batch
        if is_stalling and not is_first:
            try:
                os.close(os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                return
            Path(f"{self.pipe}-duplicated").touch()
