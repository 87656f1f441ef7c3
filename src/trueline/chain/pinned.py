"""An input of a derivative while it is verified: as it is now, asked in the order of its blocks."""

from __future__ import annotations

from trueline.chain.chain import Chain
from trueline.identity.multihash import SHA3_256, Multihash


class Pinned:
    """Answers where blocks stand from pages of the index, read ahead; what is not in them is looked up.

    A derivative takes its inputs forward, so its questions come in order and a
    page serves thousands of them; one by one each costs 20 µs.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        tail = chain.tail()
        self._end = tail.sequence_number if tail else -1
        self._next = 0
        self._pages: list[dict[Multihash, tuple[int, int | None]]] = [{}, {}]

    def sequence_of(self, block: Multihash) -> int | None:
        """Return where a block stands, None if it is not on the branch."""
        found = self._find(block)
        return found[0] if found is not None else self._chain.sequence_of(block)

    def last_offset_at(self, block: Multihash) -> int | None:
        """Return the last offset at a block."""
        found = self._find(block)
        return found[1] if found is not None else self._chain.last_offset_at(block)

    def _find(self, block: Multihash) -> tuple[int, int | None] | None:
        for page in self._pages:
            if block in page:
                return page[block]
        if self._next > self._end or block.code != SHA3_256:
            return None
        rows = self._chain.positions(self._next - 1, self._end)
        page = {Multihash.sha3_256(digest): (number, last) for digest, number, last in rows}
        self._pages = [self._pages[1], page]
        self._next = rows[-1][1] + 1 if rows else self._end + 1
        return page.get(block)
