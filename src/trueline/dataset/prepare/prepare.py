"""Files prepared by a run: every step may work ahead on a file that earlier ones are still at.

A key is a file, its value a reference to its rows. What comes out equals the
steps done one after another over all files, whatever the schedule, so the
slices and blocks made of it are the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from trueline.chain.head_state import Tail
from trueline.chain.store.scratch import Scratch
from trueline.dataset.append.incoming import (
    FileRead,
    ReadFiles,
    latest,
    named,
    newest_event,
    typed_for,
)
from trueline.dataset.append.intake import fit_rows
from trueline.dataset.append.new_columns import NewColumns, refuse_unknown, unknown_columns
from trueline.dataset.append.pieces import ROWS_OF_A_BATCH, PieceWriter
from trueline.dataset.append.read_files import FileColumns, ReadRequest, columns_for
from trueline.dataset.prepare.parse import File
from trueline.dataset.prepare.preparation import Preparation, PreparationResult
from trueline.dataset.prepare.rows import Parsed, Rows, RowsWriter, without_texts
from trueline.errors import InputError, SchemaError, check_memory
from trueline.kernel.tasks import Tasks, apply
from trueline.readers import ReadStats, Source
from trueline.run.step import OnError

# The key of rows that do not come from a file.
TABLE = "(rows)"


# --- files ------------------------------------------------------------------------------


def prepared_files(
    request: ReadRequest, preparation: Preparation, *, scratch: Scratch, tasks: Tasks
) -> ReadFiles | None:
    """Prepare files and fit what comes of them to a dataset; None if they have no columns."""
    files, tail, op = request.files, request.tail, request.op
    columns = apply(tasks, _columns, (request, preparation.parse.on_error), label="look at the first rows")
    if not columns.names:
        return None
    keys = keys_of(files)
    columns, ended = _parsed_and_prepared(request, preparation, columns, scratch=scratch, tasks=tasks)
    found = [ended.values.get(key) for key in keys]
    schema = _united([rows for rows in found if isinstance(rows, Rows)])
    ignored = _check_columns(request, dict(zip(keys, found, strict=True)))
    with_op = op is not None and op in schema.names
    typed = tail
    if schema.names:
        typed = typed_for(pa.schema([c for c in schema if c.name != op]), tail, request.new)
    fitting = [
        _Fitting(key, rows, typed, scratch, f"file-{number}.arrow", with_op, preparation.hides, request.new)
        for number, (key, rows) in enumerate(zip(keys, found, strict=True))
        if isinstance(rows, Rows)
    ]
    fitted = dict(tasks.map(fit_to, fitting, label="fit rows"))
    done = iter([fitted[number] for number in range(len(fitting))])
    # A file whose key a step erased was read, and gave no row.
    gone = FileRead((), None, 0, ReadStats(), None)
    reads = [
        next(done) if isinstance(rows, Rows) else (None if key in ended.failures else gone)
        for key, rows in zip(keys, found, strict=True)
    ]
    return ReadFiles(tuple(reads), typed, with_op, ended.left_out, ended.steps, ignored=ignored)


def _parsed_and_prepared(
    request: ReadRequest, preparation: Preparation, columns: pa.Schema, *, scratch: Scratch, tasks: Tasks
) -> tuple[pa.Schema, PreparationResult]:
    """Run the steps, again with wider types where those inferred from the first rows do not hold."""
    keys = keys_of(request.files)
    inferred = request.inferred(columns)
    while True:
        work = {
            key: File(key, file, request.reader, columns, scratch, inferred.names)
            for key, file in zip(keys, request.files, strict=True)
        }
        ended = preparation.run(work)
        parsed = {key: rows.parsed for key, rows in ended.values.items() if isinstance(rows, Rows)}
        seen = [
            FileColumns(file, *_without(found, preparation.hides))
            for key, file in zip(keys, request.files, strict=True)
            if (found := parsed.get(key)) is not None
        ]
        inferred, revised = inferred.revise(columns, seen, tasks)
        if revised.equals(columns):
            return columns, ended
        columns = revised


def _without(parsed: Parsed, hidden: frozenset[str]) -> tuple[ReadStats, pa.Table | None]:
    """Return what reading showed, without texts of columns that steps mask: an error may show the others."""
    samples = {name: text for name, text in parsed.stats.samples.items() if name not in hidden}
    return replace(parsed.stats, samples=samples), without_texts(parsed, hidden).cells


def _check_columns(request: ReadRequest, prepared: Mapping[str, object]) -> tuple[str, ...]:
    """Hold the columns that each file has once it is prepared against the dataset; return those ignored."""
    known = None if request.known is None else list(request.known)
    ignored: dict[str, None] = {}
    for path, rows in prepared.items():
        if not isinstance(rows, Rows):
            continue
        event_time = request.tail.vocab.event_time
        given = [n for n in rows.schema.names if n != event_time or n in (known or ())]
        if known is None:
            known = given
            continue
        unknown = unknown_columns(given, known, request.new, place=path)
        if request.new == "error":
            refuse_unknown(given, known, place=path)
        elif request.new == "add":
            known += unknown
        else:
            ignored |= dict.fromkeys(unknown)
    return tuple(ignored)


def _columns(task: tuple[ReadRequest, OnError]) -> pa.Schema:
    """Return the columns to read; files that cannot be read and may be left out do not count."""
    request, on_error = task
    reader, tail, op, new = request.reader, request.tail, request.op, request.new
    try:
        return columns_for(tail, request.files, reader, op, new, strange=True)
    except InputError:
        if on_error != "skip_key":
            raise
    good: list[Source] = []
    for file in request.files:
        with suppress(InputError):
            columns_for(tail, [file], reader, op, new, strange=True)
            good.append(file)
    return columns_for(tail, good or request.files, reader, op, new, strange=True)


def keys_of(sources: Sequence[Source]) -> list[str]:
    """Name files for a run: by their paths, and by a number too where several have one path.

    >>> keys_of([Source.memory(b"1"), Source.memory(b"2"), Source.memory(b"3", "(memory) 2")])
    ['(memory)', '(memory) 2', '(memory) 2 2']
    """
    keys: dict[str, None] = {}
    numbers: dict[str, int] = {}
    for source in sources:
        key = source.path
        while key in keys:
            numbers[source.path] = number = numbers.get(source.path, 1) + 1
            key = f"{source.path} {number}"
        keys[key] = None
    return list(keys)


def _united(found: Sequence[Rows]) -> pa.Schema:
    """Return the columns that the prepared files have together."""
    schemas = [rows.schema for rows in found]
    try:
        return pa.unify_schemas(schemas) if schemas else pa.schema([])
    except pa.ArrowException as error:
        check_memory(error, "putting the prepared files together")
        raise SchemaError(
            f"prepared, the files do not fit together: {error}",
            remedy="let the steps give a column the same type in every file",
        ) from None


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Prepared rows on their way into a piece, and the file they are from."""

    path: str
    rows: Rows
    tail: Tail
    scratch: Scratch
    name: str
    with_op: bool
    hides: frozenset[str]
    new: NewColumns


def fit_to(task: _Fitting) -> FileRead:
    """Fit prepared rows to a dataset, into a piece."""
    try:
        return _fitted(task)
    except InputError as error:
        raise named(error, task.path) from None


def _fitted(task: _Fitting) -> FileRead:
    table = task.rows.table()
    empty = fit_rows(table.schema.empty_table(), task.tail, with_op=task.with_op, new=task.new).table
    # Every attempt of a task writes a file of its own, so that none is read half written.
    writer = PieceWriter(task.scratch, f"{uuid.uuid4().hex}-{task.name}", empty.schema)
    newest, rounded = None, 0
    for batch in table.to_batches(max_chunksize=ROWS_OF_A_BATCH):
        rows = pa.Table.from_batches([batch])
        fitted = fit_rows(rows, task.tail, with_op=task.with_op, new=task.new)
        writer.write(fitted.table)
        newest, rounded = latest([newest, newest_event(fitted)]), rounded + fitted.rounded
    parsed = task.rows.parsed
    assert parsed is not None
    cells = without_texts(parsed, task.hides).cells if task.hides else parsed.cells
    given = tuple(table.schema.names)
    return FileRead((writer.finish(),), newest, rounded, parsed.stats, cells, given=given)


# --- a table ----------------------------------------------------------------------------


def prepare_tables(
    tables: Iterator[pa.Table], preparation: Preparation, scratch: Scratch
) -> tuple[pa.Table, tuple[str, ...]]:
    """Prepare rows that are no file's, of equal columns; return them, in scratch, and the steps' names."""
    kept = _kept(tables, scratch)
    ended = preparation.run({TABLE: kept})
    if (failure := ended.failures.get(TABLE)) is not None:
        raise failure.cause
    rows = ended.values.get(TABLE)
    made = rows.table() if isinstance(rows, Rows) else kept.table().slice(0, 0)
    return made, tuple(name for name in ended.steps if name != preparation.parse.name)


def _kept(tables: Iterator[pa.Table], scratch: Scratch) -> Rows:
    first = next(tables, None)
    if first is None:
        raise InputError("the stream gave no table", remedy="append([]) if there is nothing to add")
    writer = RowsWriter(scratch, first.schema)
    try:
        for table in chain([first], tables):
            writer.write(table)
    except BaseException:
        writer.close()
        raise
    return writer.finish()
