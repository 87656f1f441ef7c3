"""Views side by side: in pieces where all rows are counted, else in one.

A row's number is otherwise known by reading those before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from trueline.kernel.chunk import Chunk, Piece, PieceChain
from trueline.view.execute.dispatch import pieces, row_count, serial, stored_columns
from trueline.view.execute.limit import rows_between
from trueline.view.plan.node import Want, once_a_walk
from trueline.view.plan.zip import Zip


@serial.register(Zip)
def _serial(node: Zip) -> str | None:
    return None if row_count(node) is not None else node.serial


@pieces.register(Zip)
@once_a_walk
def _zip(node: Zip, want: Want) -> Sequence[Piece]:
    seen = [0] * len(node.views)
    order = []
    for index in want.columns:
        view, _ = node.line[index]
        order.append((view, seen[view]))
        seen[view] += 1
    total = row_count(node)
    divided = [pieces(view, below) for view, below in zip(node.views, node.wants(want), strict=True)]
    if total is None or any(piece.rows is None for each in divided for piece in each):
        return [ZipPiece(tuple(PieceChain(each) for each in divided), tuple(order), total)]
    parts = min(total, max(want.parts, len(divided[0])))
    cuts = [total * part // parts for part in range(parts + 1)] if parts else []
    return [
        ZipPiece(
            tuple(PieceChain(tuple(rows_between(each, start, stop - start))) for each in divided),
            tuple(order),
            stop - start,
        )
        for start, stop in pairwise(cuts)
    ]


@stored_columns.register(Zip)
def _stored(node: Zip, columns: tuple[int, ...], rows: range) -> list[pa.ChunkedArray] | None:
    found = []
    for view, place in (node.line[index] for index in columns):
        stored = stored_columns(node.views[view], (place,), rows)
        if stored is None:
            return None
        found += stored
    return found


@dataclass(frozen=True, eq=False)
class ZipPiece:
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
