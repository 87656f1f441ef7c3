"""The columns of a view, known before a row is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trueline import types as t
from trueline.errors import SchemaError
from trueline.view.annotations import NONE, Annotations

if TYPE_CHECKING:
    from trueline.view.cursor.row import Key


@dataclass(frozen=True, slots=True)
class Field:
    """A column before it has a place: its name, type, annotations, and whether it may be null.

    >>> from trueline import types
    >>> Field("price", types.float64, nullable=False)
    Field(name='price', type=float64, ...nullable=False)
    """

    name: str
    type: t.Type
    annotations: Annotations = NONE
    nullable: bool = True

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not name:
            raise SchemaError(
                f"a column is named {self.name!r}", remedy="give it a name that is not empty", code="BadName"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One column of one schema: its place, name, type and annotations.

    A column whose name occurs again further right is hidden: found by its index only (view:C4).

    >>> from trueline import View
    >>> column = View.from_rows([{"city": "Bern", "price": 9.5}]).schema["price"]
    >>> column.index, column.name, column.type, column.is_hidden
    (1, 'price', float64, False)
    >>> column.field.nullable
    True
    """

    index: int
    name: str
    type: t.Type
    annotations: Annotations = field(default=NONE, repr=False)
    nullable: bool = True
    is_hidden: bool = False

    @property
    def field(self) -> Field:
        """The column without its place."""
        return Field(self.name, self.type, self.annotations, self.nullable)


class Schema:
    """Columns in order; names may repeat, and mean the rightmost of that name (view:C4).

    >>> schema = Schema([Field("a", t.int64), Field("b", t.text), Field("a", t.float32)])
    >>> schema.names, schema["a"].index, schema[0].is_hidden
    (('b', 'a'), 2, True)

    >>> schema.types, [column.index for column in schema.visible], len(schema.fields)
    ((text, float32), [1, 2], 3)
    >>> schema.get("c") is None, schema.find(0).type, [c.name for c in schema.find_all(["a", "b"])]
    (True, int64, ['a', 'b'])
    >>> more, places = schema.added([Field("c", t.boolean)])
    >>> more.names, places
    (('b', 'a', 'c'), [0, 1, 2, None])
    >>> Schema.from_arrow(schema.to_arrow()).names, schema.arrow_of([schema["b"]]).names
    (('b', 'a'), ['b'])
    """

    __slots__ = ("_arrow", "_by_name", "_columns")

    def __init__(self, fields: Iterable[Field]) -> None:
        given = list(fields)
        last = {each.name: index for index, each in enumerate(given)}
        self._columns = tuple(
            Column(index, each.name, each.type, each.annotations, each.nullable, last[each.name] != index)
            for index, each in enumerate(given)
        )
        self._by_name = {column.name: column for column in self._columns if not column.is_hidden}
        self._arrow: pa.Schema | None = None

    @classmethod
    def from_arrow(cls, arrow: pa.Schema) -> Schema:
        """Return the schema of Arrow data, with what its fields say of themselves."""
        from trueline.view.annotation_metadata import annotations_of

        for each in arrow:
            _check_zones(each.name, each.type)
        return cls(
            Field(each.name, t.of(each), annotations_of(each) if each.metadata else NONE, each.nullable)
            for each in arrow
        )

    # --- columns --------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the visible columns, in order."""
        return tuple(self._by_name)

    @property
    def types(self) -> tuple[t.Type, ...]:
        """The types of the visible columns, in order."""
        return tuple(column.type for column in self._by_name.values())

    @property
    def visible(self) -> tuple[Column, ...]:
        """The visible columns, in order."""
        return tuple(self._by_name.values())

    @property
    def fields(self) -> list[Field]:
        """All columns without their places."""
        return [column.field for column in self._columns]

    def __getitem__(self, key: str | int) -> Column:
        if isinstance(key, str):
            found = self.get(key)
            if found is None:
                raise unknown_column(key, self.names)
            return found
        if type(key) is not int or not 0 <= key < len(self._columns):
            raise SchemaError(
                f"no column {key!r}; there are {len(self._columns)}",
                remedy=f"give a name, or an index from 0 to {len(self._columns) - 1}",
                code="UnknownColumn",
            )
        return self._columns[key]

    def get(self, name: str) -> Column | None:
        """Return the column of a name, or None if there is none (view:C5); a name has to be one (view:C3)."""
        asked: object = name
        if not isinstance(asked, str) or not asked:
            raise SchemaError(f"{name!r} is not a column name", remedy="give one", code="BadName")
        return self._by_name.get(name)

    def find(self, key: Key) -> Column:
        """Return the column a reader means: by name, by index, or a column of this very schema (view:C17)."""
        if isinstance(key, Column):
            if key.index >= len(self._columns) or self._columns[key.index] is not key:
                raise SchemaError(
                    f"column {key.name!r} belongs to another view",
                    remedy="take it from this view's schema, or give its name",
                    code="ForeignColumn",
                    column=key.name,
                )
            return key
        return self[key]

    def find_all(self, keys: Sequence[Key] | Key | None) -> tuple[Column, ...]:
        """Return several columns, each once; None means all that are visible."""
        if keys is None:
            return self.visible
        if isinstance(keys, str | int | Column):
            keys = (keys,)
        found = tuple(self.find(key) for key in keys)
        if len({column.index for column in found}) != len(found):
            twice = next(column.name for column in found if found.count(column) > 1)
            raise SchemaError(
                f"column {twice!r} is named twice", remedy="name each column once", column=twice
            )
        return found

    def added(self, fields: Sequence[Field]) -> tuple[Schema, list[int | None]]:
        """Place new columns (view:C8); say, place by place, which old column is there (None: a new one).

        One whose name can be seen goes right after that column and hides it; the others go to the end.
        """
        # What stands behind each old column, and at the end, by name: 10,000 columns are placed in one go.
        behind: dict[int, list[Field]] = {}
        end: dict[str, list[Field]] = {}
        for new in fields:
            old = self._by_name.get(new.name)
            (end.setdefault(new.name, []) if old is None else behind.setdefault(old.index, [])).append(new)
        line: list[tuple[Field, int | None]] = []
        for column in self._columns:
            line.append((column.field, column.index))
            line += [(new, None) for new in behind.get(column.index, ())]
        line += [(new, None) for group in end.values() for new in group]
        return Schema(each for each, _ in line), [old for _, old in line]

    # --- Arrow ------------------------------------------------------------------------

    def to_arrow(self) -> pa.Schema:
        """Return the visible columns as an Arrow schema, annotations included."""
        if self._arrow is None:
            self._arrow = self.arrow_of(self.visible)
        return self._arrow

    def arrow_of(self, columns: Sequence[Column]) -> pa.Schema:
        """Return some columns as an Arrow schema."""
        from trueline.view.annotation_metadata import field_of

        return pa.schema(
            [
                field_of(column)
                if column.annotations.found
                else t.field(column.name, column.type, nullable=column.nullable)
                for column in columns
            ]
        )

    def __arrow_c_schema__(self) -> Any:
        return self.to_arrow().__arrow_c_schema__()

    # --- comparing --------------------------------------------------------------------

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Column]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(tuple(column.name for column in self._columns))

    def __repr__(self) -> str:
        shown = (f"{c.name}: {c.type}{' (hidden)' if c.is_hidden else ''}" for c in self._columns)
        return f"Schema({', '.join(shown)})"

    def _repr_html_(self) -> str:
        from trueline.console.notebook import html_table

        rows = [(c.name, str(c.type), c.nullable, ", ".join(c.annotations)) for c in self.visible]
        return html_table(
            f"Schema, {len(rows):,} columns", ("column", "type", "nullable", "annotations"), rows
        )


def renamed(column: Column, name: str) -> Field:
    """Return a column under another name."""
    return replace(column.field, name=name)


def key_columns(schema: Schema, names: Sequence[str], what: str) -> tuple[Column, ...]:
    """Return the columns of a key; only single values can be compared."""
    found = schema.find_all(tuple(names))
    for column in found:
        if not column.type.is_primitive:
            raise SchemaError(
                f"column {column.name!r} is of type {column.type}, whose values {what} cannot compare",
                remedy="name columns of single values; explode() gives each value of a vector its row",
                code="TypeMismatch",
                column=column.name,
                found=str(column.type),
            )
    return found


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


def _check_zones(column: str, kind: pa.DataType) -> None:
    """Refuse times in a zone that does not exist: no value of them could be shown."""
    if pa.types.is_timestamp(kind) and kind.tz is not None and not _is_zone(kind.tz):
        raise SchemaError(
            f"column {column!r} has times in the zone {kind.tz!r}, which is not a time zone",
            remedy=f"cast it before: column.cast(pyarrow.timestamp({kind.unit!r}, 'UTC'))",
            code="UnknownZone",
            column=column,
        )
    inner = kind.value_type if pa.types.is_dictionary(kind) else None
    for each in [inner] if inner is not None else [kind.field(n).type for n in range(kind.num_fields)]:
        _check_zones(column, each)


@lru_cache(maxsize=256)
def _is_zone(name: str) -> bool:
    try:
        pa.scalar(0, pa.timestamp("s", name)).as_py()
    except (pa.ArrowException, KeyError, ValueError, LookupError, TypeError, OSError):
        return False
    return True
