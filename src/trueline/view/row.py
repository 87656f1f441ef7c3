"""A row has values and cannot move; a cursor is a row that moves. Code that takes a `Row` cannot move it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

    from trueline.identity import RowId
    from trueline.types import Type
    from trueline.view.schema import Column, Schema

Getter: TypeAlias = Callable[[], Any]
Key: TypeAlias = "str | int | Column"
Asked: TypeAlias = "Type | pa.DataType | type | str"


@runtime_checkable
class Row(Protocol):
    """Values under names, of known types, for one row at a time."""

    @property
    def schema(self) -> Schema:
        """The columns: the very object of the view it belongs to (view:C1)."""

    @property
    def position(self) -> int:
        """Which row this is, counted from 0 by the reader; -1 where there is none (view:C42)."""

    @property
    def batch(self) -> int:
        """A number that never falls; sorted by it, the rows of a set are those of one cursor (view:C64)."""

    @property
    def id(self) -> RowId:
        """Who this row is, the same however the view is read (view:C74)."""

    def is_active(self, column: Key) -> bool:
        """Say whether the column was asked for, so that it has values here (view:C50)."""

    def getter(self, column: Key, type: Asked | None = None) -> Getter:  # noqa: A002 (a promised name)
        """Return a function that returns the value of the row there is (view:C45).

        With a type, it has to be exactly the column's; all checks are made here, none per value.
        """


class Cursor(Row, Protocol):
    """A row that moves forward over the rows of a view, for one thread at a time.

    It is not for isinstance, which would look at `id`, and a cursor has none before its first row.
    """

    def move_next(self) -> bool:
        """Go to the next row; False at the end, and for ever after (view:C43)."""

    def close(self) -> None:
        """Let go of files and threads; twice is once (view:C55)."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...
