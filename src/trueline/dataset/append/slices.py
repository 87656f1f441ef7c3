"""Slices: types and columns as they are stored, rows written as one Parquet file and hashed on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trueline.chain import datatypes as t
from trueline.chain.datatypes import DataField, DataSchema
from trueline.chain.events import DataSlice, OffsetInterval, SetVocab
from trueline.chain.instant import Instant
from trueline.chain.schema import to_arrow
from trueline.chain.store.store import Folder, Store
from trueline.dataset.append.pieces import IncomingPiece, RowRange, cut, rows_within
from trueline.errors import SchemaError, check_memory
from trueline.identity.logical import LogicalHasher
from trueline.kernel.nan import canonical
from trueline.kernel.tasks import InlineTasks, Tasks

ROWS_OF_A_GROUP: Final = 262_144
# Wide rows are fewer: a group is in memory as a whole, as it came and as it is written.
BYTES_OF_A_GROUP: Final = 128 << 20
# The operations that bring a row: append and correct to.
NEW: Final = pa.array([0, 3], pa.int32())
_CORRECT_FROM: Final = 2
# Arrow writes small pieces; gathered, a slice of 1,000 rows is one write instead of forty.
_GATHERED_BYTES: Final = 1 << 20
# Up to here a slice is made in memory and its rows are hashed while its bytes go to the disk.
_SMALL_BYTES: Final = 1 << 22
_MILLISECONDS: Final = pa.timestamp("ms", "UTC")
_MAX_FORMS: Final = 64
_STEPS: Final = {"us": 1_000, "ns": 1_000_000}
# Casting a chunk at a time keeps large text within the 2 GiB that plain text can address.
_CAST_ROWS: Final = 65_536


# --- types and columns -----------------------------------------------------------------


def storable(kind: Any) -> Any:
    """Parquet has no seconds: they become milliseconds, so that files read back as they were hashed."""
    match kind:
        case t.Timestamp(t.TimeUnit.Second, zone):
            return t.Timestamp(t.TimeUnit.Millisecond, zone)
        case t.Time(t.TimeUnit.Second):
            return t.Time(t.TimeUnit.Millisecond)
        case t.Option(inner):
            return t.Option(storable(inner))
        case t.List(item, length):
            return t.List(storable(item), length)
        case t.Struct(fields):
            return t.Struct(tuple(replace(field, type=storable(field.type)) for field in fields))
        case t.Map(key, value, keys_sorted):
            return t.Map(storable(key), storable(value), keys_sorted)
    return kind


def stored_column(
    column: pa.ChunkedArray, field: pa.Field, *, is_event_time: bool
) -> tuple[pa.ChunkedArray, int]:
    """Return a column with the type it is stored with, and how many values lost precision."""
    rounded = 0
    if is_event_time and pa.types.is_timestamp(column.type) and pa.types.is_timestamp(field.type):
        column, rounded = _milliseconds(column)
    if column.type != field.type:
        column = _cast(column, field)
    return canonical(column), rounded


def _milliseconds(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, int]:
    """Cut times to the millisecond they are in, and count those that were between two.

    A time without a zone is taken as UTC.
    """
    step = _STEPS.get(column.type.unit)
    if step is None:
        return column.cast(pa.timestamp(column.type.unit, "UTC")), 0
    numbers = column.cast(pa.int64())
    cut = pc.divide(numbers, step)
    rest = pc.subtract(numbers, pc.multiply(cut, step))
    # Division cuts towards zero; before 1970 that is the wrong way.
    cut = pc.subtract(cut, pc.less(rest, 0).cast(pa.int64()))
    rounded = pc.sum(pc.not_equal(rest, 0)).as_py() or 0
    return cut.cast(pa.timestamp("ms", "UTC")), rounded


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    from trueline.view.source_cells import castable

    pieces = []
    try:
        for chunk in map(castable, column.chunks):
            starts = range(0, len(chunk), _CAST_ROWS)
            pieces += [chunk.slice(start, _CAST_ROWS).cast(field.type) for start in starts]
    except pa.ArrowException as error:
        check_memory(error, f"making column {field.name!r} {field.type}")
        raise SchemaError(
            f"column {field.name!r} cannot be stored as {field.type}: {error}",
            remedy="cast it before",
            column=field.name,
        ) from None
    return pa.chunked_array(pieces, type=field.type)


# --- files ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SliceLayout:
    """How the slices of a commit look: schema, names of the system columns, the one time they have.

    New rows whose event time is before `watermark` are late and counted. With `whole_pairs` what a row was
    and what it is lie in one slice.
    """

    schema: DataSchema
    vocab: SetVocab
    system_time: Instant
    watermark: Instant | None = None
    whole_pairs: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """A slice that was staged, and how many of its rows were late."""

    slice: DataSlice
    late: int


def write_slice(store: Store, rows: Iterable[pa.Table], layout: SliceLayout, first: int) -> Written:
    """Stage rows (event time first, then data; `op` where it is not 0) as records from offset `first` on.

    Equal rows give equal bytes, however they are split into tables.
    """
    arrow = _form(layout).arrow
    hasher = LogicalHasher(arrow)
    writer = store.writer(Folder.DATA)
    offset, late = first, 0
    try:
        with (
            pa.output_stream(writer, buffer_size=_GATHERED_BYTES) as sink,
            pq.ParquetWriter(sink, arrow, **_form(layout).options) as parquet,
        ):
            for group in _groups(rows):
                records = _records(group, arrow, layout, offset)
                hasher.update(records)
                parquet.write_table(records, row_group_size=ROWS_OF_A_GROUP)
                offset += group.num_rows
                late += _late(records, layout, group)
        stored = writer.finish()
    except pa.ArrowException as error:
        raise _unstorable(error) from error
    finally:
        writer.abandon()
    interval = OffsetInterval(first, offset - 1)
    return Written(DataSlice(hasher.finish(), stored.hash, interval, stored.size), late)


def is_small(rows: pa.Table, layout: SliceLayout) -> bool:
    """Say whether `write_small_slice` takes the rows: few, and without structs, which may yet be refused."""
    return rows.nbytes <= _SMALL_BYTES and rows.num_rows <= ROWS_OF_A_GROUP and _form(layout).is_flat


def write_small_slice(store: Store, rows: pa.Table, layout: SliceLayout, first: int) -> Written:
    """Stage rows as `write_slice` does, with the same bytes: 0.5 ms for 1,000 rows instead of 1.2."""
    form = _form(layout)
    records = _records(rows.combine_chunks(), form.arrow, layout, first)
    hasher = LogicalHasher(form.arrow)
    raw = _encoded(records, form)
    name = store.put(Folder.DATA, raw)
    hasher.update(records)
    late = _late(records, layout, rows)
    interval = OffsetInterval(first, first + rows.num_rows - 1)
    return Written(DataSlice(hasher.finish(), name, interval, len(raw)), late)


def _encoded(records: pa.Table, form: _Form) -> bytes:
    sink = pa.BufferOutputStream()
    try:
        with pq.ParquetWriter(sink, form.arrow, **form.options) as parquet:
            parquet.write_table(records, row_group_size=ROWS_OF_A_GROUP)
    except pa.ArrowException as error:
        raise _unstorable(error) from error
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _unstorable(error: pa.ArrowException) -> SchemaError:
    check_memory(error, "writing a slice")
    return SchemaError(f"the table cannot be stored: {error}", remedy="cast the column it names")


def _late(records: pa.Table, layout: SliceLayout, rows: pa.Table) -> int:
    """Count the new rows that come after the watermark had passed their event time.

    A retraction, or the old half of a correction, repeats a row that was decided when it came.
    """
    if layout.watermark is None or layout.vocab.event_time_column is None:
        return 0
    # Event times are dates or whole milliseconds: rounding the watermark up keeps "before it" exact.
    limit = pa.scalar(-(-int(layout.watermark) // 1_000_000), _MILLISECONDS)
    times = records[layout.vocab.event_time]
    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("ms")).cast(_MILLISECONDS)
    late = pc.less(times, limit)
    if layout.vocab.op in rows.schema.names:
        late = pc.and_(late, pc.is_in(records[layout.vocab.op], value_set=NEW))
    return int(pc.sum(late).as_py() or 0)


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Gather rows into row groups of equal size, or of fewer rows where those are large.

    Where a group ends depends on the values of its rows, not on how they are split into tables.
    """
    waiting: list[pa.Table] = []
    count, size = 0, 0  # rows, and no fewer bytes than their values have
    for table in tables:
        waiting.append(table)
        count += table.num_rows
        size += table.nbytes
        while count >= ROWS_OF_A_GROUP or size > BYTES_OF_A_GROUP:
            whole = pa.concat_tables(waiting)
            end, known = rows_within(whole.slice(0, ROWS_OF_A_GROUP), BYTES_OF_A_GROUP)
            if end == count < ROWS_OF_A_GROUP:
                waiting, size = [whole], known
                break
            yield whole.slice(0, end).combine_chunks()
            rest = whole.slice(end)
            waiting, count, size = [rest], rest.num_rows, rest.nbytes
    if count:
        yield pa.concat_tables(waiting).combine_chunks()


def _records(rows: pa.Table, arrow: pa.Schema, layout: SliceLayout, first: int) -> pa.Table:
    count, vocab = rows.num_rows, layout.vocab
    columns: dict[str, Any] = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns[vocab.offset] = pa.array(np.arange(first, first + count, dtype=np.int64))
    columns[vocab.system_time] = pa.array(
        np.full(count, int(layout.system_time) // 1_000_000, dtype=np.int64)
    )
    if vocab.op not in columns:
        columns[vocab.op] = pa.array(np.zeros(count, dtype=np.int32))
    return pa.Table.from_arrays([_typed(columns, field, count) for field in arrow], schema=arrow)


def _typed(columns: dict[str, Any], field: pa.Field, count: int) -> pa.Array | pa.ChunkedArray:
    column, kind = columns.get(field.name), field.type
    if column is None:
        # A column that another writer added while these rows were on their way.
        return pa.nulls(count, kind)
    return column if column.type == kind else column.cast(kind)


@dataclass(frozen=True, slots=True)
class _Form:
    """What every slice of a schema has in common."""

    fields: tuple[DataField, ...]
    vocab: SetVocab
    arrow: pa.Schema
    options: dict[str, Any]
    is_flat: bool


_forms: dict[int, _Form] = {}


def _form(layout: SliceLayout) -> _Form:
    """Return the form of a schema, made once (40 µs): commits that follow each other share its fields."""
    fields, vocab = layout.schema.fields, layout.vocab
    known = _forms.get(id(fields))
    if known is not None and known.fields is fields and known.vocab == vocab:
        return known
    arrow = to_arrow(layout.schema)
    flat = all(field.type.num_fields == 0 and not _is_extension(field.type) for field in arrow)
    if len(_forms) >= _MAX_FORMS:
        _forms.clear()
    made = _forms[id(fields)] = _Form(fields, vocab, arrow, _layout(arrow, vocab), flat)
    return made


def _is_extension(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType)


def _layout(arrow: pa.Schema, vocab: SetVocab) -> dict[str, Any]:
    """How other readers of the format expect slices: pages of version 1, snappy, two dictionaries."""
    return {
        "version": "2.6" if any(_needs_new_types(field.type) for field in arrow) else "1.0",
        "data_page_version": "1.0",
        "compression": "snappy",
        "use_dictionary": [vocab.op, vocab.system_time],
    }


def _needs_new_types(kind: pa.DataType) -> bool:
    """Version 1.0 turns nanoseconds into microseconds and uint32 into int64."""
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return bool(kind.unit == "ns")
    if pa.types.is_uint32(kind):
        return True
    return any(_needs_new_types(kind.field(index).type) for index in range(kind.num_fields))


@dataclass(frozen=True, slots=True)
class SliceTask:
    """One slice to write: its rows, how it looks, where it begins, and the store it goes to."""

    store: Store
    parts: tuple[RowRange, ...]
    layout: SliceLayout
    first: int

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(part.rows for part in self.parts)


def write_one(task: SliceTask) -> Written:
    """Write one slice; it is durable under its name when this returns. Doing it twice does no harm."""
    # Its own lease ends here; that of a put without one would stay in an object store for a day.
    with task.store.lease():
        written = write_slice(task.store, _rows(task.parts), task.layout, task.first)
        task.store.sync()
    return written


def _rows(parts: Sequence[RowRange]) -> Iterator[pa.Table]:
    for part in parts:
        yield from part.piece.read(part.start, part.stop)


def _is_in_memory(parts: Sequence[RowRange]) -> bool:
    return all(getattr(part.piece, "table", None) is not None for part in parts)


def _write_alone(task: SliceTask) -> Written:
    """Write the only slice of a commit."""
    if len(task.parts) == 1 and _is_in_memory(task.parts):
        (rows,) = _rows(task.parts)
        if is_small(rows, task.layout):
            return write_small_slice(task.store, rows, task.layout, task.first)
    return write_slice(task.store, _rows(task.parts), task.layout, task.first)


def write_all(
    store: Store, pieces: Sequence[IncomingPiece], layout: SliceLayout, first: int, tasks: Tasks
) -> list[Written]:
    """Write the rows of the pieces as slices with dense offsets from `first` on; none without a row."""
    op = layout.vocab.op

    def goes_on(piece: IncomingPiece, row: int) -> bool:
        (rows,) = piece.read(row, row + 1)
        return bool(rows[op][0].as_py() == _CORRECT_FROM)

    work: list[SliceTask] = []
    for parts in cut(pieces, goes_on=goes_on if layout.whole_pairs else None):
        work.append(SliceTask(store, parts, layout, first))
        first += sum(part.rows for part in parts)
    if not work:
        return []
    if len(work) == 1 and (isinstance(tasks, InlineTasks) or _is_in_memory(work[0].parts)):
        # The head moves next, which makes it durable together with the blocks.
        return [_write_alone(work[0])]
    if any(_is_in_memory(each.parts) for each in work) and not isinstance(tasks, InlineTasks):
        # Rows in this process are not sent to others: each slice would take all of them along.
        tasks = InlineTasks()
    done = dict(tasks.map(write_one, work, label="write slices"))
    return [done[index] for index in range(len(work))]
