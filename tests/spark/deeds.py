"""Functions that run in Spark tasks: of a module, so that workers find them by name."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from trueline.errors import HashMismatch, StorageFull
from trueline.kernel.tasks import task_progress


@dataclass(frozen=True)
class Sum:
    """A small descriptor."""

    left: int
    right: int


@dataclass(frozen=True)
class Sized:
    """A descriptor that knows how many bytes it stands for."""

    size: int
    rows: int


def make_rows(what: Sized) -> int:
    task_progress().advance(size=what.size, rows=what.rows)
    return what.rows


def add(what: Sum) -> int:
    return what.left + what.right


def square(number: int) -> int:
    return number * number


def interpreter(_: int) -> tuple[str, str]:
    import sys

    return sys.executable, os.environ.get("TZ", "")


def note(path: str) -> int:
    """Leave a trace of this run beside the others."""
    descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(descriptor, b"x")
    os.close(descriptor)
    return os.getpid()


def refuse_three(number: int) -> int:
    if number == 3:
        raise HashMismatch(
            "slice f1620 is damaged", remedy="restore it", expected="f1620a", found=[1, {"b": 2}]
        )
    return number


def fill(number: int) -> int:
    raise StorageFull("no space left", remedy="make room", path="somewhere", number=number)


def fill_quoting(data: str) -> int:
    raise StorageFull(f"no space left for {data}", remedy="make room")


def carry_much(number: int) -> int:
    raise HashMismatch("x" * 1000, remedy="r", text="y" * number)


def carry_a_lock(_: int) -> int:
    import threading

    raise HashMismatch("cannot be packed", remedy="r", lock=threading.Lock())


def divide(number: int) -> float:
    return 1 / number


def unpackable(_: int) -> object:
    import threading

    return threading.Lock()


def die(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def wait_at(path: str) -> str:
    """Come back at once for no path; else wait until someone opens the other end of the pipe."""
    return Path(path).read_text() if path else ""


def count_rows(partition: int, batches) -> tuple[int, list[int]]:
    return partition, [value for batch in batches for value in batch.column(0).to_pylist()]


def fail_on_partition(partition: int, batches) -> int:
    if partition == 1:
        raise StorageFull("no space left", remedy="make room", partition=partition)
    return sum(batch.num_rows for batch in batches)
