"""The columns of a dataset as its chain stores them; found without Arrow, so asking for them is quick."""

from __future__ import annotations

from dataclasses import dataclass

from trueline.chain.datatypes import Option
from trueline.chain.head_state import Tail
from trueline.chain.schema import fields_of, show


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column as the chain stores it, by name and type; `optional` where a value may be null."""

    name: str
    type: str
    optional: bool


def stored_columns(tail: Tail, *, system: bool = False) -> list[StoredColumn]:
    """Describe the columns in force after a block, none before the first data; with `system` all."""
    if tail.schema is None:
        return []
    names = tail.vocab.names
    hidden = () if system else names if tail.vocab.event_time_column is None else names[:3]
    return [
        StoredColumn(
            field.name,
            show(field.type.inner if isinstance(field.type, Option) else field.type),
            isinstance(field.type, Option),
        )
        for field in fields_of(tail.schema)
        if field.name not in hidden
    ]
