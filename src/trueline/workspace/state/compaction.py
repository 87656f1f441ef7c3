"""When state is rewritten: rules over numbers of rows alone.

Bytes would be another measure, but a base of neighbouring keys packs better than
an update of scattered ones: in 40 updates of 1 % it was rewritten three times instead of once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# Of the base's rows: newer segments together, before the base is rewritten.
NEWER_AT_MOST: Final = 0.25
# A look-up through 50 was as fast as through 10 at 5 M keys, but every one is a file to open and to list.
SEGMENTS_AT_MOST: Final = 32
# Of the base's rows: a segment that is merged with its neighbours. Larger ones wait for the base.
SMALL: Final = 0.04


def rewritten_from(sizes: Sequence[int]) -> int | None:
    """Return the generation from which on all are to be merged into one (0 is the base), None for no need.

    `sizes` are the rows of the generations, the base first.

    >>> rewritten_from([100, 10, 10]), rewritten_from([100, 20, 10]), rewritten_from([1000, *[2] * 32])
    (None, 0, 1)
    """
    if len(sizes) < 2:
        return None
    base = sizes[0]
    if sum(sizes[1:]) > NEWER_AT_MOST * base:
        return 0
    if len(sizes) <= SEGMENTS_AT_MOST:
        return None
    start = len(sizes)
    while start > 1 and sizes[start - 1] <= SMALL * base:
        start -= 1
    return start if len(sizes) - start > 1 else 0
