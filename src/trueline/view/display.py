"""The first rows of a view for people: in a terminal and in a notebook."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trueline import console as consoles
from trueline.console.items import Table, as_html, one_line
from trueline.view.execute.dispatch import table as table_of
from trueline.view.explain import likely_rows, title
from trueline.view.plan.limit import Limit
from trueline.view.plan.node import Node
from trueline.view.plan.node import steps as steps_of
from trueline.view.plan.on_spark import OnSpark
from trueline.view.schema import Column

_LONGEST = 80


def head(node: Node, count: int) -> Table:
    """Return the first rows as a table, with names and types above them."""
    table = table_of(_first(node, count + 1), node.schema.visible)
    shown, known = min(count, table.num_rows), likely_rows(node)
    if table.num_rows <= count or (known is not None and known < table.num_rows):
        known = shown if table.num_rows <= count else None
    if known is None:
        total = f"first {counted(shown, 'row')} (and more)"
    else:
        total = f"first {shown:,} of {known:,} rows" if known > shown else counted(known, "row")
    rows = [tuple(_short(value) for value in row.values()) for row in table.to_pylist()[:count]]
    columns = tuple(f"{one_line(column.name)}\n{_described(column)}" for column in node.schema.visible)
    return Table(columns, tuple(rows), f"{total}, {counted(len(columns), 'column')}", data=True)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _first(node: Node, count: int) -> Node:
    """Return the first rows; those of a plan that runs on Spark are chosen there."""
    if isinstance(node, OnSpark):
        return replace(node, below=Limit(node.below, 0, count))
    return Limit(node, 0, count)


def show(node: Node, count: int) -> None:
    """Show the first rows on the console in use, or in the terminal if that is silent."""
    _shown(head(node, count))


def _shown(table: Table) -> None:
    plain = replace(table, columns=tuple(name.split("\n")[0] for name in table.columns))
    console = consoles.current()
    (consoles.TerminalConsole() if isinstance(console, consoles.SilentConsole) else console).show(plain)


def html(node: Node, count: int = 20) -> str:
    """Return the first rows as a table for notebooks."""
    return as_html(head(node, count))


def preview(node: Node, count: int, *, steps: bool) -> Preview:
    """Return the first rows of a view, or of every step it is made of, sources first."""
    nodes = list(steps_of(node)) if steps else [node]
    return Preview(tuple(replace(head(each, count), title=title(each)) for each in nodes))


@dataclass(frozen=True)
class Preview:
    """First rows to look at, a table for each step; prints in a terminal and in a notebook."""

    tables: tuple[Table, ...]

    def show(self) -> None:
        """Show them on the console in use."""
        for table in self.tables:
            _shown(table)

    def __str__(self) -> str:
        return "\n\n".join(f"{table.title}\n{_plain(table)}" for table in self.tables)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(as_html(table) for table in self.tables)


def _plain(table: Table) -> str:
    """A table as plain text, columns under each other."""
    names = [name.split("\n")[0] for name in table.columns]
    cells = [names, *table.cells()]
    widths = [max(len(row[place]) for row in cells) for place in range(len(names))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def _described(column: Column) -> str:
    """The type, and what is known beside it."""
    known = ", ".join(column.annotations)
    return f"{column.type} ({known})" if known else str(column.type)


def _short(value: object) -> object:
    if isinstance(value, bytes):
        value = value.hex()
    if isinstance(value, str) and len(value) > _LONGEST:
        return value[: _LONGEST - 1] + "…"
    return value if isinstance(value, str | int | float) or value is None else str(value)
