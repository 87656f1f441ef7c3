"""Views side by side, row by row.

Ids are those of the first view, rows as many as the shortest has. Where all rows are counted they come in
pieces; else in one, since a row's number is known by reading those before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trueline.kernel.chunk import Chunk
from trueline.kernel.pieces import Piece, PieceChain
from trueline.view.operators.rows import part_of
from trueline.view.plan.node import Node, Want, once_a_walk
from trueline.view.schema import Schema


@dataclass(frozen=True, eq=False)
class Zipped(Node):
    """The columns of all views; of a name that repeats the last is seen (view:C4)."""

    views: tuple[Node, ...]
    columns: Schema
    line: tuple[tuple[int, int], ...]

    @property
    def schema(self) -> Schema:
        """The columns of all."""
        return self.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The views."""
        return self.views

    @property
    @once_a_walk
    def row_count(self) -> int | None:
        """The smallest, if all are known (view:C31)."""
        counts = [view.row_count for view in self.views]
        known = [count for count in counts if count is not None]
        return min(known) if len(known) == len(counts) else None

    @property
    def serial(self) -> str | None:
        """Where rows are not counted, partners are known by reading those before."""
        return None if self.row_count is not None else "rows of several views are counted side by side"

    @property
    def title(self) -> str:
        return f"{len(self.views)} views side by side"

    def wants(self, want: Want) -> tuple[Want, ...]:
        """Its columns of each; ids of the first."""
        return tuple(
            want.of(
                [place for view, place in (self.line[index] for index in want.columns) if view == number],
                ids=want.ids and number == 0,
            )
            for number in range(len(self.views))
        )

    def passed(self, column: int) -> tuple[int, int] | None:
        """Every column is one of a view's."""
        return self.line[column]

    @once_a_walk
    def pieces(self, want: Want) -> Sequence[Piece]:
        """Return equal parts where all pieces are counted, else one piece."""
        below = self.wants(want)
        seen = [0] * len(self.views)
        order = []
        for index in want.columns:
            view, _ = self.line[index]
            order.append((view, seen[view]))
            seen[view] += 1
        total = self.row_count
        divided = [view.pieces(each) for view, each in zip(self.views, below, strict=True)]
        if total is None or any(piece.rows is None for pieces in divided for piece in pieces):
            return [ZippedPiece(tuple(PieceChain(pieces) for pieces in divided), tuple(order), total)]
        parts = min(total, max(want.parts, len(divided[0])))
        cuts = [total * part // parts for part in range(parts + 1)] if parts else []
        return [
            ZippedPiece(
                tuple(PieceChain(tuple(part_of(pieces, start, stop - start))) for pieces in divided),
                tuple(order),
                stop - start,
            )
            for start, stop in pairwise(cuts)
        ]


@dataclass(frozen=True, eq=False)
class ZippedPiece:
    """Pieces of several views that belong together; `order` says which column is where."""

    views: tuple[Piece, ...]
    order: tuple[tuple[int, int], ...]
    rows: int | None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows."""
        for chunks in abreast([piece.chunks() for piece in self.views]):
            arrays = tuple(chunks[view].arrays[place] for view, place in self.order)
            yield Chunk(chunks[0].rows, arrays, chunks[0].ids)


def abreast(streams: Sequence[Iterator[Chunk]]) -> Iterator[tuple[Chunk, ...]]:
    """Yield chunks of several streams in step, as long as all of them have rows."""
    waiting: list[Chunk | None] = [None] * len(streams)
    try:
        while True:
            for number, stream in enumerate(streams):
                found = waiting[number]
                while found is None or not found.rows:
                    found = next(stream, None)
                    if found is None:
                        return
                waiting[number] = found
            ready = [chunk for chunk in waiting if chunk is not None]
            rows = min(chunk.rows for chunk in ready)
            yield tuple(chunk if chunk.rows == rows else chunk.slice(0, rows) for chunk in ready)
            waiting = [None if chunk.rows == rows else chunk.slice(rows) for chunk in ready]
    finally:
        for stream in streams:
            if hasattr(stream, "close"):
                stream.close()


def zipped(views: Sequence[Node]) -> Zipped:
    """Put views side by side."""
    line = tuple((number, column.index) for number, view in enumerate(views) for column in view.schema)
    fields = [column.field for view in views for column in view.schema]
    return Zipped(tuple(views), Schema(fields), line)
