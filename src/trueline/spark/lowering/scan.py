"""Sources that live in this process, where tasks cannot read them, and tables too large to send along.

Where executors run on this machine, such rows are written to files they see, with no more than a few chunks
in memory. On a cluster few of them are sent along with the tasks, and many are written where all machines see
them; where there is no such place they are refused by name (exchange:E7). Frames are written by their own
tasks, on a cluster where all machines see them.
"""

from __future__ import annotations

import io
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

import pyarrow as pa

from trueline.chain.store.file import FileStore
from trueline.chain.store.folders import inside
from trueline.chain.store.object import ObjectStore
from trueline.chain.store.scratch import Scratch
from trueline.dataset.dataset_at import Standing
from trueline.errors import NotPortable
from trueline.kernel.chunk import Chunk, Piece, bytes_of
from trueline.kernel.temporary import Temporary
from trueline.spark.frames import SMALL, shares_folders
from trueline.spark.frozen_frames import FrozenFrame
from trueline.spark.lowering.dispatch import LoweringTarget, lowered
from trueline.spark.lowering.layout import Layout
from trueline.spark.lowering.lowered import Lowered, read_by_tasks, types_of
from trueline.spark.shared_places import SharedPlace, give_back, seen_by_all, shared_scratch
from trueline.view.execute import pieces
from trueline.view.plan.node import Node, NodeState, SourceNode, Want, steps
from trueline.view.plan.sources import SourceScan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A task for each: enough of them for the cores, few enough to begin quickly.
_BYTES_OF_A_FILE: Final = 16 << 20


@lowered.register(SourceNode)
def _of_this_process(node: SourceNode, want: Want, target: LoweringTarget) -> Lowered:
    """Return rows that tasks cannot read where they are."""
    here = shares_folders(target.session)
    if isinstance(node, SourceScan) and isinstance(node.source, FrozenFrame):
        # The frame is computed once, into files that tasks see.
        target.needs.append(node.source)
        seen = here or node.source.frozen().is_everywhere
        read = node if seen else SourceScan(node.source.sent_along())
        return read_by_tasks(target.session, node, want, pieces(read, want), notes=target.notes)
    layout = Layout(types_of(node.schema, want.columns), want.ids, ())
    chunks = chain.from_iterable(part.chunks() for part in pieces(node, want))
    stored = StoredRows.beside(chunks, layout) if here else _for_a_cluster(node, chunks, layout, target)
    target.needs.append(stored)
    return read_by_tasks(target.session, node, want, stored.parts)


def lend(node: Node, place: SharedPlace) -> None:
    """Offer a place that tasks see to what a plan rests on: to frames, and to rows of this process."""
    for each in steps(node):
        if isinstance(each, SourceScan) and isinstance(each.source, FrozenFrame):
            each.source.lend(place)
        elif isinstance(each, SourceNode):
            _lent.of(each)[:] = [place]


def _no_places(node: Node) -> list[SharedPlace]:
    del node
    return []


_lent: Final = NodeState[list[SharedPlace]](_no_places)


def places_of(node: Node, session: SparkSession) -> Iterator[SharedPlace]:
    """Yield where tasks may write what becomes of a plan: places that were lent, and datasets it reads."""
    known: set[str] = set()
    for each in steps(node):
        source = each.source if isinstance(each, SourceScan) else None
        if isinstance(source, FrozenFrame):
            yield from source.places
        elif isinstance(each, SourceNode):
            yield from _lent.of(each)
        standing = getattr(source, "standing", None)
        store = standing.chain.store if isinstance(standing, Standing) else None
        # What is overlaid is somebody's work in flight, and has its own scratch.
        if isinstance(store, FileStore | ObjectStore) and store.location not in known:
            known.add(store.location)
            yield partial(seen_by_all, session, store)


def _for_a_cluster(
    node: SourceNode, chunks: Iterator[Chunk], layout: Layout, target: LoweringTarget
) -> StoredRows:
    """Return rows of this process as tasks of a cluster read them: sent along, or where all see them."""
    few: list[Chunk] = []
    size = 0
    for chunk in chunks:
        few.append(chunk)
        size += bytes_of(chunk)
        if size > SMALL:
            break
    else:
        return StoredRows.sent_along(few, layout)
    with ExitStack() as stack:
        scratch = shared_scratch(target.session, _lent.of(node), stack)
        if scratch is not None:
            stored = StoredRows(list(_stored(chain(few, chunks), layout, ScratchFile.of(scratch))))
            weakref.finalize(stored, give_back, stack.pop_all())
            return stored
    raise NotPortable(
        f"{node.title}: its rows, more than {SMALL >> 20} MiB, are in this process, where the tasks of a"
        " cluster cannot read them",
        remedy="read them from files that all machines see, or append them to a dataset first",
        code="ProcessBound",
    )


class StoredFile(Protocol):
    """A file that tasks can open where they are."""

    def create(self) -> AbstractContextManager[BinaryIO]:
        """Open it to be written."""

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Open it to be read."""


@dataclass(frozen=True, slots=True)
class ScratchFile:
    """A file in scratch that all machines see."""

    scratch: Scratch
    name: str

    @classmethod
    def of(cls, scratch: Scratch) -> Callable[[str], StoredFile]:
        """Return what makes one of a name."""
        return partial(cls, scratch)

    def create(self) -> AbstractContextManager[BinaryIO]:
        """Open it to be written."""
        return self.scratch.create(self.name)

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Open it to be read."""
        return self.scratch.open(self.name)


class SentFile:
    """A file that is sent along with the tasks that read it."""

    def __init__(self) -> None:
        self._data = b""

    @contextmanager
    def create(self) -> Iterator[BinaryIO]:
        """Open it to be written."""
        with io.BytesIO() as file:
            yield file
            self._data = file.getvalue()

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Open it to be read."""
        return io.BytesIO(self._data)


class StoredRows:
    """Rows of this process in files that tasks see; they go with it."""

    def __init__(self, parts: Sequence[Piece]) -> None:
        self.parts = parts

    @classmethod
    def beside(cls, chunks: Iterator[Chunk], layout: Layout) -> StoredRows:
        """Write rows into a folder of this machine."""
        folder = Temporary("rows")
        try:
            made = cls(list(_stored(chunks, layout, inside(folder.path).__truediv__)))
        except BaseException:
            folder.remove()
            raise
        weakref.finalize(made, folder.remove)
        return made

    @classmethod
    def sent_along(cls, chunks: Sequence[Chunk], layout: Layout) -> StoredRows:
        """Hold few rows, as they are sent along with tasks."""
        return cls(list(_stored(iter(chunks), layout, lambda _: SentFile())))


def _stored(
    chunks: Iterator[Chunk], layout: Layout, file_of: Callable[[str], StoredFile]
) -> Iterator[StoredPiece]:
    """Write rows to files of about the same size."""
    chunk = next(chunks, None)
    while chunk is not None:
        place, rows, size = file_of(f"{uuid.uuid4().hex}.arrow"), 0, 0
        with ExitStack() as stack:
            file = stack.enter_context(place.create())
            writer = stack.enter_context(pa.ipc.new_file(file, layout.arrow_schema))
            while chunk is not None and size < _BYTES_OF_A_FILE:
                batch = layout.encode(chunk)
                writer.write_batch(batch)
                rows, size = rows + chunk.rows, size + batch.nbytes
                chunk = next(chunks, None)
        yield StoredPiece(place, rows, layout)


@dataclass(frozen=True, eq=False)
class StoredPiece:
    """Rows in a file that tasks see."""

    place: StoredFile
    rows: int
    layout: Layout

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        with self.place.open() as file, pa.ipc.open_file(file) as reader:
            if not self.layout.names:
                yield Chunk(self.rows, ())
                return
            yield from self.layout.chunks(
                reader.get_batch(number) for number in range(reader.num_record_batches)
            )
