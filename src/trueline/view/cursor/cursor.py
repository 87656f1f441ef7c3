"""Reading row by row: where the cursor is, who the row is, and its values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeAlias

from trueline import types as t
from trueline.errors import CursorShared, InputError
from trueline.identity import RowId, RowIds
from trueline.identity.rowid import ids_of
from trueline.kernel.chunk import Chunk, Piece
from trueline.kernel.read_ahead import THREADS, Background
from trueline.kernel.values import At, reader
from trueline.view.execute.dispatch import numbered, pieces
from trueline.view.plan.node import Node, Want

if TYPE_CHECKING:
    from trueline.view.cursor.row import Asked, Getter, Key
    from trueline.view.schema import Column, Schema

Chunks: TypeAlias = Iterator[tuple[int, Chunk]]

# Rows that are made into Python values at a time: 50 columns of a whole chunk would be 100 MB of objects.
ROWS_AT_ONCE: Final = 4_096
_MOST_MEMBERS: Final = 1_024


class _Here:
    """The row within what is at hand; getters hold this, so that a cursor that is dropped closes at once."""

    __slots__ = ("at", "values")

    def __init__(self, columns: int) -> None:
        self.at = -1
        # One for each column, and the last for the ids.
        self.values: list[At] = [nowhere] * (columns + 1)


def nowhere(_: int = -1) -> NoReturn:
    """Refuse to get a value: what a getter does where there is no row (view:C44)."""
    raise InputError(
        "the cursor is not on a row, so there is no value to get",
        remedy="call move_next(), and get values only while it returns True",
        code="NoRow",
    )


class ChunkCursor:
    """A cursor over chunks; the chunks say which batch they belong to.

    It reads nothing before it is first moved (view:C32), and closes itself at
    the end (view:C55). One thread at a time moves it (view:C54): a second one
    that comes while rows are fetched is refused; any thread may close it.
    """

    def __init__(self, schema: Schema, columns: Sequence[Column], chunks: Callable[[], Chunks]) -> None:
        self._schema = schema
        self._columns = tuple(columns)
        self._places = {column.index: place for place, column in enumerate(columns)}
        self._readers = [reader(column.type) for column in columns]
        self._getters: dict[int, Getter] = {}
        self._open: Callable[[], Chunks] | None = chunks
        self._chunks: Chunks | None = None
        self._chunk: Chunk | None = None
        self._here = _Here(len(columns))
        self._rows = 0  # made into values at a time, `_here.at` counts in them
        self._start = 0  # of these rows within the chunk
        self._first = 0  # of these rows among all
        self._batch = 0
        # Guards what follows, which a second thread may touch: whoever closes.
        self._guard = threading.Lock()
        self._fetching = False
        self._closed = False

    # --- where it is ----------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """The view's own (view:C1)."""
        return self._schema

    @property
    def position(self) -> int:
        """The number of the row, -1 before the first and after the last (view:C42)."""
        return self._first + self._here.at

    @property
    def batch(self) -> int:
        """The number of the piece the row is from (view:C62)."""
        return self._batch

    @property
    def id(self) -> RowId:
        """Who the row is, whatever columns were asked for (view:C73)."""
        found: RowId = self._here.values[-1](self._here.at)
        return found

    def id_getter(self) -> Callable[[], RowId]:
        """Return the function that gives the id of the row there is; the same each time."""
        if -1 not in self._getters:
            self._getters[-1] = _getter(self._here, len(self._columns))
        return self._getters[-1]

    def is_active(self, column: Key) -> bool:
        """Say whether the column was asked for (view:C50)."""
        return self._schema.find(column).index in self._places

    # --- values ---------------------------------------------------------------------

    def getter(self, column: Key, type: Asked | None = None) -> Getter:  # noqa: A002 (a promised name)
        """Return the function that gives the column's value of the row there is; the same each time."""
        found = self._schema.find(column)
        place = self._places.get(found.index)
        if place is None:
            raise InputError(
                f"column {found.name!r} was not asked for when the cursor was opened",
                remedy=f"open it with cursor([…, {found.name!r}])",
                code="InactiveColumn",
                column=found.name,
            )
        if type is not None:
            t.same(type, found.type, found.name)
        if place not in self._getters:
            self._getters[place] = _getter(self._here, place)
        return self._getters[place]

    # --- moving ---------------------------------------------------------------------

    def move_next(self) -> bool:
        """Go to the next row, if there is one (view:C43)."""
        here = self._here
        at = here.at + 1
        if at < self._rows:
            here.at = at
            return True
        return self._next_rows()

    def start(self) -> None:
        """Begin to read, in a thread of its own, ahead of the first move."""
        with self._guard:
            if self._open is not None:
                self._chunks, self._open = Background(self._open), None

    def _next_rows(self) -> bool:
        with self._guard:
            if self._closed:
                return False
            if self._fetching:
                raise CursorShared(
                    "two threads move the same cursor",
                    remedy="give each thread a cursor of its own, or a member of view.cursor_set()",
                )
            self._fetching = True
        try:
            found = self._fetch()
        except BaseException:
            self._leave(None)
            raise
        return self._leave(found)

    def _fetch(self) -> tuple[int, Chunk, int] | None:
        """Return the batch, the chunk and the number in it of the row that comes next."""
        after = self._start + self._rows
        if self._chunk is not None and after < self._chunk.rows:
            return self._batch, self._chunk, after
        if self._chunks is None:
            assert self._open is not None
            self._chunks, self._open = self._open(), None
        for batch, chunk in self._chunks:
            if chunk.rows:
                return batch, chunk, 0
        return None

    def _leave(self, found: tuple[int, Chunk, int] | None) -> bool:
        """Move to the row that was found; close if there is none, or if someone did meanwhile."""
        with self._guard:
            self._fetching = False
            if found is not None and not self._closed:
                first = self._first + self._rows
                self._batch, self._chunk, self._start = found
                self._rows = min(ROWS_AT_ONCE, self._chunk.rows - self._start)
                arrays = [array.slice(self._start, self._rows) for array in self._chunk.arrays]
                self._here.values[:] = [
                    _unread(self._here, place, read, array)
                    for place, (read, array) in enumerate(zip(self._readers, arrays, strict=True))
                ] + [_unread(self._here, len(arrays), _ids, self._ids_here())]
                self._first, self._here.at = first, 0
                return True
        self.close()
        return False

    def _ids_here(self) -> RowIds:
        assert self._chunk is not None
        assert self._chunk.ids is not None
        return self._chunk.ids[self._start : self._start + self._rows]

    def close(self) -> None:
        """Release what it reads (view:C55, view:C56)."""
        with self._guard:
            self._closed = True
            self._chunk, self._rows, self._start, self._first = None, 0, 0, 0
            self._here.at = -1
            self._here.values[:] = [nowhere] * (len(self._columns) + 1)
            if self._fetching:  # that thread closes it, once it comes back
                return
            chunks, self._chunks, self._open = self._chunks, None, None
        if chunks is not None and hasattr(chunks, "close"):
            chunks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        at = self.position
        where = "before the first row or after the last" if at < 0 else f"at row {at:,}"
        return f"<Cursor {where}, {', '.join(column.name for column in self._columns) or 'no columns'}>"


def _getter(here: _Here, place: int) -> Getter:
    """The function that gives a column's value; every check was made before (view:C48)."""
    values = here.values

    def get() -> Any:
        return values[place](here.at)

    return get


def _unread(here: _Here, place: int, read: Callable[[Any], At], array: Any) -> At:
    """Stand in for values until one of them is asked for."""

    def first(at: int) -> Any:
        found = here.values[place] = read(array)
        return found(at)

    return first


def _ids(ids: RowIds) -> At:
    return ids_of(ids.low.tolist(), ids.high.tolist()).__getitem__


# --- opening --------------------------------------------------------------------------------


def cursor(node: Node, columns: Sequence[Column]) -> ChunkCursor:
    """Open a cursor over all rows of a node, in order."""
    want = Want(tuple(column.index for column in columns), ids=True)
    return ChunkCursor(node.schema, columns, lambda: numbered(node, want))


def cursor_set(node: Node, columns: Sequence[Column], n: int) -> list[ChunkCursor]:
    """Open cursors that share the rows of a node: whole pieces each, in turn (view:C61, view:C64)."""
    wished = min(n, _MOST_MEMBERS) if n > 0 else THREADS
    found = pieces(node, Want(tuple(column.index for column in columns), ids=True, parts=wished))
    members = max(1, min(wished, len(found)))
    return [ChunkCursor(node.schema, columns, _reading(found, member, members)) for member in range(members)]


def _reading(pieces: Sequence[Piece], member: int, members: int) -> Callable[[], Chunks]:
    mine = range(member, len(pieces), members)

    def read() -> Chunks:
        # Members are read by their own threads already: none reads ahead.
        for number in mine:
            for chunk in pieces[number].chunks():
                yield number, chunk

    return read
