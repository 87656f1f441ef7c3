"""One look at where a chain is: its head is read once, whatever is asked about the branch behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from trueline.chain.chain import Chain
from trueline.chain.head_state import Tail
from trueline.chain.index_rows import IndexEntry
from trueline.errors import RetryError
from trueline.identity.multihash import Multihash

WENT_BACK: Final = "HeadWentBack"
# Each time the head went back between two instructions.
_ATTEMPTS: Final = 8


@dataclass(frozen=True, slots=True)
class Branch:
    """A chain at the head it was seen at.

    >>> from trueline.chain import MemoryStore
    >>> branch = Branch.of(Chain(MemoryStore()))
    >>> branch.tail is None, list(branch.data_ends())
    (True, [])
    """

    chain: Chain
    tail: Tail | None
    tip: IndexEntry | None

    @classmethod
    def of(cls, chain: Chain) -> Branch:
        """Look at the head of a chain."""
        for _ in range(_ATTEMPTS):
            tail = chain.tail()
            if tail is None:
                return cls(chain, None, None)
            tip = chain._guarded(lambda head=tail.head: chain._index.find(head))  # type: ignore[misc]
            if tip is not None:
                return cls(chain, tail, tip)
        raise _went_back(chain)

    def find(self, block: Multihash) -> IndexEntry | None:
        """Return what the index knows of a block, None if it is not on the branch."""
        if self.tip is None:
            return None
        found = self.chain._guarded(lambda: self.chain._index.find(block))
        # The index may know more by now than the head that was seen.
        return found if found is not None and found.sequence_number <= self.tip.sequence_number else None

    def data_ends(self) -> Iterator[IndexEntry]:
        """Iterate over the ends of commits that have data (or move a watermark), newest first.

        Blocks of metadata and the parts of a commit are passed over.
        """
        at = self.tip.data if self.tip is not None else None
        while at is not None:
            entry = self._at(at)
            if entry.is_end:
                yield entry
            at = None if at == 0 else self._at(at - 1).data

    def _at(self, number: int) -> IndexEntry:
        entry = self.chain._guarded(lambda: self.chain._index.at(number))
        if entry is None:
            raise _went_back(self.chain)
        return entry


def _went_back(chain: Chain) -> RetryError:
    return RetryError(
        f"the head of {chain.store.location} went back while it was looked at",
        remedy="wait for the reset to end, then try again",
        code=WENT_BACK,
    )
