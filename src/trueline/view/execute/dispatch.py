"""Running plans: where that is done, and in this process what a node gives, which is found by its class.

Each verb registers here what it does (`execute/join.py` for `plan/join.py`), each source in `view/sources/`.
What changes while nodes are read is kept beside them, by identity (`NodeState`): nodes never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, singledispatch
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from trueline import types as t
from trueline.kernel.chunk import Chunk, Piece, all_chunks, in_order
from trueline.kernel.read_ahead import THREADS
from trueline.kernel.vectors import dense
from trueline.view.engine import ChosenEngine, engine
from trueline.view.plan.concat import Concat
from trueline.view.plan.limit import LastRows, Limit
from trueline.view.plan.node import Node, Want, once_a_walk, steps
from trueline.view.plan.on_spark import OnSpark
from trueline.view.plan.select import Select
from trueline.view.plan.sources import Memory
from trueline.view.plan.zip import Zip

if TYPE_CHECKING:
    from trueline.view.schema import Column


# --- where ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class EngineChoice:
    """Where the rows of a view are to be computed: `process`, `spark`, or `auto` by what it rests on.

    `at_hand` returns a session that is there already, None if there is none; it starts no Spark.
    """

    engine: str
    at_hand: Callable[[], Any]

    def place(self, node: Node) -> ChosenEngine:
        """Say where a plan is computed; nothing is read to find out."""
        if self.engine == "spark":
            return ChosenEngine(True, "asked for")
        if self.engine == "process":
            return ChosenEngine(False, "asked for")
        session = self.at_hand()
        return (
            ChosenEngine(False, "no Spark is at hand") if session is None else engine().advise(node, session)
        )

    def plan(self, node: Node, session: Callable[[], Any] | None) -> Node:
        """Return a plan as it is to be read."""
        return OnSpark(node, session) if self.place(node).is_spark else node


def nothing_at_hand() -> None:
    """Return no session: a view of no workspace has none."""


# Threads begin later than so many rows are computed.
_FEW_ROWS: Final = 1 << 14
# What says which rows and columns are where, and computes nothing.
_PLACING: Final = (Memory, Select, Limit, LastRows, Concat, Zip)
IN_PROCESS: Final = EngineChoice("process", nothing_at_hand)
ON_SPARK: Final = EngineChoice("spark", nothing_at_hand)


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


@singledispatch
def stored_columns(node: Node, columns: tuple[int, ...], rows: range) -> list[pa.ChunkedArray] | None:
    """Return columns of some of the rows if they lie in memory as they are wanted, None if they do not.

    Nothing is read or copied to find out.
    """
    del node, columns, rows
    return None


# --- reading --------------------------------------------------------------------------------


def is_in_memory(node: Node) -> bool:
    """Say whether rows are in memory, as they are wanted or few, so that reading ahead gains nothing."""
    found = list(steps(node))
    sources = [each for each in found if not each.inputs]
    is_few = all(isinstance(each, Memory) and each.table.num_rows < _FEW_ROWS for each in sources)
    return is_few or all(isinstance(each, _PLACING) for each in found)


def chunks(node: Node, want: Want) -> Iterator[Chunk]:
    """Yield the rows of a node in order."""
    for _, chunk in numbered(node, want):
        yield chunk


def numbered(node: Node, want: Want) -> Iterator[tuple[int, Chunk]]:
    """Yield the rows of a node in order, with the numbers of the pieces they are from."""
    return in_order(pieces(node, want), _threads(node))


def _threads(node: Node) -> int:
    return 1 if is_in_memory(node) else THREADS


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
    """Read columns of all rows into a table; what lies in memory as it is wanted is not copied."""
    places, schema = tuple(column.index for column in columns), node.schema.arrow_of(columns)
    if columns and (rows := row_count(node)) is not None:
        stored = stored_columns(node, places, range(rows))
        if stored is not None:
            return pa.Table.from_arrays(stored, schema=schema)
    make = partial(batch_of, columns=columns, schema=schema)
    found = all_chunks(pieces(node, Want(places)), make, _threads(node))
    if not columns:
        # A table of no columns has its number of rows only if it is made of one that has some.
        return pa.table({"": pa.nulls(sum(batch.num_rows for batch in found))}).select([])
    return pa.Table.from_batches(found, schema=schema)


@singledispatch
def count(node: Node) -> int:
    """Count the rows, reading no more than that takes."""
    known = row_count(node)
    return known if known is not None else sum(chunk.rows for chunk in chunks(node, Want(())))
