"""A row has values and cannot move; a cursor is a row that moves. Code that takes a `Row` cannot move it."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getattr_static
from typing import (
    TYPE_CHECKING,
    Any,
    Protocol,
    Self,
    TypeAlias,
    _ProtocolMeta,
    runtime_checkable,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from trueline.identity import RowId
    from trueline.types import Type
    from trueline.view.schema import Column, Schema

Getter: TypeAlias = Callable[[], Any]
Key: TypeAlias = "str | int | Column"
Asked: TypeAlias = "Type | pa.DataType | type | str"


class _ByName(_ProtocolMeta):
    """Looks for the names of a protocol where an object is described, and asks the object nothing.

    Python 3.11 would fetch each of them: a cursor has no id before its first row (view:C44).
    """

    def __instancecheck__(self, instance: object) -> bool:
        if self not in (Row, Cursor):
            return super().__instancecheck__(instance)
        missing = object()
        return all(getattr_static(instance, name, missing) is not missing for name in _names(self))


def _names(protocol: type) -> set[str]:
    own = {name for each in protocol.__mro__ if each in (Row, Cursor) for name in vars(each)}
    return {name for name in own if name in ("__enter__", "__exit__") or not name.startswith("_")}


@runtime_checkable
class Row(Protocol, metaclass=_ByName):
    """Values under names, of known types, for one row at a time.

    >>> from trueline import View
    >>> view = View.from_rows([{"city": "Bern", "price": 9.5}])
    >>> with view.cursor("city") as row:
    ...     city = row.getter("city", str)
    ...     row.position, row.move_next(), row.position, row.batch, city()
    ...     row.id.hex[-4:], row.id_getter()() == row.id, row.is_active("price"), row.schema is view.schema
    (-1, True, 0, 0, 'Bern')
    ('0000', True, False, True)
    """

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

    def id_getter(self) -> Callable[[], RowId]:
        """Return a function that returns the id of the row there is: `id`, for many rows (view:C74)."""

    def is_active(self, column: Key) -> bool:
        """Say whether the column was asked for, so that it has values here (view:C50)."""

    def getter(self, column: Key, type: Asked | None = None) -> Getter:  # noqa: A002 (a promised name)
        """Return a function that returns the value of the row there is (view:C45).

        With a type, it has to be exactly the column's; all checks are made here, none per value.
        """


@runtime_checkable
class Cursor(Row, Protocol):
    """A row that moves forward over the rows of a view, for one thread at a time.

    >>> from trueline import View
    >>> cursor = View.range(2).cursor()
    >>> number = cursor.getter("n", int)
    >>> while cursor.move_next():
    ...     print(number())
    0
    1
    >>> cursor.close()
    """

    def move_next(self) -> bool:
        """Go to the next row; False at the end, and from then on (view:C43)."""

    def close(self) -> None:
        """Release files and threads; closing twice is closing once (view:C55)."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...
