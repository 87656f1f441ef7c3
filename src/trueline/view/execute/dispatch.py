"""Running plans in this process: what a node gives is found by its class.

Each verb registers here what it does (`execute/join.py` for `plan/join.py`), each source in `view/sources/`.
What changes while nodes are read is kept beside them, by identity (`NodeState`): nodes never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING

import pyarrow as pa

from trueline import types as t
from trueline.kernel.chunk import Chunk, Piece, in_order
from trueline.kernel.read_ahead import THREADS
from trueline.kernel.vectors import dense
from trueline.view.plan.node import Node, Want, once_a_walk, steps
from trueline.view.plan.sources import Memory

if TYPE_CHECKING:
    from trueline.view.schema import Column


# --- what a node answers --------------------------------------------------------------------


@singledispatch
def pieces(node: Node, want: Want) -> Sequence[Piece]:
    """Return the rows of a node in order as pieces; none if there are no rows."""
    raise NotImplementedError(f"{type(node).__name__} has no execution in this process")


@singledispatch
@once_a_walk
def row_count(node: Node) -> int | None:
    """Return how many rows there are as far as is known now; a number never changes (view:C29)."""
    return node.count_rows([row_count(each) for each in node.inputs])


@singledispatch
def serial(node: Node) -> str | None:
    """Say why a node comes in one piece as things are now, None if it does not (view:C71)."""
    return node.serial


@singledispatch
@once_a_walk
def portable(node: Node) -> bool:
    """Say whether the pieces of a node can be read in other processes; nothing is opened to find out."""
    return all(portable(each) for each in node.inputs)


# --- reading --------------------------------------------------------------------------------


def is_in_memory(node: Node) -> bool:
    """Say whether all rows are in memory already, so that reading ahead gains nothing."""
    return all(isinstance(each, Memory) for each in steps(node) if not each.inputs)


def chunks(node: Node, want: Want) -> Iterator[Chunk]:
    """Yield the rows of a node in order."""
    for _, chunk in numbered(node, want):
        yield chunk


def numbered(node: Node, want: Want) -> Iterator[tuple[int, Chunk]]:
    """Yield the rows of a node in order, with the numbers of the pieces they are from."""
    return in_order(pieces(node, want), 1 if is_in_memory(node) else THREADS)


def batches(node: Node, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Yield columns of all rows in order as Arrow has them."""
    schema = node.schema.arrow_of(columns)
    for chunk in chunks(node, Want(tuple(column.index for column in columns))):
        yield batch_of(chunk, columns, schema)


def batch_of(chunk: Chunk, columns: Sequence[Column], schema: pa.Schema) -> pa.RecordBatch:
    """Return a chunk as a batch; vectors are dense there."""
    if not columns:
        return pa.record_batch({"": pa.nulls(chunk.rows)}).select([])
    arrays = [
        dense(array, column.type) if isinstance(column.type, t.Vector) else array
        for array, column in zip(chunk.arrays, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def table(node: Node, columns: Sequence[Column]) -> pa.Table:
    """Read columns of all rows into a table."""
    found = list(batches(node, columns))
    if not columns:
        # A table of no columns has its number of rows only if it is made of one that has some.
        return pa.table({"": pa.nulls(sum(batch.num_rows for batch in found))}).select([])
    return pa.Table.from_batches(found, schema=node.schema.arrow_of(columns))


@singledispatch
def count(node: Node) -> int:
    """Count the rows, reading no more than that takes."""
    known = row_count(node)
    return known if known is not None else sum(chunk.rows for chunk in chunks(node, Want(())))
