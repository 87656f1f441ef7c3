"""Joins that are delivered in order: of a dataset on the left only keys and places are moved.

Spark joins these with the right and brings the matches in the order of their places; the tasks that write
them read the rows of the left from the slices meanwhile, which have that order. So the columns of the left
are not moved at all, where a plain join moves them once and a sort once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from trueline.dataset.read.slice_reader import Slices
from trueline.kernel.chunk import BYTES_OF_A_CHUNK, Chunk, RowByRowPiece, bytes_of, together
from trueline.spark.lowering.dispatch import LoweringTarget
from trueline.spark.lowering.exchange import ranges
from trueline.spark.lowering.join import larger_side, matched, small_side
from trueline.spark.lowering.layout import Layout
from trueline.spark.lowering.lowered import IdsOfPlaces, Lowered, types_of
from trueline.spark.lowering.rows import column
from trueline.spark.lowering.slices import source_of
from trueline.view.execute import pieces
from trueline.view.plan.join import Join
from trueline.view.plan.node import Node, Want
from trueline.view.plan.select import Select
from trueline.view.sources.source_scan import ScanPiece

Offsets = npt.NDArray[np.uint64]
_HOW: Final = ("inner", "left")


def join_in_order(node: Node, want: Want, target: LoweringTarget) -> Lowered | None:
    """Return the rows of a join in order; None where moving rows of the left is as well or needed."""
    columns = want.columns
    while isinstance(node, Select):
        columns, node = tuple(node.places[index] for index in columns), node.below
    if not isinstance(node, Join) or node.how not in _HOW or node.as_of is not None or not node.on:
        return None
    lines = [node.line[index] for index in columns]
    shown = tuple(dict.fromkeys(mine for mine, _ in lines if mine is not None))
    keys = tuple(dict.fromkeys(mine for mine, _ in node.on))
    if set(shown) <= set(keys) or small_side(node, target.session) is not None:
        return None
    left = target.lower(node.left, Want(keys))
    parts = _slices_of(node.left, shown) if left.ids_are_places else None
    if parts is None:
        return None
    _, right_want = node.wants(Want(columns, want.ids))
    right = target.lower(node.right, right_want)
    if want.ids and not right.ids_are_places:
        return None
    of_right = [
        right_want.columns.index(theirs) for mine, theirs in lines if mine is None and theirs is not None
    ]
    rows = _matches(node, (left, keys), (right, right_want.columns), of_right)
    moved = ranges(rows, target).in_order().select([column(name) for name in rows.layout.names])
    line = tuple(None if mine is None else shown.index(mine) for mine, _ in lines)
    steps = [partial(WithLeftRows, left=parts, line=line)]
    ids = [partial(IdsOfPlaces, sides=2)] if want.ids else []
    layout = Layout(types_of(node.schema, columns), want.ids, rows.layout.order)
    return Lowered(moved, rows.layout, (*steps, *ids), layout, is_ordered=True)


def _slices_of(node: Node, columns: Sequence[int]) -> tuple[ScanPiece, ...] | None:
    """Return what reads columns of the slices of a dataset, offsets as ids; None if it is anything else."""
    scan, places, _ = source_of(node, Want(tuple(columns)))
    if scan is None:
        return None
    found = pieces(scan, Want(tuple(places), ids=True))
    kept = [each for each in found if isinstance(each, ScanPiece) and isinstance(each.source, Slices)]
    return tuple(kept) if len(kept) == len(found) else None


def _matches(
    node: Join,
    left: tuple[Lowered, Sequence[int]],
    right: tuple[Lowered, Sequence[int]],
    of_right: Sequence[int],
) -> Lowered:
    """Return matches of keys: columns of the right, the place of the row of the left, that of the right."""
    (mine, _), (theirs, _) = left, right
    frame = matched(node, left, right, None)
    layout = Layout(
        tuple(theirs.layout.types[place] for place in of_right),
        False,
        (*mine.layout.order, *theirs.layout.order),
    )
    names = [
        *(f"r_c{place}" for place in of_right),
        *(f"l_{name}" for name in mine.layout.order_names),
        *(f"r_{name}" for name in theirs.layout.order_names),
    ]
    named = [column(each).alias(name) for each, name in zip(names, layout.names, strict=True)]
    about = larger_side(mine, theirs)
    return Lowered(frame.select(*named), layout, (), layout, cuts=mine.cuts, about=about, text=theirs.text)


@dataclass(frozen=True, eq=False)
class WithLeftRows(RowByRowPiece):
    """Matches in the order of the left, with the rows of the left that they are of.

    `line` says for each column where it is on the left; None for the next one of the right. What orders the
    matches comes last, the place of the left first.
    """

    left: tuple[ScanPiece, ...]
    line: tuple[int | None, ...]

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        of_right = sum(place is None for place in self.line)
        reader: RowsAtPlaces | None = None
        for chunk in self.below.chunks():
            if not chunk.rows:
                continue
            places = np.asarray(chunk.arrays[of_right]).view(np.uint64)
            if reader is None:
                reader = RowsAtPlaces(self.left, int(places[0]))
            start = 0
            for left in reader.take(places):
                found = chunk.slice(start, left.rows)
                right = iter(found.arrays[:of_right])
                arrays = [next(right) if at is None else left.arrays[at] for at in self.line]
                yield Chunk(left.rows, (*arrays, *found.arrays[of_right:]))
                start += left.rows


class RowsAtPlaces:
    """Reads rows of slices by their offsets, which are asked for in order, from one on."""

    def __init__(self, parts: Sequence[ScanPiece], start: int) -> None:
        self._waiting = _from(parts, start)
        self._held: Chunk | None = None

    def take(self, places: Offsets) -> Iterator[Chunk]:
        """Yield the rows at these offsets, wide ones some at a time; none is before those of the last call.

        No more than one chunk is held of those that they are in.
        """
        found: list[Chunk] = []
        start = size = 0
        while start < len(places):
            if self._held is None or _last(self._held) < places[start]:
                self._held = None
                self._held = next(self._waiting)
                continue
            stop = int(np.searchsorted(places, _last(self._held), side="right"))
            stop = min(stop, start + _taken_at_once(self._held))
            part = _at(self._held, places[start:stop])
            if found and size + bytes_of(part) > BYTES_OF_A_CHUNK:
                yield together(found)
                found, size = [], 0
            found.append(part)
            start, size = stop, size + bytes_of(part)
        yield together(found)


def _from(parts: Sequence[ScanPiece], start: int) -> Iterator[Chunk]:
    """Yield the rows from an offset on."""
    for part in parts:
        slices = part.source
        assert isinstance(slices, Slices)
        first, last = slices.offsets
        if last < start:
            continue
        inside = replace(slices, span=(max(first, start), last))
        for chunk in replace(part, source=inside).chunks():
            if chunk.rows:
                yield chunk


def _taken_at_once(chunk: Chunk) -> int:
    """Say how many rows are taken of a chunk at a time, some of them several times."""
    return max(1, BYTES_OF_A_CHUNK * chunk.rows // max(1, bytes_of(chunk)))


def _last(chunk: Chunk) -> np.uint64:
    assert chunk.ids is not None
    last: np.uint64 = chunk.ids.low[-1]
    return last


def _at(chunk: Chunk, places: Offsets) -> Chunk:
    assert chunk.ids is not None
    at = np.searchsorted(chunk.ids.low, places)
    assert (chunk.ids.low[at] == places).all(), "slices have the rows that keys were read of"
    return Chunk(chunk.rows, chunk.arrays).take(at)
