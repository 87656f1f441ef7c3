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


def _check_signs(below: Node, columns: Sequence[str]) -> None:
    """Say of a direction that is written into the name of a column how it is given."""
    plain = [_direction(below, name) for name in columns]
    if any(down is not None for _, down in plain):
        names = ", ".join(repr(name) for name, _ in plain)
        downs = [bool(down) for _, down in plain]
        how = str(downs[0]) if len(set(downs)) == 1 else repr(downs)
        raise SchemaError(
            f"sort({', '.join(map(repr, columns))}): a direction is not a part of a name",
            remedy=f"write sort({names}" + (f", descending={how})" if any(downs) else ")"),
            code="UnknownColumn",
        )


def _direction(below: Node, name: object) -> tuple[object, bool | None]:
    """Return the column that is meant and its direction; of a name that is a column none is meant."""
    if not isinstance(name, str) or name in below.schema:
        return name, None
    word, _, last = name.strip().rpartition(" ")
    if word.strip() in below.schema and last.lower() in ("asc", "desc"):
        return word.strip(), last.lower() == "desc"
    if name[:1] in ("-", "+") and name[1:].strip() in below.schema:
        return name[1:].strip(), name[0] == "-"
    return name, None


def sorted_by(below: Node, columns: Sequence[str], descending: bool | Sequence[bool]) -> Sort:
    """Order rows by columns; one direction for all of them, or one for each."""
    if not columns:
        raise InputError("sort() without columns", remedy="name the columns to sort by")
    _check_signs(below, columns)
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
