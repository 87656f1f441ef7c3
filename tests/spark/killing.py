"""Work that kills its executor once, in the middle: a JVM of a cluster, never the driver's."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trueline.chain.store.folders import Inside
from trueline.chain.store.scratch import FolderScratch
from trueline.chain.store.store import Folder


def kill_executor(folder: Path) -> None:
    """Kill the executor this task runs in, the first time; later do nothing."""
    executor = _parent(os.getppid())
    if b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{executor}/cmdline").read_bytes():
        raise RuntimeError("this is not a task of a cluster")
    try:
        marker = os.open(folder / "killed", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return
    os.write(marker, str(executor).encode())
    os.close(marker)
    os.kill(executor, signal.SIGKILL)
    os._exit(1)


def _parent(process: int) -> int:
    """Return who started a process: the worker's daemon, whose parent is the executor."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@dataclass
class KillingStore:
    """A store at whose first touch of one kind (`scratch`, `write`, `open`) the executor is killed."""

    store: Any
    folder: Path
    at: str

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "store":
            raise AttributeError(name)
        return getattr(self.store, name)

    def __copy__(self) -> KillingStore:
        """Whoever takes a copy closes it, not this one."""
        return KillingStore(copy.copy(self.store), self.folder, self.at)

    def open(self, folder: Folder, name: Any) -> Any:
        file = self.store.open(folder, name)
        if self.at == "open" and folder is Folder.DATA:
            file.read(10)
            kill_executor(self.folder)
            file.seek(0)
        return file

    def writer(self, folder: Folder) -> Any:
        made = self.store.writer(folder)
        if self.at == "write" and folder is Folder.DATA:
            write = made.write

            def killing(data: Any) -> int:
                count: int = write(data)
                kill_executor(self.folder)
                return count

            made.write = killing
        return made

    @contextmanager
    def scratch(self) -> Iterator[FolderScratch]:
        with self.store.scratch() as inner:
            if self.at != "scratch":
                yield inner
                return
            made = KillingScratch(inner.folder, self.folder)
            try:
                yield made
            finally:
                made.clear()


class KillingScratch(FolderScratch):
    """Scratch in which the first file of rows that a task writes is left half written."""

    def __init__(self, place: Inside, folder: Path) -> None:
        super().__init__(place)
        self.told = folder

    def create(self, name: str) -> Any:
        file = super().create(name)
        if name.endswith(".arrow"):
            file.write(b"half")
            file.flush()
            kill_executor(self.told)
            file.seek(0)
            file.truncate()
        return file
