"""Sorting and shuffling: rows get columns that say their order; they are moved where it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from trueline.kernel.chunk import Chunk, Piece
from trueline.kernel.value_hash import Salt, hash_ids
from trueline.spark.lowering.dispatch import LoweringTarget, layout_of, lowered
from trueline.spark.lowering.keys import sort_key
from trueline.spark.lowering.layout import IDS, Layout, OrderColumn
from trueline.spark.lowering.lowered import Lowered
from trueline.spark.lowering.rows import column
from trueline.view.plan.node import Want
from trueline.view.plan.shuffle import Shuffle
from trueline.view.plan.sort import Sort


@lowered.register(Sort)
def _sort(node: Sort, want: Want, target: LoweringTarget) -> Lowered:
    (below,) = node.wants(want)
    found = target.lower(node.below, below)
    keys = []
    for place, descending in zip(node.by, node.descending, strict=True):
        of = node.below.schema[place]
        value = column(f"c{below.columns.index(place)}")
        keys += sort_key(value, of.type, descending=descending, nullable=of.nullable)
    plain = layout_of(node, want, found.layout)
    layout = Layout(plain.types, plain.ids, (*(each for _, each in keys), *found.layout.order))
    values = [column(name) for name in (*plain.columns, *(IDS if plain.ids else ()))]
    order = [*(key for key, _ in keys), *(column(name) for name in found.layout.order_names)]
    return found.select([*values, *order], layout)


@lowered.register(Shuffle)
def _shuffle(node: Shuffle, want: Want, target: LoweringTarget) -> Lowered:
    (below,) = node.wants(want)
    found = target.lower(node.below, below)
    plain = layout_of(node, want, found.layout)
    # Hashes are compared as signed numbers: the sign is turned.
    layout = Layout(plain.types, plain.ids, (OrderColumn(pa.int64()), *found.layout.order))
    return found.then(
        partial(ByHash, salt=shuffle_salt(node.seed), keep=len(want.columns)), layout, keeps_order=False
    )


def shuffle_salt(seed: int) -> Salt:
    """Return the salt of a shuffle."""
    return Salt.of("shuffle", seed)


@dataclass(frozen=True, eq=False)
class ByHash:
    """A piece whose rows are ordered by a hash of their ids, before what ordered them so far."""

    below: Piece
    salt: Salt
    keep: int

    @property
    def rows(self) -> int | None:
        """Those of the piece."""
        return self.below.rows

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        for chunk in self.below.chunks():
            assert chunk.ids is not None
            words = pa.array((hash_ids(chunk.ids, self.salt) ^ (1 << 63)).view("int64"))
            arrays = (*chunk.arrays[: self.keep], words, *chunk.arrays[self.keep :])
            yield Chunk(chunk.rows, arrays, chunk.ids)
