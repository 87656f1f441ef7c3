"""Rows that come as a stream: drawn once, batch by batch; more than a few MiB wait in scratch files."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from trueline.chain.datatypes import DataSchema
from trueline.chain.head_state import Tail
from trueline.chain.schema import fields_of
from trueline.chain.store.scratch import Scratch
from trueline.dataset.append.incoming import (
    Incoming,
    from_table,
    latest,
    newest_event,
    nothing,
    typed_for,
)
from trueline.dataset.append.intake import fit_rows, without_labels
from trueline.dataset.append.new_columns import NewColumns
from trueline.dataset.append.pieces import ROWS_OF_A_BATCH, PieceWriter
from trueline.errors import InputError, SchemaError, TruelineError, check_memory

if TYPE_CHECKING:
    from trueline.view.plan.on_spark import OnSpark

# Streams up to here are held as a table, which is faster than scratch and gives the same bytes.
IN_MEMORY_BYTES: Final = 32 << 20
# Their rows are in memory before we see them.
_FRAMES: Final = ("pandas", "polars")


def as_stream(data: object) -> Iterator[pa.Table] | None:
    """Return what was handed in as tables to be drawn once; None if it is not a stream, or is in memory.

    Where the columns are known before any row, a table without rows comes first.

    >>> [table.num_rows for table in as_stream(pa.table({"x": [1]}).to_reader())]
    [0, 1]
    """
    if isinstance(data, pa.Table | pa.RecordBatch) or _package(data) in _FRAMES:
        return None
    if hasattr(data, "__arrow_c_stream__"):
        from trueline.view.view import View

        if isinstance(data, View):
            # Not through Arrow's stream, which turns typed errors of a view into texts.
            return _drawn(chain([data.schema.to_arrow().empty_table()], data.batches()))
        reader = _opened(data)
        return _drawn(chain([reader.schema.empty_table()], reader))
    return _drawn(data) if isinstance(data, Iterator) else None


def plan_on_spark(data: object) -> OnSpark | None:
    """Return the plan of a view with columns that runs on Spark, None if it is anything else."""
    if not hasattr(data, "on_spark"):
        return None  # not a view, and nothing has to be loaded to find out
    from trueline.view.plan.on_spark import OnSpark
    from trueline.view.view import View

    if not isinstance(data, View) or not data.schema.visible:
        return None
    plan = data._plan  # noqa: SLF001 (where a view is computed is nobody's business but ours)
    return plan if isinstance(plan, OnSpark) else None


def _package(data: object) -> str:
    return type(data).__module__.partition(".")[0]


def _opened(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    with _typed(0):
        return pa.RecordBatchReader.from_stream(data)


def _drawn(batches: Iterable[object]) -> Iterator[pa.Table]:
    """Yield tables of so many rows at most: what fitting them copies is bounded, however large a batch is."""
    coming, number = iter(batches), 0
    while True:
        with _typed(number):
            try:
                item = next(coming)
            except StopIteration:
                return
            table = _table(item, number)
        number += 1
        yield from (
            table.slice(start, ROWS_OF_A_BATCH) for start in range(0, max(len(table), 1), ROWS_OF_A_BATCH)
        )


def _table(item: Any, number: int) -> pa.Table:
    if isinstance(item, pa.Table):
        return item
    if isinstance(item, pa.RecordBatch):
        return pa.Table.from_batches([item])
    if hasattr(item, "__arrow_c_stream__") or hasattr(item, "__arrow_c_array__"):
        return without_labels(item, pa.table(item))
    raise InputError(
        f"item {number} of the stream is a {type(item).__name__}",
        remedy="let it give Arrow tables or batches, or pandas or polars frames; rows go in a list",
        code="NotATable",
    )


@contextmanager
def _typed(number: int) -> Iterator[None]:
    """Report a failure of the code that makes the rows as its own, and that nothing was committed."""
    try:
        yield
    except TruelineError:
        raise
    except Exception as error:
        check_memory(error, "drawing rows from a stream")
        raise InputError(
            f"the stream failed at batch {number}: {type(error).__name__}: {error}",
            remedy="nothing was committed: append again with a stream that gives all of its rows",
            code="StreamFailed",
            batch=number,
        ) from error


def in_batches(table: pa.Table) -> Iterator[pa.Table]:
    """Return a table as a stream."""
    return _drawn([table])


def same_columns(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Refuse a table with other columns than the first has."""
    first: pa.Schema | None = None
    for table in tables:
        first = first if first is not None else table.schema
        if not table.schema.equals(first):
            raise _differs(table.schema, first)
        yield table


def _differs(found: pa.Schema, first: pa.Schema) -> SchemaError:
    lines = [f"+ {name}: the first batch does not have it" for name in found.names if name not in first.names]
    lines += [f"- {name}: the first batch has it" for name in first.names if name not in found.names]
    lines += [
        f"~ {field.name}: is {found.field(field.name).type}, the first batch has {field.type}"
        for field in first
        if field.name in found.names and found.field(field.name).type != field.type
    ]
    return SchemaError(
        "a batch of the stream has other columns than the first\n"
        + "\n".join(f"    {line}" for line in lines or ["their order"]),
        remedy="give all batches the same columns, for example with batch.cast(schema)",
        differences=tuple(lines),
    )


def take_stream(
    tables: Iterator[pa.Table], tail: Tail, scratch: Scratch, *, with_op: bool, new: NewColumns = "error"
) -> Incoming:
    """Take the rows of a stream; few are held in memory, more are fitted into scratch as they come."""
    held, size = deque[pa.Table](), 0
    for table in tables:
        held.append(table)
        size += table.nbytes
        if size > IN_MEMORY_BYTES:
            break
    else:
        if not held:
            return nothing(tail)
        if all(table.schema.equals(held[0].schema) for table in held):
            return from_table(pa.concat_tables(held), tail, with_op=with_op, new=new)
    return _spooled(held[0].schema, _resumed(held, tables), tail, scratch, with_op=with_op, new=new)


def _resumed(held: deque[pa.Table], rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables that were drawn already, letting go of each, and then the others."""
    while held:
        yield held.popleft()
    yield from rest


def _spooled(
    schema: pa.Schema,
    tables: Iterator[pa.Table],
    tail: Tail,
    scratch: Scratch,
    *,
    with_op: bool,
    new: NewColumns,
) -> Incoming:
    """Fit tables to the dataset and write them to scratch as one piece; the first table has this schema."""
    op = tail.vocab.op
    typed = typed_for(pa.schema([field for field in schema if not with_op or field.name != op]), tail, new)
    assert typed.schema is not None
    first = fit_rows(schema.empty_table(), typed, with_op=with_op, new=new)
    columns = first.table.schema
    newest, rounded = None, 0
    with PieceWriter(scratch, f"stream-{uuid.uuid4().hex}.arrow", columns) as writer:
        for table in tables:
            if not set(table.column_names).issubset(schema.names):
                raise _differs(table.schema, schema)
            fitted = fit_rows(table, typed, with_op=with_op, new=new)
            if fitted.table.schema.names != columns.names:
                raise _differs(fitted.table.schema, columns)
            writer.write(fitted.table)
            newest, rounded = latest([newest, newest_event(fitted)]), rounded + fitted.rounded
        piece = writer.finish()

    def again(later: Tail) -> Incoming:
        """Fit the rows to what others made of the schema meanwhile; the stream itself is used up."""
        names = [name for name in schema.names if name not in first.ignored]
        rows = (table.select(names) for table in piece.read(0, piece.rows))
        given = pa.schema([columns.field(name) for name in names])
        taken = _spooled(given, rows, later, scratch, with_op=with_op, new=new)
        return replace(taken, rounded=taken.rounded + rounded, ignored_columns=first.ignored)

    return Incoming(
        (piece,),
        DataSchema(fields_of(typed.schema)),
        typed.vocab,
        newest,
        rounded,
        typed_for=tail.schema,
        again=again,
        with_op=op in columns.names,
        given=frozenset(schema.names),
        ignored_columns=first.ignored,
    )
