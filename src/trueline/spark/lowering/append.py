"""Rows of a view on their way into a dataset: written in order by the tasks that have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa

from trueline.spark.frames import write_pieces
from trueline.spark.lowering.deliver import in_order
from trueline.spark.lowering.dispatch import LoweringTarget
from trueline.spark.lowering.layout import Layout
from trueline.spark.lowering.rows import column
from trueline.spark.session import start
from trueline.view.execute.dispatch import batch_of
from trueline.view.plan.node import Node, Want
from trueline.view.schema import Column

Written = TypeVar("Written")
_LABEL: Final = "running the view"


def write_in_order(
    node: Node,
    session: Callable[[], Any] | None,
    write: Callable[[int, Iterator[pa.RecordBatch]], Written],
) -> list[Written]:
    """Run a node and hand its visible columns to a function, in the tasks that have the rows.

    What it returns for each task comes in the order of the rows.
    """
    target = LoweringTarget(session() if session is not None else start().session)
    columns = node.schema.visible
    found = target.lower(node, Want(tuple(each.index for each in columns)))
    layout = Layout(found.layout.types, found.layout.ids, ())
    frame = in_order(found, target).frame.select([column(name) for name in layout.names])
    work = WriteColumns(layout, tuple(columns), node.schema.arrow_of(columns), write)
    return write_pieces(frame, work, label=_LABEL)


@dataclass(frozen=True)
class WriteColumns:
    """What one task does: gives rows the types that views have, and hands them on."""

    layout: Layout
    columns: tuple[Column, ...]
    schema: pa.Schema
    write: Callable[[int, Iterator[pa.RecordBatch]], Any]

    def __call__(self, partition: int, batches: Iterator[pa.RecordBatch]) -> Any:
        """Hand on the rows of a partition, as they come."""
        chunks = (chunk.select(range(len(self.columns))) for chunk in self.layout.chunks(batches))
        return self.write(partition, (batch_of(chunk, self.columns, self.schema) for chunk in chunks))
