"""Pieces: consecutive rows that one reader reads, and sequences of them made when they are asked for.

A view put after itself forty times has 2**40 pieces; whoever reads the first rows needs one of them.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import Final, Protocol, overload

from trueline.kernel.chunk import Chunk

# So many are as well made at once.
_FEW: Final = 4_096


class Piece(Protocol):
    """Some consecutive rows of a node, which one reader reads; it can be pickled and read elsewhere.

    Making one reads nothing. Reading it reads nothing that belongs to another piece.
    """

    @property
    def rows(self) -> int | None:
        """How many rows it has, None if that takes reading."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order; closing the iterator lets go of everything it holds."""


@dataclass(frozen=True)
class PieceChain:
    """Pieces read one after another, as one piece."""

    parts: Sequence[Piece]

    @property
    def rows(self) -> int | None:
        """The sum, if all are known."""
        total = 0
        for part in self.parts:
            rows = part.rows
            if rows is None:
                return None
            total += rows
        return total

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order."""
        for part in self.parts:
            yield from part.chunks()


def as_one(pieces: Sequence[Piece]) -> Piece:
    """Return pieces as one that reads them one after another."""
    return pieces[0] if len(pieces) == 1 else PieceChain(pieces)


class _Lazy(Sequence[Piece]):
    """A sequence that makes what it is asked for."""

    @overload
    def __getitem__(self, at: int) -> Piece: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Piece]: ...
    def __getitem__(self, at: int | slice) -> Piece | Sequence[Piece]:
        if isinstance(at, slice):
            return Some(self, range(len(self))[at])
        return self._at(range(len(self))[at])

    def _at(self, place: int) -> Piece:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Strung(_Lazy):
    """Sequences of pieces, none of them empty, one after another."""

    parts: tuple[Sequence[Piece], ...]

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(len(part) for part in self.parts))

    def __len__(self) -> int:
        return min(self._ends[-1], sys.maxsize)

    def __iter__(self) -> Iterator[Piece]:
        return chain.from_iterable(self.parts)

    def _at(self, place: int) -> Piece:
        number = bisect_right(self._ends, place)
        return self.parts[number][place - (self._ends[number - 1] if number else 0)]


@dataclass(frozen=True, eq=False)
class Some(_Lazy):
    """Pieces of a sequence, by their places in it."""

    whole: Sequence[Piece]
    places: range

    def __len__(self) -> int:
        return len(self.places)

    def _at(self, place: int) -> Piece:
        return self.whole[self.places[place]]


@dataclass(frozen=True, eq=False)
class Each(_Lazy):
    """Pieces made of others, one of each."""

    below: Sequence[Piece]
    make: Callable[[Piece], Piece]

    def __len__(self) -> int:
        return len(self.below)

    def __iter__(self) -> Iterator[Piece]:
        return map(self.make, self.below)

    def _at(self, place: int) -> Piece:
        return self.make(self.below[place])


def strung(parts: Sequence[Sequence[Piece]]) -> Sequence[Piece]:
    """Return the pieces of several sequences one after another."""
    some = tuple(part for part in parts if part)
    if sum(len(part) for part in some) <= _FEW:
        return list(chain.from_iterable(some))
    return some[0] if len(some) == 1 else Strung(some)


def of_each(pieces: Sequence[Piece], make: Callable[[Piece], Piece]) -> Sequence[Piece]:
    """Return a piece made of each."""
    return Each(pieces, make) if len(pieces) > _FEW else [make(piece) for piece in pieces]
