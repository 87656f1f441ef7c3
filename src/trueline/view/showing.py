"""The first rows of a view for people: in a terminal and in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trueline import console as consoles
from trueline.console.items import Table, as_html

if TYPE_CHECKING:
    from trueline.view.view import View

_LONGEST = 80


def head(view: View, count: int) -> Table:
    """Return the first rows as a table, with names and types above them."""
    table = view.limit(count + 1).to_arrow()
    more = " (and more)" if table.num_rows > count else ""
    known = view.row_count
    total = f"{known:,} rows" if known is not None else f"first {min(count, table.num_rows):,} rows{more}"
    rows = [tuple(_short(value) for value in row.values()) for row in table.to_pylist()[:count]]
    columns = tuple(f"{column.name}\n{column.type}" for column in view.schema)
    return Table(columns, tuple(rows), f"{total}, {len(columns)} columns")


def show(view: View, count: int) -> None:
    """Show the first rows where people look: asking for it is reason enough to speak."""
    shown = head(view, count)
    plain = Table(tuple(name.split("\n")[0] for name in shown.columns), shown.rows, shown.title)
    console = consoles.current()
    (consoles.TerminalConsole() if isinstance(console, consoles.SilentConsole) else console).show(plain)


def html(view: View, count: int = 20) -> str:
    """Return the first rows as a table for notebooks."""
    return as_html(head(view, count))


def _short(value: object) -> object:
    if isinstance(value, bytes):
        value = value.hex()
    if isinstance(value, str) and len(value) > _LONGEST:
        return value[: _LONGEST - 1] + "…"
    return value if isinstance(value, str | int | float) or value is None else str(value)
