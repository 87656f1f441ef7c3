"""How things look in a notebook: self-contained HTML, everything escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from trueline.chain.instant import Instant
from trueline.console.items import Table, as_html, cell, safe


def plain(value: object) -> object:
    """A moment as its text: as the number it also is, nobody could read it."""
    return str(value) if isinstance(value, Instant) else value


def html(title: str, values: Mapping[str, object]) -> str:
    """Show the named values of one thing.

    >>> html("<x>", {"rows": 1200})
    '<table><caption>&lt;x&gt;</caption><tbody><tr><th>rows</th><td>1,200</td></tr></tbody></table>'
    """
    rows = "".join(
        f"<tr><th>{escape(safe(name))}</th><td>{escape(cell(plain(value)))}</td></tr>"
        for name, value in values.items()
    )
    return f"<table><caption>{escape(safe(title))}</caption><tbody>{rows}</tbody></table>"


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Show rows under named columns."""
    return as_html(Table(tuple(columns), tuple(tuple(row) for row in rows), title))
