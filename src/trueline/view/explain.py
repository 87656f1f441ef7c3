"""What reading a view does, in words: its steps, the columns that are active, what makes it serial."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from trueline.view.engine import engine
from trueline.view.execute import row_count, serial
from trueline.view.execute.dispatch import IN_PROCESS, EngineChoice
from trueline.view.origin import ColumnOrigin
from trueline.view.plan.cache import Cache
from trueline.view.plan.node import Node, Want, once_a_walk, steps
from trueline.view.plan.sources import SourceScan

if TYPE_CHECKING:
    from trueline.view.schema import Column

_SHOWN = 12


def explain(node: Node, columns: Sequence[Column], choice: EngineChoice = IN_PROCESS) -> str:
    """Say, step by step from the last to the sources, what reading these columns does.

    A column marked `=` is handed on as it is; `+` is made at that step. What was
    said of a step that is reached again, for the same columns, is not said again.
    Where there is a Spark to choose, the first line says where the rows are computed, and why.
    """
    want = Want(tuple(column.index for column in columns))
    place = choice.place(node)
    if place.is_spark:
        lines = [f"computed on Spark: {place.why}", *_lines(node, want, set(), engine().describe)]
    elif choice.at_hand() is not None:
        lines = [f"computed in this process: {place.why}", *_lines(node, want, set())]
    else:
        lines = list(_lines(node, want, set()))
    return "\n".join(lines)


def _lines(
    node: Node, want: Want, said: set[tuple[int, Want]], on_spark: Callable[[Node], str] | None = None
) -> Iterator[str]:
    yield title(node)
    if (id(node), want) in said and node.inputs:
        yield "    as above"
        return
    said.add((id(node), want))
    shown = [_column(node, index) for index in want.columns]
    more = f" … {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    ids = " and ids" if want.ids else ""
    yield f"    reads {', '.join(shown[:_SHOWN]) or 'no columns'}{more}{ids}"
    reason = serial(node) if on_spark is None else None
    if on_spark is not None:
        yield f"    on Spark: {on_spark(node)}"
    if reason is not None:
        yield f"    in one piece: {reason}"
    for below, asked in zip(node.inputs, node.wants(want), strict=True):
        for line in _lines(below, asked, said, on_spark):
            yield f"  {line}"


def title(node: Node) -> str:
    """Return what a node does, in a line; of rows that are kept, how many are known to be."""
    known = row_count(node) if isinstance(node, Cache) else None
    return node.title if known is None else f"{node.title}, {known:,} rows"


@once_a_walk
def likely_rows(node: Node) -> int | None:
    """Return how many rows to tell people there are: a number that is certain, or what a source notes."""
    known = row_count(node)
    if known is not None:
        return known
    if isinstance(node, SourceScan):
        noted: int | None = getattr(node.source, "noted_count", None)
        return noted
    return node.count_rows([likely_rows(each) for each in node.inputs])


def read_at(node: Node) -> str:
    """Return the cut of the snapshot that a query reads, as it is printed; "" if there is none or several."""
    scans = [each for each in steps(node) if isinstance(each, SourceScan)]
    found = {at for each in scans if (at := getattr(each.source, "read_at", ""))}
    return found.pop() if len(found) == 1 else ""


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
