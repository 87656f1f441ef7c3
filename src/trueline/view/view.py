"""A view: exactly known rows, read lazily and by column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from trueline.view import explain as explaining
from trueline.view import reading
from trueline.view.doors import Doors
from trueline.view.origin import Origin
from trueline.view.plan.node import Node, steps
from trueline.view.sources.source_scan import Given
from trueline.view.verbs import Operations, natural

if TYPE_CHECKING:
    from trueline.view.cursor.cursor import ChunkCursor
    from trueline.view.cursor.row import Key
    from trueline.view.origin import ColumnOrigin
    from trueline.view.schema import Schema
    from trueline.view.source import Source


class View(Doors, Operations):
    """Rows with names, types and ids that are read when they are asked for, the same each time.

    A view is a value: every operation returns another one and reads nothing.
    It may be read from several threads at once.

    >>> view = View.from_rows([{"city": "Bern", "price": 9.5}, {"city": "Zug", "price": 30.0}])
    >>> view.filter("price > :limit", limit=10).select("city").to_arrow().to_pydict()
    {'city': ['Zug']}
    """

    __slots__ = ("_node", "_spark")

    def __init__(self, given: Node | Source, spark: Callable[[], Any] | None = None) -> None:
        self._node: Node = given if isinstance(given, Node) else Given(given)
        self._spark = spark

    def made_of(self, node: Node) -> Self:
        """Return a view of another node, in the same Spark."""
        return type(self)(node, self._spark)

    # --- what it is -------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """The columns; known without reading, the same object each time (view:C1)."""
        return self._node.schema

    @property
    def row_count(self) -> int | None:
        """How many rows there are if that is known without reading, else None; `count()` finds out."""
        return self._node.row_count

    @property
    def can_shuffle(self) -> bool:
        """Whether a seed given to a cursor changes the order (view:C81)."""
        return self._node.can_shuffle

    @property
    def origins(self) -> Mapping[str, Origin]:
        """Exactly which records it rests on: by dataset, the commit and the last offset."""
        return self._node.origins

    @property
    def removed(self) -> int:
        """How many of the records it rests on were removed on purpose; reading passes over them."""
        return sum(origin.removed for origin in self.origins.values())

    @property
    def bad(self) -> Mapping[str, int]:
        """How many cells of the sources are no values and so missing, by column, as far as they were read."""
        found: dict[str, int] = {}
        for node in steps(self._node):
            for name, count in getattr(node, "bad", {}).items():
                found[name] = found.get(name, 0) + count
        return found

    def origin(self, column: Key) -> ColumnOrigin | None:
        """Say which column of which source a column *is*; None if it is computed."""
        return explaining.origin(self._node, self.schema.find(column))

    def explain(self, columns: Sequence[Key] | Key | None = None) -> str:
        """Say what reading these columns does: steps, active columns, what is passed on, what is serial."""
        return explaining.explain(self._node, self.schema.find_all(columns))

    def count(self) -> int:
        """Count the rows, reading no more than that takes."""
        return reading.count(self._node)

    # --- row by row -------------------------------------------------------------------

    def cursor(self, columns: Sequence[Key] | Key | None = None, seed: int | None = None) -> ChunkCursor:
        """Open a cursor over the rows in order, or shuffled by a seed if the view can be (view:C83).

        >>> with View.from_rows([{"x": 1}, {"x": 2}]).cursor("x") as c:
        ...     get = c.getter("x", int)
        ...     while c.move_next():
        ...         print(c.position, c.id.hex[-4:], get())
        0 0000 1
        1 0001 2
        """
        from trueline.view.cursor import cursor

        return cursor.cursor(self._ordered(seed), self.schema.find_all(columns))

    def cursor_set(
        self, columns: Sequence[Key] | Key | None = None, n: int = 0, seed: int | None = None
    ) -> list[ChunkCursor]:
        """Open cursors that share the rows, to be read by as many threads; n is a wish (view:C60).

        Sorted by `batch`, their rows are those of one cursor (view:C64); `consolidate` does that.
        """
        from trueline.view.cursor import cursor

        return cursor.cursor_set(self._ordered(seed), self.schema.find_all(columns), n)

    def _ordered(self, seed: int | None) -> Node:
        if seed is None or not self.can_shuffle:
            return self._node
        from trueline.view.operators.shuffling import shuffled

        return shuffled(self._node, seed)

    # --- looking at it ----------------------------------------------------------------

    def show(self, count: int = 20) -> None:
        """Show the first rows."""
        from trueline.view.display import show

        show(self, natural(count, "show"))

    def preview(self, count: int = 5, *, steps: bool = False) -> Any:
        """Return the first rows to look at; with `steps`, those of every step on the way."""
        from trueline.view.display import preview

        return preview(self, natural(count, "preview"), steps=steps)

    def __repr__(self) -> str:
        known = self.row_count
        rows = "" if known is None else f"{known:,} rows, "
        return f"<View {rows}{', '.join(f'{c.name}: {c.type}' for c in self.schema.visible)}>"

    def _repr_html_(self) -> str:
        from trueline.view.display import html

        return html(self)

    # --- inside -----------------------------------------------------------------------

    @property
    def node(self) -> Node:
        """What it does, for engines that do it elsewhere."""
        return self._node
