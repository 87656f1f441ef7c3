"""Reading row by row: where the cursor stands, who the row is, and its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from trueline import types as t
from trueline.errors import InputError
from trueline.identity import RowId
from trueline.view.ahead import THREADS, in_order
from trueline.view.chunk import Chunk, Want
from trueline.view.node import Node, Piece
from trueline.view.reading import numbered
from trueline.view.values import reader

if TYPE_CHECKING:
    from trueline.view.row import Asked, Getter, Key
    from trueline.view.schema import Column, Schema


class ChunkCursor:
    """A cursor over chunks; the chunks say which batch they belong to.

    It reads nothing before it is first moved (view:C32), and closes itself at the end (view:C55).
    """

    def __init__(
        self, schema: Schema, columns: Sequence[Column], chunks: Callable[[], Iterator[tuple[int, Chunk]]]
    ) -> None:
        self._schema = schema
        self._columns = tuple(columns)
        self._places = {column.index: place for place, column in enumerate(columns)}
        self._open: Callable[[], Iterator[tuple[int, Chunk]]] | None = chunks
        self._chunks: Iterator[tuple[int, Chunk]] | None = None
        self._chunk: Chunk | None = None
        self._position = -1
        self._batch = 0
        self._at = -1  # the row within the chunk
        self._rows = 0  # of the chunk
        # Per column the values of this chunk, made when the first of them is asked for.
        self._values: list[Any] = [None] * len(columns)
        self._getters: dict[int, Getter] = {}

    # --- where it stands ------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """The view's own (view:C1)."""
        return self._schema

    @property
    def position(self) -> int:
        """The number of the row, -1 before the first and after the last (view:C42)."""
        return self._position

    @property
    def batch(self) -> int:
        """The number of the piece the row is from (view:C62)."""
        return self._batch

    @property
    def id(self) -> RowId:
        """Who the row is."""
        if self._position < 0 or self._chunk is None or self._chunk.ids is None:
            raise _nowhere("its id")
        return self._chunk.ids[self._at]

    def is_active(self, column: Key) -> bool:
        """Say whether the column was asked for (view:C50)."""
        return self._schema.find(column).index in self._places

    # --- values ---------------------------------------------------------------------

    def getter(self, column: Key, type: Asked | None = None) -> Getter:  # noqa: A002 (a promised name)
        """Return the function that gives the column's value of the row there is; the same each time."""
        found = self._schema.find(column)
        if found.index not in self._places:
            raise InputError(
                f"column {found.name!r} was not asked for when the cursor was opened",
                remedy=f"open it with cursor([…, {found.name!r}])",
                code="InactiveColumn",
                column=found.name,
            )
        if type is not None:
            t.same(type, found.type, found.name)
        if found.index not in self._getters:
            self._getters[found.index] = self._make(self._places[found.index], found)
        return self._getters[found.index]

    def _make(self, place: int, column: Column) -> Getter:
        values, read = self._values, reader(column.type)

        def get() -> Any:
            if self._position < 0:
                raise _nowhere(f"column {column.name!r}")
            found = values[place]
            if found is None:
                assert self._chunk is not None
                found = values[place] = read(self._chunk.arrays[place])
            return found(self._at)

        return get

    # --- moving ---------------------------------------------------------------------

    def move_next(self) -> bool:
        """Go to the next row, if there is one (view:C43)."""
        self._at += 1
        if self._at < self._rows:
            self._position += 1
            return True
        return self._next_chunk()

    def _next_chunk(self) -> bool:
        if self._chunks is None:
            if self._open is None:
                return self._end()
            self._chunks, self._open = self._open(), None
        try:
            for batch, chunk in self._chunks:
                if chunk.rows:
                    self._chunk, self._rows, self._at, self._batch = chunk, chunk.rows, 0, batch
                    self._values[:] = [None] * len(self._values)
                    self._position += 1
                    return True
        except BaseException:
            self.close()
            raise
        self.close()
        return False

    def _end(self) -> bool:
        self._position, self._at, self._rows = -1, -1, 0
        return False

    def close(self) -> None:
        """Let go of what it reads (view:C55, view:C56)."""
        chunks, self._chunks, self._open, self._chunk = self._chunks, None, None, None
        self._values[:] = [None] * len(self._values)
        self._end()
        if chunks is not None and hasattr(chunks, "close"):
            chunks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = (
            "before the first row or after the last" if self._position < 0 else f"at row {self._position:,}"
        )
        return f"<Cursor {where}, {', '.join(column.name for column in self._columns) or 'no columns'}>"


def _nowhere(what: str) -> InputError:
    return InputError(
        f"{what} cannot be fetched now: the cursor stands at no row",
        remedy="call move_next(), and fetch only while it returns True",
        code="NoRow",
    )


# --- opening --------------------------------------------------------------------------------


def cursor(node: Node, columns: Sequence[Column]) -> ChunkCursor:
    """Open a cursor over all rows of a node, in order."""
    want = Want(tuple(column.index for column in columns), ids=True)
    return ChunkCursor(node.schema, columns, lambda: numbered(node, want))


def cursor_set(node: Node, columns: Sequence[Column], n: int) -> list[ChunkCursor]:
    """Open cursors that share the rows of a node: whole pieces each, in turn (view:C61, view:C64)."""
    wished = n if n > 0 else THREADS
    pieces = node.pieces(Want(tuple(column.index for column in columns), ids=True, parts=wished))
    members = max(1, min(wished, len(pieces)))
    return [ChunkCursor(node.schema, columns, _reading(pieces, member, members)) for member in range(members)]


def _reading(pieces: Sequence[Piece], member: int, members: int) -> Callable[[], Iterator[tuple[int, Chunk]]]:
    mine = range(member, len(pieces), members)

    def read() -> Iterator[tuple[int, Chunk]]:
        # Members are read by their own threads already: none reads ahead.
        for number, chunk in in_order([pieces[index] for index in mine], 1):
            yield mine[number], chunk

    return read
