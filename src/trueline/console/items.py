"""What can be shown on a console, and how it reads as plain text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time
from enum import Enum
from html import escape
from math import isfinite
from typing import Any, Literal, TypeAlias

from trueline.errors.tree import HIDDEN, visible

Style: TypeAlias = Literal["plain", "strong", "good", "bad", "faint"]


@dataclass(frozen=True, slots=True)
class Line:
    """One status line.

    >>> Line("done", "good")
    Line(text='done', style='good')
    """

    text: str
    style: Style = "plain"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns; columns that hold only numbers are set to the right.

    With `data` the cells are values of people's own, which may be years and ids: they are
    written without separators, and cut where a terminal is too narrow for them.

    >>> table = Table(("name", "rows"), (("sales", 3000), ("daily", None)))
    >>> table.is_numeric(1), table.cells()
    (True, [['sales', '3,000'], ['daily', '–']])
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    title: str = ""
    data: bool = False

    def cells(self) -> list[list[str]]:
        """Write the rows the way people read them."""
        write = data_cell if self.data else cell
        return [[write(value) for value in row] for row in self.rows]

    def is_numeric(self, index: int) -> bool:
        """Say whether a column holds only numbers (and nulls)."""
        cells = [row[index] for row in self.rows if row[index] is not None]
        return bool(cells) and all(_is_number(value) for value in cells)


@dataclass(frozen=True, slots=True)
class Fields:
    """Named values of one thing, one under the other.

    >>> Fields((("rows", 3),)).values
    (('rows', 3),)
    """

    values: tuple[tuple[str, object], ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Tree:
    """A label with branches.

    >>> Tree("sales", (Tree("daily"),)).children[0].label
    'daily'
    """

    label: str
    children: tuple[Tree, ...] = ()


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning or an error: what is wrong, what to do, and a stable code to search for.

    >>> Notice("warning", "7 bad cells", "look at them").kind
    'warning'
    """

    kind: Literal["warning", "error"]
    problem: str
    remedy: str = ""
    code: str = ""


Item: TypeAlias = Line | Table | Fields | Tree | Notice


# --- text ---------------------------------------------------------------------


def safe(text: str) -> str:
    r"""Make text harmless to a terminal.

    >>> safe("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return visible(text)


def one_line(text: object) -> str:
    r"""Make a name or a value harmless to a terminal, and to the lines around it.

    >>> one_line("a.csv\nerror: gone")
    'a.csv\\x0aerror: gone'
    """
    return visible(str(text), lines=False)


def _is_number(value: object) -> bool:
    """Say whether a value is shown as a number: booleans and timestamps are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float | Enum) or type(value).__str__ is int.__str__


def cell(value: object) -> str:
    """Write one value the way people read it.

    >>> [cell(v) for v in (None, 1234567, True, 0.5, "x")]
    ['–', '1,234,567', 'yes', '0.5', 'x']
    """
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int() if _is_number(value):
            return f"{value:,}"
        case float():
            return f"{value:,.6g}"
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
        case list() | tuple() | set() | frozenset():
            return ", ".join(cell(v) for v in value)
        case _:
            return one_line(value)


def data_cell(value: object) -> str:
    r"""Write a value of people's own: numbers without separators, line breaks as they are typed.

    >>> [data_cell(v) for v in (None, 2026, 1234567.5, True, "a\nb")]
    ['–', '2026', '1234567.5', 'true', 'a\\nb']
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and _is_number(value):
        return str(value)
    if isinstance(value, str):
        return one_line(value.translate(_BREAKS))
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(data_cell, value))}]"
    return cell(value)


_BREAKS = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
_NARROW, _GAP = 12, 3


def fitted(table: Table, width: int) -> Table:
    """Cut a table of data to a width: long values first, then columns, which the title counts.

    >>> print(as_text(fitted(Table(("a", "b", "c"), (("x" * 50, "y" * 50, "z" * 50),), data=True), 40)))
    1 of 3 columns is not shown
    a             b
    xxxxxxxxxxx…  yyyyyyyyyyy…
    """
    names = [one_line(name) for name in table.columns]
    cells = table.cells()
    wide = [max(len(row[i]) for row in [names, *cells]) for i in range(len(names))]
    while sum(wide) + _GAP * (len(wide) - 1) > width and max(wide, default=0) > _NARROW:
        longest = wide.index(max(wide))
        others = sum(wide) - wide[longest] + _GAP * (len(wide) - 1)
        second = max((w for w in wide if w < wide[longest]), default=_NARROW)
        wide[longest] = max(_NARROW, second, min(wide[longest] - 1, width - others))
    shown, used = 0, 0
    for each in wide:
        if shown and used + each > width:
            break
        shown, used = shown + 1, used + each + _GAP
    left = len(names) - shown
    title = table.title
    if left:
        note = f"{left:,} of {len(names):,} columns {'is' if left == 1 else 'are'} not shown"
        title = f"{title}; {note}" if title else note
    rows = tuple(tuple(_cut(text, wide[i]) for i, text in enumerate(row[:shown])) for row in cells)
    return Table(tuple(_cut(name, wide[i]) for i, name in enumerate(names[:shown])), rows, title)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def as_text(item: Item) -> str:
    """Write an item as plain text, columns aligned, nothing cut off.

    >>> print(as_text(Table(("name", "rows"), (("trades", 1200), ("x", 7)))))
    name     rows
    trades  1,200
    x           7
    """
    match item:
        case Line(text):
            return safe(text)
        case Table():
            return _table_text(item)
        case Fields(values, title):
            width = max((len(name) for name, _ in values), default=0)
            head = [safe(title)] if title else []
            return "\n".join(
                head + [f"{one_line(name):<{width}}  {cell(value)}".rstrip() for name, value in values]
            )
        case Tree(label, children):
            return "\n".join([safe(label), *_branches(children)])
        case Notice(kind, problem, remedy, _):
            return safe(f"{kind}: {problem}" + (f"\n  → {remedy}" if remedy else ""))


def _table_text(table: Table) -> str:
    grid = [[one_line(name) for name in table.columns], *table.cells()]
    widths = [max(len(row[i]) for row in grid) for i in range(len(table.columns))]
    right = [table.is_numeric(i) for i in range(len(table.columns))]
    lines = [
        "  ".join(
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in grid
    ]
    return "\n".join(([safe(table.title)] if table.title else []) + lines)


def _branches(children: tuple[Tree, ...], indent: str = "") -> Iterator[str]:
    for index, child in enumerate(children):
        last = index == len(children) - 1
        yield f"{indent}{'└─' if last else '├─'} {one_line(child.label)}"
        yield from _branches(child.children, indent + ("   " if last else "│  "))


def as_html(item: Item) -> str:
    """Write an item as self-contained HTML, everything escaped."""
    if not isinstance(item, Table):
        return f"<pre>{escape(as_text(item))}</pre>"
    head = "".join(f"<th>{escape(safe(name))}</th>" for name in item.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in item.cells()
    )
    title = f"<caption>{escape(safe(item.title))}</caption>" if item.title else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def as_json(document: object, *, indent: int | None = None) -> str:
    r"""Write plain values as JSON, exactly; what a terminal might obey is escaped as JSON does.

    >>> print(as_json({"a": "é\u202e"}))
    {"a": "é\u202e"}
    """
    import json

    # Such characters can only be inside strings, where the escape means the same.
    return json.dumps(document, ensure_ascii=False, indent=indent).translate(_ESCAPED)


_ESCAPED = {code: f"\\u{code:04x}" for code in HIDDEN if code >= 0x7F}


def plain(value: object) -> Any:
    r"""Turn a value into what JSON can hold.

    >>> plain({"at": datetime(2026, 11, 13), "parts": (1, None), "raw": b"\x01"})
    {'at': '2026-11-13T00:00:00', 'parts': [1, None], 'raw': '01'}
    """
    match value:
        case Enum():
            return plain(value.value)
        case None | bool():
            return value
        case int() | float() if _is_number(value):
            return value if isfinite(value) else None
        case str():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case set() | frozenset():
            return sorted((plain(item) for item in value), key=repr)
        case list() | tuple():
            return [plain(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case _ if hasattr(value, "item"):  # a numpy scalar
            return plain(value.item())
        case _:
            return str(value)
