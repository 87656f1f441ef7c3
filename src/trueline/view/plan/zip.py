"""Views side by side, row by row: as many rows as the shortest has, ids are those of the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trueline.view.plan.node import IdRule, Node, OwnSchema, Want
from trueline.view.schema import Schema


@dataclass(frozen=True, eq=False)
class Zip(OwnSchema):
    """The columns of all views; of a name that repeats the last is seen (view:C4)."""

    views: tuple[Node, ...]
    columns: Schema
    line: tuple[tuple[int, int], ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The views."""
        return self.views

    @property
    def id_rule(self) -> IdRule:
        """Those of the first view."""
        return IdRule.FIRST_INPUT

    @property
    def title(self) -> str:
        return f"{len(self.views)} views zipped"

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """The smallest, if all are known (view:C31)."""
        known = [count for count in counts if count is not None]
        return min(known) if len(known) == len(counts) else None

    @property
    def serial(self) -> str | None:
        """Where rows are not counted, partners are known by reading those before."""
        return None if self.row_count is not None else "rows of several views are counted side by side"

    def wants(self, want: Want) -> tuple[Want, ...]:
        """Its columns of each; ids of the first."""
        return tuple(
            want.of(
                [place for view, place in (self.line[index] for index in want.columns) if view == number],
                ids=want.ids and number == 0,
            )
            for number in range(len(self.views))
        )

    def passed(self, column: int) -> tuple[int, int] | None:
        """Every column is one of a view's."""
        return self.line[column]


def zipped(views: Sequence[Node]) -> Zip:
    """Put views side by side."""
    line = tuple((number, column.index) for number, view in enumerate(views) for column in view.schema)
    fields = [column.field for view in views for column in view.schema]
    return Zip(tuple(views), Schema(fields), line)
