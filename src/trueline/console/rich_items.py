"""How items look when rich draws them; imported only once something is drawn on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table as RichTable
from rich.text import Text
from rich.tree import Tree as RichTree

from trueline.console.items import Fields, Item, Line, Notice, Table, Tree, cell, fitted, one_line, safe


class Bar:
    """One bar of rich."""

    def __init__(self, bars: Progress, task: TaskID) -> None:
        self.bars, self.task = bars, task

    def advance(self, steps: float = 1) -> None:
        """Move the bar."""
        self.bars.advance(self.task, steps)

    def describe(self, text: str) -> None:
        """Change the text beside the bar."""
        self.bars.update(self.task, description=safe(text))

    def expect(self, total: float) -> None:
        """Turn a pulse into a bar."""
        self.bars.update(self.task, total=total)


@contextmanager
def bar(console: Console, label: str, total: float | None) -> Iterator[Bar]:
    """Draw a bar until the block ends; then it is gone."""
    look = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn())
    with Progress(*look, MofNCompleteColumn(), TimeElapsedColumn(), console=console, transient=True) as bars:
        yield Bar(bars, bars.add_task(safe(label), total=total))


_STYLES = {"plain": "", "strong": "bold", "good": "green", "bad": "bold red", "faint": "dim"}


def drawing(item: Item, width: int = 80) -> RenderableType:
    """Build what rich draws for an item; tables of data are cut to a width."""
    match item:
        case Line(text, style):
            return Text(safe(text), style=_STYLES[style])
        case Table():
            return _table(item, width)
        case Fields():
            return _fields(item)
        case Tree(label, children):
            return _grown(RichTree(Text(safe(label))), children)
        case Notice(kind, problem, remedy, _):
            notice = Text(f"{kind}: ", style="bold red" if kind == "error" else "bold yellow")
            notice.append(safe(problem), style="not bold default")
            if remedy:
                notice.append(f"\n  → {safe(remedy)}", style="not bold cyan")
            return notice


def _table(table: Table, width: int) -> RichTable:
    numeric = [table.is_numeric(index) for index in range(len(table.columns))]
    is_data, table = table.data, fitted(table, width) if table.data else table
    drawn = RichTable(
        box=box.SIMPLE_HEAD, title=safe(table.title) or None, title_justify="left", pad_edge=False
    )
    for index, name in enumerate(table.columns):
        drawn.add_column(Text(one_line(name)), justify="right" if numeric[index] else "left", no_wrap=is_data)
    for row in table.cells():
        drawn.add_row(*map(Text, row))
    return drawn


def _fields(item: Fields) -> Text:
    width = max((len(name) for name, _ in item.values), default=0)
    lines = [Text(safe(item.title), style="bold")] if item.title else []
    for name, value in item.values:
        lines.append(Text(f"{one_line(name):<{width}}  ", style="dim").append(cell(value), style="not dim"))
    return Text("\n").join(lines)


def _grown(branch: RichTree, children: tuple[Tree, ...]) -> RichTree:
    for child in children:
        _grown(branch.add(Text(one_line(child.label))), child.children)
    return branch
