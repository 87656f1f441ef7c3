"""What the kit asks of a view; a class of anyone's that has this can be checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeGuard

from trueline.view.cursor.row import Cursor, Key
from trueline.view.schema import Schema


class ViewLike(Protocol):
    """Rows under named and typed columns, read by cursors, the same each time.

    >>> from trueline import View
    >>> view = View.range(3)
    >>> view.schema.names, view.row_count, view.can_shuffle, len(view.cursor_set("n", n=1))
    (('n',), 3, True, 1)
    >>> with view.cursor("n") as cursor:
    ...     cursor.move_next()
    True
    """

    @property
    def schema(self) -> Schema:
        """The columns; the same object each time."""

    @property
    def row_count(self) -> int | None:
        """How many rows there are, None if that takes reading."""

    @property
    def can_shuffle(self) -> bool:
        """Whether a seed changes the order."""

    def cursor(self, columns: Sequence[Key] | None = None, seed: int | None = None) -> Cursor:
        """Open a cursor over the rows; None means all columns that are not hidden."""

    def cursor_set(
        self, columns: Sequence[Key] | None = None, n: int = 0, seed: int | None = None
    ) -> Sequence[Cursor]:
        """Open cursors that share the rows; n is a hint, 0 leaves it open."""


_NAMES: Final = ("schema", "row_count", "can_shuffle", "cursor", "cursor_set")


def is_view(given: Any) -> TypeGuard[ViewLike]:
    """Say whether something has what a view has; nothing of it is called."""
    there = {*dir(type(given)), *getattr(given, "__dict__", {})}
    return not isinstance(given, type) and there.issuperset(_NAMES)
