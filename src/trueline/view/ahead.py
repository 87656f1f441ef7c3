"""Reading pieces ahead of their reader: in order, by a few threads, with a bounded amount waiting."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from trueline.view.chunk import Chunk
from trueline.view.node import Piece

THREADS: Final = min(8, os.cpu_count() or 1)
# Chunks of one piece that wait for the reader; each thread holds one more in its hands.
_WAITING: Final = 4


def in_order(pieces: Sequence[Piece], threads: int = THREADS) -> Iterator[tuple[int, Chunk]]:
    """Yield (number of the piece, chunk) in the order of the pieces, which threads read ahead.

    Nothing is read before the first chunk is asked for. Closing the iterator ends the threads.
    """
    if len(pieces) < 2 or threads < 2:
        for number, piece in enumerate(pieces):
            for chunk in piece.chunks():
                yield number, chunk
        return
    ahead = _Ahead(pieces, min(threads, len(pieces)))
    try:
        yield from ahead.run()
    finally:
        ahead.stop()


class _Ahead:
    """Threads that take pieces in turn, each filling the line of its piece until its reader comes."""

    def __init__(self, pieces: Sequence[Piece], threads: int) -> None:
        self.pieces = pieces
        self.lines: dict[int, deque[Chunk | BaseException | None]] = {}
        self.changed = threading.Condition()
        self.next = 0
        self.reading = 0
        self.window = threads
        self.stopped = False
        self.threads = [
            threading.Thread(target=self._work, name=f"trueline-ahead-{number}", daemon=True)
            for number in range(threads)
        ]

    def run(self) -> Iterator[tuple[int, Chunk]]:
        for thread in self.threads:
            thread.start()
        for number in range(len(self.pieces)):
            while True:
                with self.changed:
                    self.changed.wait_for(lambda number=number: self.lines.get(number))  # type: ignore[misc]
                    found = self.lines[number].popleft()
                    if found is None:
                        del self.lines[number]
                        self.reading = number + 1
                    self.changed.notify_all()
                if found is None:
                    break
                if isinstance(found, BaseException):
                    raise found
                yield number, found

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
        for thread in self.threads:
            if thread.ident is not None:
                thread.join()

    def _work(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(
                    lambda: (
                        self.stopped
                        or self.next >= len(self.pieces)
                        or self.next < self.reading + self.window
                    )
                )
                if self.stopped or self.next >= len(self.pieces):
                    return
                number = self.next
                self.next += 1
                self.lines[number] = deque()
            try:
                chunks = self.pieces[number].chunks()
                for chunk in chunks:
                    if not self._put(number, chunk):
                        return
            except BaseException as error:  # noqa: BLE001 (the reader gets it, where it reads)
                self._put(number, error)
                return
            if not self._put(number, None):
                return

    def _put(self, number: int, found: Chunk | BaseException | None) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or len(self.lines[number]) < _WAITING)
            if self.stopped:
                return False
            self.lines[number].append(found)
            self.changed.notify_all()
            return True
