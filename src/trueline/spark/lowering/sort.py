"""Sorting and shuffling: rows get columns that say their order; they are moved where it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from trueline.kernel.chunk import Chunk, RowByRowPiece
from trueline.kernel.value_hash import Salt, hash_ids
from trueline.spark.lowering.dispatch import LoweringTarget, is_read_by_tasks, layout_of, lowered
from trueline.spark.lowering.exchange import chosen_cuts, few_of
from trueline.spark.lowering.keys import sort_key
from trueline.spark.lowering.layout import IDS, Layout, OrderColumn
from trueline.spark.lowering.lowered import EvenCuts, Lowered, types_of
from trueline.spark.lowering.rows import column
from trueline.view.plan.node import Want
from trueline.view.plan.shuffle import Shuffle
from trueline.view.plan.sort import Sort


@lowered.register(Sort)
def _sort(node: Sort, want: Want, target: LoweringTarget) -> Lowered:
    if not target.ordered:
        return target.lower(node.below, want.of(want.columns))
    (below,) = node.wants(want)
    plain = Layout(types_of(node.schema, want.columns), want.ids, ())
    rows = target.lower(node.below, below)
    by_places = want.ids and rows.ids_are_places
    made = _by_key(node, below, rows, replace(plain, ids=plain.ids and not by_places))
    made = replace(made, cuts=KeyCuts(node, below, rows, target))
    return made.with_ids_of_places(sides=1) if by_places else made


def _by_key(node: Sort, below: Want, found: Lowered, plain: Layout) -> Lowered:
    """Return rows with what orders them: the key, then what did before."""
    keys = [
        sort_key(column(f"c{below.columns.index(place)}"), node.below.schema[place].type, descending=down)
        for place, down in zip(node.by, node.descending, strict=True)
    ]
    layout = replace(plain, order=(*(each for _, each in keys), *found.layout.order))
    values = [column(name) for name in (*plain.columns, *(IDS if plain.ids else ()))]
    order = [*(key for key, _ in keys), *(column(name) for name in found.layout.order_names)]
    return found.select([*values, *order], layout)


@dataclass(frozen=True)
class KeyCuts:
    """Cuts of an order by a key, from a sample for which nothing but the key is read where that can be."""

    node: Sort
    below: Want
    rows: Lowered
    target: LoweringTarget

    def __call__(self, parts: int) -> list[tuple[Any, ...]]:
        """Run the sample."""
        node, below, rows = self.node, self.below, self.rows.unfinished
        key = Want(tuple(dict.fromkeys(node.by)))
        if is_read_by_tasks(node.below):
            below, rows = key, self.target.lower(node.below, key)
        elif rows.work is None:
            places = [below.columns.index(place) for place in key.columns]
            layout = Layout(types_of(node.below.schema, key.columns), False, self.rows.layout.order)
            names = (*(f"c{place}" for place in places), *layout.order_names)
            below, rows = key, rows.select([column(name) for name in names], layout)
        few = few_of(rows, parts)
        return chosen_cuts(_by_key(node, below, few, Layout((), False, ())), parts)


@lowered.register(Shuffle)
def _shuffle(node: Shuffle, want: Want, target: LoweringTarget) -> Lowered:
    if not target.ordered:
        return target.lower(node.below, want.of(want.columns))
    (below,) = node.wants(want)
    found = target.lower(node.below, below)
    plain = layout_of(node, want, found.layout)
    # Hashes are compared as signed numbers: the sign is turned.
    layout = Layout(plain.types, plain.ids, (OrderColumn(pa.int64()), *found.layout.order))
    step = partial(ByHash, salt=shuffle_salt(node.seed), keep=len(want.columns))
    made = found.then(step, layout, keeps_order=False)
    return replace(made, cuts=EvenCuts(1 << 63, -(1 << 63)))


def shuffle_salt(seed: int) -> Salt:
    """Return the salt of a shuffle."""
    return Salt.of("shuffle", seed)


@dataclass(frozen=True, eq=False)
class ByHash(RowByRowPiece):
    """A piece whose rows are ordered by a hash of their ids, before what ordered them so far."""

    salt: Salt
    keep: int

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        for chunk in self.below.chunks():
            assert chunk.ids is not None
            words = pa.array((hash_ids(chunk.ids, self.salt) ^ (1 << 63)).view("int64"))
            arrays = (*chunk.arrays[: self.keep], words, *chunk.arrays[self.keep :])
            yield Chunk(chunk.rows, arrays, chunk.ids)
