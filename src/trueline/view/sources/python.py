"""Rows as Python has them: dictionaries and dataclasses, in and out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from trueline import types as t
from trueline.errors import InputError, SchemaError, check_memory
from trueline.kernel.values import reader
from trueline.view.execute.dispatch import chunks
from trueline.view.plan.node import Node, Want
from trueline.view.plan.sources import Memory
from trueline.view.schema import Column


def from_rows(rows: Iterable[Any], schema: pa.Schema | type | None = None) -> Memory:
    """Keep rows in memory; their columns are those of a schema or dataclass, else all names that occur."""
    fixed: pa.Schema | None = schema_of(schema) if isinstance(schema, type) else schema
    plain = [_as_dict(row) for row in rows]
    names = fixed.names if fixed is not None else list(dict.fromkeys(n for row in plain for n in row))
    columns = []
    for name in names:
        kind = fixed.field(name).type if fixed is not None else None
        try:
            columns.append(pa.array([row.get(name) for row in plain], kind))
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            check_memory(error, f"making column {name!r} of the rows")
            raise SchemaError(
                f"column {name!r} holds values of more than one type: {error}",
                remedy="give values of one type, or a schema",
                column=name,
            ) from None
    if not names:
        return Memory(pa.table({"": pa.nulls(len(plain))}).select([]))
    table = pa.Table.from_arrays(columns, schema=fixed) if fixed else pa.table(columns, names=names)
    return Memory(table)


def schema_of(of: type) -> pa.Schema:
    """Return the columns a dataclass speaks of."""
    return pa.schema([t.field(name, kind) for name, (kind, _) in _fields(of).items()])


def rows(node: Node, of: type | None) -> Iterator[Any]:
    """Yield the rows, as dictionaries or as objects of a class.

    The class is held against the columns now, not when the first row comes (view:C119).
    """
    if of is None:
        columns, make = node.schema.visible, dict
        return _rows(node, columns, make)
    return _rows(node, _bound(node, of), of)


def _rows(node: Node, columns: tuple[Column, ...], make: Any) -> Iterator[Any]:
    names = [column.name for column in columns]
    readers = [reader(column.type) for column in columns]
    for chunk in chunks(node, Want(tuple(column.index for column in columns))):
        values = [read(array) for read, array in zip(readers, chunk.arrays, strict=True)]
        for at in range(chunk.rows):
            yield make(**{name: value(at) for name, value in zip(names, values, strict=True)})


def _bound(node: Node, of: type) -> tuple[Column, ...]:
    if not is_dataclass(of):
        return node.schema.visible  # whatever takes the names of the columns
    found = []
    for name, (kind, is_needed) in _fields(of).items():
        column = node.schema.get(name)
        if column is None:
            if is_needed:
                raise SchemaError(
                    f"{of.__name__}.{name} has no column; the columns are {', '.join(node.schema.names)}",
                    remedy="rename a column, or give the field a default",
                    column=name,
                )
            continue
        if kind != column.type and not _fits(kind, column.type):
            raise SchemaError(
                f"{of.__name__}.{name} is of type {kind}, column {name!r} is of type {column.type}",
                remedy="annotate the field with the column's type, or convert the column",
                column=name,
            )
        found.append(column)
    return tuple(found)


def _fits(asked: t.Type, found: t.Type) -> bool:
    """Python has one type for what are several here: any whole number is an `int`."""
    families = (
        {t.int8, t.int16, t.int32, t.int64, t.uint8, t.uint16, t.uint32, t.uint64},
        t.FLOATS,
    )
    same_kind = type(asked) is type(found) and not isinstance(asked, t.Primitive | t.Vector)
    return same_kind or any(asked in family and found in family for family in families)


def _fields(of: type) -> dict[str, tuple[t.Type, bool]]:
    if not is_dataclass(of):
        raise InputError(f"{of.__name__} is not a dataclass", remedy="decorate it with @dataclass")
    hints = get_type_hints(of)
    return {
        each.name: (
            _type_of(hints[each.name], of),
            each.default is MISSING and each.default_factory is MISSING,
        )
        for each in fields(of)
        if each.init
    }


def _type_of(hint: Any, of: type) -> t.Type:
    if get_origin(hint) in (Union, UnionType):
        left = [each for each in get_args(hint) if each is not NoneType]
        if len(left) == 1:
            return _type_of(left[0], of)
    if get_origin(hint) in (list, tuple):
        return t.vector(_type_of(get_args(hint)[0], of))
    if isinstance(hint, type) and hint is not NoneType:
        return t.of(hint)
    raise InputError(
        f"{of.__name__} has a field of type {hint}, which no column has",
        remedy="use bool, int, float, str, bytes, date, datetime, Decimal, or a list of one of these",
    )


def _as_dict(row: Any) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    if is_dataclass(row) and not isinstance(row, type):
        return {each.name: getattr(row, each.name) for each in fields(row)}
    raise InputError(
        f"a row is a {type(row).__name__}, which has no named values",
        remedy="give dictionaries or dataclasses",
    )
