"""Rows in the order of a hash of a seed and their ids (decision 4): the same however they are read.

`trueline.kernel.value_hash` says which hash. Rows whose hashes are equal stay as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from trueline.errors import InputError
from trueline.kernel.chunk import Chunk
from trueline.kernel.pieces import Piece
from trueline.kernel.value_hash import Salt, hash_ids
from trueline.view.operators.sorting import Reordered
from trueline.view.plan.node import Node, Want


@dataclass(frozen=True)
class ByHash:
    """A hash of the ids."""

    salt: Salt
    descending: tuple[bool, ...] = (False,)

    def keys(self, chunk: Chunk) -> Sequence[pa.Array]:
        """Return the hashes."""
        assert chunk.ids is not None
        return [pa.array(hash_ids(chunk.ids, self.salt))]


@dataclass(frozen=True, eq=False)
class Shuffled(Reordered):
    """Rows by a hash of their ids."""

    seed: int

    @property
    def title(self) -> str:
        return f"shuffled by seed {self.seed}"

    def wants(self, want: Want) -> tuple[Want, ...]:
        """What is wanted, and who the rows are."""
        return (want.of(want.columns, ids=True),)

    def pieces(self, want: Want) -> Sequence[Piece]:
        """Return ranges of the order."""
        (below,) = self.wants(want)
        return self.ordered(want, below, ByHash(Salt.of("shuffle", self.seed)))


def shuffled(below: Node, seed: int) -> Shuffled:
    """Order rows by a hash of the seed and their ids."""
    return Shuffled(below, whole_seed(seed))


def whole_seed(seed: object) -> int:
    """Return a seed, which is any whole number."""
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InputError(f"the seed is {seed!r}", remedy="give a whole number")
    return seed
