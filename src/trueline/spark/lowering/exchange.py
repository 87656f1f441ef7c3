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

from trueline.kernel.chunk import Chunk, Piece, RowByRowPiece, bytes_of, together
from trueline.spark.engines import engine_of
from trueline.spark.jobs import run
from trueline.spark.lowering.layout import Layout, OrderColumn
from trueline.spark.lowering.lowered import EvenCuts, Lowered, order_of
from trueline.spark.lowering.rows import column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from trueline.spark.lowering.dispatch import LoweringTarget

# Rows of a task whose order is looked at to choose cuts.
_SAMPLES: Final = 500
# Bytes of the orders that are looked at, which pass the driver; a long text counts by how it begins.
_BYTES_OF_SAMPLES: Final = 16 << 20
_BYTES_OF_A_KEY: Final = 1 << 10
# What one task brings in order, by the widths of the columns: enough that there are few tasks.
_BYTES_OF_A_RANGE: Final = 64 << 20
# How long texts and lists are is not known: a document is not wider, and of few rows there are few ranges.
_BYTES_OF_A_TEXT: Final = 64 << 10
_RANGES_OF_A_CORE: Final = 4
_PART: Final = "part"
# Which rows are looked at decides how even ranges are, and nothing else.
_SEED: Final = 1


@dataclass(frozen=True)
class Ranges:
    """Rows in ranges of their order: a frame with one more column, the number of the range of each row."""

    frame: DataFrame
    layout: Layout
    count: int

    def in_order(self) -> DataFrame:
        """Return the frame with each range in one task, its rows in order."""
        moved = self.frame.repartitionById(self.count, column(_PART).cast("int"))
        order = order_of(self.layout)
        return moved.sortWithinPartitions(*order) if order else moved


def ranges(found: Lowered, target: LoweringTarget) -> Ranges:
    """Cut rows into ranges of about the same size."""
    parts, layout = parts_of(found, target), found.layout
    if parts > 1 and layout.order and isinstance(found.cuts, EvenCuts):
        number, count = _even(found.cuts, parts)
        return Ranges(found.frame.withColumn(_PART, number), layout, count)
    cuts: Sequence[tuple[Any, ...]] = ()
    if parts > 1 and layout.order:
        cuts = told_apart(found.cuts(parts) if found.cuts is not None else sampled(found, parts))
    return Ranges(found.frame.withColumn(_PART, _numbered(cuts, layout, 0, len(cuts))), layout, len(cuts) + 1)


def parts_of(found: Lowered, target: LoweringTarget) -> int:
    """Say in how many ranges rows are put in order: no more than it takes, as far as that is known.

    Where the number of rows is a guess there are some for each core, so that all have work if it was too low.
    """
    rows, least = found.most, 1
    if rows is None:
        if found.about is None or target.cores is None:
            return target.parts
        rows, least = found.about, _RANGES_OF_A_CORE * target.cores
    layout = found.layout
    kinds = (*(each.kind for each in layout.wires), *(each.kind for each in layout.order))
    text = _BYTES_OF_A_TEXT if found.text is None else found.text
    width = sum(_width(kind, text) for kind in kinds) + 16 * layout.ids
    return max(1, min(target.parts, max(least, -(-rows * width // _BYTES_OF_A_RANGE))))


def _width(kind: pa.DataType, otherwise: int) -> int:
    """Return how many bytes a value takes, where that does not depend on the value."""
    try:
        return max(8, int(kind.bit_width) // 8)
    except ValueError:
        return otherwise


def by_shuffle(frame: DataFrame) -> DataFrame:
    """Return a side of a join whose rows meet the others' in tasks, whatever size Spark takes it for.

    Rows that Python tasks read count for Spark as the few bytes of the numbers of their pieces: it would
    collect them all in the driver, to send them to every executor (exchange:E2).
    """
    return frame.hint("merge")


def in_pairs(frame: DataFrame) -> DataFrame:
    """Return a side of a join without keys, which tasks read once for each part of the other side.

    Without a hint Spark would collect one side in the driver, whatever its size (exchange:E2).
    """
    return frame.hint("shuffle_replicate_nl")


# --- cuts -----------------------------------------------------------------------------------


def _even(cuts: EvenCuts, parts: int) -> tuple[Column, int]:
    """Return the number of the range of each row, by arithmetic, and how many ranges there are."""
    from pyspark.sql import functions as f

    step, count = cuts.step(parts), len(cuts(parts)) + 1
    # A difference of two numbers of 64 bits may need one more; half of each does not.
    number = f.expr(f"(o0 div 2 - {cuts.low // 2}L) div {max(1, step // 2)}L")
    return f.least(f.greatest(number, f.lit(0)), f.lit(count - 1)), count


def sampled(found: Lowered, parts: int) -> list[tuple[Any, ...]]:
    """Return rows of the order that cut it into parts, from a sample that tasks take; none of few rows."""
    layout = Layout((), False, found.layout.order)
    if found.work is None:
        found = found.select([column(name) for name in layout.order_names], layout)
    return chosen_cuts(few_of(found, parts), parts)


def few_of(found: Lowered, parts: int) -> Lowered:
    """Return a few rows without ids, from all over them: enough to cut them into parts."""
    about = found.about if found.most is None else found.most
    if found.work is None and about is not None:
        share = _SAMPLES * parts / max(1, about)
        found = replace(found, base=found.base.sample(share, _SEED)) if share < 1 else found
        if found.most is not None:
            return found
    # The rows are in Python already, or nobody knows how many make a few.
    return found.then(SpreadRows, Layout(found.layout.types, False, found.layout.order))


def chosen_cuts(few: Lowered, parts: int) -> list[tuple[Any, ...]]:
    """Return the orders of a few rows that cut them into parts, however many tasks have found some."""
    from pyspark.sql import functions as f

    session, layout = few.base.sparkSession, few.layout
    begun = [
        _begun(column(name), each.kind).alias(name)
        for name, each in zip(layout.order_names, layout.order, strict=True)
    ]
    # Any of them will do, so that the first of a random order are as good as others.
    some = (
        few.frame.select(*begun).withColumn("at", f.rand(_SEED)).sort("at").limit(most_samples(layout, parts))
    )
    picked = some.drop("at").sort(*few.in_order)
    samples = run(engine_of(session), picked.toArrow, label="choosing ranges")
    rows = samples.num_rows
    at = sorted({rows * part // parts for part in range(1, parts)} - {0})
    return [tuple(samples.slice(place, 1).to_pylist()[0].values()) for place in at]


def most_samples(layout: Layout, parts: int) -> int:
    """Say how many orders pass the driver: enough for the parts, in no more bytes than it has room for."""
    width = sum(_width(each.kind, _BYTES_OF_A_KEY) for each in layout.order)
    return max(parts, min(_SAMPLES * parts, _BYTES_OF_SAMPLES // max(1, width)))


def _begun(value: Column, kind: pa.DataType) -> Column:
    """Return how a long text begins: an order by that is never against the order of all of it."""
    from pyspark.sql import functions as f

    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return f.substring(value, 1, _BYTES_OF_A_KEY)
    return value


def told_apart(cuts: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return different cuts, of as few columns as tell them apart: fewer are compared for each row."""
    # One NaN is another to a set.
    known = [tuple("NaN" if value != value else value for value in cut) for cut in cuts]  # noqa: PLR0124
    width = next(
        (
            count
            for count in range(1, max(map(len, cuts), default=0))
            if len({each[:count] for each in known}) == len(cuts)
        ),
        None,
    )
    different = {each[:width]: cut[:width] for each, cut in zip(known, cuts, strict=True)}
    return list(different.values())


@dataclass(frozen=True, eq=False)
class SpreadRows:
    """A few rows of a piece, spread evenly; each time there are too many, every second."""

    below: Piece

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield them, without ids."""
        held: Chunk | None = None
        step, seen = 1, 0
        for chunk in self.below.chunks():
            places = np.arange(-seen % step, chunk.rows, step)
            found = Chunk(chunk.rows, chunk.arrays).take(places)
            seen += chunk.rows
            held = found if held is None else together([held, found])
            while held.rows > 2 * _SAMPLES or (held.rows > 1 and bytes_of(held) > _BYTES_OF_SAMPLES):
                held = held.take(np.arange(0, held.rows, 2))
                step *= 2
        if held is not None:
            yield held


def _numbered(cuts: Sequence[tuple[Any, ...]], layout: Layout, low: int, high: int) -> Column:
    """Return the number of cuts that are not after a row, found by halves among those from low to high."""
    from pyspark.sql import functions as f

    if low >= high:
        return f.lit(low)
    middle = (low + high) // 2
    return f.when(_before(cuts[middle], layout), _numbered(cuts, layout, low, middle)).otherwise(
        _numbered(cuts, layout, middle + 1, high)
    )


def _before(cut: tuple[Any, ...], layout: Layout) -> Column:
    """Say whether a row is before a cut."""
    from pyspark.sql import functions as f

    found = f.lit(False)
    for name, each, limit in reversed(list(zip(layout.order_names, layout.order, cut, strict=False))):
        less, same = compared(column(name), each, limit)
        found = less | (same & found)
    return found


def compared(value: Column, order: OrderColumn, limit: Any) -> tuple[Column, Column]:
    """Say whether a value of an order is before a limit, and whether it is equal; null is last in each."""
    from pyspark.sql import functions as f

    if limit is None:
        return value.isNotNull(), value.isNull()
    known = f.lit(limit).cast(Layout((), False, (order,)).spark_schema[0].dataType)
    nearer = value > known if order.descending else value < known
    return f.coalesce(nearer, f.lit(False)), value.eqNullSafe(known)


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
    count = int(starts[-1])
    order = (OrderColumn(pa.int64(), below=max(1, count)),)
    cuts = EvenCuts(max(1, count))
    return Ranked(Lowered(frame, given, (step,), replace(layout, order=order), cuts=cuts, most=count), count)


@dataclass(frozen=True, eq=False)
class NumberedRows(RowByRowPiece):
    """Rows of ranges of an order, whose number of the range is their last column."""

    starts: tuple[int, ...]
    keep: int

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
