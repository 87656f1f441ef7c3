"""Work that stops once in the middle and says where it is, so that it can be killed there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trueline.chain.store.store import Folder

# The environment variable by which a task knows on which worker it runs.
WORKER = "TRUELINE_TEST_WORKER"


def prepare(folder: Path) -> Path:
    """Make what `stall` needs: two pipes, one to say where, one that nobody writes to."""
    folder.mkdir()
    os.mkfifo(folder / "where")
    os.mkfifo(folder / "never")
    return folder


def heard(folder: Path) -> str:
    """Wait until a task stalls, and return on which worker."""
    return (folder / "where").read_text()


def stall(folder: Path) -> None:
    """Say where this is and wait to be killed, the first time; later do nothing."""
    try:
        os.close(os.open(folder / "stalled", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    (folder / "where").write_text(os.environ[WORKER])
    (folder / "never").read_bytes()


@dataclass
class StallingRows:
    """For `mapInArrow`: hands on rows; in the middle of a partition it stalls."""

    folder: Path
    after: int

    def __call__(self, batches: Any) -> Any:
        for number, batch in enumerate(batches):
            if number == self.after:
                stall(self.folder)
            yield batch


@dataclass
class StallingStore:
    """A store whose writers of slices stall when the first bytes are written."""

    store: Any
    folder: Path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "store":
            raise AttributeError(name)
        return getattr(self.store, name)

    def writer(self, folder: Folder) -> Any:
        made = self.store.writer(folder)
        write = made.write

        def stalling(data: Any) -> int:
            count: int = write(data)
            stall(self.folder)
            return count

        made.write = stalling
        return made
