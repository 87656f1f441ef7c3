"""Columns computed over the rows around each row, in the order of the view.

Rows, ids and order are those of the input. A window depends on the order of rows: it comes in one piece and
is not shuffled (view:C71), unless none of its columns is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trueline.view.plan.aggregates import AggregateCall, bound, needed, needs_all_rows
from trueline.view.plan.node import Node, OneInput, OwnSchema, Want
from trueline.view.plan.with_columns import MadeColumn, placed
from trueline.view.schema import Schema, key_columns


@dataclass(frozen=True, eq=False)
class Window(OwnSchema, OneInput):
    """The columns of the input, and aggregates over `before` rows, the row itself, and `after` rows."""

    before: int
    after: int
    by: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    line: tuple[int | MadeColumn, ...]
    columns: Schema

    @property
    def can_shuffle(self) -> bool:
        """What is before and after a row is the order's to say (view:C71)."""
        return False

    @property
    def serial(self) -> str | None:
        """Neighbours are known by reading in order (view:C71)."""
        return "a window reads rows beside their neighbours"

    @property
    def title(self) -> str:
        made = ", ".join(f"{each.name} = {each.text}" for each in self.calls)
        key = ", ".join(self.below.schema[place].name for place in self.by)
        reach = f"{self.before:,} rows before and {self.after:,} after"
        return f"with {made} over {reach}{f' by {key}' if key else ''}"

    def streams(self, want: Want) -> bool:
        """Whether rows pass by in order: none has to be brought beside others first."""
        return not self.by and not any(map(needs_all_rows, self.made(want)))

    def made(self, want: Want) -> list[AggregateCall]:
        """Return the aggregates that are wanted."""
        found = (self.line[index] for index in want.columns)
        return [self.calls[place.output] for place in found if isinstance(place, MadeColumn)]

    def wants(self, want: Want) -> tuple[Want, ...]:
        """The columns passed on, what aggregates read that are wanted, and what keeps rows apart."""
        passed = [place for index in want.columns if isinstance(place := self.line[index], int)]
        made = self.made(want)
        return (want.of(tuple(dict.fromkeys((*passed, *needed(made), *(self.by if made else ()))))),)

    def passed(self, column: int) -> tuple[int, int] | None:
        """A column that is not made here is the input's."""
        place = self.line[column]
        return (0, place) if isinstance(place, int) else None


def windowed(
    below: Node,
    reach: tuple[int, int],
    by: str | Sequence[str] | None,
    aggregates: Mapping[str, str],
    parameters: Mapping[str, object],
) -> Window:
    """Add aggregates over the rows around each row."""
    names = () if by is None else (by,) if isinstance(by, str) else tuple(by)
    key = tuple(column.index for column in key_columns(below.schema, names, "a window"))
    node, calls = bound(below, aggregates, parameters, window=True)
    new = [(MadeColumn(0, number), each.field) for number, each in enumerate(calls)]
    schema, line = placed(below.schema, new)
    return Window(node, *reach, key, tuple(calls), line, schema)
