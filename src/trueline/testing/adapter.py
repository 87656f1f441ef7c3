"""The short way to a view of one's own: say what the columns are and yield the rows."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, TypeAlias

from trueline import types as t
from trueline.errors import InputError
from trueline.identity import RowId
from trueline.view.cursor.row import Asked, Getter, Key
from trueline.view.schema import Column, Schema

Numbered: TypeAlias = Iterator[tuple[int, RowId, Sequence[Any]]]


class SimpleView(ABC):
    """A view made from one method; the cursors are written for you.

    Set `schema` once, yield the values of the columns asked for from `rows`, in
    a fixed order. A row's id is its number. With `can_shuffle` the rows are
    held in memory while they are read in another order.

    >>> from trueline.view import Field
    >>> class Squares(SimpleView):
    ...     schema = Schema([Field("n", t.int64), Field("square", t.int64)])
    ...
    ...     def rows(self, columns):
    ...         for n in range(3):
    ...             row = {"n": n, "square": n * n}
    ...             yield [row[column.name] for column in columns]
    >>> with Squares().cursor(["square"]) as cursor:
    ...     get = cursor.getter("square")
    ...     while cursor.move_next():
    ...         print(get())
    0
    1
    4

    >>> view = Squares()
    >>> [cursor.schema is view.schema for cursor in view.cursor_set(["n"])]
    [True]
    >>> list(view.rows([view.schema["square"]])), next(view.numbered([view.schema["n"]], None))
    ([[0], [1], [4]], (0, RowId('00000000000000000000000000000000'), [0]))
    """

    schema: Schema
    row_count: int | None = None
    can_shuffle: bool = False

    @abstractmethod
    def rows(self, columns: Sequence[Column]) -> Iterator[Sequence[Any]]:
        """Yield the rows: for each the values of these columns, in this order."""

    def cursor(self, columns: Sequence[Key] | None = None, seed: int | None = None) -> SimpleCursor:
        """Open a cursor."""
        found = self.schema.find_all(columns)
        return SimpleCursor(self.schema, found, lambda: self.numbered(found, seed))

    def cursor_set(
        self, columns: Sequence[Key] | None = None, n: int = 0, seed: int | None = None
    ) -> Sequence[SimpleCursor]:
        """Open cursors that share the rows: here one, which has them all (view:C60)."""
        return [self.cursor(columns, seed)]

    def numbered(self, columns: Sequence[Column], seed: int | None) -> Numbered:
        """Yield (batch, id, values) in the order of a seed."""
        found = ((0, RowId(number), values) for number, values in enumerate(self.rows(columns)))
        if seed is None or not self.can_shuffle:
            return found
        mixed = list(found)
        random.Random(seed).shuffle(mixed)  # noqa: S311 (an order, not a secret)
        return iter(mixed)


class SimpleCursor:
    """A cursor over (batch, id, values of the columns) of one row after another.

    >>> from trueline.view import Field
    >>> schema = Schema([Field("n", t.int64)])
    >>> cursor = SimpleCursor(schema, schema.visible, lambda: iter([(0, RowId(0), [7])]))
    >>> get = cursor.getter("n")
    >>> cursor.move_next(), cursor.position, cursor.batch, cursor.id.low, get()
    (True, 0, 0, 0, 7)
    >>> cursor.is_active("n"), cursor.schema is schema, cursor.id_getter()().low
    (True, True, 0)
    >>> cursor.close()
    """

    def __init__(self, schema: Schema, columns: Sequence[Column], rows: Callable[[], Numbered]) -> None:
        self._schema = schema
        self._places = {column.index: place for place, column in enumerate(columns)}
        self._open: Callable[[], Numbered] | None = rows
        self._rows: Numbered | None = None
        self._row: tuple[int, RowId, Sequence[Any]] | None = None
        self._position = -1
        self._getters: dict[int, Getter] = {}

    @property
    def schema(self) -> Schema:
        """The view's own (view:C1)."""
        return self._schema

    @property
    def position(self) -> int:
        """The number of the row, -1 where there is none (view:C42)."""
        return self._position

    @property
    def batch(self) -> int:
        """The batch the row belongs to."""
        return self._here[0] if self._row is not None else 0

    @property
    def id(self) -> RowId:
        """The id of the row."""
        return self._here[1]

    def id_getter(self) -> Callable[[], RowId]:
        """Return the function that gives the id of the current row."""
        return lambda: self.id

    @property
    def _here(self) -> tuple[int, RowId, Sequence[Any]]:
        if self._row is None:
            raise InputError(
                "the cursor is not on a row, so it has no value",
                remedy="call move_next(), and fetch only while it returns True",
                code="NoRow",
            )
        return self._row

    def is_active(self, column: Key) -> bool:
        """Say whether the column was asked for (view:C50)."""
        return self._schema.find(column).index in self._places

    def getter(self, column: Key, type: Asked | None = None) -> Getter:  # noqa: A002 (a promised name)
        """Return the function that gives the column's value of the current row."""
        found = self._schema.find(column)
        if found.index not in self._places:
            raise InputError(
                f"column {found.name!r} is not active: the cursor was opened without it",
                remedy=f"open it with cursor([…, {found.name!r}])",
                code="InactiveColumn",
                column=found.name,
            )
        if type is not None:
            t.same(type, found.type, found.name)
        place = self._places[found.index]
        return self._getters.setdefault(place, lambda: self._here[2][place])

    def move_next(self) -> bool:
        """Go to the next row, if there is one (view:C43)."""
        if self._rows is None:
            if self._open is None:
                return False
            self._rows, self._open = self._open(), None
        self._row = next(self._rows, None)
        if self._row is None:
            self.close()
            return False
        self._position += 1
        return True

    def close(self) -> None:
        """Release the rows (view:C55)."""
        rows, self._rows, self._open, self._row, self._position = self._rows, None, None, None, -1
        if rows is not None and hasattr(rows, "close"):
            rows.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
