"""Calls made beside the caller: syncing, hashing and encoding leave the interpreter free for other work."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar, cast

T = TypeVar("T")

# A commit syncs three files at once, one of them by itself; its rows are hashed meanwhile.
_THREADS: Final = 3


class Errand(Generic[T]):
    """A call that another thread makes; `wait` returns what it returned, or raises what it raised."""

    __slots__ = ("_call", "_done", "_error", "_result")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._done = threading.Lock()
        self._done.acquire()
        self._error: BaseException | None = None
        self._result: T | None = None

    def run(self) -> None:
        """Make the call and keep its outcome."""
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001  # it is raised where it is waited for
            self._error = error
        finally:
            self._done.release()

    def wait(self) -> T:
        """Wait for the call to end; may be repeated."""
        with self._done:
            pass
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


class _Threads:
    """The threads and what waits for them; started when first needed."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Errand[Any]] = SimpleQueue()
        self._starting = threading.Lock()
        self._started = False

    def send(self, errand: Errand[Any]) -> None:
        if not self._started:
            self._start()
        self._waiting.put(errand)

    def _start(self) -> None:
        with self._starting:
            for number in range(0 if self._started else _THREADS):
                name = f"trueline-aside-{number}"
                threading.Thread(target=_serve, args=(self._waiting,), name=name, daemon=True).start()
            self._started = True


def _serve(waiting: SimpleQueue[Errand[Any]]) -> None:
    while True:
        waiting.get().run()


_threads = _Threads()
# A forked child has none of its parent's threads, nor their errands.
os.register_at_fork(after_in_child=_threads.__init__)  # type: ignore[misc]


def aside(call: Callable[..., T], *args: object) -> Errand[T]:
    """Begin a call in one of a few threads that are kept; it must not wait for another errand.

    >>> errand = aside(sum, [1, 2])
    >>> errand.wait()
    3
    """
    errand = Errand(lambda: call(*args))
    _threads.send(errand)
    return errand


def wait_for_all(errands: Iterable[Errand[Any]]) -> None:
    """Wait until every call has ended, then raise what the first that failed has raised."""
    failed: BaseException | None = None
    for errand in errands:
        try:
            errand.wait()
        except BaseException as error:  # noqa: BLE001  # raised below, when nothing is under way any more
            failed = failed or error
    if failed is not None:
        raise failed
