"""Hashes of rows, by their ids or by values: the same on every machine, in every process and version.

All arithmetic is on unsigned words of 64 bits and wraps around. `docs/views.md` writes the same down:

    mix(x):   x ^= x >> 30;  x *= 0xbf58476d1ce4e5b9;  x ^= x >> 27;  x *= 0x94d049bb133111eb;  x ^= x >> 31
    salt:     the first 16 bytes of BLAKE2b("trueline/<purpose>/<seed>"), two little-endian words s0 and s1
    of an id: mix(mix(low + s0) ^ (high + s1))
    of values: h = s0, and for each column h = mix((h + 0x9e3779b97f4a7c15) ^ word of the value)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline.identity import RowIds
from trueline.kernel.nan import canonical_floats

Words: TypeAlias = npt.NDArray[np.uint64]

_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MISSING: Final = np.uint64(0x6D697373696E6721)
# So many words at a time stay in the second-level cache; RowIds found the same number.
_BLOCK: Final = 16_384
# So many rows at a time: 5 M texts of 16 bytes took 0.03 s, 65,536 at a time 0.09.
_ROWS: Final = 16_384
# Which bits of a word belong to a text that ends after so many bytes of it.
_OF_LENGTH: Final = np.array([(1 << 8 * length) - 1 for length in range(9)], np.uint64)
# Texts up to so many bytes are hashed word by word, all rows at once; longer ones by BLAKE2b, one by one.
_SHORT: Final = 256


@dataclass(frozen=True)
class Salt:
    """What keeps hashes for one purpose and seed apart from all others."""

    low: int
    high: int

    @classmethod
    def of(cls, purpose: str, seed: int) -> Salt:
        """Return the salt of a purpose and a seed, which is any whole number."""
        digest = hashlib.blake2b(f"trueline/{purpose}/{seed}".encode()).digest()
        return cls(int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little"))


def hash_ids(ids: RowIds, salt: Salt) -> Words:
    """Return a hash of every id.

    >>> hash_ids(RowIds.range(0, 2), Salt.of("shuffle", 0)).tolist()
    [3180550302068674999, 15608217978239039113]
    """
    found = np.empty(len(ids), np.uint64)
    spare = np.empty(min(len(ids), _BLOCK), np.uint64)
    low, high = np.uint64(salt.low), np.uint64(salt.high)
    for start in range(0, len(ids), _BLOCK):
        block = found[start : start + _BLOCK]
        other = spare[: len(block)]
        np.add(ids.low[start : start + _BLOCK], low, out=block)
        mix(block, other)
        np.add(ids.high[start : start + _BLOCK], high, out=other)
        np.bitwise_xor(block, other, out=block)
        mix(block, other)
    return found


def hash_values(arrays: Sequence[pa.Array], rows: int, salt: Salt) -> Words:
    """Return a hash of every row's values; equal values have equal hashes, also of other widths.

    NaN is one value, so are 0.0 and -0.0, and so is null.

    >>> wide, narrow = pa.array([1, 1, 2]), pa.array([1, 1, 2], pa.int8())
    >>> found = hash_values([wide], 3, Salt(0, 0)).tolist()
    >>> found[0] == found[1] != found[2], found == hash_values([narrow], 3, Salt(0, 0)).tolist()
    (True, True)
    """
    if rows <= _ROWS:
        return _hashed(arrays, rows, salt)
    found = np.empty(rows, np.uint64)
    for start in range(0, rows, _ROWS):
        part = found[start : start + _ROWS]
        part[:] = _hashed([array.slice(start, len(part)) for array in arrays], len(part), salt)
    return found


def _hashed(arrays: Sequence[pa.Array], rows: int, salt: Salt) -> Words:
    found = np.full(rows, salt.low, np.uint64)
    spare = np.empty(rows, np.uint64)
    for array in arrays:
        word = value_words(array)
        if array.null_count:
            word = np.where(np.asarray(array.is_null()), _MISSING, word)
        np.add(found, GOLDEN, out=found)
        np.bitwise_xor(found, word, out=found)
        mix(found, spare)
    return found


def is_one_word(kind: pa.DataType) -> bool:
    """Say whether the word of a value is the value itself: different values then have different words."""
    return bool(
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_temporal(kind)
    )


def value_words(array: pa.Array) -> Words:
    """Return a word for every value; where a value is null it is any word."""
    kind = array.type
    if pa.types.is_floating(kind):
        return canonical_floats(_filled(array.cast(pa.float64()), 0.0)).view(np.uint64)
    if pa.types.is_unsigned_integer(kind):
        return _filled(array, 0).astype(np.uint64)
    if is_one_word(kind):
        return whole_numbers(array).view(np.uint64)
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_decimal(kind):
        return _fixed(array, kind.byte_width)
    return _texts(array)


def whole_numbers(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return booleans, whole numbers and times as whole numbers; 0 where a value is null."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return np.asarray(pc.fill_null(array, False)).astype(np.int64)
    if pa.types.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return _filled(array, 0).astype(np.int64, copy=False)


def _filled(array: pa.Array, value: object) -> npt.NDArray[Any]:
    return np.asarray(pc.fill_null(array, pa.scalar(value, array.type)) if array.null_count else array)


def mix(words: Words, spare: Words) -> None:
    """Spread every bit of words over all of them, in place; the row fingerprint mixes in the same way."""
    np.right_shift(words, np.uint64(30), out=spare)
    np.bitwise_xor(words, spare, out=words)
    np.multiply(words, _M1, out=words)
    np.right_shift(words, np.uint64(27), out=spare)
    np.bitwise_xor(words, spare, out=words)
    np.multiply(words, _M2, out=words)
    np.right_shift(words, np.uint64(31), out=spare)
    np.bitwise_xor(words, spare, out=words)


def _fixed(array: pa.Array, width: int) -> Words:
    """Values of so many bytes: their words one after another."""
    raw = np.frombuffer(array.buffers()[1], np.uint8, len(array) * width, array.offset * width)
    padded = np.zeros((len(array), -(-width // 8) * 8), np.uint8)
    padded[:, :width] = raw.reshape(len(array), width)
    return _chained(padded.view("<u8"), np.full(len(array), width, np.uint64))


def _chained(words: npt.NDArray[np.uint64], lengths: Words) -> Words:
    """`v = length`, then for each word `v = mix((v + golden) ^ word)`."""
    found = lengths.copy()
    spare = np.empty_like(found)
    for place in range(words.shape[1]):
        np.add(found, GOLDEN, out=found)
        np.bitwise_xor(found, words[:, place], out=found)
        mix(found, spare)
    return found


def _texts(array: pa.Array) -> Words:
    """Texts and bytes: as `_chained`, with zeros behind the last byte; long ones by BLAKE2b."""
    array = array.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
    lengths = np.diff(ends)
    if array.null_count:
        lengths = np.where(np.asarray(array.is_null()), 0, lengths)
    elif len(array) and 8 <= lengths[0] <= _SHORT and (lengths == lengths[0]).all():
        return _equally_long(data, int(ends[0]), len(array), int(lengths[0]))
    # A slice has the bytes of all rows: those of 5 M texts were copied for each 65,536 of them.
    first, size = int(ends[0]), int(ends[-1] - ends[0])
    raw = np.zeros(size + 8, np.uint8)
    if size:
        raw[:size] = np.frombuffer(data, np.uint8, size, first)
    return _of_lengths(raw, ends[:-1] - first, lengths)


def _equally_long(data: pa.Buffer, first: int, rows: int, length: int) -> Words:
    """Texts of the same length, at least eight bytes, which lie side by side: no word is gathered."""
    found = np.full(rows, length, np.uint64)
    spare = np.empty_like(found)
    for place in range(0, length, 8):
        # The last word ends with the text, and loses what the one before it had.
        gone = max(0, place + 8 - length)
        words = np.ndarray((rows,), "<u8", data, first + place - gone, (length,))
        np.add(found, GOLDEN, out=found)
        np.bitwise_xor(found, words >> np.uint64(8 * gone) if gone else words, out=found)
        mix(found, spare)
    return found


def _of_lengths(
    raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> Words:
    """Texts of any lengths by where they begin; eight zeros are behind the last."""
    # Words that begin at any byte.
    loose = np.ndarray((len(raw) - 7,), "<u8", buffer=raw, strides=(1,))
    found = lengths.astype(np.uint64)
    some = np.flatnonzero((lengths > 0) & (lengths <= _SHORT))
    at, left, mixed = starts[some], lengths[some], found[some]
    while len(some):
        # The bytes behind the value belong to its neighbour.
        words = loose[at] & _OF_LENGTH[np.minimum(left, 8)]
        mixed += GOLDEN
        mixed ^= words
        mix(mixed, words)
        at += 8
        left -= 8
        goes_on = left > 0
        if not goes_on.all():
            ended = ~goes_on
            found[some[ended]] = mixed[ended]
            some, at, left, mixed = some[goes_on], at[goes_on], left[goes_on], mixed[goes_on]
    for row in np.flatnonzero(lengths > _SHORT):
        value = raw[starts[row] : starts[row] + lengths[row]].tobytes()
        found[row] = int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "little")
    return found
