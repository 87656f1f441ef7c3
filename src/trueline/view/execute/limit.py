"""Rows by their number: pieces whose rows are counted are cut; others are read from the start, or the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from trueline.kernel.chunk import Chunk, Piece, PieceChain
from trueline.view.execute.dispatch import pieces, row_count, serial, stored_columns
from trueline.view.plan.limit import LastRows, Limit
from trueline.view.plan.node import Want


@serial.register(Limit)
@serial.register(LastRows)
def _serial(node: Limit | LastRows) -> str | None:
    return None if row_count(node.below) is not None else node.serial


@pieces.register(Limit)
def _limit(node: Limit, want: Want) -> Sequence[Piece]:
    if node.count == 0:
        return []
    found = pieces(node.below, node.wants(want)[0])
    stop = None if node.count is None else node.start + node.count
    return (
        rows_between(found, node.start, node.count)
        if _are_counted(found, stop)
        else [LimitPiece(PieceChain(found), node.start, node.count)]
    )


@pieces.register(LastRows)
def _tail(node: LastRows, want: Want) -> Sequence[Piece]:
    if node.count == 0:
        return []
    found = pieces(node.below, node.wants(want)[0])
    first, missing = len(found), node.count
    while first and missing > 0:
        first -= 1
        rows = found[first].rows
        if rows is None:
            return [TailPiece(found, node.count)]
        missing -= rows
    return rows_between(found[first:], max(0, -missing), None)


@stored_columns.register(Limit)
@stored_columns.register(LastRows)
def _stored(node: Limit | LastRows, columns: tuple[int, ...], rows: range) -> list[pa.ChunkedArray] | None:
    total = row_count(node.below)
    if total is None:
        return None
    first = node.start if isinstance(node, Limit) else max(0, total - node.count)
    return stored_columns(node.below, columns, range(first + rows.start, first + rows.stop))


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


def rows_between(pieces: Sequence[Piece], start: int, count: int | None) -> list[Piece]:
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
            found.append(LimitPiece(piece, begin, end - begin))
        first += rows
    return found


@dataclass(frozen=True, eq=False)
class LimitPiece:
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


@dataclass(frozen=True, eq=False)
class TailPiece:
    """The last `count` rows of pieces that are not all counted."""

    below: Sequence[Piece]
    count: int

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows: the last pieces are read first, and no more of them than it takes."""
        found: list[list[Chunk]] = []
        missing = self.count
        for number in reversed(range(len(self.below))):
            kept = _last(self.below[number], missing)
            found.append(kept)
            missing -= sum(chunk.rows for chunk in kept)
            if missing == 0:
                break
        for kept in reversed(found):
            yield from kept


def _last(piece: Piece, count: int) -> list[Chunk]:
    """Return the last rows of a piece; no more chunks are in memory than hold them."""
    kept: deque[Chunk] = deque()
    rows = 0
    for chunk in piece.chunks():
        kept.append(chunk)
        rows += chunk.rows
        while rows - kept[0].rows >= count:
            rows -= kept.popleft().rows
    if rows > count:
        kept[0] = kept[0].slice(rows - count)
    return list(kept)
