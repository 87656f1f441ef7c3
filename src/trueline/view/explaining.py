"""What reading a view does, in words: its steps, the columns that are active, what makes it serial."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trueline.view.chunk import Want
from trueline.view.node import Node
from trueline.view.origin import ColumnOrigin

if TYPE_CHECKING:
    from trueline.view.schema import Column

_SHOWN = 12


def explain(node: Node, columns: Sequence[Column]) -> str:
    """Say, step by step from the last to the sources, what reading these columns does.

    A column marked `=` is handed on as it is; `+` is made at that step.
    """
    return "\n".join(_lines(node, Want(tuple(column.index for column in columns))))


def _lines(node: Node, want: Want) -> Iterator[str]:
    yield node.title
    shown = [_column(node, index) for index in want.columns]
    more = f" … {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    ids = " and ids" if want.ids else ""
    yield f"    reads {', '.join(shown[:_SHOWN]) or 'no columns'}{more}{ids}"
    if node.serial is not None:
        yield f"    in one piece: {node.serial}"
    for below, asked in zip(node.inputs, node.wants(want), strict=True):
        for line in _lines(below, asked):
            yield f"  {line}"


def _column(node: Node, index: int) -> str:
    name = node.schema[index].name
    if not node.inputs:
        return name
    return f"={name}" if node.passed(index) is not None else f"+{name}"


def origin(node: Node, column: Column) -> ColumnOrigin | None:
    """Follow a column to the source it is from; None if it is computed on the way."""
    source, index = node.source_of(column.index)
    if source.inputs:
        return None
    found = source.schema[index]
    return ColumnOrigin(source.title, found.name, found.index, tuple(source.origins.values()))


def steps(node: Node) -> Iterator[Node]:
    """Yield the nodes of a view, sources first, the view last."""
    seen: set[int] = set()

    def walk(each: Node) -> Iterator[Node]:
        for below in each.inputs:
            yield from walk(below)
        if id(each) not in seen:
            seen.add(id(each))
            yield each

    return walk(node)
