"""Rows of a view that ran on Spark, in order, for whoever reads them here: files that tasks write, read once.

Tasks write Arrow files, one for each range of the order: on this machine into a folder of it, on a cluster
where all machines see them. Only their names and counts pass the driver, until rows are read. Where no place
is shared the rows themselves are fetched, a few MiB at a time. The files go with the last reader.
"""

from __future__ import annotations

import re
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import pyarrow as pa

from trueline import types as t
from trueline.chain.store.scratch import FolderScratch, Scratch
from trueline.errors import EnvironmentMissing
from trueline.kernel.chunk import Chunk, Piece
from trueline.kernel.exchange import Once, SharedPiece, how_many
from trueline.kernel.temporary import Temporary
from trueline.spark.engines import engine_of
from trueline.spark.frames import shares_folders, write_pieces
from trueline.spark.jobs import run
from trueline.spark.lowering.bad_cells import merge_notes
from trueline.spark.lowering.dispatch import LoweringTarget, is_read_by_tasks
from trueline.spark.lowering.exchange import ranges
from trueline.spark.lowering.layout import Layout
from trueline.spark.lowering.lowered import Lowered, TaskWork
from trueline.spark.lowering.ordered_join import join_in_order
from trueline.spark.lowering.rows import column, columns_of
from trueline.spark.lowering.scan import ScratchFile, StoredPiece, places_of
from trueline.spark.parcels import PACKED, fetched
from trueline.spark.results import batches_of, unreadable
from trueline.spark.shared_places import give_back, is_seen_by_all, shared_scratch
from trueline.spark.tasks import SparkTasks
from trueline.view.execute.dispatch import batch_of
from trueline.view.plan.node import Node, Want
from trueline.view.schema import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Written = TypeVar("Written")
_LABEL: Final = "running the view"
_FILE: Final = re.compile(r"rows-\d{5,10}-[0-9a-f]{32}\.arrow")


def delivered(node: Node, want: Want, session: SparkSession) -> Sequence[Piece]:
    """Return the rows of a node in order, as pieces; the first reader of one runs the node on Spark."""
    parts = how_many(want.parts, node.row_count)
    shared = Once(ToDeliver(node, Want(want.columns, want.ids, dict(want.bounds)), session, parts))
    return [SharedPiece(shared, number) for number in range(parts)]


@dataclass(frozen=True)
class ToDeliver:
    """What runs a node on Spark, when it is asked to."""

    node: Node
    want: Want
    session: Any
    parts: int

    def __call__(self) -> DeliveredRows:
        with ExitStack() as stack:
            place = DeliveryPlace.of(self.node, self.session, stack)
            with noting(self.node, self.session, place) as target:
                found = _lowered(self.node, self.want, target)
                rows = DeliveredRows(*_written(found, target, place), self.parts)
            weakref.finalize(rows, give_back, stack.pop_all())
            return rows


@dataclass(frozen=True)
class DeliveryPlace:
    """Scratch for the rows of a view and for what its tasks note, and who sees it: tasks, all machines."""

    scratch: Scratch
    is_seen: bool = True
    is_far: bool = False

    @classmethod
    def of(cls, node: Node, session: SparkSession, stack: ExitStack) -> DeliveryPlace:
        """Return a place where tasks see it, if there is one; it goes with the stack."""
        is_here = shares_folders(session)
        if not is_here:
            shared = shared_scratch(session, list(places_of(node, session)), stack)
            if shared is not None:
                return cls(shared, is_far=True)
        folder = Temporary("rows")
        stack.callback(folder.remove)
        return cls(FolderScratch(folder.path), is_seen=is_here)


@contextmanager
def noting(node: Node, session: SparkSession, place: DeliveryPlace) -> Iterator[LoweringTarget]:
    """Return where a view is to run; what its tasks found bad inside is counted with what was found here.

    That takes a place that tasks see: where no machine shares one, bad cells are not counted.
    """
    if not place.is_seen:
        yield LoweringTarget(session)
        return
    yield LoweringTarget(session, notes=place.scratch)
    merge_notes(place.scratch, node)


def _lowered(node: Node, want: Want, target: LoweringTarget) -> Lowered:
    """Return a node whose order is wanted: what nothing moves is in order already where tasks read it."""
    if is_read_by_tasks(node):
        return target.read(node, want)
    return join_in_order(node, want, target) or target.lower(node, want)


def in_order(found: Lowered, target: LoweringTarget) -> Lowered:
    """Return rows whose tasks, one after another, have them in order; what can wait is done after that."""
    if found.is_ordered:
        return found
    rows = found.unfinished
    moved = ranges(rows, target).in_order().select([column(name) for name in rows.layout.names])
    return Lowered(moved, rows.layout, found.steps if found.late else (), found.layout, is_ordered=True)


def _written(
    found: Lowered, target: LoweringTarget, place: DeliveryPlace
) -> tuple[tuple[WrittenRows, ...], Scratch, Layout]:
    from pyspark.sql import functions as f

    layout = Layout(found.layout.types, found.layout.ids, ())
    moved = in_order(found, target)
    if layout.names:
        last = columns_of(moved, range(len(layout.types)), layout)
    else:
        # A view without columns still has rows.
        counted = Layout((t.int8,), False, ())
        last = Lowered(moved.frame.select(f.lit(0).cast("tinyint").alias("c0")), counted, (), counted)
    scratch = place.scratch
    if not place.is_seen:
        return tuple(_fetched(last.frame, scratch)), scratch, layout
    # What is left to do is done by the tasks that write; between machines packing saves more than it costs.
    work = WriteRows(scratch, last.work, PACKED if place.is_far else None)
    written = write_pieces(last.base, work, label=_LABEL)
    files = tuple(WrittenRows.told(each) for each in written if each is not None)
    folder = scratch.folder
    for each in files:
        if folder is not None and not (folder / each.name).exists():
            raise EnvironmentMissing(
                f"{folder / each.name} was written, but the driver does not see it",
                remedy="choose a folder that all machines of the cluster share, or an object store",
                code="FolderNotShared",
                folder=str(folder),
            )
    return files, scratch, layout


def written_by(
    node: Node, session: SparkSession, function: Callable[[int, Iterator[pa.RecordBatch]], Written]
) -> list[Written]:
    """Hand the visible columns of a node, in order, to a function in tasks; return what it returns."""
    columns = node.schema.visible
    with ExitStack() as stack:
        place = DeliveryPlace.of(node, session, stack)
        with noting(node, session, place) as target:
            found = _lowered(node, Want(tuple(column.index for column in columns)), target)
            layout = Layout(found.layout.types, False, ())
            work = WriteColumns(layout, columns, node.schema.to_arrow(), function)
            frame = in_order(found, target).frame.select([column(name) for name in layout.names])
            return write_pieces(frame, work, label=_LABEL)


def written_whole(
    node: Node, session: SparkSession, folder: Path, function: Callable[[Iterator[pa.RecordBatch]], Written]
) -> Written | None:
    """Hand the visible columns of a node, in order, to a function in one task, which sees a folder.

    None on this machine, and where the machines of a cluster do not see the folder, or share no place.
    """
    if shares_folders(session) or not is_seen_by_all(session, folder):
        return None
    columns = node.schema.visible
    with ExitStack() as stack:
        place = DeliveryPlace.of(node, session, stack)
        if not place.is_seen:
            return None
        with noting(node, session, place) as target:
            found = _lowered(node, Want(tuple(column.index for column in columns)), target)
            rows = DeliveredRows(*_written(found, target, place), 1)
        work = WriteWhole(columns, node.schema.to_arrow(), function)
        ((_, answer),) = SparkTasks(engine_of(session)).map(work, [rows], label=_LABEL)
        return cast("Written", answer)


@dataclass(frozen=True)
class WriteWhole:
    """Hands all rows on, in one task, as Arrow has them in this process."""

    columns: tuple[Column, ...]
    schema: pa.Schema
    function: Callable[[Iterator[pa.RecordBatch]], Any]

    def __call__(self, rows: DeliveredRows) -> Any:
        """Return what the function makes of them."""
        return self.function(batch_of(chunk, self.columns, self.schema) for chunk in rows.part(0))


@dataclass(frozen=True)
class WriteColumns:
    """Hands the rows of a task on as Arrow has them in this process."""

    layout: Layout
    columns: tuple[Column, ...]
    schema: pa.Schema
    function: Callable[[int, Iterator[pa.RecordBatch]], Any]

    def __call__(self, partition: int, batches: Iterator[pa.RecordBatch]) -> Any:
        """Return what the function makes of them."""
        chunks = self.layout.chunks(batches)
        return self.function(partition, (batch_of(chunk, self.columns, self.schema) for chunk in chunks))


def counted(node: Node, session: SparkSession) -> int:
    """Return how many rows a node has, counted where they are."""
    from pyspark.sql import functions as f

    # It keeps the files that tasks read until they have.
    target = LoweringTarget(session)
    counting = target.lower(node, Want(())).frame.agg(f.count(f.lit(1)).alias("rows"))
    return int(run(engine_of(session), counting.toArrow, label="counting rows")["rows"][0].as_py())


def _fetched(frame: DataFrame, scratch: Scratch) -> list[WrittenRows]:
    """Bring rows from machines that share no place with this one, a few MiB at a time, into files here."""

    def work() -> list[WrittenRows]:
        found = []
        for number, parcel in enumerate(fetched(frame)):
            made = WriteRows(scratch)(number, batches_of(parcel, frame.columns))
            if made is not None:
                found.append(WrittenRows(*made))
        return found

    return run(engine_of(frame.sparkSession), work, label=_LABEL)


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """What a task says of the file it wrote."""

    name: str
    rows: int

    @classmethod
    def told(cls, answer: object) -> WrittenRows:
        """Return an answer of a task, if it is the name of a file of ours and a number of rows."""
        match answer:
            case (str(name), int(rows)) if _FILE.fullmatch(name) is not None and rows >= 0:
                return cls(name, rows)
        raise unreadable(f"{answer!r:.80} is not the name of a file of rows and how many there are")


@dataclass(frozen=True)
class WriteRows:
    """Writes the rows of a task as one Arrow file; nothing for none."""

    scratch: Scratch
    work: TaskWork | None = None
    compression: str | None = None

    def __call__(self, partition: int, batches: Iterator[pa.RecordBatch]) -> tuple[str, int] | None:
        """Write the rows as they come; a second attempt writes a file of its own."""
        name = f"rows-{partition:05}-{uuid.uuid4().hex}.arrow"
        options = pa.ipc.IpcWriteOptions(compression=self.compression)
        rows = 0
        with ExitStack() as stack:
            writer: Any = None
            for batch in batches if self.work is None else self.work.rows(batches):
                if not batch.num_rows:
                    continue
                if writer is None:
                    file = stack.enter_context(self.scratch.create(name))
                    writer = stack.enter_context(pa.ipc.new_file(file, batch.schema, options=options))
                writer.write_batch(batch)
                rows += batch.num_rows
        return (name, rows) if rows else None


class DeliveredRows:
    """The rows of a node in files, in order, cut into parts."""

    def __init__(self, files: Sequence[WrittenRows], scratch: Scratch, layout: Layout, parts: int) -> None:
        self.files, self.scratch, self.layout, self.parts = tuple(files), scratch, layout, parts

    def part(self, number: int) -> Iterator[Chunk]:
        """Yield the rows of one part."""
        count = len(self.files)
        for each in self.files[count * number // self.parts : count * (number + 1) // self.parts]:
            place = ScratchFile(self.scratch, each.name)
            yield from StoredPiece(place, each.rows, self.layout).chunks()
