"""How a schema may change: attributes, order, and new columns that may be missing (H1 to H3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from trueline.chain import datatypes as t
from trueline.chain.events import SetDataSchema, SetVocab
from trueline.chain.wire import Record
from trueline.errors import InputError

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
    from trueline.chain.arrow_schema import read_raw

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
    return tuple(_annotated(field, found[field.name]) if field.name in found else field for field in fields)


def _annotated(field: t.DataField, given: t.DataField) -> t.DataField:
    kind, extra = _annotated_type(field.type, given.type), field.extra
    if given.extra is not None:
        before = extra.value if extra is not None else {}
        after = {**before, **given.extra.value}
        extra = t.Extra.of(after) if after != before else extra
    return field if kind is field.type and extra is field.extra else replace(field, type=kind, extra=extra)


def _annotated_type(kind: Any, given: Any) -> Any:
    """Look for annotations of members of structs, too."""
    given = given.inner if isinstance(given, t.Option) else given
    if isinstance(kind, t.Option):
        inner = _annotated_type(kind.inner, given)
        return kind if inner is kind.inner else t.Option(inner)
    if isinstance(kind, t.Struct) and isinstance(given, t.Struct):
        members = annotated(kind.fields, given.fields)
        same = all(new is old for new, old in zip(members, kind.fields, strict=True))
        return kind if same else t.Struct(members)
    return kind


def repeated(fields: tuple[t.DataField, ...], path: str) -> Iterator[str]:
    """Yield the names that stand for more than one column, or more than one member of a struct."""
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
