"""Groups of rows with equal values, before it is said what to make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from trueline.view.schema import key_columns

if TYPE_CHECKING:
    from trueline.view.operations import Operations

V = TypeVar("V", bound="Operations")


class Groups(Generic[V]):
    """What `view.group_by(…)` returns; `agg` makes a view of it, with a row for each group.

    >>> from trueline import View
    >>> view = View.from_rows(
    ...     [{"city": "Bern", "price": 9.5}, {"city": "Zug", "price": 3.0}, {"city": "Bern"}]
    ... )
    >>> view.group_by("city").agg(rows="count(*)", total="sum(price)").to_arrow().to_pylist()
    [{'city': 'Bern', 'rows': 2, 'total': 9.5}, {'city': 'Zug', 'rows': 1, 'total': 3.0}]
    """

    __slots__ = ("_columns", "_view")

    def __init__(self, view: V, columns: Sequence[str]) -> None:
        self._view = view
        self._columns = key_columns(view.schema, columns, "groups")

    def agg(self, **aggregates: str) -> V:
        """Return a row for each group, in the order of their first rows: the key, then these aggregates."""
        from trueline.view.operators.grouping import grouped

        return self._view.made_of(grouped(self._view.node, self._columns, aggregates))

    def __repr__(self) -> str:
        return f"<Groups by {', '.join(column.name for column in self._columns) or 'nothing'}>"
