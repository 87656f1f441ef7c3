"""Many row ids at once: the algebra of `RowId` over numpy arrays, bit for bit the same."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from trueline.errors import InputError
from trueline.identity.rowid import A1, A2, C1, C2, FORK, MASK, RowId, ids_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

Words: TypeAlias = npt.NDArray[np.uint64]

# Words per block, so that inputs, outputs and temporaries stay in the second-level cache: `combine` made 40 M
# ids/s with 2,048, 70 M with 8,192, 92 M with 16,384 and 93 M with 32,768.
_BLOCK: Final = 16_384
_5, _A1, _A2, _C1, _C2, _FORK = (np.uint64(value) for value in (5, A1, A2, C1, C2, FORK))


@dataclass(frozen=True, slots=True, eq=False)
class RowIds:
    """A column of row ids as two arrays of unsigned words, which are read only.

    >>> ids = RowIds.range(0, 3)
    >>> ids.fork()[1] == RowId(1).fork(), len(ids[1:]), ids.combine(RowId(7))[2]
    (True, 2, RowId('6ae986cb9ccc78851787f98278bfc330'))

    >>> ids.next()[0] == RowId(0).next(), RowIds.repeat(RowId(1), 2).equals(RowIds.of([RowId(1)] * 2))
    (True, True)
    >>> (
    ...     RowIds.from_arrow(ids.to_arrow()).equals(ids),
    ...     len(RowIds.concat([ids, ids])),
    ...     ids.argsort().tolist(),
    ... )
    (True, 6, [0, 1, 2])
    """

    low: Words
    high: Words

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            words = getattr(self, name)
            if not isinstance(words, np.ndarray) or words.dtype != np.uint64 or words.ndim != 1:
                raise _refused(f"the {name} words of row ids are not a one-dimensional uint64 array")
            frozen = np.ascontiguousarray(words).view()
            frozen.flags.writeable = False
            object.__setattr__(self, name, frozen)
        if len(self.low) != len(self.high):
            raise _refused(f"row ids have {len(self.low)} low words and {len(self.high)} high words")

    @classmethod
    def range(cls, start: int | RowId, n: int) -> RowIds:
        """Return `n` consecutive ids, as the rows of a source have them (view:C78)."""
        first = start if isinstance(start, RowId) else RowId(start)
        if n < 0 or (first.high << 64 | first.low) + n > 1 << 128:
            raise _refused(f"there are not {n} ids from {first} on: ids have 128 bits")
        low = np.arange(n, dtype=np.uint64)
        low += np.uint64(first.low)
        high = np.full(n, first.high, dtype=np.uint64)
        if first.low + n > MASK:
            high += low < np.uint64(first.low)
        return cls(low, high)

    @classmethod
    def repeat(cls, one: RowId, n: int) -> RowIds:
        """Return one id `n` times, for instance as the left side of `combine`."""
        return cls(np.full(n, one.low, dtype=np.uint64), np.full(n, one.high, dtype=np.uint64))

    @classmethod
    def of(cls, ids: Sequence[RowId]) -> RowIds:
        """Gather single ids."""
        return cls(
            np.array([one.low for one in ids], dtype=np.uint64),
            np.array([one.high for one in ids], dtype=np.uint64),
        )

    @classmethod
    def concat(cls, parts: Sequence[RowIds]) -> RowIds:
        """Return the ids of all parts, one part after the other."""
        if not parts:
            return cls.range(0, 0)
        return cls(np.concatenate([ids.low for ids in parts]), np.concatenate([ids.high for ids in parts]))

    @classmethod
    def from_arrow(cls, array: pa.Array | pa.ChunkedArray) -> RowIds:
        """Read the 16-byte binary form that `to_arrow` writes."""
        import pyarrow as pa

        if array.type != pa.binary(16):
            raise _refused(f"row ids are stored as fixed_size_binary[16], not {array.type}")
        if array.null_count:
            raise _refused(f"{array.null_count} of {len(array)} row ids are null")
        if isinstance(array, pa.ChunkedArray):
            return cls.concat([cls.from_arrow(chunk) for chunk in array.chunks])
        if len(array) == 0:
            return cls.range(0, 0)
        words = np.frombuffer(array.buffers()[1], dtype=">u8", count=2 * len(array), offset=16 * array.offset)
        return cls(words[1::2].astype(np.uint64), words[0::2].astype(np.uint64))

    def to_arrow(self) -> pa.FixedSizeBinaryArray:
        """Return 16 bytes per id, high word first: byte order is id order, and `RowId.bytes` is the same."""
        import pyarrow as pa

        words = np.empty((len(self), 2), dtype=">u8")
        words[:, 0] = self.high
        words[:, 1] = self.low
        return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(self), [None, pa.py_buffer(words)])

    def next(self) -> RowIds:
        """Return `RowId.next` of every id."""
        low, high = np.empty_like(self.low), np.empty_like(self.high)
        spare = _spare(len(self))
        for start, stop in _blocks(len(self)):
            _mix(self.low[start:stop], self.high[start:stop], low[start:stop], high[start:stop], spare)
        return RowIds(low, high)

    def fork(self) -> RowIds:
        """Return `RowId.fork` of every id."""
        low, high = np.empty_like(self.low), np.empty_like(self.high)
        spare = _spare(len(self))
        for start, stop in _blocks(len(self)):
            block = low[start:stop]
            _mix(self.low[start:stop], self.high[start:stop], block, high[start:stop], spare)
            np.bitwise_xor(block, _FORK, out=block)
        return RowIds(low, high)

    def combine(self, other: RowIds | RowId) -> RowIds:
        """Return `RowId.combine` of every id with its partner, or with one id for all."""
        if isinstance(other, RowIds) and len(other) != len(self):
            raise _refused(f"{len(self)} ids cannot be combined with {len(other)}")
        low, high = np.empty_like(self.low), np.empty_like(self.high)
        spare = _spare(len(self))
        if isinstance(other, RowId):
            one = RowIds.repeat(other, 1)
            key1, key2 = _spare(1), _spare(1)
            _keys(one.low, one.high, key1, key2, _spare(1))
        else:
            key1, key2 = _spare(len(self)), _spare(len(self))
        for start, stop in _blocks(len(self)):
            count = stop - start
            if isinstance(other, RowIds):
                _keys(other.low[start:stop], other.high[start:stop], key1[:count], key2[:count], spare)
            block_low, block_high = low[start:stop], high[start:stop]
            np.bitwise_xor(self.low[start:stop], key1[:count], out=block_low)
            np.bitwise_xor(self.high[start:stop], key2[:count], out=block_high)
            # The low word is mixed with the high word as it was; the key reaches it only afterwards.
            _mix_low(block_low, self.high[start:stop], block_low, spare)
            _mix_high(block_high, block_low, block_high, spare)
        return RowIds(low, high)

    def argsort(self) -> npt.NDArray[np.intp]:
        """Return the stable order of the ids: by high word, then low, both unsigned."""
        if not self.high.any():
            return np.argsort(self.low, kind="stable")
        return np.lexsort((self.low, self.high))

    def equals(self, other: RowIds) -> bool:
        """Say whether both hold the same ids in the same order."""
        return np.array_equal(self.low, other.low) and np.array_equal(self.high, other.high)

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, RowIds) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.low)

    def __iter__(self) -> Iterator[RowId]:
        for start in range(0, len(self), _BLOCK):
            stop = start + _BLOCK
            yield from ids_of(self.low[start:stop].tolist(), self.high[start:stop].tolist())

    @overload
    def __getitem__(self, at: int | np.integer[Any]) -> RowId: ...

    @overload
    def __getitem__(self, at: slice | npt.NDArray[np.bool_] | npt.NDArray[np.integer[Any]]) -> RowIds: ...

    def __getitem__(self, at: Any) -> RowId | RowIds:
        if isinstance(at, int | np.integer):
            return RowId(int(self.low[at]), int(self.high[at]))
        return RowIds(self.low[at], self.high[at])

    def __reduce__(self) -> tuple[Any, ...]:
        return (RowIds, (self.low, self.high))

    def __repr__(self) -> str:
        shown = ", ".join(one.hex for one in self[:3])
        return f"RowIds({len(self)}: {shown}{', …' if len(self) > 3 else ''})"


def _blocks(n: int) -> Iterator[tuple[int, int]]:
    return pairwise([*range(0, n, _BLOCK), n])


def _spare(n: int) -> Words:
    return np.empty(min(n, _BLOCK), dtype=np.uint64)


def _rotl(words: Words, by: int, out: Words, spare: Words) -> None:
    """Rotate into `out`, which may be `words` itself."""
    np.right_shift(words, np.uint64(64 - by), out=spare)
    np.left_shift(words, np.uint64(by), out=out)
    np.bitwise_or(out, spare, out=out)


def _mix_low(low: Words, high: Words, out: Words, spare: Words) -> None:
    _rotl(low, 27, out, spare[: len(low)])
    np.add(out, high, out=out)
    np.multiply(out, _5, out=out)
    np.add(out, _A1, out=out)


def _mix_high(high: Words, mixed_low: Words, out: Words, spare: Words) -> None:
    _rotl(high, 31, out, spare[: len(high)])
    np.add(out, mixed_low, out=out)
    np.multiply(out, _5, out=out)
    np.add(out, _A2, out=out)


def _mix(low: Words, high: Words, out_low: Words, out_high: Words, spare: Words) -> None:
    _mix_low(low, high, out_low, spare)
    _mix_high(high, out_low, out_high, spare)


def _keys(low: Words, high: Words, key1: Words, key2: Words, spare: Words) -> None:
    """Turn ids into the two words that `combine` xors into its left side."""
    _mix(low, high, key1, key2, spare)
    np.bitwise_xor(key1, _FORK, out=key1)
    temporary = spare[: len(low)]
    np.multiply(key1, _C1, out=key1)
    _rotl(key1, 31, key1, temporary)
    np.multiply(key1, _C2, out=key1)
    np.multiply(key2, _C2, out=key2)
    _rotl(key2, 33, key2, temporary)
    np.multiply(key2, _C1, out=key2)


def _refused(problem: str) -> InputError:
    return InputError(
        problem, remedy="make them with RowIds.range, of, concat or from_arrow", code="BadRowIds"
    )
