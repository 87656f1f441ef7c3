"""A value where there is null: columns computed from themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal

from trueline import types as t
from trueline.errors import InputError, SchemaError
from trueline.view.expressions import expression
from trueline.view.plan.node import Node
from trueline.view.plan.select import Select
from trueline.view.plan.with_columns import Compute, WithColumns, computed, conversion, quoted
from trueline.view.schema import Field, Schema


def filled(below: Node, values: Mapping[str, object]) -> WithColumns | Select:
    """Put a value where a column is null; its type stays, and it cannot be null any more."""
    new = []
    for name, value in values.items():
        old = below.schema[name]
        if value is None:
            raise InputError(
                f"fill_null({name}=None)", remedy="give the value that is to be there", column=name
            )
        found = expression(f"coalesce({quoted(name)}, :value)", below.schema.to_arrow(), {"value": value})
        if found.kind != old.type:
            raise SchemaError(
                f"column {name!r} is of type {old.type}, which cannot hold {value!r:.80}",
                remedy=f"give a value of that type, or convert the column first: "
                f"{conversion(name, found.kind)}",
                code="TypeMismatch",
                column=name,
                found=str(found.kind),
                asked=str(old.type),
            )
        new.append(Compute(name, found, (old.index,), (Field(name, old.type, nullable=False),)))
    return computed(below, new)


def fillings(
    schema: Schema, value: object, columns: Sequence[str], values: Mapping[str, object]
) -> dict[str, object]:
    """Return the value of each column that is to be filled."""
    if isinstance(value, Mapping):
        if columns:
            raise InputError(
                "fill_null() of a mapping and of names", remedy="give one value with names, or a mapping"
            )
        return {schema[name].name: each for name, each in {**value, **values}.items()}
    if value is None:
        if columns or not values:
            raise InputError(
                "fill_null() without a value", remedy="write fill_null(0), or fill_null(price=0)"
            )
        return {schema[name].name: each for name, each in values.items()}
    if columns:
        chosen = [column.name for column in schema.find_all(tuple(columns))]
    else:
        families = _families(value)
        chosen = [
            column.name
            for column in schema.visible
            if t.family(column.type) in families and column.nullable and column.name not in values
        ]
        if not chosen and not values:
            raise SchemaError(
                f"no column that may be null holds values such as {value!r:.80}",
                remedy="name the columns: fill_null(price=0)",
                code="TypeMismatch",
            )
    return {**dict.fromkeys(chosen, value), **{schema[name].name: each for name, each in values.items()}}


def _families(value: object) -> tuple[str, ...]:
    """Say which types hold values of a kind; a number with a fraction goes where there are fractions."""
    if hasattr(value, "item") and callable(value.item):  # a numpy scalar
        value = value.item()
    if isinstance(value, bool):
        return ("bool",)
    if isinstance(value, int):
        return ("int", "float", "decimal")
    if isinstance(value, float):
        return ("float",)
    if isinstance(value, Decimal):
        return ("decimal",)
    kinds: dict[type, str] = {str: "text", bytes: "bytes", datetime: "timestamp", date: "date", time: "time"}
    return tuple(name for kind, name in kinds.items() if type(value) is kind)
