"""Columns chosen and named, in the pieces of the input."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from trueline.kernel.chunk import Piece
from trueline.view.execute.dispatch import pieces, stored_columns
from trueline.view.execute.with_columns import with_calls
from trueline.view.plan.node import Want
from trueline.view.plan.select import Select


@pieces.register(Select)
def _select(node: Select, want: Want) -> Sequence[Piece]:
    (below,) = node.wants(want)
    order = tuple(below.columns.index(node.places[index]) for index in want.columns)
    return with_calls(pieces(node.below, below), (), order, given=below, want=want)


@stored_columns.register(Select)
def _stored(node: Select, columns: tuple[int, ...], rows: range) -> list[pa.ChunkedArray] | None:
    return stored_columns(node.below, tuple(node.places[index] for index in columns), rows)
