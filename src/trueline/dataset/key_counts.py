"""Keys of more rows than fit into memory: counted in passes, each over those whose hash is in one share.

A pass reads all keys and holds the different ones of its share, so that what is held is bounded however many
rows there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from trueline.kernel.sorted_keys import Bools, Ints, repeats, sorting
from trueline.kernel.value_hash import Salt, hash_values

# Different keys of so many bytes are held at once.
KEY_BYTES: Final = 256 << 20
_SALT: Final = Salt.of("key counts", 0)
# Reads all keys, some at a time; called once for each pass.
ReadKeys = Callable[[], Iterable[pa.BinaryArray]]


@dataclass(frozen=True, slots=True)
class Share:
    """The keys whose hash is `number` modulo `total`.

    >>> keys = pa.array([b"a", b"b", b"c"])
    >>> [Share(0, 1).of(keys).to_pylist(), sum(len(Share(n, 4).of(keys)) for n in range(4))]
    [[b'a', b'b', b'c'], 3]
    """

    number: int
    total: int

    def holds(self, keys: pa.BinaryArray) -> Bools:
        """Say which keys are in it."""
        if self.total == 1:
            return np.ones(len(keys), dtype=bool)
        found: Bools = hash_values([keys], len(keys), _SALT) % np.uint64(self.total) == self.number
        return found

    def of(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Return the keys that are in it."""
        return keys if self.total == 1 else keys.filter(pa.array(self.holds(keys)))


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Different keys in order, and how often each of them occurs."""

    keys: pa.BinaryArray
    counts: Ints

    def plus(self, more: Sequence[pa.BinaryArray]) -> KeyCounts:
        """Return it with more keys, each once."""
        keys = pa.concat_arrays([self.keys, *more])
        counts = np.concatenate([self.counts, np.ones(len(keys) - len(self.keys), np.int64)])
        order = sorting(keys)
        if order is not None:
            keys, counts = keys.take(pa.array(order)), counts[order]
        firsts = np.flatnonzero(~repeats(keys))
        if len(firsts) == len(keys):
            return KeyCounts(keys, counts)
        return KeyCounts(keys.take(pa.array(firsts)), np.add.reduceat(counts, firsts))


NONE: Final = KeyCounts(pa.array([], pa.binary()), np.zeros(0, np.int64))


def counted(read: ReadKeys) -> Iterator[tuple[Share, KeyCounts]]:
    """Yield different keys with their counts, share by share: in one pass where they are few.

    >>> [
    ...     (share.total, found.keys.to_pylist(), found.counts.tolist())
    ...     for share, found in counted(lambda: iter([pa.array([b"b", b"a"]), pa.array([b"b"])]))
    ... ]
    [(1, [b'a', b'b'], [1, 2])]
    """
    whole, size = Share(0, 1), 0
    found: KeyCounts | None = NONE
    waiting = _Waiting()
    for keys in read():
        size += keys.nbytes
        if found is not None and waiting.add(keys):
            found = waiting.folded(found)
            if found.keys.nbytes > KEY_BYTES:
                found = None  # how many passes it takes is known at the end
    if found is not None:
        yield whole, waiting.folded(found)
        return
    total = -(-2 * size // KEY_BYTES)
    for number in range(total):
        share = Share(number, total)
        found = NONE
        for keys in read():
            if waiting.add(share.of(keys)):
                found = waiting.folded(found)
        yield share, waiting.folded(found)


class _Waiting:
    """Keys that are not counted yet: sorting many at once takes less than sorting few often."""

    def __init__(self) -> None:
        self._keys: list[pa.BinaryArray] = []
        self._size = 0

    def add(self, keys: pa.BinaryArray) -> bool:
        """Take keys; say whether they are so many that they have to be counted."""
        self._keys.append(keys)
        self._size += keys.nbytes
        return self._size > KEY_BYTES // 2

    def folded(self, found: KeyCounts) -> KeyCounts:
        """Return counts with all that wait, and forget these."""
        keys, self._keys, self._size = self._keys, [], 0
        return found.plus(keys) if keys else found
