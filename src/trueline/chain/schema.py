"""The schema of a dataset: as Arrow knows it, and how it may change (H1 to H3)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trueline.annotations import annotations_of_arrow, annotations_to_arrow
from trueline.chain import datatypes as t
from trueline.chain.events import SetDataSchema, SetVocab
from trueline.chain.wire import Record
from trueline.errors import InputError, SchemaError, check_memory

if TYPE_CHECKING:
    import pyarrow as pa


_UNITS = {
    "s": t.TimeUnit.Second,
    "ms": t.TimeUnit.Millisecond,
    "us": t.TimeUnit.Microsecond,
    "ns": t.TimeUnit.Nanosecond,
}
_UNIT_NAMES = {unit: name for name, unit in _UNITS.items()}
_TO_ODF: dict[str, type[Record]] = {
    "bool": t.Bool,
    "int8": t.Int8,
    "int16": t.Int16,
    "int32": t.Int32,
    "int64": t.Int64,
    "uint8": t.UInt8,
    "uint16": t.UInt16,
    "uint32": t.UInt32,
    "uint64": t.UInt64,
    "halffloat": t.Float16,
    "float": t.Float32,
    "double": t.Float64,
    "string": t.String,
    "large_string": t.String,
    "string_view": t.String,
    "binary": t.Binary,
    "large_binary": t.Binary,
    "binary_view": t.Binary,
    "date32[day]": t.Date,
    "date64[ms]": t.Date,
    "null": t.Null,
}
# Slices are written with one encoding per type: the first above, except Binary, which may have a length.
_TO_ARROW = {kind: name for name, kind in reversed(_TO_ODF.items()) if kind is not t.Binary}


def from_arrow(schema: pa.Schema) -> t.DataSchema:
    """Describe an Arrow schema; nullable becomes `Option`, encodings are left out.

    Annotations among the metadata of fields become their extra attributes.
    """
    return t.DataSchema(_members(list(schema), ""))


def _members(fields: list[pa.Field], path: str) -> tuple[t.DataField, ...]:
    """Describe columns, or members of a struct, which are distinguished by their names."""
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            name = f"{path}{field.name}"
            raise SchemaError(f"column {name!r} occurs twice", remedy="rename one of them", column=name)
        seen.add(field.name)
    return tuple(_field(field, f"{path}{field.name}") for field in fields)


def _field(field: pa.Field, path: str) -> t.DataField:
    found = annotations_of_arrow(field.metadata)
    return t.DataField(field.name, _optional(field, path), t.Extra.of(found) if found else None)


def _optional(field: pa.Field, path: str) -> Any:
    inner = _type(field.type, path)
    return t.Option(inner) if field.nullable and not isinstance(inner, t.Null) else inner


def _type(kind: pa.DataType, path: str) -> Any:
    import pyarrow.types as is_

    plain = _TO_ODF.get(str(kind))
    if plain is not None:
        return plain()
    if is_.is_timestamp(kind):
        return t.Timestamp(_UNITS[kind.unit], kind.tz or "")
    if is_.is_decimal(kind):
        return t.Decimal(kind.precision, kind.scale)
    if is_.is_fixed_size_binary(kind):
        return t.Binary(kind.byte_width)
    if is_.is_time(kind):
        return t.Time(_UNITS[kind.unit])
    if is_.is_duration(kind):
        return t.Duration(_UNITS[kind.unit])
    if is_.is_fixed_size_list(kind):
        return t.List(_optional(kind.value_field, f"{path}[]"), kind.list_size)
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_list_view(kind) or is_.is_large_list_view(kind):
        return t.List(_optional(kind.value_field, f"{path}[]"))
    if is_.is_struct(kind):
        return t.Struct(_members([kind.field(index) for index in range(kind.num_fields)], f"{path}."))
    if is_.is_map(kind):
        key, item = _type(kind.key_type, f"{path}.key"), _optional(kind.item_field, f"{path}.value")
        return t.Map(key, item, True if kind.keys_sorted else None)
    if is_.is_dictionary(kind):
        return _type(kind.value_type, path)
    raise SchemaError(
        f"column {path!r} has the type {kind}, which cannot be stored", remedy="cast it", column=path
    )


def to_arrow(schema: t.DataSchema, *, annotated: bool = False) -> pa.Schema:
    """Return the Arrow schema slices are written with; `annotated`, as readers see it.

    Slices carry no annotations, so that their bytes do not depend on them.
    """
    import pyarrow as pa

    fields = []
    for field in schema.fields:
        try:
            fields.append(_annotated(field) if annotated else _arrow_field(field.name, field.type))
        except (pa.ArrowException, ValueError, OverflowError) as error:
            check_memory(error, "reading the schema")
            raise SchemaError(
                f"column {field.name!r} cannot be represented in Arrow: {error}",
                remedy="use a type within Arrow's limits",
                column=field.name,
            ) from None
    return pa.schema(fields)


def _arrow_field(name: str, kind: Any) -> pa.Field:
    import pyarrow as pa

    if isinstance(kind, t.Option):
        return pa.field(name, _arrow_type(kind.inner), nullable=True)
    return pa.field(name, _arrow_type(kind), nullable=isinstance(kind, t.Null))


def _annotated(field: t.DataField) -> pa.Field:
    """Return a column with what its extra attributes say; those of members of structs too."""
    made = _arrow_field(field.name, field.type)
    kind = field.type.inner if isinstance(field.type, t.Option) else field.type
    if isinstance(kind, t.Struct):
        import pyarrow as pa

        made = made.with_type(pa.struct([_annotated(member) for member in kind.fields]))
    try:
        found = field.extra.value if field.extra is not None else {}
    except InputError:
        return made  # of another implementation, and not to be understood
    return made.with_metadata(annotations_to_arrow(found)) if found else made


def _arrow_type(kind: Any) -> pa.DataType:
    import pyarrow as pa

    plain = _TO_ARROW.get(type(kind))
    if plain is not None:
        return pa.type_for_alias(plain)
    match kind:
        case t.Binary(length):
            return pa.binary() if length is None else pa.binary(length)
        case t.Decimal(precision, scale):
            return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
        case t.Timestamp(unit, zone):
            return pa.timestamp(_UNIT_NAMES[unit], zone or None)
        case t.Time(unit):
            name = _UNIT_NAMES[unit]
            return pa.time32(name) if name in ("s", "ms") else pa.time64(name)
        case t.Duration(unit):
            return pa.duration(_UNIT_NAMES[unit])
        case t.List(item, None):
            return pa.list_(_arrow_field("item", item))
        case t.List(item, length):
            return pa.list_(_arrow_field("item", item), length)
        case t.Struct(fields):
            return pa.struct([_arrow_field(field.name, field.type) for field in fields])
        case t.Map(key, value, keys_sorted):
            return pa.map_(_arrow_type(key), _arrow_field("value", value), keys_sorted=bool(keys_sorted))
        case t.Option(inner):
            return _arrow_type(inner)
    raise SchemaError(f"the type {kind} has no Arrow equivalent", remedy="use another type")


def read_raw(raw: bytes) -> t.DataSchema:
    """Read the deprecated form: an Arrow schema as a bare flatbuffer.

    Arrow's reader wants it inside a message. Offsets in a flatbuffer are
    relative, so a message whose header points into the appended bytes will do.
    """
    import pyarrow as pa

    root = struct.unpack_from("<I", raw)[0] if len(raw) >= 8 else len(raw)
    if root > len(raw) - 4:
        raise InputError(
            "the raw Arrow schema is too short", remedy="restore the block from a copy of the dataset"
        )
    # Message: version i16 at 20, header type u8 at 22, header offset at 4, body length i64 at 8.
    vtable = struct.pack("<HHHHHH", 12, 24, 20, 22, 4, 8)
    body_start = 4 + len(vtable) + 24
    body_start += -body_start % 8
    table_at = 4 + len(vtable)
    header_at = table_at + 4
    message = bytearray(struct.pack("<I", table_at) + vtable)
    message += struct.pack("<iIq", len(vtable), body_start + root - header_at, 0)
    message += struct.pack("<4xhBx", 4, 1)
    message += bytes(body_start - len(message)) + raw
    message += bytes(-len(message) % 8)
    framed = b"\xff\xff\xff\xff" + struct.pack("<i", len(message)) + bytes(message)
    try:
        return from_arrow(pa.ipc.read_schema(pa.BufferReader(framed)))
    except (pa.ArrowException, OSError, ValueError) as error:
        check_memory(error, "reading the schema")
        problem = error.problem if isinstance(error, InputError) else error
        raise InputError(
            f"the raw Arrow schema cannot be read: {problem}",
            remedy="restore the block from a copy of the dataset",
        ) from None


Found = tuple[str, str, str]
_ADD = "only optional columns may be added; write other changes into a new dataset"


def schema_findings(before: SetDataSchema | None, after: SetDataSchema, vocab: SetVocab) -> Iterator[Found]:
    """Yield (rule, problem, remedy) for what a new schema breaks."""
    try:
        was, now = fields_of(before) if before is not None else None, fields_of(after)
    except InputError as error:
        yield "H2", error.problem, error.remedy
        return
    if before is not None and after == before:
        yield "H1", "the new schema is identical to the current one", "do not append it"
    elif before is not None and was is not None:
        upgrade = before.schema is None and after.schema is not None
        for difference in differences(was, now, "", optionality=not upgrade):
            yield "H2", f"the new schema is not compatible with the current one: {difference}", _ADD
    for name in repeated(now, ""):
        yield "H2", f"the new schema names column {name} twice", "rename one of them"
    yield from _system_columns(now, vocab)


def fields_of(event: SetDataSchema) -> tuple[t.DataField, ...]:
    """The columns of either form of a schema."""
    if event.schema is not None:
        return event.schema.fields
    if event.raw_arrow_schema is None:
        return ()

    return read_raw(event.raw_arrow_schema).fields


def differences(
    old: tuple[t.DataField, ...], new: tuple[t.DataField, ...], path: str, *, optionality: bool = True
) -> Iterator[str]:
    """Yield what keeps data of the old columns from being read as the new ones."""
    now = {field.name: field for field in new}
    was = {field.name for field in old}
    for field in old:
        if field.name not in now:
            yield f"column {path}{field.name} was removed"
        else:
            yield from _type_differences(field.type, now[field.name].type, f"{path}{field.name}", optionality)
    for field in new:
        if field.name not in was and not isinstance(field.type, t.Option | t.Null):
            yield f"the new column {path}{field.name} is not optional"


def annotated(fields: tuple[t.DataField, ...], given: tuple[t.DataField, ...]) -> tuple[t.DataField, ...]:
    """Lay the annotations of columns that are given over those in force (H2); what they leave out stays."""
    found = {field.name: field for field in given}
    return tuple(
        _with_annotations(field, found[field.name]) if field.name in found else field for field in fields
    )


def _with_annotations(field: t.DataField, given: t.DataField) -> t.DataField:
    kind, extra = _type_with_annotations(field.type, given.type), field.extra
    if given.extra is not None:
        before = extra.value if extra is not None else {}
        after = {**before, **given.extra.value}
        extra = t.Extra.of(after) if after != before else extra
    return field if kind is field.type and extra is field.extra else replace(field, type=kind, extra=extra)


def _type_with_annotations(kind: Any, given: Any) -> Any:
    """Look for annotations of members of structs, too."""
    given = given.inner if isinstance(given, t.Option) else given
    if isinstance(kind, t.Option):
        inner = _type_with_annotations(kind.inner, given)
        return kind if inner is kind.inner else t.Option(inner)
    if isinstance(kind, t.Struct) and isinstance(given, t.Struct):
        members = annotated(kind.fields, given.fields)
        same = all(new is old for new, old in zip(members, kind.fields, strict=True))
        return kind if same else t.Struct(members)
    return kind


def repeated(fields: tuple[t.DataField, ...], path: str) -> Iterator[str]:
    """Yield the names of more than one column, or more than one member of a struct."""
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            yield f"{path}{field.name}"
        seen.add(field.name)
        yield from _repeated_in(field.type, f"{path}{field.name}")


def _repeated_in(kind: Any, path: str) -> Iterator[str]:
    match kind:
        case t.Struct(fields):
            yield from repeated(fields, f"{path}.")
        case t.Option(inner):
            yield from _repeated_in(inner, path)
        case t.List(item, _):
            yield from _repeated_in(item, f"{path}[]")
        case t.Map(key, value, _):
            yield from _repeated_in(key, f"{path}.key")
            yield from _repeated_in(value, f"{path}.value")


def _type_differences(old: Any, new: Any, path: str, optionality: bool) -> Iterator[str]:
    if isinstance(old, t.Option) != isinstance(new, t.Option):
        if optionality:
            yield f"column {path} was {show(old)} and is {show(new)}"
            return
        old = old.inner if isinstance(old, t.Option) else old
        new = new.inner if isinstance(new, t.Option) else new
    match old, new:
        case t.Option(inner_old), t.Option(inner_new):
            yield from _type_differences(inner_old, inner_new, path, optionality)
        case t.Struct(fields_old), t.Struct(fields_new):
            yield from differences(fields_old, fields_new, f"{path}.", optionality=optionality)
        case t.List(item_old, length_old), t.List(item_new, length_new) if length_old == length_new:
            yield from _type_differences(item_old, item_new, f"{path}[]", optionality)
        case _:
            if old != new:
                yield f"column {path} was {show(old)} and is {show(new)}"


def show(kind: Any) -> str:
    """Name a type as people write it."""
    match kind:
        case t.Option(inner):
            return f"optional {show(inner)}"
        case t.List(item, length):
            return f"List<{show(item)}>" + (f"[{length}]" if length is not None else "")
        case t.Struct(fields):
            return "Struct<" + ", ".join(f"{field.name}: {show(field.type)}" for field in fields) + ">"
        case t.Map(key, value, _):
            return f"Map<{show(key)}, {show(value)}>"
        case t.Decimal(precision, scale):
            return f"Decimal({precision}, {scale})"
        case t.Timestamp(unit, zone):
            return f"Timestamp({unit.name}, {zone or 'no zone'})"
        case t.Time(unit) | t.Duration(unit):
            return f"{kind.KIND}({unit.name})"
        case t.Binary(length) if length is not None:
            return f"Binary({length})"
    return str(kind.KIND)


def _system_columns(fields: tuple[t.DataField, ...], vocab: SetVocab) -> Iterator[Found]:
    """Yield H3 for system columns that are missing or of the wrong type."""
    given = {field.name: field.type for field in fields}
    wanted: tuple[tuple[str, tuple[type[Record], ...], str], ...] = (
        (vocab.offset, (t.Int64,), "Int64"),
        (vocab.op, (t.Int32,), "Int32"),
        (vocab.system_time, (t.Timestamp,), "Timestamp"),
        (vocab.event_time, (t.Timestamp, t.Date, t.Option), "Timestamp or Date, optional or not"),
    )
    for name, allowed, expected in wanted:
        kind = given.get(name)
        if kind is None:
            yield "H3", f"the schema lacks the system column {name!r} ({expected})", "add it, or use SetVocab"
        elif not isinstance(kind, allowed) or not isinstance(getattr(kind, "inner", kind), allowed[:2]):
            yield "H3", f"system column {name!r} is {show(kind)}, not {expected}", f"make it {expected}"
