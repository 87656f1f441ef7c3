"""Joins: Spark finds partners by keys it compares as we do; ids are combined by the kernel.

Rows are ordered by the left's order, then the right's; those of the right alone come last. An as-of join
needs its rows in order: those of one key meet in a task, the right before the left, and the kernel joins
them there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from trueline import types as t
from trueline.kernel.chunk import Chunk, Piece
from trueline.kernel.exchange import Once
from trueline.spark.lowering.dispatch import LoweringTarget, lowered
from trueline.spark.lowering.exchange import by_shuffle, in_pairs
from trueline.spark.lowering.keys import equal_key
from trueline.spark.lowering.layout import IDS, Layout, OrderColumn
from trueline.spark.lowering.lowered import CombinedIds, CutPoints, Lowered, order_of, types_of
from trueline.spark.lowering.rows import CutsInTurn, column
from trueline.spark.lowering.sizes import is_fixed, known_bytes, longest
from trueline.view.execute.join import JoinPiece, JoinSide, Matching, RightOnlyPiece, ToJoin
from trueline.view.plan.join import Join
from trueline.view.plan.node import Node, Want

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_HOW: Final = {"semi": "left_semi", "anti": "left_anti"}
_NUMBER: Final = OrderColumn(pa.int64())
# Whether there is no left row: rows of the right alone come last.
_LAST: Final = OrderColumn(pa.int64(), below=2)
Side: TypeAlias = Literal["left", "right"]
# Which side of a join may be sent to all tasks: rows of the other must meet every row of it.
MAY_BE_SENT: Final[Mapping[str, tuple[Side, ...]]] = {
    "inner": ("right", "left"),
    "cross": ("right", "left"),
    "left": ("right",),
    "semi": ("right",),
    "anti": ("right",),
    "right": ("left",),
    "full": (),
}
_SIZE: Final = re.compile(r"(-?\d+)\s*([kmgtp]?)i?b?", re.IGNORECASE)


@lowered.register(Join)
def _join(node: Join, want: Want, target: LoweringTarget) -> Lowered:
    left_want, right_want = node.wants(want)
    if node.as_of is not None:
        target = target.in_order
    left, right = target.lower(node.left, left_want), target.lower(node.right, right_want)
    if node.as_of is not None:
        return _as_of(node, want, left, right)
    return _by_keys(node, want, left, right, small_side(node, target.session))


# --- by equal keys --------------------------------------------------------------------------


def matched(
    node: Join, left: tuple[Lowered, Sequence[int]], right: tuple[Lowered, Sequence[int]], small: Side | None
) -> DataFrame:
    """Return the rows of two sides with equal keys under the names of both, which begin with `l_` and `r_`.

    Of each side its columns are said by their places in its schema.
    """
    from pyspark.sql import functions as f

    mine, theirs = _renamed(left[0], "l"), _renamed(right[0], "r")
    keys = []
    for number, (x, y) in enumerate(node.on):
        kind = node.left.schema[x].type
        pair = f"l_c{left[1].index(x)}", f"r_c{right[1].index(y)}"
        if kind in t.FLOATS:
            # Columns of their own: the values are shown as they are. Others are compared as they are.
            one, other = (equal_key(column(name), kind) for name in pair)
            pair = f"l_k{number}", f"r_k{number}"
            mine, theirs = mine.withColumn(pair[0], one), theirs.withColumn(pair[1], other)
        keys.append(column(pair[0]) == column(pair[1]))
    if node.keeps_right:
        # Which side a row has is asked of a column that is never null.
        mine, theirs = mine.withColumn("l_there", f.lit(1)), theirs.withColumn("r_there", f.lit(1))
    if small is None:
        mine, theirs = (by_shuffle(side) if keys else in_pairs(side) for side in (mine, theirs))
    else:
        mine = f.broadcast(mine) if small == "left" else mine
        theirs = f.broadcast(theirs) if small == "right" else theirs
    if keys:
        return mine.join(theirs, reduce(lambda a, b: a & b, keys), _HOW.get(node.how, node.how))
    return mine.crossJoin(theirs)


def _by_keys(node: Join, want: Want, left: Lowered, right: Lowered, small: Side | None) -> Lowered:
    from pyspark.sql import functions as f

    left_want, right_want = node.wants(want)
    frame = matched(node, (left, left_want.columns), (right, right_want.columns), small)
    types = types_of(node.schema, want.columns)
    if node.keeps_left:
        layout = Layout(types, want.ids, left.layout.order)
        places = [left_want.columns.index(node.line[index][0] or 0) for index in want.columns]
        names = [*(f"l_c{place}" for place in places), *_rest(left, "l", ids=want.ids)]
        kept = _selected(frame, [column(name) for name in names], layout)
        return replace(
            kept,
            cuts=left.cuts,
            most=left.most,
            about=left.about,
            text=left.text,
            ids_are_places=left.ids_are_places,
        )
    values = []
    for index in want.columns:
        mine_at, theirs_at = node.line[index]
        of_left = None if mine_at is None else column(f"l_c{left_want.columns.index(mine_at)}")
        of_right = None if theirs_at is None else column(f"r_c{right_want.columns.index(theirs_at)}")
        values.append(_either(of_left, of_right))
    last = (_LAST,) if node.keeps_right else ()
    order = (*last, *left.layout.order, *right.layout.order)
    known: dict[str, Any] = {
        "cuts": _cuts(node, left, right),
        "about": larger_side(left, right) if node.on else None,
        "text": longer_texts(left, right),
    }
    flags = [f.when(column("l_there").isNull(), 1).otherwise(0).cast("bigint")] if last else []
    names = [*_order(left, "l"), *_order(right, "r")]
    found = [*flags, *(column(name) for name in names)]
    by_places = left.ids_are_places and right.ids_are_places
    if by_places or not want.ids:
        made = _selected(frame, [*values, *found], Layout(types, False, order))
        made = replace(made, **known)
        return made.with_ids_of_places(sides=2) if want.ids else made
    pairs = Layout(types, True, (*order, _NUMBER, _NUMBER))
    # All ones are the id of a partner that is not there.
    words = [f.coalesce(column(name), f.lit(-1).cast("bigint")) for name in (*_ids("l"), *_ids("r"))]
    both = _selected(frame, [*values, *words[:2], *found, *words[2:]], pairs)
    return Lowered(both.base, pairs, (CombinedIds,), Layout(types, True, order), late=True, **known)


def larger_side(left: Lowered, right: Lowered) -> int | None:
    """Guess how many rows a join has: as many as the larger side, if both are known; it may be far more."""
    known = [each.about if each.most is None else each.most for each in (left, right)]
    return None if None in known else max(each for each in known if each is not None)


def longer_texts(left: Lowered, right: Lowered) -> int | None:
    """Guess how many bytes texts of a join have: as many as those of the side with the longer ones."""
    sides = (left, right)
    return longest(each.text for each in sides if not all(is_fixed(kind.arrow) for kind in each.layout.types))


def _cuts(node: Join, left: Lowered, right: Lowered) -> CutPoints | None:
    """Rows are spread over the order of the left as the left is; those of the right alone as the right."""
    if not node.keeps_right:
        return left.cuts if left.layout.order else None
    if left.cuts is None or right.cuts is None:
        return None
    width, more = len(left.layout.order), len(right.layout.order)
    return CutsInTurn((left, right), (tuple(range(width)), tuple(range(width, width + more))))


def small_side(node: Join, session: SparkSession) -> Side | None:
    """Say which side is known to be small enough that every task gets all of it; None if neither is.

    Spark collects that side in the driver, so its size must be known, and be what the session allows.
    """
    for side in MAY_BE_SENT[node.how]:
        if is_small(node.left if side == "left" else node.right, session):
            return side
    return None


def is_small(node: Node, session: SparkSession) -> bool:
    """Say whether the rows of a node are known to be so few that the session allows them in the driver."""
    size = known_bytes(node)
    return size is not None and size <= _threshold(session)


def _threshold(session: SparkSession) -> int:
    text = session.conf.get("spark.sql.autoBroadcastJoinThreshold") or "-1"
    found = _SIZE.fullmatch(text.strip())
    return -1 if found is None else int(found[1]) << 10 * " kmgtp".index(found[2].lower() or " ")


def _either(left: Column | None, right: Column | None) -> Column:
    from pyspark.sql import functions as f

    if left is not None and right is not None:
        # The key of a right or full join: the left's where there is a left row, even if it is null.
        return f.when(column("l_there").isNotNull(), left).otherwise(right)
    found = left if left is not None else right
    assert found is not None
    return found


def _renamed(found: Lowered, side: str) -> DataFrame:
    return found.frame.select([column(name).alias(f"{side}_{name}") for name in found.layout.names])


def _order(found: Lowered, side: str) -> list[str]:
    return [f"{side}_{name}" for name in found.layout.order_names]


def _ids(side: str) -> list[str]:
    return [f"{side}_{name}" for name in IDS]


def _rest(found: Lowered, side: str, *, ids: bool) -> list[str]:
    return [*(_ids(side) if ids else ()), *_order(found, side)]


def _selected(frame: DataFrame, columns: list[Column], layout: Layout) -> Lowered:
    named = [each.alias(name) for each, name in zip(columns, layout.names, strict=True)]
    return Lowered(frame.select(*named), layout, (), layout)


# --- as of ----------------------------------------------------------------------------------


def _as_of(node: Join, want: Want, left: Lowered, right: Lowered) -> Lowered:
    from pyspark.sql import functions as f

    left_want, right_want = node.wants(want)
    at_left = {place: number for number, place in enumerate(left_want.columns)}
    at_right = {place: number for number, place in enumerate(right_want.columns)}
    assert node.as_of is not None
    sides = (
        JoinSide(tuple(at_left[x] for x, _ in node.on), at_left[node.as_of[0]]),
        JoinSide(tuple(at_right[y] for _, y in node.on), at_right[node.as_of[1]]),
    )
    counts = len(left_want.columns), len(right_want.columns)
    columns = [
        (None if x is None else at_left[x], None if y is None else at_right[y])
        for x, y in (node.line[index] for index in want.columns)
    ]
    orders = left.layout.order, right.layout.order
    columns += [(counts[0] + number, None) for number in range(len(orders[0]))]
    order = orders[0]
    if not node.keeps_left:
        columns += [(None, counts[1] + number) for number in range(len(orders[1]))]
        order = (*orders[0], *orders[1])
    kinds = [
        (*types_arrow(each.layout), *(slot.kind for slot in each.layout.order)) for each in (left, right)
    ]
    if node.keeps_right:
        # A column that is null in rows of the right alone, before all others of the order.
        columns.insert(len(want.columns), (len(kinds[0]), None))
        kinds[0] = (*kinds[0], pa.int64())
        order = (_NUMBER, *order)
    matching = Matching(node.how, *sides, tuple(columns), kinds[0], kinds[1], want.ids)
    both = _both_sides(left, right)
    keys = []
    for x, y in node.on:
        kind = node.left.schema[x].type
        of_left, of_right = (
            equal_key(column(name), kind) for name in (f"l_c{at_left[x]}", f"r_c{at_right[y]}")
        )
        keys.append(f.when(column("side") == 1, of_left).otherwise(of_right))
    together = both.repartition(*keys) if keys else both.repartition(1)
    ordered = together.sortWithinPartitions(
        "side", *order_of(left.layout, "l_"), *order_of(right.layout, "r_")
    )
    layout = Layout(types_of(node.schema, want.columns), want.ids, order)
    given = _wide(left.layout, right.layout)
    work = partial(AsOfTask, matching=matching, left=left.layout, right=right.layout)
    return Lowered(ordered, given, (work,), layout)


def types_arrow(layout: Layout) -> tuple[pa.DataType, ...]:
    """Return the Arrow types of the values of a layout."""
    return tuple(kind.arrow for kind in layout.types)


def _both_sides(left: Lowered, right: Lowered) -> DataFrame:
    """Return the rows of both sides under their own columns; `side` is 0 for the right, 1 for the left."""
    from pyspark.sql import functions as f

    frames = []
    for mine, side, number in ((left, "l", 1), (right, "r", 0)):
        columns = []
        for layout, name in ((left.layout, "l"), (right.layout, "r")):
            for field, each in zip(layout.spark_schema, layout.names, strict=True):
                value = column(each) if name == side else f.lit(None).cast(field.dataType)
                columns.append(value.alias(f"{name}_{each}"))
        frames.append(mine.frame.select(f.lit(number).cast("bigint").alias("side"), *columns))
    return frames[0].union(frames[1])


@dataclass(frozen=True)
class SidesLayout(Layout):
    """The columns of both sides of a join beside each other, after the one that says which side it is."""

    left: Layout | None = None
    right: Layout | None = None

    def chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Chunk]:
        """Hand the batches on as they are: the step takes them apart."""
        for batch in batches:
            if batch.num_rows:
                yield Chunk(batch.num_rows, tuple(batch.columns))


def _wide(left: Layout, right: Layout) -> Layout:
    return SidesLayout((), False, (), left, right)


@dataclass(frozen=True, eq=False)
class AsOfTask:
    """The rows of both sides of a join that a task has: first all of the right, then those of the left."""

    below: Piece
    matching: Matching
    left: Layout
    right: Layout

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows of the join."""
        is_full = self.matching.how in ("right", "full")
        sides = _Sides(self.below.chunks(), self.left, self.right, marked=is_full)
        right, left = _SidePiece(sides, 0), _SidePiece(sides, 1)
        shared = Once(ToJoin((left,), (right,), self.matching, 1 + is_full))
        yield from JoinPiece(shared, left, 0).chunks()
        if is_full:
            yield from RightOnlyPiece(shared, (left,), 1).chunks()


class _Sides:
    """Rows of a task taken apart by side, as they come."""

    def __init__(self, chunks: Iterator[Chunk], left: Layout, right: Layout, *, marked: bool) -> None:
        self._chunks, self._left, self._right, self._marked = chunks, left, right, marked
        self._waiting: Chunk | None = None

    def of(self, side: int) -> Iterator[Chunk]:
        """Yield the rows of a side; those of the right come first."""
        width = len(self._left.names)
        layout = self._left if side else self._right
        held = [self._waiting] if self._waiting is not None else []
        self._waiting = None
        for chunk in chain(held, self._chunks):
            ones = int(np.asarray(chunk.arrays[0]).sum())
            zeros = chunk.rows - ones
            mine = chunk.slice(zeros) if side else chunk.slice(0, zeros)
            if mine.rows:
                start = 1 if side else 1 + width
                columns = mine.arrays[start : start + len(layout.names)]
                found = layout.decode(pa.RecordBatch.from_arrays(list(columns), names=list(layout.names)))
                zero = (pa.array(np.zeros(mine.rows, np.int64)),) if side and self._marked else ()
                yield Chunk(found.rows, (*found.arrays, *zero), found.ids)
            if not side and ones:
                self._waiting = chunk.slice(zeros)
                return


@dataclass(frozen=True, eq=False)
class _SidePiece:
    """The rows of one side of a task, which are read once."""

    sides: _Sides
    side: int

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        yield from self.sides.of(self.side)
