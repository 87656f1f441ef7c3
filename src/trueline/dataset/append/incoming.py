"""Rows ready for a dataset: typed, in source order, with what is known of where they came from."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.chain import Chain
from trueline.chain.datatypes import DataSchema
from trueline.chain.events import SetDataSchema, SetVocab, SourceState
from trueline.chain.head_state import Tail
from trueline.chain.instant import Instant
from trueline.chain.schema import annotated, differences, fields_of, to_arrow
from trueline.chain.store.scratch import Scratch
from trueline.dataset.append.intake import Fitted, Held, fit, fit_rows
from trueline.dataset.append.new_columns import (
    NewColumns,
    refuse_case_twins,
    refuse_unknown,
    unknown_columns,
)
from trueline.dataset.append.pieces import IncomingPiece, PieceWriter
from trueline.dataset.commit import Advice
from trueline.dataset.definition import strategy_of
from trueline.errors import InputError, NotPortable, SchemaError
from trueline.identity.logical import LogicalHasher
from trueline.identity.multihash import Multihash
from trueline.kernel.key_encoding import null_key, rows_without_key
from trueline.kernel.row_fingerprint import ROWS, fingerprint
from trueline.kernel.tasks import InlineTasks, Tasks, task_progress
from trueline.merge import Append
from trueline.readers import Batch, Reader, Reading, ReadStats, Source
from trueline.readers.parts import PART_BYTES, WHOLE, Part, followed_by, in_the_file

_MILLISECONDS: Final = pa.timestamp("ms", "UTC")
# Formats that are read from front to back, so that the bytes read say how far a file is.
_TEXT: Final = ("csv", "json", "text")


@dataclass(frozen=True, slots=True)
class FileNote:
    """A file that was appended: its name, its bytes by hash, how many rows it gave."""

    name: str
    hash: Multihash
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class Handed:
    """A frame, or a file by its name: how many rows it has, and which columns."""

    name: str
    rows: int
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class Incoming:
    """Pieces for a dataset; `schema` is the whole schema of the slices, `newest` the latest event time.

    `with_op` says that operations go along with the rows. Files were looked up in the chain at `taken_at`;
    `retake` takes them again. `given` are the columns of a table as it was handed in, `by_file` those of each
    file. `steps` prepared the rows, and `left_out` says which files they could not, and why. `duplicates` are
    files that were passed over because they have the bytes of another. `earlier_digest` is what earlier
    versions recorded as `digest`. Rows that are `pinned` were computed from the head at `taken_at`.
    `ignored_columns` were handed in and left out, as was asked for; `new` says whether columns may be added
    that others did not; `advice` is for people.
    """

    pieces: tuple[IncomingPiece, ...]
    schema: DataSchema
    vocab: SetVocab
    newest: Instant | None = None
    rounded: int = 0
    files: tuple[FileNote, ...] = ()
    skipped: tuple[str, ...] = ()
    bad: Mapping[str, int] = field(default_factory=dict)
    bad_cells: pa.Table | None = None
    digest: str | None = None
    earlier_digest: str | None = None
    source_state: SourceState | None = None
    typed_for: SetDataSchema | None = None
    again: Callable[[Tail], Incoming] | None = None
    with_op: bool = False
    taken_at: Tail | None = None
    retake: Callable[[], Incoming] | None = None
    given: frozenset[str] = frozenset()
    steps: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    by_file: tuple[Handed, ...] = ()
    duplicates: Mapping[str, str] = field(default_factory=dict)
    pinned: bool = False
    ignored_columns: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    new: NewColumns = "error"

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def handed_in(self) -> tuple[Handed, ...]:
        """The frame or the files that the rows come from, in their order."""
        return self.by_file or ((Handed("", self.rows, self.given),) if self.given else ())

    @property
    def columns(self) -> pa.Schema:
        """The columns of the rows: event time first, then the dataset's, then operations if they go along."""
        fields = [column for column in to_arrow(self.schema) if column.name not in self.vocab.names[:3]]
        fields.sort(key=lambda column: column.name != self.vocab.event_time)
        return pa.schema([*fields, pa.field(self.vocab.op, pa.int32())] if self.with_op else fields)

    def with_digest(self, tasks: Tasks) -> Incoming:
        """Say what was handed in, for retries: rows have one digest, however they come and are cut.

        Columns that others added since do not show in it.
        """
        if self.digest is not None:
            return self
        # Rows in this process are not sent to others.
        here = any(getattr(piece, "table", None) is not None for piece in self.pieces)
        found = fingerprint(self.pieces, self._digested, InlineTasks() if here else tasks)
        return replace(self, digest=str(found))

    def is_same_as(self, recorded: str) -> bool:
        """Say whether a commit with this digest added the same data."""
        if self.digest is None or recorded in (self.digest, self.earlier_digest):
            return True
        # Earlier versions recorded the logical hash of a table.
        both_forms = self.digest.startswith(ROWS) and not recorded.startswith(ROWS)
        return both_forms and recorded == self._logical_digest()

    def _logical_digest(self) -> str | None:
        schema = pa.schema([self.columns.field(name) for name in self._digested])
        try:
            hasher = LogicalHasher(schema)
            for piece in self.pieces:
                for table in piece.read(0, piece.rows):
                    hasher.update(table.select(schema.names))
        except NotPortable:
            return None  # such a table never had one
        return str(hasher.finish())

    @property
    def _digested(self) -> list[str]:
        """The columns that were handed in, in the order of the dataset."""
        return [name for name in self.columns.names if name in self.given] or [self.vocab.event_time]

    def is_overtaken(self, chain: Chain, tail: Tail) -> bool:
        """Say whether others appended one of the files meanwhile, or declared another event time."""
        taken = self.taken_at
        if taken is None or self.retake is None or taken.head == tail.head:
            return False
        if self.pinned:
            return True
        if tail.vocab not in (taken.vocab, self.vocab):
            return True
        for note in self.files:
            named = chain.file_named(note.name)
            for entry in (chain.file(note.hash), named[1] if named is not None else None):
                if entry is not None and entry.sequence_number > taken.sequence_number:
                    return True
        return False

    def for_tail(self, tail: Tail) -> Incoming:
        """Adapt to what others did to the schema since the rows were typed: they may have added columns."""
        if tail.schema is None or tail.schema == self.typed_for:
            return self
        if self.again is not None:
            return replace(self.again(tail), digest=self.digest)
        current = fields_of(tail.schema)
        known = {column.name for column in current}
        added = tuple(column for column in self.schema.fields if column.name not in known)
        refuse_case_twins([column.name for column in added], sorted(known), place="the rows")
        united = DataSchema((*annotated(current, self.schema.fields), *added))
        mine = {column.name for column in self.schema.fields}
        shared = tuple(column for column in current if column.name in mine)
        conflicts = list(differences(shared, self.schema.fields, ""))
        if self.new != "add":
            conflicts += [f"{column.name} is not a column any more" for column in added]
        if conflicts:
            raise SchemaError(
                "the schema changed while the rows were read: " + "; ".join(conflicts),
                remedy="append them again",
            )
        return replace(self, schema=united)


def nothing(tail: Tail) -> Incoming:
    """Take nothing at all, which is not the same as a table without rows."""
    if tail.schema is None:
        raise SchemaError("there is no column", remedy="give at least one row, or create with a schema")
    return Incoming((), DataSchema(fields_of(tail.schema)), tail.vocab)


def no_rows(tail: Tail) -> Incoming:
    """Take a table without rows, which says of a snapshot that there are none."""
    return replace(nothing(tail), pieces=(IncomingPiece.of(nothing(tail).columns.empty_table()),))


def from_table(held: Held, tail: Tail, *, with_op: bool, new: NewColumns = "error") -> Incoming:
    """Take rows that are in memory."""
    fitted = fit_rows(held, tail, with_op=with_op, new=new)
    return Incoming(
        (IncomingPiece.of(fitted.table),),
        fitted.schema,
        fitted.vocab or tail.vocab,
        newest_event(fitted),
        fitted.rounded,
        typed_for=tail.schema,
        again=lambda later: from_table(held, later, with_op=with_op, new=new),
        with_op=tail.vocab.op in fitted.table.column_names,
        given=frozenset(
            held.column_names if isinstance(held, pa.Table) else (n for row in held for n in row)
        ),
        ignored_columns=fitted.ignored,
    )


def typed_for(schema: pa.Schema, tail: Tail, new: NewColumns = "error") -> Tail:
    """Return a tail whose schema is the one rows of an Arrow schema will be stored with.

    Rows that come in batches are fitted to it one batch at a time.
    """
    fitted = fit(schema.empty_table(), tail, new)
    return tail._replace(schema=SetDataSchema(schema=fitted.schema), vocab=fitted.vocab or tail.vocab)


def schema_of(tail: Tail) -> DataSchema:
    """Return the schema that rows after a tail have; without a column if there is none yet."""
    return DataSchema(fields_of(tail.schema) if tail.schema is not None else ())


def newest_event(fitted: Fitted) -> Instant | None:
    """Return the latest event time of fitted rows, which have it as their first column."""
    column = fitted.table.column(0)
    newest = pc.max(column) if len(column) else pa.scalar(None, _MILLISECONDS)
    if newest.type != _MILLISECONDS:
        newest = newest.cast(_MILLISECONDS)
    if not newest.is_valid:
        return None
    try:
        return Instant(newest.value * 1_000_000)
    except InputError as error:
        name = fitted.table.column_names[0]
        raise SchemaError(f"column {name!r}: {error.problem}", remedy=error.remedy, column=name) from None


def latest(moments: Sequence[Instant | None]) -> Instant | None:
    """Return the latest of some times."""
    return max((moment for moment in moments if moment is not None), default=None)


def columns_in(columns: pa.Schema, stats: ReadStats, reader: Reader) -> list[str]:
    """Name the columns that a file had, of those it was read for and others; a key of JSON has to be used."""
    absent = set(stats.absent)
    if reader.kind == "json":
        absent |= {name for name in columns.names if not stats.filled.get(name) and not stats.bad.get(name)}
    return [*(name for name in columns.names if name not in absent), *stats.unknown]


@dataclass(frozen=True, slots=True)
class FileTask:
    """One file to read, or a part of it: where it is, how, as what, and where its rows go.

    `known` are the columns it may have, None where files decide them; `new` says what becomes of others.
    `size` is about how many bytes it has.
    """

    source: Source
    reader: Reader
    columns: pa.Schema
    tail: Tail
    scratch: Scratch
    name: str
    with_op: bool = False
    part: Part = WHOLE
    new: NewColumns = "error"
    known: tuple[str, ...] | None = None
    size: int | None = None

    def check_columns(self, stats: ReadStats, *, ended: bool) -> None:
        """Refuse a file by name that has columns it may not have, as soon as that is known."""
        if self.known is None:
            return
        given = [*self.columns.names, *stats.unknown]
        if ended or self.reader.kind != "json":
            given = columns_in(self.columns, stats, self.reader)
        # The default event time may come with any file, which then declares it.
        given = [name for name in given if name != self.tail.vocab.event_time or name in self.known]
        if ended or self.reader.kind != "json":
            unknown_columns(given, self.known, self.new, place=self.source.path)
        if self.new == "error":
            refuse_unknown(given, self.known, place=self.source.path)

    def parts(self, cut: Sequence[Part]) -> list[FileTask]:
        """Return the parts a large file is cut into, else the file itself."""
        if len(cut) == 1:
            return [self]
        return [
            replace(self, part=part, name=f"{n}-{self.name}", size=self._size_of(part, len(cut)))
            for n, part in enumerate(cut)
        ]

    def _size_of(self, part: Part, parts: int) -> int | None:
        if self.size is None or self.reader.kind not in _TEXT:
            return None if self.size is None else self.size // parts
        return (self.size if part.stop is None else part.stop) - part.start


def cut_file(task: FileTask) -> list[Part]:
    """Say where a file is cut: by a look at some places of it."""
    return task.reader.parts(task.source)


@dataclass(frozen=True, slots=True)
class FileRead:
    """What reading a file gave; `failed` says that a part of it could not be read as one.

    `given` are the columns it has, at least in one row.
    """

    pieces: tuple[IncomingPiece, ...]
    newest: Instant | None
    rounded: int
    stats: ReadStats
    cells: pa.Table | None
    failed: bool = False
    given: tuple[str, ...] = ()

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
    advice: tuple[Advice, ...] = ()
    ignored: tuple[str, ...] = ()


def read_file(task: FileTask) -> FileRead:
    """Read one file, or a part of it, into a piece; runs where there is room for it."""
    try:
        return _read(task)
    except InputError as error:
        if task.part == WHOLE:
            raise named(error, task.source.path) from None
        # The cut may have been wrong; and if the file is broken, reading all of it shows on which line.
        return FileRead((), None, 0, ReadStats(), None, failed=True)


def named(error: InputError, path: str) -> InputError:
    """Let an error say which of many files it is about, if it does not."""
    if "path" not in error.fields:
        error.fields["path"] = path
        if path not in error.problem:
            error.problem = f"{path}: {error.problem}"
    return error


def _read(task: FileTask) -> FileRead:
    empty = fit_rows(task.columns.empty_table(), task.tail, with_op=task.with_op).table
    newest, rounded = None, 0
    cells: list[pa.Table] = []
    strategy = strategy_of(task.tail)
    key = () if isinstance(strategy, Append) else strategy.key
    progress = task_progress()
    source = task.source
    if task.reader.kind in _TEXT:
        source = source.counted(lambda size: progress.advance(size=size))
    reading = task.reader.read(source, task.columns, part=task.part)
    # Every attempt of a task writes a file of its own, so that none is read half written.
    with PieceWriter(task.scratch, f"{uuid.uuid4().hex}-{task.name}", empty.schema) as writer:
        for batch in _named(task, reading):
            if not writer.rows or reading.stats.unknown:
                task.check_columns(reading.stats, ended=False)
            fitted = fit_rows(pa.Table.from_batches([batch.table]), task.tail, with_op=task.with_op)
            _refuse_keyless(fitted.table, key, batch.start)
            writer.write(fitted.table)
            progress.advance(rows=fitted.table.num_rows)
            newest, rounded = latest([newest, newest_event(fitted)]), rounded + fitted.rounded
            if batch.bad.num_rows:
                cells.append(_with_file(batch.bad, task.source.path))
        task.check_columns(reading.stats, ended=True)
        # The rows are to be those of the bytes that were hashed: a file written to meanwhile is refused.
        task.source.open().close()
        piece = writer.finish()
    found = pa.concat_tables(cells) if cells else None
    given = tuple(name for name in task.columns.names if name not in reading.stats.absent)
    return FileRead((piece,), newest, rounded, reading.stats, found, given=given)


def _refuse_keyless(table: pa.Table, key: Sequence[str], start: int) -> None:
    """Refuse rows without a key while it is known which file they are in."""
    there = [name for name in key if name in table.column_names]
    if any(table[name].null_count for name in there):
        raise null_key(key, start + np.flatnonzero(rows_without_key(table, there)))


def _named(task: FileTask, reading: Reading) -> Iterator[Batch]:
    """Yield the batches of a file; of one that has none of the columns, say which it was meant to have."""
    try:
        yield from reading
    except SchemaError as error:
        given, known = reading.stats.unknown, task.known or task.columns.names
        if given and not set(given).intersection(known):
            try:
                unknown_columns(given, known, task.new, place=task.source.path)
            except SchemaError as ours:
                # The reader may know which separator it takes.
                if ours.code == "NoSharedColumn" and error.remedy.startswith("give "):
                    ours.remedy = error.remedy
                raise ours from None
        raise


def _with_file(cells: pa.RecordBatch, path: str) -> pa.Table:
    names = pa.array([path] * cells.num_rows, pa.string())
    return pa.Table.from_batches([cells]).add_column(0, "file", names)


def read_all(
    read: Callable[[FileTask], FileRead], files: Sequence[FileTask], tasks: Tasks, *, max_listed: int
) -> list[FileRead]:
    """Read files in their order; one of which a part failed is read again as a whole."""
    work = [(number, part) for number, file in enumerate(_cut(files, tasks)) for part in file]
    done: dict[int, FileRead] = {}
    try:
        # Kept one by one: what was read before an error is looked at.
        done.update(tasks.map(read, [part for _, part in work], label="read files"))
    except InputError:
        # The error is of the first that failed as a whole; a part of an earlier file may have failed before.
        first = next((index for index in range(len(work)) if index not in done), len(work))
        for number in dict.fromkeys(work[index][0] for index in range(first) if done[index].failed):
            _ = list(tasks.map(read, [files[number]], label="read files"))
        raise
    found: list[list[FileRead]] = [[] for _ in files]
    for index, (number, _) in enumerate(work):
        found[number].append(done[index])
    again = [number for number, parts in enumerate(found) if any(part.failed for part in parts)]
    if again:
        whole = dict(tasks.map(read, [files[number] for number in again], label="read files"))
        for index, number in enumerate(again):
            found[number] = [whole[index]]
    return [_joined(parts, max_listed) for parts in found]


def _cut(files: Sequence[FileTask], tasks: Tasks) -> list[list[FileTask]]:
    """Cut large files into parts."""
    if isinstance(tasks, InlineTasks):
        return [file.parts(cut_file(file)) for file in files]
    large = [n for n, file in enumerate(files) if file.source.size is None or file.source.size >= PART_BYTES]
    found = dict(tasks.map(cut_file, [files[number] for number in large], label="cut large files"))
    cuts = {number: found[index] for index, number in enumerate(large)}
    return [file.parts(cuts.get(number, (WHOLE,))) for number, file in enumerate(files)]


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
        given=tuple(dict.fromkeys(name for part in parts for name in part.given)),
    )
