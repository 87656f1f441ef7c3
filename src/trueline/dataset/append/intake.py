"""From what is appended to a table that fits the dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from trueline.chain import datatypes as t
from trueline.chain.events import SetDataSchema, SetVocab, SourceState
from trueline.chain.head_state import Tail
from trueline.chain.schema import annotated, fields_of, from_arrow, show, to_arrow
from trueline.chain.sources import MergeUpsertStream
from trueline.check import DatasetCheck
from trueline.dataset.append.new_columns import (
    ALLOWED,
    NewColumns,
    not_a_column,
    refuse_case_twins,
    unknown_columns,
)
from trueline.dataset.append.slices import storable, stored_column
from trueline.errors import InputError, SchemaError, check_memory
from trueline.identity.logical import LogicalHasher
from trueline.readers import Reader
from trueline.view.schema import Schema
from trueline.view.sources.python import column_of

if TYPE_CHECKING:
    from trueline.dataset.prepare.preparation import Preparation

Held: TypeAlias = "pa.Table | list[Mapping[str, Any]]"
EVENT_TIME = "event_time"
_MAX_WAYS = 64


@dataclass(frozen=True, slots=True)
class Polled:
    """That files come from the declared source of a dataset, and how far it has been read with them.

    With `versions` a name has one content after another: what it had last is known.
    """

    versions: bool = False
    state: SourceState | None = None


class ColumnOf(Protocol):
    """Yields the column of another dataset that a check refers to; `judged_at` is where those were read."""

    @property
    def judged_at(self) -> Mapping[str, str]:
        """The blocks at which datasets were read, by their ids."""
        ...

    def __call__(self, check: DatasetCheck) -> Iterator[pa.Table]: ...


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """What one append is asked to do: made once by `Dataset.append` or a pull, and handed on as it is."""

    data: object
    reader: Reader | None = None
    max_bad: float | None = None
    idempotency_key: str | None = None
    watermark: object = None
    resend: bool = False
    preparation: Preparation | None = None
    polled: Polled | None = None
    allow_empty: bool = False
    new_columns: NewColumns | None = None
    column_of: ColumnOf | None = None


@dataclass(frozen=True, slots=True)
class Fitted:
    """Rows ready to be written: event time first, then the dataset's columns in its order.

    `schema` is the whole schema of the slice; `vocab` is set where the data
    brought the default event-time column for the first time; `rounded` counts
    event times that had more than milliseconds, and `ignored` are the columns
    that were left out.
    """

    table: pa.Table
    schema: t.DataSchema
    vocab: SetVocab | None = None
    rounded: int = 0
    ignored: tuple[str, ...] = ()


def hold(data: object, tail: Tail | None = None) -> Held:
    """Hold what was handed in, so that it can be read more than once.

    Objects in a pandas frame take the types the dataset has.

    >>> hold({"x": [1, 2]}).num_rows
    2
    """
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, Mapping):
        return _converted(lambda: pa.table(dict(data)))
    if hasattr(data, "__arrow_c_stream__"):
        table = without_labels(data, _converted(lambda: pa.table(data)))
        if tail is None or tail.schema is None or not _is_pandas(data):
            return table
        from trueline.view.pandas_frames import with_types

        return with_types(data, table, to_arrow(t.DataSchema(fields_of(tail.schema))))
    if isinstance(data, Sequence) and not isinstance(data, str | bytes | bytearray):
        rows = list(data)
        wrong = next((number for number, row in enumerate(rows) if not isinstance(row, Mapping)), None)
        if wrong is None:
            return rows
        raise InputError(
            f"row {wrong:,} (counted from 0) is a {type(rows[wrong]).__name__}, not a dictionary",
            remedy="give dictionaries, or an Arrow table",
        )
    raise InputError(
        f"cannot append a {type(data).__name__}",
        remedy="give an Arrow table, a pandas or polars frame, a list of dictionaries, an iterator of tables",
        code="NotATable",
    )


def without_labels(frame: object, table: pa.Table) -> pa.Table:
    """Leave out the unnamed row labels that pandas hands over as columns; they are not data."""
    if not _is_pandas(frame):
        return table
    return table.drop_columns([name for name in table.column_names if name.startswith("__index_level_")])


def _is_pandas(data: object) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas"


def _converted(make: Any) -> pa.Table:
    try:
        return make()
    except (pa.ArrowException, MemoryError, TypeError, ValueError) as error:
        check_memory(error, "making a table of what was given")
        raise InputError(
            f"this is not a table: {error}", remedy="give columns of equal length and one type each"
        ) from None


def as_table(held: Held, tail: Tail) -> pa.Table:
    """Make a table of what was handed in; rows take the types the dataset has."""
    if isinstance(held, pa.Table):
        return held
    return _from_rows(held, fields_of(tail.schema) if tail.schema is not None else None, tail.vocab)


def fit(held: Held, tail: Tail, new: NewColumns = "error") -> Fitted:
    """Bring rows into the shape of a dataset, or say what keeps them from it."""
    if isinstance(held, pa.Table) and (way := _known_way(held, tail, new)) is not None:
        return way.go(held)
    fields = fields_of(tail.schema) if tail.schema is not None else None
    table = as_table(held, tail)
    vocab = tail.vocab
    declares = vocab.event_time_column is None and EVENT_TIME in table.column_names
    if declares:
        vocab = replace(vocab, event_time_column=EVENT_TIME)
    ignored: tuple[str, ...] = ()
    given = table.schema
    if fields is None:
        schema = whole_schema(given, vocab)
    else:
        _no_system_columns(given.names, vocab)
        known = [field.name for field in user_fields(t.DataSchema(fields), vocab)]
        unknown = unknown_columns(given.names, known, new)
        ignored = unknown if new == "ignore" else ()
        kept = table.drop_columns(list(ignored)) if ignored else table
        said = annotated(fields, from_arrow(kept.schema).fields)
        schema = t.DataSchema(said + (_new_columns(kept, fields, vocab) if new == "add" else ()))
        _check_fits(kept, schema, vocab, new, may_lack=_may_lack(tail))
    way = _Way.to(schema, vocab, given, tail, new=new, ignored=ignored)
    if tail.schema is not None and not declares:
        if len(_ways) >= _MAX_WAYS:
            _ways.clear()
        _ways[id(tail.schema)] = way
    return replace(way.go(table), vocab=vocab if declares else None)


def fit_rows(held: Held, tail: Tail, *, with_op: bool, new: NewColumns = "error") -> Fitted:
    """Fit rows to a dataset; where its strategy takes operations, the column of them goes along."""
    name = tail.vocab.op
    if not with_op:
        return fit(held, tail, new)
    if isinstance(held, list):
        ops: Any = _ops(lambda: pa.chunked_array([pa.array([row.get(name) for row in held])]), name)
        given = any(name in row for row in held)
        rest: Held = [{key: value for key, value in row.items() if key != name} for row in held]
    else:
        given = name in held.column_names
        ops = _ops(lambda: held[name], name) if given else None
        rest = held.drop_columns([name]) if given else held
    fitted = fit(rest, tail, new)
    return replace(fitted, table=fitted.table.append_column(name, ops)) if given else fitted


def _ops(read: Callable[[], Any], name: str) -> Any:
    """Read operations as numbers; text and booleans, which would also become some, are refused."""
    try:
        column = read()
        wrong = pa.types.is_boolean(column.type) or pa.types.is_string(column.type)
        if not wrong:
            return column.cast(pa.int32())
        found = f"it is {column.type}"
    except (pa.ArrowException, MemoryError, TypeError, ValueError, OverflowError) as error:
        check_memory(error, f"reading the operations in column {name!r}")
        found = str(error)
    raise SchemaError(
        f"column {name!r} does not hold operations: {found}",
        remedy="use 0 append, 1 retract, 2 correct from, 3 correct to",
        code="BadOp",
        column=name,
    )


@dataclass(frozen=True, slots=True)
class _Way:
    """How tables of one Arrow schema are brought into the shape of one dataset, once that is allowed.

    `columns` are those of the dataset without the system's, event time first, each with its place in
    the table, -1 if it is not there; those at the places `required` must not have nulls.
    """

    wanted: SetDataSchema | None
    vocab: SetVocab
    given: pa.Schema
    schema: t.DataSchema
    stored: pa.Schema
    columns: tuple[tuple[pa.Field, int, bool], ...]
    required: tuple[int, ...]
    new: NewColumns
    ignored: tuple[str, ...]

    @classmethod
    def to(
        cls,
        schema: t.DataSchema,
        vocab: SetVocab,
        given: pa.Schema,
        tail: Tail,
        *,
        new: NewColumns,
        ignored: tuple[str, ...],
    ) -> _Way:
        fields = [field for field in to_arrow(schema) if field.name not in vocab.names[:3]]
        fields.sort(key=lambda field: field.name != vocab.event_time)
        columns = tuple((f, given.get_field_index(f.name), f.name == vocab.event_time) for f in fields)
        required = tuple(place for field, place, _ in columns if place >= 0 and not field.nullable)
        stored = pa.schema(fields)
        return cls(tail.schema, tail.vocab, given, schema, stored, columns, required, new, ignored)

    def go(self, table: pa.Table) -> Fitted:
        arrays, rounded = [], 0
        for field, place, is_event_time in self.columns:
            if place < 0:
                arrays.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)], type=field.type))
                continue
            array, lost = stored_column(table.column(place), field, is_event_time=is_event_time)
            arrays.append(array)
            rounded += lost
        made = pa.Table.from_arrays(arrays, schema=self.stored)
        return Fitted(made, self.schema, None, rounded, self.ignored)


_ways: dict[int, _Way] = {}


def _known_way(table: pa.Table, tail: Tail, new: NewColumns) -> _Way | None:
    """Return how a table of the same schema went into the same dataset before: 60 µs instead of 260."""
    way = _ways.get(id(tail.schema))
    if way is None or way.wanted is not tail.schema or way.vocab != tail.vocab or way.new != new:
        return None
    # Metadata too: another annotation of a column is to be recorded.
    if not way.given.equals(table.schema, check_metadata=True):
        return None
    if any(table.column(place).null_count for place in way.required):
        return None
    return way


def whole_schema(schema: pa.Schema | Schema | t.DataSchema, vocab: SetVocab) -> t.DataSchema:
    """Return the schema of the slices for the columns people give: system columns first.

    >>> whole_schema(pa.schema({"city": pa.large_string()}), SetVocab()).names
    ('offset', 'op', 'system_time', 'event_time', 'city')
    """
    if isinstance(schema, Schema):
        schema = schema.to_arrow()
    if isinstance(schema, pa.Schema):
        schema = from_arrow(schema)
    elif not isinstance(schema, t.DataSchema):
        raise InputError(
            f"schema is a {type(schema).__name__}, not a pyarrow.Schema",
            remedy="give a pyarrow.schema([...]), or the schema of a view",
        )
    if not schema.fields:
        raise SchemaError("the schema has no columns", remedy="give at least one")
    _no_system_columns(schema.names, vocab)
    refuse_case_twins(schema.names)
    fields = [t.DataField(field.name, storable(field.type), field.extra) for field in schema.fields]
    untyped = [field.name for field in fields if isinstance(field.type, t.Null)]
    if untyped:
        raise SchemaError(
            f"column {untyped[0]!r} has no type: every value is null",
            remedy="cast it to the type it will have, or create the dataset with a schema",
            column=untyped[0],
        )
    given = next((field for field in fields if field.name == vocab.event_time), None)
    if given is None and vocab.event_time_column is not None:
        raise SchemaError(
            f"the dataset's event time is column {vocab.event_time!r}, and there is no such column",
            remedy=f"the columns are {', '.join(schema.names)}: name one of them as event_time, or add it",
            column=vocab.event_time,
        )
    event_time = t.Option(t.Timestamp()) if given is None else _event_time_type(given)
    system = (
        t.DataField(vocab.offset, t.Int64()),
        t.DataField(vocab.op, t.Int32()),
        t.DataField(vocab.system_time, t.Timestamp()),
        t.DataField(vocab.event_time, event_time, given.extra if given is not None else None),
    )
    whole = t.DataSchema(system + tuple(field for field in fields if field is not given))
    LogicalHasher(to_arrow(whole))  # refuses what has no portable hash, before there is data
    return whole


def user_fields(schema: t.DataSchema, vocab: SetVocab) -> tuple[t.DataField, ...]:
    """Return the columns people gave: without the system's, with the event time if it was declared."""
    system = vocab.names[:3] if vocab.event_time_column is not None else vocab.names
    return tuple(field for field in schema.fields if field.name not in system)


def _no_system_columns(names: Sequence[str], vocab: SetVocab) -> None:
    clash = [name for name in names if name in vocab.names[:3]]
    if clash:
        raise SchemaError(
            f"column {clash[0]!r} has the name of a system column",
            remedy=f"rename it, for example to {clash[0] + '_'!r}; every dataset has its own {clash[0]!r}",
            column=clash[0],
        )


def _event_time_type(field: t.DataField) -> Any:
    inner = field.type.inner if isinstance(field.type, t.Option) else field.type
    if isinstance(inner, t.Timestamp):
        inner = t.Timestamp()
    elif not isinstance(inner, t.Date):
        raise SchemaError(
            f"column {field.name!r} is the event time but its type is {show(inner)}",
            remedy="cast it to a timestamp or a date, or rename it",
            column=field.name,
        )
    return t.Option(inner) if isinstance(field.type, t.Option) else inner


# --- rows that are fitted to a schema ----------------------------------------------------


def _from_rows(
    rows: list[Mapping[str, Any]], fields: tuple[t.DataField, ...] | None, vocab: SetVocab
) -> pa.Table:
    """Make columns of dictionaries; keys that some rows lack are null there."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    types = {field.name: field.type for field in to_arrow(t.DataSchema(fields))} if fields else {}
    types.pop(vocab.event_time, None)  # its precision is looked at later
    columns = {}
    for name in names:
        if not isinstance(name, str):
            raise SchemaError(f"a column is named {name!r}", remedy="use text as the keys of rows")
        columns[name] = column_of(name, [row.get(name) for row in rows], types.get(name))
    return pa.table(columns) if columns else _no_rows(fields, vocab)


def _no_rows(fields: tuple[t.DataField, ...] | None, vocab: SetVocab) -> pa.Table:
    if fields is None:
        raise SchemaError("there are no columns", remedy="give at least one row, or create with a schema")
    return to_arrow(t.DataSchema(user_fields(t.DataSchema(fields), vocab))).empty_table()


def _new_columns(
    table: pa.Table, fields: tuple[t.DataField, ...], vocab: SetVocab
) -> tuple[t.DataField, ...]:
    """Return the columns by which a table extends the schema: optional, for rows that are there lack them."""
    refuse_case_twins(table.column_names, [field.name for field in fields], place="the table")
    known = {field.name for field in fields} | set(vocab.names[:3])
    added = [field for field in from_arrow(table.schema).fields if field.name not in known]
    typed = [field for field in added if not isinstance(_present(field.type), t.Null)]
    added = [replace(field, type=_optional(storable(field.type))) for field in typed]
    if added:
        LogicalHasher(to_arrow(t.DataSchema(tuple(added))))  # refuses what has no portable hash
    return tuple(added)


def _may_lack(tail: Tail) -> bool:
    """Say whether rows may lack any column: those of an upsert for a known key keep the value it has."""
    return isinstance(tail.merge, MergeUpsertStream)


def _check_fits(
    table: pa.Table, schema: t.DataSchema, vocab: SetVocab, new: NewColumns, *, may_lack: bool
) -> None:
    """Refuse a table with columns too many, too few or of another type; all of them in one message."""
    given = {field.name: field for field in from_arrow(table.schema).fields}
    wanted = {field.name: field for field in schema.fields if field.name not in vocab.names[:3]}
    absent = [name for name in wanted if name not in given]
    found = [
        f"+ {name}: {show(_present(field.type))} "
        + ("cannot be added: every value is null" if new == "add" else not_a_column(name, absent))
        for name, field in given.items()
        if name not in wanted
    ]
    unknown = bool(found)
    for name, field in wanted.items():
        if name not in given:
            declared = name == vocab.event_time and vocab.event_time_column is not None
            if not may_lack and (declared or not isinstance(field.type, t.Option)):
                found.append(f"- {name}: {show(field.type)} is missing")
            continue
        kind = storable(given[name].type)
        if name == vocab.event_time and not isinstance(kind, t.Null):
            kind = _event_time_type(given[name])
        optional = isinstance(field.type, t.Option)
        if not _fits(_present(kind), field.type):
            found.append(f"~ {name}: is {show(_present(kind))}, the dataset has {show(_present(field.type))}")
        elif not optional and table[name].null_count:
            found.append(f"~ {name}: has {table[name].null_count:,} null values, the dataset allows none")
    if found:
        raise SchemaError(
            "the table does not fit the dataset\n" + "\n".join(f"    {line}" for line in found),
            remedy="cast, rename or drop these columns, or append to a new dataset"
            + (f"; {ALLOWED}" if unknown and new == "error" else ""),
            differences=tuple(found),
        )


def _present(kind: Any) -> Any:
    """The type of the values that are there."""
    return kind.inner if isinstance(kind, t.Option) else kind


def _optional(kind: Any) -> Any:
    """The type of values that may be null."""
    return kind if isinstance(kind, t.Option) else t.Option(kind)


def _fits(given: Any, wanted: Any) -> bool:
    """Say whether values of a type can be stored as another; only what is optional there may be null."""
    match given, wanted:
        case t.Null(), t.Option():
            return True
        case _, t.Option(inner):
            return _fits(_present(given), inner)
        case t.List(item, length), t.List(wanted_item, wanted_length):
            return length == wanted_length and _fits(item, wanted_item)
        case t.Struct(fields), t.Struct(wanted_fields):
            return [field.name for field in fields] == [field.name for field in wanted_fields] and all(
                _fits(a.type, b.type) for a, b in zip(fields, wanted_fields, strict=True)
            )
    return bool(given == wanted)


def is_frame(data: object) -> bool:
    """Say whether something is a Spark frame, without importing Spark."""
    return type(data).__module__.startswith("pyspark.sql") and hasattr(data, "sparkSession")
