"""Running readers at once, with a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from trueline.testing.kit import Broken

T = TypeVar("T")


def at_once(jobs: Sequence[Callable[[], T]], patience: float, what: str, remedy: str) -> list[T]:
    """Run jobs in threads that start together; raise what the first of them raised, or that they hang."""
    found: dict[int, T] = {}
    raised: list[BaseException] = []
    start = threading.Barrier(len(jobs))

    def run(number: int, job: Callable[[], T]) -> None:
        start.wait()
        try:
            found[number] = job()
        except BaseException as error:  # noqa: BLE001 (raised again below)
            raised.append(error)

    threads = [
        threading.Thread(target=run, args=each, name=f"trueline-kit-{each[0]}", daemon=True)
        for each in enumerate(jobs)
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            raise Broken(f"{what} do not end within {patience:g} s", remedy)
    if raised:
        raise raised[0]
    return [found[number] for number in range(len(jobs))]
