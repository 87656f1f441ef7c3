"""Columns as people read them."""

from __future__ import annotations

from dataclasses import dataclass

from trueline.chain.datatypes import DataSchema, Option
from trueline.chain.schema import show


@dataclass(frozen=True, slots=True)
class Column:
    """A column by name and type; `optional` where a value may be null."""

    name: str
    type: str
    optional: bool


def columns_of(schema: DataSchema | None) -> list[Column]:
    """Describe the columns of a schema, none for none."""
    if schema is None:
        return []
    return [
        Column(
            field.name,
            show(field.type.inner if isinstance(field.type, Option) else field.type),
            isinstance(field.type, Option),
        )
        for field in schema.fields
    ]
