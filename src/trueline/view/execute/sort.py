"""Rows in the order of columns, in as many pieces as a reader likes: each is a range of the order."""

from __future__ import annotations

from collections.abc import Sequence

from trueline.kernel.chunk import Piece
from trueline.kernel.exchange import ByColumns, how_many, ordered_pieces
from trueline.kernel.external_sort import SortSpec
from trueline.view.execute.dispatch import pieces, portable, row_count
from trueline.view.plan.node import Want
from trueline.view.plan.sort import Sort


@pieces.register(Sort)
def _sort(node: Sort, want: Want) -> Sequence[Piece]:
    (below,) = node.wants(want)
    order = ByColumns(tuple(below.columns.index(place) for place in node.by), node.descending)
    spec = SortSpec(order, len(want.columns), want.ids)
    return ordered_pieces(pieces(node.below, below), spec, how_many(want.parts, row_count(node)))


@portable.register(Sort)
def _portable(node: Sort) -> bool:
    del node  # each process would order all rows again
    return False
