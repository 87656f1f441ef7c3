"""What passes this process: bytes of files, objects it opens and writes, rows of pieces; and Spark's jobs.

Only calls in this process are counted: tasks load the same classes in processes of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from trueline.chain.store.file import FileStore
from trueline.chain.store.scratch import FolderScratch
from trueline.chain.store.store import Folder
from trueline.dataset.append.pieces import IncomingPiece
from trueline.readers.source import PinnedFile

FILES = "bytes of files"
OPENED = "slices opened"
WRITTEN = "slices written"
SCRATCH = "scratch files"
ROWS = "rows of pieces"


@contextmanager
def passing() -> Iterator[Counter[str]]:
    """Count what passes this process inside."""
    found: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        _count_bytes(found, patch)
        _count_calls(found, patch, FileStore, "open", lambda *given: OPENED if _is_data(given) else None)
        for name in ("writer", "put"):
            _count_calls(found, patch, FileStore, name, lambda *given: WRITTEN if _is_data(given) else None)
        for name in ("open", "create"):
            _count_calls(found, patch, FolderScratch, name, lambda *given: SCRATCH)
        read = IncomingPiece.read

        def counted(piece, start, stop):
            for table in read(piece, start, stop):
                found[ROWS] += table.num_rows
                yield table

        patch.setattr(IncomingPiece, "read", counted)
        yield found


def _is_data(given) -> bool:
    return given[1] is Folder.DATA


def _count_bytes(found: Counter[str], patch: pytest.MonkeyPatch) -> None:
    read, fill = PinnedFile.read, PinnedFile.readinto

    def counted(file, size=-1, /):
        data = read(file, size)
        found[FILES] += len(data)
        return data

    def filled(file, buffer, /):
        count = fill(file, buffer)
        found[FILES] += count
        return count

    patch.setattr(PinnedFile, "read", counted)
    patch.setattr(PinnedFile, "readinto", filled)


def _count_calls(found, patch, kind, name, what) -> None:
    call = getattr(kind, name)

    def counted(*given, **named):
        if (which := what(*given)) is not None:
            found[which] += 1
        return call(*given, **named)

    patch.setattr(kind, name, counted)


@contextmanager
def jobs_in(session) -> Iterator[list[str]]:
    """Collect what Spark's web page calls the jobs that are started inside."""
    store = session.sparkContext._jsc.sc().statusStore()
    bus = session.sparkContext._jsc.sc().listenerBus()

    def all_jobs() -> dict[int, str]:
        bus.waitUntilEmpty()
        jobs = store.jobsList(None)
        listed = [jobs.apply(at) for at in range(jobs.size())]
        named = {job.jobId(): job.description() for job in listed}
        return {number: name.get() if name.isDefined() else "" for number, name in named.items()}

    # Spark forgets old ones, so what is new is known by its number.
    last, found = max(all_jobs(), default=-1), []
    yield found
    found.extend(name for number, name in sorted(all_jobs().items()) if number > last)
