"""Files prepared by a run: every step may work ahead on a file that earlier ones are still at.

A key is a file, its value a reference to its rows. What comes out equals the
steps done one after another over all files, whatever the schedule, so the
slices and blocks made of it are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from trueline.chain.head_state import Tail
from trueline.chain.store.scratch import Scratch
from trueline.dataset.append.incoming import (
    FileRead,
    ReadFiles,
    columns_for,
    fit_rows,
    latest,
    newest_event,
    typed_for,
)
from trueline.dataset.append.pieces import ROWS_OF_A_BATCH, PieceWriter
from trueline.dataset.prepare.parse import File
from trueline.dataset.prepare.preparation import Preparation
from trueline.dataset.prepare.rows import Rows, RowsWriter, without_texts
from trueline.errors import InputError, SchemaError, check_memory
from trueline.kernel.tasks import Tasks
from trueline.readers import Reader, ReadStats, Source

# The key of rows that do not come from a file.
TABLE = "(rows)"


# --- files ------------------------------------------------------------------------------


def prepared_files(
    files: Sequence[Source],
    reader: Reader,
    preparation: Preparation,
    tail: Tail,
    *,
    scratch: Scratch,
    tasks: Tasks,
    op: str | None,
) -> ReadFiles | None:
    """Prepare files and fit what comes of them to a dataset; None if they have no columns."""
    columns = _columns(files, reader, preparation, tail, op)
    if not columns.names:
        return None
    keys = keys_of(files)
    work = [File(key, file, reader, columns, scratch) for key, file in zip(keys, files, strict=True)]
    ended = preparation.run(dict(zip(keys, work, strict=True)))
    found = [ended.values.get(key) for key in keys]
    schema = _united([rows for rows in found if isinstance(rows, Rows)])
    with_op = op is not None and op in schema.names
    typed = tail
    if schema.names:
        typed = typed_for(pa.schema([column for column in schema if column.name != op]), tail)
    fitting = [
        _Fitting(rows, typed, scratch, f"file-{number}.arrow", with_op, preparation.hides)
        for number, rows in enumerate(found)
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
    return ReadFiles(tuple(reads), typed, with_op, ended.left_out, ended.steps)


def _columns(
    files: Sequence[Source], reader: Reader, preparation: Preparation, tail: Tail, op: str | None
) -> pa.Schema:
    """Return the columns to read; files that cannot be read and may be left out do not count."""
    try:
        return columns_for(tail, files, reader, op, strange=True)
    except InputError:
        if preparation.parse.on_error != "skip_key":
            raise
    good: list[Source] = []
    for file in files:
        with suppress(InputError):
            columns_for(tail, [file], reader, op, strange=True)
            good.append(file)
    return columns_for(tail, good or files, reader, op, strange=True)


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
    schemas = [rows.table().schema for rows in found]
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
    """Prepared rows on their way into a piece."""

    rows: Rows
    tail: Tail
    scratch: Scratch
    name: str
    with_op: bool
    hides: frozenset[str]


def fit_to(task: _Fitting) -> FileRead:
    """Fit prepared rows to a dataset, into a piece."""
    table = task.rows.table()
    empty = fit_rows(table.schema.empty_table(), task.tail, with_op=task.with_op).table
    writer = PieceWriter(task.scratch, task.name, empty.schema)
    newest, rounded = None, 0
    for batch in table.to_batches(max_chunksize=ROWS_OF_A_BATCH):
        fitted = fit_rows(pa.Table.from_batches([batch]), task.tail, with_op=task.with_op)
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
