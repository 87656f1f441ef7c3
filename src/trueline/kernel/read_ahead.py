"""Reading ahead of a reader: in order, by a few threads, with a bounded amount waiting."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextvars import copy_context
from typing import Final, Generic, TypeVar

S = TypeVar("S")
T = TypeVar("T")

THREADS: Final = min(8, os.cpu_count() or 1)
# What waits for the reader of one stream; each thread holds one more in its hands.
_WAITING: Final = 4


class Background(Generic[T]):
    """One stream, read ahead by a thread of its own from the moment it is made."""

    def __init__(self, stream: Callable[[], Iterator[T]]) -> None:
        self._ahead = ReadAhead(lambda _: stream(), 1, 1)
        self._ahead.start()
        self._items = self._ahead.run()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return next(self._items)[1]

    def close(self) -> None:
        """End the thread, which lets go of the stream."""
        self._items.close()
        self._ahead.stop()

    def __del__(self) -> None:
        self._ahead.stop()


class ReadAhead(Generic[T]):
    """Threads that take streams in turn, each filling the line of its stream until the reader comes.

    Streams are opened, read and closed by the thread that took them. An error
    waits in its line, so the reader gets everything that was before it.
    """

    def __init__(self, stream: Callable[[int], Iterator[T]], streams: int, threads: int) -> None:
        self._stream = stream  # by its number
        self._streams = streams
        self._lines: dict[int, deque[T | BaseException | _End]] = {}
        self._changed = threading.Condition()
        self._next = 0
        self._reading = 0
        self._window = threads + 1  # so that a thread need not wait until the reader has seen an end
        self._stopped = False
        self._threads = [
            # Each in a copy of the reader's context: warnings go to its console.
            threading.Thread(
                target=copy_context().run, args=(self._work,), name=f"trueline-ahead-{number}", daemon=True
            )
            for number in range(threads)
        ]

    def __enter__(self) -> ReadAhead[T]:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to read."""
        for thread in self._threads:
            thread.start()

    def run(self) -> Generator[tuple[int, T], None, None]:
        """Yield (number of the stream, item) in order."""
        for number in range(self._streams):
            while True:
                found = self._take(number)
                if isinstance(found, _End):
                    break
                if isinstance(found, BaseException):
                    raise found
                yield number, found

    def _take(self, number: int) -> T | BaseException | _End:
        with self._changed:
            self._changed.wait_for(lambda: self._lines.get(number))
            found = self._lines[number].popleft()
            if isinstance(found, _End):
                del self._lines[number]
                self._reading = number + 1
            self._changed.notify_all()
            return found

    def stop(self) -> None:
        """End the threads, and wait until they have let go of what they read."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            # The last to drop a reader may be one of its own threads.
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join()

    def _work(self) -> None:
        while (number := self._claim()) is not None:
            try:
                ended = self._fill(number)
            except BaseException as error:  # noqa: BLE001 (the reader gets it, where it reads)
                self._put(number, error)
                return
            if not ended or not self._put(number, _End()):
                return

    def _claim(self) -> int | None:
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._stopped or self._next >= self._streams or self._next < self._reading + self._window
                )
            )
            if self._stopped or self._next >= self._streams:
                return None
            number, self._next = self._next, self._next + 1
            self._lines[number] = deque()
            return number

    def _fill(self, number: int) -> bool:
        """Read a stream to its end, or until it is no longer wanted."""
        stream = self._stream(number)
        try:
            return all(self._put(number, item) for item in stream)
        finally:
            if hasattr(stream, "close"):
                stream.close()

    def _put(self, number: int, found: T | BaseException | _End) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or len(self._lines[number]) < _WAITING)
            if self._stopped:
                return False
            self._lines[number].append(found)
            self._changed.notify_all()
            return True


class _End:
    """Marks in a queue where its stream ends."""
