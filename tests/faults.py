"""Faults at every durable operation, of files and of an object store: one harness for all tests.

Files: `WatchedFiles` numbers each operation on the disk, and `before` decides what becomes of it: `failing`
(an error number such as ENOSPC), `killing` (SIGKILL, half of a write done or none), `delaying` (somebody
else's work comes in between). `watching` puts them in the place of all files a workspace writes.

An object store: `ServerFaults` numbers each request to the test's server that changes something; it is
refused, answered as busy or full, dropped, done without an answer, delayed, or its sender is killed.

Deaths: `killed(deed, …)` runs a deed in copies of a folder, each copy killed at another operation. A deed is
a function `deed(path, what)` that opens what it needs and returns the act that is killed; it is run by
`python -m tests.faults`, one fork for each copy, so that the imports are done once.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.architecture import ROOT
from tests.examples import some
from trueline.chain.store.files import Files

if TYPE_CHECKING:
    from tests.chain.store.small_s3 import SmallS3

OPERATIONS = frozenset(name for name in vars(Files) if not name.startswith("_"))
# Operations that may need room on the disk.
CAN_BE_FULL = frozenset({"create", "write", "fsync", "syncfs", "link", "rename", "make_folder", "open_lock"})
# Operations that change what is on the disk.
DURABLE = CAN_BE_FULL | {"unlink", "remove_folder", "touch"}
# What a death is tried before: locks and closed files too, since indexes are written between them by others.
DEADLY = OPERATIONS - {"open_folder", "open", "read", "size", "modified", "entries"}
# How many copies are made at a time.
_BATCH = 40
# No operation has this number: what is killed at it is done, and says how many there are.
_NEVER = 0

_STATUS = {"refused": 403, "busy": 503, "full": 507}

Before = Callable[[int, str, tuple[Any, ...]], None]


class WatchedFiles(Files):
    """Keeps a log of what is done; `before` is called with the number and name of each operation.

    Some are done at the same time by several threads: each has a number of its own, and `before` and
    `after` are called by one thread at a time.
    """

    def __init__(self, before: Before | None = None) -> None:
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
    """Files that kill the process before the `at`-th operation of `DEADLY`; `torn`: after half of a write."""
    seen = 0

    def before(_number: int, name: str, args: tuple[Any, ...]) -> None:
        nonlocal seen
        seen += name in DEADLY
        if seen == at and name in DEADLY:
            if torn and name == "write":
                os.write(args[0], bytes(args[1])[: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)

    return WatchedFiles(before)


def delaying(at: int, meanwhile: Callable[[], object]) -> WatchedFiles:
    """Files before whose `at`-th durable operation something else is done, by who is not watched."""
    seen = 0

    def before(_number: int, name: str, _args: tuple[Any, ...]) -> None:
        nonlocal seen
        seen += name in DURABLE
        if seen == at and name in DURABLE:
            files.before, files.failed = None, True
            meanwhile()

    files = WatchedFiles(before)
    return files


@contextmanager
def watching(files: Files, *, stores_only: bool = False) -> Iterator[None]:
    """Let everything that a workspace (or only the stores of its datasets) writes go through these files."""
    from trueline.chain.store import file, folders
    from trueline.workspace import small_objects

    places: list[tuple[Any, str, Any]] = [
        (file, "Files", lambda: files),
        (folders, "_FILES", files),
        (small_objects, "_FILES", files),
    ][: 1 if stores_only else 3]
    former = [getattr(module, name) for module, name, _ in places]
    for module, name, new in places:
        setattr(module, name, new)
    try:
        yield
    finally:
        for (module, name, _), old in zip(places, former, strict=True):
            setattr(module, name, old)


class ServerFaults:
    """What happens at the `at`-th request to a server that changes something.

    "refused", "busy" or "full": not done, answered so; "dropped": not done, no answer; "lost": done, no
    answer; a callable: it is called, then the request is done. With `kill` the process that asked is killed
    instead of left without an answer, before the request is done or after.
    """

    def __init__(self, at: int, how: str | Callable[[], object], kill: int | None = None) -> None:
        self.at = at
        self.how = how
        self.kill = kill
        self.requests = 0
        self.failed = False
        self._mutex = threading.Lock()

    def __call__(self, method: str, key: str) -> int | str | None:
        """Decide: a status to answer, "dropped", "lost", or None where nothing happens."""
        with self._mutex:
            self.requests += 1
            if self.requests != self.at:
                return None
        self.failed = True
        if callable(self.how):
            self.how()
            return None
        return _STATUS.get(self.how, self.how)

    def unanswered(self) -> None:
        """What happens in place of an answer."""
        if self.kill is not None:
            os.kill(self.kill, signal.SIGKILL)


@contextmanager
def server_fault(server: SmallS3, fault: ServerFaults) -> Iterator[ServerFaults]:
    """Let a server meet a fault."""
    server.fault = fault
    try:
        yield fault
    finally:
        server.fault = None


# --- deaths -----------------------------------------------------------------------------


def killed(
    deed: str,
    template: Path,
    copies: Path,
    what: str,
    torn: str,
    *,
    beside: Sequence[Path] = (),
    most: int = 1 << 20,
    at_least: int = 1,
) -> list[Path]:
    """Run a deed (`module:name`) in copies of a folder, killed at operation 1, 2, … until one is not.

    Returns the copies in which it was killed, in that order; `beside` is copied once, next to them. Where
    operations are more than `most`, some are taken from the whole of them, in `make soak` all.
    """
    copies.mkdir()
    for each in beside:
        shutil.copytree(each, copies / each.name)
    shutil.copytree(template, copies / str(_NEVER))
    count = int(_run(deed, copies, what, [_NEVER], torn)[str(_NEVER)])
    assert count >= at_least, f"it has {count} operations"
    found: list[Path] = []
    numbers = some(range(1, count + 1), most)
    for first in range(0, len(numbers), _BATCH):
        now = numbers[first : first + _BATCH]
        for number in now:
            shutil.copytree(template, copies / str(number))
        said = _run(deed, copies, what, now, torn)
        assert "failed" not in said.values(), said
        found += [copies / str(number) for number in now if said[str(number)] == "killed"]
    return found


def killed_at(
    deed: str, template: Path, copies: Path, what: str, torn: str, *, numbers: Sequence[int]
) -> list[Path]:
    """Run a deed in copies of a folder, killed at these operations; return the copies."""
    copies.mkdir()
    for number in numbers:
        shutil.copytree(template, copies / str(number))
    said = _run(deed, copies, what, numbers, torn)
    assert set(said.values()) == {"killed"}, said
    return [copies / str(number) for number in numbers]


def _run(deed: str, copies: Path, what: str, numbers: Sequence[int], torn: str) -> dict[str, str]:
    command = [sys.executable, "-m", "tests.faults", deed, str(copies), what]
    command += [",".join(map(str, numbers)), torn]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines())


def main() -> None:
    """Do a deed in numbered folders, each in a fork that is killed at the operation of that number."""
    deed, folder, what, numbers, torn = sys.argv[1:]
    module, _, name = deed.partition(":")
    begin = getattr(import_module(module), name)
    for at in map(int, numbers.split(",")):
        child = os.fork()
        if child == 0:
            files = WatchedFiles()
            # Scratch files of a merge are hundreds of operations that nobody reads after a death.
            with watching(files, stores_only=getattr(begin, "stores_only", False)):
                act = begin(f"{folder}/{at}", what)
                files.forget()
                files.before = killing(at, torn=torn == "torn").before
                act()
                if at == _NEVER:
                    count = sum(files.counts[name] for name in DEADLY)
                    os.write(sys.stdout.fileno(), f"{at} {count}\n".encode())
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if at == _NEVER and status == 0:
            continue
        how = "killed" if os.WIFSIGNALED(status) else "done" if status == 0 else "failed"
        sys.stdout.write(f"{at} {how}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
