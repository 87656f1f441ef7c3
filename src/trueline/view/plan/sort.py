"""Rows in the order of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trueline.errors import InputError, SchemaError
from trueline.view.plan.node import Node, OneInput, Want


@dataclass(frozen=True, eq=False)
class Sort(OneInput):
    """Rows by the values of columns: null last, NaN before it, equal rows as they were; ids do not change."""

    by: tuple[int, ...]
    descending: tuple[bool, ...]

    @property
    def title(self) -> str:
        shown = (
            f"{self.schema[place].name}{' descending' if down else ''}"
            for place, down in zip(self.by, self.descending, strict=True)
        )
        return f"sorted by {', '.join(shown)}"

    def wants(self, want: Want) -> tuple[Want, ...]:
        """What is wanted, and what the order depends on."""
        return (want.of(tuple(dict.fromkeys((*want.columns, *self.by)))),)


def sorted_by(below: Node, columns: Sequence[str], descending: bool | Sequence[bool]) -> Sort:
    """Order rows by columns; one direction for all of them, or one for each."""
    if not columns:
        raise InputError("sort() without columns", remedy="name the columns to sort by")
    found = below.schema.find_all(tuple(columns))
    for column in found:
        if not column.type.has_order:
            raise SchemaError(
                f"column {column.name!r} is of type {column.type}, which has no order",
                remedy="sort by a column of single values",
                code="TypeMismatch",
                column=column.name,
                found=str(column.type),
            )
    down = (descending,) * len(found) if isinstance(descending, bool) else tuple(descending)
    if len(down) != len(found) or not all(isinstance(each, bool) for each in down):
        raise InputError(
            f"descending={descending!r} for {len(found)} columns",
            remedy="give True or False, or one of them for each column",
        )
    return Sort(below, tuple(column.index for column in found), down)
