"""Rows in the order of a hash of their ids, in as many pieces as a reader likes."""

from __future__ import annotations

from collections.abc import Sequence

from trueline.kernel.chunk import Piece
from trueline.kernel.exchange import ByIdHash, how_many, ordered_pieces
from trueline.kernel.external_sort import SortSpec
from trueline.kernel.value_hash import Salt
from trueline.view.execute.dispatch import pieces, portable, row_count
from trueline.view.plan.node import Want
from trueline.view.plan.shuffle import Shuffle


@pieces.register(Shuffle)
def _shuffle(node: Shuffle, want: Want) -> Sequence[Piece]:
    (below,) = node.wants(want)
    spec = SortSpec(ByIdHash(Salt.of("shuffle", node.seed)), len(want.columns), want.ids)
    return ordered_pieces(pieces(node.below, below), spec, how_many(want.parts, row_count(node)))


@portable.register(Shuffle)
def _portable(node: Shuffle) -> bool:
    del node  # each process would order all rows again
    return False
