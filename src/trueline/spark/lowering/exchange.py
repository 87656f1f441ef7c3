"""Rows in order across tasks: cut points from a sample, ranges of the order, and numbers from counts.

Spark's range partitioning would choose other cuts each time it runs; ours are chosen once, so that what is
counted in one job is what another one moves. No row passes the driver: samples of the order do, and counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from trueline.kernel.chunk import Chunk, Piece
from trueline.spark.engines import engine_of
from trueline.spark.jobs import run
from trueline.spark.lowering.layout import Layout, OrderColumn
from trueline.spark.lowering.lowered import Lowered, order_of
from trueline.spark.lowering.rows import column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from trueline.spark.lowering.dispatch import LoweringTarget

# Rows of a task whose order is looked at to choose cuts.
_SAMPLES: Final = 500
_PART: Final = "part"


@dataclass(frozen=True)
class Ranges:
    """Rows in ranges of their order: a frame with one more column, the number of the range of each row."""

    frame: DataFrame
    layout: Layout
    count: int

    def in_order(self) -> DataFrame:
        """Return the frame with each range in one task, its rows in order."""
        moved = self.frame.repartitionById(self.count, column(_PART).cast("int"))
        return moved.sortWithinPartitions(_PART, *order_of(self.layout))


def ranges(found: Lowered, target: LoweringTarget) -> Ranges:
    """Cut rows into ranges of about the same size."""
    cuts = _cut_points(found, target.parts)
    frame = found.frame.withColumn(_PART, _numbered(cuts, found.layout, 0, len(cuts)))
    return Ranges(frame, found.layout, len(cuts) + 1)


def by_shuffle(frame: DataFrame) -> DataFrame:
    """Return a side of a join whose rows meet the others' in tasks, whatever size Spark takes it for.

    Rows that Python tasks read count for Spark as the few bytes of the numbers of their pieces: it would
    collect them all in the driver, to send them to every executor (exchange:E2).
    """
    return frame.hint("merge")


def _cut_points(found: Lowered, parts: int) -> list[dict[str, Any]]:
    """Return rows of the order that cut it into parts; None of them where there are few rows."""
    layout = found.layout
    if parts < 2 or not layout.order:
        return []
    chosen = found.frame.select(*layout.order_names)
    schema = chosen.schema
    picked = chosen.mapInArrow(_picked, schema).sort(*order_of(layout))
    session = found.base.sparkSession
    samples = run(engine_of(session), picked.toArrow, label="choosing ranges")
    rows = samples.num_rows
    at = sorted({rows * part // parts for part in range(1, parts)} - {0})
    cuts: list[dict[str, Any]] = []
    for place in at:
        row = samples.slice(place, 1).to_pylist()[0]
        if not cuts or cuts[-1] != row:
            cuts.append(row)
    return cuts


def _picked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What one task does: keeps a few rows, spread evenly; each time there are too many, every second."""
    held: pa.Table | None = None
    step, seen = 1, 0
    for batch in batches:
        places = np.arange(-seen % step, batch.num_rows, step)
        seen += batch.num_rows
        new = pa.Table.from_batches([batch]).take(pa.array(places))
        held = new if held is None else pa.concat_tables([held, new])
        while held.num_rows > 2 * _SAMPLES:
            held = held.take(pa.array(np.arange(0, held.num_rows, 2)))
            step *= 2
    if held is not None:
        yield from held.combine_chunks().to_batches()


def _numbered(cuts: Sequence[dict[str, Any]], layout: Layout, low: int, high: int) -> Column:
    """Return the number of cuts that are not after a row, found by halves among those from low to high."""
    from pyspark.sql import functions as f

    if low >= high:
        return f.lit(low)
    middle = (low + high) // 2
    return f.when(_before(cuts[middle], layout), _numbered(cuts, layout, low, middle)).otherwise(
        _numbered(cuts, layout, middle + 1, high)
    )


def _before(cut: dict[str, Any], layout: Layout) -> Column:
    """Say whether a row is before a cut, null being last whatever the direction."""
    from pyspark.sql import functions as f

    found = f.lit(False)
    for name, each in reversed(list(zip(layout.order_names, layout.order, strict=True))):
        value, limit = column(name), cut[name]
        if limit is None:
            less, same = value.isNotNull(), value.isNull()
        else:
            known = f.lit(limit).cast(layout.spark_schema[name].dataType)
            nearer = value > known if each.descending else value < known
            less, same = f.coalesce(nearer, f.lit(False)), value.eqNullSafe(known)
        found = less | (same & found)
    return found


# --- numbers of rows ------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranked:
    """Rows that know their numbers, which are their order; and how many there are."""

    rows: Lowered
    count: int


def ranked(found: Lowered, target: LoweringTarget) -> Ranked:
    """Number the rows in their order: ranges are counted first, by one job."""
    from pyspark.sql import functions as f

    cut = ranges(found, target)
    counting = cut.frame.groupBy(_PART).agg(f.count(f.lit(1)).alias("rows"))
    table = run(engine_of(target.session), counting.toArrow, label="counting rows")
    counts = np.zeros(cut.count, np.int64)
    counts[np.asarray(table[_PART])] = np.asarray(table["rows"])
    starts = np.concatenate([[0], np.cumsum(counts)])
    layout = found.layout
    given = replace(layout, order=(*layout.order, OrderColumn(pa.int64())))
    frame = cut.in_order().select(
        *(column(name) for name in layout.names),
        column(_PART).cast("bigint").alias(given.order_names[-1]),
    )
    step = partial(NumberedRows, starts=tuple(starts.tolist()), keep=len(layout.types))
    rows = Lowered(frame, given, (step,), replace(layout, order=(OrderColumn(pa.int64()),)))
    return Ranked(rows, int(starts[-1]))


@dataclass(frozen=True, eq=False)
class NumberedRows:
    """Rows of ranges of an order, whose number of the range is their last column."""

    below: Piece
    starts: tuple[int, ...]
    keep: int

    @property
    def rows(self) -> int | None:
        """Those of the piece."""
        return self.below.rows

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows, ordered by their numbers alone."""
        part, inside = -1, 0
        for chunk in self.below.chunks():
            parts = np.asarray(chunk.arrays[-1])
            numbers = np.empty(chunk.rows, np.int64)
            edges = np.flatnonzero(np.diff(parts, prepend=parts[0] - 1))
            for first, last in zip(edges, [*edges[1:], chunk.rows], strict=True):
                if parts[first] != part:
                    part, inside = int(parts[first]), 0
                start = self.starts[part] + inside
                numbers[first:last] = np.arange(start, start + last - first)
                inside += int(last - first)
            yield Chunk(chunk.rows, (*chunk.arrays[: self.keep], pa.array(numbers)), chunk.ids)
