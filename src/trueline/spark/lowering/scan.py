"""Sources that live in this process, where tasks cannot read them, and tables too large to send along.

Where executors run on this machine, such rows are written to files they see, with no more than a few chunks
in memory; on a cluster they are refused by name (exchange:E7). Frames are written by their own tasks, on a
cluster where all machines see them.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa

from trueline.chain.store.folders import Inside, inside
from trueline.errors import NotPortable
from trueline.kernel.chunk import Chunk, Piece
from trueline.kernel.temporary import Temporary
from trueline.spark.frames import shares_folders
from trueline.spark.frozen_frames import FrozenFrame
from trueline.spark.lowering.dispatch import LoweringTarget, lowered
from trueline.spark.lowering.layout import Layout
from trueline.spark.lowering.lowered import Lowered, read_by_tasks, types_of
from trueline.view.execute import pieces
from trueline.view.plan.node import SourceNode, Want
from trueline.view.plan.sources import SourceScan

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
    if not here:
        raise NotPortable(
            f"{node.title}: its rows are in this process, where the tasks of a cluster cannot read them",
            remedy="read them from files that all machines see, or append them to a dataset first",
            code="ProcessBound",
        )
    layout = Layout(types_of(node.schema, want.columns), want.ids, ())
    stored = StoredRows(pieces(node, want), layout)
    target.needs.append(stored)
    return read_by_tasks(target.session, node, want, stored.parts)


class StoredRows:
    """Rows of this process in files that tasks see; they go with it."""

    def __init__(self, parts: Sequence[Piece], layout: Layout) -> None:
        folder = Temporary("rows")
        weakref.finalize(self, folder.remove)
        self.parts = list(_stored(parts, layout, inside(folder.path)))


def _stored(parts: Sequence[Piece], layout: Layout, folder: Inside) -> Iterator[StoredPiece]:
    """Write rows to files of about the same size."""
    chunks = chain.from_iterable(part.chunks() for part in parts)
    chunk = next(chunks, None)
    while chunk is not None:
        name, rows, size = f"{uuid.uuid4().hex}.arrow", 0, 0
        with ExitStack() as stack:
            file = stack.enter_context((folder / name).create())
            writer = stack.enter_context(pa.ipc.new_file(file, layout.arrow_schema))
            while chunk is not None and size < _BYTES_OF_A_FILE:
                batch = layout.encode(chunk)
                writer.write_batch(batch)
                rows, size = rows + chunk.rows, size + batch.nbytes
                chunk = next(chunks, None)
        yield StoredPiece(folder / name, rows, layout)


@dataclass(frozen=True, eq=False)
class StoredPiece:
    """Rows in a file that tasks see."""

    place: Inside
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
