"""Rows that do not fit in memory: files in a folder of their own, removed with its owner."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final, Self

import numpy as np
import pyarrow as pa

from trueline.disk import is_full
from trueline.errors import StorageFull
from trueline.identity import RowIds
from trueline.kernel.chunk import Chunk
from trueline.kernel.temporary import Temporary

# How many megabytes of rows are held in memory before they are written.
MEMORY_VARIABLE: Final = "TRUELINE_VIEW_MEMORY_MB"


class SpillFolder:
    """A temporary folder: made when something is first put there, removed when it is no longer referenced."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._numbers = count()
        self._gone: weakref.finalize[..., SpillFolder] | None = None

    def new_file(self) -> Path:
        """Return a path where nothing is yet."""
        return self._made / f"{next(self._numbers)}.arrow"

    @property
    def _made(self) -> Path:
        with self._lock:
            if self._path is None:
                made = Temporary("view")
                self._path = made.path
                self._gone = weakref.finalize(self, made.remove)
            return self._path

    def create(self, name: str) -> BinaryIO:
        """Open a new file of this name for sorted runs."""
        return (self._made / name).open("xb")

    def open(self, name: str) -> BinaryIO:
        """Open a file that was created."""
        return (self._made / name).open("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failed: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove it now."""
        if self._gone is not None:
            self._gone()


@dataclass(frozen=True, slots=True)
class SpilledChunk:
    """Rows in a file: columns, and ids if there are any."""

    path: Path
    rows: int
    columns: int
    has_ids: bool

    def load(self) -> Chunk:
        """Return the rows; they are mapped into memory, and read where they are touched."""
        with pa.memory_map(str(self.path)) as mapped, pa.ipc.open_file(mapped) as reader:
            batch = reader.get_batch(0)
        arrays = tuple(batch.columns[: self.columns])
        ids = None
        if self.has_ids:
            ids = RowIds(*(np.asarray(batch.column(self.columns + place)) for place in (0, 1)))
        return Chunk(self.rows, arrays, ids)


def store(chunk: Chunk, folder: SpillFolder) -> SpilledChunk:
    """Write rows to a file."""
    columns = list(chunk.arrays)
    if chunk.ids is not None:
        columns += [pa.array(chunk.ids.low), pa.array(chunk.ids.high)]
    if not columns:
        columns = [pa.nulls(chunk.rows)]
    batch = pa.RecordBatch.from_arrays(columns, names=[str(place) for place in range(len(columns))])
    path = folder.new_file()
    with (
        space_explained(path.parent),
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, batch.schema) as writer,
    ):
        writer.write_batch(batch)
    return SpilledChunk(path, chunk.rows, len(chunk.arrays), chunk.ids is not None)


@contextmanager
def space_explained(place: object) -> Iterator[None]:
    """Say what to do where there is no space left."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise StorageFull(
            f"no space left for rows that do not fit in memory: {place}",
            remedy=f"free some space, set TMPDIR to another place, or {MEMORY_VARIABLE} to more megabytes",
        ) from error
