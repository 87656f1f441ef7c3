"""Choosing rows: by a condition, or by their number.

The columns are those of the input, the very same schema (view:C10); ids and order do not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from trueline.kernel.chunk import Chunk
from trueline.kernel.pieces import Piece, PieceChain, of_each
from trueline.view.expressions import Expression
from trueline.view.plan.node import Node, Want
from trueline.view.schema import Schema


@dataclass(frozen=True, eq=False)
class Filter(Node):
    """The rows for which a condition is true; comes in the pieces of its input."""

    below: Node
    where: Expression

    @property
    def schema(self) -> Schema:
        """That of the input (view:C10)."""
        return self.below.schema

    @property
    def inputs(self) -> tuple[Node, ...]:
        """One."""
        return (self.below,)

    @property
    def title(self) -> str:
        ruled = ", ".join(self.where.bounds)
        return f"rows where {self.where.text}{f' (skips what {ruled} rules out)' if ruled else ''}"

    @property
    def _needed(self) -> tuple[int, ...]:
        return tuple(self.schema[name].index for name in self.where.columns)

    def wants(self, want: Want) -> tuple[Want, ...]:
        """What is wanted, and what the condition reads."""
        columns = tuple(dict.fromkeys((*want.columns, *self._needed)))
        ruled = {self.schema[name].index: each for name, each in self.where.bounds.items()}
        return (want.of(columns).within(want.bounds).within(ruled),)

    def passed(self, column: int) -> tuple[int, int] | None:
        """Every column is the input's."""
        return 0, column

    def pieces(self, want: Want) -> Sequence[Piece]:
        """Return those of the input."""
        (below,) = self.wants(want)
        at = tuple(below.columns.index(column) for column in self._needed)
        made = partial(FilterPiece, where=self.where, at=at, keep=len(want.columns))
        return of_each(self.below.pieces(below), made)


@dataclass(frozen=True, eq=False)
class FilterPiece:
    """A piece of the input, of which some rows are kept, and the first `keep` columns."""

    below: Piece
    where: Expression
    at: tuple[int, ...]
    keep: int

    @property
    def rows(self) -> int | None:
        """Only the end will tell."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows that are kept."""
        for chunk in self.below.chunks():
            batch = pa.RecordBatch.from_arrays(
                [chunk.arrays[place] for place in self.at], names=list(self.where.columns)
            )
            if not self.at:
                batch = pa.record_batch({"": pa.nulls(chunk.rows)})
            mask = np.asarray(self.where.mask(batch))
            kept = chunk.select(range(self.keep)).filter(mask)
            if kept.rows:
                yield kept


@dataclass(frozen=True, eq=False)
class Part(Node):
    """The rows from number `start` on, at most `count` of them (None: all).

    Pieces whose rows are counted are cut where it falls; else the rows come in one piece.
    """

    below: Node
    start: int
    count: int | None

    @property
    def schema(self) -> Schema:
        """That of the input (view:C10)."""
        return self.below.schema

    @property
    def inputs(self) -> tuple[Node, ...]:
        """One."""
        return (self.below,)

    @property
    def row_count(self) -> int | None:
        """What is left of the input's, if that is known (view:C31)."""
        total = self.below.row_count
        if total is None:
            return 0 if self.count == 0 else None
        left = max(0, total - self.start)
        return left if self.count is None else min(left, self.count)

    @property
    def serial(self) -> str | None:
        """Where rows are not counted, which ones these are is known by reading those before."""
        return None if self.below.row_count is not None else "rows are counted from the start"

    @property
    def title(self) -> str:
        some = "all" if self.count is None else f"{self.count:,}"
        return f"{some} rows from row {self.start:,} on"

    def wants(self, want: Want) -> tuple[Want, ...]:
        """What is wanted; what a reader rules out still counts here."""
        return (want.of(want.columns),)

    def passed(self, column: int) -> tuple[int, int] | None:
        """Every column is the input's."""
        return 0, column

    def pieces(self, want: Want) -> Sequence[Piece]:
        """Cut counted pieces; read the others from the start."""
        if self.count == 0:
            return []
        pieces = self.below.pieces(self.wants(want)[0])
        stop = None if self.count is None else self.start + self.count
        return (
            part_of(pieces, self.start, self.count)
            if _are_counted(pieces, stop)
            else [Cut(PieceChain(pieces), self.start, self.count)]
        )


def _are_counted(pieces: Sequence[Piece], stop: int | None) -> bool:
    """Say whether all pieces are counted, as far as rows before this number go."""
    total = 0
    for piece in pieces:
        rows = piece.rows
        if rows is None:
            return False
        total += rows
        if stop is not None and total >= stop:
            break
    return True


def part_of(pieces: Sequence[Piece], start: int, count: int | None) -> list[Piece]:
    """Cut rows out of pieces that are counted so far: from number `start` on, at most `count`."""
    found: list[Piece] = []
    first, stop = 0, None if count is None else start + count
    for piece in pieces:
        if stop is not None and first >= stop:
            break
        rows = piece.rows
        assert rows is not None
        begin = max(0, start - first)
        end = rows if stop is None else min(rows, stop - first)
        if begin == 0 and end == rows:
            found.append(piece)
        elif begin < end:
            found.append(Cut(piece, begin, end - begin))
        first += rows
    return found


@dataclass(frozen=True, eq=False)
class Cut:
    """The rows of a piece from number `start` on, at most `count`."""

    below: Piece
    start: int
    count: int | None

    @property
    def rows(self) -> int | None:
        """What is left, if the input's are counted."""
        total = self.below.rows
        if total is None:
            return None
        left = max(0, total - self.start)
        return left if self.count is None else min(left, self.count)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows, and read no further than the last (view:C36)."""
        skip, left = self.start, self.count
        for chunk in self.below.chunks():
            taken = chunk.slice(skip, left) if skip or left is not None else chunk
            skip = max(0, skip - chunk.rows)
            if taken.rows:
                yield taken
            if left is not None:
                left -= taken.rows
                if left == 0:
                    return
