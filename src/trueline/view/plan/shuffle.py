"""Rows in the order of a hash of a seed and their ids (decision 4): the same however they are read.

`trueline.kernel.value_hash` says which hash. Rows whose hashes are equal stay as they were.
"""

from __future__ import annotations

from dataclasses import dataclass

from trueline.errors import InputError
from trueline.view.plan.node import Node, OneInput, Want


@dataclass(frozen=True, eq=False)
class Shuffle(OneInput):
    """Rows by a hash of their ids; ids do not change."""

    seed: int

    @property
    def title(self) -> str:
        return f"shuffled by seed {self.seed}"

    def wants(self, want: Want) -> tuple[Want, ...]:
        """What is wanted, and who the rows are."""
        return (want.of(want.columns, ids=True),)


def shuffled(below: Node, seed: int) -> Shuffle:
    """Order rows by a hash of the seed and their ids."""
    return Shuffle(below, whole_seed(seed))


def whole_seed(seed: object) -> int:
    """Return a seed, which is any whole number."""
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InputError(f"the seed {seed!r} is not a whole number", remedy="give a whole number")
    return seed
