"""Rows chosen by a hash, in the pieces of the input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from trueline.identity import RowIds
from trueline.kernel.chunk import Chunk, Piece, map_pieces
from trueline.kernel.value_hash import hash_ids, hash_values
from trueline.view.execute.dispatch import pieces
from trueline.view.plan.node import Want
from trueline.view.plan.sample import HashChoice, Sample


@pieces.register(Sample)
def _sample(node: Sample, want: Want) -> Sequence[Piece]:
    if node.choice.is_none:
        return []
    (below,) = node.wants(want)
    at = tuple(below.columns.index(place) for place in node.by)
    made = partial(SamplePiece, choice=node.choice, at=at, keep=len(want.columns), ids=want.ids)
    return map_pieces(pieces(node.below, below), made)


@dataclass(frozen=True, eq=False)
class SamplePiece:
    """A piece of the input, of which some rows are chosen; `at` is where the key columns are."""

    below: Piece
    choice: HashChoice
    at: tuple[int, ...]
    keep: int
    ids: bool

    @property
    def rows(self) -> int | None:
        """Known by reading only."""
        return None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows that are chosen."""
        for chunk in self.below.chunks():
            if self.at:
                keys = [chunk.arrays[place] for place in self.at]
                hashes = hash_values(keys, chunk.rows, self.choice.salt)
            else:
                assert chunk.ids is not None
                hashes = hash_ids(chunk.ids, self.choice.salt)
            times = self.choice.times(hashes)
            kept = chunk.select(range(self.keep), ids=self.ids)
            found = kept.filter(times > 0) if self.choice.draws is None else _repeated(kept, times)
            if found.rows:
                yield found


def _repeated(chunk: Chunk, times: npt.NDArray[np.int64]) -> Chunk:
    source = np.repeat(np.arange(chunk.rows), times)
    found = chunk.take(source)
    if found.ids is None:
        return found
    number = np.arange(len(source)) - np.repeat(np.cumsum(times) - times, times)
    drawn = RowIds(number.astype(np.uint64), np.zeros(len(source), np.uint64))
    return Chunk(found.rows, found.arrays, found.ids.combine(drawn))
