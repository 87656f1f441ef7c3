"""The columns of a dataset as its chain stores them; found without Arrow, so asking for them is quick."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from trueline.chain.chain import Chain
from trueline.chain.datatypes import DataSchema, Option
from trueline.chain.events import SetDataSchema
from trueline.chain.head_state import Tail, linked
from trueline.chain.instant import Instant
from trueline.chain.schema import fields_of, hidden, is_hidden, show
from trueline.dataset.definition import strategy_of
from trueline.errors import SchemaError


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column as the chain stores it, by name and type; `optional` where a value may be null.

    A `hidden` one is kept, and left out of views.
    """

    name: str
    type: str
    optional: bool
    hidden: bool = False


def stored_columns(tail: Tail, *, system: bool = False) -> list[StoredColumn]:
    """Describe the columns in force after a block, none before the first data; with `system` all."""
    if tail.schema is None:
        return []
    system_names = _system_names(tail)
    return [
        StoredColumn(
            field.name,
            show(field.type.inner if isinstance(field.type, Option) else field.type),
            isinstance(field.type, Option),
            is_hidden(field),
        )
        for field in fields_of(tail.schema)
        if system or (field.name not in system_names and not is_hidden(field))
    ]


def _system_names(tail: Tail) -> tuple[str, ...]:
    return tail.vocab.names if tail.vocab.event_time_column is None else tail.vocab.names[:3]


def hide_column(
    chain: Chain, tail: Tail, name: str, *, hide: bool, clock: Callable[[], Instant] | None = None
) -> None:
    """Record that a column is hidden, or shown again, unless it is so already."""
    event = with_hidden(tail, name, hide=hide, key=tuple(getattr(strategy_of(tail), "key", ())))
    if event is not None:
        # A time of its own: neighbours with equal times are one commit.
        now = Instant(max((clock or Instant.now)(), tail.system_time + 1))
        chain.append(*linked(tail, [event], now))


def with_hidden(tail: Tail, name: str, *, hide: bool, key: tuple[str, ...]) -> SetDataSchema | None:
    """Return the schema in which a column is hidden, or shown again; None if it is so already."""
    found = stored_columns(tail, system=True)
    own = [column for column in found if column.name not in _system_names(tail)]
    column = next((each for each in own if each.name == name), None)
    if column is None:
        raise SchemaError(
            f"there is no column {name!r:.80}",
            remedy=f"the columns are {', '.join(each.name for each in own) or 'not known yet'}",
            code="UnknownColumn",
            column=name,
        )
    if column.hidden == hide:
        return None
    if hide and (name in key or name == tail.vocab.event_time_column):
        what = "part of the key" if name in key else "the event time"
        raise SchemaError(
            f"column {name!r} is {what} and cannot be hidden",
            remedy=f"leave it out where it is read: view.drop({name!r})",
            column=name,
        )
    if hide and sum(not each.hidden for each in own) == 1:
        raise SchemaError(
            f"column {name!r} is the last that is not hidden",
            remedy="show another first: ds.show_column(name)",
            in_shell="show another first: `trueline show-column DATASET COLUMN`",
            column=name,
        )
    assert tail.schema is not None
    fields = [hidden(field, hide) if field.name == name else field for field in fields_of(tail.schema)]
    whole = DataSchema(tuple(fields), tail.schema.schema.extra if tail.schema.schema else None)
    return replace(tail.schema, schema=whole, raw_arrow_schema=None)
