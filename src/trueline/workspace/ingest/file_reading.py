"""Reading files into pieces, large ones in parts side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from trueline.chain.instant import Instant
from trueline.chain.scratch import Scratch
from trueline.chain.tail import Tail
from trueline.errors import InputError
from trueline.readers import Reader, ReadStats, Source
from trueline.readers.parts import WHOLE, Part, followed_by, in_the_file
from trueline.workspace.ingest.incoming import fit_rows, latest, newest_event
from trueline.workspace.ingest.pieces import Piece, PieceWriter
from trueline.workspace.tasks import Tasks


@dataclass(frozen=True, slots=True)
class FileTask:
    """One file to read, or a part of it: where it is, how, as what, and where its rows go."""

    source: Source
    reader: Reader
    columns: pa.Schema
    tail: Tail
    scratch: Scratch
    name: str
    with_op: bool = False
    part: Part = WHOLE

    def parts(self) -> list[FileTask]:
        """Return the parts a large file is cut into, else the file itself."""
        cut = self.reader.parts(self.source)
        if len(cut) == 1:
            return [self]
        return [replace(self, part=part, name=f"{n}-{self.name}") for n, part in enumerate(cut)]


@dataclass(frozen=True, slots=True)
class FileRead:
    """What reading a file gave; `failed` says that a part of it could not be read as one."""

    pieces: tuple[Piece, ...]
    newest: Instant | None
    rounded: int
    stats: ReadStats
    cells: pa.Table | None
    failed: bool = False

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """Files that were read, in their order (None for one that was left out), and the tail they are typed for.

    `steps` prepared them; `left_out` says which files they could not, and why.
    """

    reads: tuple[FileRead | None, ...]
    typed: Tail
    with_op: bool = False
    left_out: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[str, ...] = ()


def read_file(task: FileTask) -> FileRead:
    """Read one file, or a part of it, into a piece; runs wherever there is room for it."""
    try:
        return _read(task)
    except InputError:
        if task.part == WHOLE:
            raise
        # The cut may have been wrong; and if the file is broken, reading all of it tells on which line.
        return FileRead((), None, 0, ReadStats(), None, failed=True)


def _read(task: FileTask) -> FileRead:
    empty = fit_rows(task.columns.empty_table(), task.tail, with_op=task.with_op).table
    writer = PieceWriter(task.scratch, task.name, empty.schema)
    newest, rounded = None, 0
    cells: list[pa.Table] = []
    reading = task.reader.read(task.source, task.columns, part=task.part)
    for batch in reading:
        fitted = fit_rows(pa.Table.from_batches([batch.table]), task.tail, with_op=task.with_op)
        writer.write(fitted.table)
        newest, rounded = latest([newest, newest_event(fitted)]), rounded + fitted.rounded
        if batch.bad.num_rows:
            cells.append(_with_file(batch.bad, task.source.path))
    # The rows are to be those of the bytes that were hashed: a file that was written to meanwhile is refused.
    task.source.open().close()
    found = pa.concat_tables(cells) if cells else None
    return FileRead((writer.finish(),), newest, rounded, reading.stats, found)


def _with_file(cells: pa.RecordBatch, path: str) -> pa.Table:
    names = pa.array([path] * cells.num_rows, pa.string())
    return pa.Table.from_batches([cells]).add_column(0, "file", names)


def read_all(
    read: Callable[[FileTask], FileRead], files: Sequence[FileTask], tasks: Tasks, *, max_listed: int
) -> list[FileRead]:
    """Read files in their order; one of which a part failed is read again as a whole."""
    work = [(number, part) for number, file in enumerate(files) for part in file.parts()]
    done = dict(tasks.map(read, [part for _, part in work], label="read files"))
    found: list[list[FileRead]] = [[] for _ in files]
    for index, (number, _) in enumerate(work):
        found[number].append(done[index])
    again = [number for number, parts in enumerate(found) if any(part.failed for part in parts)]
    if again:
        whole = dict(tasks.map(read, [files[number] for number in again], label="read files"))
        for index, number in enumerate(again):
            found[number] = [whole[index]]
    return [_joined(parts, max_listed) for parts in found]


def _joined(parts: Sequence[FileRead], max_listed: int) -> FileRead:
    """Make one of the parts of a file: as if it had been read in one go."""
    if len(parts) == 1:
        return parts[0]
    stats = parts[0].stats
    cells = [parts[0].cells]
    for part in parts[1:]:
        cells.append(in_the_file(part.cells, stats) if part.cells is not None else None)
        stats = followed_by(stats, part.stats, max_listed=max_listed)
    listed = [some for some in cells if some is not None]
    return FileRead(
        tuple(piece for part in parts for piece in part.pieces),
        latest([part.newest for part in parts]),
        sum(part.rounded for part in parts),
        stats,
        pa.concat_tables(listed).slice(0, max_listed) if listed else None,
    )
