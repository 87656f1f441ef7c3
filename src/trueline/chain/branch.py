"""One look at where a chain is: its head is read once, whatever is asked about the branch behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from trueline.chain.chain import Chain
from trueline.chain.events import Event
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

    def before(self, number: int) -> Branch:
        """Return the branch as it was before the block with a number was there."""
        if number <= 0:
            return Branch(self.chain, None, None)
        tip = self.at(number - 1)
        return Branch(self.chain, self.chain.tail_at(tip.hash), tip)

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
            entry = self.at(at)
            if entry.is_end:
                yield entry
            at = None if at == 0 else self.at(at - 1).data

    def last_within(self, offset: int, upto: int) -> int:
        """Return the greatest number up to `upto` where the last offset is not beyond one; −1 if none is.

        Looks are few: the steps down double, then the last one is halved.
        """
        high, step = upto + 1, 1
        while (low := max(high - step, -1)) >= 0 and self._offset(low) > offset:
            high, step = low, step * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._offset(middle) <= offset else (low, middle)
        return low

    def _offset(self, number: int) -> int:
        last = self.at(number).last_offset
        return -1 if last is None else last

    def taken(self, source: str, after: int, upto: int) -> tuple[Multihash | None, int | None] | None:
        """Return how far an input was read, by the newest transaction with after < number <= upto."""
        return self.chain._guarded(lambda: self.chain._index.taken(source, after, upto))

    def newest(self, event: type[Event]) -> IndexEntry | None:
        """Return the newest block with an event, None if there is none."""
        if self.tip is None:
            return None
        upto = self.tip.sequence_number
        return self.chain._guarded(lambda: self.chain._index.newest(event, upto=upto))

    def at(self, number: int) -> IndexEntry:
        """Return what the index knows of the block with a number."""
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
