"""Mistakes that lowering could make, planted one at a time: the comparison with this process finds each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest

import trueline as tl
from tests.spark.lowering.nasty import difference, everything, in_process, rows_of, table
from trueline import types as t
from trueline.kernel.chunk import Chunk, Piece, together
from trueline.spark.lowering import deliver, group_by, join
from trueline.spark.lowering.deliver import delivered
from trueline.spark.lowering.exchange import ranges
from trueline.view.execute.group_by import Grouping

A = tl.View.from_arrow(table(240, 1))
B = tl.View.from_arrow(table(60, 2)).select("i", "x", "n").rename(m="n")


def position_dropped(monkeypatch):
    """Rows are in the order of the key; those of one key have lost theirs."""

    def by_key_only(found, target):
        kept = replace(found.layout, order=found.layout.order[:2])
        return ranges(replace(found, layout=kept), target).in_order()

    monkeypatch.setattr(deliver, "in_order", by_key_only)


def nan_unequal(monkeypatch):
    """A NaN that is a key has no partner."""
    from pyspark.sql import functions as f

    right = join.equal_key
    monkeypatch.setattr(
        join,
        "equal_key",
        lambda value, kind: (
            f.when(f.isnan(value), None).otherwise(value) if kind == t.float64 else right(value, kind)
        ),
    )


def order_assumed(monkeypatch):
    """Whatever is delivered is taken to be in order already."""
    monkeypatch.setattr(deliver, "in_order", lambda found, target: found.frame)


def partial_sums(monkeypatch):
    """Floats are added as they come, by halves."""
    monkeypatch.setattr(group_by, "GroupTask", HalvesAdded)


def hash_for_equality(monkeypatch):
    """Keys with equal hashes are taken to be equal."""
    from pyspark.sql import functions as f

    monkeypatch.setattr(join, "equal_key", lambda value, kind: f.pmod(f.hash(value), f.lit(2)))


@dataclass(frozen=True, eq=False)
class HalvesAdded:
    """Groups by the column `i`, with a sum of `x` that is rounded on the way; it runs in tasks."""

    below: Piece
    work: Grouping

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the groups, their second column added up again."""
        held = list(self.below.chunks())
        if not held:
            return
        rows = together(held)
        keys, values = (rows.arrays[place].to_pylist() for place in (0, 1))
        for chunk in group_by.GroupTask(Held(held), self.work).chunks():
            sums = []
            for key in chunk.arrays[0].to_pylist():
                found = [v for k, v in zip(keys, values, strict=True) if k == key and v is not None]
                half = len(found) // 2
                sums.append(float(np.add.reduce(found[:half]) + np.add.reduce(found[half:])))
            yield Chunk(chunk.rows, (chunk.arrays[0], pa.array(sums), *chunk.arrays[2:]), chunk.ids)


@dataclass(frozen=True, eq=False)
class Held:
    """Chunks at hand."""

    held: list[Chunk]
    rows: int | None = None

    def chunks(self) -> Iterator[Chunk]:
        """Yield them."""
        yield from self.held


FINITE = "x > -10 and x < 10 and x <> 0"
SORTED = A.shuffle(7).sort("i")
SUMS = A.select("i", "x").filter(FINITE).group_by("i").agg(s="sum(x)")
JOINED = A.select("i", "x", "n").join(B.select("x", "m"), on="x", how="left")
BY_NUMBER = A.select("i", "n").join(B.select("i", "m"), on="i")


@pytest.mark.parametrize(
    ("plant", "view"),
    [
        (position_dropped, SORTED),
        (nan_unequal, JOINED),
        (order_assumed, A.shuffle(7)),
        (partial_sums, SUMS),
        (hash_for_equality, BY_NUMBER),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_planted_mistake_is_found(plant, view, spark):
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "3")

    def found():
        return difference(in_process(view), rows_of(delivered(view.node, everything(view), session)), view)

    assert found() == ""
    with pytest.MonkeyPatch.context() as monkeypatch:
        plant(monkeypatch)
        assert found() != ""
