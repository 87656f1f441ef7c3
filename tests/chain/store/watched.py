"""Operations of the operating system that are counted, and made to fail or to kill."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from trueline.chain.store.files import Files

OPERATIONS = frozenset(name for name in vars(Files) if not name.startswith("_"))


class WatchedFiles(Files):
    """Keeps a log of what is done; `before` is called with the number and name of each operation.

    Some are done at the same time by several threads: each has a number of its own, and `before` and
    `after` are called by one thread at a time.
    """

    def __init__(self, before: Callable[[int, str, tuple[Any, ...]], None] | None = None) -> None:
        self.log: list[tuple[str, tuple[Any, ...]]] = []
        self.before = before
        self.after: Callable[[str, tuple[Any, ...]], None] | None = None
        self.failed = False
        self._mutex = threading.RLock()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in OPERATIONS:
            return found

        def operation(*args: Any, **kwargs: Any) -> Any:
            with self._mutex:
                self.log.append((name, args))
                if self.before is not None:
                    self.before(len(self.log), name, args)
            result = found(*args, **kwargs)
            if self.after is not None:
                with self._mutex:
                    self.after(name, args)
            return result

        return operation

    @property
    def counts(self) -> Counter[str]:
        return Counter(name for name, _ in self.log)

    def forget(self) -> None:
        self.log.clear()


def failing(at: int, code: int, only: frozenset[str] = OPERATIONS) -> WatchedFiles:
    """Files whose `at`-th operation (of those in `only`) fails with an error number, once."""
    seen = 0

    def before(_number: int, name: str, _args: tuple[Any, ...]) -> None:
        nonlocal seen
        if name in only:
            seen += 1
            if seen == at:
                files.failed = True
                raise OSError(code, os.strerror(code))

    files = WatchedFiles(before)
    return files


def killing(at: int, *, torn: bool) -> WatchedFiles:
    """Files that kill the process before the `at`-th operation; `torn`: half of a write is done first."""

    def before(number: int, name: str, args: tuple[Any, ...]) -> None:
        if number == at:
            if torn and name == "write":
                os.write(args[0], bytes(args[1])[: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)

    return WatchedFiles(before)
