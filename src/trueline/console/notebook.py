"""How things look in a notebook: self-contained HTML, everything escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from trueline.console.items import Table, as_html, cell, safe


def html(title: str, values: Mapping[str, object]) -> str:
    """Show the named values of one thing.

    >>> html("<x>", {"rows": 1200})
    '<table><caption>&lt;x&gt;</caption><tbody><tr><th>rows</th><td>1,200</td></tr></tbody></table>'
    """
    rows = "".join(
        f"<tr><th>{escape(safe(name))}</th><td>{escape(cell(value))}</td></tr>"
        for name, value in values.items()
    )
    return f"<table><caption>{escape(safe(title))}</caption><tbody>{rows}</tbody></table>"


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Show rows under named columns."""
    return as_html(Table(tuple(columns), tuple(tuple(row) for row in rows), title))
