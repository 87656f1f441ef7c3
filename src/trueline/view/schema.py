"""The columns of a view, known before a row is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from trueline.annotations import annotations_of_arrow
from trueline.errors import SchemaError


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, place, Arrow type, and what is said about it (`domain/name` → any JSON)."""

    name: str
    index: int
    type: pa.DataType
    nullable: bool = True
    annotations: Mapping[str, Any] = field(default_factory=dict, compare=False)
    is_hidden: bool = False


class Schema:
    """Columns in order, found by name or index.

    >>> schema = Schema(pa.schema({"city": pa.string(), "people": pa.int64()}))
    >>> schema.names, schema["people"].index, str(schema[0].type)
    (('city', 'people'), 1, 'string')
    """

    def __init__(self, arrow: pa.Schema) -> None:
        for name, count in Counter(arrow.names).items():
            if count > 1:
                raise SchemaError(f"column {name!r} occurs twice", remedy="rename one of them", column=name)
        self._arrow = arrow
        self._columns = tuple(
            Column(field.name, index, field.type, field.nullable, annotations_of_arrow(field.metadata))
            for index, field in enumerate(arrow)
        )
        self._by_name = {column.name: column for column in self._columns}

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self._by_name)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """The types, in order."""
        return tuple(column.type for column in self._columns)

    def to_arrow(self) -> pa.Schema:
        """Return it as Arrow has it."""
        return self._arrow

    def __arrow_c_schema__(self) -> Any:
        return self._arrow.__arrow_c_schema__()

    def __getitem__(self, key: str | int) -> Column:
        if isinstance(key, str):
            if key not in self._by_name:
                raise unknown_column(key, self.names)
            return self._by_name[key]
        return self._columns[key]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Column]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._arrow.equals(other._arrow)

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"Schema({', '.join(f'{column.name}: {column.type}' for column in self._columns)})"


def unknown_column(name: object, names: tuple[str, ...]) -> SchemaError:
    """The error of a column that is not there."""
    near = get_close_matches(str(name), names, n=1, cutoff=0.6)
    shown = ", ".join(names[:20]) + (" …" if len(names) > 20 else "")
    return SchemaError(
        f"no column {name!r}; the columns are {shown or 'none'}",
        remedy=f"did you mean {near[0]!r}?" if near else "name a column that is there",
        code="UnknownColumn",
        column=str(name),
    )
