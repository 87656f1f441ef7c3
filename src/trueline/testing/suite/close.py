"""K9: a cursor can be closed at any time, and leaves nothing behind."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from trueline.testing.kit import Broken, holds
from trueline.testing.subjects import ViewSubject
from trueline.view.cursor.row import Cursor

# A leak grows with every cursor; what a library sets up once does not.
_TIMES: Final = 4


@holds("view", "K9.closed", "view:C55")
def closed(subject: ViewSubject) -> None:
    """A closed cursor is not on a row and does not move; closing it again does nothing."""
    for moves in (0, 1, len(subject.serial) // 2, len(subject.serial) + 1):
        cursor = subject.view.cursor([])
        for _ in range(moves):
            cursor.move_next()
        cursor.close()
        if cursor.move_next():
            raise Broken(
                f"a cursor closed after {moves} moves can still move",
                "return False from move_next() after close()",
            )
        if cursor.position != -1:
            raise Broken(
                f"a cursor closed after {moves} moves has position {cursor.position}", "set it to -1"
            )
        cursor.close()


@holds("view", "K9.left", "view:C56")
def left(subject: ViewSubject) -> None:
    """A cursor or set that is closed early leaves no thread, no file and nothing temporary."""

    def once() -> None:
        for moves in (0, 1):
            for cursor in [subject.view.cursor(subject.all), *subject.view.cursor_set(subject.all, n=3)]:
                for _ in range(moves):
                    cursor.move_next()
                cursor.close()

    _grows(once, "closed early", "close what was opened, and end threads, in close()")


@holds("view", "K9.end", "view:C55")
def end(subject: ViewSubject) -> None:
    """A cursor at its end has released everything, closed or not."""
    held: list[Cursor] = []

    def once() -> None:
        for cursor in [subject.view.cursor(subject.all), *subject.view.cursor_set(subject.all, n=3)]:
            while cursor.move_next():
                pass
            held.append(cursor)

    try:
        _grows(once, "read to the end", "close when move_next() finds no row")
    finally:
        for cursor in held:
            cursor.close()


def _grows(once: Callable[[], None], what: str, remedy: str) -> None:
    with _temporary() as folder:
        once()
        before = _counted(folder)
        for _ in range(_TIMES):
            once()
        after = _counted(folder)
    for kind, count in before.items():
        if after[kind] - count >= _TIMES:
            raise Broken(f"{_TIMES} sets of cursors, {what}, left {after[kind] - count} {kind}", remedy)


def _counted(folder: Path) -> dict[str, int]:
    found = {"threads": threading.active_count(), "temporary files": sum(1 for _ in folder.iterdir())}
    descriptors = Path("/dev/fd")
    if descriptors.exists():
        found["open files"] = sum(1 for _ in descriptors.iterdir())
    return found


@contextmanager
def _temporary() -> Iterator[Path]:
    """A folder in which temporary files are made meanwhile, so that those left can be counted."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = before
