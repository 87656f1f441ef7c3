"""Tasks that note the runs they write because rows are more than they may hold.

It is a module of its own, so that workers import it.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from trueline.kernel import exchange
from trueline.spark.lowering.lowered import TaskWork


class NotingWork(TaskWork):
    """What a task of a view does; the bytes of its runs are written into a folder."""

    folder: Path

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, and note the runs afterwards."""
        write, sizes = exchange.write_run, []

        def noted(*given):
            run = write(*given)
            sizes.append(run.size)
            return run

        exchange.write_run = noted
        try:
            yield from super().rows(batches)
        finally:
            exchange.write_run = write
            (self.folder / f"{uuid.uuid4().hex}.json").write_text(json.dumps(sizes))


def note_runs(patched: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the tasks of views note their runs in a folder."""

    def noting(*arguments):
        work = NotingWork(*arguments)
        work.folder = folder
        return work

    # The package has a function of the name of this module.
    patched.setattr(sys.modules[TaskWork.__module__], "TaskWork", noting)


def runs_of(folder: Path) -> list[int]:
    """Return the bytes of all runs that were noted."""
    return [size for path in folder.glob("*.json") for size in json.loads(path.read_text())]
